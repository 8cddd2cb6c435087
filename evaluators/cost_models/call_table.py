"""Table of all calls of a step where they are numbers, each different call once.

What a call takes is said where `price` finds it, in the machine. A pool of cores behind a cache has neither programs nor
messages of its own. Each way to divide operators is a structure of the table, which designs share. Of one design it is worked
out in plain numbers, of many by `call_loop`.
"""

import sys
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import NOTHING, ONCE, CallBlock, KernelCall, LeadingCollective
from dse.evaluators.calls.prefetch import fit_in_budget
from dse.evaluators.cost_models.call_cost import CostModel, PrefetchSettings
from dse.evaluators.cost_models.call_table_columns import DESIGNS_PER_BATCH, FAR, OPERATIONS, RATES, VECTOR
from dse.evaluators.machine.channel_layout import MemoryRequest
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.shared_cache_die import PooledEngines
from dse.evaluators.malloc_settings import MANY
from dse.space.array_math import Array
from dse.space.errors import DesignError, suggest_nearest
from dse.space.mapping import PREFETCH
from dse.space.memoize import memoize_by_identity

LOOP_MODULE = "dse.evaluators.cost_models.call_table_loop"

Structures = tuple[tuple[CallBlock, ...], ...]
"""The blocks of a step, once for each way in which operators are divided."""


class CallTable(NamedTuple):
    """Different calls of a step, by structure, and the order in which blocks run them.

    Attributes:
        calls: what each asks for, shape (structures, calls, ASKED) as of `call_table_columns`.
        streamed: rows that stream, with elements that pass by.
        strided: rows that read in pieces, with what they ask for.
        hidden: rows that can be prefetched, as often as something else was asked for before them.
        ahead: what is prefetched of these, and what was asked for before it in the order of its block. [B],
            shape (structures, hidden, 2)
        blocks: of the first structure, with the row of each call; where it has an opener, that among `hidden`, and the order.
    """

    calls: Array
    streamed: tuple[tuple[int, Array], ...]
    strided: tuple[tuple[int, MemoryRequest], ...]
    hidden: tuple[int, ...]
    ahead: Array
    blocks: tuple[tuple[CallBlock, tuple[int, ...], tuple[int | None, ...]], ...]


_COUNT, _M, _K, _N, _OPERATIONS, _STREAMED, _FETCH, _PIECE, _STRIDE, _LOCAL = range(10)
"""Leaves of a call."""


@partial(memoize_by_identity, few=256)
def call_table(structures: Structures) -> CallTable | None:
    """Table of the calls of a step.

    None if some calls are not numbers, or need more than engines, cache and memory.

    So it is where structures have other calls, or other messages, than one another.
    """
    blocks, every = structures[0], [[call for block in blocks for call in block.calls] for blocks in structures]
    calls = every[0]
    kinds = [_kind(call) for call in calls]
    alike = all([_kind(call) for call in others] == kinds for others in every)
    if None in kinds or not alike or len({tuple(map(_apart, blocks)) for blocks in structures}) > 1:
        return None
    leaves = np.moveaxis(np.array([[_leaves(call) for call in calls] for calls in every], dtype=float), 0, -1)
    keys = [(kind, leaf.tobytes()) for kind, leaf in zip(kinds, leaves, strict=True)]
    rows = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    given_rows = [rows[key] for key in keys]
    leaf = leaves[[given_rows.index(row) for row in rows.values()]]
    laid, hidden, ahead = _hidden(blocks, given_rows, leaf[:, _FETCH])
    macs = PooledEngines.operations(leaf[:, _M], leaf[:, _K], leaf[:, _N])
    columns = leaf[:, _COUNT], macs, leaf[:, _OPERATIONS], leaf[:, _LOCAL], leaf[:, _FETCH]
    return CallTable(
        np.ascontiguousarray(np.array(columns).T),
        tuple((row, leaf[row, _STREAMED]) for row in range(len(leaf)) if leaf[row, _STREAMED].any()),
        tuple((row, MemoryRequest(*leaf[row, _FETCH : _STRIDE + 1])) for row in range(len(leaf)) if leaf[row, _STRIDE].any()),
        hidden,
        ahead,
        laid,
    )


