"""Multicasts and reductions one message after the other ([zhang2026] section V-A, SW.Seq): the root sends to each member in
turn, or hears from each in turn and has added one message before the next one may come, since it keeps one at a time.

Sending needs no synchronisation; before it may send, a member waits to be told that it is its turn.
"""

from typing import Any

from dse.evaluators.kernels.collective import team
from dse.evaluators.kernels.collective.team import Chain, Groups, Rounds, Stages, Team, Tile
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Program, Slot


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, pattern: str, combine: str = "sum", **cut: Any) -> Cost:
    """Time until all teams are done; leaves broadcast over designs. For p members

        multicast   post + (p - 2) max(words, post) + 2 ramp + hops hop + words, of the last one, or of one whose way is longer
        reduce      post + (p - 1) (2 ramp + words + stage + sum) + all hops hop

    >>> on = Fabric(1, 0, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> [cost(Shape(20, 1, 1), Mesh(1, 8), on, pattern=name, rows=1, cols=8).seconds for name in ("multicast", "reduce")]
    [86.0, 131.0]
    """
    return team.cost(shape, mesh, fabric, pattern, Groups(**cut), chains, moved, circuits)


def seconds(shape: Shape, fabric: Fabric, *, pattern: str, **cut: Any) -> Any:
    """Time alone."""
    return team.seconds(shape, fabric, pattern, Groups(**cut), chains, circuits)


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
    """Data of a core, and of one message."""
    return team.slots(shape, dtype, arriving="reduce" in team.parts(pattern))


def multicast(groups: Groups, mesh: Mesh, tile: Tile) -> Rounds:
    """The root's tile to its team."""
    return team.stepped(groups, mesh, lambda of: [_pairs(of)] if of.members > 1 else [], tile, "set", "router")


def reduction(groups: Groups, mesh: Mesh, tile: Tile, combine: str) -> Rounds:
    """The team's tiles, summed or compared, to its root."""

    def turns(of: Team) -> Stages:
        return [[(target, source)] for source, target in _pairs(of)]

    return team.stepped(groups, mesh, turns, tile, team.combined(combine), "core")


def chains(pattern: str, of: Team) -> list[Chain]:
    """To each member, after those before it; or from each after the other."""
    hops = [of.hops(*pair) for pair in _pairs(of)]
    if pattern == "multicast":
        return team.kept(_turn(turn, far) for turn, far in enumerate(hops)) or [Chain()]
    if pattern == team.AGAIN:  # members that have heard first are the first to be heard
        return team.kept(_turn(turn, far).then(_heard(hops[turn:])) for turn, far in enumerate(hops)) or [Chain()]
    return [_heard(hops)]


def circuits(pattern: str, of: Team) -> list[Chain]:
    """The same where each message to a member waits for the one before it to have come."""
    hops = [of.hops(*pair) for pair in _pairs(of)]
    if pattern == team.AGAIN:
        return team.kept(_called(hops[: turn + 1]).then(_heard(hops[turn:])) for turn in range(len(hops))) or [Chain()]
    return [_called(hops)] if pattern == "multicast" and hops else chains(pattern, of)


def _called(hops: list[int]) -> Chain:
    """To members of some ways, one after the other."""
    return Chain(posts=1, messages=len(hops), hops=sum(hops))


def ways(of: Team) -> dict[int, list[Chain]]:
    """To each member in its turn; the root has started them all."""
    pairs = _pairs(of)
    there = {place: [_turn(turn, of.hops(of.root, place))] for turn, (_, place) in enumerate(pairs)}
    return there | {of.root: [Chain(posts=len(pairs))]}


def _turn(turn: int, hops: int) -> Chain:
    return Chain(posts=1, messages=1, hops=hops, intervals=turn)


def _heard(hops: list[int]) -> Chain:
    """From members of some ways, each after the other."""
    count = len(hops)
    return Chain(posts=min(count, 1), messages=count, stages=count, hops=sum(hops), sums=count)


def moved(pattern: str, of: Team) -> tuple[int, int, int]:
    """Messages, links that they cross, and messages: each comes to one core."""
    return of.members - 1, sum(of.hops(*pair) for pair in _pairs(of)), of.members - 1


def _pairs(of: Team) -> list[tuple[int, int]]:
    """The root, and every other member in turn."""
    return [(of.root, place) for place in range(of.members) if place != of.root]
