"""Activations that are alive at once while a segment runs: one rule for main memories of devices, tiles and dies.

A value is alive from the operator that makes it to the last one that needs it, and the residual stream throughout. The most is
where an operator leaves its results beside all that is needed then or later.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from dse.evaluators.graph.operators import (
    AttentionOp,
    IndexerOp,
    MatMulOp,
    MatrixDim,
    Operator,
    RecurrenceOp,
    Segment,
    dim_width,
)
from dse.space.array_math import maximum

Width = Callable[[MatrixDim], Any]
"""From a dimension to its columns on a device, or in all."""


def live_values(part: Segment, hidden: float, width: Width = dim_width, *, left_out: str = "-") -> Any:
    """Most values that are alive at once in a segment, of all its tokens. [1]

    Args:
        part: the segment.
        hidden: values of a token in the residual stream.
        width: columns of a dimension that count, as those on one device.
        left_out: beginning of the names of operators whose results are elsewhere; a hyphen for none.
    """
    made = (_result(operator, width, left_out) for operator in part.operators)
    carried = carried_values(part, hidden, width, left_out=left_out)
    most = (crossing + result for (crossing, _), result in zip(carried, made, strict=False))
    return reduce(maximum, most, 1.0 * hidden * part.rows)


def carried_values(part: Segment, hidden: float, width: Width = dim_width, *, left_out: str = "-") -> Iterator[tuple[Any, Any]]:
    """Of each operator in turn: values that cross its beginning, and those that others need of it. [1]

    Args:
        part, hidden, width, left_out: as of `live_values`.
    """
    if part.name == "embedding":
        yield 0.0, 0.0
        return
    needed = {need for operator in part.operators for need in operator.needs}
    for place, operator in enumerate(part.operators):
        later = {need for following in part.operators[place:] for need in following.needs}
        live = sum(_result(earlier, width, left_out) for earlier in part.operators[:place] if earlier.name in later)
        # the head needs the residual stream for its norm alone
        stream = hidden * part.rows if part.name != "head" or not place else 0.0
        yield stream + live, _result(operator, width, left_out) if operator.name in needed else 0.0


def _result(operator: Operator, width: Width, left_out: str) -> Any:
    """Values that an operator makes for all its rows. [1]"""
    if operator.name.startswith(left_out):
        return 0.0
    if isinstance(operator, AttentionOp):
        return operator.tokens * (1.0 * width(operator.heads) / operator.heads.width * operator.v_dim)
    if isinstance(operator, RecurrenceOp):
        return operator.tokens * (1.0 * width(operator.heads) / operator.heads.width * operator.value_dim)
    if isinstance(operator, IndexerOp):
        return operator.tokens * float(operator.top // operator.block)
    rows, dim = (operator.m, operator.n) if isinstance(operator, MatMulOp) else (operator.rows, operator.dim)
    return rows * (1.0 * width(dim))
