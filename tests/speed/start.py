"""What one command costs from its start: python -m tests.speed.start [--against CHECKOUT]

CPU seconds of `dse evaluate` for one design, first ever (no bytecode and no compiled loops are kept, of ours or of libraries)
and warm, beside those of another checkout, which runs by the same interpreter and libraries, in turn. Machines are shared and
noisy: quote the ratios.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent.parent

COMMANDS = (
    "--help",
    "evaluate",
    "evaluate chip=wse2",
    "evaluate chip=npu64",
    "evaluate chip=tile_gh200 workload=attention",
)

WARM = 3
"""Runs, of which the median counts."""


def cpu(checkout: Path, command: str, caches: str) -> float:
    """CPU seconds of a command as a process of its own."""
    return run_command(checkout, command.split(), caches)[0]


def run_command(checkout: Path, words: Sequence[str], caches: str) -> tuple[float, str]:
    """CPU seconds of a command as a process of its own, in the folder of its caches, and what it prints."""
    places = {"PYTHONPYCACHEPREFIX": f"{caches}/python", "NUMBA_CACHE_DIR": f"{caches}/numba", "PYTHONPATH": str(checkout)}
    environment = {**os.environ, **places}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    Path(caches).mkdir(parents=True, exist_ok=True)
    before = os.times()
    program = [sys.executable, "-m", "dse.main", *words]
    run = subprocess.run(program, cwd=caches, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, run.stdout


def measured(command: str, checkouts: list[Path]) -> list[tuple[float, float]]:
    """CPU seconds of a command in each checkout, first ever and warm."""
    with tempfile.TemporaryDirectory() as caches:
        places = [f"{caches}/{number}" for number in range(len(checkouts))]
        first = [cpu(checkout, command, place) for checkout, place in zip(checkouts, places, strict=True)]
        turns = product(range(WARM), zip(checkouts, places, strict=True))
        warm = [cpu(checkout, command, place) for _, (checkout, place) in turns]
        return [(first[number], median(warm[number :: len(checkouts)])) for number in range(len(checkouts))]


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m tests.speed.start", description=__doc__)
    words.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of this repository")
    against = words.parse_args().against
    checkouts = [ROOT, *([against.resolve()] if against else [])]
    table = Table("dse", "first ever", "there", "ratio", "warm", "there", "ratio", title="CPU seconds")
    for command in COMMANDS:
        (first, warm), *others = measured(command, checkouts)
        cells = [("", ""), ("", "")]
        for there_first, there_warm in others:
            cells = [(f"{there_first:.2f}", f"{first / there_first:.2f}"), (f"{there_warm:.2f}", f"{warm / there_warm:.2f}")]
        table.add_row(command, f"{first:.2f}", *cells[0], f"{warm:.2f}", *cells[1])
    Console().print(table)


if __name__ == "__main__":
    main()
