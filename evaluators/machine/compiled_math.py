"""Compiled versions of `space.array_math`, which formulas shared with compiled loops call."""

from typing import Any

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_replacement, inlined_function
from dse.space.array_math import ceil_div, maximum, minimum, where


@compiled_replacement(maximum)
def _larger(a: Any, b: Any) -> Any:
    return a if a >= b else b


@compiled_replacement(where)
def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


@compiled_replacement(minimum)
def _smaller(a: Any, b: Any) -> Any:
    return a if a <= b else b


@compiled_replacement(ceil_div)
def _groups(a: Any, b: Any) -> Any:
    return np.ceil(a / b)


closed_form = inlined_function
"""Decorator of a formula that calls these functions: it becomes part of the loops that call it."""
