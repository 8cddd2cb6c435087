"""Our local search as a sampler of Optuna: its contract, better than chance and TPE, and a function of seed and storage."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase

from dse.search.optuna_local_sampler import PLAN, LocalSearchSampler
from dse.search.pareto import hypervolume
from dse.space.errors import DesignError


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(before)


class TestContract(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    """What Optuna asks of its own samplers."""

    @pytest.fixture
    def sampler(self) -> Callable[[], optuna.samplers.BaseSampler]:
        return lambda: LocalSearchSampler(seed=0)


def zdt1(trial: optuna.Trial) -> tuple[float, float]:
    """First problem of Zitzler, Deb and Thiele, with six variables."""
    x = np.array([trial.suggest_float(f"x{i}", 0, 1) for i in range(6)])
    g = 1 + 9 * x[1:].mean()
    return x[0], g * (1 - np.sqrt(x[0] / g))


def binh_korn(trial: optuna.Trial) -> tuple[float, float]:
    """Binh and Korn's problem of 1997, with two constraints."""
    x, y = trial.suggest_float("x", 0, 5), trial.suggest_float("y", 0, 3)
    trial.set_constraint("inside", (x - 5) ** 2 + y**2 - 25)
    trial.set_constraint("outside", 7.7 - (x - 8) ** 2 - (y + 3) ** 2)
    return 4 * x * x + 4 * y * y, (x - 5) ** 2 + (y - 5) ** 2


def mixed(trial: optuna.Trial) -> tuple[float, float]:
    """Three kinds of things with parameters of their own, in two levels."""
    kind = trial.suggest_categorical("kind", ["polynomial", "wave", "steps"])
    if kind == "polynomial":
        degree = trial.suggest_int("degree", 1, 3)
        factors = [trial.suggest_float(f"factor{i}", -2, 2) for i in range(degree)]
        return sum((factor - 0.5) ** 2 for factor in factors) / degree + 1.5 / degree, 0.5 * degree
    if kind == "wave":
        rate, height = trial.suggest_float("rate", 0.1, 10, log=True), trial.suggest_float("height", 0, 2)
        return 0.2 + abs(np.log(rate / 3)) + abs(height - 1), 0.3 + height
    steps, width = trial.suggest_int("steps", 1, 200), trial.suggest_int("width", 1, 8)
    damped = trial.suggest_categorical("damped", [True, False])
    off = (trial.suggest_float("damping", 0, 1) - 0.3) ** 2 if damped else 0.1
    return 3 / (1 + width) + abs(steps - 120) / 100 + off, 0.1 * width + steps / 500 + 0.2 * damped


def searched(sampler: Any, objective: Any = mixed, trials: int = 60, **options: Any) -> optuna.Study:
    study = optuna.create_study(sampler=sampler, directions=["minimize", "minimize"])
    study.optimize(objective, n_trials=trials, **options)
    return study


def rows(study: optuna.Study) -> list[tuple[dict[str, Any], Any]]:
    return [(trial.params, trial.values) for trial in study.trials]


def share(study: optuna.Study, corner: tuple[float, float]) -> float:
    """Hypervolume of the feasible trials between the origin and a corner."""
    held = [trial.values for trial in study.trials if all(excess <= 0 for excess in trial.constraints.values())]
    return hypervolume(np.array(held), ["min", "min"], np.zeros(2), np.array(corner))


PROBLEMS: list[tuple[Any, tuple[float, float], float]] = [
    (zdt1, (1.1, 5.0), 0.1),
    (binh_korn, (140.0, 50.0), 0.005),
    (mixed, (4.0, 2.0), 0.02),
]
"""Objective, worst corner of a box, and by how much of the box our sampler leads in the mean."""


@pytest.mark.parametrize(("objective", "corner", "lead"), PROBLEMS)
def test_it_finds_more_than_tpe_and_chance(objective: Any, corner: tuple[float, float], lead: float) -> None:
    """On each seed, and by so much of the box in the mean; `python -m tests.speed.optuna_sampler` has more seeds."""
    makes: list[Callable[..., Any]] = [LocalSearchSampler, optuna.samplers.TPESampler, optuna.samplers.RandomSampler]
    ours, *others = (np.array([share(searched(make(seed=seed), objective), corner) for seed in (3, 4)]) for make in makes)
    for theirs in others:
        assert (ours > theirs).all()
        assert (ours - theirs).mean() > lead


def test_the_same_seed_gives_the_same_trials() -> None:
    assert rows(searched(LocalSearchSampler(seed=7))) == rows(searched(LocalSearchSampler(seed=7)))
    assert rows(searched(LocalSearchSampler(seed=7))) != rows(searched(LocalSearchSampler(seed=8)))


@pytest.mark.parametrize("objective", [mixed, zdt1, binh_korn])
def test_a_resumed_study_goes_on_as_if_it_had_not_ended(objective: Any, tmp_path: Path) -> None:
    whole = searched(LocalSearchSampler(seed=7), objective, 45)
    for trials in (5, 18, 22):
        study = optuna.create_study(
            study_name="parts",
            storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal"))),
            sampler=LocalSearchSampler(seed=7),
            directions=["minimize", "minimize"],
            load_if_exists=True,
        )
        study.optimize(objective, n_trials=trials)
    assert rows(study) == rows(whole)


def test_a_search_after_the_trials_of_another_sampler() -> None:
    study = searched(optuna.samplers.RandomSampler(seed=1), zdt1, 40)
    before = share(study, (1.1, 5.0))
    study.sampler = LocalSearchSampler(seed=1)
    study.optimize(zdt1, n_trials=25)
    assert share(study, (1.1, 5.0)) > before + 0.2


