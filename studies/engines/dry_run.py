"""Predict measured rates from rows of others: versions, chips, vendors left out in turn.

    python -m dse.studies.engines.dry_run

The fitted numbers of a stack are fitted again without a group of rows, on a surface of simulated rates. The group is then
simulated with them. The accuracy in the stacks' cards is that of rows left out. Takes a quarter of an hour.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.studies.engines.fit import (
    FITS,
    VENDOR,
    FittedNumber,
    RateSurface,
    describe,
    fit_on,
    rate_surface,
    rows_of_fit,
    scores,
    simulate_logs,
)
from dse.studies.engines.rows import EngineRow, measured_rows, simulate_rows
from dse.studies.markdown_table import table

STACKS = Path(__file__).resolve().parents[2] / "conf" / "stack"
ENGINE = "trtllm"
VENDORS = ("gaudi2", "gaudi3", "mi300x_vllm", "tt_metal")
ASSUMED = ("unfitted", "early", "tuned", "ideal")
EVERY = 12
"""One of TensorRT-LLM's rows in so many stands beside those of other vendors."""

THIRD = 3
"""One of TensorRT-LLM's rows in so many is fitted and left out."""

HEAD = ["left out", "rows", "bias", "median abs. error", "within 20 %", "measured / simulated, 10th..90th percentile"]


class LeftOut(NamedTuple):
    """A group of rows that was predicted by numbers fitted on all others.

    Attributes:
        values: the numbers, in SI, shape (numbers,).
        logs: log of simulated over measured speed of its rows, shape (rows,).
    """

    name: str
    values: Array
    logs: Array

    @property
    def line(self) -> list[str]:
        """Cells of the group in a table."""
        return [self.name, f"{len(self.logs)}", *describe(scores(self.logs))]


def leave_out(
    rows: Sequence[EngineRow], numbers: Sequence[FittedNumber], surface: RateSurface, groups: Sequence[str]
) -> list[LeftOut]:
    """Each group predicted by numbers fitted on the rows of all others.

    Args:
        rows, numbers, surface: of a fit.
        groups: of each row, by name.
    """
    left = []
    for name in dict.fromkeys(groups):
        out = np.array([group == name for group in groups])
        values = fit_on(surface, numbers, ~out, reach=1.6)
        own = [row for row, is_out in zip(rows, out, strict=True) if is_out]
        left.append(LeftOut(name, values, simulate_logs(own, numbers, values)))
    return left


def current_values(numbers: Sequence[FittedNumber]) -> list[float]:
    """Start values of a fit: what the stacks' files have now."""
    return [number.start for number in numbers]


def of_engine() -> dict[str, list[LeftOut]]:
    """Versions, chips, and kinds of TensorRT-LLM's rows, each left out in turn."""
    numbers, rows = FITS[ENGINE], rows_of_fit(ENGINE)[::THIRD]
    surface = rate_surface(rows, numbers, current_values(numbers))
    kinds = {"version": [row.version for row in rows], "chip": [row.chip for row in rows], "model": [row.model for row in rows]}
    return {kind: leave_out(rows, numbers, surface, groups) for kind, groups in kinds.items()}


def of_vendors() -> list[LeftOut]:
    """Each vendor's rows predicted by four numbers that are fitted on those of the other vendors."""
    rows = [row for row in measured_rows() if row.stack in VENDORS]
    surface = rate_surface(rows, VENDOR, [0.4, 0.75, 0.3, 2e-3])
    return leave_out(rows, VENDOR, surface, [row.stack for row in rows])


def of_assumed() -> list[LeftOut]:
    """Rows of all vendors on assumed stacks, with about as many rows of each vendor."""
    engine = [row for row in measured_rows() if row.stack.startswith(ENGINE)][::EVERY]
    rows = [*engine, *(row for row in measured_rows() if row.stack in VENDORS)]
    return [LeftOut(name, np.array([]), np.log(simulate_rows(rows, stack=name))) for name in ASSUMED]


def join_groups(left: Sequence[LeftOut]) -> LeftOut:
    """All groups that were left out as one group of rows."""
    return LeftOut("all, each left out", np.array([]), np.concatenate([group.logs for group in left]))


def dry_run() -> str:
    """Tables of rows left out, in Markdown."""
    parts = []
    for kind, left in of_engine().items():
        parts += [f"TensorRT-LLM, each {kind} left out:", table(HEAD, [group.line for group in (*left, join_groups(left))])]
    left = of_vendors()
    parts += ["Vendors, each left out:", table(HEAD, [group.line for group in (*left, join_groups(left))])]
    parts += ["Stacks that no row was fitted on, on rows of all vendors:", table(HEAD, [group.line for group in of_assumed()])]
    return "\n\n".join(parts)


if __name__ == "__main__":
    print(dry_run())
