"""First screen of a study: question, state, the front with what varies, and what to do next.

At most 25 lines; `dse show` and the end of `dse run` print them, and a notebook shows them of a stored study.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pandas as pd

from dse.commands.study_output import describe_load, format_case_labels, format_knob
from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN
from dse.execution.study import Study
from dse.execution.verify import Verification
from dse.explanations.advice import count_rejections, find_smallest_relaxation
from dse.explanations.sample_noise import FrontSample
from dse.report.caveats import describe_stacks
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.terminal.plain_names import named_setting, setting_name
from dse.terminal.screen_lines import SCREEN_WIDTH, ScreenRow, format_columns, format_screen, stack_headers

MAX_DESIGNS = 6
"""Designs of a front in a first screen; the report has all."""

MAX_OPTIONS = 5
"""Options of a knob that are named; of more their number is told."""

MAX_REJECTIONS = 4
"""Violated limits and constraints of a study without a feasible design that are told."""


class ShownStudy(Protocol):
    """A study with its stored results, as `dse.load` gives it."""

    @property
    def study(self) -> Study:
        """The study with its question, objectives and spaces."""

    def frame(self) -> pd.DataFrame:
        """Every design with knobs, metrics, feasible and front; empty if nothing is stored."""

    def runs(self) -> list[dict[str, Any]]:
        """Runs of the study in this folder."""

    def front_sample(self) -> FrontSample | None:
        """Offered load and noise of the front."""

    def verification_of(self, frame: pd.DataFrame) -> Verification | None:
        """The best designs at both fidelities."""


def stored_study_lines(loaded: ShownStudy, width: int = SCREEN_WIDTH) -> list[str]:
    """Lines of the first screen of a study with its stored results.

    Args:
        loaded: the study.
        width: characters of a line at most.
    """
    frame = loaded.frame()
    sample, verification = (loaded.front_sample(), loaded.verification_of(frame)) if len(frame) else (None, None)
    return study_lines(loaded.study, loaded.runs(), frame, sample, verification, width)


def study_lines(
    study: Study,
    runs: Sequence[Mapping[str, Any]],
    frame: pd.DataFrame,
    sample: FrontSample | None,
    verification: Verification | None,
    width: int = SCREEN_WIDTH,
) -> list[str]:
    """Lines of the first screen of a study, at most 25.

    Args:
        study: the study.
        runs: of it, the last one last; none while one ends.
        frame: its designs; empty if none are stored.
        sample: offered load of the front, and its margins to constraints; None if unknown.
        verification: the best designs at both fidelities; None if nothing was verified.
        width: characters of a line at most.
    """
    cases = study.question.workload.cases
    rows: list[ScreenRow | list[str]] = [ScreenRow("state", _state_text(study, runs, frame), needed=True)]
    rows += [ScreenRow("chips", study.chips)] if study.chips else []
    goals = ", ".join(f"{metric} {direction}" for metric, direction in study.objectives.items())
    bounds = f"; with {', '.join(map(str, study.bounds))}" if study.bounds else ""
    rows.append(ScreenRow("objectives", goals + bounds, needed=True))
    rows.append(ScreenRow("workload", f"{count_text(len(cases), 'case')}, {format_case_labels(study.question.workload)}"))
    rows.append(ScreenRow("knobs", _knobs_text(study)))
    rows += [ScreenRow("software", text, needed=True) for text in describe_stacks(study)[:1]]
    if sample is not None and sample.designs:
        rows += [ScreenRow(name, text) for name, text in (("load", sample.load_text), ("noise", sample.noise_text)) if text]
    elif load := describe_load(study):
        rows.append(ScreenRow("load", load))
    if len(frame):
        rows += _front_rows(study, frame, width) if frame["feasible"].any() else _rejection_rows(study, frame)
    if verification is not None:
        rows.append(ScreenRow("verified", verification_text(verification), needed=True))
    rows.append(ScreenRow("next", _next_text(study, frame), needed=True))
    return format_screen(f"{study.name}: {study.text}", rows, width)


def _state_text(study: Study, runs: Sequence[Mapping[str, Any]], frame: pd.DataFrame) -> str:
    """How far the study is: the last run, and the stored designs."""
    if not len(frame):
        return "no results here" + (f"; last run {runs[-1]['started'][:16]} {runs[-1]['state']}" if runs else "")
    counts = f"{count_text(len(frame), 'design')}, {int(frame['feasible'].sum()):,} feasible, fidelity {study.fidelity}"
    if not runs:
        return counts
    facts = runs[-1]["facts"]
    wall = facts.get("wall_seconds")
    took = f" in {format_quantity(wall, 's', 3)}" if isinstance(wall, int | float) else ""
    return f"{runs[-1]['state']}, {runs[-1]['started'][:16].replace('T', ' ')}{took}; {counts}; seed {study.seed}"


def _knobs_text(study: Study) -> str:
    """Knobs with the ends of their ranges."""
    texts = []
    for knob in study.question.space.knobs:
        values = getattr(knob, "values", None) or (knob.low, knob.high)  # type: ignore[union-attr]
        ends = [format_knob(study, knob.address, value) for value in values]
        words = isinstance(values[0], str)
        text = f"{ends[0]} to {ends[-1]}"
        if words:
            text = ", ".join(ends) if len(ends) <= MAX_OPTIONS else f"{len(ends)} options"
        texts.append(f"{named_setting(knob.address)} {text}")
    return "; ".join(texts)


def _front_rows(study: Study, frame: pd.DataFrame, width: int) -> list[ScreenRow | list[str]]:
    """The front, sorted by the first objective: a line a design, with its objectives and the knobs that vary."""
    best = frame[frame["front"]]
    first, direction = next(iter(study.objectives.items()))
    best = best.sort_values(first, ascending=direction == "min", kind="stable")
    most = min(len(best), MAX_DESIGNS)
    picks = best.iloc[[round(place * (len(best) - 1) / max(most - 1, 1)) for place in range(most)]]
    knobs = [knob.address for knob in study.question.space.knobs if best[knob.address].astype(str).nunique() > 1]
    formats = ["formats"] if "formats" in best and best["formats"].astype(str).nunique() > 1 else []
    same = [
        knob.address for knob in study.question.space.knobs if knob.address not in knobs and best[knob.address].notna().any()
    ]
    cells = [
        [str(row[DESIGN])]
        + [format_quantity(float(row[name]), METRICS[name].unit) for name in study.objectives]
        + [str(row[name]) for name in formats]
        + [format_knob(study, address, row[address]) for address in knobs]
        for _, row in picks.iterrows()
    ]
    head, cells = stack_headers([DESIGN, *study.objectives, *formats, *map(setting_name, knobs)], cells)
    left = [0, *(1 + len(study.objectives) + len(formats) + place for place, knob in enumerate(knobs) if knob == CHIP_KNOB)]
    shown = f", {most} shown" if most < len(best) else ""
    title = f"front: {len(best):,} of {int(frame['feasible'].sum()):,} feasible designs in the report{shown}"
    rows: list[ScreenRow | list[str]] = [[title, *format_columns(head, cells, width, left=left)]]
    if same:
        alike = ", ".join(f"{setting_name(address)} {format_knob(study, address, best[address].iloc[0])}" for address in same)
        rows.append(ScreenRow("all have", alike))
    return rows


def _rejection_rows(study: Study, frame: pd.DataFrame) -> list[ScreenRow | list[str]]:
    """The limits and constraints that reject all designs, and the smallest relaxation that admits one."""
    rejected = [
        f"{rejection.what} by {count_text(rejection.designs, 'design')}"
        + (f", by {100 * rejection.least:.3g} % or more" if rejection.least else "")
        for rejection in count_rejections(study, frame)[:MAX_REJECTIONS]
    ]
    rows: list[ScreenRow | list[str]] = [
        ScreenRow("front", f"none of {len(frame):,} designs is feasible", needed=True),
        ScreenRow("violated", "; ".join(rejected)),
    ]
    values, gives = find_smallest_relaxation(study, frame)
    if gives:
        knobs = ", ".join(f"{address} {format_knob(study, address, value)}" for address, value in values.items())
        relaxed = f"smallest relaxation that admits a design: {', and '.join(gives)}"
        rows += [ScreenRow("change", relaxed, needed=True), ScreenRow("", f"for the design {knobs}")]
    return rows


def verification_text(verification: Verification) -> str:
    """How the front stands at the higher fidelity, in one line."""
    parts = [verification.part] if verification.part else []
    if not parts:
        moves = verification.moves()
        stay, fall, come = (int((moves == move).sum()) for move in ("stays", "falls off", "comes on"))
        parts = [
            f"of {stay + fall:,} designs on the front, {stay:,} stay there at {verification.high} and {fall:,} fall off; "
            f"{come:,} enter it"
        ]
        if better := int(verification.off.better.sum()):
            others = len(verification.off.after)
            parts.append(f"of {others:,} designs off the front, {better:,} would be on the front at {verification.high}")
    return "; ".join(filter(None, (*parts, verification.verdict_text)))


def _next_text(study: Study, frame: pd.DataFrame) -> str:
    """Commands that lead on from here."""
    name = study.name
    more = f"dse show {name} --full knobs and constants"
    if not len(frame):
        return f"dse run {name}; {more}"
    if not frame["feasible"].any():
        return f"relax a constraint, as in dse run {name} name=relaxed constraints.METRIC='<= VALUE'; {more}"
    best = frame[frame["front"]]
    first, direction = next(iter(study.objectives.items()))
    design = str(best.sort_values(first, ascending=direction == "min", kind="stable")[DESIGN].iloc[0])
    return (
        f"dse explain {name} --design {design} effect of its knobs; dse whynot {name} chip.SETTING=VALUE your design beside "
        f"the front; dse report {name} the page; {more}"
    )
