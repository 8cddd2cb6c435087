"""A model on many dies: TP, PP, EP and DP over links between them ([zhang2026] section III-F).

Dies that share the layers of a stage are a group: attention has a copy on every `tp` of them, whose heads and columns they
divide (Megatron-LM, [shoeybi2019] section 3), and experts are whole, each on one die of the group. Around the experts every die
has its share of its copy's tokens. A die works on one operator after the other, and on none while dies exchange (figure 5e).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial, reduce
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import CallBlock
from dse.evaluators.cost_models.die_exchange_jobs import ExchangeVariants
from dse.evaluators.graph.expert_loads import (
    busiest_core_load,
    experts_per_token,
    mean_core_load,
    placed_experts,
    rows_per_core,
)
from dse.evaluators.graph.operators import (
    FEEDING,
    MIXING,
    ElementwiseOp,
    MatMulOp,
    Operator,
    Segment,
    common_segment,
    useful_flop,
)
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.attention_requests import RequestsOfReach, no_requests
from dse.evaluators.layouts.die_segments import as_number, operator_names, segment_on_die, split_at_experts
from dse.evaluators.layouts.live_activations import live_values
from dse.evaluators.layouts.micro_batches import ReplicaStep, ReplicaWork, micro_batch_counts
from dse.space.array_math import Array, ceil_div, maximum, minimum
from dse.space.chip import DieGrid
from dse.space.layers import MOE, layers
from dse.space.mapping import MultiDiePlan
from dse.space.model import ExpertLayers, Model
from dse.space.parameter_counts import expert_input_width, mtp_layers
from dse.space.workload import BatchCase

DEFAULT_PINGPONG = 3
"""Micro-batches between attention and FFN dies by default: with three, both always have one and the third is
on its way ([zhu2025megascale], [step3])."""


class DieSplit(NamedTuple):
    """Division of a phase over dies, in whole numbers.

    Attributes:
        tp, pp, ep, dp: dies of a copy of attention, stages, dies that share out experts, copies of the model.
        group: dies of a stage.
        redundant: copies of experts beside the routed ones.
        batches: micro-batches in flight.
        halves: parts of a micro-batch that take turns: two where one is computed while the other exchanges; where attention
            and FFN are apart, as many as go to and fro between them.
        attention: dies of a stage that have attention alone, the first ones; those of `ep` have FFNs. 0 where all have both.
        shared: copies of each shared expert that are placed as experts; 0 where each die has it for its own tokens.
        near: whether all dies of a copy of attention get its tokens, and each sends to the experts of its part of the group.
        gathers: whether all dies of a group get all tokens, and add up what experts on all of them leave.
    """

    tp: int
    pp: int
    ep: int
    dp: int
    group: int
    redundant: int
    batches: int
    halves: int = 1
    attention: int = 0
    shared: int = 0
    near: bool = False
    gathers: bool = False

    @property
    def copies(self) -> int:
        """Replicas of attention in a group. [-]"""
        return (self.attention or self.group) // self.tp

    @property
    def ranks(self) -> int:
        """Number of dies that work. [-]"""
        return self.dp * self.pp * self.group

    @property
    def single_die(self) -> "DieSplit":
        """Split as a single die sees it, equal for all numbers of copies, stages and micro-batches."""
        return self._replace(dp=1, pp=1, batches=1)

    @property
    def slots(self) -> int:
        """Slots for requests: attention replicas times micro-batches (or their parts). [-]"""
        return self.dp * self.copies * self.batches * self.halves


def die_split(plan: MultiDiePlan, dies: DieGrid, requests: int = 0, *, prompts: bool = False) -> DieSplit:
    """Split of a phase over dies by a plan; if it sets no dp, as many model copies as fit.

    Args:
        plan, dies: of the phase, on which.
        requests: of a batch; 0 where they come and go.
        prompts: whether they are prompts, which go through the stages one by one where their number per step is not set; a copy
            of attention decodes a micro-batch for each stage, but none that is empty.
    """
    tp, pp, ep = int(plan.tp), int(plan.pp), int(plan.ep)
    attention = int(getattr(plan, "attention_dies", None) or 0)
    group = attention + ep if attention else max(tp, ep)
    room = int(dies.rows) * int(dies.cols) // (pp * group)
    dp, redundant = int(plan.dp) or max(room, 1), int(plan.experts.redundant)
    halves = 2 if plan.overlap == "two_batch" else 1
    if attention:
        halves = int(getattr(plan, "pingpong", None) or DEFAULT_PINGPONG)
    near, gathers = plan.all_to_all == "nearest_replica" and tp > 1 and ep > 1, plan.all_to_all == "gather" and ep > 1
    microbatches = int(plan.microbatches)
    die_split = DieSplit(
        tp, pp, ep, dp, group, redundant, microbatches or pp, halves, attention, int(plan.experts.shared_copies), near, gathers
    )
    if microbatches or not requests:
        return die_split
    of_copy = ceil_div(requests, dp * die_split.copies * halves)
    return die_split._replace(batches=int(of_copy if prompts else micro_batch_counts(of_copy, pp)[0]))


def largest_replica_share(case: BatchCase, slots: int) -> BatchCase:
    """Requests of the slot with the most work, when they are dealt out in turn, longest first.

    >>> from dse.space.workload import BatchCase
    >>> largest_replica_share(BatchCase("", None, ((4, 100, 10), (5, 50, 10))), 3).requests
    ((2, 100, 10), (1, 50, 10))
    """
    requests, start = [], 0
    for count, prompt, output in sorted(case.requests, key=lambda request: -request[1] - request[2]):
        end = start + count
        mine = ceil_div(end, slots) - ceil_div(start, slots)  # turns of the first slot among these
        requests += [(int(mine), prompt, output)] if mine else []
        start = end
    return replace(case, label="", requests=tuple(requests))  # what a slot does is known, whatever it is called


EMBEDDING, DENSE, SPARSE, DRAFT, HEAD = "embedding", "dense layer", "MoE layer", "MTP module", "head"
"""What a stage can have, layers of other kinds apart, in this order."""


class DieExchange(NamedTuple):
    """An exchange of all dies of a group at the same time.

    Attributes:
        name: for people.
        pattern: all_to_all, reduce_scatter, allgather, allreduce, or hand_over to the next stage.
        nbytes: that leave a die in an exchange with all of its group; of a collective, the vector on each. [B]
        shares: of an exchange, how much goes to each die; None for evenly; `ExchangeVariants` of these of several iterations.
        back: whether it brings back what an exchange before it asked for.
        each: of a copy of a token, of what goes to experts or comes back. [B]
        whole: whether all dies of a group take part in a collective; else those of a copy of attention.
    """

    name: str
    pattern: str
    nbytes: Any
    shares: Any = None
    back: bool = False
    each: float = 0.0
    whole: bool = False


UnitCalls = list[CallBlock | DieExchange]
"""What one die does, and what all exchange, in order."""


class LayerUnit(NamedTuple):
    """A unit that a stage has as a whole, and its number of repetitions.

    Attributes:
        name, times: as they are.
        steps: on a die; on one of attention where FFNs are on others, dispatch and combine among them.
        beyond: of these, on one of FFNs, between dispatch and combine; () where each die has both.
        means: of blocks on the die with most rows at experts, each with what the mean die does; () where all do the same, or
            where a block's work is not read from its calls.
    """

    name: str
    steps: UnitCalls
    times: int
    beyond: tuple[CallBlock, ...] = ()
    means: tuple[tuple[CallBlock, CallBlock], ...] = ()


class MicroBatchPass(NamedTuple):
    """One micro-batch through all units of the model.

    Attributes:
        times: how often.
        units: in order.
        onward: bytes that each die hands to the next stage. [B]
        held: activations in memory: what operators of a part leave for one another, and what comes in and goes out. [B]
        received: of tokens at the busiest die's experts, and their results. [B]
        beyond: as `held`, on a die of FFNs alone. [B]
        step: counts of a copy of attention, its requests not padded.
    """

    times: float
    units: tuple[LayerUnit, ...]
    onward: Any
    held: Any
    received: Any
    beyond: Any = 0.0
    step: StepCounts | None = None


SegmentCalls = Callable[[Segment, RequestsOfReach], CallBlock]
"""What makes calls of a die of a part, whose requests attend like some."""


def unchanged_segment(model: Model, part: Segment, beside: int = 0) -> Segment:
    """Return a segment unchanged, as a `DieContext.whole` that adds no operators."""
    return part


class DieContext(NamedTuple):
    """Model, call builder and bytes per value for the layout of one die.

    Attributes:
        model, cover: as they are.
        itemsize: of activations, as dies send them. [B]
        returned: of what experts send back. [B]
        whole: a segment with operators that the chip adds: `routing`, or `plain` for nothing.
        summed: of values that dies add up; 0 for those of activations, or of what experts send back. [B]
        imbalance: excess rows of the busiest die with experts, as of `busiest_core_load`; None for those of the expert load.
        counts_calls: whether the work of a block is that which its calls say, so that the mean die's calls count for all dies.
    """

    model: Model
    cover: SegmentCalls
    itemsize: float
    returned: float
    whole: Callable[..., Segment] = with_router_operators
    summed: float = 0.0
    imbalance: Any = None
    counts_calls: bool = False

    @property
    def sum_itemsize(self) -> float:
        """Bytes of a value of partial sums, and of whole vectors that go to all dies to be such sums. [B]"""
        return self.summed or self.itemsize

    @property
    def returned_sum_itemsize(self) -> float:
        """Bytes of a value of what experts leave, where dies add it up. [B]"""
        return self.summed or self.returned


def micro_batch_passes(work: ReplicaWork, die_split: DieSplit, context: DieContext) -> list[MicroBatchPass]:
    """Micro-batches of the work of one attention replica, step by step."""
    return [_pass(turn, die_split, context) for turn in work.turns()]


def _pass(turn: ReplicaStep, die_split: DieSplit, context: DieContext) -> MicroBatchPass:
    at, attend = turn.at, turn.attend
    model, nbytes = context.model, context.itemsize * context.model.hidden
    graph = tuple(common_segment(part) if attend is no_requests else part for part in transformer_segments(model, at))
    flop_by_operator = _useful_flop_by_operator(graph, die_split)
    parts = {part.name: segment_on_die(context.whole(model, part), die_split.tp) for part in graph}
    rows: Any = 0.0
    gathered = sum(_gathered_bytes(context, turn, die_split)) if die_split.gathers and model.experts is not None else 0.0
    mean_parts, across = dict[str, Segment](), dict[str, DisaggregatedFfn]()
    for name in parts if model.experts is not None and die_split.ep > 1 and not die_split.attention else ():
        if name.startswith(MOE):
            parts[name], mean_parts[name], rows = _experts(context, turn, die_split, name)
    for part in graph if die_split.attention else ():
        if part.kind == FEEDING:
            across[part.name] = disaggregated_ffn(context, turn, die_split, part, flop_by_operator)
            rows = maximum(rows, across[part.name].rows)

    @cache  # layers of two kinds may have the same attention
    def block(name: str, operator_names: tuple[str, ...] = (), mean: bool = False) -> CallBlock:
        given_part = mean_parts[name] if mean else parts[name]
        mine = tuple(operator for operator in given_part.operators if not operator_names or operator.name in operator_names)
        part = replace(given_part, times=1, operators=mine)
        covered = context.cover(part, attend if part.kind == MIXING else no_requests)
        calls = (
            call._replace(flop=sum(flop_by_operator.get((name, operator), 0.0) for operator in call.operators))
            for call in covered.calls
        )
        return covered._replace(calls=tuple(calls))  # useful work is that of the graph, whoever has most of it

    def operator(name: str) -> UnitCalls:
        return [block(name)]

    def summed(name: str) -> UnitCalls:
        nbytes = at.tokens * (context.sum_itemsize * model.hidden)
        return [DieExchange(name, "allreduce", nbytes)] if die_split.tp > 1 else []

    @cache
    def layer(mixes: str, feeds: str) -> UnitCalls:
        if feeds and die_split.attention:
            return (operator(mixes) if mixes else []) + across[feeds].steps
        calls = operator(mixes) if mixes else []
        routed = feeds.startswith(MOE) and die_split.ep > 1
        if mixes and not routed and not (parts[mixes].joined and feeds):
            calls = calls + summed(f"{mixes} sums")
        if routed:
            return calls + _routed(parts[feeds], block, turn, context, die_split)
        return calls + operator(feeds) + summed(f"{feeds} sums") if feeds else calls

    @cache
    def elsewhere(feeds: str) -> tuple[Any, ...]:
        """What dies of FFNs do, and blocks of the busiest die with those of the mean one."""
        beyond = across[feeds].beyond if feeds in across else ()
        if not context.counts_calls or not (beyond or feeds in mean_parts):
            return beyond, ()
        names = operator_names(split_at_experts(parts[feeds])[1]) if feeds in mean_parts else ()
        pairs = zip(beyond, across[feeds].mean, strict=True) if beyond else [(block(feeds, names), block(feeds, names, True))]
        return beyond, tuple(pairs)

    units = [LayerUnit(EMBEDDING, operator("embedding"), 1)]
    units += [
        LayerUnit(layer_label(model, *names), layer(*names), times, *elsewhere(names[1]))
        for names, times in equal_layer_runs(model)
    ]
    head = operator("head") + _chosen(at, die_split)
    if at.guesses:
        drafted = layer(*(part.name for part in mtp_layers(model)))
        steps = drafted + operator("mtp") + _chosen(at, die_split)
        units.append(LayerUnit(DRAFT, steps, at.guesses, *elsewhere(mtp_layers(model)[1].name)))
    units.append(LayerUnit(HEAD, head, 1))
    mine = [part for part in parts.values() if part.name not in across]
    left = reduce(maximum, (as_number(live_values(part, model.hidden, left_out="experts_")) for part in mine))
    return MicroBatchPass(
        turn.times,
        tuple(units),
        at.tokens * nbytes,
        left * context.itemsize,
        rows * (context.itemsize + context.returned) * expert_input_width(model) + gathered,
        reduce(maximum, (of_part.held for of_part in across.values()), 0.0) * context.itemsize,
        turn.asked or at,
    )


def _useful_flop_by_operator(graph: tuple[Segment, ...], die_split: DieSplit) -> dict[tuple[str, str], Any]:
    """Useful operations of each operator on a die, by its segment and name; shared experts' where all experts are. [op]"""
    flop_by_operator = {
        (part.name, operator.name): useful_flop(operator) / die_split.tp for part in graph for operator in part.operators
    }
    for key, flop in list(flop_by_operator.items()) if die_split.shared and die_split.ep > 1 else ():
        if key[1] in SHARED_EXPERT_OPERATORS:  # done where experts are
            flop_by_operator[key[0], f"experts_{key[1].removeprefix('shared_')}"] += flop
    return flop_by_operator


