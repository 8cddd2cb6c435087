"""All calls of a step at once, where they are numbers: each different one once, rows being calls and columns designs.

What a call takes is said where `price` finds it, in the machine. A pool of cores behind a cache has neither programs nor
messages of its own. Each way to divide operators is a column of the table, which designs share.
"""

from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.laid import Asked
from dse.evaluators.machine.machine import Machine
from dse.evaluators.machine.pooled import Cache, Pooled, Rated
from dse.evaluators.passes.call import NOTHING, ONCE, Block, Call, Opener
from dse.evaluators.passes.prefetch import fitting
from dse.evaluators.readers.price import Prefetch, Reader
from dse.evaluators.readers.timeline import in_turn
from dse.space.elementwise import Array
from dse.space.remember import same

Structures = tuple[tuple[Block, ...], ...]
"""The blocks of a step, once for each way in which operators are divided."""

PART = 4096
"""Designs that are worked out at once."""

MOST = 128
"""Designs of one structure that prefetch; more are worked out call by call, whose arrays are small enough for a cache."""


class CallTable(NamedTuple):
    """Different calls of a step: those with products first, those with operations on elements last; columns are structures.

    Attributes:
        macs, counts: operations of one product of each of the first rows, and how many; None where there is one of each.
        products, elements: how many rows have products, and which is the first that has operations on elements.
        operations, streamed: of the latter rows; rows that stream, with elements that pass by.
        fetch, local: as of `Call`; `fetch` of rows between `reads`. [B]
        reads: the first row that reads, and the one after the last.
        strided: rows that read in pieces, with what they ask for.
        hidden: rows that can be prefetched, as often as something else was asked for before them.
        ahead, before: what is prefetched of these, and what was asked for before it in the order of its block. [B]
        blocks: of the first structure, with the row of each call; where it has an opener, that among `hidden`, and the order.
    """

    macs: Array
    counts: Array | None
    products: int
    elements: int
    operations: Array
    streamed: tuple[tuple[int, Array], ...]
    fetch: Array
    local: Array
    reads: tuple[int, int]
    strided: tuple[tuple[int, Asked], ...]
    hidden: tuple[int, ...]
    ahead: Array
    before: Array
    blocks: tuple[tuple[Block, tuple[int, ...], tuple[int | None, ...]], ...]


COUNT, M, K, N, OPERATIONS, STREAMED, FETCH, PIECE, STRIDE, LOCAL = range(10)
"""Leaves of a call."""


@partial(same, few=256)
def table(structures: Structures) -> CallTable | None:
    """The calls of a step as a table; None where some are no numbers, or ask for more than engines, cache and memory.

    So it is where structures have other calls, or other messages, than one another.
    """
    blocks, every = structures[0], [[call for block in blocks for call in block.calls] for blocks in structures]
    calls = every[0]
    kinds = [_kind(call) for call in calls]
    alike = all([_kind(call) for call in others] == kinds for others in every)
    if None in kinds or not alike or len({tuple(map(_apart, blocks)) for blocks in structures}) > 1:
        return None
    leaves = np.moveaxis(np.array([[_leaves(call) for call in calls] for calls in every], dtype=float), 0, -1)
    rows: dict[Any, int] = {}  # those with products, both, and operations on elements alone; those that read in between
    for row in sorted(range(len(calls)), key=lambda row: kinds[row]):  # type: ignore[arg-type, return-value]
        rows.setdefault((kinds[row], leaves[row].tobytes()), row)
    place = {key: number for number, key in enumerate(rows)}
    of = [place[kinds[row], leaves[row].tobytes()] for row in range(len(calls))]
    chosen = list(rows.values())
    leaf = leaves[chosen]
    kind = [kinds[row] for row in chosen]
    reading = [row for row, call in enumerate(chosen) if calls[call].reads]
    reads = (reading[0], reading[-1] + 1) if reading else (0, 0)
    products, elements = sum(found < ELEMENTS for found in kind), sum(found < BOTH for found in kind)  # type: ignore[operator]
    laid, hidden, ahead, before = _hidden(blocks, of, leaf[:, FETCH])
    count = leaf[:products, COUNT]
    return CallTable(
        Pooled.operations(leaf[:products, M], leaf[:products, K], leaf[:products, N]),
        None if (count == 1).all() else count,
        products,
        elements,
        leaf[elements:, OPERATIONS],
        tuple((row, leaf[row, STREAMED]) for row in range(elements, len(leaf)) if leaf[row, STREAMED].any()),
        leaf[slice(*reads), FETCH],
        leaf[:, LOCAL],
        reads,
        tuple((row, Asked(*leaf[row, FETCH : STRIDE + 1])) for row in reading if leaf[row, STRIDE].any()),
        hidden,
        ahead,
        before,
        laid,
    )


