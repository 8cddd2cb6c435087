"""Partitions per operator of a pipeline's group: data layouts between operators, and merged calls.

A partition finds activations in one layout and leaves them in another:

    all       every core has all rows and columns: what sums leave
    grid      a row of the group's grid has rows of its own, each of its cores all columns
    rows      each core has rows of its own
    columns   each core has columns of its own, of heads or of a slice of the inner dimension
    block     rows of the grid have rows of their own, and the cores of each have columns of their own

    dealt     each core has rows of tokens that its experts are asked for, where experts are whole on a core

A core that has more than the next operator needs takes its part for nothing. Else what all have goes once around the rings to
all (`kernels.partition.ring_collectives`), and from then on everyone finds it; so it does where one partition is for all.
Operators on elements keep the layout that they find. Which part of a weight a core has is the same in every step of a phase.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.algorithm_candidates import group_with_partitions, select_values
from dse.evaluators.calls.call import CallBlock, GroupExchange, KernelCall, equal_call_index
from dse.evaluators.graph.operators import (
    AttentionOp,
    ElementwiseOp,
    IndexerOp,
    MatMulOp,
    Operator,
    RecurrenceOp,
    Segment,
    dim_width,
)
from dse.evaluators.kernels.partition.group_placement import ring_grid
from dse.space.array_math import ceil_div, option_index
from dse.space.mapping import DIVISIONS, MESH_GEMMS, PARTITIONS, PLACEMENTS, PipelinePlan

DATA_LAYOUTS = ("all", "grid", "rows", "columns", "block", "dealt")
"""Layouts of activations on a group."""

RESIDUAL_LAYOUTS = ("all", "grid", "rows")
"""Those of the residual stream between parts of layers."""

ACCEPTED_LAYOUTS = {
    "all": ("all",),
    "grid": ("all", "grid"),
    "rows": ("all", "grid", "rows"),
    "columns": ("all", "columns"),
    "block": ("all", "grid", "block"),
    "dealt": ("dealt",),
}
"""What has the part of it that a layout is."""

PRODUCTS = {"input_only": ("rows", "rows"), "mn": ("rows", "rows"), "k": ("columns", "all"), "mn_k": ("block", "grid")} | (
    dict.fromkeys(MESH_GEMMS, ("block", "block"))
)
"""What a product needs by its partition, and what it leaves."""

EXPERT_LAYOUTS = {"k": ("all", "dealt", "all"), "mn": ("rows", "dealt", "rows")}
"""Experts that are whole on a core: what their first products need, what these leave, and what the last one leaves; with the
exchanges of `layouts.pipelines`. Where rows are divided in another way than mn, likewise."""

SLICE_LAYOUTS = ("rows", "columns", "block")
"""What a core has of what goes to all."""

ROWS, HEADS = DIVISIONS.index("mn"), DIVISIONS.index("k")
"""Partitions whose attention is of a core's rows, or of its heads."""

ROTATIONS = ("rope", "heads_norm")
"""Operators on elements that leave all that they take, whatever of it they change."""

Name = tuple[str, str]
"""A part and its operator."""


class PartitionChoice(NamedTuple):
    """Partition of each operator by segment and name; leaves of shape (cases, designs), or numbers.

    Attributes:
        words: places in `DIVISIONS`; of attention and states that of a partition that divides them so.
        gathered: whether what an operator leaves goes to all cores.
        cuts: which part of it a core has before, a place in `SLICE_LAYOUTS`.
    """

    words: Mapping[Name, Any]
    gathered: Mapping[Name, Any]
    cuts: Mapping[Name, Any]


class PartitionRules(NamedTuple):
    """Rules that restrict the partitions of operators besides those of products.

    Attributes:
        heads: whether attention divides heads, not rows.
        apart: whether attention has all cores and memory between them, so that it finds and leaves what it may.
        whole: whether experts are whole on a core.
    """

    heads: bool
    apart: bool
    whole: bool


def partition_rules(plan: PipelinePlan, *, heads: bool) -> PartitionRules:
    """Partition rules of the pipeline plan of a phase."""
    return PartitionRules(heads, plan.attention is not None, plan.experts == "whole")


def offered_partitions(plan: PipelinePlan) -> tuple[str, ...]:
    """Partitions of products that a plan allows: several of them if it leaves the choice open."""
    mesh = option_index(plan.placement, PLACEMENTS) == PLACEMENTS.index("mesh")
    return DIVISIONS if np.all(mesh) else PARTITIONS


