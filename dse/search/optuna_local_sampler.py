"""Local search as a sampler of Optuna, for the objective of any user.

The space is learned from the trials. The values that are planned for a trial are an attribute of it, so that the storage has
the whole state of a search. The sampler holds a copy, and makes it anew when the space grows, in another process, or after a
resume.
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from dse.search.learned_space import LearnedSpace, learn_space
from dse.search.local_search import LocalSearch
from dse.search.optuna_distributions import join_distributions, make_knob, param_of_value, value_of_param
from dse.search.samplers import Ask, Feedback, PossibleFilter, Values, allow_all, value_at_unit
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, IntervalKnob

PLAN = "dse:plan"
"""Attribute of a trial that has its planned values, and the search's own notes."""

MAX_EXCESS = 1e12
"""Most by which a constraint counts as violated, an infinite excess too."""

RELEARN = 1.1
"""Growth of the trials after which conditions are learned anew, where a trial contradicts them."""


class LocalSearchSampler(BaseSampler):
    """Sampler for Optuna that searches among neighbours of the Pareto front.

    Gaussian processes choose the neighbour with most expected hypervolume gain. There may be one objective or more.
    Parameters and conditions (define-by-run) are learned from finished trials; a parameter that was never seen is drawn
    uniformly. The next trial follows from the seed, its number, and the trials of the storage. Constraints are those of
    `Trial.set_constraint`, and of older studies: above 0 means violated. A trial that was pruned, or that has an infinite
    value, counts as one that violates a limit. A failed trial is not asked for again.

    Args:
        seed: of the search; None for one from the system.
        n_startup_trials: largest number of trials of a Sobol sequence to begin with. Two a parameter and two more are
            enough, if these are fewer.

    Raises:
        DesignError: a negative seed, or no startup trial.

    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.ERROR)
    >>> study = optuna.create_study(sampler=LocalSearchSampler(seed=1), directions=["minimize", "minimize"])
    >>> study.enqueue_trial({"x": 0.5})
    >>> study.optimize(lambda trial: ((x := trial.suggest_float("x", 0, 3)) ** 2, (x - 2) ** 2), n_trials=12)
    >>> len(study.trials), study.trials[0].params
    (12, {'x': 0.5})
    """

    def __init__(self, *, seed: int | None = None, n_startup_trials: int = 64) -> None:
        if seed is not None and seed < 0:
            raise DesignError(f"LocalSearchSampler: seed must be 0 or more, got {seed}")
        if n_startup_trials < 1:
            raise DesignError(f"LocalSearchSampler: n_startup_trials must be 1 or more, got {n_startup_trials}")
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._start = n_startup_trials
        self._lock = RLock()
        self._searches: list[_TrialSearch] = []

    def __getstate__(self) -> dict[str, Any]:
        """Settings alone: locks are not pickled, and all else is in the storage."""
        return {"seed": self._seed, "n_startup_trials": self._start}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings of another sampler."""
        self.__init__(**state)  # type: ignore[misc]

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Distributions of all parameters that finished trials have, with the widest bounds of each."""
        with self._lock:
            return dict(self._search_of(study).distributions)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Parameters of the next trial that are active under its values."""
        if not search_space:
            return {}
        with self._lock:
            params = self._search_of(study).plan_trial(study, trial)
        return {name: value for name, value in params.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Planned value within the bounds of this trial; a uniform one if none was planned."""
        knob = make_knob(param_name, param_distribution)
        planned = trial.system_attrs.get(PLAN, {}).get("values", {})
        if isinstance(knob, IntervalKnob | ChoiceKnob) and isinstance(planned.get(param_name), int | float):
            return param_of_value(param_distribution, planned[param_name])
        rng = np.random.Generator(np.random.PCG64([self._seed, trial.number, zlib.crc32(param_name.encode())]))
        return param_of_value(param_distribution, value_at_unit(knob, float(rng.random())))

    def _search_of(self, study: Study) -> "_TrialSearch":
        """The search of a study, with all that its storage has; one is kept, of the study that was sampled last."""
        storage, number = study._storage, study._study_id
        self._searches = [search for search in self._searches if search.belongs_to(storage, number)]
        if not self._searches:
            self._searches.append(_TrialSearch(study, self._seed, self._start))
        self._searches[0].take_trials(study.get_trials(deepcopy=False))
        return self._searches[0]


