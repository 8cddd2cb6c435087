"""Pipeline allreduce: partial sums pass from the farthest core to the root, then a broadcast.

Each core is one software stage.

[he2025] section 6.1 (1): 2 N hops and N routing stages, a constant number of paths.
"""

from functools import partial as bound
from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import local_product as partial
from dse.evaluators.kernels.gemv.local_product import buffers, extra_deliveries, gather_result, scatter_operands
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.kernel_ir import Program, Round
from dse.space.array_math import where

__all__ = [
    "buffers",
    "build_program",
    "concurrent_paths",
    "cost",
    "extra_deliveries",
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
    """Routing paths of a core: the chain, and the broadcast. [-]"""
    return 2


def concurrent_paths(mesh: CoreMesh, phases: Any = 2) -> Any:
    """Routing paths of a core at a time: all of them, set once. [-]"""
    return routing_paths(mesh, phases)


def software_stages(side: int) -> int:
    """Software stages on the critical path: one per hop of the chain. [-]"""
    return side - 1


def root_row(mesh: CoreMesh) -> int:
    """Row of cores that holds the sums."""
    return 0


def line_seconds(side: Any, words: Any, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> Any:
    """Time until the root of a line, or with `broadcast` all its cores, hold the sums. [s]

    The chain of N - 1 software stages, one hop apart, through which the words stream:

        t = (N - 1) (2 ramp + hop + stage) + words

    With stage = hop = 1 cycle this is the chain reduction of [luczynski2024].

    Source:
        [he2025] section 6.1 (1).
    """
    legs = side - 1.0
    chain = where(legs > 0, legs * (2 * fabric.ramp + fabric.hop + fabric.stage) + words * fabric.pace, 0.0)
    return chain + partial.broadcast_seconds(side, 0, words, fabric) if broadcast else chain


def message_counts(side: Any, *, broadcast: bool = True, phases: int = 2) -> tuple[Any, Any]:
    """Messages of a line, and links that they cross. [-]"""
    legs = side - 1.0
    spread = broadcast * (side > 1)
    return legs + spread, legs + spread * legs


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric, *, broadcast: bool = True, phases: int = 2) -> KernelCost:
    """Time until the root (or with `broadcast` every row) has the product [s], and activity."""
    return partial.gemv_cost(
        shape, mesh, fabric, bound(line_seconds, broadcast=broadcast), bound(message_counts, broadcast=broadcast),
        bound(extra_deliveries, broadcast=broadcast),
    )  # fmt: skip


def reduction_rounds(
    mesh: CoreMesh, length: int, *, broadcast: bool = True, phases: int = 2, combine: str = "sum"
) -> tuple[Round, ...]:
    """Rounds that combine ``y`` of every column into ``out``."""
    chain = Round((partial.column_reduction(mesh, np.arange(mesh.rows), length, "y" if broadcast else "out", combine),))
    return (chain, partial.column_broadcast(mesh, 0, length)) if broadcast else (chain,)


def build_program(
    shape: GemmShape, mesh: CoreMesh, dtype: str = "float32", *, broadcast: bool = True, phases: int = 2
) -> Program:
    """Program of the product; without `broadcast` the sums stay at the root."""
    return partial.gemv_program(shape, mesh, dtype, reduction_rounds(mesh, ceil(shape.n / mesh.cols), broadcast=broadcast))
