"""Breakdown of one design's time by operator and resource; the rows add up to the total."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dse.evaluators.accounting.kernel_basis import NOT_ASKED, KernelBasis, kernel_basis
from dse.evaluators.calls.call import KernelCall
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.cost_models.timeline import WorkSpan
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.layouts.engine_overheads import OverheadTimes
from dse.evaluators.machine.machine import HardwareModel

TimelineBar = tuple[str, str, float, float]
"""(stream, name, start, end). [s]"""

RequestFlow = tuple[str, tuple[tuple[str, float], ...]]
"""(name, ((stream, instant), ...)): what goes from bar to bar. [s]"""


PADDING, REPETITION, MASK = "padding", "repetition", "mask"
"""Why more is executed than is useful: sizes that are no multiple of what works on them, the same work done in several places,
and pairs of query and key that a mask hides."""


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """One operator of one phase, over all its layers and steps.

    Attributes:
        phase, segment, operator: where it stands.
        shape: m x k x n on the device, of the first step.
        flop: useful operations of the whole job, on all devices together. [op]
        nbytes: weights, KV and activations that go between main memory, or the cache in front of it, and cores. [B]
        prefetched: share of its weights and KV that was in L2, or in local memory. [-]
        bound: what took longest: matrix, vector, hbm, l2, overhead, network or prefetch.
        seconds: on the critical path.
        parts: the same seconds, by what they were spent on.
        sent: bytes of messages between cores or dies, once for each message. [B]
        excess: operations executed beyond useful ones, by cause; None if they are not counted. [op]
        basis: what stands behind the seconds of a library kernel.
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
    sent: float = 0.0
    excess: dict[str, float] | None = None
    basis: KernelBasis = NOT_ASKED

    @property
    def executed_flop(self) -> float | None:
        """Operations that engines execute, useful or not; None if they are not counted. [op]"""
        if self.excess is None:
            return None if self.flop else 0.0
        return self.flop + sum(self.excess.values())

    @property
    def cause(self) -> str:
        """Largest cause of executed operations beyond useful ones; empty string if none is known."""
        excess = self.excess or {}
        return max(excess, key=lambda name: excess[name]) if excess else ""

    @property
    def intensity(self) -> float:
        """Useful operations per byte. [op/B]"""
        return self.flop / self.nbytes if self.nbytes else 0.0


ITERATION = "iteration"
"""Segment of rows of what an inference engine adds to the kernels of an iteration."""

NEGLIGIBLE = 1e-12
"""Share of executed operations below which a cause is rounding."""

