"""Sentences at the top of a report: what to build and why, and how far the numbers tell designs apart."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN
from dse.execution.study import Study
from dse.report.figure_style import pretty_unit
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.plain_names import part_name, plain_name, setting_name

NO_VALUE = "-"
"""Text of a value that is not there."""

MAX_KNOBS = 6
"""Knobs of a design that are named."""

MIN_SHARE = 0.05
"""Share of an objective's variance from which on a knob is named as what decides it."""


def study_verdict(study: Study, frame: pd.DataFrame, record: Mapping[str, Any]) -> list[str]:
    """Sentences on a study's front, each of at most some 25 words.

    Args:
        study: the study.
        frame: its designs in the order of the page, the front first.
        record: of the study for the page: ``start``, ``explained``, ``why``, ``importance``, ``bands``, ``sample``.
    """
    front = frame[frame["front"]]
    if not len(front):
        return [_infeasible_text(frame)]
    knee = find_knee(front, study.objectives)
    return [
        *_choice_texts(study, front, knee),
        _knobs_text(study, front.iloc[knee]),
        *_reason_texts(study, front, record, knee),
        *_doubt_texts(front, record, knee),
    ]


def find_knee(front: pd.DataFrame, objectives: Mapping[str, str]) -> int:
    """Place of the front design that is nearest to all best values, objectives scaled to their spans."""
    away = np.zeros(len(front))
    for name, direction in objectives.items():
        values = front[name].to_numpy(dtype=float)
        best, span = (values.max() if direction == "max" else values.min()), np.ptp(values) or 1.0
        away += ((values - best) / span) ** 2
    return int(away.argmin())


def metric_text(name: str, value: float) -> str:
    """Value of a metric with its unit, as a page shows it.

    >>> metric_text("tpot", 0.00779)
    '7.79 ms'
    """
    text = format_quantity(value, METRICS[name].unit)
    number, _, unit = text.partition(" ")
    return f"{number} {pretty_unit(unit)}".strip() if math.isfinite(value) else NO_VALUE


def knob_text(value: Any, unit: str) -> str:
    """Value of a knob with its unit; `NO_VALUE` where the design does not have it.

    >>> knob_text(8e6, "B"), knob_text("partial", ""), knob_text(None, "B")
    ('8 MB', 'partial', '-')
    """
    if isinstance(value, str):
        return value
    return NO_VALUE if value is None or not math.isfinite(value) else format_quantity(float(value), unit)


def _infeasible_text(frame: pd.DataFrame) -> str:
    broken = frame["limit"].value_counts()
    if not len(broken):
        return "No design is feasible: every one that was looked at failed."
    return f"No design is feasible: {broken.iloc[0]:,} of {len(frame):,} break {broken.index[0]}, more than any other limit."


def _choice_texts(study: Study, front: pd.DataFrame, knee: int) -> list[str]:
    goals = study.objectives
    if len(front) == 1 or len(goals) == 1:
        row = front.iloc[0] if len(front) == 1 else front.iloc[knee]
        values = " and ".join(f"{plain_name(name)} of {metric_text(name, row[name])}" for name in goals)
        return [f"Build design {row[DESIGN]}: {values}, the best of the study."]
    row = front.iloc[knee]
    values = " and ".join(f"{plain_name(name)} of {metric_text(name, row[name])}" for name in goals)
    ends = []
    for name, direction in goals.items():
        column = front[name].to_numpy(dtype=float)
        end = front.iloc[int(column.argmax() if direction == "max" else column.argmin())]
        word = "highest" if direction == "max" else "lowest"
        ends.append(f"{end[DESIGN]} for the {word} {plain_name(name)}, {metric_text(name, end[name])}")
    return [f"For a balance build design {row[DESIGN]}: {values}.", f"Or build {'; or '.join(ends)}."]


def _knobs_text(study: Study, row: Any) -> str:
    """Knobs of the chosen design."""
    space, parts = study.question.space, []
    for knob in space.knobs:
        text = knob_text(row.get(knob.address), space.spec(knob.address).metadata["unit"])
        parts += [f"{setting_name(knob.address)} {text}"] if text != NO_VALUE else []
    more = f" and {len(parts) - MAX_KNOBS} more knobs" * (len(parts) > MAX_KNOBS)
    return f"It has {', '.join(parts[:MAX_KNOBS])}{more}."


def _reason_texts(study: Study, front: pd.DataFrame, record: Mapping[str, Any], knee: int) -> list[str]:
    """What takes the time of the chosen design, and the knob that decides each objective."""
    texts = []
    known = record["explained"]["designs"].get(str(record["start"] + knee))
    leads = [_leading_part(phase, parts) for phase, parts in (known or {"spent": {}})["spent"].items()]
    if any(leads):
        texts.append(f"Its time goes mostly to {', and '.join(filter(None, leads))}.")
    decided: dict[str, list[str]] = {}
    for goal, shares in record["importance"].items():
        address, share = max(shares.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= MIN_SHARE:
            decided.setdefault(address, []).append(f"{share:.0%} of the variance of {plain_name(goal)}")
    for address, goals in decided.items():
        texts.append(f"The knob {setting_name(address)} alone explains {' and '.join(goals)}.")
    return texts


def _leading_part(phase: str, parts: Mapping[str, float]) -> str:
    positive = {name: seconds for name, seconds in parts.items() if seconds > 0}
    if not positive:
        return ""
    name, seconds = max(positive.items(), key=lambda item: item[1])
    return f"{part_name(name)} in {phase} ({seconds / sum(positive.values()):.0%})"


def _doubt_texts(front: pd.DataFrame, record: Mapping[str, Any], knee: int) -> list[str]:
    """Ties by the errors of predictions, noise of a load, and what measurements say of the numbers."""
    texts = []
    distinct = record["why"]["distinct"]
    if distinct and len(distinct["of"]) == len(front) > 1:
        alike = sum(stands_for == distinct["of"][knee] for stands_for in distinct["of"]) - 1
        if alike:
            texts.append(
                f"{alike:,} other {'design' if alike == 1 else 'designs'} of the front cannot be distinguished from it by the "
                "errors assumed or measured; any of them will do."
            )
    if noise := record["sample"].get("noise_text"):
        texts.append(str(noise))
    texts += _band_texts(record["bands"])
    return texts


def _band_texts(bands: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [band for band in bands if band["low"] is not None]
    if not bands or known:
        names = dict.fromkeys(
            f"{plain_name(band['metric'])} {' to '.join(dict.fromkeys(f'{band[end]:+.0%}' for end in ('low', 'high')))} "
            f"({count_text(band['rows'], 'row')})"
            for band in known[:2]
        )
        return [f"On measured rows of this kind the model was off in {'; '.join(names)}."] if names else []
    return ["No measurement of this kind exists: read differences between designs, not absolute values."]