def test_conditions_are_learned_and_inactive_parameters_not_planned() -> None:
    sampler = LocalSearchSampler(seed=2)
    study = searched(sampler, trials=80)
    for trial in study.trials[60:]:
        assert trial.system_attrs[PLAN]["values"].keys() == trial.params.keys()
    when = {knob.address: dict(knob.when) for knob in sampler._searches[0]._space.knobs}
    assert when["rate"] == when["height"] == {"kind": ("1",)}
    assert when["factor2"] == {"degree": (3,)}
    assert when["damping"] == {"damped": ("0",)}
    assert when["kind"] == {}


def test_a_condition_that_no_choice_explains_is_lived_with() -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 1)
        y = trial.suggest_float("y", 0, 1) if x > 0.5 else 0.0
        return x + (y - 0.2) ** 2, 1 - x

    sampler = LocalSearchSampler(seed=2)
    study = searched(sampler, objective, 40)
    assert sampler._searches[0]._space.unexplained == {"y"}
    assert all(("y" in trial.params) == (trial.params["x"] > 0.5) for trial in study.trials)


def test_enqueued_trials_are_run_first_whole_or_in_part() -> None:
    study = optuna.create_study(sampler=LocalSearchSampler(seed=0), directions=["minimize", "minimize"])
    study.optimize(mixed, n_trials=20)
    study.enqueue_trial({"kind": "wave", "rate": 3.0, "height": 1.0})
    study.enqueue_trial({"kind": "steps"})
    study.optimize(mixed, n_trials=4)
    assert study.trials[20].params == {"kind": "wave", "rate": 3.0, "height": 1.0}
    assert study.trials[21].params["kind"] == "steps"
    assert study.trials[22].params != study.trials[20].params


def test_threads_and_ask_and_tell_out_of_order() -> None:
    study = searched(LocalSearchSampler(seed=0), zdt1, 40, n_jobs=4)
    assert len(study.trials) == 40
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 40
    for _ in range(5):
        trials = [study.ask() for _ in range(4)]
        results = [zdt1(trial) for trial in trials]
        for trial, result in reversed(list(zip(trials, results, strict=True))):
            study.tell(trial, result)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 60
    assert share(study, (1.1, 5.0)) > 0.8


def test_distributions_of_an_ask_need_no_objective_function() -> None:
    space = {"x": optuna.distributions.IntDistribution(0, 9), "y": optuna.distributions.CategoricalDistribution(["a", None])}
    study = optuna.create_study(sampler=LocalSearchSampler(seed=0), direction="maximize")
    for _ in range(20):  # the whole grid, each design once
        trial = study.ask(space)
        study.tell(trial, trial.params["x"] + (trial.params["y"] is None))
    assert study.best_value == 10
    assert len({tuple(trial.params.items()) for trial in study.trials[1:]}) >= 19


@pytest.mark.parametrize("ends", ["pruned", "failed", "infinite"])
def test_trials_without_a_result_are_avoided_and_nothing_stops(ends: str) -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)
        if x > 0.5 and ends == "pruned":
            raise optuna.TrialPruned
        if x > 0.5 and ends == "failed":
            raise ArithmeticError("no result")
        return (float("inf") if x > 0.5 else x), 1 - x + y

    study = searched(LocalSearchSampler(seed=5), objective, 60, catch=ArithmeticError)
    assert len(study.trials) == 60
    if ends == "failed":  # nothing is learned of it, as in Optuna's own samplers, but not to ask for it again
        assert len({tuple(trial.params.items()) for trial in study.trials}) == 60
    else:
        assert sum(trial.params["x"] > 0.5 for trial in study.trials[30:]) < 12


def test_a_space_without_feasible_trials_is_searched_for_the_least_excess() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -5, 5)
        trial.set_constraint("never", abs(x - 2) + 1)
        return x

    study = optuna.create_study(sampler=LocalSearchSampler(seed=0))
    study.optimize(objective, n_trials=40)
    assert min(abs(trial.params["x"] - 2) for trial in study.trials) < 0.05


def test_a_constant_objective_and_one_of_one_value_are_searched() -> None:
    study = searched(LocalSearchSampler(seed=0), lambda trial: (trial.suggest_int("x", 0, 3), 1.0), 12)
    assert {trial.params["x"] for trial in study.trials} == {0, 1, 2, 3}
    alone = searched(LocalSearchSampler(seed=0), lambda trial: (trial.suggest_int("x", 2, 2), 1.0), 3)
    assert len(alone.trials) == 3


def test_bounds_that_move_with_another_parameter() -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        rows = trial.suggest_int("rows", 2, 300)
        used = trial.suggest_int("used", 1, rows)
        return -used, rows

    study = searched(LocalSearchSampler(seed=0), objective, 50)
    assert all(1 <= trial.params["used"] <= trial.params["rows"] for trial in study.trials)
    assert len(study.best_trials) > 12


def test_a_sampler_is_copied_by_its_settings() -> None:
    sampler = LocalSearchSampler(seed=7)
    searched(sampler, trials=5)
    assert rows(searched(pickle.loads(pickle.dumps(sampler)), trials=20)) == rows(searched(sampler, trials=20))
    assert rows(searched(LocalSearchSampler(), zdt1, 3)) != rows(searched(LocalSearchSampler(), zdt1, 3))


def test_settings_that_are_wrong_are_refused_in_a_line() -> None:
    with pytest.raises(DesignError, match=r"^LocalSearchSampler: seed must be 0 or more, got -1$"):
        LocalSearchSampler(seed=-1)
    with pytest.raises(DesignError, match=r"^LocalSearchSampler: n_startup_trials must be 1 or more, got 0$"):
        LocalSearchSampler(n_startup_trials=0)
