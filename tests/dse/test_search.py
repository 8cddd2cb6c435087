"""A search is a function of its seed and window: not of interruptions, nor of what was stored before."""

import os
import random
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dse.evaluators import PHYSICS_VERSION
from dse.execution.workers import SerialWorkers, make_evaluator
from dse.search.optuna_samplers import SAMPLERS, make_sampler
from dse.store.store import Store
from tests.dse.faulty import Faulty
from tests.dse.toy import by, searched, toy
from tests.marks import slow_if


@cache
def whole(name: str) -> tuple[Any, ...]:
    """The search of a sampler that nobody interrupts."""
    with tempfile.TemporaryDirectory() as folder:
        return searched(toy(Path(folder), *by(name)))


@slow_if(lambda name: name in ("local", "nsga2", "nsga3", "qmc"))
@pytest.mark.sampled
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_same_seed_gives_the_same_search(tmp_path: Path, name: str) -> None:
    assert searched(toy(tmp_path, *by(name))) == whole(name)


def test_another_seed_gives_another_search(tmp_path: Path) -> None:
    assert searched(toy(tmp_path / "a")) != searched(toy(tmp_path / "b", "seed=1"))


@slow_if(lambda name: name in ("local", "nsga3", "random", "tpe"))
@pytest.mark.sampled
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resumed_search_goes_on_as_an_uninterrupted_one(tmp_path: Path, name: str) -> None:
    for stop in (1, 17, 100):  # after the first ask, a window, and several generations
        part = toy(tmp_path / str(stop), *by(name))
        searched(part, budget=stop)
        assert searched(part) == whole(name), stop


def test_a_design_that_is_stored_is_not_evaluated_again(tmp_path: Path) -> None:
    counting = Counting(toy(tmp_path))
    searched(toy(tmp_path), workers=counting)
    searched(toy(tmp_path, "name=other"), workers=counting)
    assert len(counting.keys) == len(set(counting.keys))


def test_a_failing_design_costs_only_itself(tmp_path: Path) -> None:
    study = toy(tmp_path)
    key = searched(toy(tmp_path / "plain"))[0][2]
    evaluate = make_evaluator(study.question.workload, study.fidelity)
    results = searched(study, workers=SerialWorkers(Faulty(evaluate, "raise", frozenset((key,)))))
    failed = [row for row in results if row[3] == (None, None)]
    store = Store(study.store)
    errors = {result.error for result in store.results(study.context).values() if result.error}
    assert len({row[2] for row in results}) == 240
    assert failed
    assert errors == {"ZeroDivisionError: a fault of this design"}


def test_results_of_other_physics_are_kept_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched(toy(tmp_path), budget=32)
    monkeypatch.setattr("dse.execution.study.PHYSICS_VERSION", 999)
    study = toy(tmp_path)
    store = Store(study.store)
    counts = store.of_other_physics(study.context)
    assert store.results(study.context) == {}
    assert list(counts) == [PHYSICS_VERSION]
    assert 0 < counts[PHYSICS_VERSION] <= 32


POINTS = ("ask", "map", "append", "appended", "tell")


@pytest.mark.slow
def test_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """Twenty-five kills between ask, evaluate, commit and tell; then the search ends as one that was never interrupted."""
    whole = searched(toy(tmp_path / "a", "search.budget=480"))
    study = toy(tmp_path / "b", "search.budget=480")
    log = tmp_path / "told.log"
    dice = random.Random(7)
    killed = 0
    for _ in range(200):
        point = dice.choice(POINTS)
        count = dice.randint(1, 12) if point in ("ask", "tell") else dice.randint(1, 2)
        child = os.fork()
        if not child:
            try:
                die_at(study, point, count, log)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        stored = set(Store(study.store).results(study.context)) if Path(study.store).exists() else set()
        told_keys = set(log.read_text().split()) if log.exists() else set()
        assert told_keys <= stored
        if killed == 25:
            break
    assert killed >= 20
    assert searched(study) == whole


def die_at(study: Any, point: str, count: int, log: Path) -> None:
    """Runs the search in this process until the count-th time it comes to a point."""
    left = [count]

    def step(name: str) -> None:
        if name == point:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    source = make_sampler("nsga2", study.question.space, study.directions, seed=study.seed, population=study.search.population)
    ask, tell, append = source.ask, source.tell, Store.append
    keys: dict[int, str] = {}

    def noted_ask(number: int, forced: Any) -> Any:
        step("ask")
        return ask(number, forced)

    def noted_tell(which: Any, feedback: Any) -> None:
        step("tell")
        from dse.space.design import design_key

        keys[which.number] = design_key(study.question.space.design_at(which.values))
        with log.open("a") as file:
            file.write(keys[which.number] + "\n")
        tell(which, feedback)

    def noted_append(*arguments: Any) -> None:
        step("append")
        append(*arguments)
        step("appended")

    class Mapped(SerialWorkers):
        def collect(self) -> Any:
            step("map")
            return super().collect()

    source.ask, source.tell = noted_ask, noted_tell  # type: ignore[method-assign]
    Store.append = noted_append  # type: ignore[method-assign]
    searched(study, source=source, workers=Mapped(make_evaluator(study.question.workload, study.fidelity)))


class Counting(SerialWorkers):
    """Remembers what it evaluated."""

    def __init__(self, evaluator: Any) -> None:
        super().__init__(make_evaluator(evaluator.question.workload, evaluator.fidelity))
        self.keys: list[str] = []

    def submit(self, batch: Any) -> None:
        self.keys += [key for key, _, _ in batch]
        super().submit(batch)