class DisaggregatedFfn(NamedTuple):
    """A segment divided between attention dies and FFN dies.

    Attributes:
        steps: on one of attention, from the sums of attention on.
        beyond: on the one of FFNs that has most.
        mean: likewise, on the mean one.
        rows: of experts there.
        held: values that it leaves there, those of experts apart. [1]
    """

    steps: UnitCalls
    beyond: tuple[CallBlock, ...]
    mean: tuple[CallBlock, ...]
    rows: Any
    held: Any


def disaggregated_ffn(
    context: DieContext, turn: ReplicaStep, die_split: DieSplit, part: Segment, flop_by_operator: dict[tuple[str, str], Any]
) -> DisaggregatedFfn:
    """A segment whose norm and router stay on attention dies, with FFN and experts on other dies.

    Each of these has some experts whole, and all of shared ones and of FFNs that are not routed, for an even share of all
    tokens. A token goes to each of its experts, and once more where something else takes it.

    Args:
        on, turn, of: as they are.
        part: of one copy of attention.
        flop_by_operator: useful operations of each operator of a copy, a die of attention.

    Source:
        [zhu2025megascale] sections 3 and 4.1: experts on nodes of their own, and micro-batches between them and attention;
        [step3]: FFNs that are not routed on these as well.
    """
    model, at, ep = context.model, turn.at, die_split.ep
    every = turn.tokens * die_split.copies
    near, far_part = (
        context.whole(
            model,
            next(
                transformer_segment
                for transformer_segment in transformer_segments(model, replace(at, tokens=tokens))
                if transformer_segment.name == part.name
            ),
        )
        for tokens in (1.0 * ceil_div(at.tokens, die_split.tp), 1.0 * ceil_div(every, ep))
    )
    routed = model.experts is not None and part.name.startswith(MOE)
    before, _, after = split_at_experts(near) if routed else (near.operators[:1], (), near.operators[1:])
    stay = tuple(operator for operator in after if routed and not operator.name.startswith("shared_"))
    names = {operator.name for operator in (*before, *stay)}
    placed = tuple(operator for operator in far_part.operators if operator.name not in names)
    own = [operator for operator in placed if not operator.name.startswith("experts_")]
    rows, loads, stored = 0.0, ((0.0, 0.0),) * 2, 0.0
    if len(own) < len(placed) and model.experts is not None:
        loads, stored = _die_loads(context, model.experts, every, die_split._replace(shared=0))
        rows = loads[0][0]
    far, mean = (
        replace(far_part, times=1, operators=tuple(_at_experts(operator, *load, stored) for operator in placed))
        for load in loads
    )

    def block(of_part: Segment, share: float) -> CallBlock:
        covered = context.cover(of_part, no_requests)
        flop = (
            sum(share * flop_by_operator.get((part.name, operator), 0.0) for operator in call.operators)
            for call in covered.calls
        )
        return covered._replace(calls=tuple(call._replace(flop=n) for call, n in zip(covered.calls, flop, strict=True)))

    once = float(len(own) > 0)
    copies = model.experts.top_k * expert_input_width(model) if routed and model.experts is not None else 0.0
    tokens, width = at.tokens / die_split.tp, float(expert_input_width(model))
    forth, taken = _across(turn, die_split, copies, once * model.hidden, model)
    nbytes, sums = (at.tokens * model.hidden * itemsize for itemsize in (context.itemsize, context.sum_itemsize))
    calls: UnitCalls = [DieExchange("attention sums", "reduce_scatter", sums)] if die_split.tp > 1 else []
    calls.append(block(replace(near, times=1, operators=before), 1.0))
    calls.append(DieExchange("dispatch", "all_to_all", tokens * forth * context.itemsize, taken, each=width * context.itemsize))
    back = _each(taken, np.transpose)
    calls.append(DieExchange("combine", "all_to_all", tokens * forth * context.returned, back, True, width * context.returned))
    calls += [block(replace(near, times=1, operators=stay), 1.0)] if stay else []
    calls += [DieExchange("tokens", "allgather", nbytes)] if die_split.tp > 1 else []
    share = die_split.tp * every / at.tokens / ep  # of all that a group asks
    left = as_number(live_values(far, model.hidden, left_out="experts_"))
    return DisaggregatedFfn(calls, (block(far, share),), (block(mean, share),), rows, left)


