"""The closed reader: durations of works from formulas, over one design or many at once."""

from dataclasses import dataclass
from typing import Any

from evaluators.graph.operators import Segment, Work
from evaluators.graph.prefetch import order, resident
from evaluators.graph.timeline import Span, schedule
from evaluators.kernels.collective import allreduce
from evaluators.machine.hbm import strided_efficiency
from evaluators.machine.link import Links
from space.chip import Chip
from space.elementwise import maximum, where
from space.mapping import BYTES, Plan, Precision


@dataclass(frozen=True, slots=True)
class Rates:
    """A chip and a number format as seconds per thing, so that pricing a work is multiplication."""

    matrix: Any
    vector: Any
    hbm: Any
    l2: Any
    l2_size: Any
    hbm_bandwidth: Any
    gap: Any
    waste: Any
    attention_passes: Any
    overhead: Any


@dataclass(frozen=True, slots=True)
class Times:
    """What a work would take on each resource alone, and what it takes. [s]"""

    matrix: Any
    vector: Any
    hbm: Any
    l2: Any
    total: Any


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """One segment on the timeline.

    Attributes:
        segment: what was scheduled.
        collective: time of the allreduce before the works. [s]
        works, spans, resident: of each work: times, place on the timeline, bytes in L2 or None.
        prefetch: of one byte, from HBM to L2. [s/B]
        seconds: from the collective's start to the last work's end.
    """

    segment: Segment
    collective: Any
    works: tuple[Times, ...]
    spans: tuple[Span, ...]
    resident: tuple[Any, ...]
    prefetch: Any
    seconds: Any


def rates(chip: Chip, precision: Precision) -> Rates:
    """Seconds per operation and byte; the matrix engine's peak is stated for 8-bit values and falls with the wider operand."""
    width = max(BYTES[precision.weights], BYTES[precision.activations])
    return Rates(
        matrix=width / (chip.cores * chip.core.matrix),
        vector=1 / (chip.cores * chip.core.vector),
        hbm=1 / chip.hbm.bandwidth,
        l2=1 / chip.l2.bandwidth,
        l2_size=chip.l2.size,
        hbm_bandwidth=chip.hbm.bandwidth,
        gap=chip.hbm.gap,
        waste=chip.hbm.waste,
        attention_passes=chip.core.attention_passes,
        overhead=chip.operator_overhead,
    )


def segment_times(segment: Segment, chip: Chip, plan: Plan, rate: Rates) -> SegmentTimes:
    """A segment under a plan: the collective before it, what is prefetched meanwhile, and the works after it."""
    collective: Any = 0.0
    policy = "none"
    budget: Any = 0.0
    if segment.payload is not None:
        links = Links(plan.tp, chip.network.bandwidth, chip.network.latency, chip.network.latency_per)
        collective = allreduce(plan.allreduce).cost(segment.payload, links).seconds
        policy = plan.prefetch
        if policy != "none":
            budget = where(plan.tp > 1, plan.prefetch_cap * chip.l2.size, 0.0)
    here = resident(segment.works, policy, budget)
    works = tuple(work_times(work, bytes_in, rate) for work, bytes_in in zip(segment.works, here, strict=True))
    prefetches = [None if b is None else b * rate.hbm for b in here]
    seconds, spans = schedule(collective, [times.total for times in works], prefetches, order(segment.works))
    return SegmentTimes(segment, collective, works, tuple(spans), tuple(here), rate.hbm, seconds)


def work_times(work: Work, bytes_in: Any, rate: Rates) -> Times:
    """A work on the resources of one device: engines and memories side by side, the slowest counts, plus the overhead.

    Memory is one path: bytes from HBM, then bytes from L2. Activations stay in L2 where they fit there alone. KV that was
    prefetched is read contiguously from L2; from HBM it pays for its strides.

    Args:
        work: what the device does.
        bytes_in: bytes of its weights and KV that are in L2; None where nothing was prefetched.
        rate: the chip.
    """
    spilled = work.activation_bytes > rate.l2_size
    hbm = where(spilled, work.activation_bytes * rate.hbm, 0.0)
    l2 = where(spilled, 0.0, work.activation_bytes * rate.l2)
    if work.kind == "elementwise":
        vector = work.vector_op * rate.vector
        return Times(0.0, vector, hbm, l2, maximum(vector, hbm + l2) + rate.overhead)
    matrix = work.flop * rate.matrix
    missing = work.weight_bytes + work.kv_bytes
    if bytes_in is not None:
        missing = missing - bytes_in
        l2 = l2 + bytes_in * rate.l2
    reading = missing * rate.hbm
    vector = 0.0
    if work.kind == "attention":
        vector = (work.vector_op + work.streamed_op * rate.attention_passes) * rate.vector
        reading = reading / strided_efficiency(work.kv_piece, work.kv_stride, rate.hbm_bandwidth, rate.gap, rate.waste)
    hbm = hbm + reading
    total = maximum(maximum(matrix, vector), hbm + l2) + rate.overhead
    return Times(matrix, vector, hbm, l2, total)
