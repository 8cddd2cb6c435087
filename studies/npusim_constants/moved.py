"""Figures of NpuSim recomputed with one assumed constant of npu64 changed at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.accuracy.validate import RowQuestion, compose_question, overrides_of, parse_value_range, read_rows
from dse.evaluators import evaluate
from dse.evaluators.accounting.metrics import find_metric
from dse.space.design import Design, stack_designs
from dse.space.fields import field_at, leaf_at, replace_leaves
from dse.space.units import parse_quantity

HERE = Path(__file__).resolve().parent.parent

FACTORS = 0.8, 1.25
"""What constants are multiplied by."""

OTHERS = {"chip.tile.matrix.start": "230 cycle", "chip.tile.dma_start": "32 cycle"}
"""What is taken for constants that are 0: a call as tile32 has it, and a store of as many cycles as words of a kilobyte take.
Pipelines read no others: their cores start no vector instruction by software, and wait for no barrier."""

TIMES = ("chip.tile.", "chip.noc.", "chip.hbm.", "chip.decode.")
"""Parts of the chip that times depend on."""


class MovedFigure(NamedTuple):
    """One figure recomputed with one constant changed.

    Attributes:
        constant, value: address, and what it is; empty for the figure as it is.
        row, role: of the published figure.
        published: both ends of it.
        simulated: simulated figure; NaN where no design fits.
    """

    constant: str
    value: str
    row: str
    role: str
    published: tuple[float, float]
    simulated: float

    @property
    def error(self) -> float:
        """Relative error of the figure; 0 inside a published range."""
        low, high = self.published
        return min(0.0, self.simulated / low - 1 if low else 0.0) + max(0.0, self.simulated / high - 1)


def move_constants() -> Iterator[MovedFigure]:
    """Rows of NpuSim's studies without simulation, as they are and with each constant changed."""
    for path in sorted(HERE.glob("npusim*/published.csv")):
        for _, row in read_rows(path):
            words, base = (overrides_of(row, column) for column in ("overrides", "baseline"))
            if any(word.startswith("fidelity=") for word in (*words, *base)):
                continue
            first = compose_question(words)
            alone = any(word.startswith("chip=") for word in base)
            second = compose_question(base if alone else (*words, *base)) if base else None
            changes = list(_changes(first, second))
            values = _values(first, changes, row["metric"])
            if second is not None:
                values = values / _values(second, changes, row["metric"])
            published = parse_value_range(row["value"])
            for (constant, value, _), simulated in zip(changes, np.atleast_2d(values).mean(axis=0), strict=True):
                yield MovedFigure(constant, value, row["id"], row["role"], published, float(simulated))


def _changes(first: RowQuestion, second: RowQuestion | None) -> Iterator[tuple[str, str, Any]]:
    """Addresses, values as text and as numbers: of assumed numbers that times may depend on, in both designs the same."""
    yield "", "", None
    for source in first.question.sources:
        address = source.address
        if source.source != "assumed" or not address.startswith(TIMES):
            continue
        value = leaf_at(first.question.base, address)
        if isinstance(value, bool | str) or value is None:
            continue
        if second is not None and leaf_at(second.question.base, address) != value:  # what the figure varies
            continue
        if value:
            for factor in FACTORS:
                whole = "whole" in field_at(first.question.base, address).metadata
                number = max(round(value * factor), 1) if whole else value * factor
                yield address, f"x {factor:g}", number
        elif address in OTHERS:
            yield (
                address,
                OTHERS[address],
                parse_quantity(OTHERS[address], field_at(first.question.base, address).metadata["unit"]),
            )


def _values(question: RowQuestion, changes: list[tuple[str, str, Any]], what: str) -> np.ndarray:
    """A metric of a design with each change, shape (changes,), or of each case, shape (cases, changes)."""
    each = what.strip().startswith("each(")
    name = what.strip()[5:-1] if each else what.strip()
    find_metric(name)
    designs: list[Design] = [
        replace_leaves(question.question.base, {address: value} if address else {}) for address, _, value in changes
    ]
    evaluations = [
        evaluate(stack_designs([design]), question.question.workload, fidelity=question.fidelity, cases=each)
        for design in designs
    ]
    if each:
        return np.array([np.asarray(evaluation.cases[name])[:, 0] for evaluation in evaluations]).T
    return np.array([evaluation.columns[name][0] for evaluation in evaluations], float)
