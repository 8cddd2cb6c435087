"""Vector-matrix products over a mesh of cores, by the way their partial sums are added up.

Each module has

    steps(shape, mesh, dtype, broadcast=..)   the program; ktree takes its number of phases too
    place(shape, mesh, x, w)                  the operands as tiles
    result(shape, mesh, tiles)                the product
    cost(shape, mesh, fabric, broadcast=..)   its time and activity, in closed form
    slots(shape, mesh, dtype)                 tiles that a core holds meanwhile
    paths(mesh), at_once(mesh)                routing paths that a core needs, in all and at a time
    stages(side)                              software stages on the critical path
    line(side, words, fabric)                 of the reduction along one line by itself: its time,
    moved(side)                               messages and links that they cross,
    reduction(mesh, length, combine=..)       and rounds

Where the network copies sums that go back, it also has

    copies(side)                              messages that come to cores beyond those that leave them

Installed packages add modules by entry points of the group dse.gemv.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.gemv import ktree, ladder, pipeline, ring
from dse.space.errors import chosen
from dse.space.registry import Registry
from dse.space.remember import has

NEEDS = ("steps", "place", "result", "cost", "slots", "paths", "at_once", "stages", "line", "moved", "reduction")

RIVALS = ("ktree", "ring", "pipeline", "ladder")
"""Ways to the same sums on the same cores, so that each product and each allreduce may have its own."""

GEMV: Registry[ModuleType] = Registry("dse.gemv", {"pipeline": pipeline, "ring": ring, "ktree": ktree, "ladder": ladder}, NEEDS)


def copies(name: str, side: Any) -> Any:
    """Messages of a line that come to cores beyond those that leave them."""
    way = gemv(name)
    return way.copies(side) if has(way, "copies") else 0.0


def gemv(name: str) -> ModuleType:
    """The algorithm of a name."""
    return chosen(GEMV, name, "mapping.both.gemv")
