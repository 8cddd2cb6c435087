"""How many designs a search has time for, by what a design costs: as stored, or as a few of them take here."""

from statistics import median

from dse.running.ask_tell import base_of
from dse.running.possible import is_ruled_out
from dse.running.study import Study
from dse.running.workers import attempted, cpus, evaluator
from dse.search.samplers import Possible, Uniform
from dse.store.store import Result, Store

TIMED = 3
"""Designs that are evaluated for their cost where none is stored; the first also pays for imports and compilation."""

SHARE = 0.1
"""Of the time, that they may take beyond the first of them."""


def affordable(asked: Study, store: Store, possible: Possible) -> tuple[int, str]:
    """Designs that the budget and the time of a search allow, and why where it is the time.

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
    workers = 1 if asked.crew.kind == "serial" else asked.crew.count or cpus()
    designs = int(seconds * workers / each) if each else budget
    if designs >= budget:
        return budget, ""
    on = f" on {workers} workers" if workers > 1 else ""
    return max(1, designs), f"{seconds:g} s at {each:.2g} s a design{on} are some {max(1, designs):,} designs"


def _counts(result: Result) -> bool:
    return not result.error and not is_ruled_out(result) and result.seconds > 0


def _timed(asked: Study, store: Store, possible: Possible, seconds: float) -> float:
    """Seconds of a design: the least of those after the first, and of the first where there was time for no more."""
    space, evaluate = asked.question.space, evaluator(asked.question.workload, asked.fidelity)
    source, found = Uniform(space, asked.seed, possible), list[Result]()
    while len(found) < TIMED and sum(result.seconds for result in found[1:]) < SHARE * seconds:
        values = source.ask(len(found), None).values
        found += attempted(evaluate, [(space.key_at(values), values, space.at(values))], 0)
    store.append(asked.name, asked.context, base_of(asked), [], [result for result in found if not result.error])
    return min(result.seconds for result in found[1:] or found)
