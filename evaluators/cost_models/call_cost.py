"""Cost of calls on a machine, and their order in time.

This is common to all cost models, which supply the cost of kernels, products on groups and reads.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import (
    NOTHING,
    ONCE,
    CallBlock,
    CallProduct,
    CoreGroupSplit,
    GroupExchange,
    KernelCall,
    LeadingCollective,
    MeshKernel,
)
from dse.evaluators.calls.prefetch import IdleWindow, OverlappedCall, open_window, prefetched_bytes, read_ahead
from dse.evaluators.cost_models.simulation_timing import SimulationResult
from dse.evaluators.cost_models.timeline import WorkSpan, schedule_segment, sequential_end
from dse.evaluators.kernels import library
from dse.evaluators.kernels.kernel_cost import KernelCost as KernelCost
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime, smooth_maximum
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement, StageTransferTime
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.machine import ComputeEngine, HardwareModel
from dse.evaluators.machine.shared_cache_die import PooledEngines
from dse.evaluators.program.activity import Activity
from dse.space.array_math import ceil_div, maximum, where
from dse.space.mapping import AUTO


class CostModel(NamedTuple):
    """Functions that give time and activity of calls at one fidelity.

    Attributes:
        kernel: seconds and activity of one run of a kernel on a mesh, of (kernel, machine).
        collective: seconds of an allreduce between dies, of (opener, machine).
        product: seconds of a product on a group, and those of its engines, of (group, product, machine, bytes of a value).
        job: time [s] and activity of a job of a chip of tiles.
        exchange: seconds of slices that go around a group, of (exchange, machine, seconds of the work on them): where cores
            work on slices, those beyond that work.
        onward: seconds of a message from stage to stage of a pipeline, of (way, bytes, machine).
        memory: seconds of what a core asks its memory for, and what one more byte takes, of (asked, machine); None where it is
            what the machine's memory says.
        banks: seconds that a byte takes at least of what cores of a die read side by side, of (asked, machine): by the banks
            of its memory, 0 where they are not simulated; None where it has a rate.
        play: simulator of programs; None for the analytical model.
    """

    kernel: Callable[[MeshKernel, HardwareModel], KernelCost]
    collective: Callable[[LeadingCollective, HardwareModel], Any]
    product: Callable[[CoreGroupSplit, CallProduct, HardwareModel, float], tuple[Any, Any]]
    job: Callable[[Any], KernelCost]
    exchange: Callable[[GroupExchange, HardwareModel, Any], Any]
    onward: Callable[[PipelinePlacement, Any, HardwareModel], StageTransferTime]
    memory: Callable[[MemoryRequest, HardwareModel], tuple[Any, Any]] | None = None
    banks: Callable[[MemoryRequest, HardwareModel], Any] | None = None
    play: Callable[..., SimulationResult] | None = None


class CallCost(NamedTuple):
    """Time of one call on each resource alone, and the bytes that it reads. [s]

    Attributes:
        matrix, vector: on the engines of a core.
        engines: both, as the machine says.
        activations: on the memory they live in; with what of weights and KV is in the cache in front of main memory.
        spilled: where that is main memory; elsewhere it is the cache.
        need: bytes of weights or KV that come from main memory. [B]
        per_byte: one of them. [s/B]
        read: all of them, with the latency of the first. [s]
        memory: activations and all of these bytes.
        network: messages that nothing hides; None where there are none.
        activity: of one run of a kernel or job; None elsewhere, where the call says it.
        shown: what of messages that go beside engines and reads these do not hide, of the seconds of reads; it is `network` of
            all reads. None where messages go beside none.
        took: time of a library kernel, which then replaces all others; None elsewhere.
        least: seconds that a byte of `need` takes at least in banks; `NOTHING` where they are not simulated. [s/B]
        overlap: p of `smooth_maximum` of engines and memory; None where the call takes the longer of both.
        slowdown: time of a byte that it reads, where memory tiers have a share, over that from main memory alone. [1]
    """

    matrix: Any
    vector: Any
    engines: Any
    activations: Any
    spilled: Any
    need: Any
    per_byte: Any
    read: Any
    memory: Any
    network: Any
    activity: Activity | None = None
    shown: Callable[[Any], Any] | None = None
    took: LibraryKernelTime | None = None
    least: Any = NOTHING
    overlap: Any = None
    slowdown: Any = ONCE

    def engines_and_memory(self, memory: Any) -> Any:
        """Time of engines beside some time of memory. [s]"""
        return maximum(self.engines, memory) if self.overlap is None else smooth_maximum(self.engines, memory, self.overlap)


ReadCache = dict[Any, tuple[Any, tuple[Any, Any, Any]]]
"""Of what calls of a step read, by what they ask for: the share of it that is away, so that nothing else takes its place in
memory; and bytes, as of `CallCost.need`, seconds of all, and of one more byte.
"""


class TimedBlock(NamedTuple):
    """One block of calls on the timeline, with times and prefetched bytes of each call.

    Attributes:
        block: what was scheduled.
        collective: time of its opener. [s]
        costs: of each call.
        resident: bytes of each that were prefetched; None where nothing was. [B]
        durations: of each, prefetched bytes being there. [s]
        prefetches: of each, on the prefetch stream; None where nothing was prefetched. [s]
        seconds: from the opener's start to the last call's end.
    """

    block: CallBlock
    collective: Any
    costs: list[CallCost]
    resident: list[Any]
    durations: list[Any]
    prefetches: list[Any]
    seconds: Any

    def spans(self) -> list[WorkSpan]:
        """Start and end of each call on the timeline. [s]"""
        spans: list[WorkSpan] = []
        schedule_segment(self.collective, self.durations, self.prefetches, self.block.order, spans)
        return spans


class PrefetchSettings(NamedTuple):
    """Prefetch policy and budget: during leading collectives, or during messages of the calls.

    Attributes:
        policy: an option of `space.mapping.PREFETCH`.
        budget: bytes that there is room for. [B]
        once: bytes of a call that are not there and are read once; None where blocks have openers.
        awaited_budget: where blocks have openers, bytes for whose prefetch calls wait; None for `budget`. With `budget` of the
            largest cache of several and this of the smallest, a step takes no longer than with any of them: more bytes in the
            cache shorten each call, fewer bytes under way end each wait sooner, and the end of a block is made of sums and
            maxima of both. [B]
    """

    policy: str
    budget: Any
    once: Callable[[KernelCall], Any] | None = None
    awaited_budget: Any = None


NO_PREFETCH = PrefetchSettings("none", 0.0)


def block_timeline(
    blocks: Sequence[CallBlock],
    machine: HardwareModel,
    reader: CostModel,
    *,
    prefetch: PrefetchSettings = NO_PREFETCH,
    away: Callable[[KernelCall], Any] | None = None,
    near: Callable[[KernelCall], Any] | None = None,
) -> list[TimedBlock]:
    """Every block of a step on the timeline; equal calls are evaluated once.

    Args:
        blocks, machine, reader: calls, machine and cost model.
        prefetch: policy and budget.
        away: what a call reads from main memory over `fetch`: the share that no core has, times how often; None for all of it,
            once.
        near: likewise, from the cache in front of main memory, where there is one.
    """
    priced: dict[int, list[CallCost]] = {}
    jobs: dict[int, CallCost] = {}
    sums: dict[int, Any] = {}
    known: dict[tuple[int, Any], Any] = {}
    reads: ReadCache | None = {} if away else None  # where cores have shares of what they read
    timeline: list[TimedBlock] = []
    windows: list[IdleWindow | None] = []
    for block in blocks:
        # attention stands in two blocks, with a collective to hide behind and without; it is evaluated once, and so are sums
        costs = priced.get(id(block.calls))
        if costs is None:
            costs = priced[id(block.calls)] = []
            for call, first in zip(block.calls, block.alike, strict=True):
                if first < len(costs):
                    costs.append(costs[first])
                elif call.job is not None:
                    costs.append(jobs.setdefault(id(call.job), jobs.get(id(call.job)) or call_cost(call, machine, reader)))
                else:
                    costs.append(call_cost(call, machine, reader, away and away(call), near and near(call), reads))
        opener = block.opener
        if opener is not None and id(opener) not in sums:
            sums[id(opener)] = reader.collective(opener, machine)
        collective = 0.0 if opener is None else sums[id(opener)]
        if prefetch.once is None or prefetch.policy == "none":
            timeline.append(_timed(block, collective, costs, machine, prefetch, known))
            continue
        before = None if block.after is None else windows[block.after]
        timed_block, window = _behind_messages(block, costs, machine, prefetch, prefetch.once, before, known)
        timeline.append(timed_block)
        windows.append(window)
    return timeline


def call_cost(
    call: KernelCall,
    machine: HardwareModel,
    reader: CostModel,
    away: Any = None,
    near: Any = None,
    reads: ReadCache | None = None,
) -> CallCost:
    """Cost of a call on each resource of one core, as if the others were free and nothing prefetched.

    Activations stay in a cache where they fit there alone. `reads` has what other calls of the step read, by what they ask for.
    """
    if call.kernel is not None:
        return _kernel(call.kernel, machine, reader)
    if call.job is not None:
        done = reader.job(call.job)
        first = _read(_asked(call, call.fetch, call.piece), machine, reader)[0] if call.reads else 0.0
        return _alone(done.seconds + first, done.activity)
    took = None if machine.library is None else library.library_kernel_time(call.asked, machine.library)
    least = _least(call, machine, reader)
    if took is not None:
        return _of_library(took, call, machine, least)
    engines, cache, memory = machine.engines, machine.cache, machine.memory
    assert engines is not None
    assert memory is not None
    vector: Any = 0.0
    divided: Any = None
    if call.group is not None:
        product = call.products[0]
        divided, matrix = reader.product(call.group, product, machine, call.width)
        divided, matrix = product.count * divided, product.count * matrix
    else:
        matrix = _product_seconds(call, engines, machine)
    busy = matrix
    if call.operations is not None:
        # a sequence of instructions for each product that it goes with: of a head, or of weights that are expanded
        starts = call.products[0].count if call.products and call.products[0].count is not ONCE else 1.0
        vector = engines.vectors(call.operations, call.specials, call.streamed, starts)
        busy = engines.call_seconds(matrix, vector) if call.products else vector
    need: Any = 0.0
    read: Any = 0.0
    per_byte = memory.byte
    if call.reads:
        need, read, per_byte = _came(call, machine, reader, away, reads)
        if least is not NOTHING:
            read, per_byte = maximum(read, need * least), maximum(per_byte, least)
    slowdown: Any = ONCE
    if machine.tiers is not None and call.reads:
        slowdown, latency = machine.tiers.slowdown(call)
        read, per_byte = read * slowdown + latency, per_byte * slowdown
    activations: Any = 0.0
    spilled: Any = False
    reading = read
    if machine.shared is not None and call.reads:  # a core has one path to both
        activations = near * call.fetch * machine.shared.byte
        reading = activations + read
    if cache is not None:
        spilled = cache.is_exceeded(call.local)
        if isinstance(spilled, bool):
            activations = call.local * (memory.byte if spilled else cache.byte)
        else:
            activations = call.local * where(spilled, memory.byte, cache.byte)
        reading = activations + read if call.reads else activations
    network: Any = None
    shown: Callable[[Any], Any] | None = None
    if call.group is not None:
        network, shown = _messages(call.group, call.products[0], divided, matrix)
    elif call.exchange is not None:
        around = call.exchange
        if around.attended:
            shown = lambda reads, work=busy: reader.exchange(around, machine, maximum(work, reads))  # noqa: E731
        else:
            network = reader.exchange(around, machine, 0.0)
    if shown is not None:
        network = shown(reading)
    return CallCost(
        matrix, vector, busy, activations, spilled, need, per_byte, read, reading, network, None, shown, least=least,
        overlap=machine.overlap if call.products and call.reads == "weights" else None, slowdown=slowdown,
    )  # fmt: skip


def _product_seconds(call: KernelCall, engines: ComputeEngine, machine: HardwareModel) -> Any:
    """Time of the products of a call on one core, with what a power limit and cores without work add to it. [s]"""
    width, pace, seconds, power_limited = call.width, call.pace, 0.0, machine.power_limited
    blocks = machine.blocks if call.reads == "weights" else None
    for place, (count, m, k, n) in enumerate(call.products):
        # a format that is multiplied faster counts as fewer rows, of engines that have a rate by format
        each = engines.product_with_start(m if pace is ONCE else m * pace, k, n, width)
        if power_limited is not None:  # in any format
            each = each + PooledEngines.operations(m, k, n) * power_limited
        if blocks is not None:
            each = each * blocks.time_factor(m, n)
        each = each if count is ONCE else count * each
        seconds = seconds + each if place else each
    return seconds


def _messages(
    group_split: CoreGroupSplit, product: CallProduct, seconds: Any, matrix: Any
) -> tuple[Any, Callable[[Any], Any] | None]:
    """Time of a product's messages that nothing hides, or that some seconds of reads leave. [s]

    Sums wait for the product; in turns they go beside that of the next turn, and beside the stream of its weights from memory.
    Weights that go round come in beside the product, and beside their own stream.

    Args:
        of, product: on which cores.
        seconds, matrix: of it with all its messages, and of its engines.
    """
    if group_split.partition == "k" and group_split.sums != "overlapped_ring":
        return maximum(seconds - matrix, 0.0), None
    summed: Any = group_split.partition == "k" or (
        group_split.partition == AUTO and "k" in group_split.ways and group_split.which == group_split.ways.index("k")
    )
    if group_split.sums != "overlapped_ring":
        beside = ONCE if summed is False else 1.0 - summed

        def compute_exposed_seconds(reads: Any) -> Any:
            return maximum(seconds - maximum(matrix, reads if beside is ONCE else reads * beside), 0.0)

        return None, compute_exposed_seconds
    turns = ceil_div(product.n, ceil_div(product.n, group_split.cores))
    beyond = seconds - matrix  # sums of the last turn, and what those before are longer than products of a turn
    sums = where(beyond <= matrix / turns, beyond, (seconds - matrix / turns) / turns)

    def compute_shown_seconds(reads: Any) -> Any:
        work = maximum(matrix, reads)
        added = sums + (turns - 1) * maximum(sums - work / turns, 0.0)
        return where(summed, maximum(added, 0.0), maximum(seconds - work, 0.0))

    return None, compute_shown_seconds


def _asked(call: KernelCall, nbytes: Any, piece: Any) -> MemoryRequest:
    """Of main memory; what is new is written, what a call alone would write being none of it."""
    if call.wrote is NOTHING:
        return MemoryRequest(nbytes, piece, call.stride)
    return MemoryRequest(nbytes, piece, call.stride, 1 - call.known, call.wrote)


def _came(
    call: KernelCall, machine: HardwareModel, reader: CostModel, away: Any, known: ReadCache | None
) -> tuple[Any, Any, Any]:
    """Bytes that a call reads, seconds of all and of one more; `away` as of `block_timeline`, None for all."""
    what = None if known is None else _what(call, away)
    if known is not None and what in known:
        return known[what][1]
    need, piece = call.fetch, call.piece
    if away is not None:
        need, piece = need * away, piece * away if call.reads == "weights" else piece
    arrivals = need, *_read(_asked(call, need, piece), machine, reader)
    if known is not None:
        known[what] = away, arrivals
    return arrivals


def _what(call: KernelCall, away: Any) -> tuple[Any, ...]:
    """What a call reads, equal for calls of a step that ask for the same; arrays are the same where they are one object."""
    sizes = call.fetch, call.piece, call.stride, call.known, call.wrote, away
    return call.reads == "weights", *(id(size) if isinstance(size, np.ndarray) else (size,) for size in sizes)


def _least(call: KernelCall, machine: HardwareModel, reader: CostModel) -> Any:
    """Lower bound on the time per byte of reads by all cores of a die; `NOTHING` without banks. [s/B]"""
    if not call.reads or reader.banks is None:
        return NOTHING
    return reader.banks(_asked(call, call.fetch, call.piece), machine)


def _read(request: MemoryRequest, machine: HardwareModel, reader: CostModel) -> tuple[Any, Any]:
    """Time of a call's main memory request, and of one more byte. [s], [s/B]"""
    if reader.memory is not None:
        return reader.memory(request, machine)
    assert machine.memory is not None
    return machine.memory.read(request)


