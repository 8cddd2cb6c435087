"""Compare kernels and reference points across fidelities and simulators, or write the exports.

    python -m dse.studies.cross_check
    python -m dse.studies.cross_check export FOLDER [CASE ...]

The first form writes ``cases.csv``, ``points.csv`` and this study's README.md.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dse.evaluators.cost_models.program_trace import ProgramRun
from dse.space.errors import DesignError
from dse.studies.cross_check.cases import CASES, last_moments, runs_of, seconds_by_fidelity, write_exports
from dse.studies.cross_check.references import replay_points, replay_trace
from dse.studies.write import main as write
from dse.terminal.progress import say

HERE = Path(__file__).parent
CASE_COLUMNS = ("case", "simulator", "count", "volume", "analytical", "events", "cycles", "ours", "replayed")
POINT_COLUMNS = ("simulator", "point", "metric", "reference", "replayed")


def main(arguments: Sequence[str]) -> None:
    """Measure and write the tables, or write the exports where the first word is ``export``."""
    if not arguments:
        measure()
        return
    command, *rest = arguments
    if command != "export" or not rest:
        raise DesignError("cross_check: expected no arguments, or: export FOLDER [CASE ...]")
    unknown = set(rest[1:]) - {case.name for case in CASES}
    if unknown:
        raise DesignError(f"cross_check: no case {', '.join(sorted(unknown))}; valid: {', '.join(case.name for case in CASES)}")
    for case, target, entries in write_exports(Path(rest[0]), tuple(rest[1:])):
        say(f"{case.name}, {target}: {_count(entries):,} {_unit(entries)}")


def measure() -> None:
    """Run all cases and points, and write the tables and the README."""
    times = {case.name: seconds_by_fidelity(case) for case in CASES}
    rows = []
    with TemporaryDirectory() as folder:
        for case, target, entries in write_exports(Path(folder)):
            runs = runs_of(case)
            cycle = float(runs[0].fabric.cycle)
            ours = sum(_last_cycle(run, target) for run in runs)
            by_fidelity = [f"{times[case.name][word] / cycle:.1f}" for word in ("analytical", "events", "cycles")]
            place = Path(folder) / case.name / target
            files = [(place / f"{run.name}.cfg", place / f"{run.name}.trace", run) for run in runs]
            again = f"{sum(replay_trace(*each) for each in files):.1f}" if target == "booksim" else ""
            rows.append((case.name, target, _count(entries), f"{_volume(entries):.0f}", *by_fidelity, f"{ours:.1f}", again))
            say(f"{case.name}, {target}")
    _write("cases", CASE_COLUMNS, rows)
    points = (
        (point.simulator, point.name, point.metric, f"{point.reference:.6g}", f"{point.replayed:.6g}")
        for point in replay_points()
    )
    _write("points", POINT_COLUMNS, points)
    write(["cross_check"])


def _last_cycle(run: ProgramRun, target: str) -> float:
    """When the last packet arrives, or the last block is served, in cycles of the exported network or memory."""
    packets, blocks = last_moments(run)
    if target not in ("dramsim3", "ramulator") or run.banks is None:
        return packets
    return blocks * float(run.fabric.cycle) * float(run.banks.memory.clock)


def _unit(entries: Sequence[dict[str, Any]]) -> str:
    return next(name for name in ("packets", "requests", "nodes") if name in entries[0])


def _count(entries: Sequence[dict[str, Any]]) -> int:
    """Packets, requests or nodes of an export."""
    return sum(int(entry[_unit(entries)]) for entry in entries)


def _volume(entries: Sequence[dict[str, Any]]) -> float:
    """Byte-hops of packets, bytes of requests, or bytes of messages between ranks."""
    name = {"packets": "hop_bytes", "requests": "burst_bytes", "nodes": "sent_bytes"}[_unit(entries)]
    return sum(float(entry[name]) for entry in entries)


def _write(name: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    with (HERE / f"{name}.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(head)
        lines.writerows(rows)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DesignError as refused:
        sys.exit(f"cross_check: {refused}")