class _TrialSearch:
    """A local search over the trials of one study.

    Args:
        study: that the trials are of.
        seed, start: as of the sampler.
    """

    def __init__(self, study: Study, seed: int, start: int) -> None:
        self._storage, self._study = study._storage, study._study_id
        self._directions = ["max" if direction.name == "MAXIMIZE" else "min" for direction in study.directions]
        self._seed, self._start = seed, start
        self.distributions: dict[str, BaseDistribution] = {}
        self._space = LearnedSpace(())
        self._learned_from = 0
        self._told: dict[int, FrozenTrial] = {}
        self._asked: set[frozenset[tuple[str, Any]]] = set()
        self._search: LocalSearch | None = None

    def belongs_to(self, storage: Any, study: int) -> bool:
        """Whether it is of a study: in memory, all storages number theirs from 0."""
        return self._storage is storage and self._study == study

    def take_trials(self, trials: Sequence[FrozenTrial]) -> None:
        """Take trials that have finished since, and search anew where they show more of the space."""
        new = [trial for trial in trials if trial.state.is_finished() and trial.number not in self._told]
        if not new:
            return
        self._told |= {trial.number: trial for trial in new}
        grown = [self._widen(name, distribution) for trial in new for name, distribution in trial.distributions.items()]
        complete = [trial for trial in new if trial.state == TrialState.COMPLETE]
        done = sum(trial.state == TrialState.COMPLETE for trial in self._told.values())
        if any(grown) or (
            done >= RELEARN * self._learned_from and any(self._space.contradicts(self._values_of(trial)) for trial in complete)
        ):
            self._learned_from = done
            if self._learn_space(fresh=any(grown)):
                self._search_anew(trials)
                return
        for trial in new:
            self._tell(trial)

    def plan_trial(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        """Parameters of a trial, which are written beside it with the search's notes."""
        assert self._search is not None
        fixed = self._values_at(trial.system_attrs.get("fixed_params", {}))
        whole = fixed and not LearnedSpace(self._space.knobs).contradicts(fixed)
        ask = self._search.ask(trial.number, fixed if whole else None)
        study._storage.set_trial_system_attr(trial._trial_id, PLAN, {"values": ask.values, "marks": dict(ask.marks)})
        return {name: param_of_value(self.distributions[name], value) for name, value in ask.values.items()}

    def _widen(self, name: str, distribution: BaseDistribution) -> bool:
        """Take the bounds of a parameter into those that are known; whether this changed them."""
        before = self.distributions.get(name)
        after = distribution if before is None else join_distributions(before, distribution)
        if after == before or after.single():
            return False
        self.distributions[name] = after
        return True

    def _learn_space(self, *, fresh: bool) -> bool:
        """Learn knobs and conditions from all complete trials; whether they are others than before."""
        knobs = [make_knob(name, distribution) for name, distribution in self.distributions.items()]
        complete = [self._told[number] for number in sorted(self._told) if self._told[number].state == TrialState.COMPLETE]
        space = learn_space(knobs, [self._values_of(trial) for trial in complete])
        changed = fresh or space.knobs != self._space.knobs
        self._space = space
        return changed

    def _search_anew(self, trials: Iterable[FrozenTrial]) -> None:
        """Search in the space as it is known now, from all trials in their order."""
        self._asked = set()
        self._search = LocalSearch(self._space, self._directions, self._seed, self._start, self._possible_filter())
        for trial in trials:
            if PLAN in trial.system_attrs:
                plan = trial.system_attrs[PLAN]
                self._search.restore(Ask(trial.number, plan["values"], plan["marks"]), None)
            if trial.number in self._told:
                self._tell(trial)

    def _tell(self, trial: FrozenTrial) -> None:
        """Tell the search of a finished trial, at the values that it had."""
        if self._search is not None:
            values = self._values_of(trial)
            self._asked.add(frozenset(values.items()))
            self._search.restore(Ask(trial.number, values), trial_feedback(trial))

    def _possible_filter(self) -> PossibleFilter:
        """Refuses repeats where values are rounded and nothing else is continuous; elsewhere the search sees them itself."""
        rounded = {
            knob.address: self.distributions[knob.address] for knob in self._space.knobs if isinstance(knob, IntervalKnob)
        }
        if not rounded or any(getattr(distribution, "step", None) is None for distribution in rounded.values()):
            return allow_all

        def is_new(values: Values) -> bool:
            exact = {name: param_of_value(rounded[name], value) if name in rounded else value for name, value in values.items()}
            return frozenset(exact.items()) not in self._asked

        return lambda several: [is_new(values) for values in several]

    def _values_of(self, trial: FrozenTrial) -> Values:
        return self._values_at(trial.params)

    def _values_at(self, params: Mapping[str, Any]) -> Values:
        """Knob values of parameters, of those that can have more than one value."""
        return {
            name: value_of_param(distribution, params[name])
            for name, distribution in self.distributions.items()
            if name in params
        }


def trial_feedback(trial: FrozenTrial) -> Feedback:
    """Feedback of a finished trial for a search; see `LocalSearchSampler` for what is no plain result."""
    if trial.state == TrialState.FAIL:
        return Feedback(None)
    constraints = {name: _excess(value) for name, value in trial.constraints.items()}
    if trial.state == TrialState.COMPLETE and all(map(math.isfinite, trial.values)):
        return Feedback(tuple(trial.values), constraints)
    return Feedback(None, constraints if any(excess > 0 for excess in constraints.values()) else {"no result": 1.0})


def _excess(value: float) -> float:
    return 1.0 if math.isnan(value) else min(max(value, -MAX_EXCESS), MAX_EXCESS)
