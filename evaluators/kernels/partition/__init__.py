"""Partitions of a matrix product over the cores of a group, by name.

They are those of [zhu2025] section 4.1, figure 3 and table 2, and those of a wafer's mesh (`mesh_partition`) for groups that
are a mesh.

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
from dse.evaluators.kernels.partition import input_only
from dse.evaluators.kernels.partition import split_k as k
from dse.evaluators.kernels.partition import split_mn as mn
from dse.evaluators.kernels.partition import split_mn_k as mn_k
from dse.evaluators.kernels.partition.mesh_partition import MeshPartition
from dse.space.errors import choose_option

PARTITION: dict[str, Any] = {
    "input_only": input_only,
    "mn": mn,
    "k": k,
    "mn_k": mn_k,
    "meshgemm": MeshPartition(meshgemm, shifts=True),
    "cannon": MeshPartition(cannon, shifts=True),
    "summa": MeshPartition(summa, shifts=False),
}


def find_partition(name: str) -> Any:
    """Return the partition of an option of `mapping.both.partition`."""
    return choose_option(PARTITION, name, "mapping.both.partition")
