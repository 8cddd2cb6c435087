"""A study as an objective function for another optimiser: Optuna, Ray Tune, or a loop of one's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dse.commands.notebook_api import find_study, read_study_settings
from dse.config.keyword_settings import Override, Setting
from dse.execution.ask_tell import compute_feedback
from dse.execution.limit_filter import make_early_limits
from dse.execution.workers import evaluate_with_retries, make_evaluator
from dse.space.errors import DesignError


@dataclass(frozen=True, slots=True)
class DesignScore:
    """Result of one design for an optimiser.

    Attributes:
        objectives: in the order of the study's, in SI; None of a design that a limit or a missing metric leaves without.
        constraints: relative excess of each limit and constraint, above 0 where it is violated. [-]
        metrics: by name, in SI; empty where nothing was evaluated.
        error: why the evaluation failed; empty string where it did not.
    """

    objectives: tuple[float, ...] | None
    constraints: Mapping[str, float]
    metrics: Mapping[str, float]
    error: str = ""

    @property
    def feasible(self) -> bool:
        """Whether there are objectives, and all limits and constraints hold."""
        return self.objectives is not None and all(excess <= 0 for excess in self.constraints.values())


class StudyObjective:
    """Space, objectives and constraints of a study, for an optimiser that is not ours.

    Called with a trial of Optuna's, it suggests the knobs that are active, sets a constraint for each limit, and returns the
    objectives. A design without objectives is pruned, with its constraints; one whose evaluation fails raises an error. Nothing
    is stored: Optuna's storage has the trials.

    Args:
        name: of a study, as of `dse.run`.
        overrides, settings: as of `dse.run`.
        trust: whether files that are not ours may run code.

    Attributes:
        objectives: metrics, in the order in which they are returned.
        directions: "maximize" or "minimize" for each.

    Raises:
        DesignError: no such study, or overrides that are wrong.
    """

    def __init__(self, name: str, *overrides: Override, trust: bool = False, **settings: Setting) -> None:
        words = read_study_settings(name, overrides, settings, trust=trust)
        self._study = study = find_study(name, *words, trust=trust)
        self.objectives = tuple(study.objectives)
        self.directions = ["maximize" if direction == "max" else "minimize" for direction in study.directions]
        self._evaluate = make_evaluator(study.question.workload, study.fidelity)
        self._limits = make_early_limits(study.question.space, study.question.workload, study.fidelity)

    @cached_property
    def distributions(self) -> dict[str, Any]:
        """Optuna distribution of each knob, for `optuna.Study.ask`.

        Ordered numbers have their place from 0, options are categories. The value of an inactive knob has no effect.
        """
        from dse.search.optuna_distributions import make_distribution

        return {knob.address: make_distribution(knob) for knob in self._study.question.space.knobs}

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Values of the active knobs in SI, suggested by a trial one after the other."""
        from dse.search.optuna_distributions import suggest_values

        return suggest_values(self._study.question.space, trial)

    def values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the active knobs in SI, from parameters of `distributions`.

        Raises:
            DesignError: a knob that the space has not, or a parameter that its distribution has not.
        """
        from dse.search.optuna_distributions import check_param, knob_values

        space = self._study.question.space
        for address, param in params.items():
            check_param(space.knob(address), param)
        return space.canonical(knob_values(space.knobs, params))

    def evaluate(self, values: Mapping[str, Any]) -> DesignScore:
        """Evaluate one design at the study's fidelity.

        Args:
            values: by knob in SI, as `suggest` and `values` give them; a knob that is left out has the base value.

        Raises:
            DesignError: a knob that the space has not.
        """
        space = self._study.question.space
        for address in values:
            space.knob(address)
        values = space.canonical(values)
        key = space.key_at(values)
        result = self._limits.ruled_out(key, values) if self._limits else None
        if result is None:
            (result,) = evaluate_with_retries(self._evaluate, [(key, values, space.design_at(values))], 0)
        feedback = compute_feedback(self._study, result)
        return DesignScore(feedback.objectives, feedback.constraints, result.metrics, result.error)

    def __call__(self, trial: Any) -> tuple[float, ...]:
        """Objectives of a trial of Optuna's."""
        from dse.search.optuna_distributions import prune_trial

        values = self.suggest(trial)
        for address, value in values.items():
            trial.set_user_attr(address, value)
        score = self.evaluate(values)
        if score.error:
            raise DesignError(f"evaluation failed: {score.error}")
        for name, excess in score.constraints.items():
            trial.set_constraint(name, excess)
        return score.objectives if score.objectives is not None else prune_trial()
