"""Library kernels outside the sizes on which their constants were fitted.

A form that was fitted on measured rows says nothing of sizes far from them. There a kernel takes at most `REASON` times its
roofline, or as many times as it does at the nearest sizes that rows have, where that is more. With R = max(compute, memory) at
the peaks of the die, and T = (compute^q + memory^q)^(1/q) of the form,

    T' = min(T, max(T(nearest) / R(nearest), REASON) R)
    T' = max(T', R beyond what the cache of the die can hold)

Start and end of a kernel are not in T. At the edge of the rows both sides are the form itself, so no answer jumps there.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, smooth_maximum
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.array_math import divisor, maximum, minimum, where

REASON = 5.0
"""Largest time over roofline outside the measured ranges, unless measured rows are slower. [-]"""

ROUNDING = 1e-3
"""Share of a size that is no difference: formats with scales have a little more than their bits."""

Range = tuple[str, float, float]
"""Name of a size, and the least and the largest value of it among measured rows."""


def outside_sizes(sizes: Mapping[str, Any], ranges: tuple[Range, ...]) -> dict[str, Any]:
    """Sizes outside the measured ranges, each moved to the nearest measured value.

    >>> outside_sizes({"keys": 100.0, "heads": 8.0}, (("keys", 256.0, 16384.0), ("heads", 8.0, 64.0)))
    {'keys': 256.0}
    """
    found_sizes = {}
    for name, low, high in ranges:
        value = sizes.get(name)
        if value is not None and (np.any(value < low * (1 - ROUNDING)) or np.any(value > high * (1 + ROUNDING))):
            found_sizes[name] = minimum(maximum(value, low), high)
    return found_sizes


def is_outside(sizes: Mapping[str, Any], nearest: Mapping[str, Any]) -> Any:
    """Whether a step or design has a size outside the measured ranges, by `nearest` of `outside_sizes`."""
    outside: Any = False
    for name, value in nearest.items():
        outside = outside | (sizes[name] != value)
    return outside


def extrapolate(
    form: LibraryKernelTime, problem: Any, constants: Any, die: LibraryDie, kernel: ModuleType
) -> LibraryKernelTime:
    """Time of a kernel in its parts, limited near its roofline outside the measured ranges. [s]

    Args:
        form: time of the kernel by its analytical model.
        problem: problem of the kernel, with `sizes`, `resized_problem` and `peak_times`.
        constants: of the library, with `measured_ranges`; without these the form stands.
        die: die that runs it.
        kernel: module of its form.
    """
    sizes = problem.sizes()
    nearest = outside_sizes(sizes, constants.measured_ranges or ())
    nearest.pop("bits", None)  # another format is another rate, and no other size
    if not nearest:
        return form
    edge = problem.resized_problem(nearest)
    compute, _ = problem.peak_times(die)
    roofline, beyond_cache = rooflines(problem, die)
    streams = isinstance(compute, float) and not compute  # nothing is computed: what a form has beside memory is its start
    at_edge: LibraryKernelTime = kernel.kernel_time(edge, constants, die)
    limit = maximum(_work(at_edge, streams) / divisor(rooflines(edge, die)[0]), REASON)
    work = _work(form, streams)
    scale = where(is_outside(sizes, nearest), maximum(minimum(work, limit * roofline), beyond_cache) / divisor(work), 1.0)
    return form._replace(compute=form.compute if streams else form.compute * scale, memory=form.memory * scale)


def rooflines(problem: Any, die: LibraryDie) -> tuple[Any, Any]:
    """Roofline time with all bytes from main memory, and with the die's cache holding its size. [s], [s]"""
    compute, memory = problem.peak_times(die)
    return maximum(compute, memory), maximum(compute, maximum(memory - die.cache / die.bandwidth, 0.0))


def _work(form: LibraryKernelTime, streams: bool) -> Any:
    """Time of engines and memory together, without start and conversions; of what streams, of memory. [s]"""
    return form.memory if streams else smooth_maximum(form.compute, form.memory, form.sharpness)