def _kernel(kernel: MeshKernel, machine: HardwareModel, reader: CostModel) -> CallCost:
    """A kernel on a mesh, each core of which has all that it needs."""
    cost = reader.kernel(kernel, machine)
    seconds = cost.seconds if kernel.times is ONCE else cost.seconds * kernel.times
    return _alone(seconds, cost.activity)


def _of_library(took: LibraryKernelTime, call: KernelCall, machine: HardwareModel, least: Any) -> CallCost:
    """Cost of a library kernel: its reads can be prefetched, and banks may be slower than its constants.

    Values that a product has to expand first are expanded by the vector engines beside it, as without a library.
    """
    if call.products and call.operations is not None and machine.engines is not None and call.reads == "weights":
        vector = machine.engines.vectors(call.operations, call.specials, 0.0, 1.0)
        took = took._replace(compute=maximum(took.compute, vector))
    need = call.fetch if call.reads else 0.0
    if least is not NOTHING:
        byte = maximum(took.byte, least)
        took = took._replace(memory=took.memory + need * (byte - took.byte), byte=byte)
    slowdown: Any = ONCE
    if machine.tiers is not None and call.reads:
        slowdown, latency = machine.tiers.slowdown(call)
        more = need * took.byte * (slowdown - 1.0) + latency
        took = took._replace(memory=maximum(took.memory + more, 0.0), byte=took.byte * slowdown)
    read = took.memory
    return CallCost(
        took.compute, 0.0, took.compute, 0.0, False, need, took.byte, read, read, None, took=took, least=least,
        slowdown=slowdown,
    )  # fmt: skip


