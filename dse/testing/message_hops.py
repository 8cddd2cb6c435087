"""Hops of a program's messages: the most links that one message crosses from core to core."""

import numpy as np

from dse.evaluators.program.kernel_ir import (
    CoreIndex,
    MulticastInstruction,
    Program,
    ReduceInstruction,
    SendInstruction,
    iterate_rounds,
)
from dse.evaluators.program.routes import hop_distance
from dse.space.array_math import Array


def longest_hop(program: Program) -> int:
    """Most links that one message crosses from a core to the next one that handles it. [-]"""
    longest = 0
    for strand in program.strands:
        for turn in {id(turn): turn for turn in iterate_rounds(strand)}.values():
            for step in turn.steps:
                if isinstance(step, SendInstruction):
                    hops: Array = hop_distance(step.source, step.target, program)
                elif not isinstance(step, MulticastInstruction | ReduceInstruction):
                    continue
                elif isinstance(step, ReduceInstruction) and step.via == "core":
                    hops = _leg_links(step.path)
                else:
                    hops = _root_distances(step.path, program)
                longest = max(longest, int(np.max(hops, initial=0)))
    return longest


def _leg_links(path: CoreIndex) -> Array:
    """Links from each member to the next along the line, shape (..., members - 1)."""
    row, col = (np.sort(np.broadcast_to(axis, path.shape), axis=-1) for axis in (path.row, path.col))
    return np.asarray(np.diff(row, axis=-1) + np.diff(col, axis=-1))


def _root_distances(path: CoreIndex, program: Program) -> Array:
    """Links from the root to each member, shape (..., members)."""
    row, col = (np.broadcast_to(axis, path.shape) for axis in (path.row, path.col))
    return hop_distance(CoreIndex(row[..., :1], col[..., :1]), CoreIndex(row, col), program)
