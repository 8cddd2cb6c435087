"""Tolerances of studies' rows and known misses, by which ``dse validate`` counts failures.

Both tables ship beside the studies: ``tolerances.csv`` has rows by pattern, of which the last that matches counts;
``misses.csv`` has rows of role check that do not hold, each with the reason. All other checks are expected to hold.
"""

import csv
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from dse.config.compose import STUDIES
from dse.space.units import parse_quantity


def row_tolerance(study: str, row: str) -> float:
    """Largest error of a row that is no failure, relative to the published value. [-]

    >>> row_tolerance("hbm_patterns", "d-random-share")
    0.05
    """
    return next(share for pattern, share in reversed(_read_tolerances()) if fnmatchcase(f"{study}/{row}", pattern + "*"))


def find_known_miss(study: str, row: str) -> str:
    """Reason why a check is known not to hold; empty string if it is expected to hold."""
    return read_known_misses().get((study, row), "")


@cache
def read_known_misses() -> dict[tuple[str, str], str]:
    """Reasons why checks do not hold, by study and row."""
    return {(row["study"], row["id"]): row["why"] for row in _read_table(STUDIES / "misses.csv")}


@cache
def _read_tolerances() -> tuple[tuple[str, float], ...]:
    return tuple((row["rows"], parse_quantity(row["tolerance"], "1")) for row in _read_table(STUDIES / "tolerances.csv"))


def _read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