class StructureTable(NamedTuple):
    """Call table of one structure, with one number per column.

    Attributes:
        rows: of each how many products, operations of one of them, operations on elements, activations, and what it reads;
            1 or 0 where there are none. [1], [op], [op], [B], [B]
        streamed, strided: as of `CallTable`, the former with operations on elements before what passes by.
        hidden: of each row of `CallTable.hidden`, itself, what is prefetched of it, and what was asked for before that. [B]
        blocks: of each block how often it runs, its opener, rows of its calls, places among `hidden` in the order in which they
            are prefetched, and each call with its place.
    """

    rows: list[tuple[float, float, float, float, float]]
    streamed: tuple[tuple[int, float, float], ...]
    strided: tuple[tuple[int, MemoryRequest], ...]
    hidden: list[tuple[int, float, float]]
    blocks: list[tuple[float, LeadingCollective | None, tuple[int, ...], list[int], list[tuple[int, int | None]]]]


@partial(memoize_by_identity, few=256)
def _numbers(table: CallTable) -> StructureTable:
    """The table of one structure with numbers for its columns."""
    blocks = []
    for block, calls, places in table.blocks:
        stream = [place for at in block.order if (place := places[at]) is not None]
        blocks.append((block.times, block.opener, calls, stream, list(zip(calls, places, strict=True))))
    calls, ahead = table.calls[0].tolist(), table.ahead[0].tolist()
    return StructureTable(
        [tuple(call) for call in calls],
        tuple((row, calls[row][OPERATIONS], passes.item()) for row, passes in table.streamed),
        tuple((row, MemoryRequest(*(leaf.item() for leaf in request[:3]))) for row, request in table.strided),
        [(row, *bytes_in) for row, bytes_in in zip(table.hidden, ahead, strict=True)],
        blocks,
    )


def _hidden(blocks: tuple[CallBlock, ...], given_rows: list[int], fetch: Array) -> tuple[Any, tuple[int, ...], Array]:
    """Blocks with rows of their calls, and what of these can be prefetched: rows, bytes, and bytes before them."""
    streams: dict[tuple[int, bytes], tuple[int, Array]] = {}
    laid, start, nothing = list[Any](), 0, np.zeros(fetch.shape[1])
    for block in blocks:
        own, ahead, used = given_rows[start : start + len(block.calls)], list[int | None]([None] * len(block.calls)), nothing
        for at in block.order if block.opener is not None else ():
            if block.calls[at].can_be_prefetched:
                ahead[at] = list({**streams, (own[at], used.tobytes()): 0}).index((own[at], used.tobytes()))
                streams[own[at], used.tobytes()] = own[at], used
                used = used + fetch[own[at]]
        laid.append((block, tuple(own), tuple(ahead)))
        start += len(block.calls)
    rows = tuple(row for row, _ in streams.values())
    before = np.array([used for _, used in streams.values()]).reshape(len(rows), fetch.shape[1])
    return tuple(laid), rows, np.ascontiguousarray(np.array([fetch[list(rows)], before]).T)


def _kind(kernel_call: KernelCall) -> tuple[bool, ...] | None:
    """Kind of a call for the table; None if it has other resources, or several designs and steps."""
    if (
        (kernel_call.kernel, kernel_call.job, kernel_call.group, kernel_call.exchange) != (None,) * 4
        or len(kernel_call.products) > 1
        or kernel_call.wrote is not NOTHING
    ):
        return None
    if (
        not all(isinstance(leaf, int | float) for leaf in (*_leaves(kernel_call), kernel_call.pace))
        or kernel_call.stride == inf
    ):
        return None
    return bool(kernel_call.products), kernel_call.operations is not None, bool(kernel_call.reads)


def _leaves(kernel_call: KernelCall) -> tuple[Any, ...]:
    """Leaves in the order of `_COUNT` to `_LOCAL`."""
    count, m, k, n = kernel_call.products[0] if kernel_call.products else (ONCE, 0.0, 0.0, 0.0)
    m = m if kernel_call.pace is ONCE else m * kernel_call.pace
    operations, streamed = (
        (0.0, 0.0) if kernel_call.operations is None else (kernel_call.operations + kernel_call.specials, kernel_call.streamed)
    )
    fetch, piece, stride = (kernel_call.fetch, kernel_call.piece, kernel_call.stride) if kernel_call.reads else (0.0, 0.0, 0.0)
    return count, m, k, n, operations, streamed, fetch, piece, stride, kernel_call.local


