"""The single setting of a design whose step helps most, from one batch of evaluations.

`dse explain` has the effect of every setting on every objective; this is its cheapest part, for a first screen.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log
from typing import Any

import numpy as np

from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import fidelities
from dse.evaluators.silicon import area
from dse.evaluators.silicon import price as prices
from dse.space.design import Design, Designs, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import field_at
from dse.space.knobs import Value
from dse.space.neighbourhood import build_neighbourhood_space, list_base_neighbours
from dse.space.published import remove_published_facts
from dse.space.units import format_quantity
from dse.space.workload import BatchCase, CollectiveCase, MemoryStreamCase, NocTrafficCase, ServingLoad, Workload

ANALYTICAL, STEADY_STATE = "analytical", "steady_state"

ENGINE = "mapping.inference_engine."
"""Addresses of constants of an inference engine, which nobody chooses one by one."""

SHORT_STREAM = 20_000
"""Requests of a channel up to which steps of a memory stream are tried: each step plays them all."""

MESH = "chip.mesh."
"""Addresses of the sides of a mesh: with them traffic and collectives, which take the whole mesh, are others."""

PACES = ("throughput", "latency", "packet_latency")
"""What a step should better: the first of these that a design has."""

SERVED_PACES = ("max_rate", "latency")
"""The same of serving loads, whose throughput is what arrives."""

RATES = {"throughput": "throughput", "max_rate": "maximum rate"}
"""Metrics of these that should be large, with their names in the text."""

SHOWN_METRICS = ("max_rate", "throughput", "tpot", "ttft", "latency", "packet_latency", "system_price", "system_mm2")
"""Metrics whose change by the best step is told."""

LABELS = {"ttft": "TTFT", "tpot": "TPOT", "max_rate": "max rate", "packet_latency": "latency"}
LABELS |= {"system_price": "price", "system_mm2": "area"}
"""Names of these in the text, where they are not the metric's own."""

MAX_SHOWN = 3
"""Most metrics whose change by the best step is told."""

LEAST_GAINS = {ANALYTICAL: 0.005, STEADY_STATE: 0.01}
"""Gain in speed below which a step does not help, by fidelity: a maximum rate is searched to half a percent. [-]"""

MODELS = {ANALYTICAL: "analytical model", STEADY_STATE: "steady state"}
"""Names of the fidelities of steps in the text."""

MODELLED = ", data sheet's price and area aside"
"""What follows where a chip has a data sheet: its figures hold for that chip alone."""

NO_GAIN = float("-inf")
"""Gain of a step that does not help or violates a limit."""


@dataclass(frozen=True, slots=True)
class BestKnob:
    """The step of one setting that gains most, among all steps of single settings.

    Attributes:
        knob: address of the setting; empty string if no step gains.
        old, new: its values as text.
        changes: relative change of metrics, by name. [-]
        steps: that were evaluated.
        settings: whose steps these were.
        aim: the ratio that the step betters, in words.
        fidelity: at which steps were evaluated.
        modelled: whether the chip has a data sheet, whose prices and areas do not count.
    """

    knob: str
    old: str
    new: str
    changes: Mapping[str, float]
    steps: int
    settings: int
    aim: str
    fidelity: str = ANALYTICAL
    modelled: bool = False

    @property
    def text(self) -> str:
        """The step and what it changes, in one line."""
        least = LEAST_GAINS[self.fidelity]
        tried = f"{self.steps} steps of {self.settings} settings, {MODELS[self.fidelity]}"
        if not self.knob:
            return f"none of {tried} makes the design {least:.1%} faster"
        moved = ((LABELS.get(name, name), change) for name, change in self.changes.items() if abs(change) >= least / 2)
        changes = [f"{name} {change:+.1%}" for name, change in moved][:MAX_SHOWN]
        return (
            f"{self.knob} {self.old} to {self.new}: {', '.join(changes)}; most {self.aim} of {tried}{MODELLED * self.modelled}"
        )


