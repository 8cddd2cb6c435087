"""Links of the lines of a mesh in compiled simulation: times, and until when they are held.

What is kept of a link is until when it is held, less the time of the links before it on its line: along a route one time.
A link from one die to the next takes longer than others (`mesh_fabric.MeshFabric.crossing`).
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, inlined_function

EAST, WEST, SOUTH, NORTH = 0, 1, 2, 3


@inlined_function
def message_ends(sr, sc, tr, tc, i):
    """Source and target coordinates of a message, in numbers of one type."""
    return np.int64(sr[i]), np.int64(sc[i]), np.int64(tr[i]), np.int64(tc[i])


@inlined_function
def group_member(row, col, g, m):
    """Coordinates of a member of a group, in numbers of one type."""
    return np.int64(row[g, m]), np.int64(col[g, m])


@inlined_function
def link_direction(row, col, to_row, to_col):
    """Direction of the first link from one core to another: east, west, south or north."""
    if col != to_col:
        return 0 if to_col > col else 1
    return 2 if to_row > row else 3


@inlined_function
def link_index(row, col, way, shape):
    """Line and place of the link that leaves (row, col) in a direction, and the length of such lines."""
    rows, cols = shape
    line, place, length = (row, col, cols) if way < 2 else (col, row, rows)
    return line, length - 1 - place if way & 1 else place, length


@inlined_function
def line_seconds(way, place, length, fabric):
    """Time of a first word from the start of a line, seen in a direction, to a place of it."""
    if fabric.crossing == 0:
        return place * fabric.hop
    return place * fabric.hop + crossings_before(way, place, length, fabric) * fabric.crossing


@inlined_function
def link_seconds(way, place, length, fabric):
    """Time of a first word over the link at a place of a line, seen in a direction."""
    if fabric.crossing == 0:
        return fabric.hop
    crossings = crossings_before(way, place + 1, length, fabric) - crossings_before(way, place, length, fabric)
    return fabric.hop + crossings * fabric.crossing


@inlined_function
def crossings_before(way, place, length, fabric):
    """Crossings between dies from the start of a line, seen in a direction, to a place of it."""
    if way < 2:
        return place // fabric.die_cols
    missing = fabric.missing_rows if way == SOUTH else -(length + fabric.missing_rows) % fabric.die_rows
    return (place + missing) // fabric.die_rows


@inlined_function
def crossings_between(row, col, to_row, to_col, fabric):
    """Crossings between dies from a core to another one."""
    if fabric.crossing_word == 0:
        return 0.0
    down = (to_row + fabric.missing_rows) // fabric.die_rows - (row + fabric.missing_rows) // fabric.die_rows
    return abs(down) + abs(to_col // fabric.die_cols - col // fabric.die_cols)


@inlined_function
def route_seconds(hops, crossings, fabric):
    """Time of a first word over the links of a route."""
    return hops * fabric.hop + crossings * fabric.crossing


@inlined_function
def route_word(crossings, fabric):
    """Time of a word on each link of a route, which is that of its slowest one."""
    return max(fabric.word, fabric.crossing_word) if crossings > 0 else fabric.word


@compiled_part
def _latest(links, way, first, count):
    """Until when the last of some links is held; a while, since vector code, made of a range, costs more for a few links."""
    latest = links[way, first]
    link = first + 1
    while link < first + count:
        latest = max(latest, links[way, link])
        link += 1
    return latest


@inlined_function
def signed_hops(source, target, side, torus):
    """Signed links from one place of a line to another, around the end if shorter on a torus. [-]"""
    far = target - source
    if torus and 2 * abs(far) > side:
        return far - side if far > 0 else far + side
    return far


@compiled_part
def free_line_start(links, row, col, way, count, start, first, shape, fabric):
    """Earliest start, at least `start`, of a message that finds links of its line free.

    There are `count` of them from (row, col) on. `first` is the time from its start until its first word comes to the first
    of them.
    """
    if count == 0:
        return start
    line, place, length = link_index(row, col, way, shape)
    if place + count > length:  # a line that closes goes on at its beginning
        start = max(start, _latest(links, way, line * length, place + count - length) - first - (length - place) * fabric.hop)
        count = length - place
    return max(start, _latest(links, way, line * length + place, count) + line_seconds(way, place, length, fabric) - first)


@compiled_part
def hold_line(links, row, col, way, count, until, shape, fabric):
    """Holds `count` links from (row, col) on, the first of them until `until`, each next one a hop longer."""
    if count:
        line, place, length = link_index(row, col, way, shape)
        if place + count > length:
            for link in range(line * length, line * length + place + count - length):
                links[way, link] = until + (length - place) * fabric.hop
            count = length - place
        at, before = line * length + place, line_seconds(way, place, length, fabric)
        link = at
        while link < at + count:
            links[way, link] = until - before
            link += 1


@compiled_part
def cross_line(links, row, col, way, count, first, busy, shape, fabric):
    """Time at which the first word of a message has crossed links of a line.

    There are `count` of them from (row, col) on; it comes to them at `first`. It waits before each link until that is free,
    and takes it for `busy`.
    """
    if count == 0:
        return first
    line, place, length = link_index(row, col, way, shape)
    last = place + count
    first -= line_seconds(way, place, length, fabric)
    link = line * length + place
    while link < line * length + min(last, length):
        first = max(first, links[way, link])
        links[way, link] = first + busy
        link += 1
    if last > length:  # a line that closes goes on at its beginning
        first += length * fabric.hop
        last -= length
        link = line * length
        while link < line * length + last:
            first = max(first, links[way, link])
            links[way, link] = first + busy
            link += 1
    return first + line_seconds(way, last, length, fabric)