def operator_inputs(part: Segment) -> dict[str, tuple[str, ...]]:
    """Operators whose results each operator of a segment needs; experts also need the router's input."""
    inputs = {operator.name: tuple(need for need in operator.needs if need != operator.name) for operator in part.operators}
    inside = inputs.keys()
    routers = {operator.name for operator in part.operators if isinstance(operator, MatMulOp) and operator.name == "router"}
    for operator in part.operators:
        through = tuple(more for need in operator.needs if need in routers for more in inputs[need])
        inputs[operator.name] = tuple(need for need in dict.fromkeys((*operator.needs, *through)) if need in inside)
    return inputs


def operator_partitions(operator: Operator, allowed: Sequence[str], by: PartitionRules) -> tuple[tuple[int, str, str], ...]:
    """Partitions of an operator: place in `DIVISIONS`, the layout that it needs, and the one it leaves."""
    if isinstance(operator, MatMulOp) and operator.stored > 1 and by.whole:
        options = (
            (word, EXPERT_LAYOUTS[word][1:] if operator.k.split else EXPERT_LAYOUTS[word][:2])
            for word in ("mn", "k")
            if word in allowed
        )
        return tuple((DIVISIONS.index(word), *layouts) for word, layouts in options)
    if isinstance(operator, MatMulOp):
        return tuple((DIVISIONS.index(word), *PRODUCTS[word]) for word in allowed)
    if isinstance(operator, ElementwiseOp):
        return tuple((ROWS, state, state) for state in DATA_LAYOUTS)
    own = "columns" if by.heads else "rows"
    return ((HEADS if by.heads else ROWS, *(("rows", "all") if isinstance(operator, IndexerOp) else (own, own))),)


def uniform_partition(parts: Sequence[Segment], word: str, plan: PipelinePlan) -> PartitionChoice:
    """One partition for all operators; results in another layout than needed go to all cores."""
    by, leaves = partition_rules(plan, heads=word == "k"), PRODUCTS[word][1]
    stream = leaves if leaves in RESIDUAL_LAYOUTS else "all"
    gathered: dict[Name, bool] = {}
    cuts: dict[Name, int] = {}
    for part in parts:
        left: dict[str, str] = {}
        takes = operator_inputs(part)

        def bring(name: str, part: Segment = part, left: dict[str, str] = left) -> None:
            gathered[part.name, name], left[name] = True, "all"

        for operator in part.operators:
            streams = [left[need] for need in takes[operator.name]] or [stream]
            needs, leaves = layouts_of_partition(operator, word, by, streams)
            free = by.apart and isinstance(operator, AttentionOp)
            for need in takes[operator.name]:
                if not free and left[need] not in ACCEPTED_LAYOUTS[needs]:
                    bring(need)
            gathered[part.name, operator.name], cuts[part.name, operator.name] = False, cut_index(leaves)
            left[operator.name] = "all" if free else leaves
        for name in left.keys() - {need for needs in takes.values() for need in needs}:
            if left[name] not in ACCEPTED_LAYOUTS[stream]:
                bring(name)
    return PartitionChoice(dict.fromkeys(gathered, DIVISIONS.index(word)), gathered, cuts)


def layouts_of_partition(operator: Operator, word: str, by: PartitionRules, streams: Sequence[str]) -> tuple[str, str]:
    """Layouts that an operator needs and leaves by a partition, from those of its inputs."""
    if isinstance(operator, ElementwiseOp):
        state = next((stream for stream in streams if all(other in ACCEPTED_LAYOUTS[stream] for other in streams)), streams[0])
        return state, state
    if isinstance(operator, MatMulOp) and operator.stored > 1 and by.whole and word != "k":
        word = "mn"
    ((_, needs, leaves),) = operator_partitions(operator, (word,), by)
    return needs, leaves


def cut_index(state: Any) -> Any:
    """Part of a result that a core has in a layout, as a place in `SLICE_LAYOUTS`."""
    return SLICE_LAYOUTS.index(state if state in SLICE_LAYOUTS else "rows")


