"""Operators of a pipeline's group that have a partition each: what lies where between them, and calls that are merged.

A partition finds activations in one layout and leaves them in another:

    all       every core has all rows and columns: what sums leave
    grid      a row of the group's grid has rows of its own, each of its cores all columns
    rows      each core has rows of its own
    columns   each core has columns of its own, of heads or of a slice of the inner dimension
    block     rows of the grid have rows of their own, and the cores of each have columns of their own

    dealt     each core has rows of tokens that its experts are asked for, where experts are whole on a core

A core that has more than the next operator needs takes its part for nothing. Else what all have goes once around the rings to
all (`kernels.partition.ring`), and from then on everyone finds it; so it does where one partition is for all. Operators on
elements keep the layout that they find. Which part of a weight a core has is the same in every step of a phase.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.graph.operators import Attention, Elementwise, Index, MatMul, Operator, Part, Recur
from dse.evaluators.kernels.partition.placement import grid
from dse.evaluators.layouts.residency import width
from dse.evaluators.passes.call import Block, Call, Exchange, alike
from dse.evaluators.passes.rivals import of_ways, picked
from dse.space.elementwise import ceil_div, option
from dse.space.mapping import DIVISIONS, ON_MESH, PARTITIONS, PLACEMENTS, TilePlan

STATES = ("all", "grid", "rows", "columns", "block", "dealt")
"""Layouts of activations on a group."""

STREAM = ("all", "grid", "rows")
"""Those of the residual stream between parts of layers."""

FOUND = {
    "all": ("all",),
    "grid": ("all", "grid"),
    "rows": ("all", "grid", "rows"),
    "columns": ("all", "columns"),
    "block": ("all", "grid", "block"),
    "dealt": ("dealt",),
}
"""What has the part of it that a layout is."""

PRODUCTS = {"input_only": ("rows", "rows"), "mn": ("rows", "rows"), "k": ("columns", "all"), "mn_k": ("block", "grid")} | (
    dict.fromkeys(ON_MESH, ("block", "block"))
)
"""What a product needs by its partition, and what it leaves."""

WHOLE = {"k": ("all", "dealt", "all"), "mn": ("rows", "dealt", "rows")}
"""Experts that are whole on a core: what their first products need, what these leave, and what the last one leaves; with the
exchanges of `layouts.pipelines`. Where rows are divided in another way than mn, likewise."""

CUTS = ("rows", "columns", "block")
"""What a core has of what goes to all."""

ROWS, HEADS = DIVISIONS.index("mn"), DIVISIONS.index("k")
"""Partitions whose attention is of a core's rows, or of its heads."""

ROTATIONS = ("rope", "heads_norm")
"""Operators on elements that leave all that they take, whatever of it they change."""

Name = tuple[str, str]
"""A part and its operator."""


class Chosen(NamedTuple):
    """The partition of each operator, by part and name; leaves of shape (cases, designs), or numbers.

    Attributes:
        words: places in `DIVISIONS`; of attention and states that of a partition that divides them so.
        gathered: whether what an operator leaves goes to all cores.
        cuts: which part of it a core has before, a place in `CUTS`.
    """

    words: Mapping[Name, Any]
    gathered: Mapping[Name, Any]
    cuts: Mapping[Name, Any]


class Rules(NamedTuple):
    """How operators may be divided beside the partitions of products.

    Attributes:
        heads: whether attention divides heads, not rows.
        apart: whether attention has all cores and memory between them, so that it finds and leaves what it may.
        whole: whether experts are whole on a core.
    """

    heads: bool
    apart: bool
    whole: bool


def rules(plan: TilePlan, *, heads: bool) -> Rules:
    """Those of a plan."""
    return Rules(heads, plan.attention is not None, plan.experts == "whole")


