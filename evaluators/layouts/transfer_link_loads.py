"""Compiled link loads of pipeline messages and KV transfers on a mesh.

Links are one array: those along rows, shape (ways, rows, cols - 1), and then those along columns, shape (ways, rows - 1, cols).
A way is a direction; locked routes that routers pass on hold both at once.
"""

# mypy: disable-error-code="no-untyped-def"

from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_part, compiled_without_gil

MESSAGE = np.dtype([(name, "i8") for name in ("row", "col", "to_row", "to_col")])
"""From core to core; it holds the links of its way, or both ways of them."""


class MeshNet(NamedTuple):
    """Mesh of cores as the compiled loops use it: sizes, and times of its links.

    Attributes:
        rows, cols: of it.
        locked: whether a message locks its way.
        ramps, hop, byte: from a core to its router and back, a router, and a byte on a link. [s]
    """

    rows: int
    cols: int
    locked: bool
    ramps: float
    hop: float
    byte: float


FULL_LINK = 1 - 1e-9
"""Share of the time of a link that others leave some of."""


def link_count(rows: int, cols: int) -> int:
    """Number of links of a mesh, both directions counted. [-]"""
    return 2 * (rows * (cols - 1) + (rows - 1) * cols)


@compiled_part
def message_hops(message):
    """Links on the route of a message. [-]"""
    return abs(message.row - message.to_row) + abs(message.col - message.to_col)


@compiled_part
def message_link(message, step, other, net):
    """Index of a link on a message's route, along its row first.

    `other` gives the link in the opposite direction.
    """
    across, rows, cols = abs(message.col - message.to_col), net.rows, net.cols
    if step < across:
        way = (message.to_col > message.col) != other
        return (way * rows + message.row) * (cols - 1) + min(message.col, message.to_col) + step
    way = (message.to_row > message.row) != other
    down = min(message.row, message.to_row) + step - across
    return 2 * rows * (cols - 1) + (way * (rows - 1) + down) * cols + message.to_col


@compiled_part
def links_occupied(message, net):
    """Links that a message holds per hop: both directions where routers lock them. [-]"""
    return 2 if net.locked and message_hops(message) > 1 else 1


@compiled_part
def hold_seconds(message, nbytes, net):
    """Time for which a message holds its links: its words, and any handshakes of locked routes. [s]"""
    return (3 * (net.ramps + net.hop * message_hops(message)) if net.locked else 0.0) + nbytes * net.byte


@compiled_part
def add_link_seconds(messages, nbytes, times, net, link_seconds):
    """Add the times for which messages hold each link, shape (links,), to `link_seconds`. [s]"""
    for place in range(len(messages)):
        message = messages[place]
        lasts = times[place] * hold_seconds(message, nbytes, net)
        for step in range(message_hops(message)):
            for other in range(links_occupied(message, net)):
                link_seconds[message_link(message, step, other > 0, net)] += lasts


@compiled_without_gil
def mutual_slowdown(messages, nbytes, times, weights, rates, net, room, own, totals):
    """Compute the slowdown of KV transfers and activations by each other, as `transfer_cost` has it.

    Args:
        messages: of each pipeline that prefills, of each that decodes, and of caches from each of some pairs of these, shapes
            (dp, messages), (dp, messages) and (pairs, messages).
        nbytes, times: of each of these three, bytes of a message, and how often a token's go, shape (messages,).
        weights: share of all caches that each pair has.
        rates: tokens that pass through all pipelines of each kind. [1/s]
        net: the network.
        room, own: to work in, nothing before; shapes (6, links) and (pipelines of both kinds, links).
        totals: written: seconds of a token of a cache, tokens that links carry beside activations [1/s], and how many times as
            long messages of each kind take; shape (4,).
    """
    cached, others, busy, mine = room[0], room[1], room[2], room[3]
    prefills, decodes, pairs = len(messages[0]), len(messages[1]), len(messages[2])
    prefilled, decoded = rates
    made = decoded / max(prefilled, 1e-30)
    for pipeline in range(prefills + decodes):
        loads = own[pipeline]
        # a cache crosses links of pipelines that it is not of; each of these does its share of the tokens
        if pipeline < prefills:
            add_link_seconds(messages[0][pipeline], nbytes[0], times[0], net, loads)
            each, rate, mean = 1.0, prefilled / prefills, room[4]
        else:
            add_link_seconds(messages[1][pipeline - prefills], nbytes[1], times[1], net, loads)
            each, rate, mean = made * prefills / decodes, decoded / decodes, room[5]
        for place in range(len(loads)):
            others[place] += each * loads[place]
            busy[place] += rate * loads[place]
            mean[place] += loads[place] / (prefills if pipeline < prefills else decodes)
    taken = 0.0
    for pair in range(pairs):
        mine[:] = 0.0
        add_link_seconds(messages[2][pair], nbytes[2], times[2], net, mine)
        taken += slowest_link_seconds(mine, others, busy)
        for place in range(len(mine)):
            cached[place] += weights[pair] * mine[place]
    totals[0], totals[1] = taken / pairs, carried_tokens(cached, room[4], room[5], prefilled, decoded)
    for pipeline in range(prefills):
        more = message_slowdown(messages[0][pipeline], own[pipeline], cached, 1.0 * prefills, prefilled, net)
        totals[2] += more / prefills
    for pipeline in range(decodes):
        turns = decodes / max(made, 1e-9)
        more = message_slowdown(messages[1][pipeline], own[prefills + pipeline], cached, turns, prefilled, net)
        totals[3] += more / decodes


@compiled_part
def slowest_link_seconds(own, others, busy):
    """Time of the slowest link of a KV transfer. [s]

    Args:
        own: that all of its messages hold links.
        others: that others do for each such token.
        busy: share of the time that others do.
    """
    link_seconds = 0.0
    for place in range(len(own)):
        if own[place] > 0:
            link_seconds = max(link_seconds, min(own[place] / (1 - min(busy[place], FULL_LINK)), own[place] + others[place]))
    return link_seconds


@compiled_part
def carried_tokens(caches, prefilling, decoding, prefilled, decoded):
    """Rate of tokens whose KV caches the links can carry next to activations. [1/s]

    Activations take what they need, or their share.

    Args:
        caches, prefilling, decoding: that a token of each kind holds each link, shape (links,). [s]
        prefilled, decoded: tokens. [1/s]
    """
    tokens, made = np.inf, decoded / max(prefilled, 1e-30)
    for place in range(len(caches)):
        if caches[place] > 0:
            turns = caches[place] + prefilling[place] + made * decoding[place]
            left = 1 - prefilled * prefilling[place] - decoded * decoding[place]
            tokens = min(tokens, max(left / caches[place], 1 / turns))
    return tokens


@compiled_part
def message_slowdown(messages, own, caches, times, prefilled, net):
    """Upper bound on the slowdown of a pipeline's messages. [-]

    Args:
        messages: of a token.
        own: that all of those hold links. [s]
        caches: that a token's caches do. [s]
        times: caches' tokens, of one of the pipeline's.
        prefilled: caches' tokens over time. [1/s]
        net: the network.
    """
    slowdown = 1.0
    for place in range(len(messages)):
        message = messages[place]
        turns = share = 0.0
        for step in range(message_hops(message)):
            for other in range(links_occupied(message, net)):
                at = message_link(message, step, other > 0, net)
                if own[at] > 0:
                    turns, share = max(turns, times * caches[at] / own[at]), max(share, prefilled * caches[at])
        slowdown = max(slowdown, min(1 + turns, 1 / (1 - min(share, FULL_LINK))))
    return slowdown