def _across(turn: ReplicaStep, die_split: DieSplit, copies: float, once: float, model: Model) -> tuple[float, Any]:
    """Values of a token that leave a die of attention, and which part of the fullest one's goes from each die to each."""
    even, whole = np.full(die_split.ep, 1 / die_split.ep), copies + once
    shares = None
    if copies and model.experts is not None:
        shares = rows_per_core(model.experts, turn.tokens * die_split.copies, die_split.ep, die_split.redundant)
    taken = (copies * (even if shares is None else shares) + once * even) / whole

    def of_sent(sent: tuple[float, ...]) -> Array:
        sends = np.repeat(sent, die_split.tp) if sent else np.ones(die_split.attention)
        found_sent = np.zeros((die_split.group, die_split.group))
        found_sent[: die_split.attention, die_split.attention :] = sends[:, None] * taken[None, :]
        return found_sent

    return whole, _each(turn.sent, of_sent)


def _each(variants: Any, made: Callable[[Any], Any]) -> Any:
    """What is made of something, or of each of several."""
    return variants.of_each(made) if isinstance(variants, ExchangeVariants) else made(variants)


def equal_layer_runs(model: Model) -> list[tuple[tuple[str, str], int]]:
    """Runs of equal consecutive layers: names of their mixing and FFN, and number of layers."""
    return [(names, len(list(same))) for names, same in groupby(layers(model).line)]


