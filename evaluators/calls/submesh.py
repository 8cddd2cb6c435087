"""Kernels on a submesh, for simulators that are too slow for the whole mesh.

Each core keeps its work.
"""

from math import ceil, gcd
from typing import Any

from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.kernels.gemm import find_gemm
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.space.array_math import ceil_div
from dse.space.design import Design
from dse.space.software import PRODUCT, software_of

SUBMESH_MARK = "@"
"""Between a fidelity and the cores per side that are simulated, as in cycles@8."""

OVER: dict[str, tuple[str, str, str]] = {
    "gemm": ("rows", "cols", "cols"),
    "meshgemm_t": ("rows", "cols", "rows"),
    "meshgemm_v": ("rows", "rows", "cols"),
    "gemv": ("", "rows", "cols"),
    "vector": ("cols", "rows", ""),
    "kv": ("", "cols", ""),
    "transfer": ("cols", "rows", ""),
    "dispatch": ("rows", "cols", ""),
    "turn": ("", "rows", ""),
}
"""Sides of the mesh that m, k and n lie over, by algorithm or else kind of kernel; "" where every core has all."""


def parse_fidelity(fidelity: str) -> tuple[str, int]:
    """Fidelity without its submesh, and the cores per side that are simulated; 0 for the whole mesh.

    >>> parse_fidelity("cycles@8"), parse_fidelity("events")
    (('cycles', 8), ('events', 0))
    """
    word, _, side = fidelity.partition(SUBMESH_MARK)
    return word, int(side or 0)


def submesh_sides(rows: int, cols: int, side: int, least: int = 1) -> tuple[int, int]:
    """Sides of a submesh: at most `side`, at least `least`, with the proportions of the mesh if possible.

    >>> (
    ...     submesh_sides(600, 600, 8),
    ...     submesh_sides(600, 480, 8),
    ...     submesh_sides(4, 2, 8),
    ...     submesh_sides(601, 300, 8),
    ...     submesh_sides(600, 100, 8, 3),
    ... )
    ((8, 8), (5, 4), (4, 2), (8, 4), (18, 3))
    """
    if max(rows, cols) <= side:
        return rows, cols
    common = gcd(rows, cols)
    high, wide = rows // common, cols // common
    if max(high, wide) <= side:
        times = max(side // max(high, wide), ceil(least / min(high, wide)))
        return high * times, wide * times
    share = side / max(rows, cols)
    return max(round(rows * share), least), max(round(cols * share), least)


def core_extent(design: Design) -> tuple[int, int]:
    """Rows and columns of the cores of a design, or of those that its product lies on. [-]"""
    kernel = design.mapping.kernel if software_of(design.mapping) == PRODUCT else design.chip.mesh
    return int(kernel.rows), int(kernel.cols or kernel.rows)


def submesh_share(size: Any, whole: int, kept: int) -> Any:
    """Share of a size on `kept` of `whole` cores, each as much as the fullest; all if all are kept. [-]"""
    return size if kept == whole else ceil_div(size, whole) * kept


def kernel_on_submesh(kernel: MeshKernel, side: int) -> MeshKernel:
    """Kernel on at most `side` x `side` cores of its mesh; unchanged if `side` is 0."""
    if not side:
        return kernel
    whole = {"rows": int(kernel.mesh.rows), "cols": int(kernel.mesh.cols)}
    sides = submesh_sides(whole["rows"], whole["cols"], side, _least(kernel))
    kept = {name: min(size, whole[name]) for name, size in zip(whole, sides, strict=True)}
    over = OVER.get(kernel.algorithm) or OVER[kernel.kind]
    if kernel.options.get("replicated"):
        over = ("", *over[1:])
    whole_sizes = kernel.shape.m, kernel.shape.k, kernel.shape.n
    sizes = (
        submesh_share(size, whole[axis], kept[axis]) if axis else size for size, axis in zip(whole_sizes, over, strict=True)
    )
    return kernel._replace(shape=GemmShape(*sizes), mesh=CoreMesh(kept["rows"], kept["cols"]))


def _least(kernel: MeshKernel) -> int:
    """Cores of a line that an algorithm needs."""
    if kernel.kind == "gemm":
        return int(find_gemm(kernel.algorithm).MIN_SIDE)
    tree = "ktree" in (kernel.algorithm, kernel.options.get("allreduce"))
    return int(kernel.options["phases"]) if tree else 1