def _apart(block: CallBlock) -> tuple[Any, ...]:
    """Properties of a block besides its calls, for any number of devices."""
    return len(block.calls), block.order, block.times, block.opener and block.opener._replace(peers=None)


def table_seconds(
    structures: Structures,
    machine: HardwareModel,
    reader: CostModel,
    prefetch: PrefetchSettings,
    which: Any = None,
    peers: Any = None,
) -> Any:
    """Time of a step from its call table, equal to `block_timeline`; None without a table. [s]

    Compiled code is loaded for many designs: a few take less time call by call than that does.

    Args:
        structures: blocks of each.
        machine, reader, prefetch: as of `call_cost.block_timeline`.
        which, peers: structure of each design, and dies in its messages, shape (designs,); None of one structure.
    """
    engines, cache, memory = machine.engines, machine.cache, machine.memory
    if engines is None or cache is None or memory is None or machine.library is not None or prefetch.once is not None:
        return None
    if (
        reader.banks is not None
        or machine.power_limited is not None
        or machine.overlap is not None
        or machine.tiers is not None
        or machine.blocks is not None
    ):
        return None
    if prefetch.policy not in PREFETCH:
        raise DesignError(f"prefetch.policy: no option {prefetch.policy!r}; {suggest_nearest(prefetch.policy, PREFETCH)}")
    table = call_table(structures)
    if table is None:
        return None
    sums: dict[int, Any] = {}
    for block, _, _ in table.blocks:
        if block.opener is not None and id(block.opener) not in sums:
            opener = block.opener if peers is None else block.opener._replace(peers=peers)
            sums[id(block.opener)] = reader.collective(opener, machine)
    records: Any = engines, memory  # of numbers, each of one design or of many
    rates = (
        *records[0], *cache[:2], *records[1][:5], machine.overhead, prefetch.budget, prefetch.awaited_budget, which,
        *sums.values(),
    )  # fmt: skip
    if np.ndarray not in set(map(type, rates)):
        return _one(_numbers(table), machine, prefetch, sums)
    designs = max(len(rate) for rate in rates if isinstance(rate, np.ndarray))
    if designs < MANY and not (LOOP_MODULE in sys.modules and sys.modules[LOOP_MODULE].write_step_seconds.signatures):
        return None
    return _many(table, which, machine, prefetch, sums, designs)


class CompiledTable(NamedTuple):
    """Call table as arguments of the compiled loop, and leading collectives in the order of their rates."""

    calls: Array
    kinds: Array
    ahead: Array
    hidden: Array
    runs: Array
    streams: Array
    blocks: Array
    times: Array
    openers: tuple[int, ...]


@partial(memoize_by_identity, few=256)
def _program(table: CallTable) -> CompiledTable:
    calls, kinds = table.calls.copy(), np.full((2, table.calls.shape[1]), [[VECTOR], [FAR]])
    openers = tuple(dict.fromkeys(id(block.opener) for block, _, _ in table.blocks if block.opener is not None))
    rate = RATES + len(openers)  # then of what streams, and of what is read in pieces, each with its own
    for kind, rows in enumerate(([row for row, _ in table.streamed], [row for row, _ in table.strided])):
        kinds[kind, rows] = range(rate, rate + len(rows))
        rate += len(rows)
    for row, _ in table.streamed:
        calls[:, row, OPERATIONS] = 1.0  # all of them, once
    runs, streams, blocks = list[tuple[int, int]](), list[int](), [(0, 0, -1)]
    for block, rows_of, places in table.blocks:
        runs += [(row, -1 if place is None else place) for row, place in zip(rows_of, places, strict=True)]
        streams += [place for at in block.order if (place := places[at]) is not None]
        opener = -1 if block.opener is None else RATES + openers.index(id(block.opener))
        blocks.append((len(runs), len(streams), opener))
    return CompiledTable(
        calls,
        kinds,
        table.ahead,
        np.array(table.hidden, dtype=int),
        np.array(runs, dtype=int),
        np.array(streams, dtype=int),
        np.ascontiguousarray(np.array(blocks).T),
        np.array([float(block.times) for block, _, _ in table.blocks]),
        openers,
    )


