"""Samplers that learn, each with its libraries where it is made; the only module that imports Optuna.

Every ask uses a sampler seeded anew from (seed, number) and its memory holds what was told, so that nothing else decides it.
Outcomes are not kept here: the store has them, and a resumed search is fed from it.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.search.generation_cache import GenerationCache
from dse.search.samplers import (
    MAX_TRIES,
    Ask,
    Feedback,
    GridSampler,
    LowFidelitySource,
    ObjectiveStructure,
    PossibleFilter,
    RandomSampler,
    Sampler,
    SobolSampler,
    Values,
    allow_all,
    value_at_place,
    value_at_unit,
)
from dse.space.errors import DesignError, suggest_nearest
from dse.space.knobs import IntervalKnob, Knob, order_by_dependency
from dse.space.multi_chip_space import AnySpace

PROPOSALS = {"nsga2": 20, "nsga3": 20, "tpe": 5, "gp": 1}
"""How many a sampler makes for a design that is possible, by what they cost, before the last of them is moved to one."""

SAMPLERS = ("botorch", "exhaustive", "gp", "local", "nsga2", "nsga3", "qmc", "random", "tpe")


def make_sampler(
    name: str,
    space: AnySpace,
    directions: Sequence[str],
    *,
    seed: int,
    population: int,
    possible: PossibleFilter = allow_all,
    cheaper: LowFidelitySource | None = None,
    structure: ObjectiveStructure | None = None,
) -> Sampler:
    """Sampler by its name, for a space and directions of objectives.

    Args:
        name: one of `SAMPLERS`.
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of the study.
        population: of the genetic ones; the most evenly spread designs that the local one starts from.
        possible: designs that are worth an ask; the exhaustive one asks all the same.
        cheaper: a lower fidelity, of which `local` promotes designs; of others there is none.
        structure: what objectives are composed of, for `local` at one fidelity.

    Raises:
        DesignError: no such sampler (the message lists them), a space it cannot search, or a library that is not installed.
    """
    learning: dict[str, Callable[[Any], Any]] = {
        "nsga2": lambda optuna: optuna.NSGAIISampler(population_size=population, seed=seed),
        "nsga3": lambda optuna: optuna.NSGAIIISampler(population_size=population, seed=seed),
        "tpe": lambda optuna: optuna.TPESampler(seed=seed),
        "gp": lambda optuna: optuna.GPSampler(seed=seed, deterministic_objective=True),
    }
    plain: dict[str, Callable[[], Sampler]] = {
        "random": lambda: RandomSampler(space, seed, possible),
        "qmc": lambda: SobolSampler(space, seed, possible),
        "exhaustive": lambda: GridSampler(space, seed),
    }
    if cheaper is not None:
        from dse.search.multi_fidelity import MultiFidelitySearch

        return MultiFidelitySearch(space, directions, seed, start=population, cheaper=cheaper, possible=possible)
    if name == "botorch":
        from dse.search.botorch_search import BoTorchSearch

        return BoTorchSearch(space, directions, seed, possible)
    if name == "local":
        from dse.search.local_search import LocalSearch

        return LocalSearch(space, directions, seed, start=population, possible=possible, structure=structure)
    if name in plain:
        return plain[name]()
    if name not in learning:
        raise DesignError(f"search.sampler: no sampler {name!r}; {suggest_nearest(name, ('auto', 'none', *SAMPLERS))}")
    if name == "gp":
        try:
            import torch  # noqa: F401
        except ImportError:
            raise DesignError("search.sampler: gp needs PyTorch; pip install 'mesh-dse[gp]', or choose tpe") from None
    return OptunaSampler(space, directions, seed, learning[name], possible, tries=PROPOSALS[name], by_active=name == "tpe")


class OptunaSampler:
    """A sampler of Optuna in memory, on places of numbers in their order and on categories for options.

    Genetic samplers and Gaussian processes have a value for every knob, active or not, as genes and features do. With
    `by_active` a trial has parameters of its active knobs alone, proposed from the first choice on: a chip, then its knobs.

    Args:
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of the study.
        make: the sampler from Optuna's module of samplers.
        possible: designs that are worth an ask.
        tries: how many proposals it makes for one that is, before the last is moved.
        by_active: whether a trial has active knobs alone.
    """

    designs = None

    def __init__(
        self,
        space: AnySpace,
        directions: Sequence[str],
        seed: int,
        make: Callable[[Any], Any],
        possible: PossibleFilter = allow_all,
        *,
        tries: int = 1,
        by_active: bool = False,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna = optuna
        self._space = space
        self._seed = seed
        from dse.search.optuna_distributions import make_distribution

        self._distributions = distributions = {knob.address: make_distribution(knob) for knob in space.knobs}
        self._by_active = by_active and any(knob.when or knob.read for knob in space.knobs)
        self._order = order_by_dependency(space.knobs)
        relative = {address: distribution for address, distribution in distributions.items() if not distribution.single()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._sampler = make(optuna.samplers)
        # the space never changes; found anew from all trials, as Optuna does, it costs a third of an ask
        self._sampler.infer_relative_search_space = lambda study, trial: relative
        self._generations = GenerationCache(self._sampler) if hasattr(self._sampler, "get_trial_generation") else None
        self._possible, self._tries = possible, tries
        self._propose = self._sampler.sample_relative
        if possible is not allow_all or self._by_active:
            self._sampler.sample_relative = self._propose_params
        self._imputer = MedianImputer(len(directions))
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=self._sampler,
            study_name="search",
            directions=["maximize" if direction == "max" else "minimize" for direction in directions],
        )
        self._id = self._storage.get_study_id_from_name("search")
        self._study_marks: set[str] = set(self._storage.get_study_system_attrs(self._id))

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Next design from the population so far."""
        self._reseed_sampler(number)
        if forced is not None:
            active = self._space.canonical(forced) if self._by_active else self._distributions
            self._study.enqueue_trial(
                {knob.address: _place_of_value(knob, forced) for knob in self._space.knobs if knob.address in active}
            )
        if self._by_active:
            from dse.search.optuna_distributions import suggest_values

            trial = self._study.ask()
            suggest_values(self._space, trial, self._order)
        else:
            trial = self._study.ask(self._distributions)
        params = trial.params  # a deep copy each time it is looked at
        values = {
            knob.address: value_at_place(knob, params[knob.address]) for knob in self._space.knobs if knob.address in params
        }
        marks = {
            "params": params,
            "trial": {
                k: v for k, v in self._storage.get_trial_system_attrs(self._trial_id(number)).items() if k != "fixed_params"
            },
            "study": self._new_study_marks(),
        }
        return Ask(number, self._space.canonical(values), marks)

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Complete a trial with its objectives and constraints."""
        objectives = self._imputer.fill(feedback)
        if objectives is None:
            self._study.tell(ask.number, state=self._optuna.trial.TrialState.FAIL)
            return
        # what Trial.set_constraint writes; after a resume there is no Trial object for an ask under way
        for name, value in feedback.constraints.items():
            self._storage.set_trial_system_attr(self._trial_id(ask.number), f"constraints:{name}", value)
        self._study.tell(ask.number, objectives)
        self._complete_trial(ask)

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Restore a trial as it was, with the populations that Optuna had at its ask."""
        states = self._optuna.trial.TrialState
        objectives = self._imputer.fill(feedback) if feedback else None
        state = states.RUNNING if feedback is None else states.FAIL if objectives is None else states.COMPLETE
        constraints = {f"constraints:{name}": value for name, value in feedback.constraints.items()} if feedback else {}
        params = {knob.address: _place_of_value(knob, ask.values) for knob in self._space.knobs if knob.address in ask.values}
        if not self._by_active:
            params = {**ask.marks["params"], **params}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=state,
                values=objectives,
                params=params,
                distributions={address: self._distributions[address] for address in params},
                system_attrs={**ask.marks["trial"], **constraints},
            )
        )
        for name, value in ask.marks["study"].items():
            self._storage.set_study_system_attr(self._id, name, value)
            self._study_marks.add(name)
        if state == states.COMPLETE:
            self._complete_trial(ask)

    def _complete_trial(self, ask: Ask) -> None:
        """Count a trial that has values."""
        if self._generations is not None:
            self._generations.complete(ask.marks["trial"])

    def _propose_params(self, study: Any, trial: Any, space: dict[str, Any]) -> dict[str, Any]:
        """Parameters of a possible design: as the sampler proposes them, or with as many of them moved as it takes."""
        rng = np.random.Generator(np.random.PCG64([self._seed, trial.number]))
        knobs = [knob for knob in self._space.knobs if knob.address in space]
        propose = self._propose_active if self._by_active else self._propose

        def draw_param(knob: Knob) -> Any:
            return _place_of_value(knob, {knob.address: value_at_unit(knob, float(rng.random()))})

        params: dict[str, Any] = {}
        for attempt in range(MAX_TRIES):
            if attempt < self._tries or not params:
                params = dict(propose(study, trial, space))
                moved = [knob for knob in knobs if knob.address not in params]  # those that it leaves to chance, at first all
            else:
                share = max(1 / len(knobs), attempt / MAX_TRIES)
                moved = [knob for knob in knobs if knob.address not in params or rng.random() < share]
            other_params = params | {knob.address: draw_param(knob) for knob in moved}
            values = self._values_at(other_params)
            if all(self._possible([values])):
                break
        return {address: param for address, param in other_params.items() if address in values or not self._by_active}

    def _propose_active(self, study: Any, trial: Any, space: dict[str, Any]) -> dict[str, Any]:
        """Parameters of the knobs of one design: those together on whose values no other of them depends, then the next."""
        params: dict[str, Any] = {}
        values: Values = {}
        decided = set[str]()
        while len(decided) < len(self._order):
            open_knobs = [knob for knob in self._order if knob.address not in decided]
            ready = [knob for knob in open_knobs if all(other in decided for other, *_ in (*knob.when, *knob.read))]
            decided.update(knob.address for knob in ready)
            ready = [knob for knob in ready if self._space.active(knob.address, values)]
            proposed = self._propose(
                study, trial, {knob.address: space[knob.address] for knob in ready if knob.address in space}
            )
            params |= proposed
            for knob in ready:
                if knob.address in space and knob.address not in proposed:  # before its sampler has learned anything
                    return params
                values[knob.address] = value_at_place(knob, params.get(knob.address, _place_of_value(knob, {})))
        return params

    def _values_at(self, params: Mapping[str, Any]) -> Values:
        given = {knob.address: params.get(knob.address, _place_of_value(knob, {})) for knob in self._space.knobs}
        return self._space.canonical({knob.address: value_at_place(knob, given[knob.address]) for knob in self._space.knobs})

    def _reseed_sampler(self, number: int) -> None:
        seeds = np.random.SeedSequence([self._seed, number]).generate_state(2)
        # Optuna has no public way to seed a sampler for one ask; a new sampler an ask would forget its caches
        self._sampler._rng.rng.seed(int(seeds[0]))
        for name in ("_random_sampler", "_independent_sampler"):
            if hasattr(self._sampler, name):
                getattr(self._sampler, name)._rng.rng.seed(int(seeds[1]))
        for name in ("_gprs_cache_list", "_constraints_gprs_cache_list"):  # fits that start from those of earlier asks
            if hasattr(self._sampler, name):
                setattr(self._sampler, name, None)

    def _new_study_marks(self) -> dict[str, Any]:
        attributes = self._storage.get_study_system_attrs(self._id)
        new = {name: value for name, value in attributes.items() if name not in self._study_marks}
        self._study_marks.update(new)
        return new

    def _trial_id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._id, number)


