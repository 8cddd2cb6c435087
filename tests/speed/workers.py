"""What workers add to a screen's work: python -m tests.speed.workers [DESIGNS] [COUNT ...] [OVERRIDE ...]

Screens the same designs of studies/mesh_llm, which may be left out by bounds, by one process and by so many of Ray's workers (1
and 2), and says the CPU that each process took from the start of the screen to its end. On a shared machine that alone means
something: two workers are 1.85 times as fast as one where their total is at most 1.08 of its total, and they have equal shares.
"""

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from dse.commands.api import study_of
from dse.running.screen import screen

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


def screened(designs: int, count: int, words: tuple[str, ...]) -> tuple[Watch, str]:
    """A screen by so many workers, 0 for none: its CPU, and what it found."""
    crew = ("workers.kind=ray", f"workers.count={count}") if count else ("workers.kind=serial",)
    with TemporaryDirectory() as folder:
        pruned = ("screen.keep=front", "screen.prune=true")
        asked = study_of("mesh_llm", f"screen.limit={designs}", *pruned, *crew, f"run_dir={folder}", *words)
        with Watch() as watch:
            found = screen(asked, lambda done, total, size: None)
    return watch, f"{found.rows:,} designs, {found.rows - sum(found.pruned.values()):,} evaluated, front of {len(found.front)}"


if __name__ == "__main__":
    said = [int(word) for word in sys.argv[1:] if word.isdigit()]
    designs, counts = (said or [4096])[0], said[1:] or [1, 2]
    for count in counts:
        watch, found = screened(designs, count, tuple(word for word in sys.argv[1:] if not word.isdigit()))
        total = f"{watch.total:.1f} s CPU, {watch.total / designs * 1e3:.2f} ms a design"
        print(f"{found}; {count} workers | {total} | {watch.said()}", flush=True)
