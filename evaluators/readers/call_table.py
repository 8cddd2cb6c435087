"""All calls of a step at once, where they are numbers and few designs run them: an array costs what a number does.

What a call takes is said where `price` finds it, in the machine; here calls are rows, and designs columns. A pool of cores
behind a cache has neither programs nor messages of its own.
"""

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.machine.laid import Asked
from dse.evaluators.machine.machine import Machine
from dse.evaluators.passes.call import NOTHING, ONCE, Block, Call
from dse.evaluators.passes.prefetch import fitting
from dse.evaluators.readers.price import Prefetch, Reader
from dse.evaluators.readers.timeline import in_turn, schedule
from dse.space.elementwise import Array
from dse.space.remember import same

MOST = 128
"""Designs that are worked out so; of more, what is the same for all of them is worth to be worked out once."""

WIDTH = 2.0
"""Bytes of a value, which engines of a pool do not ask for: a call has its own pace."""


class CallTable(NamedTuple):
    """Calls of a step, one block after the other; columns of shape (calls, 1).

    Attributes:
        product: count, m, k and n of each; zeros where it has none.
        vector: operations, special ones and elements that pass by, likewise.
        fetch, local: as of `Call`. [B]
        ahead, before: what can be prefetched, and what was asked for before it in the order of its block. [B]
        strided: rows that read in pieces, with what they ask for.
        blocks: with the first row of each, the one after its last, and places of what can be prefetched, in that order.
    """

    product: tuple[Array, ...]
    vector: tuple[Array, ...]
    fetch: Array
    local: Array
    ahead: Array
    before: Array
    strided: tuple[tuple[int, Asked], ...]
    blocks: tuple[tuple[Block, int, int, tuple[int, ...]], ...]


@partial(same, few=64)
def table(blocks: tuple[Block, ...]) -> CallTable | None:
    """The calls of a step as a table; None where some are no numbers, or ask for more than engines, cache and memory."""
    calls = [call for block in blocks for call in block.calls]
    if not all(map(_numbers, calls)):
        return None
    fetch = [of.fetch if of.reads else 0.0 for of in calls]
    rows, ahead, before, start = list[tuple[Block, int, int, tuple[int, ...]]](), [0.0] * len(calls), [0.0] * len(calls), 0
    for block in blocks:
        order, used = tuple(at for at in block.order if block.opener is not None and block.calls[at].reads), 0.0
        for row in (start + at for at in order):
            ahead[row], before[row] = fetch[row], used
            used = used + fetch[row]
        rows.append((block, start, start + len(block.calls), order))
        start += len(block.calls)
    products = (of.products[0] if of.products else (0.0, 0.0, 0.0, 0.0) for of in calls)
    paced = [(count, m if of.pace is ONCE else m * of.pace, k, n) for of, (count, m, k, n) in zip(calls, products, strict=True)]
    vector = [(of.operations or 0.0, of.specials, of.streamed) for of in calls]
    strided = tuple((row, Asked(of.fetch, of.piece, of.stride)) for row, of in enumerate(calls) if of.reads and of.stride)
    product, vectors = _columns(*zip(*paced, strict=True)), _columns(*zip(*vector, strict=True))
    fetched, local, hidden, asked = _columns(fetch, [of.local for of in calls], ahead, before)
    return CallTable(product, vectors, fetched, local, hidden, asked, strided, tuple(rows))


def _columns(*leaves: Sequence[float]) -> tuple[Array, ...]:
    """Leaves of calls, each as a column."""
    return tuple(np.array(leaf, dtype=float)[:, None] for leaf in leaves)


def _numbers(of: Call) -> bool:
    """Whether a call is one of engines, cache and memory alone, and of one design and step."""
    if (of.kernel, of.job, of.group, of.exchange) != (None,) * 4 or len(of.products) > 1 or of.wrote is not NOTHING:
        return False
    engines = (*(leaf for product in of.products for leaf in product), of.pace, of.specials, of.streamed)
    leaves = (*engines, 0.0 if of.operations is None else of.operations, of.fetch, of.piece, of.stride, of.local)
    return all(isinstance(leaf, int | float) for leaf in leaves) and of.stride != inf


def seconds(blocks: tuple[Block, ...], machine: Machine, reader: Reader, prefetch: Prefetch) -> Any:
    """Time of a step: what its blocks take as `price.timed` has them; None where no table does it. [s]"""
    engines, cache, memory = machine.engines, machine.cache, machine.memory
    if engines is None or cache is None or memory is None or machine.library is not None or prefetch.once is not None:
        return None
    if reader.banks is not None:
        return None
    records: Any = engines, memory  # of numbers, each of one design or of many
    rates = (*records[0], cache.byte, cache.size, *records[1][:4], machine.overhead, prefetch.budget)
    designs = max(len(rate) if isinstance(rate, np.ndarray) else 1 for rate in rates)
    of = table(blocks) if designs <= MOST else None
    if of is None:
        return None
    count, m, k, n = of.product
    byte, hidden = memory.byte, prefetch.policy != "none"
    operations, specials, streamed = of.vector
    busy = engines.together(count * engines.started(m, k, n, WIDTH), engines.vectors(operations, specials, streamed, 1.0))
    read: Any = of.fetch * byte
    saved: Any = 0.0
    if hidden:
        bytes_in, _ = fitting(of.ahead, of.before, prefetch.policy, prefetch.budget)
        saved = bytes_in * machine.saved
    if of.strided and designs > 1:
        read, saved = (np.array(np.broadcast_to(column, (len(of.fetch), designs))) for column in (read, saved))
    for row, asked in of.strided:
        read[row], own = memory.read(asked)
        if hidden:
            saved[row] = bytes_in[row] * (own - byte + machine.saved)
    reading = of.local * np.where(of.local > cache.size, byte, cache.byte) + read
    durations = _rows(np.maximum(busy, reading - saved) + machine.overhead)
    fetched = _rows(bytes_in * byte) if hidden else []
    sums: dict[int, Any] = {}
    total: Any = 0.0
    for block, start, end, order in of.blocks:
        now: Any = 0.0
        if block.opener is not None:
            place = id(block.opener)
            if place not in sums:
                sums[place] = reader.collective(block.opener, machine)
            now = sums[place]
        if order and hidden:
            now = schedule(now, durations[start:end], fetched[start:end], order)
        else:
            now = in_turn(now, durations[start:end])
        total = total + now * block.times
    return total


def _rows(of: Array) -> list[Any]:
    """Rows of designs; of one design numbers."""
    return of[:, 0].tolist() if of.shape[1] == 1 else list(of)
