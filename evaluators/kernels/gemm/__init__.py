"""Matrix products over a mesh of cores, by name.

Each module has

    build_program(shape, mesh, dtype)     program of the product
    scatter_operands(shape, mesh, a, b)   operands as blocks of the cores, before it
    gather_result(shape, mesh, blocks)    product from the blocks of the cores, after it
    cost(shape, mesh, fabric)             time and activity by the analytical model
    buffers(shape, mesh, dtype)           blocks that a core holds meanwhile
    local_product_count(mesh)             products that a core starts
    routing_paths(mesh)                   routing paths that a core needs in all
    concurrent_paths(mesh)                routing paths that a core needs at a time
    MIN_SIDE                              cores of a line that it needs

Installed packages add modules by entry points of the group dse.gemm.
"""

from types import ModuleType

from dse.evaluators.kernels.gemm import allgather_gemm as allgather
from dse.evaluators.kernels.gemm import cannon, ladder, meshgemm, summa, t10
from dse.evaluators.kernels.gemm import meshgemm_after_transposed as meshgemm_v
from dse.evaluators.kernels.gemm import meshgemm_transposed as meshgemm_t
from dse.space.errors import choose_option
from dse.space.registry import Registry

REQUIRED_FUNCTIONS = (
    "build_program",
    "scatter_operands",
    "gather_result",
    "cost",
    "buffers",
    "local_product_count",
    "routing_paths",
    "concurrent_paths",
    "MIN_SIDE",
)

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

GEMM_CANDIDATES = ("meshgemm", "cannon", "summa", "allgather", "t10", "ladder")
"""Algorithms that begin and end with operands and product in the same layout, so that each product may have its own."""

GEMM: Registry[ModuleType] = Registry("dse.gemm", SHIPPED, REQUIRED_FUNCTIONS)


def find_gemm(name: str) -> ModuleType:
    """Return the module of a matrix-product algorithm by its option of `mapping.both.gemm`."""
    return choose_option(GEMM, name, "mapping.both.gemm")
