"""Concatenation: a new token is stored by the last row of cores, which fills alone and computes alone over what it holds.

[he2025] section 4.3 and figure 5 (1, 2): what is common on GPUs; on a mesh memory and work are skewed to one row.
"""

from math import ceil
from typing import Any

import numpy as np

from dse.evaluators.kernels.cost import Cost
from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
from dse.evaluators.machine.fabric import Fabric
from dse.evaluators.program.activity import Activity
from dse.evaluators.program.rounds import Cores, Program, Round, Send, Slot
from dse.space.elementwise import ceil_div


def capacity(rows: Any, per_core: Any) -> Any:
    """Tokens that can be generated: those that fit the last row."""
    return per_core


def held(tokens: int, rows: int) -> list[int]:
    """Generated tokens on each row.

    >>> held(5, 3)
    [0, 0, 5]
    """
    return [0] * (rows - 1) + [tokens]


def fullest(context: Any, generated: Any, rows: Any) -> Any:
    """Tokens of a request on the row that has most: its share of the prompt, and all that was generated."""
    return ceil_div(context - generated, rows) + generated


def cost(shape: Shape, mesh: Mesh, fabric: Fabric) -> Cost:
    """Time to store what m tokens are wide: nothing moves."""
    return Cost(0.0, Activity())


def grown(mesh: Mesh, tokens: int, width: int, per_core: int, dtype: str = "float32") -> Program:
    """One new token, from slot ``new`` of the last row to the end of its ``cache``, which holds `tokens` so far."""
    slots = (Slot("cache", (per_core, width), dtype, depth=2), Slot("new", (1, width), dtype))
    last = Cores(np.array([[mesh.rows - 1]]), np.arange(mesh.cols)[None, :])
    store = Send("new", last, last, np.asarray(0), np.asarray(1), at=np.asarray(tokens), into="cache")
    return Program(mesh.rows, mesh.cols, slots, ((Round((store,)),),))


def steps(shape: Shape, mesh: Mesh, dtype: str = "float32") -> Program:
    """The program of one token, m x k wide over the columns, where every row holds one already."""
    return grown(mesh, mesh.rows, shape.m * ceil(shape.k / mesh.cols), mesh.rows + 1, dtype)
