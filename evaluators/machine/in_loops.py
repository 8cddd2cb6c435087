"""What compiled loops run where closed forms, which are written once, call `space.elementwise`: the same of numbers."""

from typing import Any

import numpy as np

from dse.evaluators.machine.compile_cache import instead_of, piece
from dse.space.elementwise import ceil_div, maximum, minimum, where


@instead_of(maximum)
def _larger(a: Any, b: Any) -> Any:
    return a if a >= b else b


@instead_of(where)
def _chosen(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


@instead_of(minimum)
def _smaller(a: Any, b: Any) -> Any:
    return a if a <= b else b


@instead_of(ceil_div)
def _groups(a: Any, b: Any) -> Any:
    return np.ceil(a / b)


closed_form = piece
"""Decorator of a closed form that calls these: it becomes part of the loops that call it."""
