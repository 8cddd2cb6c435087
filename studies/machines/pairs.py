"""Order between unlike machines: pairs measured on one model and load, and which is faster.

    python -m dse.studies.machines.pairs --write

Writes `pairs.csv`, which `dse compare` counts. Two rows are a pair if their chips are of different vendors, their model and
metric are the same, and their loads are near: prompt and output within `NEAR` (of a token's time, what a token looks back on,
on average), and batches within `BATCHES`, or both as many as fit. Speeds are those of whole systems as their pages have them,
however many chips these are. Measured speeds within `TIE` of each other say no order.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.studies.engines.rows import EngineRow, simulate_rows
from dse.studies.machines.rows import MachineRow, all_rows

FILE = Path(__file__).resolve().parent / "pairs.csv"
COLUMNS = ("faster", "slower", "model", "metric", "measured", "simulated")

NEAR = 1.3
"""Most that one length is of another."""

BATCHES = 2.0
"""Most that one batch is of another."""

MANY = 48
"""Requests at a time from which on a rate is that of a full machine."""

TIE = 1.05
"""Most that one speed is of another where the pages say no order."""


class Pair(NamedTuple):
    """Two measured rows on unlike machines, the measured faster one first.

    Attributes:
        measured, simulated: speed of the first over that of the second.
    """

    faster: str
    slower: str
    model: str
    metric: str
    measured: float
    simulated: float

    @property
    def is_right(self) -> bool:
        """Whether the simulation has the same machine faster."""
        return self.simulated > 1.0


def is_near(row: EngineRow, other: EngineRow) -> bool:
    """Whether two rows are of one model, one metric and nearly one load."""
    if (row.model, row.metric) != (other.model, other.metric) or "closed" in {row.bench, other.bench} != {"closed"}:
        return False  # users that wait for an answer are another load than as many requests as fit
    batches = _batch(row), _batch(other)
    loaded = max(batches) <= BATCHES * min(batches) or min(batches) >= MANY
    return loaded and all(max(pair) <= NEAR * min(pair) for pair in zip(_lengths(row), _lengths(other), strict=True))


def _batch(row: EngineRow) -> int:
    return MANY if row.bench == "offline" else row.requests


def _lengths(row: EngineRow) -> Sequence[float]:
    """What a row's metric depends on: the prompt, what a token looks back on, or both lengths."""
    if row.metric == "ttft":
        return (row.prompt,)
    if row.metric == "tpot":
        return (row.prompt + row.output / 2,)
    return row.prompt, row.output


def near_pairs(rows: Iterable[MachineRow]) -> list[tuple[MachineRow, MachineRow]]:
    """Pairs of rows of two vendors on nearly one load, the measured faster first; none that tie."""
    pairs = []
    for first, second in combinations((row for row in rows if row.is_simulated and row.role != "report"), 2):
        if first.vendor == second.vendor or not is_near(first.row, second.row):
            continue
        ratio = measured_ratio(first.row, second.row)
        if max(ratio, 1 / ratio) > TIE:
            pairs.append((first, second) if ratio > 1 else (second, first))
    return pairs


def measured_ratio(row: EngineRow, other: EngineRow) -> float:
    """Measured speed of a row over that of another: a rate over a rate, or a time under a time."""
    return other.value / row.value if row.unit == "s" else row.value / other.value


def find_pairs(stack: str = "") -> list[Pair]:
    """All pairs with measured and simulated order, each row on its vendor's stack, or all on one."""
    near = near_pairs(all_rows())
    rows = list(dict.fromkeys(row for pair in near for row in pair))
    speeds = dict(zip(rows, simulate_rows((row.row for row in rows), stack=stack), strict=True))
    pairs = []
    for first, second in near:
        ratio = measured_ratio(first.row, second.row)
        words = (name_of(first), name_of(second), first.row.model, first.row.metric)
        pairs.append(Pair(*words, ratio, ratio * speeds[first] / speeds[second]))
    return pairs


def name_of(row: MachineRow) -> str:
    """A row by its chips, lengths and batch."""
    measured = row.row
    batch = "offline" if measured.bench == "offline" else f"batch {measured.requests}"
    return f"{max(measured.tp, 1)} x {measured.chip}, {measured.weights}, {measured.prompt}/{measured.output}, {batch}"


def read_pairs() -> list[Pair]:
    """Pairs of machines that `pairs.csv` has, in its order."""
    with FILE.open(newline="") as file:
        return [
            Pair(row["faster"], row["slower"], row["model"], row["metric"], float(row["measured"]), float(row["simulated"]))
            for row in csv.DictReader(file)
        ]


def write_pairs() -> None:
    """Write all pairs into `pairs.csv`."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for pair in find_pairs():
            writer.writerow([*pair[:4], f"{pair.measured:.4g}", f"{pair.simulated:.4g}"])


def score_pairs(pairs: Sequence[Pair]) -> tuple[int, float]:
    """Pairs whose order is right, and the median factor by which simulated ratios are off."""
    off = np.abs(np.log([pair.simulated / pair.measured for pair in pairs]))
    return sum(pair.is_right for pair in pairs), float(np.exp(np.median(off)))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("python -m dse.studies.machines.pairs --write")
    write_pairs()