def layer_label(model: Model, mixes: str, feeds: str) -> str:
    """Label of a layer for tables; by its FFN alone if all layers mix tokens alike."""
    if len(layers(model).mixings) == 1 and mixes and feeds:
        return SPARSE if feeds.startswith(MOE) else DENSE
    return " and ".join(filter(None, (mixes, feeds)))


CANDIDATE_BYTES = 8.0
"""Bytes of a token and its score, of which each die that has columns of the head sends its best. [B]"""


def _chosen(at: StepCounts, die_split: DieSplit) -> UnitCalls:
    return [DieExchange("best tokens", "allgather", at.requests * CANDIDATE_BYTES)] if die_split.tp > 1 else []


def _routed(part: Segment, block: Any, turn: ReplicaStep, context: DieContext, die_split: DieSplit) -> UnitCalls:
    """A layer's experts on the dies of a group, around them what each die does with its own tokens.

    Args:
        part, block: the layer's, and what makes calls of some of its operators.
        turn: of a copy of attention.
        on, of: what is computed, and how it is divided.
    """
    experts_, tokens = context.model.experts, turn.at.tokens
    assert experts_ is not None
    width = float(expert_input_width(context.model))
    nbytes, copies = (
        tokens * context.model.hidden * context.itemsize,
        tokens * width / die_split.tp * experts_per_token(experts_, die_split.shared),
    )
    before, experts, after = split_at_experts(part)
    sums = tokens * context.model.hidden * context.sum_itemsize
    calls: UnitCalls = [DieExchange("attention sums", "reduce_scatter", sums)] if die_split.tp > 1 else []
    if die_split.gathers:
        gathered, added = _gathered_bytes(context, turn, die_split)
        calls += [
            block(part.name, operator_names(before)),
            DieExchange("gather", "allgather", gathered, whole=True),
            block(part.name, operator_names(experts)),
            DieExchange("scatter", "reduce_scatter", added, whole=True),
            *([block(part.name, operator_names(after))] if after else []),
        ]
        return calls + ([DieExchange("tokens", "allgather", nbytes)] if die_split.tp > 1 else [])
    taken = rows_per_core(experts_, turn.tokens * die_split.copies, die_split.ep, die_split.redundant, die_split.shared)
    shares, back = (_each(turn.sent, partial(_shares, taken, die_split, back)) for back in (False, True))
    calls += [
        block(part.name, operator_names(before)),
        *([DieExchange("tokens to all", "allgather", nbytes)] if die_split.near else []),
    ]
    calls.append(DieExchange("dispatch", "all_to_all", copies * context.itemsize, shares, each=width * context.itemsize))
    calls.append(block(part.name, operator_names(experts)))
    calls.append(DieExchange("combine", "all_to_all", copies * context.returned, back, True, width * context.returned))
    whole = tokens * context.model.hidden * context.returned_sum_itemsize
    calls += [DieExchange("sums of experts", "reduce_scatter", whole)] if die_split.near else []
    calls += [block(part.name, operator_names(after))] if after else []
    return calls + ([DieExchange("tokens", "allgather", nbytes)] if die_split.tp > 1 else [])


