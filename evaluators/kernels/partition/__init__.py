"""Partitions of a matrix product over the cores of a group, by name.

They are those of [zhu2025] section 4.1, figure 3 and table 2, and those of a wafer's mesh (`mesh_partition`) for groups that
are a mesh.

Each module has

    values_per_core(shape, rings, members)            values of input, weights and output on one core
    values_sent(shape, rings, members)                values that a core sends during the product
    cost(shape, placement, cores, fabric, engines)    time of the product, and of its engines, by the analytical model
    build_program(shape, placement, cores, dtype)     program, on buffers `a` and `w`; the output is in `c`
    scatter_operands(a, w, placement, cores)          matrices as blocks of the cores
    gather_result(tiles, placement, cores, shape)     product from the blocks of the cores
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
