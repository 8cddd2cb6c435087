"""Peak rates of a device with a cache, and times of an operation at its number formats."""

from functools import reduce
from typing import Any

from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.layouts.tensor_formats import format_product, head_format
from dse.evaluators.machine.shared_cache_die import shared_cache_parts
from dse.space.array_math import minimum
from dse.space.design import Design
from dse.space.main_memory import main_memory
from dse.space.mapping import FormatPlan
from dse.space.memoize import memoize_by_identity
from dse.space.number_formats import FormatRates


def device_peak_rates(design: Design) -> PeakRates:
    """Peak rates of one device, of its engines at the formats of activations and weights."""
    engines = shared_cache_parts(design.chip, design.mapping)[0].matrix * design.mapping.stack.matrix_efficiency
    return PeakRates(1 / (engines * usual_pace(design)), main_memory(design.chip).bandwidth)


def usual_pace(design: Design) -> Any:
    """Time of an operation at the formats of activations and weights, over its time at 16 bits."""
    return _usual_pace(design.mapping.precision, design.chip.core.rates)


@memoize_by_identity
def _usual_pace(precision: FormatPlan, rates: FormatRates | None) -> Any:
    return format_product(precision.activations, precision.weights, rates).pace


def fastest_speedup(design: Design) -> Any:
    """Rate of the fastest product of a mapping over that of its usual formats; at least 1. [1]"""
    precision, rates = design.mapping.precision, design.chip.core.rates
    stored = {
        precision.weights,
        precision.kv,
        head_format(precision),
        *filter(None, (precision.experts, precision.attention, precision.index)),
    }
    paces = [format_product(precision.activations, name, rates).pace for name in sorted(stored)]
    return usual_pace(design) / reduce(minimum, paces)
