"""A network on chip studied without cores: router stages and broken parts of a mesh."""

import re
from typing import Any, NamedTuple

from dse.space.array_math import Number
from dse.space.chip import Chip, Router
from dse.space.errors import DesignError

MOST_VCS, MOST_DEPTH = 16, 16_384
"""Virtual channels of a port that compiled routers are laid out for, and flits of each."""


class RouterCycles(NamedTuple):
    """Latencies of a router's stages for flits and credits. [cycles]

    Attributes:
        before: from a head's arrival until it may have the switch, where nothing is in its way.
        after: from the grant of the switch until the arrival at the next router.
        back: from the grant of the switch until the previous router counts the credit.
    """

    before: Any
    after: Any
    back: Any

    @property
    def hop(self) -> Any:
        """Latency from one router to the next. [cycles]"""
        return self.before + self.after


def router_cycles(router: Router) -> RouterCycles:
    """Latencies of flits and credits from the stages of a router. [cycles]"""
    before = router.route_cycles if router.speculative else router.route_cycles + router.vc_alloc
    return RouterCycles(before, router.switch_alloc + router.switch_traversal + router.link, 1 + router.link + router.credit)


class MeshFaults(NamedTuple):
    """Broken parts of a mesh: links as pairs of nodes, lower one first, and routers."""

    links: tuple[tuple[int, int], ...] = ()
    routers: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.links or self.routers)


NO_FAULTS = MeshFaults()


def parse_faults(chip: Chip, address: str = "chip") -> MeshFaults:
    """Faults of a chip, parsed from their text.

    Raises:
        DesignError: a text that is no list of nodes and links, a node that the mesh does not have, or a link between nodes that
            are not neighbours.
    """
    links, routers = [], []
    rows, cols = int(chip.mesh.rows), int(chip.mesh.cols)
    for part in [] if chip.faults in (None, "none") else chip.faults.split("+"):
        if not re.fullmatch(r"\d+(-\d+)?", part):
            raise DesignError(
                f"{address}.faults: {part!r} is neither a node nor a link, as in 12 or 3-4; join them by +, or set none"
            )
        nodes = sorted(int(node) for node in part.split("-"))
        if nodes[-1] >= rows * cols:
            raise DesignError(f"{address}.faults: no node {nodes[-1]} on {rows} x {cols}; the last node is {rows * cols - 1}")
        if len(nodes) == 1:
            routers.append(nodes[0])
            continue
        low, high = nodes
        if high - low != cols and (high - low != 1 or high % cols == 0):
            raise DesignError(
                f"{address}.faults: nodes {low} and {high} on {rows} x {cols} are not neighbours and have no link"
            )
        links.append((low, high))
    return MeshFaults(tuple(links), tuple(routers))


def faults_in_rectangle(broken: MeshFaults, wide: int, rows: int, cols: int) -> MeshFaults:
    """Faults inside the rectangle at the first corner of a mesh `wide` nodes wide, in its own numbering.

    >>> faults_in_rectangle(MeshFaults(links=((1, 2), (2, 3), (1, 9)), routers=(9, 20)), 8, 2, 3)
    MeshFaults(links=((1, 2), (1, 4)), routers=(4,))
    """

    def local_router(node: int) -> int | None:
        row, col = divmod(node, wide)
        return row * cols + col if row < rows and col < cols else None

    links = ((local_router(a), local_router(b)) for a, b in broken.links)
    routers = (local_router(node) for node in broken.routers)
    return MeshFaults(
        tuple((a, b) for a, b in links if a is not None and b is not None),
        tuple(node for node in routers if node is not None),
    )


def check_router_buffers(vcs: Number, depth: Number, address: str) -> None:
    """Refuse more or deeper virtual channels than the router simulation supports.

    Raises:
        DesignError: there are.
    """
    if vcs > MOST_VCS:
        raise DesignError(f"{address}.vcs: at most {MOST_VCS} virtual channels per port are supported, got {vcs:g}")
    if depth > MOST_DEPTH:
        raise DesignError(f"{address}.vc_depth: at most {MOST_DEPTH:,} flits per virtual channel are supported, got {depth:g}")


def check_network(chip: Chip, address: str = "chip") -> None:
    """Refuse a network whose settings contradict each other.

    Raises:
        DesignError: more or deeper virtual channels than routers are laid out for, a mesh of one router, a speculative router
            allocated before its channels are, or faults of absent links or routers.
    """
    parse_faults(chip, address)
    router = chip.router
    check_router_buffers(router.vcs, router.vc_depth, f"{address}.router")
    if chip.mesh.rows * chip.mesh.cols < 2:
        raise DesignError(f"{address}.mesh.rows: a mesh of one router has no links; add another row or column")
    if router.speculative and router.vc_alloc > router.switch_alloc:
        have = f"{router.switch_alloc:g} cycles are less than {router.vc_alloc:g} of vc_alloc"
        raise DesignError(f"{address}.router.switch_alloc: {have}, and speculation runs both in parallel; make them equal")
