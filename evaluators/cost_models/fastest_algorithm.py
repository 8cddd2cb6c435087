"""Choice of the fastest candidate of a kernel, and of the fastest sums of a group.

The analytical model chooses, for simulators too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dse.evaluators.calls.algorithm_candidates import algorithm_of, group_with_partition, kernel_with_algorithm, select_values
from dse.evaluators.calls.call import CallProduct, CoreGroupSplit, MeshKernel
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.machine.machine import HardwareModel
from dse.space.array_math import where
from dse.space.mapping import AUTO, TILE_SUMS

T = TypeVar("T")

GroupProductCost = Callable[[CoreGroupSplit, CallProduct, HardwareModel, float], tuple[Any, Any]]
"""Analytical time of a product on a group, and of its engines. [s], [s]"""


KernelCostFunction = Callable[[MeshKernel, HardwareModel], KernelCost]
"""Cost function of a kernel on a machine."""


def fastest_kernel_cost(kernel: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> KernelCost:
    """Cost of the fastest candidate of each entry."""
    costs = _costs(kernel, machine, price)
    kernel_cost: KernelCost = select_values(costs, _place(kernel, costs))
    return kernel_cost


def find_fastest_index(kernel: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> Any:
    """Index of the fastest candidate, the first of equals: a number, or an array of them.

    Where none fits, which a limit says, the first one stands for all.
    """
    return _place(kernel, _costs(kernel, machine, price))


def _place(kernel: MeshKernel, costs: list[KernelCost]) -> Any:
    seconds, fits = [cost.seconds for cost in costs], [rival.fits for rival in kernel.rivals]
    return _least([where(fit, value, np.inf) for value, fit in zip(seconds, fits, strict=True)])


def _least(seconds: list[Any]) -> Any:
    if not any(isinstance(value, np.ndarray) for value in seconds):
        return seconds.index(min(seconds))
    return np.stack(np.broadcast_arrays(*seconds)).argmin(axis=0)


def _costs(kernel: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> list[KernelCost]:
    return [price(kernel_with_algorithm(kernel, rival.word), machine) for rival in kernel.rivals]


def kernels_by_choice(kernel: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> tuple[MeshKernel, ...]:
    """One kernel per algorithm that entries chose, in order of candidates; itself without a choice."""
    if not kernel.rivals:
        return (kernel,)
    return tuple(
        kernel_with_algorithm(kernel, kernel.rivals[number].word)
        for number in np.unique(find_fastest_index(kernel, machine, price))
    )


def describe_choice(kernel: MeshKernel, ways: tuple[MeshKernel, ...]) -> str:
    """Text of the algorithms that a kernel chose; empty string without a choice."""
    return f" by {' or '.join(algorithm_of(kernel, way) for way in ways)}" if kernel.rivals else ""


def map_choices(kernel: MeshKernel, machine: HardwareModel, price: KernelCostFunction, value: Callable[[MeshKernel], T]) -> T:
    """Value of a function of the kernel, each entry with its own algorithm.

    Args:
        of, machine, price: kernel, machine, and cost function that chooses.
        value: of a kernel without rivals: numbers, arrays, dataclasses or tables of them.
    """
    if not kernel.rivals:
        return value(kernel)
    best = find_fastest_index(kernel, machine, price)
    if not isinstance(best, np.ndarray):
        return value(kernel_with_algorithm(kernel, kernel.rivals[best].word))
    used = np.unique(best)
    choices: T = select_values(
        [value(kernel_with_algorithm(kernel, kernel.rivals[number].word)) for number in used], np.searchsorted(used, best)
    )
    return choices


def map_partitions(group: CoreGroupSplit, value: Callable[[CoreGroupSplit], T]) -> T:
    """Value of a function of the group, each entry with its own partition."""
    partitions: T = select_values([value(group_with_partition(group, word)) for word in group.ways], group.which)
    return partitions


def find_fastest_reduction_index(
    group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> Any:
    """Indices of the fastest sums of a group in `TILE_SUMS`, the first of equals."""
    return _least([seconds for seconds, _ in _sums(group, product, machine, width, price)])


def fastest_product_seconds(
    group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> tuple[Any, Any]:
    """Time of a product on a group with the fastest sums of each entry, and of its engines. [s], [s]"""
    costs = _sums(group, product, machine, width, price)
    product_seconds: tuple[Any, Any] = select_values(costs, _least([seconds for seconds, _ in costs]))
    return product_seconds


def partition_choice_text(
    group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> str:
    """Text of the partition and sums that a product on a group chose; empty without a choice."""
    ways = f" by {' or '.join(group.ways)}" if group.ways else ""
    if group.sums != AUTO:
        return ways
    if group.partition == AUTO:
        group = group_with_partition(group, "k")
    return f"{ways}{describe_reduction_choice(group, product, machine, width, price)}"


def describe_reduction_choice(
    group: CoreGroupSplit, gemm: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> str:
    """Text of the sums that a product with a divided inner dimension chose."""
    chosen = np.unique(find_fastest_reduction_index(group, gemm, machine, width, price))
    return f" by {' or '.join(TILE_SUMS[number] for number in chosen)}"


def _sums(
    group: CoreGroupSplit, product: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> list[tuple[Any, Any]]:
    return [price(group._replace(sums=word), product, machine, width) for word in TILE_SUMS]