class MedianImputer:
    """Median imputation of the objectives of designs that have none since they break a limit, for Optuna.

    Optuna wants a number of every completed trial, and learns from the constraint that it is infeasible. Its genetic samplers
    and TPE order infeasible trials by how far they break constraints. Its Gaussian processes learn objectives from all trials,
    and an infinity is a cliff to them. So the imputed value is the median of the objectives told before; 0 before there is one.

    Args:
        count: of objectives.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._known: list[tuple[float, ...]] = []

    def fill(self, feedback: Feedback) -> Sequence[float] | None:
        """Objectives of a design, imputed where it broke a limit; None of an evaluation that failed."""
        if feedback.objectives is not None and all(value == value for value in feedback.objectives):
            self._known.append(feedback.objectives)
            return feedback.objectives
        if not feedback.constraints:
            return feedback.objectives
        middle = np.median(self._known, axis=0).tolist() if self._known else [0.0] * self._count
        given = feedback.objectives or (float("nan"),) * self._count
        return [value if value == value else imputed for value, imputed in zip(given, middle, strict=True)]


def _place_of_value(knob: Knob, values: Values) -> Any:
    if knob.address not in values:
        return knob.low if isinstance(knob, IntervalKnob) else knob.values[0] if knob.words else 0
    value = values[knob.address]
    return value if isinstance(knob, IntervalKnob) or knob.words else sorted(knob.values).index(value)


def run_plain_optuna(
    name: str, space: AnySpace, directions: Sequence[str], *, seed: int, trials: int, evaluate: Callable[[Values], Feedback]
) -> None:
    """Search with plain Optuna as in its tutorial: defaults, define by run, repeats included.

    Args:
        name: nsga2, tpe or gp.
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of its sampler.
        trials: how many.
        evaluate: a design of the space, which must not fail. Of one that breaks a constraint, `MedianImputer` fills what is
            not a number: a trial without values fails, and of failed ones no sampler of Optuna's learns.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = {"nsga2": optuna.samplers.NSGAIISampler, "tpe": optuna.samplers.TPESampler, "gp": optuna.samplers.GPSampler}
    study = optuna.create_study(
        sampler=samplers[name](seed=seed),
        directions=["maximize" if direction == "max" else "minimize" for direction in directions],
    )
    from dse.search.optuna_distributions import suggest_values

    order, imputer = order_by_dependency(space.knobs), MedianImputer(len(directions))

    def evaluate_trial(trial: Any) -> Sequence[float]:
        evaluation = evaluate(suggest_values(space, trial, order))
        for constraint, excess in evaluation.constraints.items():
            trial.set_constraint(constraint, excess)
        objectives = imputer.fill(evaluation)
        assert objectives is not None
        return objectives

    study.optimize(evaluate_trial, n_trials=trials)
