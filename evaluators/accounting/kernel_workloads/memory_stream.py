"""Memory streams: requests to a memory alone, or from tiles to their main memory.

At fidelity=analytical, the request stream loads queues of the memory's buses, bank groups, activates and banks
(`machine.backlog`), and the links to the tiles carry at most what the busiest allows. At fidelity=events, the memory is
simulated command by command, and so are the links.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_workloads import KernelOutcome, KernelWorkload, TimelineSpans, sequential_bars
from dse.evaluators.machine import requester_mesh as crossing
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.requester_mesh import busiest_share, mean_hops
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import Array, as_column
from dse.space.design import Design
from dse.space.dram import MemorySystem, capacity_bytes, check_memory, peak_bandwidth, pseudo_channel_count
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.limits import Limit
from dse.space.main_memory import main_memory, memory_devices
from dse.space.mapping import MemoryStreamPlan
from dse.space.workload import MemoryStreamCase

FIDELITIES = ("analytical", "events")

SAMPLED_REQUESTS = 1 << 14
"""Bursts from which the analytical model extrapolates: later ones repeat the second half of them."""

MAX_SINGLE_DESIGNS = 64
"""Bursts outstanding for each channel from which on a window is not what keeps it waiting."""

BOTTLENECK_SHARE = 0.85
"""Share of a stream's time from which on a resource counts as its bottleneck."""


def prepare_case(design: Design, cases: tuple[MemoryStreamCase, ...]) -> tuple[MemoryStreamCase, ...]:
    """Streams as given, after a check of the memory; batches of designs are checked when evaluated."""
    if not _design_width(design):
        _check_memory(design)
    return cases


def limits(design: Design, kernel: tuple[MemoryStreamCase, ...]) -> list[Limit]:
    """Limits of the memory's capacity for the stream, and of tiles for its requesters."""
    chip, span = design.chip, as_column([float(stream.span) for stream in kernel])
    limits = [Limit(f"chip.{main_memory(chip).banks_part}", span, capacity_bytes(_stream_memory(design)), "B")]
    if chip.mesh is not None:
        tiles = chip.mesh.rows * chip.mesh.cols
        limits.append(Limit("mapping.requesters", _stream_plan(design).requesters + 0 * tiles, tiles, "1"))
    return limits


def kernel_outcome(design: Design, kernel: tuple[MemoryStreamCase, ...], fidelity: str) -> KernelOutcome:
    """Bandwidth and latency of streams, and energy of the memory and of the way to tiles.

    A memory without energy constants has no energy.
    """
    chip = design.chip
    nbytes = as_column([float(stream.requests * stream.request) for stream in kernel]) * pseudo_channel_count(
        _stream_memory(design)
    )
    metrics = _stream_bandwidths(design, kernel, nbytes) if fidelity == "analytical" else _play_stream(design, *kernel)
    devices = memory_devices(chip)
    if devices is None:
        return KernelOutcome(metrics)
    if chip.technology is None:
        return KernelOutcome(metrics, lambda: nbytes * devices.energy_per_byte)

    def dynamic_() -> Any:
        count = _design_width(design)
        ends = [_mesh_ends(_design_row(design, row)) for row in range(count)] if count > 1 else [_mesh_ends(design)]
        links = np.array([mean_hops(*end) for end in ends]) if count > 1 else mean_hops(*ends[0])
        return dynamic_energy(Activity(memory_bytes=nbytes, hop_bytes=nbytes * links), chip)

    return KernelOutcome(metrics, dynamic_)


def kernel_breakdown(
    design: Design, case: MemoryStreamCase, kernel: tuple[MemoryStreamCase, ...], fidelity: str
) -> tuple[list[BreakdownRow], TimelineSpans]:
    """Breakdown rows of a stream: time of data on the buses, and the causes of waiting."""
    nbytes = float(case.requests * case.request * pseudo_channel_count(_stream_memory(design)))
    if fidelity == "analytical":
        stream_time = _price_stream(design, case)
        seconds, bound = stream_time.seconds, stream_time.bound
        parts = {bound: seconds}
    else:
        report = _memory_report(design, case)
        seconds, bound = report.seconds, report.bound_text
        waits = {cause: share * seconds for cause, share in report.idle.items() if share}
        parts = {"bandwidth": seconds - sum(waits.values()), **waits}
    row = BreakdownRow("stream", _stream_memory(design).order, case.label, "", 0.0, nbytes, 0.0, bound, seconds, parts)
    return [row], sequential_bars([row], ["memory"], case.label)


