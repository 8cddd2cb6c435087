"""The closed reader: durations of works from formulas, over one design or many at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from evaluators.graph.operators import Segment, Work
from evaluators.graph.prefetch import prefetched
from evaluators.graph.timeline import Span, schedule
from evaluators.kernels.collective import allreduce, two_level
from evaluators.machine.link import Links, spread
from evaluators.machine.strided import strided_efficiency
from space.chip import Chip, Network
from space.elementwise import extremes, maximum, where
from space.mapping import BYTES, Plan, Precision


class Rates(NamedTuple):
    """A chip and a number format as seconds per thing, so that pricing a work is multiplication.

    `saved` is what a byte costs less from L2 than from HBM.
    """

    matrix: Any
    vector: Any
    hbm: Any
    l2: Any
    saved: Any
    l2_size: Any
    l2_smallest: float
    l2_largest: float
    hbm_bandwidth: Any
    gap: Any
    waste: Any
    attention_passes: Any
    overhead: Any


class Times(NamedTuple):
    """What a work takes on each resource alone. [s]

    Attributes:
        matrix, vector: on the engines, which run side by side.
        engines: the longer of the two.
        activations: on the memory they live in.
        spilled: where that is HBM; elsewhere it is L2.
        need: bytes of weights and KV. [B]
        per_byte: time to read one of them from HBM. [s/B]
        memory: activations and all of these bytes from HBM.
    """

    matrix: Any
    vector: Any
    engines: Any
    activations: Any
    spilled: Any
    need: Any
    per_byte: Any
    memory: Any


class SegmentTimes(NamedTuple):
    """One segment on the timeline.

    Attributes:
        segment: what was scheduled.
        collective: time of the allreduce before the works. [s]
        works: of each, on each resource alone.
        resident: bytes of each in L2; None where nothing was prefetched. [B]
        durations: of each, prefetched bytes being there. [s]
        prefetches: of each, on the prefetch stream; None where nothing was prefetched. [s]
        seconds: from the collective's start to the last work's end.
    """

    segment: Segment
    collective: Any
    works: list[Times]
    resident: list[Any]
    durations: list[Any]
    prefetches: list[Any]
    seconds: Any

    def spans(self) -> list[Span]:
        """Of each work, on the timeline."""
        spans: list[Span] = []
        schedule(self.collective, self.durations, self.prefetches, self.segment.order, spans)
        return spans


def rates(chip: Chip, precision: Precision) -> Rates:
    """Seconds per operation and byte; the matrix engine's peak is stated for 8-bit values and falls with the wider operand."""
    width = max(BYTES[precision.weights], BYTES[precision.activations])
    smallest, largest = extremes(chip.l2.size)
    hbm = chip.hbm.bandwidth * chip.hbm.achieved
    return Rates(
        matrix=width / (chip.cores * chip.core.matrix * chip.core.achieved),
        vector=1 / (chip.cores * chip.core.vector),
        hbm=1 / hbm,
        l2=1 / chip.l2.bandwidth,
        saved=1 / hbm - 1 / chip.l2.bandwidth,
        l2_size=chip.l2.size,
        l2_smallest=smallest,
        l2_largest=largest,
        hbm_bandwidth=hbm,
        gap=chip.hbm.gap,
        waste=chip.hbm.waste,
        attention_passes=chip.core.attention_passes,
        overhead=chip.operator_overhead,
    )


def timeline(segments: Sequence[Segment], chip: Chip, plan: Plan, rate: Rates, *, recorded: bool = True) -> list[SegmentTimes]:
    """Every segment of a step under a plan; where its launches are not `recorded` the host starts each collective."""
    priced: dict[int, list[Times]] = {}
    timed = []
    for segment in segments:
        # attention stands in two segments, with a collective to hide behind and without; it is priced once
        works = priced.get(id(segment.works))
        if works is None:
            works = priced[id(segment.works)] = [work_times(work, rate) for work in segment.works]
        timed.append(_segment_times(segment, works, chip, plan, rate, recorded))
    return timed