class Numbers(NamedTuple):
    """The table of one structure, with a number for each column.

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
    strided: tuple[tuple[int, Asked], ...]
    hidden: list[tuple[int, float, float]]
    blocks: list[tuple[float, Opener | None, tuple[int, ...], list[int], list[tuple[int, int | None]]]]


@partial(same, few=256)
def _numbers(of: CallTable) -> Numbers:
    """The table of one structure with numbers for its columns."""
    blocks = []
    for block, calls, places in of.blocks:
        stream = [place for at in block.order if (place := places[at]) is not None]
        blocks.append((block.times, block.opener, calls, stream, list(zip(calls, places, strict=True))))
    rows = np.zeros((len(of.local), 5))
    rows[:, 0] = 1.0
    if of.counts is not None:
        rows[: of.products, 0] = of.counts[:, 0]
    rows[: of.products, 1], rows[of.elements :, 2] = of.macs[:, 0], of.operations[:, 0]
    rows[:, 3], rows[slice(*of.reads), 4] = of.local[:, 0], of.fetch[:, 0]
    return Numbers(
        [tuple(row) for row in rows.tolist()],
        tuple((row, rows[row, 2].item(), passes.item()) for row, passes in of.streamed),
        tuple((row, Asked(*(leaf.item() for leaf in asked[:3]))) for row, asked in of.strided),
        list(zip(of.hidden, of.ahead[:, 0].tolist(), of.before[:, 0].tolist(), strict=True)),
        blocks,
    )


def _hidden(blocks: tuple[Block, ...], of: list[int], fetch: Array) -> tuple[Any, tuple[int, ...], Array, Array]:
    """Blocks with rows of their calls, and what of these can be prefetched: rows, bytes, and bytes before them."""
    found: dict[tuple[int, bytes], tuple[int, Array]] = {}
    laid, start, nothing = list[Any](), 0, np.zeros(fetch.shape[1])
    for block in blocks:
        own, ahead, used = of[start : start + len(block.calls)], list[int | None]([None] * len(block.calls)), nothing
        for at in block.order if block.opener is not None else ():
            if block.calls[at].reads:
                ahead[at] = list({**found, (own[at], used.tobytes()): 0}).index((own[at], used.tobytes()))
                found[own[at], used.tobytes()] = own[at], used
                used = used + fetch[own[at]]
        laid.append((block, tuple(own), tuple(ahead)))
        start += len(block.calls)
    rows = tuple(row for row, _ in found.values())
    before = np.array([used for _, used in found.values()]).reshape(len(rows), fetch.shape[1])
    return tuple(laid), rows, fetch[list(rows)], before


READING, BOTH, ELEMENTS = 1, 2, 4
"""Kinds of calls, from the first to the last: with products, of which the latter read; with both; with operations alone."""


def _kind(of: Call) -> int | None:
    """Of what a call asks for; None where it is not of engines, cache and memory alone, or of more than one design and step."""
    if (of.kernel, of.job, of.group, of.exchange) != (None,) * 4 or len(of.products) > 1 or of.wrote is not NOTHING:
        return None
    if not all(isinstance(leaf, int | float) for leaf in (*_leaves(of), of.pace)) or of.stride == inf:
        return None
    if not of.products:
        return ELEMENTS
    if of.operations is None:
        return READING if of.reads else 0
    return BOTH if of.reads else BOTH + 1


def _leaves(of: Call) -> tuple[Any, ...]:
    """Leaves in the order of `COUNT` to `LOCAL`."""
    count, m, k, n = of.products[0] if of.products else (ONCE, 0.0, 0.0, 0.0)
    m = m if of.pace is ONCE else m * of.pace
    operations = 0.0 if of.operations is None else of.operations + of.specials
    fetch, piece, stride = (of.fetch, of.piece, of.stride) if of.reads else (0.0, 0.0, 0.0)
    return count, m, k, n, operations, of.streamed, fetch, piece, stride, of.local


def _apart(block: Block) -> tuple[Any, ...]:
    """What a block is beside its calls, of any number of devices."""
    return len(block.calls), block.order, block.times, block.opener and block.opener._replace(peers=None)


def seconds(
    structures: Structures, machine: Machine, reader: Reader, prefetch: Prefetch, which: Any = None, peers: Any = None
) -> Any:
    """Time of a step: what its blocks take as `price.timed` has them; None where no table does it. [s]

    Args:
        structures: blocks of each.
        machine, reader, prefetch: as of `price.timed`.
        which, peers: structure of each design, and dies in its messages, shape (designs,); None of one structure.
    """
    engines, cache, memory = machine.engines, machine.cache, machine.memory
    if engines is None or cache is None or memory is None or machine.library is not None or prefetch.once is not None:
        return None
    if reader.banks is not None:
        return None
    records: Any = engines, memory  # of numbers, each of one design or of many
    rates = (*records[0], cache.byte, cache.size, *records[1][:5], machine.overhead, prefetch.budget, which)
    many = [len(rate) for rate in rates if isinstance(rate, np.ndarray)]
    designs = max(many, default=1)
    if which is None and designs > MOST and prefetch.policy != "none":
        return None
    of = table(structures)
    if of is None:
        return None
    sums: dict[int, Any] = {}
    for block, _, _ in of.blocks:
        if block.opener is not None and id(block.opener) not in sums:
            opener = block.opener if peers is None else block.opener._replace(peers=peers)
            sums[id(block.opener)] = reader.collective(opener, machine)
    if not many:
        return _one(_numbers(of), machine, prefetch, sums)
    if designs <= PART:
        return _part(of, which, machine, prefetch, sums, designs)
    found = np.empty(designs)
    for start in range(0, designs, PART):
        some = slice(start, min(start + PART, designs))

        def cut(value: Any, some: slice = some) -> Any:
            return value[some] if isinstance(value, np.ndarray) else value

        own = machine._replace(
            engines=Pooled(*map(cut, records[0])),
            cache=Cache(*map(cut, cache)),
            memory=Rated(*map(cut, records[1])),
            saved=cut(machine.saved),
            overhead=cut(machine.overhead),
        )
        hidden = prefetch._replace(budget=cut(prefetch.budget))
        there = {place: cut(value) for place, value in sums.items()}
        found[some] = _part(of, cut(which), own, hidden, there, some.stop - start)
    return found


def _part(
    of: CallTable, which: Any, machine: Machine, prefetch: Prefetch, sums: dict[int, Any], designs: int
) -> Any:  # fmt: skip
    """Time of a step of some designs. [s]"""
    records: Any = machine.engines, machine.cache, machine.memory
    engines, cache, memory = records

    def each(column: Array) -> Array:
        return column if which is None else column.take(which, axis=-1)

    busy = np.empty((len(of.local), designs))
    matrix = busy[: of.products]
    np.multiply(each(of.macs), engines.matrix, out=matrix)
    if of.counts is not None:
        np.multiply(each(of.counts), matrix, out=matrix)
    both = matrix[of.elements :].copy()
    np.multiply(each(of.operations), engines.vector, out=busy[of.elements :])
    for row, streamed in of.streamed:
        busy[row] = engines.vectors(each(of.operations[row - of.elements]), 0.0, each(streamed), 1.0)
    np.maximum(both, matrix[of.elements :], out=matrix[of.elements :])
    fetched = np.empty((len(of.fetch), designs))
    np.multiply(each(of.fetch), memory.byte, out=fetched)
    own: dict[int, Any] = {}
    for row, asked in of.strided:
        fetched[row - of.reads[0]], own[row] = memory.read(Asked(*map(each, asked[:3])))
    reading = np.empty(busy.shape)
    np.multiply(each(of.local), _activations(of, each, cache, memory), out=reading)
    reading[slice(*of.reads)] += fetched
    ahead: Any = None
    if prefetch.policy != "none":
        bytes_in, _ = fitting(each(of.ahead), each(of.before), prefetch.policy, prefetch.budget)
        saved = bytes_in * machine.saved
        if own and saved.shape[1] < designs:
            saved = np.array(np.broadcast_to(saved, (len(saved), designs)))
        for place, row in enumerate(of.hidden):
            if row in own:
                saved[place] = bytes_in[place] * (own[row] - memory.byte + machine.saved)
        rows = list(of.hidden)
        ahead = np.maximum(busy[rows], reading[rows] - saved) + machine.overhead, bytes_in * memory.byte
    np.maximum(busy, reading, out=busy)
    busy += machine.overhead
    total: Any = 0.0
    for block, calls, places in of.blocks:
        now: Any = 0.0 if block.opener is None else sums[id(block.opener)]
        if ahead is None or block.opener is None:
            now = _in_turn(now, calls, busy)
        else:
            now = _beside(now, block.order, calls, places, busy, *ahead)
        total = total + now * block.times
    return total


def _in_turn(now: Any, calls: tuple[int, ...], durations: Array) -> Any:
    """As `timeline.in_turn`: rows are added one after the other."""
    steps = np.empty((len(calls) + 1, durations.shape[1]))
    steps[0] = now
    durations.take(calls, axis=0, out=steps[1:], mode="clip")
    return np.add.reduce(steps, axis=0) if durations.shape[1] > 1 else in_turn(steps[0], list(steps[1:]))


def _beside(
    now: Any,
    order: tuple[int, ...],
    calls: tuple[int, ...],
    places: tuple[int | None, ...],
    busy: Array,
    hidden: Array,
    own: Array,
) -> Any:
    """As `timeline.schedule`.

    Args:
        now: time of the collective. [s]
        order, calls, places: of a block, as of `CallTable`.
        busy, hidden: durations of calls, and of those whose bytes are there. [s]
        own: time on the prefetch stream. [s]
    """
    stream = [place for at in order if (place := places[at]) is not None]
    there = dict(zip(stream, np.add.accumulate(own.take(stream, axis=0), axis=0), strict=True))
    end = np.array(np.broadcast_to(now, busy.shape[1:]), dtype=float)
    for row, place in zip(calls, places, strict=True):
        if place is not None:
            np.maximum(end, there[place], out=end)
        end += busy[row] if place is None else hidden[place]
    return end


def _one(of: Numbers, machine: Machine, prefetch: Prefetch, sums: dict[int, Any]) -> Any:
    """Time of a step of one design, whose rates are numbers: arrays of one number would take longer. [s]"""
    records: Any = machine.engines, machine.cache, machine.memory
    engines, cache, memory = records
    overhead, matrix, vector = machine.overhead, engines.matrix, engines.vector
    near, far, size = cache.byte, memory.byte, cache.size
    passing = {row: engines.vectors(operations, 0.0, passes, 1.0) for row, operations, passes in of.streamed}
    own = {row: memory.read(asked)[1] for row, asked in of.strided}
    busy, reading, durations = list[float](), list[float](), list[float]()
    for row, (count, macs, operations, local, nbytes) in enumerate(of.rows):
        work, beside = count * (macs * matrix), passing[row] if row in passing else operations * vector
        work = work if work >= beside else beside
        read = local * (far if local > size else near) + nbytes * own.get(row, far)
        busy.append(work)
        reading.append(read)
        durations.append((work if work >= read else read) + overhead)
    ahead, arrived = list[float](), list[float]()
    if prefetch.policy != "none":
        saved, budget = machine.saved, prefetch.budget
        for row, need, before in of.hidden:
            bytes_in = need if before + need < budget else fitting(need, before, prefetch.policy, budget)[0]
            read = reading[row] - bytes_in * (own[row] - far + saved if row in own else saved)
            ahead.append((busy[row] if busy[row] >= read else read) + overhead)
            arrived.append(bytes_in * far)
    total = 0.0
    for times, opener, calls, stream, placed in of.blocks:
        now = 0.0 if opener is None else sums[id(opener)]
        if ahead and opener is not None:  # as `timeline.schedule`
            fetched, there = 0.0, dict[int, float]()
            for place in stream:
                fetched = there[place] = fetched + arrived[place]
            alone = not isinstance(now, np.ndarray)  # else designs differ in their links
            for row, at in placed:
                if at is not None:
                    now = (there[at] if there[at] > now else now) if alone else np.maximum(now, there[at])
                now = now + (durations[row] if at is None else ahead[at])
        else:
            for row in calls:
                now = now + durations[row]
        total = total + now * times
    return total


def _activations(of: CallTable, each: Any, cache: Cache, memory: Rated) -> Any:
    """Of a byte of activations of each call, in the cache or in main memory. [s/B]"""
    if of.local.max() <= cache.smallest:
        return cache.byte
    if of.local.min() > cache.largest:
        return memory.byte
    return np.where(each(of.local) > cache.size, memory.byte, cache.byte)
