"""Search for the largest gaps, find their causes, and write this study's tables and README.md.

    python -m dse.studies.what_closed_misses [STAGE ...]

Stages are ``gaps`` (search every family that ``gaps.csv`` does not have), ``causes`` (of the ten largest), ``overlaps``,
``faults`` and ``parts``; all of them unless some are named. Each writes a table of its name. Remove ``gaps.csv`` to
search anew.
"""

import csv
import math
import sys
from collections.abc import Iterable, Sequence

from dse.evaluators.calls.submesh import parse_fidelity
from dse.space.errors import DesignError, suggest_nearest
from dse.studies.what_closed_misses.causes import ENOUGH, find_cause
from dse.studies.what_closed_misses.families import FAMILIES
from dse.studies.what_closed_misses.gap_search import search_gaps
from dse.studies.what_closed_misses.overlaps import simulate_overlaps
from dse.studies.what_closed_misses.parts import simulate_faults, simulate_parts
from dse.studies.what_closed_misses.stored_gaps import GAPS, HERE, largest_gaps, largest_of_designs, read_gaps, write_gaps
from dse.studies.write import main as write
from dse.terminal.progress import say

SECONDS = 20.0
"""CPU time of a family's search. [s]"""

DESIGNS = 100
"""Designs of a family that are simulated at most."""

SLOWER = 3
"""Times as much that families get whose fidelity is cycles."""


def main(arguments: Sequence[str]) -> None:
    """Run the stages that are named, or all of them, and write the README."""
    for name in arguments:
        if name not in STAGES:
            raise DesignError(f"no stage {name!r}; {suggest_nearest(name, STAGES)}")
    for name in arguments or STAGES:
        STAGES[name]()
    write(["what_closed_misses"])


def search() -> None:
    """Search the families that are not stored yet."""
    stored = read_gaps() if GAPS.exists() else []
    for family in FAMILIES:
        if any(gap.family == family.name for gap in stored):
            continue
        slow = parse_fidelity(family.fidelity)[0] == "cycles"
        gaps = largest_of_designs(search_gaps(family, SECONDS * (SLOWER if slow else 1), DESIGNS))
        stored += gaps
        write_gaps(stored)
        largest = max((abs(gap.gap) for gap in gaps if not gap.refusal), default=math.nan)
        say(f"{family.name}: {len({gap.settings for gap in gaps})} designs, at most {largest:.1%}")


def write_causes() -> None:
    """Find the causes of the largest gaps and write them into ``causes.csv``."""
    rows = []
    for gap in largest_gaps(read_gaps()):
        cause = find_cause(gap)
        others = ", ".join(
            f"{name} {share:.0%}"
            for name, share in sorted(cause.shares.items(), key=lambda item: -item[1])
            if share >= ENOUGH and name != cause.category
        )
        rows.append((
            *(gap.family, gap.phase, gap.batch, gap.prompt, gap.output, f"{gap.analytical:.6g}", f"{gap.simulated:.6g}"),
            *(cause.category, cause.what, f"{cause.left:.4f}", f"{cause.closed:.4f}", cause.where, others),
            " ".join(gap.settings),
        ))  # fmt: skip
        say(f"{gap.family}, {gap.phase}: {gap.gap:+.1%}, {cause.category} ({cause.closed:.0%})")
        write_table("causes", CAUSE_COLUMNS, rows)


CAUSE_COLUMNS = (
    *("family", "phase", "batch", "prompt", "output", "analytical", "simulated", "category", "what", "left", "closed"),
    *("where", "others", "settings"),
)


def write_table(name: str, head: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table of this study, with numbers of six digits."""
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(head)
        for row in rows:
            lines.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def _write_all(name: str, results: Iterable[tuple[object, ...]]) -> None:
    rows: list[tuple[object, ...]] = []
    for row in results:
        rows.append(row)
        write_table(name, row._fields, rows)  # type: ignore[attr-defined]
        say(f"{name}: {', '.join(map(str, row[:3]))}")


STAGES = {
    "gaps": search,
    "causes": write_causes,
    "overlaps": lambda: _write_all("overlaps", simulate_overlaps()),
    "faults": lambda: _write_all("faults", simulate_faults()),
    "parts": lambda: _write_all("parts", simulate_parts()),
}
"""What is computed, by the names of the tables."""


if __name__ == "__main__":
    main(sys.argv[1:])
