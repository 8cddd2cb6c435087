"""Number of designs that a search has time for, from stored or measured times per design."""

from statistics import median

from dse.execution.ask_tell import base_design_key
from dse.execution.limit_filter import is_ruled_out
from dse.execution.study import Study
from dse.execution.workers import evaluate_with_retries, make_evaluator
from dse.search.samplers import PossibleFilter, RandomSampler
from dse.store.store import DesignResult, Store

TIMED_DESIGNS = 3
"""Designs that are evaluated for their cost where none is stored; the first also pays for imports and compilation."""

TIMING_SHARE = 0.1
"""Of the time, that they may take beyond the first of them."""


def affordable_designs(study: Study, store: Store, possible: PossibleFilter) -> tuple[int, str]:
    """Number of designs that budget and time allow, and the reason if time is the limit.

    What is evaluated for it is stored as a result, which the search need not evaluate again.

    Args:
        study: the study.
        store: where its results are.
        possible: designs that keep the limits which are known before.
    """
    seconds, budget = study.search.stop.time, study.search.budget
    if seconds is None:
        return budget, ""
    known = [result.seconds for result in store.results(study.context).values() if _counts_for_timing(result)]
    each = median(known) if known else _time_designs(study, store, possible, seconds)
    workers = study.crew.expected_count
    designs = int(seconds * workers / each) if each else budget
    if designs >= budget:
        return budget, ""
    workers_text = f" on {workers} workers" if workers > 1 else ""
    return max(1, designs), f"{seconds:g} s at {each:.2g} s a design{workers_text} are some {max(1, designs):,} designs"


def _counts_for_timing(result: DesignResult) -> bool:
    return not result.error and not is_ruled_out(result) and result.seconds > 0


def _time_designs(study: Study, store: Store, possible: PossibleFilter, seconds: float) -> float:
    """Seconds of a design: the least of those after the first, and of the first where there was time for no more."""
    space, evaluate = study.question.space, make_evaluator(study.question.workload, study.fidelity)
    source, results = RandomSampler(space, study.seed, possible), list[DesignResult]()
    while len(results) < TIMED_DESIGNS and sum(result.seconds for result in results[1:]) < TIMING_SHARE * seconds:
        values = source.ask(len(results), None).values
        results += evaluate_with_retries(evaluate, [(space.key_at(values), values, space.design_at(values))], 0)
    store.append(study.name, study.context, base_design_key(study), [], [result for result in results if not result.error])
    return min(result.seconds for result in results[1:] or results)
