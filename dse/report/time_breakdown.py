"""Breakdown of the time of designs, and plots of it as stacks at each value of a knob."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pandas as pd

from dse.evaluators import explain
from dse.evaluators.accounting.breakdown import Breakdown
from dse.execution.result_frame import knob_values
from dse.execution.study import Study
from dse.report.figure_style import short_number
from dse.report.page_cache import BINDING, STACKS, PageCache, breakdown_question
from dse.space.design import Design
from dse.space.knobs import Value
from dse.space.workload import WorkloadCase

BUDGET_S = 20.0
"""What a page may take to break designs down at a study's own fidelity, and again for each picture; others are by the closed
form."""

MAX_BUDGET_S = 40.0
"""What it may take in all; designs that are left then are not broken down."""

MAX_STACKS = 32
"""Values of a knob that a picture has room for; of more, the first ones."""


@lru_cache(maxsize=1024)
def cached_breakdown(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of a design without its timeline, cached for pages that are written repeatedly.

    The timeline of a serving load is as large as a page.
    """
    return replace(explain(design, case, decode_context=decode_context, fidelity=fidelity), segments={}, flows={})


def time_stacks(study: Study, frame: pd.DataFrame, start: int, kept: PageCache) -> list[dict[str, Any]]:
    """Stacked times that a study requests: per value of a knob, the best design's seconds by resource.

    One picture per case. [s]
    """
    stacks = []
    first, direction = next(iter(study.objectives.items()))
    good = frame[frame["feasible"]].sort_values(first, ascending=direction == "min", kind="stable")
    for spec in study.report.bars:
        if spec.x not in study.question.space.targets:
            continue
        best = good.drop_duplicates(spec.x)
        best = best.loc[_in_order(study, best, spec.x)].head(MAX_STACKS)
        cases = study.question.workload.cases
        points = [knob_values(study, row) for row in best.to_dict("records")]
        for number, case in enumerate(cases if spec.each else cases[:1]):
            end = time.monotonic() + BUDGET_S
            spent, by = [], []
            questions = [breakdown_question(study.question.space.key_at(point), study.fidelity, number) for point in points]
            kept.load(questions)
            for point, question in zip(points, questions, strict=True):
                known = kept.find(question)
                in_time = known or (time.monotonic() < end and not kept.is_late(question))
                by.append(study.fidelity if in_time else "analytical")
                if by[-1] != study.fidelity:
                    kept.note_late(question)
                record = known or kept_breakdown(study, point, number, by[-1], kept)
                spent.append(record[STACKS][spec.of])
            rows = [start + int(row) for row in best.index]
            picture = {"x": spec.x, "case": case.label, "rows": rows, "by": by}
            stacks.append(
                picture | {"spent": [{name: float(f"{s:.6g}") for name, s in shares.items() if s} for shares in spent]}
            )
    return stacks


def kept_breakdown(study: Study, values: Mapping[str, Value], case: int, by: str, kept: PageCache) -> dict[str, Any]:
    """Breakdown of a design in a case as plain values, computed where it is not kept.

    Args:
        study: the study.
        values: of the design's knobs.
        case: number of the case in the workload.
        by: fidelity.
        kept: where it may be known already, and where it goes.

    Returns:
        As of `breakdown_record`; with ``binding`` (seconds by what they were spent on) and ``stacks`` (the same by part of the
        machine and by operator). [s]
    """
    space, workload = study.question.space, study.question.workload
    question = breakdown_question(space.key_at(values), by, case)
    record: dict[str, Any] | None = kept.find(question)
    if record is None:
        parts = cached_breakdown(space.design_at(values), workload.cases[case], workload.decode_context, by)
        stacks = {"part": parts.by_bound(), "operator": _by_operator(parts)}
        record = kept.keep(question, breakdown_record(by, parts) | {BINDING: parts.seconds_by_cause(), STACKS: stacks})
    return record


def breakdown_record(by: str, parts: Breakdown) -> dict[str, Any]:
    """A breakdown as plain values."""
    phases = dict.fromkeys(operator.phase for operator in parts.rows)
    return {
        "by": by,
        "operators": [
            [
                *(op.phase, op.segment, op.operator, op.shape, op.bound),
                *(short_number(number) for number in (op.flop, op.nbytes, op.prefetched, op.seconds)),
                *(short_number(op.executed_flop or 0.0), op.cause, short_number(op.sent)),
            ]
            for op in parts.rows
        ],
        "spent": {phase: {name: short_number(s) for name, s in parts.by_bound(phase).items() if s} for phase in phases},
        "chip": [
            [title, unit, {name: short_number(value) for name, value in values.items() if value}]
            for title, unit, values in (
                ("area of a chip", "mm2", parts.area),
                ("power of a chip at its peak", "W", parts.power),
                ("price of a chip with its share of a server", "USD", parts.price),
            )
            if any(values.values())
        ],
    }


def _in_order(study: Study, rows: pd.DataFrame, address: str) -> list[int]:
    """Words as the space has them, numbers as they grow."""
    knob = study.question.space.knob(address)
    place = {value: place for place, value in enumerate(getattr(knob, "values", ()))}
    cells = rows[address]
    return sorted(rows.index, key=lambda row: place.get(cells[row], 0) if isinstance(cells[row], str) else cells[row])


def _by_operator(parts: Breakdown) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in parts.rows:
        sums[row.operator] = sums.get(row.operator, 0.0) + row.seconds
    return sums