def work_times(work: Work, rate: Rates) -> Times:
    """A work on the resources of one device, each as if the others were free and nothing prefetched.

    Activations stay in L2 where they fit there alone. KV from HBM pays for its strides; prefetched KV is contiguous.
    """
    nbytes = work.activation_bytes
    spilled = _exceeds(nbytes, rate)
    if isinstance(spilled, bool):
        activations = nbytes * (rate.hbm if spilled else rate.l2)
    else:
        activations = nbytes * where(spilled, rate.hbm, rate.l2)
    if work.kind == "elementwise":
        vector = work.vector_op * rate.vector
        return Times(0.0, vector, vector, activations, spilled, 0.0, rate.hbm, activations)
    matrix = engines = work.flop * rate.matrix
    vector, need, per_byte = 0.0, work.weight_bytes, rate.hbm
    if work.kind == "attention":
        vector = (work.vector_op + work.streamed_op * rate.attention_passes) * rate.vector
        engines = maximum(matrix, vector)
        efficiency = strided_efficiency(work.kv_piece, work.kv_stride, rate.hbm_bandwidth, rate.gap, rate.waste)
        need, per_byte = work.kv_bytes, rate.hbm / efficiency
    return Times(matrix, vector, engines, activations, spilled, need, per_byte, activations + need * per_byte)


def memory_times(times: Times, bytes_in: Any, rate: Rates) -> Any:
    """Time on the one path to memory: activations, bytes from HBM, and those that were prefetched from L2 instead."""
    if bytes_in is None:
        return times.memory
    if times.per_byte is rate.hbm:
        return times.memory - bytes_in * rate.saved
    return times.memory - bytes_in * (times.per_byte - rate.l2)


def _segment_times(segment: Segment, works: list[Times], chip: Chip, plan: Plan, rate: Rates, recorded: bool) -> SegmentTimes:
    collective: Any = 0.0
    resident: list[Any] = [None] * len(works)
    if segment.payload is not None:
        collective = _reduced(segment.payload, chip.network, plan)
        if not recorded:
            collective = collective + where(plan.tp > 1, chip.network.call, 0.0)
        if plan.prefetch != "none":
            budget = where(plan.tp > 1, plan.prefetch_cap * chip.l2.size, 0.0)
            resident = prefetched(segment, plan.prefetch, budget)
    durations = [
        maximum(times.engines, memory_times(times, bytes_in, rate)) for times, bytes_in in zip(works, resident, strict=True)
    ]
    if not (isinstance(rate.overhead, float) and rate.overhead == 0):
        durations = [duration + rate.overhead for duration in durations]
    prefetches = [None if bytes_in is None else bytes_in * rate.hbm for bytes_in in resident]
    seconds = schedule(collective, durations, prefetches, segment.order)
    return SegmentTimes(segment, collective, works, resident, durations, prefetches, seconds)


def _reduced(nbytes: Any, network: Network, plan: Plan) -> Any:
    """Time of an allreduce between the devices of a plan, across nodes where one does not hold them all. [s]"""
    algorithm, bandwidth = allreduce(plan.allreduce), network.bandwidth * network.achieved
    if network.nodes is None:
        return algorithm.cost(nbytes, Links(plan.tp, bandwidth, network.latency, network.latency_per)).seconds
    nodes, members = spread(plan.tp, network.nodes.size)
    within = Links(members, bandwidth, network.latency, network.latency_per)
    between = Links(nodes, network.nodes.bandwidth / members, network.nodes.latency, network.latency_per)
    return two_level.cost(algorithm, nbytes, within, between).seconds


def _exceeds(nbytes: Any, rate: Rates) -> Any:
    """Whether activations are larger than L2; one answer where it is the same for all designs, as it mostly is."""
    if type(nbytes) is float and rate.l2_smallest == rate.l2_largest:
        return nbytes > rate.l2_smallest
    low, high = extremes(nbytes)
    if high <= rate.l2_smallest:
        return False
    if low > rate.l2_largest:
        return True
    return nbytes > rate.l2_size
