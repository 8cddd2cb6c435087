"""Compiled timing of rounds in the event-driven simulator, over buffers of a mesh's cores.

`ready` and `read` have the times of all slots, shape (slots, rows, cols) and (slots, versions, rows, cols), the newest version
first; a slot that has fewer versions uses the first ones. Slots are numbers, and `ages` of them are places of the version that
is overwritten next. All times in seconds.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine import noc_simulator as noc
from dse.evaluators.machine.channel_queue import serve_block
from dse.evaluators.machine.compile_cache import compiled_loop, compiled_part, compiled_with_arrays, fast_maximum


@fast_maximum
def _latest(times, least, first, stop):
    """The largest of some rows, at least `least`."""
    for row in range(first, stop):
        for col in range(times.shape[1]):
            if times[row, col] > least:
                least = times[row, col]
    return least


@compiled_loop
def earliest_start(ready, read, reads, writes, ages, engine, first, stop):
    """Times at which an instruction can start everywhere on rows `first` to `stop`.

    The second is that without its engine.
    """
    last_time = 0.0
    for i in range(len(reads)):
        last_time = _latest(ready[reads[i]], last_time, first, stop)
    for i in range(len(writes)):
        last_time = _latest(read[writes[i], ages[i]], last_time, first, stop)
    return _latest(engine, last_time, first, stop), last_time


@compiled_loop
def run_engines(ready, read, inputs, out, age, summed, engine, seconds, first, stop):
    """Run engines of some rows for `seconds` on ready inputs, into buffer `out`.

    They start when `out` may be written; `summed` adds to it.
    """
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


@compiled_loop
def deliver_blocks(blocks, ready, ramps, links, memory, fabric):
    """Deliver blocks that have left their channels to their cores, one after the other.

    Args:
        blocks: row, column, channel, words, slot and when the first word may leave of each, shape (blocks, 6),
            whichever leaves first before others.
        ready, ramps, links, memory, fabric: as of `noc_simulator.carry_reductions`, but `ready` is of all slots; and the
            channels.
    """
    for i in range(len(blocks)):
        row, col = np.int64(blocks[i, 0]), np.int64(blocks[i, 1])
        channel, slot = np.int64(blocks[i, 2]), np.int64(blocks[i, 4])
        end = noc.deliver_block(row, col, channel, blocks[i, 3], blocks[i, 5], ramps, links, memory, fabric)
        ready[slot, row, col] = max(ready[slot, row, col], end)


@compiled_with_arrays
def split_blocks_by_time(blocks, until):
    """Split blocks into those that may leave until a time and the others, each in order.

    Returns how many leave, and when the first of the others may.
    """
    served, early, late, soonest = np.empty_like(blocks), 0, 0, np.inf
    for i in range(len(blocks)):
        late += blocks[i, 5] <= until
    count = late
    for i in range(len(blocks)):
        if blocks[i, 5] <= until:
            place, early = early, early + 1
        else:
            place, late = late, late + 1
            soonest = min(soonest, blocks[i, 5])
        for column in range(blocks.shape[1]):
            served[place, column] = blocks[i, column]
    return served, count, soonest


@compiled_part
def _served(order, row, col, channel, words, nbytes, ask_times, dma, served, pauses, memory, fabric, blocks):
    """Request blocks from memory channels, in the order in which requests arrive.

    A request crosses the mesh and waits for its channel.

    Args:
        order: blocks, whose request is there first before others.
        channel, words, nbytes: of each block.
        ask_times: when each core's slot and DMA engine are free for it.
        served, pauses: of channels, as of `serve_block`.
        memory: the channels.
        blocks: filled with when the first word of each may leave its channel, so that none waits for the next one.
    """
    for k in range(len(order)):
        i = order[k]
        r, c, at = row[i], col[i], channel[i]
        start = max(ask_times[i], dma[r, c]) + fabric.post
        dma[r, c] = start
        arrival = start + fabric.ramp + noc.block_seconds(r, c, at, memory, fabric)
        begin, through = serve_block(at, arrival, nbytes[i], False, served, pauses, memory)
        blocks[i, 5] = max(begin, through - words[i] * noc.block_word(r, c, at, memory, fabric)) + memory.latency


@compiled_loop
def request_blocks(
    order, row, col, channel, words, nbytes, away, ask_times, dma, served, pauses, memory, fabric, depths, ready, read, blocks
):
    """Request blocks from their channels, in the order in which requests arrive there.

    A block's slot is ready once it would be at its core if nothing were in its way.

    Args:
        away: of the channel of each block from its core. [s]
        depths: versions of each slot.
        ready, read: of all slots.
        blocks: as of `deliver_blocks`, filled with when the first word of each may leave its channel.
    """
    _served(order, row, col, channel, words, nbytes, ask_times, dma, served, pauses, memory, fabric, blocks)
    for i in range(len(row)):
        slot, r, c = np.int64(blocks[i, 4]), row[i], col[i]
        soonest = blocks[i, 5] + away[i] + fabric.ramp + words[i] * noc.block_word(r, c, channel[i], memory, fabric)
        ready[slot, r, c] = max(ready[slot, r, c], soonest)
        for age in range(depths[slot] - 1, 0, -1):
            read[slot, age, r, c] = read[slot, age - 1, r, c]
        read[slot, 0, r, c] = max(read[slot, 0, r, c], ready[slot, r, c])


@compiled_loop
def request_times(row, col, free, dma, ask_times):
    """Times at which each core's buffer and DMA engine are free for a block. [s]"""
    for i in range(len(row)):
        ask_times[i] = max(free[row[i], col[i]], dma[row[i], col[i]])
