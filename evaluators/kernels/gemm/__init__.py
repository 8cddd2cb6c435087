"""Matrix products over a mesh of cores, by name.

Each module has

    steps(shape, mesh, dtype)     the program
    place(shape, mesh, a, b)      the operands as tiles, before it
    result(shape, mesh, tiles)    the product, after it
    cost(shape, mesh, fabric)     its time and activity, in closed form
    slots(shape, mesh, dtype)     tiles that a core holds meanwhile
    products(mesh)                products that a core starts
    paths(mesh), at_once(mesh)    routing paths that a core needs, in all and at a time
    LEAST                         cores of a line that it needs

Installed packages add modules by entry points of the group dse.gemm.
"""

from types import ModuleType

from dse.evaluators.kernels.gemm import allgather, cannon, ladder, meshgemm, meshgemm_t, meshgemm_v, summa, t10
from dse.space.errors import chosen
from dse.space.registry import Registry

NEEDS = ("steps", "place", "result", "cost", "slots", "products", "paths", "at_once", "LEAST")

SHIPPED = {
    "allgather": allgather,
    "summa": summa,
    "cannon": cannon,
    "meshgemm": meshgemm,
    "meshgemm_t": meshgemm_t,
    "meshgemm_v": meshgemm_v,
    "t10": t10,
    "ladder": ladder,
}

RIVALS = ("meshgemm", "cannon", "summa", "allgather", "t10", "ladder")
"""Algorithms that begin and end with operands and product in the same layout, so that each product may have its own."""

GEMM: Registry[ModuleType] = Registry("dse.gemm", SHIPPED, NEEDS)


def gemm(name: str) -> ModuleType:
    """The algorithm of a name."""
    return chosen(GEMM, name, "mapping.both.gemm")