def _alone(seconds: Any, activity: Activity) -> CallCost:
    """What takes as long as it takes."""
    return CallCost(seconds, 0.0, seconds, 0.0, False, 0.0, 0.0, 0.0, 0.0, None, activity)


def _timed(
    block: CallBlock,
    collective: Any,
    costs: list[CallCost],
    machine: HardwareModel,
    prefetch: PrefetchSettings,
    known: dict[tuple[int, Any], Any],
) -> TimedBlock:
    resident: list[Any] = [None] * len(costs)
    if block.opener is None or prefetch.policy == "none":
        durations = _durations(costs, resident, machine, known)
        return TimedBlock(block, collective, costs, resident, durations, resident, sequential_end(collective, durations))
    resident = prefetched_bytes(block, prefetch.policy, prefetch.budget)
    durations = _durations(costs, resident, machine, known)
    byte = machine.memory and machine.memory.byte
    awaited = resident if prefetch.awaited_budget is None else prefetched_bytes(block, prefetch.policy, prefetch.awaited_budget)
    prefetches = [
        None
        if bytes_in is None
        else bytes_in * ((byte if cost.least is NOTHING else maximum(byte, cost.least)) * cost.slowdown)
        for cost, bytes_in in zip(costs, awaited, strict=True)
    ]
    seconds = schedule_segment(collective, durations, prefetches, block.order)
    return TimedBlock(block, collective, costs, resident, durations, prefetches, seconds)