IDLE = "idle"
"""Bound of a row of time in which an instance waits."""


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Breakdown of a design's time: rows that add up to `seconds`, and area by block.

    Attributes:
        segments: by phase and segment, the bars of its first step: (stream, name, start, end). [s]
        flows: through bars of the first segment of a phase, by phase.
        power, price: rated power and price of one chip, by part. [W], [USD]
        memory: of the fullest of many dies that share a model, by what it is for. [B]
    """

    rows: tuple[BreakdownRow, ...]
    seconds: float
    area: dict[str, float]
    segments: dict[str, dict[str, list[TimelineBar]]]
    flows: dict[str, list[RequestFlow]] = field(default_factory=dict)
    power: dict[str, float] = field(default_factory=dict)
    price: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)

    def by_bound(self, phase: str | None = None) -> dict[str, float]:
        """Seconds by resource, largest first, of all phases or one. [s]"""
        sums: dict[str, float] = {}
        for row in self.rows:
            if phase in (None, row.phase):
                for name, value in row.parts.items():
                    sums[name] = sums.get(name, 0.0) + value
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def seconds_by_cause(self) -> dict[str, float]:
        """Seconds of work by resource, largest first; for serving, of the pool that is busiest. [s]

        Idle time and time saved by overlap are left out. The sum is all work, which exceeds the breakdown's
        time where work overlaps.
        """
        busiest, most = "", -1.0
        for row in self.rows:
            if row.bound == IDLE:
                busy = sum(other.seconds for other in self.rows if other.phase.startswith(f"{row.segment}, "))
                if busy / max(busy + row.seconds, 1e-300) > most:
                    busiest, most = f"{row.segment}, ", busy / max(busy + row.seconds, 1e-300)
        rows = tuple(row for row in self.rows if row.bound != IDLE and row.seconds > 0 and row.phase.startswith(busiest))
        return replace(self, rows=rows).by_bound()


TimeSplitter = Callable[[Any], dict[str, Any]]
"""What the time of a job goes into, by name. [s]"""


AlgorithmNamer = Callable[[KernelCall], str]
"""Function from a call to its auto-tuned choice, as text."""


def breakdown_rows(
    phase: str,
    weights: Any,
    timed: Sequence[TimedBlock],
    machine: HardwareModel,
    away: Sequence[Sequence[Any]] | None = None,
    split: TimeSplitter | None = None,
    *,
    dies: Any = None,
    useful_times: Any = 1.0,
    chosen: AlgorithmNamer | None = None,
    left: Callable[[Any], Any] | None = None,
) -> list[BreakdownRow]:
    """Breakdown rows of one design and case in a phase; they add up to the blocks' seconds.

    Args:
        phase: its name.
        weights: how often each step runs; leaves scalar or (steps, 1).
        timed: blocks of one step, likewise.
        machine: machine of a design whose leaves are all scalar.
        away: of each call, what it reads from main memory over `fetch`; None for all of it, once.
        split: of jobs, where calls have such.
        dies: number of dies that each do what a call describes for one; None where calls are of all cores.
        useful_times: share of the requests of a step that exist.
        chosen: auto-tuned choices of calls, appended to their shape; None where nothing is left open.
        left: bytes that leave a die, once for each message, for jobs; None where calls give their sent bytes. [B]
    """
    rows: list[BreakdownRow] = []
    for place, block in enumerate(timed):
        shares = away[place] if away else [1.0] * len(block.costs)
        rows += _block_rows(
            phase, weights, block, machine, shares, split, dies=dies, useful_times=useful_times, chosen=chosen, left=left
        )
    return rows


def scale_row(row: BreakdownRow, times: float) -> BreakdownRow:
    """A breakdown row with all its amounts multiplied by a factor."""
    parts = {name: seconds * times for name, seconds in row.parts.items()}
    excess = None if row.excess is None else {cause: flop * times for cause, flop in row.excess.items()}
    counts = {name: getattr(row, name) * times for name in ("flop", "nbytes", "seconds", "sent")}
    return replace(row, **counts, parts=parts, excess=excess)


def scale_time(row: BreakdownRow, times: float) -> BreakdownRow:
    """A breakdown row with its time multiplied by a factor, its operations and bytes unchanged."""
    return replace(row, seconds=row.seconds * times, parts={name: seconds * times for name, seconds in row.parts.items()})


def merge_rows(row: BreakdownRow, other: BreakdownRow) -> BreakdownRow:
    """Two breakdown rows of one operator merged into one."""
    parts = _add_excess(row.parts, other.parts)
    excess = None if row.excess is None or other.excess is None else _add_excess(row.excess, other.excess)
    counts = {name: getattr(row, name) + getattr(other, name) for name in ("flop", "nbytes", "seconds", "sent")}
    return replace(row, **counts, parts=parts, bound=max(parts, key=lambda name: parts[name]), excess=excess)


def _add_excess(excess: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {name: excess.get(name, 0.0) + other.get(name, 0.0) for name in {**excess, **other}}


def excess_by_cause(executed: float, useful: float, masked: float = 0.0, repeated: float = 0.0) -> dict[str, float]:
    """Executed operations beyond useful ones by cause: masks, repetition and padding. [op]

    >>> excess_by_cause(10.0, 6.0, masked=3.0), excess_by_cause(6.0, 6.0)
    ({'padding': 1.0, 'mask': 3.0}, {})
    """
    rest = executed - useful - masked - repeated
    flop_by_cause = {PADDING: rest, REPETITION: repeated, MASK: masked}
    return {cause: flop for cause, flop in flop_by_cause.items() if flop > NEGLIGIBLE * executed}


def padding_row(phase: str, rows: Sequence[BreakdownRow], padded: Sequence[BreakdownRow]) -> BreakdownRow:
    """Breakdown row of what padding of decode batches adds, from the rows without it and those with it.

    Its parts are differences too: padded products may wait for engines where those without padding wait for memory.
    """
    parts = dict[str, float]()
    for sign, group in ((1.0, padded), (-1.0, rows)):
        for row in group:
            for name, seconds in row.parts.items():
                parts[name] = parts.get(name, 0.0) + sign * seconds
    nbytes, seconds, sent = (
        sum(getattr(row, name) for row in padded) - sum(getattr(row, name) for row in rows)
        for name in ("nbytes", "seconds", "sent")
    )
    executed = sum(row.executed_flop or 0.0 for row in padded) - sum(row.executed_flop or 0.0 for row in rows)
    return BreakdownRow(
        phase, ITERATION, PADDING, "", 0.0, nbytes, 0.0, max(parts, key=lambda name: parts[name], default=PADDING), seconds,
        parts, sent, excess_by_cause(executed, 0.0),
    )  # fmt: skip


def overhead_rows(phase: str, weights: Any, overheads: OverheadTimes) -> list[BreakdownRow]:
    """Breakdown rows of the time of iterations beyond their kernels, by cause; only those that take time."""
    totals = {name: float(np.sum(weights * seconds)) for name, seconds in overheads._asdict().items()}
    return [
        BreakdownRow(phase, ITERATION, name, "", 0.0, 0.0, 0.0, name, seconds, {name: seconds}, 0.0, {})
        for name, seconds in totals.items()
        if seconds
    ]


def stage_transfer_rows(phase: str, weights: Any, seconds: Any, segment: str = "stages") -> list[BreakdownRow]:
    """Breakdown row of transfers between pipeline stages, or chips; empty if they take no time."""
    value = float(np.sum(weights * seconds))
    return [BreakdownRow(phase, segment, "transfer", "", 0.0, 0.0, 0.0, "network", value, {"network": value})] if value else []


def _block_rows(
    phase: str,
    weights: Any,
    timed: TimedBlock,
    machine: HardwareModel,
    away: Sequence[Any],
    split: TimeSplitter | None,
    *,
    dies: Any,
    useful_times: Any,
    chosen: AlgorithmNamer | None,
    left: Callable[[Any], Any] | None,
) -> list[BreakdownRow]:
    block = timed.block
    times, several = weights * block.times, 1.0 if dies is None else dies

    def total(value: Any) -> float:
        amount = times * value
        return float(amount.sum() if isinstance(amount, np.ndarray) else amount)

    rows = []
    if block.opener is not None:
        seconds = total(timed.collective)
        sent = total(2.0 * block.opener.nbytes * (block.opener.peers - 1.0))  # each part of it twice, by all but one
        rows.append(
            BreakdownRow(phase, block.name, "allreduce", "", 0.0, 0.0, 0.0, "network", seconds, {"network": seconds}, sent, {})
        )
    for place, (call, span, bytes_in) in enumerate(zip(block.calls, timed.spans(), timed.resident, strict=True)):
        seconds = total(span.end - span.ready)
        if not seconds:
            continue
        spent = (
            _split_seconds(timed, place, span, machine) if call.job is None or split is None else _of_job(timed, place, split)
        )
        parts = {name: total(value) for name, value in spent.items()}
        parts = {name: value for name, value in parts.items() if value}
        fetched = total(call.nbytes * away[place])
        moved = timed.costs[place].activity
        fetched += total(moved.memory_bytes) if moved is not None else 0.0
        flop = total(call.flop * useful_times)
        sent = total(call.sent) + (total(moved.sent_bytes) if moved is not None else 0.0)
        sent += 0.0 if left is None or call.job is None else total(left(call.job))
        rows.append(
            BreakdownRow(
                phase,
                block.name,
                call.name,
                _shape_text(call) + ("" if chosen is None else chosen(call)),
                flop,
                (fetched + total(call.local)) * float(several),
                total(bytes_in) / total(call.fetch * away[place]) if bytes_in is not None and fetched else 0.0,
                max(parts, key=lambda name: parts[name]) if parts else "overhead",
                seconds,
                parts,
                sent * float(several),
                None
                if dies is None
                else excess_by_cause(total(2.0 * call.macs * dies), flop, repeated=total(call.repeated * useful_times)),
                NOT_ASKED
                if machine.cache is None
                else kernel_basis(call.asked, timed.costs[place].took, machine.library, times),
            )
        )
    return rows


def _split_seconds(timed: TimedBlock, place: int, span: WorkSpan, machine: HardwareModel) -> dict[str, Any]:
    """The seconds of a call split exactly: waiting for its prefetch, what took longest, messages, and overhead."""
    cost, bytes_in = timed.costs[place], timed.resident[place]
    if cost.took is not None:
        return _of_library(timed, place, span, cost.took)
    current_bytes_in = 0.0 if bytes_in is None else bytes_in
    latency = cost.read - cost.need * cost.per_byte
    hbm, l2 = (
        (cost.need - current_bytes_in) * cost.per_byte + latency,
        current_bytes_in * (machine.cache.byte if machine.cache else 0.0),
    )
    hbm = hbm + np.where(cost.spilled, cost.activations, 0.0)
    l2 = l2 + np.where(cost.spilled, 0.0, cost.activations)
    by_memory = hbm + l2 >= cost.engines
    assert machine.engines is not None
    network = 0.0 if cost.network is None else cost.network
    matrix, vector = machine.engines.shares(cost.matrix, cost.vector)
    together = np.maximum(cost.engines, hbm + l2)
    if cost.overlap is not None:  # what overlaps imperfectly lengthens the longer of both
        alone, together = together, cost.engines_and_memory(hbm + l2)
        longer = together / np.where(alone > 0, alone, 1.0)
        matrix, vector, hbm, l2 = matrix * longer, vector * longer, hbm * longer, l2 * longer
    return {
        "prefetch": span.start - span.ready,
        "matrix": np.where(by_memory, 0.0, matrix),
        "vector": np.where(by_memory, 0.0, vector),
        "hbm": np.where(by_memory, hbm, 0.0),
        "l2": np.where(by_memory, l2, 0.0),
        "network": network,
        "overhead": timed.durations[place] - network - together,
    }


def _of_library(timed: TimedBlock, place: int, span: WorkSpan, took: LibraryKernelTime) -> dict[str, Any]:
    """Seconds of a library kernel: the longer of engines and memory, what does not overlap, and the rest."""
    memory, seconds = took.memory_time_left(timed.resident[place]), timed.durations[place]
    if isinstance(took.sharpness, float) and took.sharpness == 1.0:  # one after the other
        return {
            "prefetch": span.start - span.ready,
            "matrix": took.compute,
            "hbm": memory,
            "l2": took.beside,
            "overhead": seconds - took.compute - memory - took.beside,
        }
    longer = np.maximum(took.compute, memory)
    return {
        "prefetch": span.start - span.ready,
        "matrix": np.where(took.compute >= memory, took.compute, 0.0),
        "hbm": np.where(took.compute >= memory, 0.0, memory),
        "l2": took.beside,
        "overhead": seconds - longer - took.beside,
    }


def _of_job(timed: TimedBlock, place: int, split: TimeSplitter) -> dict[str, Any]:
    """The seconds of a call that is a job: by what that goes into, and what is written before it."""
    seconds_by_resource = dict(split(timed.block.calls[place].job))
    return seconds_by_resource | {
        "hbm": seconds_by_resource.get("hbm", 0.0) + timed.durations[place] - sum(seconds_by_resource.values())
    }


def _shape_text(call: KernelCall) -> str:
    m, k, n = (float(np.ravel(value)[0]) for value in call.shape)
    if call.reads == "kv":
        return f"{m:.0f} queries, {k:.4g} pairs, {n:.0f} heads"
    return f"{m:.0f} x {k:.0f} x {n:.0f}" if call.products else f"{m:.0f} x {n:.0f}"


def timeline_bars(timed: TimedBlock) -> list[TimelineBar]:
    """Timeline bars of a block's first step on its three streams, from the start of its collective."""

    def first(value: Any) -> float:
        return float(np.ravel(value)[0])

    bars: list[TimelineBar] = []
    if timed.block.opener is not None:
        bars.append(("communication", "allreduce", 0.0, first(timed.collective)))
    for call, span, prefetch in zip(timed.block.calls, timed.spans(), timed.prefetches, strict=True):
        bars.append(("compute", call.name, first(span.start), first(span.end)))
        if prefetch is not None and first(prefetch) > 0:
            end = first(span.fetched)
            bars.append(("prefetch", call.name, end - first(prefetch), end))
    return bars
