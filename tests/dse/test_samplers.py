"""Which sampler is chosen, what the constraints do to it, when a search stops, and what it takes over from another study."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.commands.run_study import run_study
from dse.execution.pool.ray_cluster import RayCluster
from dse.execution.pool.worker_kind import PoolNotStartedError
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.warm_start import take_over_results
from dse.execution.workers import AutoWorkers, SerialWorkers, make_evaluator, make_workers
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import Ask, Feedback, recommend_sampler
from dse.search.stopping import StopRules
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.store.store import DesignResult, Store
from tests.dse.faulty import Slow
from tests.dse.test_search import Counting
from tests.dse.toy import searched, toy
from tests.samples import base

GRID = Space(base(), (ChoiceKnob("chip.cores", tuple(range(1, 41))), ChoiceKnob("mapping.both.prefetch", ("none", "whole"))))
WIDE = Space(base(), (*GRID.knobs, IntervalKnob("chip.l2.size", 1e6, 1e9, log=True)))


@pytest.mark.parametrize(
    ("space", "objectives", "budget", "name"),
    [
        (GRID, 2, 80, "exhaustive"),
        (GRID, 2, 79, "local"),
        (GRID, 2, 7, "qmc"),
        (WIDE, 2, 11, "qmc"),
        (WIDE, 2, 12, "local"),
        (WIDE, 3, 5000, "local"),
        (WIDE, 3, 20000, "nsga2"),
        (WIDE, 4, 5000, "local"),
        (WIDE, 4, 20000, "nsga3"),
    ],
)
def test_the_sampler_follows_space_and_budget(space: Space, objectives: int, budget: int, name: str) -> None:
    chosen, why = recommend_sampler(space, objectives, budget)
    assert chosen == name
    assert why


class Forgetful:
    """Generations as Optuna finds them, anew each time."""

    def __init__(self, its: Any) -> None:
        """Leaves the sampler alone."""

    def complete(self, marks: Any) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("name", ["nsga2", "nsga3"])
def test_generations_that_are_kept_are_those_that_optuna_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With some trials under way at each ask, some that fail, and half of them restored."""

    def ask_all() -> list[Ask]:
        source, asks = make_sampler(name, WIDE, ["max", "min"], seed=3, population=8), list[Ask]()

        def feedback_on(ask: Ask) -> Feedback:
            cores, size = float(ask.values["chip.cores"]), float(ask.values["chip.l2.size"])
            return Feedback(None) if cores == 7 else Feedback((cores * (1 + ask.number % 3), size), {"limit": cores / 30 - 1})

        for number in range(120):
            asks.append(source.ask(number, None))
            if number == 60:
                source = make_sampler(name, WIDE, ["max", "min"], seed=3, population=8)
                for ask in asks:
                    source.restore(ask, feedback_on(ask) if ask.number < number - 3 else None)
                source.tell(asks[number - 3], feedback_on(asks[number - 3]))
            elif number >= 3:
                source.tell(asks[number - 3], feedback_on(asks[number - 3]))
        return asks

    kept = ask_all()
    monkeypatch.setattr("dse.search.optuna_samplers.GenerationCache", Forgetful)
    assert kept == ask_all()


def test_the_choice_is_printed_and_kept_when_the_budget_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_study(toy(tmp_path, "search=auto", "search.budget=32", "workers=serial"))
    assert "search: local (6 knobs and a budget of 32: a model" in capsys.readouterr().err
    run_study(toy(tmp_path, "search=auto", "search.budget=40000", "workers=serial", "search.stop.time=1 s"))
    err = capsys.readouterr().err
    assert "search: local (from its first run)" in err
    assert "stopped after" in err


def test_exhaustive_asks_for_every_design_once(tmp_path: Path) -> None:
    results = searched(toy(tmp_path, "search=exhaustive", "space=l2_prefetch"))
    assert len({row[2] for row in results}) == len(results) == 64


