"""The ask/tell loop of a search: a window of asks in flight, results told in the order of asks."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dse.config.metric_expressions import extend_with_derived_metrics
from dse.execution.limit_filter import LimitFilter, accept_all, is_ruled_out
from dse.execution.objective_structure import EvaluationStructure
from dse.execution.study import Study
from dse.execution.workers import WorkerPool
from dse.search.composed_objectives import PART_ASKS
from dse.search.samplers import Ask, Feedback, Sampler, Values
from dse.search.stopping import StopRules
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text
from dse.store.metric_row import pack_metrics
from dse.store.store import BY_CHIP, DesignResult, Store
from dse.terminal.progress import say

MAX_REPEATS = 500
"""Asks in a row of designs that were asked before or that a limit rules out, after which a search ends: few are left."""

ProgressWrapper = Callable[[int, Callable[[int], Iterable[DesignResult]]], None]


def run_search(
    study: Study,
    store: Store,
    source: Sampler,
    workers: WorkerPool,
    budget: int,
    seeds: Sequence[Values],
    progress: ProgressWrapper,
    *,
    stops: StopRules | None = None,
    given: Mapping[str, DesignResult] | None = None,
    about: Mapping[str, Any] | None = None,
    ruled_out: LimitFilter = accept_all,
    structure: EvaluationStructure | None = None,
) -> dict[int, tuple[Ask, DesignResult]]:
    """Ask, evaluate, store and tell until the budget is spent or a stop rule ends the search.

    Args:
        study: the study.
        store: where asks and results go.
        source: asks.
        workers: evaluate.
        budget: different designs asked in all, those of earlier runs included; an ask of the same design again is free, and
            one of a design that a limit rules out.
        seeds: values of the first asks.
        progress: called with the number of designs told and a function that gives the results of asks from a number on.
        stops: what may end it sooner.
        given: results that need no evaluation, by design.
        about: notes to keep with the first ask.
        ruled_out: results of designs that need no evaluation, since they break a limit that is known before.
        structure: parts of evaluations, where the sampler models them.

    Returns:
        Every ask so far that has a result, by number.
    """
    stops = stops or StopRules(study.directions, seconds=None, designs=None, growth=0.0, every=study.search.window)
    known = store.results(study.context)
    name, base = store.search(study.name, study.identity()), base_design_key(study)
    run = _Search(
        study, name, store, source, workers, budget, seeds, stops, given or {}, about or {}, known, base, ruled_out, structure
    )
    run.restore()
    store.note_base(run.base)
    run.fill()
    while run.told < len(run.asks):
        run.collect()
        run.tell()
        progress(min(run.told, run.spent), run.results_told)
        late = stops.check_time()
        if late:
            run.enough = late
            break
    run.record()  # of asks whose results were all known, the last are not recorded yet
    if run.enough:
        say(f"  search: stopped after {count_text(run.told, 'design')}, as {run.enough}")
    return {ask.number: (ask, run.known[design]) for ask, design in run.asks if design in run.known}


@dataclass
class _Search:
    """A search under way.

    Attributes:
        name: what its asks are kept under.
        known: results, by design.
        base: key and text of the design that values change.
        asks: with the design of each, in order.
        firsts: by design, the number of its first ask.
        latest: the last number at which a design was asked that had not been asked before.
        told, recorded: asks that the sampler knows the results of, and that the store has.
        out: designs that a limit rules out.
        under_way: designs that workers have.
        fresh: results that the store does not have yet.
        enough: why no more is asked; nothing while more is.
    """

    asked: Study
    name: str
    store: Store
    source: Sampler
    workers: WorkerPool
    budget: int
    seeds: Sequence[Values]
    stops: StopRules
    given: Mapping[str, DesignResult]
    about: Mapping[str, Any]
    known: dict[str, DesignResult]
    base: tuple[str, str]
    ruled_out: LimitFilter
    structure: EvaluationStructure | None
    asks: list[tuple[Ask, str]] = field(default_factory=list)
    firsts: dict[str, int] = field(default_factory=dict)
    latest: int = 0
    told: int = 0
    recorded: int = 0
    out: set[str] = field(default_factory=set)
    under_way: set[str] = field(default_factory=set)
    fresh: list[DesignResult] = field(default_factory=list)
    enough: str = ""

    @property
    def spent(self) -> int:
        """Of the budget."""
        return len(self.firsts) - len(self.out)

    @property
    def window(self) -> int:
        """Asks that may be in flight."""
        return self.asked.search.window

    def restore(self) -> None:
        """Take up the asks of earlier runs, up to the budget; the last window of them is told again as results come."""
        for ask, design in self.store.asks(self.name, self.asked.context.physics):
            if self.spent == self.budget:
                break
            self.firsts.setdefault(design, len(self.asks))
            self.asks.append((_share_values(ask, self.known.get(design)), design))
            self._sort_out(design)
        self._recover_results(max(0, len(self.asks) - self.window))
        self.latest = max((number for design, number in self.firsts.items() if design not in self.out), default=0)
        self.recorded, self.told = len(self.asks), max(0, len(self.asks) - self.window)
        if self.structure is not None:
            self.structure.load([design for ask, design in self.asks if ask.number < PART_ASKS])
        for ask, design in self.asks:
            outcome = self._feedback(ask, design) if ask.number < self.told else None
            self.source.restore(ask, outcome)
            if outcome is not None:
                self.stops.note_result(outcome)
        self.enough = self.stops.check_stagnation()
        for ask, design in self.asks[self.told :]:
            self._submit_ask(ask, design)

    def _recover_results(self, done: int) -> None:
        """Results of asks that were told once, and that the store has lost since."""
        lost = {design: ask for ask, design in reversed(self.asks[:done]) if design not in self.known}
        if not lost:
            return
        say(f"  search: {len(lost):,} designs whose results were lost are evaluated again")
        self.recorded = len(self.asks)
        for design, ask in reversed(lost.items()):
            self._submit_ask(ask, design)
        while self.under_way or self.fresh:
            if self.under_way:
                self.fresh += self.workers.collect()
            self.record()

    def fill(self) -> None:
        """Asks until the window is full."""
        space = self.asked.question.space
        while (
            len(self.asks) < self.told + self.window
            and self.spent < self.budget
            and (len(self.asks) < self.source.designs if self.source.designs else len(self.asks) - self.latest < MAX_REPEATS)
            and not self.enough
        ):
            number = len(self.asks)
            ask = self.source.ask(number, self.seeds[number] if number < len(self.seeds) else None)
            if self.about and not self.asks:
                ask = replace(ask, marks={**ask.marks, **self.about})
            design = space.key_at(ask.values)
            self.asks.append((ask, design))
            new = self.firsts.setdefault(design, ask.number) == ask.number
            self._submit_ask(ask, design)
            if new and design not in self.out:
                self.latest = ask.number

    def _submit_ask(self, ask: Ask, design: str) -> None:
        if design in self.known or design in self.under_way:
            self._sort_out(design)
            return
        if design in self.given:
            self.known[design] = self.given[design]
            self.fresh.append(self.given[design])
            return
        verdict = self.ruled_out(design, ask.values)
        if verdict is not None:
            self.known[design] = verdict
            self.fresh.append(verdict)
            self.out.add(design)
            return
        self.under_way.add(design)
        self.workers.submit([(design, ask.values, self.asked.question.space.design_at(ask.values))])

    def _sort_out(self, design: str) -> None:
        """Notes a design of which the store says that a limit rules it out."""
        if self.ruled_out is not accept_all and design in self.known and is_ruled_out(self.known[design]):
            self.out.add(design)

    def collect(self) -> None:
        """Wait for results where the next ask has none; records asks and results."""
        if self.asks[self.told][1] not in self.known:
            self.fresh += self.workers.collect()
        self.record()

    def record(self) -> None:
        """Asks and results that the store does not have yet."""
        self.store.append(self.name, self.asked.context, self.base, self.asks[self.recorded :], self.fresh)
        if self.structure is not None:
            self.structure.keep()
        self.recorded = len(self.asks)
        for result in self.fresh:
            self.known[result.key] = replace(result, metrics=pack_metrics(result.metrics))
            self.under_way.discard(result.key)
        self.fresh.clear()

    def tell(self) -> None:
        """Tell the sampler what is known, in order, and asks on; what it asks is recorded at least once a window."""
        while self.told < len(self.asks) and len(self.asks) - self.recorded < self.window:
            ask, design = self.asks[self.told]
            if design not in self.known:
                break
            outcome = self._feedback(ask, design)
            self.source.tell(ask, outcome)
            self.stops.note_result(outcome)
            self.told += 1
            self.enough = self.enough or self.stops.check_stagnation()
            self.fill()

    def _feedback(self, ask: Ask, design: str) -> Feedback:
        """What the sampler is told of a design."""
        outcome = compute_feedback(self.asked, self.known[design])
        if self.structure is None or outcome.objectives is None or ask.number >= PART_ASKS:
            return outcome
        return replace(outcome, parts=self.structure.parts_of(self.known[design]))

    def results_told(self, start: int) -> list[DesignResult]:
        """Results told so far, from an ask on."""
        return [self.known[design] for _, design in self.asks[start : self.told]]


def _share_values(ask: Ask, result: DesignResult | None) -> Ask:
    """An ask with the values of its result, so that one copy of them is held; as it is where they differ."""
    same = result is not None and list(ask.values.items()) == list(result.values.items())
    return replace(ask, values=result.values) if result is not None and same else ask


def read_stored_asks(study: Study, store: Store) -> dict[int, tuple[Ask, DesignResult]]:
    """Every ask of a study that has a result, by number; those of its further searches follow."""
    known, questions, start = store.results(study.context), {}, 0
    for name in store.searches(study.name, study.context.physics):
        asks = store.asks(name, study.context.physics)
        questions.update(
            {start + ask.number: (_share_values(ask, known[design]), known[design]) for ask, design in asks if design in known}
        )
        start += len(asks)
    return questions


def base_design_key(study: Study) -> tuple[str, str]:
    """Content key and text of the base design of a study, or of those of its chips."""
    designs = {
        str(chosen.get(CHIP_KNOB, "")): {address: value for address, value, _ in iterate_leaves(space.base)}
        for chosen, space in study.question.space.base_spaces
    }
    if CHIP_KNOB not in study.question.space.targets:
        return design_key(study.question.base), json.dumps(designs[""])
    return study.question.space.key, json.dumps({BY_CHIP: designs})


def compute_feedback(study: Study, result: DesignResult) -> Feedback:
    """Feedback on a result for a sampler: objectives, and the excess over each constraint."""
    if result.error:
        return Feedback(None)
    constraints = {"limit": result.need / result.have - 1 if result.limit and result.have else (1.0 if result.limit else 0.0)}
    if is_ruled_out(result):
        return Feedback(None, constraints)
    metrics = extend_with_derived_metrics(result.metrics, study.question.defined)
    constraints |= {str(bound): float(bound.excess(metrics[bound.metric])) for bound in study.bounds if bound.metric in metrics}
    absent = next((name for name in study.objectives if name not in metrics), None)
    if absent is not None and result.limit:  # of a design that cannot be, only what takes no run is known
        return Feedback(None, constraints)
    if absent is not None:
        whose = f"chip {result.values[CHIP_KNOB]}" if CHIP_KNOB in result.values else "this kind of chip or workload"
        at = f" at fidelity={study.fidelity}" if study.fidelity != "analytical" else ""
        raise DesignError(f"objectives.{absent}: {whose} has no {absent}{at}; it has {', '.join(metrics)}")
    return Feedback(tuple(metrics[name] for name in study.objectives), constraints)
