"""Memories on requests by themselves, or on those of tiles: metrics, limits and where the time of their data buses goes.

Under ``closed`` a memory has a bandwidth: that of its data buses less refresh, or less where less is offered, windows hold
requests back, or the busiest link between it and the tiles carries less; rows, bank groups and turns are free. Under ``events``
it is played, command by command, and so are links.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np

from evaluators.breakdown import Breakdown, Row
from evaluators.machine import crossing
from evaluators.machine.crossing import busiest, hops_between
from evaluators.machine.fabric import tile_fabric
from evaluators.metrics import Judged
from space.chip import TileChip
from space.design import Design
from space.elementwise import Array, column, maximum, minimum, where
from space.fields import leaves, replaced
from space.limits import Infeasible, Limit
from space.mapping import StreamMapping
from space.memory import Memory, MemoryChip, capacity, channels, peak
from space.workload import Asked, Stream, Workload

FIDELITIES = ("closed", "events")

TINY = 1e-30
"""Seconds that divide where there is no gap. [s]"""


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits of all streams; leaves of shape (cases, designs), or floats for one of each."""
    streams = cast(tuple[Stream, ...], workload.cases)
    span = column([float(stream.span) for stream in streams])
    limits = [
        Limit("chip.hbm.banks" if isinstance(design.chip, TileChip) else "chip.memory", span, capacity(_memory(design)), "B")
    ]
    if isinstance(design.chip, TileChip):
        tiles = design.chip.mesh.rows * design.chip.mesh.cols
        limits.append(Limit("mapping.requesters", _mapping(design).requesters + 0 * tiles, tiles, "1"))
    values = _bandwidths(design, streams) if fidelity == "closed" else _played(design, streams)
    return [Judged(tuple(range(len(streams))), values, limits)]