def _many(
    table: CallTable, which: Any, machine: HardwareModel, prefetch: PrefetchSettings, sums: dict[int, Any], designs: int
) -> Array:
    """Time of a step of many designs, those of one structure after those of another. [s], shape (designs,)"""
    records: Any = machine.engines, machine.cache, machine.memory
    (engines, cache, memory), program = records, _program(table)

    def select_rows(column: Array) -> Array:
        return column if which is None else column.take(which)

    rates = (
        *engines[:2], *cache[:2], memory.byte, machine.saved, machine.overhead, prefetch.budget,
        prefetch.budget if prefetch.awaited_budget is None else prefetch.awaited_budget,
        *(sums[opener] for opener in program.openers),
        *(
            engines.vectors(select_rows(table.calls[:, row, OPERATIONS]), 0.0, select_rows(passes), 1.0)
            for row, passes in table.streamed
        ),
        *(memory.read(MemoryRequest(*map(select_rows, request[:3])))[1] for _, request in table.strided),
    )  # fmt: skip
    order, counts = (None, [designs]) if which is None else (np.argsort(which, kind="stable"), np.bincount(which))
    ends = np.append(0, np.cumsum(counts))
    given, streams = np.empty((len(rates), designs)), np.empty(designs)
    for row, rate in enumerate(rates):
        given[row] = rate if order is None or np.size(rate) == 1 else rate[order]
    from dse.evaluators.cost_models import call_table_loop as call_loop  # which compiles, or loads what was

    near = np.empty((3 * table.calls.shape[1] + 4 * len(table.hidden) + 1, DESIGNS_PER_BATCH))
    two_budgets = prefetch.awaited_budget is not None
    call_loop.write_step_seconds(*program[:-1], PREFETCH.index(prefetch.policy), two_budgets, given, ends, near, streams)
    if order is None:
        return streams
    placed = np.empty(designs)
    placed[order] = streams
    return placed


def _one(table: StructureTable, machine: HardwareModel, prefetch: PrefetchSettings, sums: dict[int, float]) -> float:
    """Time of a step of one design, whose rates are numbers: arrays of one number would take longer. [s]"""
    records: Any = machine.engines, machine.cache, machine.memory
    engines, cache, memory = records
    overhead, matrix, vector = machine.overhead, engines.matrix, engines.vector
    near, far, size = cache.byte, memory.byte, cache.size
    passing = {row: engines.vectors(operations, 0.0, passes, 1.0) for row, operations, passes in table.streamed}
    own = {row: memory.read(request)[1] for row, request in table.strided}
    busy, reading, durations = list[float](), list[float](), list[float]()
    for row, (count, macs, operations, local, nbytes) in enumerate(table.rows):
        work, beside = count * (macs * matrix), passing[row] if row in passing else operations * vector
        work = work if work >= beside else beside
        read = local * (far if local > size else near) + nbytes * own.get(row, far)
        busy.append(work)
        reading.append(read)
        durations.append((work if work >= read else read) + overhead)
    ahead, arrived = list[float](), list[float]()
    if prefetch.policy != "none":
        saved, budget, awaited = machine.saved, prefetch.budget, prefetch.awaited_budget
        for row, need, before in table.hidden:
            bytes_in = need if before + need < budget else fit_in_budget(need, before, prefetch.policy, budget)[0]
            read = reading[row] - bytes_in * (own[row] - far + saved if row in own else saved)
            ahead.append((busy[row] if busy[row] >= read else read) + overhead)
            if awaited is not None:
                bytes_in = fit_in_budget(need, before, prefetch.policy, awaited)[0]
            arrived.append(bytes_in * far)
    total = 0.0
    for times, opener, calls, stream, placed in table.blocks:
        now = 0.0 if opener is None else sums[id(opener)]
        if ahead and opener is not None:  # as `timeline.schedule_segment`
            fetched, arrivals = 0.0, dict[int, float]()
            for place in stream:
                fetched = arrivals[place] = fetched + arrived[place]
            for row, at in placed:
                if at is not None:
                    now = arrivals[at] if arrivals[at] > now else now
                now = now + (durations[row] if at is None else ahead[at])
        else:
            for row in calls:
                now = now + durations[row]
        total = total + now * times
    return total
