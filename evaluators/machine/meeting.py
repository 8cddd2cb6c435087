"""Messages of one step that meet on their ways, compiled: whoever comes to a link first takes it first.

Heads go from link to link in the order of time, not of the arrays, and wait before each one that is held; what is kept of
links and ramps is as in `noc`, which plays steps whose messages do not meet.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import making, part
from dse.evaluators.machine.noc import EAST, NORTH, SOUTH, WEST, ends, link_at, steps


@making
def meet(sr, sc, tr, tc, torus, shape):
    """Whether two messages share a link, or where they leave or arrive."""
    used = np.zeros((4, shape[0] * shape[1]), np.bool_)
    taken = np.zeros((2, shape[0] * shape[1]), np.bool_)
    for i in range(len(sr)):
        row, col, to_row, to_col = ends(sr, sc, tr, tc, i)
        east, south = steps(col, to_col, shape[1], torus), steps(row, to_row, shape[0], torus)
        if east == 0 and south == 0:
            continue
        source, target = row * shape[1] + col, to_row * shape[1] + to_col
        if taken[0, source] or taken[1, target]:
            return True
        taken[0, source] = taken[1, target] = True
        for ahead in range(abs(east) + abs(south)):
            way, link, _ = _ahead(row, col, to_col, east, south, ahead, shape)
            if used[way, link]:
                return True
            used[way, link] = True
    return False


@part
def _ahead(row, col, to_col, east, south, ahead, shape):
    """Direction, number and place on its line of the link `ahead` of the first one of a way."""
    across = abs(east)
    if ahead < across:
        way = EAST if east > 0 else WEST
        col = (col + (ahead if east > 0 else -ahead)) % shape[1]
    else:
        way, col, ahead = SOUTH if south > 0 else NORTH, to_col, ahead - across
        row = (row + (ahead if south > 0 else -ahead)) % shape[0]
    line, place, length = link_at(row, col, way, shape)
    return way, line * length + place, place


@making
def met(sr, sc, tr, tc, words, stage, torus, ready, free, engine, ramps, links, fabric, end, read):
    """Messages that the network carries; arguments as for `noc.carried`."""
    hop, ramp, shape = fabric.hop, fabric.ramp, engine.shape
    pace = max(fabric.word, fabric.copy)
    begun, place = np.empty(len(sr)), np.zeros(len(sr), np.int64)
    times, heads, left = np.empty(len(sr)), np.empty(len(sr), np.int64), 0
    for i in range(len(sr)):
        row, col, to_row, to_col = ends(sr, sc, tr, tc, i)
        if row == to_row and col == to_col:
            end[i] = max(ready[row, col], free[row, col])
            read[row, col] = max(read[row, col], end[i])
            continue
        start = max(ready[row, col], engine[row, col]) + fabric.post
        engine[row, col] = start + words[i] * fabric.copy
        times[left], heads[left] = max(start, free[to_row, to_col]), i
        left += 1
    for at in range(left // 2 - 1, -1, -1):
        _sink(times, heads, at, left)
    while left:
        first, i = times[0], heads[0]
        row, col, to_row, to_col = ends(sr, sc, tr, tc, i)
        east, south = steps(col, to_col, shape[1], torus), steps(row, to_row, shape[0], torus)
        stream, busy, hops = words[i] * pace, words[i] * fabric.word, abs(east) + abs(south)
        if place[i] == 0:
            begun[i] = first = max(first, ramps[0, row, col])
            ramps[0, row, col] = first + stream
            read[row, col] = max(read[row, col], first + stream)
            first += ramp
        elif place[i] <= hops:
            way, link, along = _ahead(row, col, to_col, east, south, place[i] - 1, shape)
            first = max(first, links[way, link] + along * hop)
            links[way, link] = first - along * hop + busy
            first += hop + (ramp if place[i] == hops else 0.0)
        else:
            first = max(first, ramps[1, to_row, to_col])
            ramps[1, to_row, to_col] = first + busy
            end[i] = max(begun[i] + 2 * ramp + hops * hop + stream, first + busy) + stage
            left -= 1
            first, heads[0] = times[left], heads[left]
        place[i] += 1
        times[0] = first
        _sink(times, heads, 0, left)


@part
def _sink(times, heads, at, count):
    """Brings the head at a place of a heap, whose first one is the earliest, to where it belongs."""
    time, head = times[at], heads[at]
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count:
            one, other = times[below], times[below + 1]
            if other < one or (other == one and heads[below + 1] < heads[below]):
                below += 1
        if times[below] > time or (times[below] == time and heads[below] > head):
            break
        times[at], heads[at] = times[below], heads[below]
        at = below
    times[at], heads[at] = time, head
