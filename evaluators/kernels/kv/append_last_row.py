"""KV cache by concatenation: the last row of cores stores each new token.

That row alone fills up, and alone computes over the tokens that it holds.

[he2025] section 4.3 and figure 5 (1, 2): what is common on GPUs; on a mesh memory and work are skewed to one row.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.kernel_ir import Buffer, CoreIndex, Program, Round, SendInstruction
from dse.space.array_math import ceil_div


def token_capacity(rows: Any, per_core: Any) -> Any:
    """Tokens that can be generated: those that fit the last row. [-]"""
    return per_core


def tokens_per_row(tokens: int, rows: int) -> list[int]:
    """Generated tokens on each row of cores. [-]

    >>> tokens_per_row(5, 3)
    [0, 0, 5]
    """
    return [0] * (rows - 1) + [tokens]


def fullest_row_tokens(context: Any, generated: Any, rows: Any) -> Any:
    """Tokens of a request on the fullest row: its share of the prompt, and all generated ones. [-]"""
    return ceil_div(context - generated, rows) + generated


def cost(shape: GemmShape, mesh: CoreMesh, fabric: MeshFabric) -> KernelCost:
    """Time [s] and activity of storing m tokens' keys and values, without any movement."""
    return KernelCost(0.0, Activity())


def append_program(mesh: CoreMesh, tokens: int, width: int, per_core: int, dtype: str = "float32") -> Program:
    """Program of one new token: from ``new`` of the last row to the end of its ``cache``.

    The cache holds `tokens` before.
    """
    slots = (Buffer("cache", (per_core, width), dtype, depth=2), Buffer("new", (1, width), dtype))
    last = CoreIndex(np.array([[mesh.rows - 1]]), np.arange(mesh.cols)[None, :])
    store = SendInstruction("new", last, last, np.asarray(0), np.asarray(1), at=np.asarray(tokens), into="cache")
    return Program(mesh.rows, mesh.cols, slots, ((Round((store,)),),))


def build_program(shape: GemmShape, mesh: CoreMesh, dtype: str = "float32") -> Program:
    """Program of one token, m x k wide over the columns, where every row holds one already."""
    return append_program(mesh, mesh.rows, shape.m * ceil(shape.k / mesh.cols), mesh.rows + 1, dtype)
