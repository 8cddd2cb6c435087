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
from dse.evaluators.layouts.residency import dim_width
from dse.space.array_math import ceil_div


def segment_on_die(part: Segment, tp: int) -> Segment:
    """Share of a segment on one of `tp` dies that divide heads and columns; the last share is padded."""
    return part if tp == 1 else replace(part, operators=tuple(_local(of, tp) for of in part.operators))


def _local(of: Operator, tp: int) -> Operator:
    def less(dim: MatrixDim) -> MatrixDim:
        beside = None if dim.beside is None else less(dim.beside)
        return replace(dim, units=int(ceil_div(dim.units, tp)), beside=beside) if dim.split else dim

    if isinstance(of, MatMulOp):
        apart = int(ceil_div(of.apart, tp)) if of.n.split else of.apart
        return replace(of, k=less(of.k), n=less(of.n), apart=apart)
    if isinstance(of, AttentionOp):
        return replace(of, heads=less(of.heads), kv_heads=less(of.kv_heads))
    if isinstance(of, RecurrenceOp):
        return replace(of, heads=less(of.heads))
    if isinstance(of, IndexerOp):
        return of
    assert isinstance(of, ElementwiseOp)
    return replace(of, dim=less(of.dim))


def values_left(part: Segment) -> Any:
    """Values that a segment's operators leave, without those of experts, which are received. [-]"""
    products = [of for of in part.operators if isinstance(of, MatMulOp) and not of.name.startswith("experts_")]
    return as_number(sum(of.m * dim_width(of.n) for of in products))


def split_at_experts(part: Segment) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators before the dispatch to experts, of the experts, and after the combine."""
    routed = tuple(of for of in part.operators if of.name.startswith("experts_"))
    first = next(place for place, of in enumerate(part.operators) if of is routed[0])
    return part.operators[:first], routed, tuple(of for of in part.operators[first:] if not of.name.startswith("experts_"))


def operator_names(some: tuple[Operator, ...]) -> tuple[str, ...]:
    """Names of the operators in a tuple."""
    return tuple(one.name for one in some)


def as_number(value: Any) -> Any:
    """Return a plain number for a value that is not an array."""
    return value if isinstance(value, np.ndarray) else float(value)
