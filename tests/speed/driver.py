"""What the driver costs a design while a search grows, the sampler's own time apart: python -m tests.speed.driver [DESIGNS]

CPU seconds for every 10,000 designs of a random search of a space of twelve knobs, whose evaluation costs next to nothing and
gives as many metrics as one of a model does: asks are made a block ahead, and the clock stands still meanwhile. Then the most
memory that the process held, and how much of that it held before the search.

``python -m tests.speed.driver resume [DESIGNS]`` screens a million designs and searches more in one process; another one goes
on and finds nothing left to evaluate: its CPU seconds and memory, from the stored screen to the table of all designs.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dse.commands.run_study import _Best
from dse.config.compose import compose
from dse.execution.result_frame import combine_with_front, search_frame
from dse.execution.screen import run_screen
from dse.execution.study import Study, build_study
from dse.search.samplers import Ask, Feedback, RandomSampler
from dse.store.store import DesignResult, Store
from dse.terminal.progress import ProgressBar
from tests.samples import metrics
from tests.speed.driver_studies import MILLION, TWELVE, Trivial

OBJECTIVES = ("+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min")


class Answers(Trivial):
    """Evaluates next to nothing, to as many metrics as a model's evaluation has."""

    def __init__(self) -> None:
        super().__init__()
        self._names = model_metrics()

    def collect(self) -> list[DesignResult]:
        results = []
        for result in super().collect():
            base = result.metrics["tpot"]
            others = {name: base * place for place, name in enumerate(self._names, 2)}
            results.append(DesignResult(result.key, result.values, others | dict(result.metrics)))
        return results


class Prepared:
    """A random sampler that makes its asks a block ahead.

    Attributes:
        seconds: of the processor that went into each block, without the making of asks.
    """

    designs = None

    def __init__(self, study: Study, block: int) -> None:
        self._source = RandomSampler(study.question.space, study.seed)
        self._block = block
        self._ahead: list[Ask] = []
        self._since: float | None = None
        self.seconds: list[float] = []

    def ask(self, number: int, forced: Any) -> Ask:
        if not self._ahead:
            if self._since is not None:
                self.seconds.append(time.process_time() - self._since)
            self._ahead = [self._source.ask(number + place, None) for place in range(self._block)][::-1]
            self._since = time.process_time()
        return self._ahead.pop()

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        pass

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        pass


def model_metrics() -> list[str]:
    """Names of the metrics of a model's evaluation."""
    return list(metrics("model=llama3_8b"))


def memory(what: str) -> float:
    """Memory of this process: its most (VmHWM) or what it holds now (VmRSS). [MB]"""
    (kilobytes,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) / 1024


def speed_study(folder: Path, *overrides: str) -> Study:
    """A random search in a folder."""
    return build_study(compose(["name=speed", *OBJECTIVES, *overrides, "search.sampler=random", f"run_dir={folder}"]), folder)


def growth(designs: int, block: int) -> tuple[list[float], float]:
    """CPU seconds of the driver for every block of designs, and memory before the search. [MB]"""
    from dse.execution.ask_tell import run_search

    with tempfile.TemporaryDirectory() as folder:
        study = speed_study(Path(folder), *TWELVE)
        source, best, workers = Prepared(study, block), _Best(study), Answers()
        with contextlib.closing(Store(study.store)) as store, ProgressBar("search") as bar:
            store.begin(study.name, study.identity(), {})
            before = memory("VmRSS")
            # one more than there are blocks to count, so that the last of these is whole
            budget = designs + 1
            run_search(study, store, source, workers, budget, [], lambda done, results: bar.update(done, budget, best(results)))
    return source.seconds, before


def search(folder: Path, designs: int) -> Study:
    """Search a screened study, or go on with it; returns the study."""
    from dse.execution.ask_tell import run_search

    study = speed_study(folder, *MILLION[3:])
    with contextlib.closing(Store(study.store)) as store:
        run = store.begin(study.name, study.identity(), {})
        start, held = time.process_time(), [memory("VmRSS")]
        screened = run_screen(study, lambda done, total, size: None)
        screen = time.process_time() - start
        held.append(memory("VmHWM"))
        source = RandomSampler(study.question.space, study.seed)
        found = run_search(study, store, source, Answers(), designs, [], lambda done, results: None)
        searched = time.process_time() - start - screen
        held.append(memory("VmHWM"))
        frame, searches = search_frame(study, found), len(found)
        del found  # as `dse run` lets go of it
        frame = combine_with_front(study, frame, screened)
        whole = time.process_time() - start
        store.end(run, "done", {})
    print(
        f"{screened.rows:,} screened and {searches:,} searched designs, {len(frame):,} in the table: {whole:.1f} s CPU "
        f"(screen {screen:.1f}, search {searched:.1f}), peak memory {memory('VmHWM'):,.0f} MB "
        f"({held[0]:,.0f} before, {held[1]:,.0f} to the screen, {held[2]:,.0f} to the search)"
    )
    return study


def resume(designs: int) -> None:
    """Search in one process, and go on in another."""
    with tempfile.TemporaryDirectory() as folder:
        for what in ("new", "resumed"):
            print(what, end=": ", flush=True)
            subprocess.run([sys.executable, "-m", "tests.speed.driver", "search", folder, str(designs)], check=True)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["search"]:
        search(Path(words[1]), int(words[2]))
        return
    if words[:1] == ["resume"]:
        resume(int((words[1:] or ["20000"])[0]))
        return
    designs = int(words[0]) if words else 100_000
    block = min(10_000, designs // 10)
    taken, before = growth(designs, block)
    seconds = [growth_seconds * 10_000 / block for growth_seconds in taken]
    for place, single_seconds in enumerate(seconds):
        print(f"to {(place + 1) * block:>9,} designs  {single_seconds:5.2f} CPU s per 10,000")
    print(f"last to first {seconds[-1] / seconds[0]:.2f}, most to least {max(seconds) / min(seconds):.2f}")
    print(f"peak memory {memory('VmHWM'):,.0f} MB, {before:,.0f} before the search, {len(model_metrics())} metrics a design")


if __name__ == "__main__":
    main()
