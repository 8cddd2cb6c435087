"""Ways to divide a product of matrices over the cores of a group, by name: those of [zhu2025] section 4.1, figure 3, table 2,
and those of a wafer's mesh (`on_mesh`), for groups that are one.

Each module has

    held(shape, rings, members)                     values of input, weights and output on one core
    moved(shape, rings, members)                    values that a core sends during the product
    cost(shape, placement, cores, fabric, engines)  the closed form: (seconds, seconds of the engines)
    steps(shape, placement, cores, dtype)           the program, on slots `a` and `w`; the output is in `c`
    place(a, w, placement, cores), result(tiles, placement, cores, shape)   matrices to tiles, and tiles to the product

and `DIVIDED`: whether it makes use of a grid of rows and columns.
"""

from typing import Any

from dse.evaluators.kernels.gemm import cannon, meshgemm, summa
from dse.evaluators.kernels.partition import input_only, k, mn, mn_k
from dse.evaluators.kernels.partition.on_mesh import OnMesh
from dse.space.errors import chosen

PARTITION: dict[str, Any] = {
    "input_only": input_only,
    "mn": mn,
    "k": k,
    "mn_k": mn_k,
    "meshgemm": OnMesh(meshgemm, shifts=True),
    "cannon": OnMesh(cannon, shifts=True),
    "summa": OnMesh(summa, shifts=False),
}


def partition(name: str) -> Any:
    """The way of a name."""
    return chosen(PARTITION, name, "mapping.both.partition")