def offered(plan: TilePlan) -> tuple[str, ...]:
    """Ways to divide a product that a plan's groups have, all of them where there are several."""
    mesh = option(plan.placement, PLACEMENTS) == PLACEMENTS.index("mesh")
    return DIVISIONS if np.all(mesh) else PARTITIONS


def taken(part: Part) -> dict[str, tuple[str, ...]]:
    """By operator of a part, others of it whose results it takes; experts take what the router took beside its choice."""
    found = {of.name: tuple(need for need in of.needs if need != of.name) for of in part.operators}
    inside = found.keys()
    routers = {of.name for of in part.operators if isinstance(of, MatMul) and of.name == "router"}
    for of in part.operators:
        through = tuple(more for need in of.needs if need in routers for more in found[need])
        found[of.name] = tuple(need for need in dict.fromkeys((*of.needs, *through)) if need in inside)
    return found


def ways(of: Operator, allowed: Sequence[str], by: Rules) -> tuple[tuple[int, str, str], ...]:
    """How an operator may be divided: place in `DIVISIONS`, the layout it needs, and the one it leaves."""
    if isinstance(of, MatMul) and of.stored > 1 and by.whole:
        some = ((word, WHOLE[word][1:] if of.k.split else WHOLE[word][:2]) for word in ("mn", "k") if word in allowed)
        return tuple((DIVISIONS.index(word), *layouts) for word, layouts in some)
    if isinstance(of, MatMul):
        return tuple((DIVISIONS.index(word), *PRODUCTS[word]) for word in allowed)
    if isinstance(of, Elementwise):
        return tuple((ROWS, state, state) for state in STATES)
    own = "columns" if by.heads else "rows"
    return ((HEADS if by.heads else ROWS, *(("rows", "all") if isinstance(of, Index) else (own, own))),)


def alone(parts: Sequence[Part], word: str, plan: TilePlan) -> Chosen:
    """One partition for all: what does not lie as the next operator needs it goes to all."""
    by, leaves = rules(plan, heads=word == "k"), PRODUCTS[word][1]
    stream = leaves if leaves in STREAM else "all"
    gathered: dict[Name, bool] = {}
    cuts: dict[Name, int] = {}
    for part in parts:
        left: dict[str, str] = {}
        takes = taken(part)

        def bring(name: str, part: Part = part, left: dict[str, str] = left) -> None:
            gathered[part.name, name], left[name] = True, "all"

        for of in part.operators:
            there = [left[need] for need in takes[of.name]] or [stream]
            needs, leaves = divided(of, word, by, there)
            free = by.apart and isinstance(of, Attention)
            for need in takes[of.name]:
                if not free and left[need] not in FOUND[needs]:
                    bring(need)
            gathered[part.name, of.name], cuts[part.name, of.name] = False, cut(leaves)
            left[of.name] = "all" if free else leaves
        for name in left.keys() - {need for needs in takes.values() for need in needs}:
            if left[name] not in FOUND[stream]:
                bring(name)
    return Chosen(dict.fromkeys(gathered, DIVISIONS.index(word)), gathered, cuts)


def divided(of: Operator, word: str, by: Rules, there: Sequence[str]) -> tuple[str, str]:
    """What an operator needs by a partition, and what it leaves, from the layouts of what it takes."""
    if isinstance(of, Elementwise):
        state = next((one for one in there if all(other in FOUND[one] for other in there)), there[0])
        return state, state
    if isinstance(of, MatMul) and of.stored > 1 and by.whole and word != "k":
        word = "mn"
    ((_, needs, leaves),) = ways(of, (word,), by)
    return needs, leaves


def cut(state: Any) -> Any:
    """Which part a core has of what lies so, a place in `CUTS`."""
    return CUTS.index(state if state in CUTS else "rows")


