"""Multicasts and reductions in a logarithmic number of steps of software, which synchronise one after the other ([zhang2026]
section V-A, SW.Tree).

Whoever holds the data of a stretch of a line sends it over to the nearest core of its other half, and both go on with their
halves: messages of a step never share a link. A rectangle does so along the root's row, and then along all columns. A
reduction is the same tree backwards, with a sum at each step.
"""

from functools import lru_cache
from itertools import zip_longest
from typing import Any

from dse.evaluators.kernels.collective import team
from dse.evaluators.kernels.collective.team import Chain, Groups, Rounds, Stages, Team, Tile
from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Program, Slot


def cost(shape: Shape, mesh: Mesh, fabric: Fabric, *, pattern: str, combine: str = "sum", **cut: Any) -> Cost:
    """Time until all teams are done; leaves broadcast over designs. For a line of p = 2^s members with the root at its end

        multicast   s (post + 2 ramp + words + stage) + (p - 1) hop
        reduce      s (post + 2 ramp + words + stage + sum) + (p - 1) hop

    >>> on = Fabric(1, 7, 1, 0, 5, 2, 0, 0, 0, 0, 0, word_bytes=4)
    >>> [cost(Shape(20, 1, 1), Mesh(1, 8), on, pattern=name, rows=1, cols=8).seconds for name in ("multicast", "reduce")]
    [85.0, 85.0]
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
    return team.stepped(groups, mesh, stages, tile, "set", "core")


def reduction(groups: Groups, mesh: Mesh, tile: Tile, combine: str) -> Rounds:
    """The team's tiles, summed or compared, to its root."""
    return team.stepped(groups, mesh, _backwards, tile, team.combined(combine), "core")


@lru_cache(maxsize=4096)
def stages(of: Team) -> Stages:
    """Messages of a multicast, step by step.

    >>> stages(Team(1, 5, 1))
    [[(1, 3)], [(1, 2), (3, 4)], [(1, 0)]]
    """
    height, width = divmod(of.root, of.cols)
    across = [[(height * of.cols + a, height * of.cols + b) for a, b in step] for step in _halved(0, of.cols, width)]
    down = [
        [(a * of.cols + col, b * of.cols + col) for a, b in step for col in range(of.cols)]
        for step in _halved(0, of.rows, height)
    ]
    return across + down


def chains(pattern: str, of: Team) -> list[Chain]:
    """What can be the last to be done: for each member what came before it, of all its tree."""
    return _chains(pattern, of, locked=False)


def circuits(pattern: str, of: Team) -> list[Chain]:
    """The same where a core's next message waits for the one before it to have come."""
    return _chains(pattern, of, locked=True)


def _chains(pattern: str, of: Team, *, locked: bool) -> list[Chain]:
    if pattern == "multicast":
        return team.kept(chain for found in _late(of, locked=locked).values() for chain in found) or [Chain()]
    late = _late(of, locked=locked) if pattern == team.AGAIN else {}
    for source, target in (pair for pairs in _backwards(of) for pair in pairs):
        here, there = late.get(source, [Chain()]), late.get(target, [Chain()])
        message = Chain(messages=1, stages=1, hops=of.hops(source, target), sums=1)
        posted = message._replace(posts=1)
        late[target] = team.kept([*(one.then(message) for one in there), *(one.then(posted) for one in here)])
    return late.get(of.root) or [Chain()]


def ways(of: Team) -> dict[int, list[Chain]]:
    """To each member; the root has started as many messages as it has halves."""
    sent = sum(source == of.root for pairs in stages(of) for source, _ in pairs)
    return _late(of) | {of.root: [Chain(posts=sent)]}


def _late(of: Team, *, locked: bool = False) -> dict[int, list[Chain]]:
    """What comes before a multicast is at each member."""
    late: dict[int, list[Chain]] = {}
    for source, target in (pair for pairs in stages(of) for pair in pairs):
        here = late.get(source, [Chain()])
        posted = Chain(posts=1, messages=1, stages=1, hops=of.hops(source, target))
        late[target] = [chain.then(posted) for chain in here]
        after = posted._replace(stages=0, posts=0) if locked else Chain(intervals=1)
        late[source] = team.kept(chain.then(after) for chain in here)
    return late


def moved(pattern: str, of: Team) -> tuple[int, int, int]:
    """Messages, links that they cross, and messages: each comes to one core."""
    return of.members - 1, sum(of.hops(*pair) for pairs in stages(of) for pair in pairs), of.members - 1


def _backwards(of: Team) -> Stages:
    return [[(target, source) for source, target in pairs] for pairs in reversed(stages(of))]


def _halved(start: int, stop: int, root: int) -> Stages:
    """Of places `start` to `stop` of a line."""
    if stop - start < 2:
        return []
    middle = start + (stop - start + 1) // 2
    other = middle if root < middle else middle - 1
    halves = _halved(start, middle, min(root, other)), _halved(middle, stop, max(root, other))
    return [[(root, other)], *([*first, *second] for first, second in zip_longest(*halves, fillvalue=()))]
