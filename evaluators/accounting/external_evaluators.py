"""Designs evaluated by an installed package, as one more fidelity (simulator, table or model).

A package declares an `ExternalEvaluator` by an entry point of the group dse.evaluator; its name becomes a value of
``fidelity=``, above those that ship. It gets one design and one case at a time, with the metrics of the analytical
model, and only if all limits hold. Metrics that it does not return keep their analytical values, so it should also
return energies and prices that depend on time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.metrics import METRICS, SHIPPED, CaseOutcomes
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import FORMER_FIDELITIES, MetricValues, read_metric
from dse.space.lazy_metrics import compute_all
from dse.space.registry import Registry
from dse.space.workload import WorkloadCase

MAX_NAME_LENGTH = 16
"""Most letters of a fidelity's name, by the store's column."""
ABOVE_ZERO_UNITS = ("s", "cycle", "J", "J/token", "W", "W/mm2", "USD", "token/s", "token/s/mm2", "Hz", "B/s", "op/s", "mm2")
"""Units of metrics that are above 0 wherever something ran."""
MAY_BE_ZERO = ("queue_delay", "relayout_time", "goodput", "communication_cycles", "max_rate", "fleet_throughput_per_mm2")
"""Metrics of these units that are 0 where nothing waits, moves or keeps its SLO."""


@dataclass(frozen=True, slots=True)
class ExternalEvaluator:
    """A package's evaluator at one fidelity.

    Attributes:
        about: what the evaluator is, in a few words.
        answers: whether it supports a design, whatever the values of its leaves, and a type of case.
        metrics: metrics that differ from the analytical ones, by name in SI, from a design, a case and the analytical
            metrics.
    """

    about: str
    answers: Callable[[Design, WorkloadCase], bool]
    metrics: Callable[[Design, WorkloadCase, Mapping[str, float]], Mapping[str, float]]


EVALUATORS: Registry[ExternalEvaluator] = Registry("dse.evaluator", {}, ("about", "answers", "metrics"), kind=ExternalEvaluator)
"""By name: what installed packages add; none ships."""


@cache
def external_fidelities() -> tuple[str, ...]:
    """Fidelities of installed packages, searched once.

    Raises:
        DesignError: a name that is too long for a store, or that two packages have.
    """
    fidelities = tuple(EVALUATORS.names()) if EVALUATORS.has_packages() else ()
    for word in fidelities:
        if word in FORMER_FIDELITIES:
            raise DesignError(f"dse.evaluator {word!r}: the former word of fidelity={FORMER_FIDELITIES[word]}; give it another")
        if len(word) > MAX_NAME_LENGTH or not word.isidentifier():
            raise DesignError(
                f"dse.evaluator {word!r}: a fidelity's name has at most {MAX_NAME_LENGTH} letters, digits "
                "and _; rename the entry point"
            )
    return fidelities


def matching_evaluators(design: Design, case: WorkloadCase) -> tuple[str, ...]:
    """Fidelities of packages that support a design and a type of case."""
    return tuple(word for word in external_fidelities() if EVALUATORS[word].answers(design, case))


def evaluate_external(
    design: Design, case: WorkloadCase, row: int, word: str, closed: list[CaseOutcomes]
) -> list[CaseOutcomes]:
    """Metrics of one design and case by a package's evaluator; limits only, if one is violated.

    Args:
        design: leaves are numbers.
        case, row: the case, and its index in the workload.
        word: the fidelity.
        closed: analytical outcomes of the same case.

    Raises:
        DesignError: the package fails, or returns an unknown metric or a value that is no number or is too low.
    """
    limits = [limit for part in closed for limit in part.limits]
    if any(np.any(np.asarray(limit.need) > np.asarray(limit.have)) for limit in limits):
        return [CaseOutcomes((row,), {}, limits)]
    known = {name: float(np.ravel(value)[0]) for part in closed for name, value in compute_all(part.metrics).items()}
    try:
        given_metrics = {
            read_metric(name): value for name, value in EVALUATORS[word].metrics(design, case, MetricValues(known)).items()
        }
    except DesignError:
        raise
    except Exception as error:  # a package may fail in any way
        raise DesignError(f"fidelity={word}: {type(error).__name__}: {error}") from error
    for name, value in given_metrics.items():
        if name not in METRICS:
            raise DesignError(
                f"fidelity={word}: the package returns {name!r}, which is no metric; {suggest_nearest(name, METRICS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise DesignError(f"fidelity={word}: the package returns {name}={value!r}, which is not a number")
        above = _is_above_zero(name, known)
        if name in SHIPPED and (value < 0 or (above and not value)):
            wanted = "above 0" if above else "0 or more"
            raise DesignError(
                f"fidelity={word}: the package returns {name}={float(value):g}; expected {wanted}, "
                "or no value where nothing was simulated"
            )
    metrics: dict[str, Any] = known | {name: float(value) for name, value in given_metrics.items()}
    return [CaseOutcomes((row,), metrics, limits, external=tuple(given_metrics))]


def external_breakdown(word: str, outcomes: list[CaseOutcomes]) -> Breakdown:
    """Breakdown of an external evaluator's time: one row, since packages give a total only. [s]"""
    seconds = float(next((part.metrics["latency"] for part in outcomes if "latency" in part.metrics), 0.0))
    rows = (BreakdownRow("case", word, "whole", "", 0.0, 0.0, 0.0, word, seconds, {word: seconds}),) if seconds else ()
    return Breakdown(rows, seconds, {}, {})


def _is_above_zero(name: str, known: Mapping[str, float]) -> bool:
    """Whether a package's metric cannot be 0, as times, energies, prices and rates, unless the analytical model has 0."""
    return METRICS[name].unit in ABOVE_ZERO_UNITS and name not in MAY_BE_ZERO and known.get(name) != 0