def _gathered_bytes(context: DieContext, turn: ReplicaStep, die_split: DieSplit) -> tuple[Any, Any]:
    """Vectors of all tokens of a group, as they come to all of its dies, and as these add them up. [B]"""
    values = turn.tokens * die_split.copies * float(expert_input_width(context.model))
    return values * context.sum_itemsize, values * context.returned_sum_itemsize


def _shares(taken: Array | None, die_split: DieSplit, back: bool, sent: tuple[float, ...]) -> Array | None:
    """What goes to each die of a group, or to each from each; back, what comes.

    Args:
        taken: by each die's experts; None where all take as much.
        of, back: as they are.
        sent: by each copy, of what the fullest one sends, its dies alike; () where all send as much.
    """
    shares = taken if taken is None or not back else np.repeat(taken[:, None], die_split.ep, axis=1)
    if sent:
        each, share = np.repeat(sent, die_split.tp), np.full(die_split.ep, 1 / die_split.ep) if taken is None else taken
        shares = share[:, None] * each[None, :] if back else each[:, None] * share[None, :]
    if not die_split.near:
        return shares
    return _near(None if shares is None else shares.T, die_split).T if back else _near(shares, die_split)


def _near(shares: Array | None, die_split: DieSplit) -> Array:
    """What each die sends to each, shape (ep, ep): to its part of the group what all dies of its copy would have sent.

    Parts have one die of each copy; dies of a copy follow one another. Of all dies of a copy the same goes to a die.
    """
    taken = (
        np.full((die_split.ep, die_split.ep), 1 / die_split.ep)
        if shares is None
        else np.broadcast_to(shares, (die_split.ep, die_split.ep))
    )
    part = np.arange(die_split.ep) % die_split.tp
    of_copy = taken.reshape(die_split.copies, die_split.tp, die_split.ep).sum(axis=1).repeat(die_split.tp, axis=0)
    return np.asarray(of_copy * (part[:, None] == part[None, :]))


