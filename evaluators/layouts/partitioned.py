"""Operators of a pipeline's group that have a partition each: what lies where between them, and calls that are merged.

A partition finds activations in one layout and leaves them in another:

    all       every core has all rows and columns: what sums leave
    grid      a row of the group's grid has rows of its own, each of its cores all columns
    rows      each core has rows of its own
    columns   each core has columns of its own, of heads or of a slice of the inner dimension
    block     rows of the grid have rows of their own, and the cores of each have columns of their own

A core that has more than the next operator needs takes its part for nothing. Else what all have goes once around the rings to
all (`kernels.partition.ring`), and from then on everyone finds it. Operators on elements keep the layout that they find, as
where one partition is for all. Which part of a weight a core has is the same in every step of a phase.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import Attention, Elementwise, Index, MatMul, Operator, Part, Recur
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import Block, Call, Exchange, alike
from dse.evaluators.passes.rivals import of_ways, picked
from dse.space.elementwise import ceil_div
from dse.space.mapping import PARTITIONS, TilePlan

STATES = ("all", "grid", "rows", "columns", "block")
"""Layouts of activations on a group."""

STREAM = ("all", "grid", "rows")
"""Those of the residual stream between parts of layers."""

FOUND = {
    "all": ("all",),
    "grid": ("all", "grid"),
    "rows": ("all", "grid", "rows"),
    "columns": ("all", "columns"),
    "block": ("all", "grid", "block"),
}
"""What has the part of it that a layout is."""

PRODUCTS = {"input_only": ("rows", "rows"), "mn": ("rows", "rows"), "k": ("columns", "all"), "mn_k": ("block", "grid")}
"""What a product needs by its partition, and what it leaves."""

ROWS, HEADS = PARTITIONS.index("mn"), PARTITIONS.index("k")
"""Partitions whose attention is of a core's rows, or of its heads."""

Name = tuple[str, str]
"""A part and its operator."""


class Chosen(NamedTuple):
    """The partition of each operator, by part and name; leaves of shape (cases, designs), or numbers.

    Attributes:
        words: places in `PARTITIONS`; of attention and states that of a partition that divides them so.
        gathered: whether what an operator leaves goes to all cores.
        columns: whether that is columns, not rows.
    """

    words: Mapping[Name, Any]
    gathered: Mapping[Name, Any]
    columns: Mapping[Name, Any]


def ways(of: Operator, allowed: Sequence[str], *, heads: bool) -> tuple[tuple[int, str, str], ...]:
    """How an operator may be divided: place in `PARTITIONS`, the layout it needs, and the one it leaves."""
    if isinstance(of, MatMul):
        return tuple((PARTITIONS.index(word), *PRODUCTS[word]) for word in allowed)
    if isinstance(of, Elementwise):
        return tuple((ROWS, state, state) for state in STATES)
    own = "columns" if heads else "rows"
    return ((HEADS if heads else ROWS, *(("rows", "all") if isinstance(of, Index) else (own, own))),)


def alone(parts: Sequence[Part], word: str) -> Chosen:
    """One partition for all."""
    names = [(part.name, of.name) for part in parts for of in part.operators]
    return Chosen(dict.fromkeys(names, PARTITIONS.index(word)), dict.fromkeys(names, False), dict.fromkeys(names, False))


def merged(
    parts: Sequence[Part], by_word: Mapping[str, Sequence[Block]], of: Chosen, plan: TilePlan, itemsize: float
) -> tuple[Block, ...]:
    """Calls of a step whose operators have a partition each, with those that bring what is left to all cores.

    Args:
        parts: of the step.
        by_word: its blocks with one partition for all, by word.
        of: the partitions, leaves of shape (entries, designs) or numbers.
        plan: where cores are.
        itemsize: of activations. [B]
    """
    operators = {(part.name, one.name): (part, one) for part in parts for one in part.operators}
    known: dict[int, tuple[Call, ...]] = {}

    def together(block: int) -> tuple[Call, ...]:
        calls = []
        for each in zip(*(by_word[word][block].calls for word in PARTITIONS), strict=True):
            name = each[0].part, each[0].operators[-1]
            calls.append(_call(each, of.words[name]))
            if np.any(of.gathered[name]):
                exchange = gathering(*operators[name], plan, itemsize, of.columns[name])
                calls.append(_gathered(each[0], exchange._replace(times=of.gathered[name] * 1.0)))
        return tuple(calls)

    found = []
    for number, block in enumerate(by_word[PARTITIONS[0]]):
        calls = known.get(id(block.calls))
        if calls is None:
            calls = known[id(block.calls)] = together(number)
        found.append(block._replace(calls=calls, alike=alike(calls), order=tuple(range(len(calls)))))
    return tuple(found)


def gathering(part: Part, of: Operator, plan: TilePlan, itemsize: float, columns: Any) -> Exchange:
    """What an operator leaves, rows or columns of it on each core, goes to all."""
    rows, wide = _size(part, of)
    by_rows, by_columns = ceil_div(rows, plan.tp) * wide, rows * ceil_div(wide, plan.tp)
    return Exchange(1.0, plan.placement, plan.tp, picked([by_rows, by_columns], _place(columns * 1)) * itemsize)


def _size(part: Part, of: Operator) -> tuple[Any, Any]:
    """Rows and columns of what an operator leaves; each core adds up what experts make of its tokens."""
    if isinstance(of, MatMul):
        return part.rows if of.stored > 1 and not of.n.split else of.m, width(of.n)
    if isinstance(of, Attention):
        return of.tokens, of.heads.units * of.v_dim
    if isinstance(of, Recur):
        return of.tokens, of.heads.units * of.value_dim
    if isinstance(of, Index):
        return of.tokens, of.top // of.block
    return of.rows, width(of.dim)


def _call(each: Sequence[Call], which: Any) -> Call:
    """Of the calls of an operator by partition, the one that is chosen, or all of them in one."""
    which = _place(which)
    words = np.unique(which)
    some: list[Call] = [each[word] for word in words]
    group = some[0].group
    if group is not None:
        names = tuple(PARTITIONS[word] for word in words)
        k = each[HEADS].group
        assert k is not None
        group = of_ways(k, names, which if len(names) == 1 else np.searchsorted(words, which))
    if len(some) == 1:
        return some[0]._replace(group=group)
    exchange = [call.exchange for call in some]
    there = next((one for one in exchange if one is not None), None)
    if there is not None:
        exchange = [there._replace(times=0.0) if one is None else one for one in exchange]
    plain = [call._replace(group=None, exchange=one) for call, one in zip(some, exchange, strict=True)]
    one: Call = picked(plain, np.searchsorted(words, which))
    found: Call = one._replace(group=group)
    return found


def _gathered(after: Call, of: Exchange) -> Call:
    """The call that brings what another one leaves to all cores."""
    sent = of.times * (of.cores - 1) * of.nbytes * of.cores
    return Call(after.part, f"{after.name} to all", (after.name,), after.rows, after.shape, exchange=of, sent=sent)


def _place(which: Any) -> Any:
    """A place, a number where it is one for all."""
    if not isinstance(which, np.ndarray):
        return int(which)
    return int(which.flat[0]) if np.all(which == which.flat[0]) else which
