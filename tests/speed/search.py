"""What a search costs beside its evaluations: python -m tests.speed.search [DESIGNS] [FIDELITY]

A study of attention on tiles by events asks so many designs (5,000) by the sampler that `auto` chooses, with limits looked at
before and everything stored; evaluations are answered by the closed form, whose time is left out, so that what is left is the
search. What an evaluation by events takes is measured on designs drawn from the same space, the first apart, which compiles.
With `events` it is they that answer, which shows that the search costs the same.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from dse.execution.ask_tell import run_search
from dse.execution.limit_filter import make_early_limits
from dse.execution.workers import SerialWorkers, evaluate_with_retries, make_evaluator
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import RandomSampler, recommend_sampler
from dse.store.store import DesignResult, Store
from dse.studies.search_quality.replay import SPACES

SAMPLED = 40
"""Designs that are evaluated by events."""

WIDE = (
    "space.mapping.queries='range(16,129,16)'",
    "space.mapping.keys='range(16,129,16)'",
    "space.chip.hbm.channels='choice(4,8,16)'",
    "+space.chip.tile.sram='tag(KiB, choice(96,192,384))'",
)
"""More designs than are asked."""


class Answered:
    """Workers that evaluate by a reader, and count the time that it takes."""

    def __init__(self, serial: SerialWorkers) -> None:
        self._serial, self.spent, self.cpu, self.children = serial, 0.0, 0.0, False

    def submit(self, batch: Any) -> None:
        """Queued."""
        self._serial.submit(batch)

    def collect(self) -> list[DesignResult]:
        """Evaluated."""
        start = time.process_time()
        results = self._serial.collect()
        self.spent += time.process_time() - start
        return results

    def close(self) -> None:
        """There is nothing to let go of."""


def overhead(designs: int, overrides: Sequence[str] = WIDE, answers: str = "analytical") -> list[tuple[str, str, str]]:
    """Lines of the speed table; `answers` is the fidelity of what the search is told."""
    from dse.commands.notebook_api import find_study

    with tempfile.TemporaryDirectory() as folder:
        study = find_study(
            *SPACES["attention"], *overrides, f"search.budget={designs}", f"run_dir={folder}", "search.window=16"
        )
        question = study.question
        space, workload = question.space, question.workload
        limits = make_early_limits(space, workload, study.fidelity)
        assert limits is not None
        name, _ = recommend_sampler(space, len(study.objectives), designs)
        population = study.search.population
        source = make_sampler(name, space, study.directions, seed=0, population=population, possible=limits.find_possible)
        workers = Answered(SerialWorkers(make_evaluator(workload, answers)))
        with closing(Store(study.store)) as store:
            store.begin(study.name, study.identity(), {})
            start = time.process_time()
            search = run_search(
                study, store, source, workers, designs, [], lambda done, results: None, ruled_out=limits.ruled_out
            )
            spent = time.process_time() - start - workers.spent
        draws, events = RandomSampler(space, 1, limits.find_possible), make_evaluator(workload, study.fidelity)
        entries = [
            (space.key_at(values), values, space.design_at(values))
            for values in (draws.ask(k, None).values for k in range(SAMPLED + 1))
        ]
        evaluate_with_retries(events, entries[:1], 0)
        start = time.process_time()
        for entry in entries[1:]:
            evaluate_with_retries(events, [entry], 0)
        each = (time.process_time() - start) / SAMPLED
    different = len({result.key for _, result in search.values()})
    share = spent / (spent + different * each)
    return [
        (
            f"search by {name}, {different:,} designs by events, answered by {answers}, stored",
            f"{spent / different * 1e3:.2f} ms CPU a design, {share:.1%} of the time",
            f"{each * 1e3:.0f} ms CPU an evaluation by events",
        )
    ]


if __name__ == "__main__":
    for line in overhead(int((sys.argv[1:] or ["5000"])[0]), answers=(sys.argv[2:] or ["analytical"])[0]):
        print("; ".join(line))
