"""Gaps as the study stores them: the largest of each design and phase, in ``gaps.csv``."""

import csv
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np

from dse.studies.what_closed_misses.gap_search import Gap

HERE = Path(__file__).parent
GAPS = HERE / "gaps.csv"

SHOWN = 10
"""Largest gaps, whose causes are found."""

WRITTEN = 5
"""Largest gaps of a family and phase that are stored with their settings; other designs have a number."""

SEPARATOR = "; "
"""Between the settings of a design."""


def largest_of_designs(gaps: Iterable[Gap]) -> list[Gap]:
    """The largest gap of each design and phase, over its loads; refused designs as well."""

    def kind(gap: Gap) -> tuple[str, tuple[str, ...], str]:
        return gap.family, gap.settings, gap.phase

    return [
        max(several, key=lambda gap: 0.0 if gap.refusal else abs(gap.gap))
        for _, several in groupby(sorted(gaps, key=kind), key=kind)
    ]


def largest_gaps(gaps: Iterable[Gap], count: int = SHOWN) -> list[Gap]:
    """The largest gaps, one of each family, phase and sign, so that they are not ten times the same."""
    kinds: dict[tuple[str, str, bool], Gap] = {}
    for gap in gaps:
        kind = gap.family, gap.phase, gap.simulated > gap.analytical
        if not gap.refusal and (kind not in kinds or abs(gap.gap) > abs(kinds[kind].gap)):
            kinds[kind] = gap
    return sorted(kinds.values(), key=lambda gap: -abs(gap.gap))[:count]


def write_gaps(gaps: Iterable[Gap]) -> None:
    """Write the largest gap of every design and phase into ``gaps.csv``."""
    with GAPS.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Gap._fields)
        stored = largest_of_designs(gaps)
        places: dict[tuple[str, str], list[float]] = {}
        for gap in stored:
            places.setdefault((gap.family, gap.phase), []).append(-abs(gap.gap))
        numbers = {
            settings: f"design {number}" for number, settings in enumerate(dict.fromkeys(gap.settings for gap in stored))
        }
        for gap in stored:
            largest = sorted(places[gap.family, gap.phase])[:WRITTEN]
            settings = SEPARATOR.join(gap.settings) if gap.refusal or -abs(gap.gap) <= largest[-1] else numbers[gap.settings]
            times = ("", "") if gap.refusal else (f"{gap.analytical:.6g}", f"{gap.simulated:.6g}")
            load = (gap.batch, gap.prompt, gap.output)
            lines.writerow((gap.family, gap.phase, *load, *times, settings, gap.refusal))


def read_gaps() -> list[Gap]:
    """Gaps that are stored in ``gaps.csv``."""
    with GAPS.open(newline="") as file:
        return [
            Gap(
                row["family"],
                row["phase"],
                *(int(row[name]) for name in ("batch", "prompt", "output")),
                *(float(row[name] or np.nan) for name in ("analytical", "simulated")),
                settings=tuple(row["settings"].split(SEPARATOR)),
                refusal=row["refusal"],
            )
            for row in csv.DictReader(file)
        ]
