"""Compare fidelities: all kernels by events and cycles, divided products by formula and events.

    python -m dse.studies.fidelity_gap [SIZES]

The command simulates the given number of random sizes per kernel, and writes ``gaps.csv``, ``divided.csv`` and this
study's README.md.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dse.studies.fidelity_gap.divided import NEAR, sample_products
from dse.studies.fidelity_gap.kernels import kernels
from dse.studies.write import main as write
from dse.terminal.progress import say

HERE = Path(__file__).parent
SIZES = 20
"""Of a kernel."""

PRODUCTS = 4000
"""Divided products."""

SEED = 17

Gaps = dict[tuple[str, ...], list[tuple[float, str]]]
"""Differences between two fidelities by kind, with the sizes at which they occur."""


def main(arguments: Sequence[str]) -> None:
    """Simulate the kernels, and write the tables of gaps."""
    sizes, rng = int(arguments[0]) if arguments else SIZES, np.random.default_rng(SEED)
    gaps: Gaps = {}
    for played in kernels(rng, sizes):
        by_events, by_cycles = played.seconds
        gap = by_events / by_cycles - 1 if by_cycles else 0.0
        gaps.setdefault((played.family, played.name, played.chip), []).append((gap, played.size))
    _write("gaps", ("family", "kernel", "chip"), gaps)
    gaps = {}
    for kernel in sample_products(PRODUCTS * sizes // SIZES, SEED):
        size = f"{kernel.m} x {kernel.k} x {kernel.n} on {kernel.cores} cores of {kernel.chip}"
        gaps.setdefault((kernel.partition, kernel.placement, kernel.routing), []).append((kernel.gap, size))
    _write("divided", ("partition", "placement", "routing"), gaps)
    write(["fidelity_gap"])


def _write(name: str, head: Iterable[str], gaps: Gaps) -> None:
    """A row a kind: sizes, the share that is near, the median, and the largest gap with where it is."""
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow((*head, "sizes", "near", "median", "worst", "at"))
        for kind, gap in sorted(gaps.items()):
            worst, size = max(gap, key=lambda gap: abs(gap[0]))
            each = np.array([gap for gap, _ in gap])
            near = float(np.mean(np.abs(each) <= NEAR))
            lines.writerow((*kind, len(each), f"{near:.4f}", f"{np.median(each):.4f}", f"{worst:.4f}", size))
            say(f"{', '.join(kind)}: {np.median(each):+.1%}, at most {worst:+.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
