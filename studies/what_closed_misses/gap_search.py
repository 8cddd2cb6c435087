"""Search for the designs and loads at which a simulation and the analytical model are furthest apart."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators import evaluate
from dse.execution.limit_filter import EarlyLimits
from dse.execution.study import Study
from dse.explanations.neighbours import format_knob_value
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import Feedback
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.workload import BatchCase, Workload
from dse.studies.what_closed_misses.families import DesignFamily

PHASES = {"ttft": "prefill", "tpot": "decode"}
"""Phases that are compared, by the metric that is the phase's time."""

SEED = 3


class Gap(NamedTuple):
    """Times of one design under one load by both fidelities.

    Attributes:
        family: its name.
        phase: prefill or decode.
        batch, prompt, output: requests, and tokens of each.
        analytical, simulated: time to the first token, or per output token. [s]
        settings: overrides of the design beside the family's.
        refusal: why the simulation does not end, as a deadlock of routers; then there are no times.
    """

    family: str
    phase: str
    batch: int
    prompt: int
    output: int
    analytical: float
    simulated: float
    settings: tuple[str, ...]
    refusal: str = ""

    @property
    def gap(self) -> float:
        """Simulated over analytical time - 1: above 0 where the analytical model is too fast."""
        return self.simulated / self.analytical - 1

    @property
    def load(self) -> tuple[str, ...]:
        """Overrides of the command line that set the load."""
        return (f"workload.batch=[{self.batch}]", f"workload.prompt=[{self.prompt}]", f"workload.output=[{self.output}]")


def search_gaps(family: DesignFamily, seconds: float, designs: int = 10**9, seed: int = SEED) -> Iterator[Gap]:
    """Gaps of every design that the search evaluates, phase by phase and load by load.

    The search is the project's own (`dse/search/local_search.py`); it maximises the largest gap of a design, either way.

    Args:
        family: where to search.
        seconds: CPU time for all of it. [s]
        designs: most designs that are evaluated.
        seed: of the search.
    """
    study = family.study()
    space, workload = study.question.space, study.question.workload
    limits = EarlyLimits(space, workload, soon=True)
    sampler = make_sampler("local", space, ["max"], seed=seed, population=24, possible=limits.find_possible)
    start, count = time.process_time(), 0
    for number in range(MAX_ASKS):
        if count == designs or time.process_time() - start > seconds:
            return
        ask = sampler.ask(number, None)
        gaps = (
            []
            if limits.ruled_out("", ask.values) is not None
            else design_gaps(family, space.design_at(ask.values), workload, knob_overrides(study, ask.values))
        )
        yield from gaps
        largest = max((abs(gap.gap) for gap in gaps if not gap.refusal), default=None)
        sampler.tell(ask, Feedback(None if largest is None else (largest,), {} if gaps else {"limit": 1.0}))
        count += bool(gaps)


MAX_ASKS = 100_000
"""Designs that are proposed at most, those that a limit rules out included."""


def design_gaps(family: DesignFamily, design: Design, workload: Workload, settings: tuple[str, ...]) -> list[Gap]:
    """Gaps of one design, one for each phase and load; none of an infeasible design.

    Where the simulation does not end, the only element has the reason.
    """
    single, metrics = stack_designs([design]), tuple(PHASES)
    low = evaluate(single, workload, fidelity=family.analytical, cases=True, metrics=metrics)
    if not low.feasible[0]:
        return []
    try:
        high = evaluate(single, workload, fidelity=family.fidelity, cases=True, metrics=metrics)
    except DesignError as error:  # what only a simulation can say of a design
        return [Gap(family.name, "", 0, 0, 0, np.nan, np.nan, settings, str(error).partition(":")[0] + ": " + _reason(error))]
    gaps = []
    for metric, phase in PHASES.items():
        for row, case in enumerate(workload.cases):
            assert isinstance(case, BatchCase)
            ((batch, prompt, output),) = case.requests
            before, after = (float(np.asarray(outcomes.cases[metric])[row, 0]) for outcomes in (low, high))
            if np.isfinite([before, after]).all() and before > 0:
                gaps.append(Gap(family.name, phase, batch, prompt, output, before, after, settings))
    return gaps


def knob_overrides(study: Study, values: dict[str, object]) -> tuple[str, ...]:
    """Overrides that set a design's knobs and what is tied to them, with units."""
    space = study.question.space
    active = space.canonical(values)
    texts = [f"{address}={_text(format_knob_value(space, address, value))}" for address, value in active.items()]
    return tuple(texts)


def _reason(error: DesignError) -> str:
    """First statement of an error, without the setting that it names."""
    return str(error).partition(": ")[2].partition(":")[0]


def _text(value: str) -> str:
    return f"'{value}'" if " " in value else value