def test_exhaustive_says_what_budget_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DesignError, match="63 is below the 64 designs of the space"):
        run_study(toy(tmp_path, "search=exhaustive", "space=l2_prefetch", "search.budget=63"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["local", "nsga2", "nsga3", "tpe"])
def test_a_constraint_moves_the_search_to_where_it_holds(name: str) -> None:
    """Left to its one objective it goes to one end of the interval; the constraint forbids three quarters from there."""
    space = Space(base(), (IntervalKnob("chip.l2.size", 0.0, 1e9), IntervalKnob("chip.hbm.strided_row_overhead", 0.0, 1e-8)))

    def kept(constrained: bool) -> float:
        source = make_sampler(name, space, ["max", "min"], seed=3, population=20)
        within = []
        for number in range(200):
            ask = source.ask(number, None)
            size, gap = ask.values["chip.l2.size"] / 1e9, ask.values["chip.hbm.strided_row_overhead"] * 1e8
            source.tell(ask, Feedback((size, gap), {"size": size / 0.25 - 1} if constrained else {}))
            within.append(size <= 0.25)
        return float(np.mean(within[-100:]))

    assert kept(constrained=True) > 0.5 > 2 * kept(constrained=False)


def test_quasirandom_designs_are_spread_evenly() -> None:
    source = make_sampler("qmc", WIDE, ["max"], seed=1, population=2)
    sizes = [source.ask(number, None).values["chip.l2.size"] for number in range(512)]
    counts, _ = np.histogram(np.log(sizes), bins=np.linspace(np.log(1e6), np.log(1e9), 17))
    assert counts.tolist() == [32] * 16


def stops(**rules: Any) -> StopRules:
    return StopRules(["min", "min"], **{"seconds": None, "designs": None, "growth": 0.01, "every": 4, **rules})


def test_a_front_that_stands_still_ends_a_search() -> None:
    rules = stops(designs=8)
    messages = []
    for number in range(40):
        rules.note_result(Feedback((1 / (1 + min(number, 15)), 1.0)))
        messages.append(rules.check_stagnation())
    assert messages.index(next(text for text in messages if text)) + 1 == 24
    assert not stops().check_stagnation()


def test_designs_that_break_a_constraint_are_no_growth() -> None:
    rules = stops(designs=8)
    for number in range(16):
        rules.note_result(Feedback((2.0, 2.0)) if number < 4 else Feedback((1 / number, 1 / number), {"tpot": 0.1}))
    assert rules.check_stagnation()


def test_a_search_that_stagnated_stops_there_again(tmp_path: Path) -> None:
    """Where it stops is a matter of designs, not of runs; with a larger budget it goes no further."""
    options = ("space=l2_prefetch", "search=nsga2", "search.window=8", "search.budget=400")

    def rules() -> StopRules:
        return StopRules(["max", "min"], seconds=None, designs=32, growth=0.001, every=8)

    study = toy(tmp_path / "a", *options)
    once = searched(study, stops=rules())
    again = searched(study, stops=rules())
    whole = searched(toy(tmp_path / "b", *options))
    assert 32 < len(once) < 400
    assert again == once == whole[: len(once)]


def test_time_ends_a_search_and_the_next_run_goes_on(tmp_path: Path) -> None:
    study = toy(tmp_path / "a")
    limit = StopRules(study.directions, seconds=0.5, designs=None, growth=0.1, every=16)
    part = searched(
        study, workers=SerialWorkers(Slow(make_evaluator(study.question.workload, study.fidelity), 0.02)), stops=limit
    )
    assert 0 < len(part) < 240
    assert searched(study) == searched(toy(tmp_path / "b"))


def test_results_of_a_study_on_an_overlapping_space_are_taken_over(tmp_path: Path) -> None:
    """Half of the other space lies within; its designs are not evaluated again, and the best of them are asked first."""
    other = toy(tmp_path / "other", "name=other", "search=random", "search.budget=200")
    searched(other)
    study = toy(tmp_path / "toy", "space.chip.cores=range(300,601,20)", "~space.mapping.both.tp", "mapping.prefill.tp=8")
    taken = take_over_results(study, [other.store], keep=10)
    inside = [
        result
        for result in Store(other.store).results(other.context).values()
        if result.values["chip.cores"] >= 300 and result.values["mapping.both.tp"] == 8
    ]
    assert 0 < len(taken.results) == len(inside) < 200
    assert all(design_key(study.question.space.design_at(result.values)) == result.key for result in taken.results.values())
    counting = Counting(study)
    results = searched(study, workers=counting, given=taken.results, source=Seeded(study, taken.seeds))
    assert not set(counting.keys) & set(taken.results)
    assert [row[2] for row in results[: len(taken.seeds)]] == [study.question.space.key_at(seed) for seed in taken.seeds]


class Seeded:
    """A sampler that is told its first asks."""

    designs = None

    def __init__(self, study: Any, seeds: Any) -> None:
        self._source = make_sampler("nsga2", study.question.space, study.directions, seed=0, population=20)
        self._seeds = seeds
        self.tell, self.restore = self._source.tell, self._source.restore

    def ask(self, number: int, forced: Any) -> Ask:
        return self._source.ask(number, self._seeds[number] if number < len(self._seeds) else None)


def test_a_warm_start_is_not_of_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    serial = ("workers=serial", "search.budget=60", "screen.seeds=20")
    run_study(toy(Path("runs/other"), "name=other", *serial))
    study = toy(Path("runs/toy"), *serial, "search.warm_start=[other]", "seed=5")
    run_study(study)
    err = capsys.readouterr().err
    assert "the best 20 are evaluated first" in err
    asks = Store(study.store).asks("toy", study.context.physics)
    assert len({design for _, design in asks}) == 80
    run_study(study)
    assert Store(study.store).asks("toy", study.context.physics) == asks


def test_a_warm_start_from_nowhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"search.warm_start: no store 'nowhere'"):
        take_over_results(toy(tmp_path), ["nowhere"], keep=10)


