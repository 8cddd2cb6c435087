"""Number of designs that a search has time for, from stored or measured times per design."""

from statistics import median

from dse.execution.ask_tell import base_design_key
from dse.execution.limit_filter import is_ruled_out
from dse.execution.study import Study
from dse.execution.workers import cpu_count, evaluate_with_retries, make_evaluator
from dse.search.samplers import PossibleFilter, RandomSampler
from dse.store.store import DesignResult, Store

TIMED_DESIGNS = 3
"""Designs that are evaluated for their cost where none is stored; the first also pays for imports and compilation."""

TIMING_SHARE = 0.1
"""Of the time, that they may take beyond the first of them."""


def affordable_designs(asked: Study, store: Store, possible: PossibleFilter) -> tuple[int, str]:
    """Number of designs that budget and time allow, and the reason if time is the limit.

    What is evaluated for it is stored as a result, which the search need not evaluate again.

    Args:
        asked: the study.
        store: where its results are.
        possible: designs that keep the limits which are known before.
    """
    seconds, budget = asked.search["stop"]["seconds"], asked.search["budget"]
    if seconds is None:
        return budget, ""
    known = [result.seconds for result in store.results(asked.context).values() if _counts(result)]
    each = median(known) if known else _timed(asked, store, possible, seconds)
    workers = 1 if asked.crew.kind == "serial" else asked.crew.count or cpu_count()
    designs = int(seconds * workers / each) if each else budget
    if designs >= budget:
        return budget, ""
    on = f" on {workers} workers" if workers > 1 else ""
    return max(1, designs), f"{seconds:g} s at {each:.2g} s a design{on} are some {max(1, designs):,} designs"


def _counts(result: DesignResult) -> bool:
    return not result.error and not is_ruled_out(result) and result.seconds > 0


def _timed(asked: Study, store: Store, possible: PossibleFilter, seconds: float) -> float:
    """Seconds of a design: the least of those after the first, and of the first where there was time for no more."""
    space, evaluate = asked.question.space, make_evaluator(asked.question.workload, asked.fidelity)
    source, found = RandomSampler(space, asked.seed, possible), list[DesignResult]()
    while len(found) < TIMED_DESIGNS and sum(result.seconds for result in found[1:]) < TIMING_SHARE * seconds:
        values = source.ask(len(found), None).values
        found += evaluate_with_retries(evaluate, [(space.key_at(values), values, space.at(values))], 0)
    store.append(asked.name, asked.context, base_design_key(asked), [], [result for result in found if not result.error])
    return min(result.seconds for result in found[1:] or found)
