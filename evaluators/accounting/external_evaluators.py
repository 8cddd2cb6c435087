"""Designs that an installed package evaluates: a simulator, a measured table, a model of somebody's own, as one more fidelity.

A package declares an `Evaluator` by an entry point of the group dse.evaluator; its name is then a word of ``fidelity=``, above
those that ship. It is asked for one design and one case at a time, with what the closed form says of them, and only where all
limits hold. What it leaves alone stays as the closed form has it: energy and cost that follow from a time are its own to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.metrics import METRICS, CaseOutcomes
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import FORMER_FIDELITIES, MetricValues, read_metric
from dse.space.lazy_metrics import compute_all
from dse.space.registry import Registry
from dse.space.workload import WorkloadCase

MAX_NAME_LENGTH = 16
"""Letters of a fidelity that a store has room for."""


@dataclass(frozen=True, slots=True)
class ExternalEvaluator:
    """Who answers for designs at a fidelity.

    Attributes:
        about: what it is, in a few words.
        answers: whether it can be asked for a design, whatever the values of its leaves, and a kind of case.
        metrics: of a design and a case, from what the closed form says of them, by name in SI: those that it has otherwise.
    """

    about: str
    answers: Callable[[Design, WorkloadCase], bool]
    metrics: Callable[[Design, WorkloadCase, Mapping[str, float]], Mapping[str, float]]


EVALUATORS: Registry[ExternalEvaluator] = Registry("dse.evaluator", {}, ("about", "answers", "metrics"), kind=ExternalEvaluator)
"""By name: what installed packages add; none ships."""


@cache
def external_fidelities() -> tuple[str, ...]:
    """Fidelities of installed packages, looked for once.

    Raises:
        DesignError: a name that is too long for a store, or that two packages have.
    """
    found = tuple(EVALUATORS.names()) if EVALUATORS.extended() else ()
    for word in found:
        if word in FORMER_FIDELITIES:
            raise DesignError(f"dse.evaluator {word!r}: the former word of fidelity={FORMER_FIDELITIES[word]}; give it another")
        if len(word) > MAX_NAME_LENGTH or not word.isidentifier():
            raise DesignError(
                f"dse.evaluator {word!r}: a fidelity is a word of at most {MAX_NAME_LENGTH} letters, digits and _"
            )
    return found


def matching_evaluators(design: Design, case: WorkloadCase) -> tuple[str, ...]:
    """Fidelities of packages that can be asked for a design and a kind of case."""
    return tuple(word for word in external_fidelities() if EVALUATORS[word].answers(design, case))


def evaluate_external(
    design: Design, case: WorkloadCase, row: int, word: str, closed: list[CaseOutcomes]
) -> list[CaseOutcomes]:
    """One design and one case by a package; the closed form's limits, and nothing more where one is broken.

    Args:
        design: leaves are numbers.
        case, row: what is asked, and its place in the workload.
        word: the fidelity.
        closed: the closed form's answer to the same.

    Raises:
        DesignError: the package fails, or says a metric that nobody knows, or what is no number.
    """
    limits = [limit for part in closed for limit in part.limits]
    if any(np.any(np.asarray(limit.need) > np.asarray(limit.have)) for limit in limits):
        return [CaseOutcomes((row,), {}, limits)]
    known = {name: float(np.ravel(value)[0]) for part in closed for name, value in compute_all(part.metrics).items()}
    try:
        said = {read_metric(name): value for name, value in EVALUATORS[word].metrics(design, case, MetricValues(known)).items()}
    except DesignError:
        raise
    except Exception as error:  # a package may fail in any way
        raise DesignError(f"fidelity={word}: {type(error).__name__}: {error}") from error
    for name, value in said.items():
        if name not in METRICS:
            raise DesignError(f"fidelity={word} says {name!r}, which is no metric; {suggest_nearest(name, METRICS)}")
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise DesignError(f"fidelity={word} says {name}={value!r}, which is no number")
    metrics: dict[str, Any] = known | {name: float(value) for name, value in said.items()}
    return [CaseOutcomes((row,), metrics, limits)]


def external_breakdown(word: str, found: list[CaseOutcomes]) -> Breakdown:
    """Where the time goes: a package says how long a case takes, and no more."""
    seconds = float(next((part.metrics["latency"] for part in found if "latency" in part.metrics), 0.0))
    rows = (BreakdownRow("case", word, "whole", "", 0.0, 0.0, 0.0, word, seconds, {word: seconds}),) if seconds else ()
    return Breakdown(rows, seconds, {}, {})
