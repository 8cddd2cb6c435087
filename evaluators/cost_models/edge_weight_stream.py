"""Kernels of a region of cores whose non-resident weights come from main memory at the mesh edge.

A product starts when its weights are all there. Each kernel is an opener: while it runs memory has nothing to do, and reads
weights of those after it as far as there is room, but for the time in which the region's links carry the kernel's own words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models.call_cost import CallCost, TimedBlock
from dse.evaluators.cost_models.overlapped_timeline import ReadAhead, TimedCall, overlapped_timeline
from dse.evaluators.machine.edge_memory import EdgeMemory
from dse.evaluators.program.activity import Activity


class EdgeStream(NamedTuple):
    """Weights that come from memory at the edge of a region, and their prefetch policy.

    Attributes:
        away: share of weights that does not stay. [1]
        edge: of a region.
        policy: an option of `space.mapping.PREFETCH`.
        budget: room of a region for what is read ahead. [B]
    """

    away: Any
    edge: EdgeMemory
    policy: str
    budget: Any

    def activity(self, parts: Sequence[TimedBlock]) -> Activity:
        """Activity of the weights that come from memory over links."""
        nbytes: Any = 0.0
        for part in parts:
            for call in part.block.calls:
                nbytes = nbytes + part.block.times * call.fetch * self.away
        return Activity(hop_bytes=nbytes * self.edge.hops, memory_bytes=nbytes)


def chain_layer_blocks(blocks: Sequence[CallBlock]) -> tuple[CallBlock, ...]:
    """Blocks of layers, region transfers and head, each with the block that it follows."""
    attention, *layers, way, head = blocks
    last = len(layers)
    return (
        attention._replace(times=1.0),
        *(block._replace(after=0) for block in layers),
        way._replace(after=last),
        attention._replace(times=attention.times - 1.0, after=last),
        head._replace(after=last),
    )


def timeline_with_stream(priced: Sequence[TimedBlock], stream: EdgeStream) -> tuple[TimedBlock, ...]:
    """Every block of a step on the timeline, with the idle window that its predecessor leaves."""
    edge = stream.edge

    def overlap_call(call: KernelCall, cost: CallCost) -> TimedCall:
        """A call that starts when its weights are all there, while whose own words keep links busy."""
        kernel, done = call.kernel, cost.activity
        assert kernel is not None
        assert done is not None
        need = call.fetch * stream.away if call.reads else None
        own = done.hop_bytes * kernel.times * kernel.copies * edge.links

        def duration(bytes_ahead: Any) -> Any:
            waiting = (need - bytes_ahead) * edge.byte + edge.first * (need > bytes_ahead)
            return cost.engines + waiting + need * edge.copy

        return TimedCall(need, duration, lambda seconds, bytes_ahead: cost.engines - own)

    return tuple(overlapped_timeline(priced, overlap_call, ReadAhead(stream.policy, stream.budget, edge.byte)))