def find_best_knob(design: Design, workload: Workload) -> BestKnob | None:
    """The step of one chip or mapping setting that gains most in the first case.

    The analytical model evaluates steps, and the steady state those of serving loads. Steps count that make the design faster:
    of these the one with the largest gain in rate, or in 1 / latency, over the price of the system where it is known, else over
    its area. Prices and areas are the model's own: a data sheet's hold for one chip alone, and would count against each step of
    it. Number formats and constants of software are not moved.

    Args:
        design: a feasible design of scalars.
        workload: whose first case counts.

    Returns:
        None where steps take longer than a first screen may: for long memory streams, pools of unlike chips and models that
        tiles serve; and for designs and loads that the model does not support. Batches on tiles have the step to more of each
        setting alone, as each tile new to the process takes some 30 ms.
    """
    case = workload.cases[0]
    workload = replace(workload, cases=(case,))
    served = isinstance(case, ServingLoad)
    fidelity = STEADY_STATE if served else ANALYTICAL
    tiles = design.chip.tile is not None
    slow = (isinstance(case, MemoryStreamCase) and case.requests > SHORT_STREAM) or (tiles and served)
    if slow or design.pools is not None or fidelity not in fidelities(design, workload):
        return None
    try:
        space = build_neighbourhood_space(design, lambda address, option: True)
        left = (ENGINE, MESH) if isinstance(case, NocTrafficCase | CollectiveCase) else (ENGINE,)
        steps = [step for step in list_base_neighbours(space) if not step.knob.startswith(left)]
        if tiles and isinstance(case, BatchCase):
            steps = [step for step in steps if step.is_upward is not False]
    except DesignError:  # settings around a design that ties or rules exclude
        return None
    wanted = tuple(name for name in (*SHOWN_METRICS, "energy") if name in METRICS)
    base, *outcomes = _evaluate_steps([design, *(step.design for step in steps)], workload, fidelity, wanted)
    pace = next((name for name in (SERVED_PACES if served else PACES) if name in base), "")
    if not pace:
        return None
    price = next((name for name in ("system_price", "system_mm2") if base.get(name)), "")
    gains = [_gain(base, outcome, pace, price, LEAST_GAINS[fidelity]) for outcome in outcomes]
    aim = RATES.get(pace, "speed") + {"system_price": " a dollar", "system_mm2": " a mm2"}.get(price, "")
    modelled = bool(price) and design.chip.published is not None
    done, settings = len(steps), len({step.knob for step in steps})
    best = max(range(done), key=gains.__getitem__, default=-1)
    if best < 0 or gains[best] == NO_GAIN:
        return BestKnob("", "", "", {}, done, settings, aim, fidelity, modelled)
    step = steps[best]
    changes = {
        name: outcomes[best][name] / base[name] - 1 for name in SHOWN_METRICS if base.get(name) and name in outcomes[best]
    }
    old, new = (_value_text(space.base, space.targets[step.knob][0], value) for value in (step.old, step.new))
    return BestKnob(step.knob, old, new, changes, done, settings, aim, fidelity, modelled)


def _gain(base: Mapping[str, float], outcome: Mapping[str, float], pace: str, price: str, least: float) -> float:
    """Logarithm of how much faster a step is, less that of how much more expensive; `NO_GAIN` if it does not help."""
    names = [pace, *([price] if price else [])]
    if any(not outcome.get(name, 0.0) > 0 or not base.get(name, 0.0) > 0 for name in names):
        return NO_GAIN
    faster = log(outcome[pace] / base[pace]) * (1 if pace in RATES else -1)
    if faster < least:
        return NO_GAIN
    return faster - (log(outcome[price] / base[price]) if price else 0.0)


def _evaluate_steps(
    designs: Sequence[Design], workload: Workload, fidelity: str, wanted: tuple[str, ...]
) -> list[dict[str, float]]:
    """Metrics of designs that are evaluated together; none of infeasible and of refused ones."""
    stacked = stack_designs(designs)
    try:
        outcomes = evaluate(stacked, workload, fidelity=fidelity, metrics=wanted)
    except DesignError:
        if len(designs) == 1:
            return [{}]
        middle = len(designs) // 2
        return [
            outcome
            for part in (designs[:middle], designs[middle:])
            for outcome in _evaluate_steps(part, workload, fidelity, wanted)
        ]
    shares = _own_shares(stacked)
    return [
        {name: float(column[row] * shares[name][row]) for name, column in outcomes.columns.items() if isfinite(column[row])}
        if outcomes.feasible[row] and row not in outcomes.refused
        else {}
        for row in range(len(designs))
    ]


def _own_shares(stacked: Designs) -> Mapping[str, Any]:
    """What the model makes of prices and areas over what they are with a data sheet; 1 for others. Each of shape (designs,)."""
    shares = defaultdict[str, Any](lambda: np.ones(len(stacked)))
    for rows, design in stacked.groups:
        if (chip := design.chip).published is not None:
            own = remove_published_facts(chip)
            shares["system_price"][rows] = prices.system_price(own) / prices.system_price(chip)
            shares["system_mm2"][rows] = area.total_area(own) / area.total_area(chip)
    return shares


def _value_text(base: Design, address: str, value: Value) -> str:
    return value if isinstance(value, str) else format_quantity(float(value), field_at(base, address).metadata["unit"] or "1")
