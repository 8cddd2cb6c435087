"""Multicasts and reductions that the network carries: routers copy words where ways part, and add or compare them where they
meet ([zhang2026] section II-D). Each link of a team's tree is crossed once, and no software is in between.
"""

from typing import Any

import numpy as np

from dse.evaluators.kernels.collective import team
from dse.evaluators.kernels.collective.team import Chain, Groups, Rounds, Team, Tile
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Multicast, Program, Reduce, Round, Slot


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, pattern: str, combine: str = "sum", **cut: Any) -> Cost:
    """Time until all teams are done; leaves broadcast over designs.

    The farthest member's way, and then the words one after the other, for a multicast as for a reduction:

        t = post + 2 ramp + reach hop + words

    >>> on = Fabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> cost(Shape(20, 1, 1), Mesh(8, 8), on, pattern="multicast", rows=8, cols=8).seconds
    26.0
    """
    return team.cost(shape, mesh, fabric, pattern, Groups(**cut), chains, moved)


def seconds(shape: Shape, fabric: Fabric, *, pattern: str, **cut: Any) -> Any:
    """Time alone."""
    return team.seconds(shape, fabric, pattern, Groups(**cut), chains)


def leading(shape: Shape, fabric: Fabric, **cut: Any) -> Any:
    """Time until a multicast is at members that are roots of other teams (`team.leading`)."""
    return team.leading(shape, fabric, Groups(**cut), ways)


def held(shape: Shape, fabric: Fabric, **cut: Any) -> Any:
    """Time that the root of a multicast sends (`team.held`)."""
    return team.held(shape, fabric, Groups(**cut), ways)


def activity(shape: Shape, mesh: Mesh, *, pattern: str, **cut: Any) -> Activity:
    """What is moved alone."""
    return team.activity(shape, mesh, pattern, Groups(**cut), moved)


def steps(shape: Shape, mesh: Mesh, dtype: str, *, pattern: str, combine: str = "sum", **cut: Any) -> Program:
    """The program: ``x`` of the root to its team, of the team to its root, or both."""
    groups, tile = Groups(**cut), Tile("x", 0, shape.m)
    return team.program(
        mesh,
        slots(shape, mesh, dtype, pattern=pattern),
        pattern,
        lambda: multicast(groups, mesh, tile),
        lambda: reduction(groups, mesh, tile, combine),
    )


def slots(shape: Shape, mesh: Mesh, dtype: str, *, pattern: str) -> tuple[Slot, ...]:
    """Data of a core; nothing is kept on the way."""
    return team.slots(shape, dtype, arriving=False)


def multicast(groups: Groups, mesh: Mesh, tile: Tile) -> Rounds:
    """The root's tile to its team."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    return (Round((Multicast(tile.slot, team.members(groups, mesh), *ends, tile.slot, at=ends[0]),)),)


def reduction(groups: Groups, mesh: Mesh, tile: Tile, combine: str, into: str = "") -> Rounds:
    """The team's tiles, summed or compared, to the same slot of its root, or to another one from its first row on."""
    ends = np.asarray(tile.start), np.asarray(tile.stop)
    path, how = team.members(groups, mesh), team.combined(combine)
    return (Round((Reduce(tile.slot, path, *ends, into or tile.slot, at=ends[0], combine=how, via="router"),)),)


def chains(pattern: str, of: Team) -> list[Chain]:
    """One message, as long as the way of the farthest member."""
    if of.members == 1:
        return [Chain()]
    one = Chain(posts=1, messages=1, hops=of.reach)
    return [one.then(one) if pattern == team.AGAIN else one]


def ways(of: Team) -> dict[int, list[Chain]]:
    """A message, as long as the way of the member; its root has started it."""
    there = {place: [Chain(posts=1, messages=1, hops=of.hops(of.root, place))] for place in range(of.members)}
    return there | {of.root: [Chain(posts=min(of.members - 1, 1))]}


def moved(pattern: str, of: Team) -> tuple[int, int, int]:
    """Messages that leave a core, links, and messages that come: a tree has as many links as members beside its root."""
    one, others = min(of.members - 1, 1), of.members - 1
    return (one, others, others) if pattern == "multicast" else (others, others, one)
