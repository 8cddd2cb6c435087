"""A study as an objective of another optimiser: the same results, constraints in place of numbers that are not there."""

import math
import pickle
from typing import Any

import optuna
import pytest

import dse
from dse.commands.notebook_api import find_study
from dse.commands.study_objective import StudyObjective
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.errors import DesignError

NAME, WORDS = "quickstart", ("workload.batch=[64]",)
"""A study some of whose designs do not fit in memory."""


@pytest.fixture(scope="module")
def objective() -> StudyObjective:
    return dse.StudyObjective(NAME, *WORDS)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Any:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    yield
    optuna.logging.set_verbosity(before)


def optimised(objective: StudyObjective, trials: int, seed: int = 0) -> optuna.Study:
    study = optuna.create_study(sampler=dse.LocalSearchSampler(seed=seed), directions=objective.directions)
    study.optimize(objective, n_trials=trials)
    return study


def test_trials_have_the_results_of_the_study(objective: StudyObjective) -> None:
    study = find_study(NAME, *WORDS)
    assert objective.objectives == tuple(study.objectives)
    assert objective.directions == [{"max": "maximize", "min": "minimize"}[word] for word in study.directions]
    trials = optimised(objective, 30).trials
    assert any(trial.state.name == "COMPLETE" for trial in trials)
    for trial in trials:
        design = study.question.space.design_at(trial.user_attrs)
        outcomes = evaluate(stack_designs([design]), study.question.workload, fidelity=study.fidelity)
        assert (trial.constraints["limit"] > 0) == (outcomes.limit[0] >= 0)
        if trial.state.name == "COMPLETE":
            assert trial.values == [float(outcomes.columns[name][0]) for name in study.objectives]
        else:
            assert trial.state.name == "PRUNED"
            assert any(excess > 0 for excess in trial.constraints.values())


def test_parameters_of_an_ask_are_designs_of_the_space(objective: StudyObjective) -> None:
    study = optuna.create_study(directions=objective.directions, sampler=optuna.samplers.RandomSampler(seed=0))
    space = find_study(NAME, *WORDS).question.space
    assert objective.distributions.keys() == {knob.address for knob in space.knobs}
    for _ in range(10):
        values = objective.values(study.ask(objective.distributions).params)
        assert values == space.canonical(values)
        score = objective.evaluate(values)
        assert score.feasible == (score.objectives is not None and max(score.constraints.values()) <= 0)
        assert not score.error


def test_each_process_can_have_a_copy(objective: StudyObjective) -> None:
    values = objective.values(optuna.create_study().ask(objective.distributions).params)
    copy = pickle.loads(pickle.dumps(objective))
    assert copy.evaluate(values) == objective.evaluate(values)


def test_a_knob_that_the_space_has_not_is_refused(objective: StudyObjective) -> None:
    with pytest.raises(DesignError, match=r"space: no knob 'chip.core'"):
        objective.evaluate({"chip.core": 3})


def test_parameters_that_distributions_have_not_are_refused(objective: StudyObjective) -> None:
    with pytest.raises(DesignError, match=r"space: no knob 'chip.core'"):
        objective.values({"chip.core": 0})
    for address, distribution in objective.distributions.items():
        is_word = isinstance(distribution, optuna.distributions.CategoricalDistribution)
        for param in (True, "nowhere", None) if is_word else ("a", 1e30, -1):
            with pytest.raises(DesignError, match=rf"^{address}: no parameter .*; valid: "):
                objective.values({address: param})


def test_a_failing_evaluation_raises_and_a_design_without_objectives_is_pruned(
    objective: StudyObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dse.commands.study_objective import DesignScore

    trial = optuna.create_study(directions=objective.directions).ask()
    monkeypatch.setattr(StudyObjective, "evaluate", lambda self, values: DesignScore(None, {}, {}, "ZeroDivisionError: x"))
    with pytest.raises(DesignError, match=r"^evaluation failed: ZeroDivisionError: x$"):
        objective(trial)
    monkeypatch.setattr(StudyObjective, "evaluate", lambda self, values: DesignScore(None, {"limit": 0.5}, {}))
    with pytest.raises(optuna.TrialPruned):
        objective(trial)
    assert trial.study.trials[0].constraints == {"limit": 0.5}
    assert not DesignScore(None, {"limit": -math.inf}, {}).feasible
