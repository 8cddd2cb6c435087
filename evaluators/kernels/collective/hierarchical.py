"""Allreduce across nodes, in two levels.

Any allreduce runs inside a node, and another one between nodes for the slice that each die holds halfway.

Not in the table of algorithms: a chip with nodes has it whenever its dies fill more than one. The word `two_level` is `grid`
in one node; across several the nodes are its rows, which is this with rings.
"""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.device_links import DeviceGroupLinks
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import Number


class PhasedAllreduce(NamedTuple):
    """An allreduce with a fixed number of phases, with the functions of an allreduce module."""

    ports_needed: Callable[[Number], Number]
    cost: Callable[[Number, DeviceGroupLinks], KernelCost]
    build_program: Callable[[int, int], Program]


def cost(
    algorithm: ModuleType | PhasedAllreduce, nbytes: Any, within: DeviceGroupLinks, between: DeviceGroupLinks
) -> KernelCost:
    """Time until every die of every node holds the sum of all vectors [s], and the bytes sent.

    Inside each node a reduce-scatter leaves one of `within.peers` slices on every die; each slice is reduced between the nodes;
    an allgather inside the node ends it. The two halves inside a node are one allreduce, so with m dies in each of q nodes

        t = t(n; m dies) + t(n / m; q nodes)

    Args:
        algorithm: of the allreduce table, for both levels.
        nbytes: vector on each die. [B], broadcasts over designs
        within: the dies of one node.
        between: the nodes, as one die sees them: `bandwidth` is its share of the node's; at the root of a tree, which has the
            whole vector and sends alone, it is all of it, and takes as long.

    Returns:
        Seconds, those of the algorithm itself for one node, and the bytes that all links carry.

    Source:
        [thakur2005] reduce-scatter and allgather as the halves of an allreduce, the vector in between being sliced.

    >>> from dse.evaluators.kernels.collective import ring
    >>> inside, outside = DeviceGroupLinks(8, 300e9, 0.0, "hop"), DeviceGroupLinks(2, 25e9 / 8, 0.0, "hop")
    >>> [
    ...     round(1e3 * cost(ring, 24e6, inside, between).seconds, 2)
    ...     for between in (outside, DeviceGroupLinks(1, 1.0, 1.0, "hop"))
    ... ]
    [1.1, 0.14]
    """
    inner, outer = algorithm.cost(nbytes, within), algorithm.cost(nbytes / within.peers, between)
    sent = inner.activity.sent_bytes * between.peers + outer.activity.sent_bytes * within.peers
    return KernelCost(inner.seconds + outer.seconds, Activity(sent_bytes=sent))


def build_program(algorithm: ModuleType | PhasedAllreduce, rows: int, nodes: int, members: int) -> Program:
    """Program on a `nodes` x `members` mesh; buffer ``x`` has `rows` rows on each die."""
    within: Any = algorithm.build_program(rows, members).strands if members > 1 else ((),)
    strands = []
    for strand in within:
        halfway = len(strand) // 2
        scatter, gather = (tuple(_in_every_node(turn, nodes) for turn in half) for half in (strand[:halfway], strand[halfway:]))
        slices = _slices(strand[halfway]) if strand else [(0, 0, rows)]
        strands.append((*scatter, *_between(algorithm, nodes, slices), *gather))
    return Program(nodes, members, (Buffer("x", (rows, 1), depth=2),), tuple(strands))


def _slices(gathered: Round) -> list[tuple[int, int, int]]:
    """(die, start, stop) of the reduced slices halfway: what each die sends first when they are gathered."""
    held = {pair for send in list_sends_of_round(gathered) for pair in zip(send.source.col, send.start, send.stop, strict=True)}
    return sorted((int(die), int(start), int(stop)) for die, start, stop in held)


def _in_every_node(turn: Round, nodes: int) -> Round:
    def repeat_in_nodes(send: SendInstruction) -> SendInstruction:
        node = np.repeat(np.arange(nodes), len(send.source.col))
        source, target = (CoreIndex(node, np.tile(cores.col, nodes)) for cores in (send.source, send.target))
        return replace(send, source=source, target=target, start=np.tile(send.start, nodes), stop=np.tile(send.stop, nodes))

    return Round(tuple(repeat_in_nodes(send) for send in list_sends_of_round(turn)))


def _between(algorithm: ModuleType | PhasedAllreduce, nodes: int, slices: list[tuple[int, int, int]]) -> tuple[Round, ...]:
    """Every slice is reduced among the dies that hold it, one of each node, all slices at the same time."""

    def build_turns(die: int, start: int, stop: int) -> list[tuple[SendInstruction, ...]]:
        strands = algorithm.build_program(stop - start, nodes).strands
        return [
            tuple(place_send(send, die, start) for turn in turns for send in list_sends_of_round(turn))
            for turns in zip(*strands, strict=True)
        ]

    def place_send(send: SendInstruction, die: int, first: int) -> SendInstruction:
        source, target = (CoreIndex(cores.col, np.full(len(cores.col), die)) for cores in (send.source, send.target))
        return replace(send, source=source, target=target, start=send.start + first, stop=send.stop + first)

    turns = zip(*(build_turns(*held) for held in slices), strict=True)
    return tuple(Round(tuple(send for sends in turn for send in sends)) for turn in turns)


def list_sends_of_round(turn: Round) -> list[SendInstruction]:
    """List the send instructions of a round of a program."""
    return [step for step in turn.steps if isinstance(step, SendInstruction)]
