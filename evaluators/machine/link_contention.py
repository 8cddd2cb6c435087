"""Compiled simulation of messages of one instruction that meet on their routes.

The first to reach a link takes it first.

Heads go from link to link in the order of time, not of the arrays, and wait before each one that is held; what is kept of
links and ramps is as in `noc_simulator`, which simulates steps whose messages do not meet.

Each ramp and link takes heads by the time at which they arrive, those of the same time by their place in the arrays. On a mesh
no route comes back to a link that leads to it, so ramps and links are simulated one after the other (`_lines`): out of cores,
along rows, along columns, into cores. Lines of a torus close; there a heap has the head that arrives next anywhere (`_heads`).
Both do the same sums and have the same times, to the bit.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, compiled_part, compiled_with_arrays, inlined_function
from dse.evaluators.machine.mesh_lines import (
    EAST,
    NORTH,
    SOUTH,
    WEST,
    crossings_between,
    line_seconds,
    link_index,
    link_seconds,
    message_ends,
    route_seconds,
    route_word,
    signed_hops,
)


@compiled_with_arrays
def do_messages_meet(sr, sc, tr, tc, torus, shape):
    """Whether two messages share a link, or the core where they leave or arrive."""
    used = np.zeros((4, shape[0] * shape[1]), np.bool_)
    taken = np.zeros((2, shape[0] * shape[1]), np.bool_)
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        east, south = signed_hops(col, to_col, shape[1], torus), signed_hops(row, to_row, shape[0], torus)
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


@compiled_part
def _ahead(row, col, to_col, east, south, ahead, shape):
    """Direction, number and place on its line of the link `ahead` of the first one of a way."""
    across = abs(east)
    if ahead < across:
        way = EAST if east > 0 else WEST
        col = (col + (ahead if east > 0 else -ahead)) % shape[1]
    else:
        way, col, ahead = SOUTH if south > 0 else NORTH, to_col, ahead - across
        row = (row + (ahead if south > 0 else -ahead)) % shape[0]
    line, place, length = link_index(row, col, way, shape)
    return way, line * length + place, place


@compiled_with_arrays
def carry_contending_messages(sr, sc, tr, tc, words, stage, torus, ready, free, engine, ramps, links, fabric, end, read):
    """Carry messages that meet in the network; arguments as for `noc_simulator.carry_messages`."""
    times, heads, left = np.empty(len(sr)), np.empty(len(sr), np.int64), 0
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        if row == to_row and col == to_col:
            end[i] = max(ready[row, col], free[row, col])
            read[row, col] = max(read[row, col], end[i])
            continue
        start = max(ready[row, col], engine[row, col]) + fabric.post
        engine[row, col] = start + words[i] * fabric.copy
        times[left], heads[left] = max(start, free[to_row, to_col]), i
        left += 1
    if torus:
        _heads(sr, sc, tr, tc, words, stage, torus, engine.shape, ramps, links, fabric, end, read, times, heads, left)
    else:
        _lines(sr, sc, tr, tc, words, stage, engine.shape, ramps, links, fabric, end, read, times, heads, left)


@compiled_with_arrays
def _heads(sr, sc, tr, tc, words, stage, torus, shape, ramps, links, fabric, end, read, times, heads, left):
    """Move the first `left` heads from their out ramps at `times`, in order of arrival at any link."""
    hop, ramp = fabric.hop, fabric.ramp
    pace = max(fabric.word, fabric.copy)
    begun, place = np.empty(len(sr)), np.zeros(len(sr), np.int64)
    for at in range(left // 2 - 1, -1, -1):
        _sink(times, heads, at, left)
    while left:
        first, i = times[0], heads[0]
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        east, south = signed_hops(col, to_col, shape[1], torus), signed_hops(row, to_row, shape[0], torus)
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


@compiled_with_arrays
def _lines(sr, sc, tr, tc, words, stage, shape, ramps, links, fabric, end, read, times, heads, left):
    """Move the first `left` heads from their out ramps at `times` on a mesh, one ramp or link at a time."""
    ramp, (rows, cols) = fabric.ramp, shape
    sources, turns, targets = np.empty(left, np.int64), np.empty(left, np.int64), np.empty(left, np.int64)
    begun, busy, stream, way_time = np.empty(left), np.empty(left), np.empty(left), np.empty(left)
    time = times[:left].copy()
    for k in range(left):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, heads[k])
        sources[k], turns[k], targets[k] = row * cols + col, row * cols + to_col, to_row * cols + to_col
        crossings = crossings_between(row, col, to_row, to_col, fabric)
        word = route_word(crossings, fabric)
        busy[k], stream[k] = words[heads[k]] * word, words[heads[k]] * max(word, fabric.copy)
        way_time[k] = route_seconds(abs(to_row - row) + abs(to_col - col), crossings, fabric)
    who, first_of, queue, spare = np.empty(left, np.int64), np.empty(rows * cols + 1, np.int64), heads.copy(), heads.copy()
    keys = times.copy()
    _group(sources, first_of, who)
    for core in range(rows * cols):
        row, col = core // cols, core % cols
        _by_time(who, first_of[core], first_of[core + 1], time, keys, queue)
        for at in range(first_of[core], first_of[core + 1]):
            k = who[at]
            begun[k] = first = max(time[k], ramps[0, row, col])
            ramps[0, row, col] = first + stream[k]
            read[row, col] = max(read[row, col], first + stream[k])
            time[k] = first + ramp
    heads_of = time, busy, who, first_of
    space = queue, spare, keys
    for row in range(rows):
        for way in (EAST, WEST):
            _line(way, row, cols, row * cols, 1, sources, turns, targets, heads_of, space, links, fabric)
    _group(turns, first_of, who)
    for col in range(cols):
        for way in (SOUTH, NORTH):
            _line(way, col, rows, col, cols, turns, targets, targets, heads_of, space, links, fabric)
    _group(targets, first_of, who)
    for core in range(rows * cols):
        row, col = core // cols, core % cols
        _by_time(who, first_of[core], first_of[core + 1], time, keys, queue)
        for at in range(first_of[core], first_of[core + 1]):
            k = who[at]
            first = max(time[k], ramps[1, row, col])
            ramps[1, row, col] = first + busy[k]
            end[heads[k]] = max(begun[k] + 2 * ramp + way_time[k] + stream[k], first + busy[k]) + stage


@called_part
def _line(way, line, length, core, stride, source, target, targets, heads_of, space, links, fabric):
    """Move heads along the links of a line of cores in one direction, in order of arrival at each link.

    Args:
        way, line, length: which line, and its cores.
        core, stride: the first one, and how far the next one is.
        here, there: core of each head where it comes to the line, and where it leaves it.
        targets: core that it is for.
        heads_of: of each head, when it comes to what is next, and how long it takes a link [s]; then heads by core where they
            come to the line, and where those of each core begin.
        space: two arrays for heads, and one for times.
    """
    time, busy, who, first_of = heads_of
    queue, spare, keys = space
    ramp = fabric.ramp
    ahead, count = way not in (WEST, NORTH), 0
    if not ahead:
        core, stride = core + (length - 1) * stride, -stride
    for place in range(length - 1):
        begin, stop = _onward(who, first_of[core], first_of[core + 1], source, target, ahead)
        core += stride  # where the link leads
        if begin == stop and count == 0:
            continue
        _by_time(who, begin, stop, time, keys, spare)
        link, along = line * length + place, line_seconds(way, place, length, fabric)
        hop = link_seconds(way, place, length, fabric)
        held, at, kept, latest = links[way, link], 0, 0, -np.inf
        while at < count or begin < stop:
            if begin == stop or (at < count and _comes_first(queue[at], who[begin], time)):
                k = queue[at]
                at += 1
            else:
                k = who[begin]
                begin += 1
            first = max(time[k], held + along)
            held = first - along + busy[k]
            if target[k] == core:
                time[k] = first + (hop + (ramp if targets[k] == core else 0.0))
                continue
            first += hop
            time[k] = first
            spare[kept] = k
            if first <= latest:
                _bring_forward(spare, kept, time)
            latest, kept = max(latest, first), kept + 1
        links[way, link] = held
        queue, spare, count = spare, queue, kept


@inlined_function
def _comes_first(message, other, time):
    """Whether a head comes before another one."""
    return time[message] < time[other] or (time[message] == time[other] and message < other)


@compiled_part
def _bring_forward(queue, at, time):
    """Move the last of so many heads before those that come later."""
    k = queue[at]
    while at > 0 and _comes_first(k, queue[at - 1], time):
        queue[at] = queue[at - 1]
        at -= 1
    queue[at] = k


@compiled_part
def _group(cores, first_of, who):
    """Sort heads by core into `who`, those of a core in their order; filled in too is where those of each core begin."""
    first_of[:] = 0
    for k in range(len(cores)):
        first_of[cores[k] + 1] += 1
    for core in range(len(first_of) - 1):
        first_of[core + 1] += first_of[core]
    for k in range(len(cores)):
        who[first_of[cores[k]]] = k
        first_of[cores[k]] += 1
    for core in range(len(first_of) - 1, 0, -1):
        first_of[core] = first_of[core - 1]
    first_of[0] = 0


@compiled_part
def _onward(who, begin, stop, source, target, ahead):
    """Bring those heads of a core that go on along a line, ahead or back, to the end of its range; return that part of it."""
    at = stop
    for other in range(stop - 1, begin - 1, -1):
        k = who[other]
        if (target[k] > source[k]) if ahead else (target[k] < source[k]):
            at -= 1
            who[other], who[at] = who[at], k
    return at, stop


@compiled_part
def _by_time(who, begin, stop, time, keys, scratch):
    """Sort a range of heads by arrival, those of the same time by their number; `keys` and `scratch` are overwritten."""
    count = stop - begin
    if count < 2:
        return
    for at in range(count):
        keys[at], scratch[at] = time[who[begin + at]], who[begin + at]
    for at in range(count // 2 - 1, -1, -1):
        _sink(keys, scratch, at, count)
    for at in range(begin, stop):
        who[at] = scratch[0]
        count -= 1
        keys[0], scratch[0] = keys[count], scratch[count]
        _sink(keys, scratch, 0, count)


@compiled_part
def _sink(times, heads, at, count):
    """Brings the head at a place of a heap, whose first one is the earliest, to where it belongs."""
    time, head = times[at], heads[at]
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count:
            message, other = times[below], times[below + 1]
            if other < message or (other == message and heads[below + 1] < heads[below]):
                below += 1
        if times[below] > time or (times[below] == time and heads[below] > head):
            break
        times[at], heads[at] = times[below], heads[below]
        at = below
    times[at], heads[at] = time, head
