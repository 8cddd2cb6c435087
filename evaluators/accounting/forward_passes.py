"""Forward passes of some tokens through a model, over pipeline stages or wafer regions."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models.call_cost import NO_PREFETCH, CallCost, CostModel, PrefetchSettings, TimedBlock, block_timeline
from dse.evaluators.cost_models.edge_weight_stream import EdgeStream, chain_layer_blocks, timeline_with_stream
from dse.evaluators.graph.transformer import END_SEGMENTS
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement, StageTransferTime
from dse.evaluators.layouts.regions import Region, layer_scale
from dse.evaluators.layouts.residency import CoreResidency
from dse.evaluators.machine.chip_chain import NO_CROSSING, ChainCrossing
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.program.activity import Activity
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.mapping import PipelinePlan
from dse.space.model import Model

MAX_ITERATIONS = 6
"""In which regions that share main memory and how many of them work at a time are found, each from the other."""


class StagedPass(NamedTuple):
    """One forward pass of some tokens through all pipeline stages; leaves broadcast.

    Attributes:
        timed: blocks of the embedding, of a layer's parts and of the head.
        away: of each call of each block, what it reads from main memory over `fetch`.
        near: likewise, from the cache in front of it; empty where there is none.
        hop: from a stage to the next: on average, and the slowest. [s]
        layers: of the model.
        stages: of the pipeline.
        crossing: bytes from a stage to the next. [B]
    """

    timed: tuple[TimedBlock, ...]
    away: tuple[tuple[Any, ...], ...]
    hop: StageTransferTime
    layers: int
    stages: Any
    crossing: Any
    near: tuple[tuple[Any, ...], ...] = ()

    def calls(self) -> list[tuple[KernelCall, CallCost, float, Any]]:
        """Calls with cost, repetitions in the forward pass, and bytes read from main memory over `fetch`."""
        return [
            (call, cost, timed_block.block.times, away)
            for timed_block, shares in zip(self.timed, self.away, strict=True)
            for call, cost, away in zip(timed_block.block.calls, timed_block.costs, shares, strict=True)
        ]

    @property
    def transfer_seconds(self) -> Any:
        """Time of all transfers between stages in one forward pass. [s]"""
        return self.hop.mean * (self.stages - 1.0)

    @property
    def seconds(self) -> Any:
        """Time of one forward pass through all stages. [s]"""
        return sum(timed_block.seconds * timed_block.block.times for timed_block in self.timed) + self.transfer_seconds

    @property
    def layer(self) -> Any:
        """Mean time of one layer. [s]"""
        return (
            sum(
                timed_block.seconds * timed_block.block.times
                for timed_block in self.timed
                if timed_block.block.name not in END_SEGMENTS
            )
            / self.layers
        )

    @property
    def ends(self) -> Any:
        """Time of the embedding and head, which the last stage has besides its layers. [s]"""
        return sum(
            timed_block.seconds * timed_block.block.times
            for timed_block in self.timed
            if timed_block.block.name in END_SEGMENTS
        )

    @property
    def full(self) -> Any:
        """Layers of every stage but the last ones, which have fewer."""
        return ceil_div(self.layers * 1.0, self.stages)

    @property
    def stage(self) -> Any:
        """Time of the slowest stage. [s]"""
        last = maximum(self.layers - (self.stages - 1.0) * self.full, 0.0)
        return maximum(self.full * self.layer, last * self.layer + self.ends) + self.hop.slowest

    @property
    def activity(self) -> Activity:
        """Activity of all cores of the pipeline in one forward pass."""
        macs = elements = sent = memory = 0.0
        jobs = Activity()
        for call, cost, times, away in self.calls():
            macs, elements, sent = macs + call.macs * times, elements + call.elements * times, sent + call.sent * times
            memory = memory + call.nbytes * (away * times)
            if cost.activity is not None:
                jobs = jobs + cost.activity * times
        sent = sent + self.crossing * (self.stages - 1)
        return Activity(macs, sent, sent, elements, memory, self._cache_bytes()) + jobs

    def _cache_bytes(self) -> Any:
        """Bytes from the cache in front of main memory."""
        nbytes: Any = 0.0
        for timed_block, shares in zip(self.timed, self.near, strict=False):
            for call, near in zip(timed_block.block.calls, shares, strict=True):
                nbytes = nbytes + call.nbytes * (near * timed_block.block.times)
        return nbytes


def pass_through_stages(
    model: Model,
    blocks: tuple[CallBlock, ...],
    crossing: Any,
    machine: HardwareModel,
    way: PipelinePlacement,
    plan: PipelinePlan,
    held: CoreResidency,
    reader: CostModel,
    crowding: Any = 1.0,
) -> StagedPass:
    """Forward pass of a step's calls through all pipeline stages.

    Args:
        model, of: what is computed, by blocks.
        crossing: bytes from stage to stage. [B]
        machine, way, plan: where.
        held: which weights and caches are in local memories.
        reader: cost model of calls.
        crowding: how many times as long others' messages make the way from stage to stage.
    """
    # many calls have these in common: the shares that no core has, and how often weights go by
    kv_away, weights_away = maximum(1 - held.kv_here - held.kv_near, 0.0), 1 - held.weights_here - held.weights_near
    known: dict[int, tuple[Any, Any]] = {}

    def weights(call: KernelCall) -> tuple[Any, Any]:
        """Number of times that weights come from main memory, and from the cache in front of it."""
        if id(call.rows) not in known:
            turns = ceil_div(call.rows, held.block)
            known[id(call.rows)] = weights_away * turns, held.weights_near * turns
        return known[id(call.rows)]

    states_away = maximum(1 - held.states_here - held.states_near, 0.0)

    def away(call: KernelCall) -> Any:
        if call.reads == "kv":
            return kv_away
        if call.reads == "states":
            return states_away
        return weights(call)[0] if call.reads else 0.0

    def near(call: KernelCall) -> Any:
        if call.reads == "kv":
            return minimum(held.kv_near, 1 - held.kv_here)
        if call.reads == "states":
            return held.states_near
        return weights(call)[1] if call.reads else 0.0

    def once(call: KernelCall) -> Any:
        known = {"kv": kv_away, "states": states_away}
        return known.get(call.reads, weights_away) * call.fetch * call.known

    prefetch = NO_PREFETCH if plan.prefetch is None else PrefetchSettings(plan.prefetch.policy, held.buffer, once)
    shares = tuple(tuple(away(call) for call in block.calls) for block in blocks)
    closer = () if machine.shared is None else tuple(tuple(near(call) for call in block.calls) for block in blocks)
    hop = StageTransferTime(*(seconds * crowding for seconds in reader.onward(way, crossing, machine)))
    blocks = tuple(_expand_block(block, held.block) for block in blocks)
    parts = tuple(block_timeline(blocks, machine, reader, prefetch=prefetch, away=away, near=near if closer else None))
    return StagedPass(parts, shares, hop, model.layers, plan.pp, crossing, closer)


def _expand_block(block: CallBlock, rows: Any) -> CallBlock:
    """A block whose weights are expanded again for each block of rows; they are stored and read unexpanded."""
    if not any(call.reads == "weights" and call.products and call.operations is not None for call in block.calls):
        return block

    def again(call: KernelCall) -> KernelCall:
        if call.reads != "weights" or not call.products or call.operations is None:
            return call
        turns = ceil_div(call.rows, rows)
        return call._replace(operations=call.operations * turns, elements=call.elements * turns)

    return block._replace(calls=tuple(map(again, block.calls)))


class RegionPass(NamedTuple):
    """One forward pass of some tokens through all regions; leaves broadcast over designs.

    Attributes:
        timed: blocks of a layer of each kind, of the way between regions and of the head.
        seconds: through all regions.
        stage: of the slowest region, or of the link between chips where that is slower.
        activity: of all cores.
        away: share of weights that is read from main memory; None without main memory.
        between: time of all links between chips. [s]
    """

    timed: tuple[TimedBlock, ...]
    seconds: Any
    stage: Any
    activity: Activity
    away: Any = None
    between: Any = 0.0


def pass_through_regions(
    blocks: Sequence[CallBlock], model: Model, place: Region, resident_layers: Any, machine: HardwareModel, reader: CostModel,
    stream: Callable[[Any], EdgeStream] | None = None, turns: Any = 1.0, crossing: ChainCrossing = NO_CROSSING,
) -> RegionPass:  # fmt: skip
    """Forward pass through all layers, from one layer of each kind, transfers between regions and head.

    Args:
        of, model, place, resident_layers: what is computed where.
        machine, reader: machine and cost model.
        stream: main-memory stream for a number of regions working at a time; None without main memory.
        turns: consecutive forward passes. As many regions work at a time, or fewer where they wait for the slowest region.
        crossing: of chips of a chain.
    """
    if stream is None:
        timed = tuple(block_timeline(blocks, machine, reader))
        return _through_regions(timed, model, place, resident_layers, None, crossing)
    priced, at_work = tuple(block_timeline(chain_layer_blocks(blocks), machine, reader)), turns
    for _ in range(MAX_ITERATIONS):
        shared = stream(at_work)
        timed = timeline_with_stream(priced, shared)
        staged_pass = _through_regions(timed, model, place, resident_layers, shared, crossing)
        at_work = minimum(turns, staged_pass.seconds / staged_pass.stage)
    return staged_pass


def _through_regions(
    parts: tuple[TimedBlock, ...],
    model: Model,
    place: Region,
    resident_layers: Any,
    stream: EdgeStream | None,
    crossing: ChainCrossing,
) -> RegionPass:
    (way,) = (part.seconds for part in parts if part.block.name == "region")
    activity = Activity()
    for part in parts:
        for call, cost in zip(part.block.calls, part.costs, strict=True):
            assert call.kernel is not None
            assert cost.activity is not None
            activity = activity + cost.activity * (part.block.times * call.kernel.times * call.kernel.copies)
    if stream is not None:
        activity = activity + stream.activity(parts)
    scale = layer_scale(model, resident_layers)
    if crossing is not NO_CROSSING:
        activity = activity + crossing.activity * scale
    between = scale * crossing.total_seconds
    total = sum((part.seconds * part.block.times for part in parts), 0.0) + between
    layer = sum(part.seconds * part.block.times for part in parts if part.block.name not in ("region", "head")) / model.layers
    full = place.layers * layer + way
    # before the last region: full chips and their links, then other regions of the last chip
    chip = place.chip_layers * layer + place.count * way
    before = (place.last_count - 1) * scale * full + (place.chips - 1) * scale * chip + between
    rest = maximum(total - before, 0.0)
    stage = where(place.total > 1, maximum(maximum(full, minimum(rest, total)), crossing.interval), total)
    return RegionPass(parts, total, stage, activity, None if stream is None else stream.away, between)