def _behind_messages(
    block: CallBlock,
    costs: list[CallCost],
    machine: HardwareModel,
    prefetch: PrefetchSettings,
    once: Callable[[KernelCall], Any],
    window: IdleWindow | None,
    known: dict[tuple[int, Any], Any],
) -> tuple[TimedBlock, IdleWindow | None]:
    """A block whose calls have messages behind which those after them are prefetched, and the window that it ends with."""
    costs = list(costs)

    def overlap(place: int, call: KernelCall, cost: CallCost) -> OverlappedCall:
        def next_window(window: IdleWindow | None, bytes_ahead: Any) -> IdleWindow | None:
            network = cost.network
            if bytes_ahead is not None and cost.shown is not None:  # what a read hid is hidden no more
                network = cost.shown(cost.memory - bytes_ahead * cost.per_byte)
                costs[place] = cost._replace(network=network)
            if network is None:
                return window
            if not call.operators and call.exchange is not None:  # which some entries leave out
                return open_window(network, call.exchange.times > 0, window)
            return open_window(network)

        need = once(call) if call.can_be_prefetched and call.job is None else None
        return OverlappedCall(need, cost.per_byte, next_window)

    calls = (overlap(place, call, cost) for place, (call, cost) in enumerate(zip(block.calls, costs, strict=True)))
    resident, window = read_ahead(calls, window, prefetch.policy, prefetch.budget)
    durations = _durations(costs, resident, machine, known)
    nothing = [None] * len(costs)  # prefetched bytes are there when a call starts
    return TimedBlock(
        block, 0.0, costs, resident, durations, nothing, schedule_segment(0.0, durations, nothing, block.order)
    ), window


