"""Segments of a step on one die: its share of heads and columns, expert operators, and results."""

from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.graph.operators import (
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    MatrixDim,
    Operator,
    RecurrenceOp,
    Segment,
)
from dse.space.array_math import ceil_div


def segment_on_die(part: Segment, tp: int) -> Segment:
    """Share of a segment on one of `tp` dies that divide heads and columns; the last share is padded."""
    return part if tp == 1 else replace(part, operators=tuple(_local(operator, tp) for operator in part.operators))


def _local(operator: Operator, tp: int) -> Operator:
    def less(dim: MatrixDim) -> MatrixDim:
        beside = None if dim.beside is None else less(dim.beside)
        return replace(dim, units=int(ceil_div(dim.units, tp)), beside=beside) if dim.split else dim

    if isinstance(operator, MatMulOp):
        apart = int(ceil_div(operator.apart, tp)) if operator.n.split else operator.apart
        return replace(operator, k=less(operator.k), n=less(operator.n), apart=apart)
    if isinstance(operator, AttentionOp):
        return replace(operator, heads=less(operator.heads), kv_heads=less(operator.kv_heads))
    if isinstance(operator, RecurrenceOp):
        return replace(operator, heads=less(operator.heads))
    if isinstance(operator, IndexerOp):
        return operator
    assert isinstance(operator, ElementwiseOp)
    return replace(operator, dim=less(operator.dim))


def split_at_experts(part: Segment) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators before the dispatch to experts, of the experts, and after the combine."""
    routed = tuple(operator for operator in part.operators if operator.name.startswith("experts_"))
    first = next(place for place, operator in enumerate(part.operators) if operator is routed[0])
    return (
        part.operators[:first],
        routed,
        tuple(operator for operator in part.operators[first:] if not operator.name.startswith("experts_")),
    )


def operator_names(operators: tuple[Operator, ...]) -> tuple[str, ...]:
    """Names of the operators in a tuple."""
    return tuple(operator.name for operator in operators)


def as_number(value: Any) -> Any:
    """Return a plain number for a value that is not an array."""
    return value if isinstance(value, np.ndarray) else float(value)
