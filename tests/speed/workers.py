"""What workers add to a screen's work: python -m tests.speed.workers [DESIGNS] [COUNT ...] [OVERRIDE ...]

Screens the same designs of studies/mesh_llm, which may be left out by bounds, by one process and by so many of Ray's workers (1
and 2), and says the CPU that each process took from the start of the screen to its end. On a shared machine that alone means
something. Beside the wall clock, Ray's start apart, stands what the screen would take on processors of its own: the CPU of this
process, which works while workers wait, and of each stage that of the worker who had most of it. RAY_worker_niceness=0 lets
workers have their share where other processes run.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from dse.commands.notebook_api import find_study
from dse.execution.pool.dispatch import WorkerInterval
from dse.execution.screen import run_screen, screen_workers
from tests.samples import AT_ONE_RATE

TICKS = os.sysconf("SC_CLK_TCK")

LEAST = 0.5
"""CPU of a process that is worth a word. [s]"""


class Watch:
    """CPU of this process and of those that it starts, by process, looked at each second; those of Ray too."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.names: dict[int, str] = {}
        self.held: dict[int, float] = {}
        self._older = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat")}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Watch":
        self._before = time.process_time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.own = time.process_time() - self._before
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(1.0):
            parents, known = dict[int, int](), dict[int, tuple[str, float, float]]()
            for path in Path("/proc").glob("[0-9]*/stat"):
                try:
                    text = path.read_text()
                except OSError:  # it has ended
                    continue
                pid, fields = int(path.parent.name), text.rpartition(")")[2].split()
                parents[pid] = int(fields[1])
                seconds, held = (int(fields[11]) + int(fields[12])) / TICKS, int(fields[21]) * resource.getpagesize() / 1e6
                known[pid] = text.partition("(")[2].rpartition(")")[0], seconds, held
            for pid, (name, seconds, held) in known.items():
                if pid == os.getpid() or pid in self.seconds:
                    self.held[pid] = max(held, self.held.get(pid, 0.0))
                if pid not in self._older and os.getpid() in above(pid, parents):
                    self.seconds[pid], self.names[pid] = (
                        seconds,
                        name if name.startswith("ray::") else self.names.get(pid, name),
                    )

    def said(self) -> str:
        """By process."""
        parts = sorted(self.seconds.items(), key=lambda pair: -pair[1])
        workers = [f"{seconds:.1f} s" for pid, seconds in parts if self.names[pid].startswith("ray::") and seconds > LEAST]
        others = sum(seconds for pid, seconds in parts if not self.names[pid].startswith("ray::"))
        split = f"the process itself {self.own:.1f} s, workers {' + '.join(workers) or 'none'}, Ray beside {others:.1f} s"
        return f"{split}; they held {sum(self.held.values()):,.0f} MB at most"

    @property
    def total(self) -> float:
        """CPU of all. [s]"""
        return self.own + sum(self.seconds.values())


def above(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """The processes that a process comes from."""
    while pid := parents.get(pid, 0):
        yield pid


class Spent(NamedTuple):
    """What a screen took.

    Attributes:
        watch: CPU by process.
        start, wall: until workers ran, and from then on. [s]
        busy: CPU of each worker that it says of its turns. [s]
        alone: CPU of this process from then on. [s]
        least: seconds that the screen takes on processors of its own. [s]
        found: what it found.
    """

    watch: Watch
    start: float
    wall: float
    busy: list[float]
    alone: float
    least: float
    found: str


def screened(designs: int, count: int, words: tuple[str, ...]) -> Spent:
    """A screen by so many workers, 0 for none."""
    crew = ("workers.kind=ray", f"workers.count={count}") if count else ("workers.kind=serial",)
    with TemporaryDirectory() as folder:
        pruned = ("screen.keep=front", "screen.prune=true")
        study = find_study("mesh_llm", *AT_ONE_RATE, f"screen.limit={designs}", *pruned, *crew, f"run_dir={folder}", *words)
        with Watch() as watch, screen_workers(study) as hands:
            start = time.monotonic()
            if count:
                hands.hire()
            begin, before = time.monotonic(), time.process_time()
            screen = run_screen(study, lambda done, total, size: None, hands)
            end, alone = time.monotonic(), time.process_time() - before
    text = f"{screen.rows:,} designs, {screen.rows - sum(screen.pruned.values()):,} evaluated, front of {len(screen.front)}"
    busy = [sum(turn.cpu for turn in hands.turns if turn.worker == place) for place in range(count)]
    return Spent(watch, begin - start, end - begin, busy, alone, alone + longest(hands.turns), text)


def longest(turns: list[WorkerInterval]) -> float:
    """CPU of the worker who has most of it in each stage, of all stages, which come one after the other. [s]"""
    stages: dict[int, dict[int, float]] = {}
    for turn in turns:
        stage = stages.setdefault(turn.stage, {})
        stage[turn.worker] = stage.get(turn.worker, 0.0) + turn.cpu
    return sum(max(stage.values()) for stage in stages.values())


if __name__ == "__main__":
    said = [int(word) for word in sys.argv[1:] if word.isdigit()]
    designs, counts = (said or [4096])[0], said[1:] or [1, 2]
    first: Spent | None = None
    for count in counts:
        of = screened(designs, count, tuple(word for word in sys.argv[1:] if not word.isdigit()))
        total = f"{of.watch.total:.1f} s CPU, {of.watch.total / designs * 1e3:.2f} ms a design"
        shares = " + ".join(f"{seconds:.1f} s" for seconds in of.busy) or "none"
        after = f"start {of.start:.1f} s, then {of.wall:.1f} s: this process {of.alone:.1f} s CPU, workers at work {shares}"
        first = first or of
        faster = f"{first.wall / of.wall:.2f} times as fast by wall, {first.least / of.least:.2f} by CPU of the longest"
        print(f"{of.found}; {count} workers | {total} | {of.watch.said()}", flush=True)
        print(f"  {after}; {of.least:.1f} s by CPU of the longest worker in each stage; {faster}", flush=True)