def _durations(
    costs: list[CallCost], resident: list[Any], machine: HardwareModel, known: dict[tuple[int, Any], Any]
) -> list[Any]:
    """Of calls, once their bytes are there; `known` has those of costs with so many bytes for all designs, or without any."""
    durations = []
    for cost, bytes_in in zip(costs, resident, strict=True):
        if isinstance(bytes_in, np.ndarray):
            durations.append(_duration(cost, bytes_in, machine))
            continue
        if (id(cost), bytes_in) not in known:
            known[id(cost), bytes_in] = _duration(cost, bytes_in, machine)
        durations.append(known[id(cost), bytes_in])
    return durations


def _duration(cost: CallCost, bytes_in: Any, machine: HardwareModel) -> Any:
    """Of a call, once so many bytes are there: engines, or the one path to memory, then messages and overhead. [s]"""
    if cost.took is not None:  # its start is in it
        return cost.took.seconds(bytes_in)
    memory = cost.memory
    if bytes_in is not None:
        byte = machine.memory and machine.memory.byte
        memory = memory - bytes_in * (machine.saved if cost.per_byte is byte else cost.per_byte - byte + machine.saved)
    seconds = cost.engines_and_memory(memory) if cost.activity is None else cost.engines
    if cost.network is not None:
        seconds = seconds + cost.network
    overhead = machine.overhead
    return seconds if isinstance(overhead, float) and overhead == 0 else seconds + overhead