def merged(
    parts: Sequence[Part], by_word: Mapping[str, Sequence[Block]], of: Chosen, plan: TilePlan, itemsize: float
) -> tuple[Block, ...]:
    """Calls of a step whose operators have a partition each, with those that bring what is left to all cores.

    Args:
        parts: of the step.
        by_word: its blocks with one partition for all, by word, but for what goes to all.
        of: the partitions, leaves of shape (entries, designs) or numbers.
        plan: where cores are.
        itemsize: of activations. [B]
    """
    operators = {(part.name, one.name): (part, one) for part in parts for one in part.operators}
    known: dict[int, tuple[Call, ...]] = {}

    def together(block: int) -> tuple[Call, ...]:
        calls = []
        for each in zip(*(by_word[word][block].calls for word in by_word), strict=True):
            name = each[0].part, each[0].name
            calls.append(_call(each, tuple(by_word), of.words[name]))
            if each[0].operators and np.any(of.gathered[name]):
                exchange = gathering(*operators[name], plan, itemsize, of.cuts[name])
                calls.append(brought(each[0], exchange._replace(times=of.gathered[name] * 1.0)))
        return tuple(calls)

    found = []
    for number, block in enumerate(by_word[next(iter(by_word))]):
        calls = known.get(id(block.calls))
        if calls is None:
            calls = known[id(block.calls)] = together(number)
        found.append(block._replace(calls=calls, alike=alike(calls), order=tuple(range(len(calls)))))
    return tuple(found)


def gathering(part: Part, of: Operator, plan: TilePlan, itemsize: float, which: Any) -> Exchange:
    """What an operator leaves, of which each core has rows, columns or a block, goes to all; a place in `CUTS`."""
    rows, wide = _size(part, of)
    rings, members = grid(plan.placement, plan.tp, divided=True)
    slices = (
        ceil_div(rows, plan.tp) * wide,
        rows * ceil_div(wide, plan.tp),
        ceil_div(rows, rings) * ceil_div(wide, members),
    )
    return Exchange(1.0, plan.placement, plan.tp, picked(slices, _place(which)) * itemsize)


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
    if of.name in ROTATIONS:
        operators = {one.name: one for one in part.operators}
        return of.rows, sum(_size(part, operators[need])[1] for need in of.needs)
    return of.rows, width(of.dim)


def _call(each: Sequence[Call], offered: tuple[str, ...], which: Any) -> Call:
    """Of the calls of an operator by the partitions that are offered, the one that is chosen, or all of them in one."""
    which = _place(which)
    words = [DIVISIONS[word] for word in np.unique(which)]
    some: list[Call] = [each[offered.index(word)] for word in words]
    group = some[0].group
    if group is not None:
        k = each[offered.index("k")].group
        assert k is not None
        places = which if len(words) == 1 else np.searchsorted([DIVISIONS.index(word) for word in words], which)
        group = of_ways(k, tuple(words), places)
    if len(some) == 1:
        return some[0]._replace(group=group)
    exchange = [call.exchange for call in some]
    there = next((one for one in exchange if one is not None), None)
    if there is not None:
        exchange = [there._replace(times=0.0) if one is None else one for one in exchange]
    plain = [call._replace(group=None, exchange=one) for call, one in zip(some, exchange, strict=True)]
    one: Call = picked(plain, np.searchsorted([DIVISIONS.index(word) for word in words], which))
    found: Call = one._replace(group=group)
    return found


def brought(after: Call, of: Exchange) -> Call:
    """The call that brings what another one leaves to all cores."""
    sent = of.times * (of.cores - 1) * of.nbytes * of.cores
    return Call(after.part, f"{after.name} to all", (after.name,), after.rows, after.shape, exchange=of, sent=sent)


def brings(call: Call) -> bool:
    """Whether a call is one that brings what another one leaves to all cores."""
    return not call.operators and call.exchange is not None and not call.products


def _place(which: Any) -> Any:
    """A place, a number where it is one for all."""
    if not isinstance(which, np.ndarray):
        return int(which)
    return int(which.flat[0]) if np.all(which == which.flat[0]) else which
