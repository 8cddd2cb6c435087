"""Vector-matrix products over a mesh of cores, by the algorithm that adds their partial sums.

Each module has

    build_program(shape, mesh, dtype, broadcast=..)   program of the product; ktree takes its number of phases too
    scatter_operands(shape, mesh, x, w)               operands as blocks of the cores
    gather_result(shape, mesh, blocks)                product from the blocks of the cores
    cost(shape, mesh, fabric, broadcast=..)           time and activity by the analytical model
    buffers(shape, mesh, dtype)                       blocks that a core holds meanwhile
    routing_paths(mesh), concurrent_paths(mesh)       routing paths that a core needs, in all and at a time
    software_stages(side)                             software stages on the critical path
    line_seconds(side, words, fabric)                 time of the reduction along one line by itself
    message_counts(side)                              messages of that reduction, and links that they cross
    reduction_rounds(mesh, length, combine=..)        rounds of that reduction

Where the network copies sums that go back, it also has

    extra_deliveries(side)                            messages that come to cores beyond those that leave them

Installed packages add modules by entry points of the group dse.gemv.
"""

from types import ModuleType
from typing import Any

from dse.evaluators.kernels.gemv import ktree, ladder, pipeline, ring
from dse.space.errors import choose_option
from dse.space.memoize import has_attribute
from dse.space.registry import Registry

REQUIRED_FUNCTIONS = (
    "build_program",
    "scatter_operands",
    "gather_result",
    "cost",
    "buffers",
    "routing_paths",
    "concurrent_paths",
    "software_stages",
    "line_seconds",
    "message_counts",
    "reduction_rounds",
)

GEMV_CANDIDATES = ("ktree", "ring", "pipeline", "ladder")
"""Ways to the same sums on the same cores, so that each product and each allreduce may have its own."""

GEMV: Registry[ModuleType] = Registry(
    "dse.gemv", {"pipeline": pipeline, "ring": ring, "ktree": ktree, "ladder": ladder}, REQUIRED_FUNCTIONS
)


def extra_deliveries(name: str, side: Any) -> Any:
    """Messages received on a line beyond those sent, because of multicasts. [-]"""
    way = find_gemv(name)
    return way.extra_deliveries(side) if has_attribute(way, "extra_deliveries") else 0.0


def find_gemv(name: str) -> ModuleType:
    """Return the module of a GEMV algorithm by its option of `mapping.both.gemv`."""
    return choose_option(GEMV, name, "mapping.both.gemv")
