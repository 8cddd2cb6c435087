"""Runs of decode-only iterations, compiled, while nothing else can reach their instance.

Nearly all iterations are of this kind if instances keep up with the load. From one to the next each request has one
position more and nothing else changes, so sums are kept at hand and booked when the run is over, in the order in which
they would have been booked one by one.

Throughout: s is the `simulator_state.ServingState`, q a request, here an instance, pool its pool, lane one of its
lanes, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from dse.evaluators.machine.compile_cache import called_part, inlined_function
from dse.evaluators.serving.block_allocation import blocks_needed, steps_with_equal_blocks, wait_reason
from dse.evaluators.serving.busiest_iterations import keep_busiest, span_index
from dse.evaluators.serving.iteration_time_lookup import CONTEXT, decode_corners, interpolate_context
from dse.evaluators.serving.prefix_blocks import evict_blocks, next_block_position
from dse.evaluators.serving.simulator_state import BATCH, MEMORY
from dse.evaluators.serving.token_gap_histogram import count_gap, gap_bin


@inlined_function
def log_iteration(s, instance, lane, t, end, step):
    """Log an iteration, if fewer than the log's length were logged before."""
    f, row = s.step[0], s.log[s.total[0].logged]
    row.start, row.end, row.instance, row.lane = t, end, instance.number, lane.number - instance.first_lane
    row.prompt, row.requests, row.positions, row.queued = f.prompt, f.requests, f.positions, instance.queued
    row.pairs, row.past, row.far, row.step = f.pairs, f.past, f.far, step
    s.total[0].logged += 1


@inlined_function
def _longest(s, instance, pool, running, count):
    """Iterations after which something can change in a lane by itself: a request ends, or its blocks do not grow evenly.

    What blocks grow by in each iteration is in `scratch`, after so many of a block.
    """
    grows, longest = s.scratch, max(1, s.total[0].work)
    grows[: pool.block] = 0
    for k in range(count):
        q = s.requests[running[k]]
        longest = min(longest, q.output - q.made - 1)
        # blocks are taken when these are full, and every `block` iterations after; all are there where a lifetime is reserved
        if not pool.lifetime:
            full = q.room * pool.block - q.prompt - q.made + 1
            grows[full % pool.block] += blocks_needed(s, pool, q.room + 1) - blocks_needed(s, pool, q.room)
            longest = min(longest, full + steps_with_equal_blocks(s, pool, q) * pool.block - 1)
        if pool.pooled and next_block_position(pool, q) > 0:
            # what enters can be shared, by whoever waits
            longest = min(longest, next_block_position(pool, q) - q.prompt - q.made)
    return longest


@inlined_function
def _book(s, instance, pool, lane, t, played, read):
    """Book skipped iterations up to an instant, and the positions that they read; their requests continue."""
    f, work, total, count = s.step[0], s.work[instance.pool, 0, span_index(s.step[0])], s.total[0], lane.count
    instance.peak = max(instance.peak, instance.used + instance.paged)
    f.positions -= count
    keep_busiest(s.busiest[instance.pool], f)  # of those played the last reads most
    f.positions += count
    work.iterations += played
    work.requests += played * f.requests
    work.positions += read
    total.iterations += played
    total.decoded += played * count
    total.work -= played
    for k in range(count):
        q = s.requests[s.running[lane.number, k]]
        q.made += played
        q.last = t
        q.room = max(q.room, -(-(q.prompt + q.made) // pool.block))
        q.blocks = blocks_needed(s, pool, q.room) - q.spilled - q.shared
    if pool.pooled:
        evict_blocks(s, instance, pool)


@called_part
def skip_decode_iterations(s, price, instance, pool, lane, t, horizon):
    """Skip through iterations in which all requests of a lane decode and none ends, up to a horizon.

    The iterations differ by one position per request, so each needs one time. The first one has been formed; the
    formed iteration at the end is the one after those skipped, and the instant of its start is returned.
    """
    f, running, requests, gaps, grows = s.step[0], s.running[lane.number], s.requests, s.gaps, s.scratch
    count, played, slot = lane.count, 0, 1 % pool.block
    longest = _longest(s, instance, pool, running, count)
    # the first chunk of who waits for memory begins where its known prefix ends, and takes less where some of that has to go
    shrinks = pool.pooled and pool.by_chunk and instance.why == MEMORY
    positions, place, same, times = f.positions, -1, 0.0, 0
    # a price: what it has of all contexts, and the cell of a table that a context is in
    c, tabled, grid, size = price.linear, len(price.table) > 0, price.grid[CONTEXT], price.sizes[CONTEXT]
    base, low = c[0] + c[3] * f.requests, 0
    corners = decode_corners(price, f.requests) if tabled else 0
    begin, width = (grid[0], grid[1] - grid[0]) if tabled and size > 1 else (0.0, math.inf)
    # what is added up one by one: an instance's seconds and block-seconds, and positions that are read
    busy, area, since, read = instance.busy, instance.area, instance.since, 0.0
    by_batch, by_memory = instance.by_batch, instance.by_memory
    while played < longest:
        step = base + c[4] * positions
        if tabled:
            context = positions / f.requests
            while low < size - 2 and grid[low + 1] <= context:
                low += 1
                begin, width = grid[low], grid[low + 1] - grid[low]
            step += interpolate_context(price, corners, low, (context - begin) / width)
        end, more = t + step, grows[slot]
        if not (step > 0 and end < horizon and instance.used + more <= pool.blocks):
            break
        if shrinks and more > 0 and instance.used + more + instance.cached > pool.blocks:
            break
        if played == 0:
            for k in range(count):
                count_gap(gaps, end - requests[running[k]].last, 1)
        else:
            gap = end - t
            found_gap_bin = gap_bin(gaps, gap)
            if found_gap_bin != place:
                if place >= 0:
                    gaps[place].count, gaps[place].seconds = times, same
                place, times, same = found_gap_bin, gaps[found_gap_bin].count, gaps[found_gap_bin].seconds
            times += count
            same += count * gap
        if s.total[0].logged < len(s.log):
            f.positions = positions
            log_iteration(s, instance, lane, t, end, step)
        busy, read, t = busy + step, read + positions, end
        area += (t - since) * (instance.used + instance.paged)
        if instance.why == BATCH:
            by_batch += t - since
        elif instance.why == MEMORY:
            by_memory += t - since
        since = t
        positions, played = positions + count, played + 1
        slot = slot + 1 if slot + 1 < pool.block else 0
        if more > 0:
            instance.used += more
            if pool.static:
                # who waits for a batch to end may from now on wait for memory as well
                if pool.pooled:
                    evict_blocks(s, instance, pool)
                instance.why = wait_reason(s, instance)
    if played == 0:
        return t
    if place >= 0:
        gaps[place].count, gaps[place].seconds = times, same
    instance.busy, instance.area, instance.since, instance.due = busy, area, since, True
    instance.by_batch, instance.by_memory = by_batch, by_memory
    f.positions = positions
    _book(s, instance, pool, lane, t, played, read)
    s.stage_free[instance.number, 0] = t
    return t
