"""Which of its rivals a kernel has, and which sums a group: the quickest that the chip can run, whoever prices it.

The closed form says which is quickest, for readers that play too.
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
"""A closed form of a product on a group: its seconds, and those of its engines."""


KernelCostFunction = Callable[[MeshKernel, HardwareModel], KernelCost]
"""A closed form."""


def fastest_kernel_cost(of: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> KernelCost:
    """Of the quickest rival of each entry."""
    costs = _costs(of, machine, price)
    found: KernelCost = select_values(costs, _place(of, costs))
    return found


def fastest_index(of: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> Any:
    """Place of the quickest rival, the first of equals: a number, or an array where times of the kernel are one.

    Where none fits, which a limit says, the first one stands for all.
    """
    return _place(of, _costs(of, machine, price))


def _place(of: MeshKernel, costs: list[KernelCost]) -> Any:
    seconds, fits = [cost.seconds for cost in costs], [rival.fits for rival in of.rivals]
    return _least([where(fit, value, np.inf) for value, fit in zip(seconds, fits, strict=True)])


def _least(seconds: list[Any]) -> Any:
    if not any(isinstance(value, np.ndarray) for value in seconds):
        return seconds.index(min(seconds))
    return np.stack(np.broadcast_arrays(*seconds)).argmin(axis=0)


def _costs(of: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> list[KernelCost]:
    return [price(kernel_with_algorithm(of, rival.word), machine) for rival in of.rivals]


def kernels_by_choice(of: MeshKernel, machine: HardwareModel, price: KernelCostFunction) -> tuple[MeshKernel, ...]:
    """A kernel by the algorithms that its entries have, each once, in the order of rivals; itself where no word is open."""
    if not of.rivals:
        return (of,)
    return tuple(kernel_with_algorithm(of, of.rivals[number].word) for number in np.unique(fastest_index(of, machine, price)))


def choice_text(of: MeshKernel, ways: tuple[MeshKernel, ...]) -> str:
    """The algorithms that a kernel has chosen, for people; nothing where it had no choice."""
    return f" by {' or '.join(algorithm_of(of, one) for one in ways)}" if of.rivals else ""


def map_choices(of: MeshKernel, machine: HardwareModel, price: KernelCostFunction, value: Callable[[MeshKernel], T]) -> T:
    """What something is of a kernel, each entry by its own algorithm.

    Args:
        of, machine, price: who chooses where, and by what.
        value: of a kernel without rivals: numbers, arrays, dataclasses or tables of them.
    """
    if not of.rivals:
        return value(of)
    best = fastest_index(of, machine, price)
    if not isinstance(best, np.ndarray):
        return value(kernel_with_algorithm(of, of.rivals[best].word))
    used = np.unique(best)
    found: T = select_values(
        [value(kernel_with_algorithm(of, of.rivals[number].word)) for number in used], np.searchsorted(used, best)
    )
    return found


def map_partitions(group: CoreGroupSplit, value: Callable[[CoreGroupSplit], T]) -> T:
    """What something is of a group whose entries have several ways, each entry by its own."""
    found: T = select_values([value(group_with_partition(group, word)) for word in group.ways], group.which)
    return found


def fastest_reduction_index(
    group: CoreGroupSplit, of: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> Any:
    """Places of the quickest sums of a group among `TILE_SUMS`, the first of equals: a number, or an array."""
    return _least([seconds for seconds, _ in _sums(group, of, machine, width, price)])


def fastest_product_seconds(
    group: CoreGroupSplit, of: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> tuple[Any, Any]:
    """A product on a group with the quickest sums of each entry."""
    costs = _sums(group, of, machine, width, price)
    found: tuple[Any, Any] = select_values(costs, _least([seconds for seconds, _ in costs]))
    return found


def partition_choice_text(
    group: CoreGroupSplit, of: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> str:
    """The partition and sums that a product on a group has chosen, for people; nothing where it had no choice."""
    ways = f" by {' or '.join(group.ways)}" if group.ways else ""
    if group.sums != AUTO:
        return ways
    if group.partition == AUTO:
        group = group_with_partition(group, "k")
    return f"{ways}{reduction_choice_text(group, of, machine, width, price)}"


def reduction_choice_text(
    group: CoreGroupSplit, of: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> str:
    """The sums that a product whose inner dimension is divided has chosen, for people."""
    return (
        f" by "
        f"{' or '.join(TILE_SUMS[number] for number in np.unique(fastest_reduction_index(group, of, machine, width, price)))}"
    )


def _sums(
    group: CoreGroupSplit, of: CallProduct, machine: HardwareModel, width: float, price: GroupProductCost
) -> list[tuple[Any, Any]]:
    return [price(group._replace(sums=word), of, machine, width) for word in TILE_SUMS]