def request_addresses(stream: MemoryStreamCase, count: int, part: int, span: int) -> Array:
    """Addresses of the requests of one requester, shape (count,). [B]

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


class StreamRequests(NamedTuple):
    """Requests of a stream, those of one requester after the other.

    Attributes:
        memory: banks that they go to.
        address: shape (requests,). [B]
        write: whether each is a write.
        arrival: time at which each is offered. [s]
        requester: number of the requester of each.
    """

    memory: MemorySystem
    address: Array
    write: Array
    arrival: Array
    requester: Array


def stream_requests(design: Design, stream: MemoryStreamCase) -> StreamRequests:
    """Requests of all requesters of a stream, as simulators play them.

    Raises:
        DesignError: the memory makes no sense.
    """
    memory, requesters = _check_memory(design), int(_stream_plan(design).requesters)
    count, span = _requester_shares(design, stream)
    address = np.concatenate([request_addresses(stream, count, part, span) for part in range(requesters)])
    write = np.random.default_rng([stream.seed]).random(len(address)) < stream.writes
    arrival = np.tile(np.arange(count), requesters) * (stream.gap * requesters)
    return StreamRequests(memory, address, write, arrival, np.repeat(np.arange(requesters), count))


class AnalyticalStream(NamedTuple):
    """Analytical result of a stream: time [s], mean read latency [s] and bottleneck."""

    seconds: float
    latency: float
    bound: str


def _stream_bandwidths(design: Design, streams: tuple[MemoryStreamCase, ...], nbytes: Any) -> dict[str, Any]:
    """Bandwidth metrics of each stream and design; equal designs are evaluated once."""
    arrays = {address: np.asarray(value) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    distinct_rows, place = (
        np.unique(np.array([*arrays.values()]).T, axis=0, return_inverse=True) if arrays else (np.zeros((1, 0)), [0])
    )
    each = [replace_leaves(design, dict(zip(arrays, row.tolist(), strict=True))) if arrays else design for row in distinct_rows]
    times = np.array([[_price_stream(design, stream)[:2] for design in each] for stream in streams])[:, np.ravel(place)]
    seconds, latency = (times[..., kind] if arrays else times[:, 0, kind][:, None] for kind in (0, 1))
    rate = nbytes / seconds
    return {
        "latency": seconds,
        "achieved_bandwidth": rate,
        "bandwidth_efficiency": rate / peak_bandwidth(_stream_memory(design)),
        "read_latency": latency,
    }


@lru_cache(maxsize=4096)
def _price_stream(design: Design, stream: MemoryStreamCase) -> AnalyticalStream:
    from dse.evaluators.machine import dram_queue_model as backlog
    from dse.evaluators.machine import memory_system as hbm  # which compile, or load what was

    memory, mapping = _check_memory(design), _stream_plan(design)
    requesters, access, clock = int(mapping.requesters), int(memory.access), float(memory.clock)
    count, span = _requester_shares(design, stream)
    per = -(-stream.request // access)
    selected_count = max(1, min(count, SAMPLED_REQUESTS // (requesters * per)))
    at = np.concatenate([request_addresses(stream, selected_count, part, span) for part in range(requesters)])
    channel, place = hbm.map_addresses(memory, ((at // access)[:, None] + np.arange(per)).ravel() * access)
    write = np.repeat(np.random.default_rng([stream.seed]).random(len(at)) < stream.writes, per)
    arrival = np.repeat(np.tile(np.arange(selected_count), requesters) * (stream.gap * requesters * clock), per)
    bursts = backlog.BurstRequests(
        channel, place[:, 0], place[:, 1], write, arrival, np.arange(requesters + 1) * selected_count * per
    )
    busy_time = backlog.channel_busy_time(
        bursts,
        hbm.clocked_timing(memory),
        channels=int(pseudo_channel_count(memory)),
        groups=int(memory.groups),
        banks=int(memory.banks),
        window=int(mapping.window),
        path=hbm.path_clocks(memory) + round(_crossing_time(design) * clock),
        queues=hbm.queue_sizes(memory),
    )
    clocks = busy_time.clocks + (busy_time.clocks - busy_time.halfway) * 2 * (count - selected_count) / selected_count
    roofs = {name: work * count / selected_count for name, work in busy_time.work.items()}
    roofs["load"] = (count - 1) * requesters * stream.gap * clock
    roofs["noc"] = count * requesters * stream.request / _link_rate(design, stream) * clock
    clocks = max(clocks, roofs["noc"])
    most = max(roofs, key=lambda name: roofs[name])
    bound = (
        most
        if roofs[most] > BOTTLENECK_SHARE * clocks
        else "window"
        if 0 < mapping.window < MAX_SINGLE_DESIGNS * pseudo_channel_count(memory)
        else "row"
    )
    return AnalyticalStream(clocks / clock, busy_time.latency / clock, bound)


def _requester_shares(design: Design, stream: MemoryStreamCase) -> tuple[int, int]:
    """Requests of each requester, and the bytes that it goes over."""
    memory, requesters = _stream_memory(design), int(_stream_plan(design).requesters)
    count = max(1, int(stream.requests * pseudo_channel_count(memory)) // requesters)
    return count, max(int(min(stream.span, capacity_bytes(memory))) // requesters // stream.request, 1) * stream.request


def _crossing_time(design: Design) -> float:
    """Mean time from requesters to channels and back, with a burst across a link, without contention. [s]"""
    if design.chip.mesh is None:
        return 0.0
    fabric, ends = tile_fabric(design.chip), _mesh_ends(design)
    return float(
        2 * (fabric.ramp + mean_hops(*ends) * fabric.hop) + _stream_memory(design).access / fabric.word_bytes * fabric.word
    )


def _link_rate(design: Design, stream: MemoryStreamCase) -> float:
    """Bytes a second, where the busiest link has no pause."""
    if design.chip.mesh is None:
        return float("inf")
    fabric = tile_fabric(design.chip)
    return float(fabric.word_bytes / fabric.word / busiest_share(*_mesh_ends(design), float(stream.writes)))


def _mesh_ends(design: Design) -> tuple[tuple[int, int], str, int, int]:
    """Sides of the mesh, where channels are, how many, and requesters: as many as tiles where a limit refuses more."""
    chip = design.chip
    rows, cols = int(chip.mesh.rows), int(chip.mesh.cols)
    return (
        (rows, cols),
        main_memory(chip).channel_side,
        int(pseudo_channel_count(_stream_memory(design))),
        min(int(_stream_plan(design).requesters), rows * cols),
    )


def _play_stream(design: Design, stream: MemoryStreamCase) -> dict[str, float]:
    report = _memory_report(design, stream)
    quantiles = np.percentile(report.latencies, (50, 99)) if len(report.latencies) else (np.nan, np.nan)
    return {
        "latency": report.seconds,
        "achieved_bandwidth": report.bandwidth,
        "bandwidth_efficiency": report.share,
        "read_latency": float(report.latencies.mean()) if len(report.latencies) else np.nan,
        "read_latency_p50": float(quantiles[0]),
        "read_latency_p99": float(quantiles[1]),
        "row_hit_rate": report.row_hits,
        **{f"idle_{cause}": share for cause, share in report.idle.items()},
    }


@lru_cache(maxsize=4)
def _memory_report(design: Design, stream: MemoryStreamCase) -> Any:
    from dse.evaluators.machine import memory_system as hbm  # which compiles, or loads what was

    requests, mapping = stream_requests(design, stream), _stream_plan(design)
    memory, requesters = requests.memory, int(mapping.requesters)
    ways = None
    if design.chip.mesh is not None:
        ways = crossing.requester_mesh(
            *_mesh_ends(design)[:3], requesters, tile_fabric(design.chip), float(memory.clock), float(memory.access)
        )
    windows = np.full(requesters, int(mapping.window))
    return hbm.simulate_memory(
        memory, requests.address, stream.request, requests.write, requests.arrival,
        windows=windows, requester=requests.requester, ways=ways,
    )  # fmt: skip


def _design_row(design: Design, row: int) -> Design:
    arrays = {address: float(value[row]) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    return replace_leaves(design, arrays) if arrays else design


def _design_width(design: Design) -> int:
    """Designs that the leaves are of; 0 where they are numbers."""
    return max((len(value) for _, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)), default=0)


def _check_memory(design: Design) -> MemorySystem:
    """The memory, if it makes sense: a search may have moved a number of it, which no file was refused for."""
    check_memory(_stream_memory(design), f"chip.{main_memory(design.chip).banks_part}")
    return _stream_memory(design)


def _stream_memory(design: Design) -> MemorySystem:
    banks = main_memory(design.chip).banks
    assert banks is not None  # refused where a question is parsed
    return banks


def _stream_plan(design: Design) -> MemoryStreamPlan:
    plan: MemoryStreamPlan = design.mapping.kernel
    return plan


WORKLOAD = KernelWorkload(
    fidelities=FIDELITIES,
    stacked=True,
    whole=False,
    prepare_case=prepare_case,
    limits=limits,
    kernel_outcome=kernel_outcome,
    kernel_breakdown=kernel_breakdown,
)
