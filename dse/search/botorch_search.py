"""BoTorch's Bayesian optimisation by Optuna's integration, to compare with; its packages are an extra.

Each ask makes a new sampler, on a study in memory that has all results. So an ask follows from the seed, its number and the
results. It takes seconds (9 to 18 s of CPU on the grid of dies of `studies/search_quality`, on a busy machine), since Gaussian
processes are fitted anew and their acquisition is optimised.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dse.search.acquisition import THREADS
from dse.search.optuna_distributions import knob_values, make_distribution
from dse.search.samplers import (
    MAX_TRIES,
    Ask,
    Feedback,
    PossibleFilter,
    SobolSampler,
    Values,
    allow_all,
    value_at_unit,
)
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, Knob
from dse.space.multi_chip_space import AnySpace

MIN_RESULTS = 10
"""Results before the first model, as the integration has it by default; until then asks are of a Sobol sequence."""

MISSING = "search.sampler: botorch needs BoTorch; pip install 'mesh-dse[botorch]', or choose local"


class BoTorchSearch:
    """Sampler that proposes by BoTorch's expected hypervolume improvement.

    Optuna's integration chooses the acquisition by the number of objectives and whether there are constraints.

    Ordered numbers are told as whole numbers by their order, options as categories, an inactive knob as a fixed value. All
    limits are one constraint, the largest excess. A design without objectives is told with the worst known ones.

    Args:
        space: what is searched.
        directions: "max" or "min" for each objective.
        seed: of the study.
        possible: designs that are worth an ask.

    Raises:
        DesignError: a package is not installed.
    """

    designs = None

    def __init__(self, space: AnySpace, directions: Sequence[str], seed: int, possible: PossibleFilter = allow_all) -> None:
        try:
            import torch
            from optuna_integration import BoTorchSampler

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                BoTorchSampler()  # only then does the integration look for BoTorch
        except ImportError:
            raise DesignError(MISSING) from None
        self._torch, self._make = torch, BoTorchSampler
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._seed, self._possible = space, seed, possible
        self._signs = [1.0 if direction == "min" else -1.0 for direction in directions]
        self._first = SobolSampler(space, seed, possible)
        self._distributions = {knob.address: make_distribution(knob) for knob in space.knobs}
        self._waiting: dict[int, Values] = {}
        self._told: list[tuple[Values, Feedback]] = []
        self._asked: set[tuple[tuple[str, Any], ...]] = set()

    def ask(self, number: int, forced: Values | None) -> Ask:
        """Next design by the model; one of a Sobol sequence until there are results for a model."""
        if forced is None and len(self._told) >= MIN_RESULTS and any(feedback.objectives for _, feedback in self._told):
            ask = Ask(number, self._new_design(self._propose(number), number))
        else:
            ask = self._first.ask(number, forced)
        self._note_ask(ask)
        return ask

    def tell(self, ask: Ask, feedback: Feedback) -> None:
        """Keep a result; of a failed evaluation nothing is learned."""
        values = self._waiting.pop(ask.number)
        if feedback.objectives is not None or feedback.constraints:
            self._told.append((values, feedback))

    def restore(self, ask: Ask, feedback: Feedback | None) -> None:
        """Restore an ask of an earlier run with its result."""
        self._first.restore(ask, None)
        self._note_ask(ask)
        if feedback is not None:
            self.tell(ask, feedback)

    def _note_ask(self, ask: Ask) -> None:
        self._waiting[ask.number] = ask.values
        self._asked.add(tuple(ask.values.items()))

    def _propose(self, number: int) -> Values:
        """Design that the integration proposes after all results, and beside those that are under way."""
        study = optuna.create_study(directions=["minimize"] * len(self._signs))
        study.add_trials([*self._told_trials(), *(self._trial(values, state=TrialState.RUNNING) for values in self._open())])
        space = {name: distribution for name, distribution in self._distributions.items() if not distribution.single()}
        trial = self._trial({}, state=TrialState.RUNNING)
        threads = self._torch.get_num_threads()
        self._torch.set_num_threads(1)  # sums have one order whatever the machine
        try:
            with warnings.catch_warnings(), THREADS.limit(limits=1, user_api="blas"):
                warnings.simplefilter("ignore")  # of numerics, and of what the integration is going to rename
                seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0] >> 1)
                sampler = self._make(seed=seed, n_startup_trials=0, consider_running_trials=True)
                params = sampler.sample_relative(study, trial, space)
        finally:
            self._torch.set_num_threads(threads)
        return self._space.canonical(knob_values(self._space.knobs, self._default_params() | params))

    def _open(self) -> list[Values]:
        return list(self._waiting.values())

    def _told_trials(self) -> list[FrozenTrial]:
        """Results as complete trials, with numbers where an objective or a constraint has none."""
        known = np.array([self._minimised(feedback) for _, feedback in self._told if feedback.objectives is not None])
        worst = np.where(np.isfinite(known), known, -np.inf).max(axis=0)
        worst = np.where(np.isfinite(worst), worst, 0.0)
        trials = []
        for values, feedback in self._told:
            row = self._minimised(feedback) if feedback.objectives is not None else worst
            excess = max(feedback.constraints.values(), default=0.0)
            trials.append(
                self._trial(
                    values,
                    values=np.where(np.isfinite(row), row, worst).tolist(),
                    constraints={"limit": math.log1p(excess) if excess > 0 else excess},
                )
            )
        return trials

    def _minimised(self, feedback: Feedback) -> Any:
        assert feedback.objectives is not None
        return np.multiply(self._signs, feedback.objectives)

    def _trial(self, design: Values, **known: Any) -> FrozenTrial:
        params = self._default_params() | {
            knob.address: _param(knob, design[knob.address]) for knob in self._space.knobs if knob.address in design
        }
        return create_trial(params=params, distributions=self._distributions, **known)

    def _default_params(self) -> dict[str, Any]:
        """The first value of each knob, which stands for one that is inactive."""
        return {
            name: distribution.choices[0] if isinstance(distribution, CategoricalDistribution) else distribution.low  # type: ignore[attr-defined]
            for name, distribution in self._distributions.items()
        }

    def _new_design(self, values: Values, number: int) -> Values:
        """A proposed design, or one near it that is possible and was not asked before."""
        rng = np.random.Generator(np.random.PCG64([self._seed, number]))
        tried = values
        for attempt in range(MAX_TRIES):
            if tuple(tried.items()) not in self._asked and all(self._possible([tried])):
                return tried
            share = max(1 / len(self._space.knobs), attempt / MAX_TRIES)
            moved = {
                knob.address: value_at_unit(knob, float(rng.random())) for knob in self._space.knobs if rng.random() < share
            }
            tried = self._space.canonical(values | moved)
        return values


def _param(knob: Knob, value: Any) -> Any:
    return knob.values.index(value) if isinstance(knob, ChoiceKnob) and not knob.words else value