def explain(design: Design, case: Asked, decode_at: str, fidelity: str) -> Breakdown:
    """The time of a stream: data on the buses, and what they waited for."""
    stream = cast(Stream, case)
    asked = float(stream.requests * stream.request * channels(_memory(design)))
    if fidelity == "closed":
        seconds = float(np.max(_bandwidths(design, (stream,))["latency"]))
        roofs = {name: float(np.max(roof)) for name, roof in _roofs(design, (stream,)).items()}
        bound = min(roofs, key=lambda name: roofs[name])
        parts = {bound: seconds}
    else:
        report = _report(design, stream)
        seconds, bound = report.seconds, report.binding
        waits = {cause: share * seconds for cause, share in report.idle.items() if share}
        parts = {"bandwidth": seconds - sum(waits.values()), **waits}
    row = Row("stream", _memory(design).order, stream.label, "", 0.0, asked, 0.0, bound, seconds, parts)
    return Breakdown((row,), seconds, {}, {"stream": {stream.label: [("memory", stream.label, 0.0, seconds)]}})


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict as it is."""
    return worst


def addresses(stream: Stream, count: int, part: int, span: int) -> Array:
    """Where the requests of a requester go, shape (count,). [B]

    Strides that come to the end of the span begin again, a request further on.

    Args:
        stream: of all requesters.
        count: requests of this one.
        part: number of this one.
        span: of its addresses; those of the one after it follow.
    """
    rng, k, size = np.random.default_rng([stream.seed, part]), np.arange(count), stream.request
    if stream.pattern == "random":
        at = rng.integers(0, span // size, count) * size
    elif stream.pattern == "chunk":
        pieces = stream.step // size
        start = rng.integers(0, span // stream.step, -(-count // pieces)) * stream.step
        at = (start[:, None] + np.arange(pieces) * size).ravel()[:count]
    else:
        far = k * (stream.step or size)
        at = (far % span + far // span * size) % (span - size + 1)
    return at + part * span


def _roofs(design: Design, streams: tuple[Stream, ...]) -> dict[str, Any]:
    """Bytes a second that each thing would allow by itself, in words for what binds; shapes broadcast to (cases, designs)."""
    memory, mapping = _memory(design), _mapping(design)
    size, gap = (column([float(getattr(stream, name)) for stream in streams]) for name in ("request", "gap"))
    refresh = 1 - memory.timing.rfc / memory.timing.refi if memory.refresh == "all" else 1.0
    held = mapping.requesters * mapping.window * memory.access / _trip(design)
    return {
        "bandwidth": peak(memory) * refresh,
        "window": where(mapping.window > 0, held, np.inf),
        "load": where(gap > 0, size / maximum(gap, TINY), np.inf),
        "noc": _carried(design, streams),
    }


def _bandwidths(design: Design, streams: tuple[Stream, ...]) -> dict[str, Any]:
    memory, roofs = _memory(design), _roofs(design, streams)
    size, gap = (column([float(getattr(stream, name)) for stream in streams]) for name in ("request", "gap"))
    number = column([float(stream.requests) for stream in streams]) * channels(memory)
    most = minimum(minimum(roofs["bandwidth"], roofs["window"]), roofs["noc"])
    first = _trip(design) + memory.timing.rcd_read / memory.clock
    seconds = first + maximum(number * size / most, (number - 1) * gap)
    rate = number * size / seconds
    return {"latency": seconds, "bandwidth": rate, "peak_share": rate / peak(memory), "read_latency": first + 0 * seconds}


def _trip(design: Design) -> Any:
    """Of a burst that meets nobody and finds its row open, to the memory and back. [s]"""
    memory = _memory(design)
    there = (1 + memory.timing.cl + memory.timing.burst) / memory.clock + memory.controller.path
    if not isinstance(design.chip, TileChip):
        return there
    fabric = tile_fabric(design.chip)
    across = 2 * (fabric.ramp + _between(design, hops_between) * fabric.hop)
    return there + across + memory.access / fabric.word_bytes * fabric.word


def _between(design: Design, ask: Callable[..., float]) -> Any:
    """What `ask` says of sides, place, channels and requesters; a number, or an array over designs."""
    chip = cast(TileChip, design.chip)
    numbers = (chip.mesh.rows, chip.mesh.cols, channels(_memory(design)), _mapping(design).requesters)

    def one(*given: Any) -> float:
        rows, cols, count, requesters = map(int, given)
        return ask((rows, cols), chip.hbm.place, count, min(requesters, rows * cols))

    return np.vectorize(one, otypes=[float])(*numbers) if any(isinstance(n, np.ndarray) for n in numbers) else one(*numbers)


def _carried(design: Design, streams: tuple[Stream, ...]) -> Any:
    """Bytes a second, where the busiest link has no pause. Shape (cases, designs)."""
    if not isinstance(design.chip, TileChip):
        return np.inf
    fabric = tile_fabric(design.chip)
    shares = [
        _between(design, lambda *ends, of=stream: busiest(*ends, float(of.writes))) + 0 * fabric.word for stream in streams
    ]
    return fabric.word_bytes / fabric.word / np.reshape(shares, (len(streams), -1))


def _played(design: Design, streams: tuple[Stream, ...]) -> dict[str, Any]:
    designs = max((len(value) for _, value, _ in leaves(design) if isinstance(value, np.ndarray)), default=1)
    found = [[_metrics(_one(design, row), stream) for row in range(designs)] for stream in streams]
    return {name: np.array([[one[name] for one in row] for row in found]) for name in found[0][0]}


def _metrics(design: Design, stream: Stream) -> dict[str, float]:
    report = _report(design, stream)
    quantiles = np.percentile(report.latencies, (50, 99)) if len(report.latencies) else (np.nan, np.nan)
    return {
        "latency": report.seconds,
        "bandwidth": report.bandwidth,
        "peak_share": report.share,
        "read_latency": float(report.latencies.mean()) if len(report.latencies) else np.nan,
        "read_latency_p50": float(quantiles[0]),
        "read_latency_p99": float(quantiles[1]),
        "row_hits": report.row_hits,
        **{f"idle_{cause}": share for cause, share in report.idle.items()},
    }


@lru_cache(maxsize=4)
def _report(design: Design, stream: Stream) -> Any:
    from evaluators.machine import hbm  # which compiles, or loads what was

    memory, mapping = _memory(design), _mapping(design)
    requesters = int(mapping.requesters)
    count = max(1, int(stream.requests * channels(memory)) // requesters)
    span = max(int(min(stream.span, capacity(memory))) // requesters // stream.request, 1) * stream.request
    address = np.concatenate([addresses(stream, count, part, span) for part in range(requesters)])
    write = np.random.default_rng([stream.seed]).random(len(address)) < stream.writes
    arrival = np.tile(np.arange(count), requesters) * (stream.gap * requesters)
    ways = None
    if isinstance(design.chip, TileChip):
        sides, fabric = (int(design.chip.mesh.rows), int(design.chip.mesh.cols)), tile_fabric(design.chip)
        ends = (sides, design.chip.hbm.place, int(channels(memory)), requesters)
        ways = crossing.ways(*ends, fabric, float(memory.clock), float(memory.access))
    windows, by = np.full(requesters, int(mapping.window)), np.repeat(np.arange(requesters), count)
    return hbm.play(memory, address, stream.request, write, arrival, windows=windows, requester=by, ways=ways)


def _one(design: Design, row: int) -> Design:
    arrays = {address: float(value[row]) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    return replaced(design, arrays) if arrays else design


def _memory(design: Design) -> Memory:
    if isinstance(design.chip, TileChip):
        return cast(Memory, design.chip.hbm.banks)
    return cast(MemoryChip, design.chip).memory


def _mapping(design: Design) -> StreamMapping:
    return cast(StreamMapping, design.mapping)
