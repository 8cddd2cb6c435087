"""GEMV with ring allreduce: slices travel along each column and back over the wrap.

Each core is one software stage.

[he2025] section 6.1 (2): every partial sum traverses all cores, at 2 alpha + beta each. With a reduce-scatter and an allgather
every core ends with the whole sum.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import local_product as partial
from dse.evaluators.kernels.gemv.local_product import buffers, gather_result, scatter_operands
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import ceil_div, maximum, where

__all__ = [
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "gather_result",
    "line_seconds",
    "message_counts",
    "reduction_rounds",
    "root_row",
    "routing_paths",
    "scatter_operands",
    "software_stages",
]


def routing_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core: one in, one out, and the wrap that passes through. [-]"""
    return 3


def concurrent_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh, phases)


def software_stages(side: int) -> int:
    """Software stages on the critical path: two rounds around the ring. [-]"""
    return 2 * (side - 1)


def root_row(mesh: CoreMesh) -> int:
    """Row of cores that holds the sums; on a ring every row does."""
    return 0


def line_seconds(side: Any, words: Any, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until all cores of a line hold the sums. [s]

    A ring leaves the sums on all cores, so `broadcast` changes nothing.

    2 (N - 1) rounds, each a software stage and a message from memory; a slice that goes round twice meets the wrap of N - 1
    hops in each turn:

        t = 2 (N - 1) (post + 2 ramp + stage + words / N) + 2 (2 N - 3) hop

    Source:
        [he2025] section 6.1 (2), [thakur2005].
    """
    rounds = 2.0 * (side - 1)
    slices = maximum(ceil_div(words, side), 1.0) * fabric.pace
    each = fabric.post + 2 * fabric.ramp + fabric.stage + slices
    return where(side > 1, rounds * each + 2 * (2 * side - 3) * fabric.hop, 0.0)


def message_counts(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross, in whole vectors. [-]"""
    # a round moves one slice of each core: together a whole vector, over N - 1 single hops and one wrap of N - 1
    rounds = 2.0 * (side - 1)
    return rounds, rounds * 2 * (side - 1) / side


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> KernelCost:
    """Time until every row has the product [s], and activity; leaves broadcast over designs."""
    return partial.gemv_cost(shape, mesh, fabric, line_seconds, message_counts)


def reduction_rounds(
    mesh: CoreMesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum"
) -> tuple[Round, ...]:
    """Rounds that combine ``y`` of every column into ``out``: reduce-scatter, then allgather."""
    side = mesh.rows
    bounds = np.linspace(0, length, side + 1).round().astype(int)
    row, col = np.arange(side)[:, None], np.arange(mesh.cols)[None, :]
    source, target = CoreIndex(row, col), CoreIndex(np.roll(row, -1, axis=0), col)
    rounds = []
    for how, lag in ((combine, 0), ("set", -1)):
        for turn in range(side - 1):
            part = (row - turn - lag) % side
            rounds.append(
                Round((SendInstruction("y", source, target, bounds[part], bounds[part + 1], combine=how, via="core"),))
            )
    keep = SendInstruction("y", source, source, np.asarray(0), np.asarray(length), into="out")
    return (*rounds, Round((keep,)))


def build_program(
    shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2
) -> Program:
    """Program of the product; a ring leaves the sums on all cores, so `broadcast` changes nothing."""
    return partial.gemv_program(shape, mesh, dtype, reduction_rounds(mesh, ceil(shape.n / mesh.cols)))