class Hired:
    """Stands for Ray: remembers what it was given."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.batch: list[Any] = []

    def submit(self, batch: Any) -> None:
        self.keys += [entry[0] for entry in batch]
        self.batch += batch

    def collect(self) -> list[DesignResult]:
        results, self.batch = [DesignResult(entry[0], entry[1], {"tpot": 1.0}) for entry in self.batch], []
        return results

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("start", "repaid"), [(1.0, True), (1000.0, False)])
def test_auto_starts_ray_when_what_is_left_repays_it(start: float, repaid: bool) -> None:
    """400 designs of 10 ms are 4 s of work, 2 s on two workers."""

    def evaluate(batch: Any) -> list[DesignResult]:
        return [DesignResult(entry[0], entry[1], seconds=0.01) for entry in batch]

    hired, messages = Hired(), []
    workers = AutoWorkers(
        SerialWorkers(evaluate), lambda: hired, WorkerSettings("auto", count=2, start_time=start), 400, messages.append
    )
    entries = [(f"{number}", {}, base()) for number in range(400)]
    results = []
    for number in range(0, 400, 20):
        workers.submit(entries[number : number + 20])
        while len(results) < number + 20:
            results += workers.collect()
    assert sorted(result.key for result in results) == sorted(entry[0] for entry in entries)
    assert bool(hired.keys) == repaid == bool(messages)


def test_auto_goes_on_alone_where_ray_does_not_start() -> None:
    """It is said once, and nobody asks again."""
    tried: list[int] = []

    def refused() -> Any:
        tried.append(1)
        raise PoolNotStartedError("workers: Ray does not start on this machine: no room; workers=serial works without it")

    messages: list[str] = []
    evaluate = lambda batch: [DesignResult(entry[0], entry[1], seconds=0.01) for entry in batch]  # noqa: E731
    workers = AutoWorkers(
        SerialWorkers(evaluate, window=20), refused, WorkerSettings("auto", count=2, start_time=0.0), 400, messages.append
    )
    workers.submit([(f"{number}", {}, base()) for number in range(400)])
    results: list[DesignResult] = []
    while len(results) < 400:
        results += workers.collect()
    assert len(tried) == 1
    assert "no room; workers=serial works without it, as now" in messages[-1]


def instant(batch: Any) -> list[DesignResult]:
    """Results of designs that took 10 ms each, as they say."""
    return [DesignResult(entry[0], entry[1], {"process": os.getpid()}, seconds=0.01) for entry in batch]


@pytest.mark.parametrize("starts", [True, False])
def test_auto_takes_processes_and_goes_on_alone_where_these_end_as_they_start(
    starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each design has one result all the same."""
    if not starts:
        monkeypatch.setattr("dse.execution.pool.local_processes.COMMAND", "raise SystemExit('no room')")
    messages: list[str] = []
    settings = WorkerSettings("auto", count=2, start_time=0.0)
    workers = make_workers(settings, instant, window=10, designs=400, example=[], say=messages.append)
    workers.submit([(f"{number}", {}, base()) for number in range(400)])
    results: list[DesignResult] = []
    while len(results) < 400:
        results += workers.collect()
    workers.close()
    assert sorted(int(result.key) for result in results) == list(range(400))
    assert "workers: processes, 2 (auto: some" in messages[0]
    assert (len({result.metrics["process"] for result in results}) > 1) == starts
    assert len(messages) == 1 + (not starts)
    assert starts or messages[1].endswith("no room; workers=serial works without it, as now")


def test_auto_goes_on_alone_with_all_designs_where_what_evaluates_cannot_be_sent() -> None:
    """As a function of a script, also where no example was to be sent before."""
    messages: list[str] = []
    settings = WorkerSettings("auto", count=2, start_time=0.0)
    workers = make_workers(settings, lambda batch: instant(batch), window=10, designs=40, example=[], say=messages.append)
    workers.submit([(f"{number}", {}, base()) for number in range(40)])
    results: list[DesignResult] = []
    while len(results) < 40:
        results += workers.collect()
    workers.close()
    assert sorted(int(result.key) for result in results) == list(range(40))
    assert "cannot be sent to another process" in messages[1]


def test_a_ray_that_does_not_start_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the settings of a private cluster are taken back."""
    import ray

    def refused(**_: Any) -> None:
        raise Exception("The current node timed out during startup.\nMore.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    before = os.environ.get("RAY_AUTH_TOKEN")
    with pytest.raises(PoolNotStartedError, match=r"timed out during startup; workers=serial works without it"):
        RayCluster(WorkerSettings("ray"))
    assert os.environ.get("RAY_AUTH_TOKEN") == before
