"""Plays every registered kernel by events and by cycles: python -m studies.fidelity_gap

Writes ``gaps.csv`` and this study's README.md.
"""

import csv
from pathlib import Path

from dse.progress import say
from studies.fidelity_gap.kernels import kernels
from studies.write import main as write

HERE = Path(__file__).parent


def main() -> None:
    """Plays, and writes what came out."""
    with (HERE / "gaps.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("family", "kernel", "chip", "events", "cycles"))
        for played in kernels():
            by_events, by_cycles = played.seconds
            if by_cycles:
                lines.writerow((played.family, played.name, played.chip, f"{by_events:.6g}", f"{by_cycles:.6g}"))
                say(f"{played.family} {played.name}: {by_events / by_cycles - 1:+.1%}")
    write(["fidelity_gap"])


if __name__ == "__main__":
    main()