def _experts(context: DieContext, turn: ReplicaStep, die_split: DieSplit, name: str) -> tuple[Segment, Segment, Any]:
    """The sparse part of a die: of the one that has most rows at its experts, of the mean one, and the rows of the former.

    Each die has its share of its copy's tokens; what is not of experts is whole on it.
    """
    at, model, experts = turn.at, context.model, context.model.experts
    assert experts is not None
    tokens = 1.0 * ceil_div(at.tokens, die_split.tp)
    part = next(part for part in transformer_segments(model, replace(at, tokens=tokens)) if part.name == name)
    loads, stored = _die_loads(context, experts, turn.tokens * die_split.copies, die_split)
    placed = [operator for operator in part.operators if not (die_split.shared and operator.name in SHARED_EXPERT_OPERATORS)]
    beside = experts.shared if die_split.shared else 0
    busiest, mean = (
        context.whole(
            model, replace(part, operators=tuple(_at_experts(operator, *load, stored) for operator in placed)), beside
        )
        for load in loads
    )
    return busiest, mean, loads[0][0]


def _die_loads(
    context: DieContext, experts: ExpertLayers, tokens: Any, die_split: DieSplit
) -> tuple[tuple[tuple[Any, Any], tuple[Any, Any]], float]:
    """Rows and experts touched on the die with most rows, and on the mean die; and experts that a die stores at most."""
    given = experts, tokens, die_split.ep, die_split.redundant, die_split.shared
    rows, read = busiest_core_load(*given, excess=context.imbalance)
    rows, stored = (
        1.0 * ceil_div(rows, 1),
        ceil_div(placed_experts(experts, die_split.redundant, die_split.shared), die_split.ep),
    )
    return ((rows, minimum(as_number(read), rows)), mean_core_load(*given)), float(stored)


def _at_experts(operator: Operator, rows: Any, read: Any, stored: float) -> Operator:
    """An operator of experts on a die with some rows, and experts that have any; others as they are."""
    if not operator.name.startswith("experts_"):
        return operator
    if isinstance(operator, MatMulOp):
        return replace(operator, m=rows, copies=read, stored=stored)
    return replace(operator, rows=rows) if isinstance(operator, ElementwiseOp) else operator


SHARED_EXPERT_OPERATORS = ("shared_gate", "shared_up", "shared_activation", "shared_down")
"""Operators of shared experts, which are those of experts where these are placed so."""
