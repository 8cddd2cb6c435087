"""What rounds of the events reader wait for, and what they move, over slots of a mesh's cores at a time, compiled.

`ready` and `read` have the times of all slots, shape (slots, rows, cols) and (slots, versions, rows, cols), the newest version
first; a slot that has fewer versions uses the first ones. Slots are numbers, and `ages` of them are places of the version that
is overwritten next. All times in seconds.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine import noc
from dse.evaluators.machine.compile_cache import cached_njit

_compiled = cached_njit()
_largest = cached_njit(fastmath={"nnan", "nsz"})


@_largest
def _latest(times, least, first, stop):
    """The largest of some rows, at least `least`."""
    for row in range(first, stop):
        for col in range(times.shape[1]):
            if times[row, col] > least:
                least = times[row, col]
    return least


@_compiled
def soonest(ready, read, reads, writes, ages, engine, first, stop):
    """When a step can start everywhere on rows `first` to `stop`, and when all that it needs but its engine is there."""
    there = 0.0
    for i in range(len(reads)):
        there = _latest(ready[reads[i]], there, first, stop)
    for i in range(len(writes)):
        there = _latest(read[writes[i], ages[i]], there, first, stop)
    return _latest(engine, there, first, stop), there


@_compiled
def worked(ready, read, inputs, out, age, summed, engine, seconds, first, stop):
    """Engines of some rows work for `seconds` on what they hold, from when slot `out` may be written; `summed` adds to it."""
    for row in range(first, stop):
        for col in range(engine.shape[1]):
            end = max(engine[row, col], read[out, age, row, col])
            if summed:
                end = max(end, ready[out, row, col])
            for i in range(len(inputs)):
                end = max(end, ready[inputs[i], row, col])
            end += seconds
            engine[row, col] = end
            ready[out, row, col] = end
            for i in range(len(inputs)):
                read[inputs[i], 0, row, col] = max(read[inputs[i], 0, row, col], end)


@_compiled
def arrived(blocks, ready, ramps, links, memory, fabric):
    """Blocks that have left their channels come to their cores, whichever leaves first before others.

    Args:
        blocks: row, column, channel, words, slot and when the first word may leave of each, shape (blocks, 6).
        ready, ramps, links, memory, fabric: as of `noc.deliveries`, `ready` of all slots.
    """
    order = np.argsort(blocks[:, 5], kind="mergesort")
    row, col, channel = (np.empty(len(order), np.int32), np.empty(len(order), np.int32), np.empty(len(order), np.int32))
    words, first, end = np.empty(len(order)), np.empty(len(order)), np.empty(len(order))
    for i in range(len(order)):
        of = order[i]
        row[i], col[i], channel[i] = int(blocks[of, 0]), int(blocks[of, 1]), int(blocks[of, 2])
        words[i], first[i] = blocks[of, 3], blocks[of, 5]
    noc.deliveries(row, col, channel, words, first, ramps, links, memory, fabric, end)
    for i in range(len(order)):
        slot = int(blocks[order[i], 4])
        ready[slot, row[i], col[i]] = max(ready[slot, row[i], col[i]], end[i])


@_compiled
def parted(blocks, until):
    """Blocks that may leave until some time before others, each kind in its order; how many, and when the first other may."""
    found, early, late, soonest = np.empty_like(blocks), 0, 0, np.inf
    for i in range(len(blocks)):
        late += blocks[i, 5] <= until
    count = late
    for i in range(len(blocks)):
        if blocks[i, 5] <= until:
            found[early] = blocks[i]
            early += 1
        else:
            found[late] = blocks[i]
            soonest = min(soonest, blocks[i, 5])
            late += 1
    return found, count, soonest


@_compiled
def requested(row, col, channel, words, nbytes, asked, dma, served, memory, fabric, depths, ready, read, blocks):
    """Blocks are asked for, those whose request is there first before others; arguments as of `noc.requests`.

    A block's slot is ready once it would be at its core if nothing were in its way.

    Args:
        depths: versions of each slot.
        ready, read: of all slots.
        blocks: as of `arrived`, filled with when the first word of each may leave its channel.
    """
    there, away = np.empty(len(row)), np.empty(len(row))
    for i in range(len(row)):
        away[i] = (abs(memory.row[channel[i]] - row[i]) + abs(memory.col[channel[i]] - col[i])) * fabric.hop
        there[i] = asked[i] + away[i]
    order = np.argsort(there, kind="mergesort")
    first = np.empty(len(row))
    noc.requests(
        row[order], col[order], channel[order], words[order], nbytes[order], asked[order], dma, served, memory, fabric, first
    )
    for i in range(len(row)):
        blocks[order[i], 5] = first[i]
    for i in range(len(row)):
        slot, r, c = int(blocks[i, 4]), row[i], col[i]
        soonest = blocks[i, 5] + away[i] + fabric.ramp + words[i] * fabric.word
        ready[slot, r, c] = max(ready[slot, r, c], soonest)
        for age in range(depths[slot] - 1, 0, -1):
            read[slot, age, r, c] = read[slot, age - 1, r, c]
        read[slot, 0, r, c] = max(read[slot, 0, r, c], ready[slot, r, c])


@_compiled
def asked(row, col, free, dma, asked):
    """When each core's slot and DMA engine are free for a block."""
    for i in range(len(row)):
        asked[i] = max(free[row[i], col[i]], dma[row[i], col[i]])
