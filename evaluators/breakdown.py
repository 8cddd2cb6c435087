"""Where the time of one design goes: each operator, what binds it, and what the collectives cost; the sum is the total."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evaluators.closed import Rates, SegmentTimes
from evaluators.graph.operators import Work
from evaluators.graph.timeline import Span

Bar = tuple[str, str, float, float]
"""(stream, name, start, end). [s]"""

Flow = tuple[str, tuple[tuple[str, float], ...]]
"""(name, ((stream, instant), ...)): what goes from bar to bar. [s]"""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator of one phase, over all its layers and steps.

    Attributes:
        phase, segment, operator: where it stands.
        shape: m x k x n on the device, of the first step.
        flop: on the matrix engine of one device. [op]
        nbytes: weights, KV and activations. [B]
        prefetched: share of its weights and KV that was in L2. [-]
        bound: what took longest: matrix, vector, hbm, l2, overhead, network or prefetch.
        seconds: on the critical path.
        parts: the same seconds, by what they were spent on.
    """

    phase: str
    segment: str
    operator: str
    shape: str
    flop: float
    nbytes: float
    prefetched: float
    bound: str
    seconds: float
    parts: dict[str, float]

    def record(self) -> dict[str, Any]:
        """The row as plain values."""
        return {
            "phase": self.phase,
            "segment": self.segment,
            "operator": self.operator,
            "shape": self.shape,
            "flop": self.flop,
            "bytes": self.nbytes,
            "flop_per_byte": self.intensity,
            "prefetched": self.prefetched,
            "bound": self.bound,
            "seconds": self.seconds,
        }

    @property
    def intensity(self) -> float:
        """Operations per byte. [op/B]"""
        return self.flop / self.nbytes if self.nbytes else 0.0


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Rows that add up to `seconds`, and the area by block.

    Attributes:
        segments: by phase and segment, the bars of its first step: (stream, name, start, end). [s]
        flows: through bars of the first segment of a phase, by phase.
    """

    rows: tuple[Row, ...]
    seconds: float
    area: dict[str, float]
    segments: dict[str, dict[str, list[Bar]]]
    flows: dict[str, list[Flow]] = field(default_factory=dict)

    def by_bound(self, phase: str | None = None) -> dict[str, float]:
        """Seconds by what they were spent on, largest first."""
        sums: dict[str, float] = {}
        for row in self.rows:
            if phase in (None, row.phase):
                for name, value in row.parts.items():
                    sums[name] = sums.get(name, 0.0) + value
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def breakdown(rate: Rates, phases: dict[str, tuple[Any, list[SegmentTimes]]], area: dict[str, Any]) -> Breakdown:
    """The rows of one design and case, from the timelines of its phases.

    Args:
        rate: of a design whose leaves are all scalar.
        phases: by name, how often each step runs and the segments of one step; leaves scalar or (steps, 1).
        area: by block.
    """
    rows: list[Row] = []
    bars: dict[str, dict[str, list[Bar]]] = {}
    for phase, (weights, timeline) in phases.items():
        bars[phase] = {timed.segment.name: _bars(timed) for timed in timeline}
        for timed in timeline:
            rows += _segment_rows(phase, weights, timed, rate)
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), {k: float(v) for k, v in area.items()}, bars)


def _segment_rows(phase: str, weights: Any, timed: SegmentTimes, rate: Rates) -> list[Row]:
    segment = timed.segment
    times = weights * segment.times

    def total(value: Any) -> float:
        return float(np.sum(times * value))

    rows = []
    if segment.payload is not None:
        seconds = total(timed.collective)
        nbytes = total(segment.payload)
        rows.append(Row(phase, segment.name, "allreduce", "", 0.0, nbytes, 0.0, "network", seconds, {"network": seconds}))
    for place, (work, span, bytes_in) in enumerate(zip(segment.works, timed.spans(), timed.resident, strict=True)):
        parts = {name: total(value) for name, value in _spent(timed, place, span, rate).items()}
        parts = {name: value for name, value in parts.items() if value}
        fetchable = total(work.weight_bytes + work.kv_bytes)
        rows.append(
            Row(
                phase,
                segment.name,
                work.name,
                _shape(work),
                total(work.flop),
                fetchable + total(work.activation_bytes),
                total(bytes_in) / fetchable if bytes_in is not None and fetchable else 0.0,
                max(parts, key=lambda name: parts[name]) if parts else "overhead",
                total(span.end - span.ready),
                parts,
            )
        )
    return rows


def _spent(timed: SegmentTimes, place: int, span: Span, rate: Rates) -> dict[str, Any]:
    """The seconds of a work split exactly: waiting for its prefetch, the resource that took longest, and overhead."""
    times, bytes_in = timed.works[place], timed.resident[place]
    here = 0.0 if bytes_in is None else bytes_in
    hbm, l2 = (times.need - here) * times.per_byte, here * rate.l2
    hbm = hbm + np.where(times.spilled, times.activations, 0.0)
    l2 = l2 + np.where(times.spilled, 0.0, times.activations)
    by_memory = hbm + l2 >= times.engines
    by_matrix = ~by_memory & (times.matrix >= times.vector)
    by_vector = ~by_memory & ~by_matrix
    return {
        "prefetch": span.start - span.ready,
        "matrix": np.where(by_matrix, times.matrix, 0.0),
        "vector": np.where(by_vector, times.vector, 0.0),
        "hbm": np.where(by_memory, hbm, 0.0),
        "l2": np.where(by_memory, l2, 0.0),
        "overhead": timed.durations[place] - np.maximum(times.engines, hbm + l2),
    }


def _shape(work: Work) -> str:
    m, k, n = (float(np.ravel(value)[0]) for value in work.shape)
    if work.kind == "attention":
        return f"{m:.0f} queries, {k:.4g} pairs, {n:.0f} heads"
    return f"{m:.0f} x {k:.0f} x {n:.0f}" if work.kind == "matmul" else f"{m:.0f} x {n:.0f}"


def _bars(timed: SegmentTimes) -> list[Bar]:
    """The first step of a segment on its three streams, from the start of its collective."""

    def first(value: Any) -> float:
        return float(np.ravel(value)[0])

    bars: list[Bar] = []
    if timed.segment.payload is not None:
        bars.append(("communication", "allreduce", 0.0, first(timed.collective)))
    for work, span, prefetch in zip(timed.segment.works, timed.spans(), timed.prefetches, strict=True):
        bars.append(("compute", work.name, first(span.start), first(span.end)))
        if prefetch is not None and first(prefetch) > 0:
            end = first(span.fetched)
            bars.append(("prefetch", work.name, end - first(prefetch), end))
    return bars
