"""What the driver costs a design while a search grows, the sampler's own time apart: python -m tests.speed.driver [DESIGNS]

CPU seconds for every 10,000 designs of a random search of a space of twelve knobs, whose evaluation costs next to nothing:
asks are made a block ahead, and the clock stands still meanwhile. Then the most memory that the process held.
"""

import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dse.commands.run_study import _Best
from dse.config.compose import compose
from dse.execution.study import Study, build_study
from dse.search.samplers import Ask, Feedback, RandomSampler
from dse.store.store import Store
from dse.terminal.progress import ProgressBar
from tests.speed.__main__ import TWELVE, Trivial


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


def growth(designs: int, block: int) -> list[float]:
    """CPU seconds of the driver for every block of designs."""
    from dse.execution.ask_tell import run_search

    with tempfile.TemporaryDirectory() as folder:
        objectives = ("+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min")
        config = compose(["name=speed", *objectives, *TWELVE, "search.sampler=random", f"run_dir={folder}"])
        study = build_study(config, Path(folder))
        source, best = Prepared(study, block), _Best(study)
        with contextlib.closing(Store(study.store)) as store, ProgressBar("search") as bar:
            store.begin(study.name, study.identity(), {})
            # one more than there are blocks to count, so that the last of these is whole
            budget = designs + 1
            run_search(
                study, store, source, Trivial(), budget, [], lambda done, results: bar.update(done, budget, best(results))
            )
    return source.seconds


def main() -> None:
    designs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    block = min(10_000, designs // 10)
    seconds = [growth_seconds * 10_000 / block for growth_seconds in growth(designs, block)]
    for place, single_seconds in enumerate(seconds):
        print(f"to {(place + 1) * block:>9,} designs  {single_seconds:5.2f} CPU s per 10,000")
    print(f"last to first {seconds[-1] / seconds[0]:.2f}, most to least {max(seconds) / min(seconds):.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MB")


if __name__ == "__main__":
    main()
