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
        blocks: row, column, channel, words, slot and when the first word may leave, shape (6, blocks).
        ready, ramps, links, memory, fabric: as of `noc.deliveries`, `ready` of all slots.
    """
    order = np.argsort(blocks[5], kind="mergesort")
    row, col, channel = (np.empty(len(order), np.int32), np.empty(len(order), np.int32), np.empty(len(order), np.int32))
    words, first, end = np.empty(len(order)), np.empty(len(order)), np.empty(len(order))
    for i in range(len(order)):
        of = order[i]
        row[i], col[i], channel[i] = int(blocks[0, of]), int(blocks[1, of]), int(blocks[2, of])
        words[i], first[i] = blocks[3, of], blocks[5, of]
    noc.deliveries(row, col, channel, words, first, ramps, links, memory, fabric, end)
    for i in range(len(order)):
        slot = int(blocks[4, order[i]])
        ready[slot, row[i], col[i]] = max(ready[slot, row[i], col[i]], end[i])


@_compiled
def requested(row, col, channel, words, nbytes, asked, dma, served, memory, fabric, first, soonest):
    """Blocks are asked for, those whose request is there first before others; arguments as of `noc.requests`.

    Args:
        first: filled with when the first word of each block may leave its channel.
        soonest: filled with when each block is at its core if nothing is in its way.
    """
    there, away = np.empty(len(row)), np.empty(len(row))
    for i in range(len(row)):
        away[i] = (abs(memory.row[channel[i]] - row[i]) + abs(memory.col[channel[i]] - col[i])) * fabric.hop
        there[i] = asked[i] + away[i]
    order = np.argsort(there, kind="mergesort")
    ordered = np.empty(len(row))
    noc.requests(
        row[order], col[order], channel[order], words[order], nbytes[order], asked[order], dma, served, memory, fabric, ordered
    )
    for i in range(len(row)):
        first[order[i]] = ordered[i]
    for i in range(len(row)):
        soonest[i] = first[i] + away[i] + fabric.ramp + words[i] * fabric.word


@_compiled
def asked(row, col, free, dma, asked):
    """When each core's slot and DMA engine are free for a block."""
    for i in range(len(row)):
        asked[i] = max(free[row[i], col[i]], dma[row[i], col[i]])