def partitioned_blocks(
    parts: Sequence[Segment],
    by_word: Mapping[str, Sequence[CallBlock]],
    choice: PartitionChoice,
    plan: PipelinePlan,
    itemsize: float,
) -> tuple[CallBlock, ...]:
    """Calls of a step with a partition per operator, and the gathers that they need.

    Args:
        parts: of the step.
        by_word: its blocks with one partition for all, by word, but for what goes to all.
        choice: the partitions, leaves of shape (entries, designs) or numbers.
        plan: where cores are.
        itemsize: of activations. [B]
    """
    operators = {(part.name, operator.name): (part, operator) for part in parts for operator in part.operators}
    known: dict[int, tuple[KernelCall, ...]] = {}

    def together(block: int) -> tuple[KernelCall, ...]:
        calls = []
        for each in zip(*(by_word[word][block].calls for word in by_word), strict=True):
            name = each[0].part, each[0].name
            calls.append(_call(each, tuple(by_word), choice.words[name]))
            if each[0].operators and np.any(choice.gathered[name]):
                exchange = gather_exchange(*operators[name], plan, itemsize, choice.cuts[name])
                calls.append(gather_call(each[0], exchange._replace(times=choice.gathered[name] * 1.0)))
        return tuple(calls)

    blocks = []
    for number, block in enumerate(by_word[next(iter(by_word))]):
        calls = known.get(id(block.calls))
        if calls is None:
            calls = known[id(block.calls)] = together(number)
        blocks.append(block._replace(calls=calls, alike=equal_call_index(calls), order=tuple(range(len(calls)))))
    return tuple(blocks)


def gather_exchange(part: Segment, operator: Operator, plan: PipelinePlan, itemsize: float, which: Any) -> GroupExchange:
    """Allgather of a result of which each core has rows, columns or a block (`SLICE_LAYOUTS`)."""
    rows, wide = _size(part, operator)
    rings, members = ring_grid(plan.placement, plan.tp, divided=True)
    slices = (
        ceil_div(rows, plan.tp) * wide,
        rows * ceil_div(wide, plan.tp),
        ceil_div(rows, rings) * ceil_div(wide, members),
    )
    return GroupExchange(1.0, plan.placement, plan.tp, select_values(slices, _place(which)) * itemsize)


def _size(part: Segment, operator: Operator) -> tuple[Any, Any]:
    """Rows and columns of what an operator leaves; each core adds up what experts make of its tokens."""
    if isinstance(operator, MatMulOp):
        return part.rows if operator.stored > 1 and not operator.n.split else operator.m, dim_width(operator.n)
    if isinstance(operator, AttentionOp):
        return operator.tokens, operator.heads.units * operator.v_dim
    if isinstance(operator, RecurrenceOp):
        return operator.tokens, operator.heads.units * operator.value_dim
    if isinstance(operator, IndexerOp):
        return operator.tokens, operator.top // operator.block
    if operator.name in ROTATIONS:
        operators = {operator.name: operator for operator in part.operators}
        return operator.rows, sum(_size(part, operators[need])[1] for need in operator.needs)
    return operator.rows, dim_width(operator.dim)


def _call(each: Sequence[KernelCall], offered: tuple[str, ...], which: Any) -> KernelCall:
    """Of the calls of an operator by the partitions that are offered, the one that is chosen, or all of them in one."""
    which = _place(which)
    words = [DIVISIONS[word] for word in np.unique(which)]
    kernel_calls: list[KernelCall] = [each[offered.index(word)] for word in words]
    group = kernel_calls[0].group
    if group is not None:
        k = each[offered.index("k")].group
        assert k is not None
        places = which if len(words) == 1 else np.searchsorted([DIVISIONS.index(word) for word in words], which)
        group = group_with_partitions(k, tuple(words), places)
    if len(kernel_calls) == 1:
        return kernel_calls[0]._replace(group=group)
    exchange = [call.exchange for call in kernel_calls]
    kernel_call = next((call for call in exchange if call is not None), None)
    if kernel_call is not None:
        exchange = [kernel_call._replace(times=0.0) if call is None else call for call in exchange]
    plain = [call._replace(group=None, exchange=exchange) for call, exchange in zip(kernel_calls, exchange, strict=True)]
    single_kernel_call: KernelCall = select_values(plain, np.searchsorted([DIVISIONS.index(word) for word in words], which))
    found_kernel_call: KernelCall = single_kernel_call._replace(group=group)
    return found_kernel_call


def gather_call(after: KernelCall, exchange: GroupExchange) -> KernelCall:
    """Call that gathers the result of another call on all cores."""
    sent = exchange.times * (exchange.cores - 1) * exchange.nbytes * exchange.cores
    return KernelCall(after.part, f"{after.name} to all", (after.name,), after.rows, after.shape, exchange=exchange, sent=sent)


def is_gather_call(call: KernelCall) -> bool:
    """Whether a call gathers the result of another call."""
    return not call.operators and call.exchange is not None and not call.products


def _place(which: Any) -> Any:
    """A place, a number where it is one for all."""
    if not isinstance(which, np.ndarray):
        return int(which)
    return int(which.flat[0]) if np.all(which == which.flat[0]) else which
