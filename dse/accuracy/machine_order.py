"""Order between unlike machines: how many measured pairs the simulation has right."""

import csv
from functools import cache

from dse.config.untrusted_files import SHIPPED_STUDIES

PAIRS = SHIPPED_STUDIES / "machines/pairs.csv"
"""Pairs of rows of two vendors on one model and nearly one load, the measured faster one first."""


@cache
def count_pairs() -> tuple[int, int]:
    """Measured pairs that the simulation orders as they were measured, and all of them."""
    with PAIRS.open(newline="") as file:
        ratios = [float(row["simulated"]) for row in csv.DictReader(file)]
    return sum(ratio > 1.0 for ratio in ratios), len(ratios)


def order_text() -> str:
    """How often the order between unlike machines was right, as a line of an answer."""
    right, pairs = count_pairs()
    return f"between unlike machines this tool ordered {right} of {pairs} measured pairs right: dse.studies.machines"
