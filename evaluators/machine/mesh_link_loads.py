"""Link loads and distances of packets with dimension-order routing on a mesh, by formula.

Links are towards east, west, south and north of each router; arrays of them have shape (4, rows, cols).
"""

import numpy as np

from dse.space.array_math import Array


def uniform_link_loads(sends: Array, gets: Array, order: str) -> Array:
    """Load of each link per unit that a sender makes, with equally likely receivers. [-]

    A link to the east is passed on the way from those at or before it to those behind it: of the same row, to any row (xy), or
    of any row, to that row (yx); so with the other directions.

    Args:
        sends, gets: 1 for routers that send or receive, else 0; shape (rows, cols).
        order: xy, along the row first, or yx.

    >>> uniform_link_loads(np.ones((1, 4)), np.ones((1, 4)), "xy")[0].tolist()
    [[0.75, 1.0, 0.75, 0.0]]
    """
    to = gets / gets.sum()
    if order == "yx":
        flipped = uniform_link_loads(sends.T, gets.T, "xy")
        return np.stack([flipped[way].T for way in (2, 3, 0, 1)])
    before, into = np.cumsum(sends, axis=1), np.cumsum(to.sum(axis=0))
    east = before * (into[-1] - into)
    west = (before[:, -1:] - before + sends) * (into - to.sum(axis=0))
    above, down = np.cumsum(sends.sum(axis=1))[:, None], np.cumsum(to, axis=0)
    south = above * (down[-1] - down)
    north = (above[-1] - above + sends.sum(axis=1)[:, None]) * (down - to)
    return np.stack([east, west, south, north])


def pair_link_loads(source: Array, target: Array, shape: tuple[int, int], order: str) -> Array:
    """Load of each link from one unit per pair of routers. [-]"""
    rows, cols = shape
    (r0, c0), (r1, c1) = np.divmod(source, cols), np.divmod(target, cols)
    loads = np.zeros((4, rows, cols))
    across, down = (r0, c1) if order == "xy" else (r1, c0)
    for way, line, a, b, turned in ((0, across, c0, c1, False), (2, down, r0, r1, True)):
        change = np.zeros((2, *((cols, rows) if turned else shape)))
        forth, back = a < b, b < a
        for kind, mask in enumerate((forth, back)):
            np.add.at(change, (kind, line[mask], a[mask]), 1 if kind == 0 else -1)
            np.add.at(change, (kind, line[mask], b[mask]), -1 if kind == 0 else 1)
        carried = np.cumsum(change, axis=2)
        # on the way back a link is that of the place it starts from, one further than where it ends
        carried[1, :, 1:] = carried[1, :, :-1].copy()
        carried[1, :, 0] = 0
        loads[way : way + 2] = carried.transpose(0, 2, 1) if turned else carried
    return loads


def hop_histogram(sends: Array, gets: Array) -> Array:
    """Number of pairs at each distance in links, shape (rows + cols - 1,). [-]"""
    rows, cols = sends.shape
    wide = (2 * rows, 2 * cols)
    spectrum = np.conj(np.fft.rfft2(sends, wide)) * np.fft.rfft2(gets, wide)
    pairs = np.rint(np.fft.irfft2(spectrum, wide)).astype(np.int64)
    down, across = np.minimum(*_both(rows)), np.minimum(*_both(cols))
    far = down[:, None] + across
    return np.bincount(far.ravel(), weights=pairs.ravel(), minlength=rows + cols - 1)[: rows + cols - 1]


def _both(side: int) -> tuple[Array, Array]:
    """Displacements of a circle of twice a side: up, and down."""
    return np.arange(2 * side), 2 * side - np.arange(2 * side)


def pairs_with_faults(rows: int, cols: int, open_: Array, order: str) -> Array:
    """Pairs of routers with a broken link on their route, shape (nodes, nodes).

    Args:
        open_: which links work, by router and port, those over the edge not; shape (nodes, 4).
    """
    nodes = np.arange(rows * cols).reshape(rows, cols)
    pairs = np.zeros((rows * cols, rows * cols), bool)
    for way, (down, across) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0))):
        for node in np.flatnonzero(~open_[:, way]).tolist():
            row, col = divmod(node, cols)
            if not (0 <= row + down < rows and 0 <= col + across < cols):
                continue
            behind, ahead = _sides(nodes, row, col, way)
            along = (way < 2) == (order == "xy")  # in the first dimension sources are on its line, in the second targets
            sources = (nodes[row, behind] if way < 2 else nodes[behind, col]) if along else _all(nodes, behind, way)
            targets = _all(nodes, ahead, way) if along else (nodes[row, ahead] if way < 2 else nodes[ahead, col])
            pairs[np.ix_(sources.ravel(), targets.ravel())] = True
    return pairs


def _sides(nodes: Array, row: int, col: int, way: int) -> tuple[slice, slice]:
    """Places of a line up to a link, and behind it, the way that it goes."""
    place = col if way < 2 else row
    return (slice(0, place + 1), slice(place + 1, None)) if way % 2 == 0 else (slice(place, None), slice(0, place))


def _all(nodes: Array, places: slice, way: int) -> Array:
    return np.asarray(nodes[:, places] if way < 2 else nodes[places, :])
