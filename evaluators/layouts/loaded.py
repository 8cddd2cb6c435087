"""What messages of pipelines hold the links of a mesh for, compiled.

Links are one array: those along rows, shape (ways, rows, cols - 1), and then those along columns, shape (ways, rows - 1, cols).
A way is a direction; locked routes that routers pass on hold both at once.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import part, released

MESSAGE = np.dtype([*((name, "i8") for name in ("row", "col", "to_row", "to_col")), ("seconds", "f8"), ("both", "?")])
"""From core to core; it holds the links of its way, or both ways of them, for some seconds, here of each token."""

FULL = 1 - 1e-9
"""Share of the time of a link that others leave some of."""


def links(rows: int, cols: int) -> int:
    """Of a mesh."""
    return 2 * (rows * (cols - 1) + (rows - 1) * cols)


@part
def hops(message):
    """Links of its way."""
    return abs(message.row - message.to_row) + abs(message.col - message.to_col)


@part
def link(message, step, other, rows, cols):
    """The place of one of the links of a message's way, first along its row; or the one that leads back beside it."""
    across = abs(message.col - message.to_col)
    if step < across:
        way = (message.to_col > message.col) != other
        return (way * rows + message.row) * (cols - 1) + min(message.col, message.to_col) + step
    way = (message.to_row > message.row) != other
    down = min(message.row, message.to_row) + step - across
    return 2 * rows * (cols - 1) + (way * (rows - 1) + down) * cols + message.to_col


@released
def held(messages, rows, cols, found):
    """Adds what messages of each of some pipelines hold links for, shape (pipelines, links). [s]"""
    for pipeline in range(len(messages)):
        for place in range(messages.shape[1]):
            message = messages[pipeline, place]
            for step in range(hops(message)):
                for other in range(1 + message.both):
                    found[pipeline, link(message, step, other > 0, rows, cols)] += message.seconds


@released
def added(found, links, times):
    """Adds what links are held for by each of some pipelines, shape (pipelines, links), so many times, shape (pipelines,)."""
    for pipeline in range(len(links)):
        for place in range(len(found)):
            found[place] += times[pipeline] * links[pipeline, place]


@released
def sent(messages, rows, cols, others, busy, room, found):
    """Seconds of caches to each of some pipelines, of the link that is longest taken, in what is found, shape (pipelines,).

    Args:
        messages: of each, shape (pipelines, messages).
        rows, cols: of the mesh.
        others, busy: as in `slowest`.
        room: for what caches hold links, nothing before; shape (pipelines, links).
        found: shape (pipelines,).
    """
    held(messages, rows, cols, room)
    for pipeline in range(len(messages)):
        found[pipeline] = slowest(room[pipeline], others, busy)


@part
def slowest(own, others, busy):
    """Of the links of a cache, seconds of the one that is longest taken.

    Args:
        own: that all of its messages hold links.
        others: that others do for each such token.
        busy: share of the time that others do.
    """
    found = 0.0
    for place in range(len(own)):
        if own[place] > 0:
            found = max(found, min(own[place] / (1 - min(busy[place], FULL)), own[place] + others[place]))
    return found


@released
def carried(caches, prefilling, decoding, prefilled, decoded):
    """Tokens whose caches links can carry beside activations, which take what they need, or their turn. [1/s]

    Args:
        caches, prefilling, decoding: that a token of each kind holds each link, shape (links,). [s]
        prefilled, decoded: tokens. [1/s]
    """
    found, made = np.inf, decoded / max(prefilled, 1e-30)
    for place in range(len(caches)):
        if caches[place] > 0:
            turns = caches[place] + prefilling[place] + made * decoding[place]
            left = 1 - prefilled * prefilling[place] - decoded * decoding[place]
            found = min(found, max(left / caches[place], 1 / turns))
    return found


@released
def crowded(messages, own, caches, times, prefilled, rows, cols, found):
    """`crowding` of each of some pipelines, in what is found; messages and own of shape (pipelines, ...)."""
    for pipeline in range(len(messages)):
        found[pipeline] = crowding(messages[pipeline], own[pipeline], caches, times, prefilled, rows, cols)


@part
def crowding(messages, own, caches, times, prefilled, rows, cols):
    """How many times as long a pipeline's messages take, at most.

    Args:
        messages: of a token.
        own: that all of those hold links. [s]
        caches: that a token's caches do. [s]
        times: caches' tokens, of one of the pipeline's.
        prefilled: caches' tokens over time. [1/s]
        rows, cols: of the mesh.
    """
    found = -1.0
    for place in range(len(messages)):
        message = messages[place]
        if message.seconds == 0:
            continue
        turns = share = 0.0
        for step in range(hops(message)):
            for other in range(1 + message.both):
                at = link(message, step, other > 0, rows, cols)
                turns, share = max(turns, times * caches[at] / own[at]), max(share, prefilled * caches[at])
        found = max(found, min(1 + turns, 1 / (1 - min(share, FULL))))
    return found if found > 0 else 1.0
