"""Operators of a model before anyone divides them.

A dimension says itself whether it may be divided between devices; the rest follows in layouts.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a matrix: `units` indivisible groups, each `width` wide, divided between devices if `split`."""

    units: int
    width: int = 1
    split: bool = False


@dataclass(frozen=True, slots=True)
class MatMul:
    """[m, k] x [k, n] with weights in memory.

    Attributes:
        m: rows of activations, over all copies.
        copies: weight matrices that are read (experts that are touched).
        stored: weight matrices that exist (all experts); 0 for a table that another operator stores.
        apart: matrices side by side along n that have rows of activations of their own, as those of heads.
    """

    name: str
    needs: tuple[str, ...]
    m: Any
    k: Dim
    n: Dim
    copies: Any = 1.0
    stored: float = 1.0
    apart: int = 1


@dataclass(frozen=True, slots=True)
class Attention:
    """Scores, softmax and weighted sum over cached or fresh keys and values.

    Attributes:
        heads, kv_heads: query and key/value heads; MLA's absorbed form has one KV head for all.
        qk_dim, v_dim: of a head.
        kv_dim: values cached per position and KV head, keys and values together.
        layout_dim: values of one contiguous piece in the cache: one head's keys of one position.
        pairs, positions: as in `Step`.
        tokens: rows of queries.
    """

    name: str
    needs: tuple[str, ...]
    heads: Dim
    kv_heads: Dim
    qk_dim: int
    v_dim: int
    kv_dim: int
    layout_dim: int
    tokens: Any
    pairs: Any
    positions: Any


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Norms, rotations, activations: `operations` vector operations on each element, `passes` reads and writes of it."""

    name: str
    needs: tuple[str, ...]
    rows: Any
    dim: Dim
    operations: int
    passes: int


Operator = MatMul | Attention | Elementwise


@dataclass(frozen=True, slots=True)
class Part:
    """Operators that run once in each of `times` layers, in order, between two points where devices may have to meet.

    Attributes:
        rows: tokens that come in and go out.
    """

    name: str
    rows: Any
    operators: tuple[Operator, ...]
    times: int


def useful(of: Operator) -> Any:
    """Multiply-adds of an operator, twice: what a model asks for, nothing padded or repeated. [op]"""
    if isinstance(of, MatMul):
        return 2.0 * of.m * (of.k.units * of.k.width) * (of.n.units * of.n.width)
    if isinstance(of, Attention):
        return 2.0 * of.pairs * of.heads.units * (of.qk_dim + of.v_dim)
    return 0.0
