"""The study's best designs under other bounds, lengths and nodes, and without each idea."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.commands.notebook_api import StoredStudy, find_study
from dse.evaluators import METRICS, evaluate
from dse.space.array_math import Array
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

OBJECTIVE, OF_FLEETS = "capacity_per_mm2", "fleet_throughput_per_mm2"
"""Tokens per time and area, at the maximum rate of a system and of a demand's whole systems."""

ASKED: dict[str, tuple[str, ...]] = {
    "as asked": (),
    "50 ms a token": ("workload.tpot='50 ms'",),
    "20 ms a token": ("workload.tpot='20 ms'",),
    "10 ms a token": ("workload.tpot='10 ms'",),
    "1 s to the first token": ("workload.ttft='1 s'",),
    "99 of 100 requests": ("workload.slo_percentile=99",),
    "prompts of 4,000 and answers of 400 tokens": (
        "workload.trace=null", "workload.resample=false", "workload.prompt=4000", "workload.output=400",
    ),
    "1 request/s in all": ("workload.demand='1 Hz'",),
    "10 requests/s in all": ("workload.demand='10 Hz'",),
    "100 requests/s in all": ("workload.demand='100 Hz'",),
    "7 nm": ("technology@chip.technology=n7",),
}  # fmt: skip
"""Overrides of the question, by what they say."""

IDEAS: dict[str, tuple[str, str, tuple[Any, ...]]] = {
    "FlatAttention: groups": ("mapping.both.attention.dataflow", "flash3", ("flat_tree", "flat_async")),
    "PRESERVE: prefetching": ("mapping.both.prefetch", "none", ("whole", "partial")),
    "PRESERVE: prefetching of pipelines": ("mapping.both.prefetch.policy", "none", ("partial",)),
    "WaferLLM: K-tree": ("mapping.both.ktree_k", "1", ("2", "3")),
    "chunked prompts": ("mapping.serving.policy", "prefill_first", ("chunked_prefill",)),
}
"""Ideas, by the knob that has them, its value without, and those with."""

BEST = 8
"""Designs of each chip, the best by each objective, that are asked otherwise."""


def variations_text(study: StoredStudy) -> str:
    """Tables of the winner under each variation, and of what each idea is worth."""
    chosen = _best_of_each_chip(study)
    values = [_knobs(study, row) for _, row in chosen.iterrows()]
    return f"{_winners_text(values)}\n\n{_ideas_text(study, chosen, values)}"


def _best_of_each_chip(study: StoredStudy) -> pd.DataFrame:
    """Feasible designs, the best of each chip by each objective, each once."""
    frame, goals = study.frame(), study.study.objectives
    good = frame[frame["feasible"]]
    parts = [
        rows.sort_values(name, ascending=way == "min", kind="stable").head(BEST)
        for _, rows in good.groupby("chip", sort=False)
        for name, way in goals.items()
    ]
    return pd.concat(parts).drop_duplicates("design").reset_index(drop=True)


def _knobs(study: StoredStudy, row: pd.Series) -> dict[str, Any]:
    """Knobs of a stored design."""
    space = study.study.question.space
    return {
        knob.address: row[knob.address]
        for knob in space.knobs
        if row[knob.address] is not None and row[knob.address] == row[knob.address]
    }


def _columns(values: Sequence[dict[str, Any]], names: Sequence[str], *words: str) -> dict[str, Array]:
    """Metrics of designs of the question with overrides, NaN where infeasible."""
    question = find_study("mesh_llm", *words).question
    designs = [question.space.design_at(knobs) for knobs in values]
    outcomes = evaluate(stack_designs(designs), question.workload, fidelity="steady_state", metrics=list(names))
    return {name: np.where(outcomes.feasible, outcomes.columns[name], np.nan) for name in names}


def _winners_text(values: Sequence[dict[str, Any]]) -> str:
    chips = list(dict.fromkeys(str(knobs["chip"]) for knobs in values))
    which = np.array([str(knobs["chip"]) for knobs in values])
    rows = []
    for text, words in ASKED.items():
        metric = OF_FLEETS if any("demand" in word for word in words) else OBJECTIVE
        worth = _columns(values, [metric], *words)[metric]
        best = {chip: np.nanmax(worth[which == chip]) if np.isfinite(worth[which == chip]).any() else np.nan for chip in chips}
        cells = ["none" if np.isnan(value) else f"{value:.4g}" for value in best.values()]
        winner = max(best, key=lambda chip: best[chip] if best[chip] == best[chip] else -1.0)
        rows.append([text, winner if any(value == value for value in best.values()) else "none", *cells])
    unit = METRICS[OBJECTIVE].unit
    text = f"The same {len(values)} designs, the best {BEST} of each chip by each objective, under other questions"
    text += f": the largest {OBJECTIVE} of each chip, and of a demand {OF_FLEETS}, in {unit}."
    return f"{text}\n\n{table(['question', 'winner', *chips], rows)}"


def _option_text(value: Any) -> str:
    """A knob's value as its options are written."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ideas_text(study: StoredStudy, chosen: pd.DataFrame, values: Sequence[dict[str, Any]]) -> str:
    names = [OBJECTIVE, "energy_per_token", "price_per_mtoken"]
    pairs, rows = [], []
    for chip, designs in chosen.groupby("chip", sort=False):
        best = int(designs[OBJECTIVE].idxmax())
        for idea, (address, without, within) in IDEAS.items():
            now = _option_text(values[best].get(address))
            if now not in (without, *within):
                continue
            others = [without] if now in within else list(within)
            known = {str(option): option for option in study.study.question.space.knob(address).values}  # type: ignore[union-attr]
            pairs += [(str(chip), idea, now, best, other, values[best] | {address: known[other]}) for other in others]
    if not pairs:
        return ""
    columns = _columns([values[best] for *_, best, _, _ in pairs] + [other for *_, other in pairs], names)
    for place, (chip, idea, now, _, other, _) in enumerate(pairs):
        of_now, of_other = ({name: float(columns[name][at]) for name in names} for at in (place, place + len(pairs)))
        cells = [
            f"{of_other[name] / of_now[name] - 1:+.1%}" if of_other[name] == of_other[name] else "infeasible" for name in names
        ]
        rows.append([chip, idea, now, other, format_quantity(of_now[OBJECTIVE], METRICS[OBJECTIVE].unit), *cells])
    head = ["chip", "idea", "the best has", "with", OBJECTIVE, *(f"{name} then" for name in names)]
    return f"One word of the best design of each chip changed, all others kept:\n\n{table(head, rows)}"
