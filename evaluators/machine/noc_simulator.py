"""Compiled event-driven simulation of messages on the links and ramps of a network on chip.

Routes go along the columns first, then along the rows. A message streams: its first word waits before each link until that is
free, and then the link is held for as long as words take it. Where a core's engine paces words below what links take, others'
come between, so that a wait may be over before the last word has left. What goes to several cores, or comes from them, starts
when it finds every link free. Who comes first in the arrays goes first.

Arrays over the mesh have shape (rows, cols); `ramps` is (2, rows, cols), out and in. `links` is (4, rows cols), towards east,
west, south and north, those that a route takes one after the other side by side. What is kept of a link is until when it is
held, less the time of the links before it on its line: along a route that is one time. The last link of a line closes it, which
routes use on a torus, where that way is shorter. Where every pair of cores has a link, `links` is (cores, cores). All times in
seconds.

Where a mesh is divided into dies, a link from die to die takes `crossing` more, and words of a message that crosses one take
`crossing_word` on every link of its route: the slowest link paces all, since routers hold few words.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.channel_queue import serve_block
from dse.evaluators.machine.compile_cache import compiled_loop, compiled_part, compiled_with_arrays, inlined_function
from dse.evaluators.machine.mesh_lines import (
    EAST,
    NORTH,
    SOUTH,
    WEST,
    cross_line,
    crossings_between,
    free_line_start,
    group_member,
    hold_line,
    link_direction,
    link_index,
    message_ends,
    route_seconds,
    route_word,
    signed_hops,
)


@inlined_function
def _channel(row, col, way, ahead, shape):
    """Links there and back of the channel `ahead` of (row, col): index and place on its line of each."""
    row_step, col_step = (way == 2) - (way == 3), (way == 0) - (way == 1)
    r, c = (row + ahead * row_step) % shape[0], (col + ahead * col_step) % shape[1]
    line, offset, length = link_index(r, c, way, shape)
    back_line, back, _ = link_index((r + row_step) % shape[0], (c + col_step) % shape[1], way ^ 1, shape)
    return line * length + offset, offset, back_line * length + back, back


@compiled_part
def _free_channels(links, row, col, way, count, start, shape, hop, both):
    """When `count` channels from (row, col) on are free, both ways or that way, at the earliest at `start`."""
    for ahead in range(count):
        out, offset, home, back = _channel(row, col, way, ahead, shape)
        start = max(start, links[way, out] + offset * hop)
        if both:
            start = max(start, links[way ^ 1, home] + back * hop)
    return start


@compiled_part
def _hold_channels(links, row, col, way, count, until, shape, hop, both):
    """Holds `count` channels from (row, col) on, both ways or that way, until the same time."""
    for ahead in range(count):
        out, offset, home, back = _channel(row, col, way, ahead, shape)
        links[way, out] = until - offset * hop
        if both:
            links[way ^ 1, home] = until - back * hop


@compiled_loop
def carry_messages(sr, sc, tr, tc, words, stage, torus, ready, free, engine, ramps, links, fabric, end, read):
    """Carry messages of `words` words from (sr, sc) to (tr, tc) through the network.

    Args:
        stage: time of the target's software. [s]
        torus: whether lines are closed.
        ready: when sources have what they send.
        free: when targets may be overwritten.
        engine: when cores' engines are free; sending from memory takes them.
        end: filled with when targets have it.
        read: until when sources have read what they send, brought up to date.
    """
    ramp, shape = fabric.ramp, engine.shape
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        east, south = signed_hops(col, to_col, shape[1], torus), signed_hops(row, to_row, shape[0], torus)
        across, down = abs(east), abs(south)
        if across + down == 0:
            end[i] = max(ready[row, col], free[to_row, to_col])
            read[row, col] = max(read[row, col], end[i])
            continue
        crossings = crossings_between(row, col, to_row, to_col, fabric)
        word = route_word(crossings, fabric)
        stream, busy = words[i] * max(word, fabric.copy), words[i] * word
        start = max(ready[row, col], engine[row, col]) + fabric.post
        engine[row, col] = start + words[i] * fabric.copy
        start = max(start, free[to_row, to_col], ramps[0, row, col])
        ramps[0, row, col] = start + stream
        read[row, col] = max(read[row, col], start + stream)
        first = cross_line(links, row, col, EAST if east > 0 else WEST, across, start + ramp, busy, shape, fabric)
        first = cross_line(links, row, to_col, SOUTH if south > 0 else NORTH, down, first, busy, shape, fabric)
        first = max(first + ramp, ramps[1, to_row, to_col])
        ramps[1, to_row, to_col] = first + busy
        end[i] = max(start + 2 * ramp + route_seconds(across + down, crossings, fabric) + stream, first + busy) + stage


@compiled_loop
def relay_messages(sr, sc, tr, tc, words, torus, ready, free, engine, ramps, fabric, end, read):
    """Carry messages that each core on the way stores and sends on; arguments as for `carry_messages`."""
    shape, pace = engine.shape, max(fabric.word, fabric.copy)
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        hops = abs(signed_hops(col, to_col, shape[1], torus)) + abs(signed_hops(row, to_row, shape[0], torus))
        start = max(ready[row, col], free[to_row, to_col])
        if hops:  # the engine starts a message while words of the one before leave
            start = max(start, engine[row, col])
            engine[row, col] = start + fabric.launch + words[i] * fabric.copy
            start = max(start, ramps[0, row, col] - fabric.launch)
            ramps[0, row, col] = start + fabric.launch + words[i] * pace
            read[row, col] = max(read[row, col], ramps[0, row, col])
        end[i] = start + hops * (fabric.launch + 2 * fabric.ramp + fabric.hop + words[i] * pace + fabric.stage)
        if hops == 0:
            read[row, col] = max(read[row, col], end[i])


@compiled_loop
def load_shared_values(sr, sc, tr, tc, words, values, reading, served, torus, ready, free, engine, ramps, fabric, end, read):
    """Load values of other cores' memory one by one; arguments as for `carry_messages`.

    Args:
        values: of each message, which shared memory loads one by one.
        reading, served: whether its owner, the source, is read from, and what that costs it; else the target is added to. [s]
    """
    shape, pace = engine.shape, max(fabric.word, fabric.copy)
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        hops = abs(signed_hops(col, to_col, shape[1], torus)) + abs(signed_hops(row, to_row, shape[0], torus))
        trip = 2 * fabric.ramp + hops * fabric.hop
        if hops == 0:
            end[i] = max(ready[row, col], free[to_row, to_col])
        elif reading:
            # the owner serves one after the other; whoever reads waits for each value
            start = max(ready[row, col], ramps[0, row, col], engine[to_row, to_col], free[to_row, to_col])
            ramps[0, row, col] = start + served
            engine[to_row, to_col] = end[i] = ramps[0, row, col] + values[i] * 2 * trip
        else:
            start = max(ready[row, col], engine[row, col]) + fabric.post
            engine[row, col] = start + words[i] * fabric.copy
            start = max(start, ramps[1, to_row, to_col] - trip)
            read[row, col] = max(read[row, col], start + words[i] * pace)
            end[i] = ramps[1, to_row, to_col] = start + trip + fabric.stage + words[i] * pace
        if hops == 0 or reading:
            read[row, col] = max(read[row, col], end[i])


@compiled_with_arrays
def carry_locked_messages(sr, sc, tr, tc, words, stage, torus, ready, free, engine, ramps, links, fabric, end, read):
    """Carry messages that lock their routes, earliest possible start first.

    Arguments as for `carry_messages`.

    A request crosses the way and a grant comes back; then nothing else may use its channels until the last word is there: both
    ways if routers between pass the grant on, that way alone between neighbours. A message that waits keeps none.

    Args:
        stage: time of the target's software. [s]
    """
    hop, ramp, shape = fabric.hop, fabric.ramp, engine.shape
    pace = max(fabric.word, fabric.copy)
    earliest = np.full(len(sr), -np.inf)
    left = len(sr)
    while left:
        i = np.argmin(earliest)
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        east, south = signed_hops(col, to_col, shape[1], torus), signed_hops(row, to_row, shape[0], torus)
        across, down = abs(east), abs(south)
        x_way, y_way = EAST if east > 0 else WEST, SOUTH if south > 0 else NORTH
        trip, both = 2 * ramp + (across + down) * hop, across + down > 1
        posted = max(ready[row, col], engine[row, col])
        if across + down == 0:
            end[i] = max(ready[row, col], free[to_row, to_col])
        else:
            posted += fabric.post
            start = max(posted, free[to_row, to_col], ramps[0, row, col], ramps[1, to_row, to_col] - trip)
            start = _free_channels(links, row, col, x_way, across, start, shape, hop, both)
            start = _free_channels(links, row, to_col, y_way, down, start, shape, hop, both)
            if start > earliest[i]:
                earliest[i] = start
                continue
            engine[row, col] = posted + words[i] * fabric.copy
            end[i] = start + 3 * trip + words[i] * pace + stage
            _hold_channels(links, row, col, x_way, across, end[i], shape, hop, both)
            _hold_channels(links, row, to_col, y_way, down, end[i], shape, hop, both)
            ramps[0, row, col] = ramps[1, to_row, to_col] = end[i]
        read[row, col] = max(read[row, col], end[i])
        earliest[i] = np.inf
        left -= 1


@compiled_loop
def carry_direct_messages(sr, sc, tr, tc, words, stage, ready, free, engine, links, fabric, end, read):
    """Carry messages where every pair of cores has a link with its own ramps.

    Arguments as for `carry_messages`.

    Args:
        stage: time of the target's software. [s]
    """
    cols = ready.shape[1]
    pace = max(fabric.word, fabric.copy)
    for i in range(len(sr)):
        row, col, to_row, to_col = message_ends(sr, sc, tr, tc, i)
        if row == to_row and col == to_col:
            end[i] = max(ready[row, col], free[row, col])
            read[row, col] = max(read[row, col], end[i])
            continue
        start = max(ready[row, col], engine[row, col]) + fabric.post
        engine[row, col] = start + words[i] * fabric.copy
        source, target = row * cols + col, to_row * cols + to_col
        start = max(start, free[to_row, to_col], links[source, target] - fabric.ramp)
        links[source, target] = start + fabric.ramp + words[i] * fabric.word
        read[row, col] = max(read[row, col], start + words[i] * pace)
        end[i] = start + 2 * fabric.ramp + fabric.hop + words[i] * pace + stage


@compiled_loop
def combine_arrivals(tr, tc, values, ready, engine, fabric, end):
    """Combine arrived values with those that are ready, on the targets' engines.

    Messages count in the order of the arrays; `end` is updated.
    """
    for i in range(len(tr)):
        r, c = tr[i], tc[i]
        done = max(end[i], ready[r, c], engine[r, c]) + fabric.call + values[i] * fabric.combine
        engine[r, c] = end[i] = done


@inlined_function
def _way_seconds(r0, c0, r, c, shape, torus, fabric):
    """Time of a first word over the links from a core to another one of its tree."""
    hops = abs(signed_hops(r0, r, shape[0], torus)) + abs(signed_hops(c0, c, shape[1], torus))
    return route_seconds(hops, crossings_between(r0, c0, r, c, fabric), fabric)


@inlined_function
def _branch_seconds(r0, c0, down, across, fabric):
    """Time of a first word over so many links down, or up, and across from the root of a tree."""
    return route_seconds(abs(down) + abs(across), crossings_between(r0, c0, r0 + down, c0 + across, fabric), fabric)


@compiled_part
def _tree_word(row, col, g, fabric):
    """Time of a word on each link of the tree of a group, which is that of its slowest one."""
    r0, c0 = group_member(row, col, g, 0)
    crossings = 0.0
    for m in range(row.shape[1]):
        r, c = group_member(row, col, g, m)
        crossings = max(crossings, crossings_between(r0, c0, r, c, fabric))
    return route_word(crossings, fabric)


@compiled_part
def _branches(row, col, g, rows_first, shape, torus, places):
    """How far the tree of a group's cores reaches from its root, the first of them, along its trunk and along each branch.

    Args:
        rows_first: whether the trunk is the root's column and branches are rows, as of sums; else the other way round.
        places: filled with the two ends of the branch at each place of the trunk's line, shape (2, places).

    Returns:
        The two ends of the trunk: links forth (south or east) and back.
    """
    forth = back = 0
    r0, c0 = group_member(row, col, g, 0)
    places[:] = 0
    for m in range(row.shape[1]):
        r, c = group_member(row, col, g, m)
        down, across = signed_hops(r0, r, shape[0], torus), signed_hops(c0, c, shape[1], torus)
        trunk, branch, place = (down, across, r) if rows_first else (across, down, c)
        forth, back = max(forth, trunk), max(back, -trunk)
        places[0, place], places[1, place] = max(places[0, place], branch), max(places[1, place], -branch)
    return forth, back


@compiled_with_arrays
def carry_multicasts(row, col, words, switched, torus, ready, free, engine, ramps, links, fabric, end, left):
    """Carry multicasts from the first member of each group to all others.

    The network copies where the tree forks.

    The tree is that of all ways: along the root's row, and from there along the columns.

    Args:
        row, col: shape (groups, members), the root first.
        switched: whether routes are set for this message, a task of every core.
        torus: whether lines are closed.
        engine: when cores' engines are free; sending from memory takes the root's.
        end: filled with when each member has it, shape (groups, members); the root has it when it starts.
        left: filled with when the root has sent it.
    """
    ramp, shape = fabric.ramp, ready.shape
    branches = np.zeros((2, shape[1]), np.int64)
    for g in range(len(row)):
        r0, c0 = group_member(row, col, g, 0)
        if row.shape[1] == 1:
            end[g, 0] = left[g] = max(ready[r0, c0], free[r0, c0])
            if fabric.apart > 0:  # what a core keeps is in the order of its messages as well
                engine[r0, c0] = max(engine[r0, c0], end[g, 0])
            continue
        word = _tree_word(row, col, g, fabric)
        stream = words[g] * max(word, fabric.copy)
        start = max(ready[r0, c0], engine[r0, c0]) + fabric.post
        if switched:
            start += fabric.launch
        engine[r0, c0] = start + words[g] * fabric.copy
        start = max(start, ramps[0, r0, c0])
        for m in range(row.shape[1]):
            r, c = group_member(row, col, g, m)
            away = _way_seconds(r0, c0, r, c, shape, torus, fabric)
            start = max(start, free[r, c])
            if r != r0 or c != c0:
                start = max(start, ramps[1, r, c] - 2 * ramp - away)
        east, west = _branches(row, col, g, False, shape, torus, branches)
        start = free_line_start(links, r0, c0, EAST, east, start, ramp, shape, fabric)
        start = free_line_start(links, r0, c0, WEST, west, start, ramp, shape, fabric)
        for step in range(-west, east + 1):
            c = (c0 + step) % shape[1]
            first = ramp + _branch_seconds(r0, c0, 0, step, fabric)
            start = free_line_start(links, r0, c, SOUTH, branches[0, c], start, first, shape, fabric)
            start = free_line_start(links, r0, c, NORTH, branches[1, c], start, first, shape, fabric)
        until = start + ramp + words[g] * word
        hold_line(links, r0, c0, EAST, east, until, shape, fabric)
        hold_line(links, r0, c0, WEST, west, until, shape, fabric)
        for step in range(-west, east + 1):
            c = (c0 + step) % shape[1]
            hold_line(links, r0, c, SOUTH, branches[0, c], until + _branch_seconds(r0, c0, 0, step, fabric), shape, fabric)
            hold_line(links, r0, c, NORTH, branches[1, c], until + _branch_seconds(r0, c0, 0, step, fabric), shape, fabric)
        for m in range(row.shape[1]):
            r, c = group_member(row, col, g, m)
            away = _way_seconds(r0, c0, r, c, shape, torus, fabric)
            end[g, m] = start + 2 * ramp + away + stream if r != r0 or c != c0 else start
            if r != r0 or c != c0:
                ramps[1, r, c] = end[g, m] - stream + words[g] * word
        left[g] = ramps[0, r0, c0] = start + stream


@compiled_with_arrays
def carry_reductions(row, col, words, torus, ready, free, engine, ramps, links, fabric, left, end):
    """Carry reductions from all members of each group to the first one.

    Routers combine words that meet at them, at the rate of a link.

    Words come along the rows to the root's column, and along it to the root. They move in step: the root's first word is there
    when the last of the members' first ones is, and no link is used before.

    Args:
        row, col: shape (groups, members), the root first.
        torus: whether lines are closed.
        engine: when cores' engines are free; sending from memory takes them.
        left: filled with when each member has sent its words, shape (groups, members).
        end: filled with when the root has the sums, shape (groups,).
    """
    ramp, shape = fabric.ramp, ready.shape
    branches = np.zeros((2, shape[0]), np.int64)
    for g in range(len(row)):
        r0, c0 = group_member(row, col, g, 0)
        if row.shape[1] == 1:
            end[g] = left[g, 0] = max(ready[r0, c0], free[r0, c0])
            continue
        word = _tree_word(row, col, g, fabric)
        stream = words[g] * max(word, fabric.copy)
        first = max(free[r0, c0], ramps[1, r0, c0]) - ramp  # when the root's router has the first word of the sums
        for m in range(row.shape[1]):
            r, c = group_member(row, col, g, m)
            away = _way_seconds(r0, c0, r, c, shape, torus, fabric)
            start = max(ready[r, c], engine[r, c]) + fabric.post
            engine[r, c] = start + words[g] * fabric.copy
            first = max(first, max(start, ramps[0, r, c]) + ramp + away)
        south, north = _branches(row, col, g, True, shape, torus, branches)
        first = free_line_start(
            links, (r0 + south) % shape[0], c0, NORTH, south, first, -_branch_seconds(r0, c0, south, 0, fabric), shape, fabric
        )
        first = free_line_start(
            links, (r0 - north) % shape[0], c0, SOUTH, north, first, -_branch_seconds(r0, c0, -north, 0, fabric), shape, fabric
        )
        for step in range(-north, south + 1):
            r = (r0 + step) % shape[0]
            east, west = branches[0, r], branches[1, r]
            before = -_branch_seconds(r0, c0, step, east, fabric)
            first = free_line_start(links, r, (c0 + east) % shape[1], WEST, east, first, before, shape, fabric)
            before = -_branch_seconds(r0, c0, step, -west, fabric)
            first = free_line_start(links, r, (c0 - west) % shape[1], EAST, west, first, before, shape, fabric)
        until = first + words[g] * word
        hold_line(
            links, (r0 + south) % shape[0], c0, NORTH, south, until - _branch_seconds(r0, c0, south, 0, fabric), shape, fabric
        )
        hold_line(
            links, (r0 - north) % shape[0], c0, SOUTH, north, until - _branch_seconds(r0, c0, -north, 0, fabric), shape, fabric
        )
        for step in range(-north, south + 1):
            r = (r0 + step) % shape[0]
            east, west = branches[0, r], branches[1, r]
            hold_line(
                links, r, (c0 + east) % shape[1], WEST, east, until - _branch_seconds(r0, c0, step, east, fabric), shape, fabric
            )
            hold_line(
                links,
                r,
                (c0 - west) % shape[1],
                EAST,
                west,
                until - _branch_seconds(r0, c0, step, -west, fabric),
                shape,
                fabric,
            )
        for m in range(row.shape[1]):
            r, c = group_member(row, col, g, m)
            away = _way_seconds(r0, c0, r, c, shape, torus, fabric)
            left[g, m] = ramps[0, r, c] = first - away - ramp + stream
        end[g] = ramps[1, r0, c0] = first + ramp + stream


@compiled_with_arrays
def carry_software_reductions(row, col, order, words, ready, free, ramps, links, fabric, left, end):
    """Carry reductions along each line to its first member, from both ends at once.

    Each member's software adds its own words as others pass.

    Paths are set up ahead and words start what they find, so that nothing is posted. What comes from both sides shares the
    root's way in word by word, and words that wait for others hold up those behind them.

    Args:
        row, col: shape (groups, members), the root first.
        order: members by their place on the line, shape (groups, members).
        left: filled with when each member has sent its words on, shape (groups, members).
        end: filled with when the root has the sums, shape (groups,).
    """
    members = row.shape[1]
    ramp, shape = fabric.ramp, ready.shape
    arrived, counts = np.empty(2), np.zeros(2, np.int64)
    for g in range(len(row)):
        r0, c0 = group_member(row, col, g, 0)
        word = _tree_word(row, col, g, fabric)
        pace = max(word, fabric.copy)
        stream, busy = words[g] * pace, words[g] * word
        end[g] = max(ready[r0, c0], free[r0, c0])
        middle = 0
        for place in range(members):
            if order[g, place] == 0:
                middle = place
        left[g, 0] = end[g]
        for side in range(2):
            head = arrived[side] = -1.0
            counts[side] = members - 1 - middle if side == 0 else middle
            for turn in range(counts[side]):
                m, r, c, to_row, to_col, hops = _link_of_line(row, col, order, g, side, turn)
                way = route_seconds(hops, crossings_between(r, c, to_row, to_col, fabric), fabric)
                start = max(ready[r, c], ramps[0, r, c])
                if head >= 0:
                    start = max(start, head)
                start = free_line_start(links, r, c, link_direction(r, c, to_row, to_col), hops, start, ramp, shape, fabric)
                left[g, m] = start + stream
                arrived[side] = start + 2 * ramp + way
                head = max(arrived[side], ramps[1, to_row, to_col]) + fabric.stage
        # words of both sides take turns at the root's way in while both are there
        first = 0 if counts[1] == 0 or 0 <= arrived[0] <= arrived[1] else 1
        for side in range(2):
            arrived[side] = max(arrived[side], ramps[1, r0, c0])
        alone = arrived[1 - first] - arrived[first] if counts[1 - first] else stream
        together = max(words[g] - alone / pace, 0.0)
        arrived[first] = max(arrived[first] + min(alone, stream) + together * max(pace, 2 * word), arrived[first] + stream)
        arrived[1 - first] = max(arrived[first] + (words[g] - together) * pace, arrived[1 - first] + stream)
        for side in range(2):
            if counts[side] == 0:
                continue
            last = arrived[side]
            end[g] = max(end[g], last + fabric.stage)
            for turn in range(counts[side] - 1, -1, -1):  # words that wait for a way in hold up those behind them
                m, r, c, to_row, to_col, hops = _link_of_line(row, col, order, g, side, turn)
                way = route_seconds(hops, crossings_between(r, c, to_row, to_col, fabric), fabric)
                ramps[1, to_row, to_col] = last + busy - stream
                left[g, m] = ramps[0, r, c] = max(left[g, m], last - 2 * ramp - way)
                until = left[g, m] + ramp + busy - stream
                hold_line(links, r, c, link_direction(r, c, to_row, to_col), hops, until, shape, fabric)
                last = left[g, m] - fabric.stage


@inlined_function
def _link_of_line(row, col, order, g, side, turn):
    """A member that is so many places from an end of its line, its place, that of the next one, and links between them."""
    members = row.shape[1]
    m = order[g, members - 1 - turn] if side == 0 else order[g, turn]
    after = order[g, members - 2 - turn] if side == 0 else order[g, turn + 1]
    (r, c), (to_row, to_col) = group_member(row, col, g, m), group_member(row, col, g, after)
    return m, r, c, to_row, to_col, abs(to_row - r) + abs(to_col - c)


@inlined_function
def block_seconds(r, c, at, memory, fabric):
    """Time of a first word over the links between a memory channel and a core."""
    row0, col0 = memory.row[at], memory.col[at]
    crossings = crossings_between(row0, col0, r, c, fabric)
    return route_seconds(abs(c - col0) + abs(r - row0), crossings, fabric)


@inlined_function
def block_word(r, c, at, memory, fabric):
    """Time of a word on each link between a memory channel and a core."""
    return route_word(crossings_between(memory.row[at], memory.col[at], r, c, fabric), fabric)


@compiled_part
def deliver_block(r, c, at, words, first, ramps, links, memory, fabric):
    """Time at which a block arrives at its core; it holds its route until then.

    Its first word may leave the memory channel at `first`.
    """
    ramp, shape = fabric.ramp, ramps.shape[1:]
    row0, col0 = memory.row[at], memory.col[at]
    across, down, stream = abs(c - col0), abs(r - row0), words * block_word(r, c, at, memory, fabric)
    way = block_seconds(r, c, at, memory, fabric)
    start = max(first, ramps[1, r, c] - ramp - way)
    x_way = 0 if c > col0 else 1
    y_way = 2 if r > row0 else 3
    start = free_line_start(links, row0, col0, x_way, across, start, 0.0, shape, fabric)
    turn = route_seconds(across, crossings_between(row0, col0, row0, c, fabric), fabric)
    start = free_line_start(links, row0, c, y_way, down, start, turn, shape, fabric)
    hold_line(links, row0, col0, x_way, across, start + stream, shape, fabric)
    hold_line(links, row0, c, y_way, down, start + turn + stream, shape, fabric)
    ramps[1, r, c] = start + way + ramp + stream
    return ramps[1, r, c]


@compiled_loop
def store_blocks(row, col, channel, words, nbytes, ask_times, dma, ramps, links, served, pauses, memory, fabric, end):
    """Carry blocks of one size from cores to memory channels; arguments as in `round_timing`.

    `end` is filled with when each has left its core.
    """
    ramp, shape = fabric.ramp, dma.shape
    for i in range(len(row)):
        r, c, at = np.int64(row[i]), np.int64(col[i]), channel[i]
        row0, col0 = memory.row[at], memory.col[at]
        across, down = abs(c - col0), abs(r - row0)
        stream, way = words * block_word(r, c, at, memory, fabric), block_seconds(r, c, at, memory, fabric)
        turn = route_seconds(across, crossings_between(r, c, r, col0, fabric), fabric)
        start = max(ask_times[i], dma[r, c]) + fabric.post
        dma[r, c] = start
        start = max(start, ramps[0, r, c])
        x_way = 0 if col0 > c else 1
        y_way = 2 if row0 > r else 3
        start = free_line_start(links, r, c, x_way, across, start, ramp, shape, fabric)
        start = free_line_start(links, r, col0, y_way, down, start, ramp + turn, shape, fabric)
        until = start + ramp + stream
        hold_line(links, r, c, x_way, across, until, shape, fabric)
        hold_line(links, r, col0, y_way, down, until + turn, shape, fabric)
        end[i] = ramps[0, r, c] = start + stream
        _, through = serve_block(at, start + ramp + way, nbytes, True, served, pauses, memory)
        if through == served[at]:
            served[at] = max(through, until + way)


@compiled_loop
def note_read(row, col, times, read):
    """Note that cores read the current version of a buffer until `times`."""
    for i in range(len(row)):
        read[0, row[i], col[i]] = max(read[0, row[i], col[i]], times[i])


@compiled_loop
def note_written(row, col, times, ready, read):
    """Note that cores have a new version of a buffer from `times` on; older versions age by one."""
    for i in range(len(row)):
        r, c = row[i], col[i]
        ready[r, c] = max(ready[r, c], times[i])
        for age in range(len(read) - 1, 0, -1):
            read[age, r, c] = read[age - 1, r, c]
        read[0, r, c] = max(read[0, r, c], ready[r, c])
