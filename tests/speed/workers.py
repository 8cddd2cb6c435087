"""What workers add to a screen's work: python -m tests.speed.workers [KIND] [DESIGNS] [COUNT ...] [OVERRIDE ...]

Screens the same designs of studies/mesh_llm, which may be left out by bounds, by so many workers (1 and 2) of a kind, processes
or ray, and says the CPU that each process took from the start of the screen to its end. On a shared machine that alone means
something. Beside the wall clock, the start of workers apart, stands what the screen would take on processors of its own, at
best: the CPU of this process between stages, when workers wait, and of each stage that of the worker who had most of it, or of
this process where that had more. RAY_worker_niceness=0 lets Ray's workers have their share where other processes run.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dse.commands.notebook_api import find_study
from dse.execution.pool.dispatch import WorkerInterval
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.screen import run_screen
from dse.execution.screen_workers import ScreenWorkers
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
        by_ray = any(name.startswith("ray::") for name in self.names.values())
        at_work = {pid for pid in self.seconds if not by_ray or self.names[pid].startswith("ray::")}
        workers = [f"{seconds:.1f} s" for pid, seconds in parts if pid in at_work and seconds > LEAST]
        others = sum(seconds for pid, seconds in parts if pid not in at_work)
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


class TimedWorkers(ScreenWorkers):
    """Workers of a screen that note the CPU of this process while they work, by stage. [s]"""

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings, "dse.execution.screen_block", at_once=True)
        self.beside: dict[int, float] = {}

    def map_rows(self, *args: Any, **options: Any) -> Iterator[tuple[Any, Any]]:
        start, before = time.process_time(), len(self.turns)
        yield from super().map_rows(*args, **options)
        if len(self.turns) > before:
            self.beside[self.turns[-1].stage] = time.process_time() - start


class Spent(NamedTuple):
    """What a screen took.

    Attributes:
        watch: CPU by process.
        start, wall: until workers ran, and from then on. [s]
        busy: CPU of each worker that it says of its turns. [s]
        own: CPU of this process from then on. [s]
        alone: of that, CPU between stages, when workers wait. [s]
        least: seconds that the screen takes on processors of its own. [s]
        found: what it found.
    """

    watch: Watch
    start: float
    wall: float
    busy: list[float]
    own: float
    alone: float
    least: float
    found: str


def screened(kind: str, designs: int, count: int, words: tuple[str, ...]) -> Spent:
    """A screen by so many workers of a kind, 0 for none."""
    crew = (f"workers.kind={kind}", f"workers.count={count}") if count else ("workers.kind=serial",)
    with TemporaryDirectory() as folder:
        pruned = ("screen.keep=front", "screen.prune=true")
        study = find_study("mesh_llm", *AT_ONE_RATE, f"screen.limit={designs}", *pruned, *crew, f"run_dir={folder}", *words)
        with Watch() as watch, TimedWorkers(study.crew) as hands:
            start = time.monotonic()
            if count:
                hands.hire()
            begin, before = time.monotonic(), time.process_time()
            screen = run_screen(study, lambda done, total, size: None, hands)
            end, own = time.monotonic(), time.process_time() - before
    text = f"{screen.rows:,} designs, {screen.rows - sum(screen.pruned.values()):,} evaluated, front of {len(screen.front)}"
    busy = [sum(turn.cpu for turn in hands.turns if turn.worker == place) for place in range(count)]
    alone = own - sum(hands.beside.values())
    return Spent(watch, begin - start, end - begin, busy, own, alone, alone + longest(hands.turns, hands.beside), text)


def longest(turns: list[WorkerInterval], beside: dict[int, float]) -> float:
    """CPU of the process that has most of it in each stage, of all stages, which come one after the other. [s]"""
    stages: dict[int, dict[int, float]] = {}
    for turn in turns:
        stage = stages.setdefault(turn.stage, {})
        stage[turn.worker] = stage.get(turn.worker, 0.0) + turn.cpu
    return sum(max(*stage.values(), beside[number]) for number, stage in stages.items())


if __name__ == "__main__":
    kind = next((word for word in sys.argv[1:] if word in ("processes", "ray")), "processes")
    said = [int(word) for word in sys.argv[1:] if word.isdigit()]
    designs, counts = (said or [4096])[0], said[1:] or [1, 2]
    first: Spent | None = None
    for count in counts:
        of = screened(kind, designs, count, tuple(word for word in sys.argv[1:] if "=" in word))
        total = f"{of.watch.total:.1f} s CPU, {of.watch.total / designs * 1e3:.2f} ms a design"
        shares = " + ".join(f"{seconds:.1f} s" for seconds in of.busy) or "none"
        own = f"this process {of.own:.1f} s CPU, {of.alone:.1f} s of it between stages"
        waits = of.least - of.alone - sum(of.busy) / count
        after = (
            f"start {of.start:.1f} s, then {of.wall:.1f} s: {own}, workers {shares}; a worker waits {waits:.1f} s for others"
        )
        first = first or of
        faster = f"{first.wall / of.wall:.2f} times as fast by wall, {first.least / of.least:.2f} by CPU of the longest"
        print(f"{of.found}; {count} {kind} | {total} | {of.watch.said()}", flush=True)
        print(f"  {after}; {of.least:.1f} s by CPU of the longest worker in each stage; {faster}", flush=True)
