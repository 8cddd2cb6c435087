"""Routes of a program's messages on a mesh, torus or full mesh: distances, trees, routing paths."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from dse.evaluators.program.kernel_ir import (
    CoreIndex,
    MulticastInstruction,
    Program,
    ReduceInstruction,
    SendInstruction,
    iterate_rounds,
)
from dse.space.array_math import Array


def routing_paths(program: Program, *, at_once: bool = False) -> int:
    """Routing paths of the core with the most: paths that begin, end or pass there. [-]

    A path is a pair of cores between which the network carries messages, the neighbours between which one is relayed, a tree
    with its root, or a line on which sums pass from core to core, whichever way.

    Args:
        program: instructions of every core.
        at_once: count those of a round, for a fabric whose routes are set anew; else those of the whole program.
    """
    most = 0
    paths: set[tuple[tuple[int, int], Any]] = set()
    seen: set[int] = set()
    for strand in program.strands:
        for turn in iterate_rounds(strand):
            if id(turn) in seen:
                continue
            seen.add(id(turn))
            paths = set() if at_once else paths
            for step in turn.steps:
                if isinstance(step, SendInstruction | MulticastInstruction | ReduceInstruction):
                    paths |= set(_routes(step, program))
            most = max(most, _most_common(core for core, _ in paths))
    return most


def _routes(
    step: SendInstruction | MulticastInstruction | ReduceInstruction, program: Program
) -> Iterator[tuple[tuple[int, int], Any]]:
    """(core, path) for every core of every path."""
    if isinstance(step, SendInstruction):
        shape = np.broadcast_shapes(step.source.shape, step.target.shape, np.shape(step.start))
        ends = (step.source.row, step.source.col, step.target.row, step.target.col)
        for r, c, to_r, to_c in zip(*(np.broadcast_to(end, shape).ravel().tolist() for end in ends), strict=True):
            line = _route((r, c), (to_r, to_c), program)
            if len(line) > 1 and step.via == "relay":
                for pair in pairwise(line):
                    yield from ((core, pair) for core in pair)
            elif len(line) > 1:
                yield from ((core, ((r, c), (to_r, to_c))) for core in line)
        return
    row, col = (axis.reshape(-1, axis.shape[-1]) for axis in _spread(step.path))
    for r, c in zip(row, col, strict=True):
        if len(r) > 1:
            members = list(zip(r.tolist(), c.tolist(), strict=True))
            straight = (r == r[0]).all() or (c == c[0]).all()
            if straight and program.topology == "mesh":
                tree: Iterable[tuple[int, int]] = _route(min(members), max(members), program)
            elif isinstance(step, MulticastInstruction):
                tree = {core for member in members for core in _route(members[0], member, program)}
            else:
                tree = {core for member in members for core in _route(member, members[0], program)}
            name = ("tree", members[0], *sorted(tree)) if isinstance(step, MulticastInstruction) else ("sums", *sorted(members))
            yield from ((core, name) for core in tree)


def route_cores(source: tuple[int, int], target: tuple[int, int]) -> list[tuple[int, int]]:
    """Cores of a mesh from one to another, across to the target's column first."""
    (r, c), (to_r, to_c) = source, target
    across, down = (1 if to_c > c else -1), (1 if to_r > r else -1)
    return [(r, col) for col in range(c, to_c, across)] + [(row, to_c) for row in range(r, to_r + down, down)]


def _route(source: tuple[int, int], target: tuple[int, int], program: Program) -> list[tuple[int, int]]:
    """Cores from one to another, whatever the topology."""
    if program.topology == "full":
        return [source, target] if source != target else [source]
    (r, c), torus = source, program.topology == "torus"
    down, across = (int(signed_hops(*ends, torus)) for ends in ((r, target[0], program.rows), (c, target[1], program.cols)))
    return [(row % program.rows, col % program.cols) for row, col in route_cores(source, (r + down, c + across))]


def _most_common(cores: Iterator[tuple[int, int]]) -> int:
    counts = Counter(cores)
    return max(counts.values(), default=0)


def hop_distance(source: CoreIndex, target: CoreIndex, program: Program) -> Array:
    """Links between cores, dimension by dimension. [-]"""
    if program.topology == "full":
        return np.asarray((source.row != target.row) | (source.col != target.col)).astype(int)
    down, across = _steps(source, target, program)
    return np.asarray(np.abs(down) + np.abs(across))


def signed_hops(source: Any, target: Any, side: int, closed: bool) -> Any:
    """Signed links from one place of a line to another, around the end if shorter on a closed line. [-]

    >>> signed_hops(0, 4, 6, False), int(signed_hops(0, 4, 6, True)), int(signed_hops(0, 3, 6, True))
    (4, -2, 3)
    """
    far = target - source
    return far - np.sign(far) * side * (2 * np.abs(far) > side) if closed else far


def _steps(source: CoreIndex, target: CoreIndex, program: Program) -> tuple[Array, Array]:
    """Links down and across between cores of a mesh or torus."""
    torus = program.topology == "torus"
    down = signed_hops(source.row, target.row, program.rows, torus)
    return np.asarray(down), np.asarray(signed_hops(source.col, target.col, program.cols, torus))


def multicast_tree(step: MulticastInstruction | ReduceInstruction, program: Program) -> Array:
    """Links of the routes between the root and all members: a trunk, and its branches in order.

    A multicast's trunk is the root's row and its branches are columns; sums come along the rows to the root's column.
    """
    if program.topology == "full":
        return np.full(step.path.shape[:-1], step.path.shape[-1] - 1)
    down, across = _steps(*_ends(step.path), program)
    trunk, branch = (across, down) if isinstance(step, MulticastInstruction) else (down, across)
    whole = _extent(trunk)
    if ((trunk == 0) | (branch == 0)).all():
        return np.asarray(whole + _extent(branch))
    for place in np.unique(trunk):
        whole = whole + _extent(np.where(trunk == place, branch, 0))
    return np.asarray(whole)


def _extent(steps: Array) -> Array:
    """Links from 0 to the farthest places both ways, of the last axis."""
    return np.asarray(np.max(steps, axis=-1, initial=0) - np.min(steps, axis=-1, initial=0))


def _ends(path: CoreIndex) -> tuple[CoreIndex, CoreIndex]:
    """The root, and all members."""
    row, col = _spread(path)
    return CoreIndex(row[..., :1], col[..., :1]), CoreIndex(row, col)


def _spread(path: CoreIndex) -> tuple[Array, Array]:
    return np.broadcast_to(path.row, path.shape), np.broadcast_to(path.col, path.shape)
