"""Candidate algorithms of kernels whose plan leaves the algorithm open, and kernels with one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from dse.evaluators.calls.call import AlgorithmCandidate, CallBlock, CoreGroupSplit, MeshKernel
from dse.space.mapping import AUTO

OPEN_OPTIONS = {"gemm": "gemm", "allreduce": "gemv"}
"""Options of kernels that name an algorithm, and the kind that it is of."""


def add_candidates(blocks: Sequence[CallBlock], rivals: Mapping[str, tuple[AlgorithmCandidate, ...]]) -> tuple[CallBlock, ...]:
    """Blocks whose kernels have their candidate algorithms, by kind, where the plan leaves them open."""

    def open_(call: Any) -> Any:
        kinds = _left_open(call.kernel)
        return call._replace(kernel=call.kernel._replace(rivals=rivals[kinds[0]])) if kinds else call

    return tuple(block._replace(calls=tuple(map(open_, block.calls))) for block in blocks)


def kernel_with_algorithm(kernel: MeshKernel, word: str) -> MeshKernel:
    """Kernel with one algorithm in place of the open one.

    >>> from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
    >>> norm = MeshKernel(
    ...     "attention", "norm", "vector", "norm", GemmShape(1, 64, 1), CoreMesh(4, 4), {"allreduce": "auto", "phases": 2}
    ... )
    >>> kernel_with_algorithm(norm, "ring").options
    {'allreduce': 'ring', 'phases': 2}
    """
    if kernel.algorithm == AUTO:
        return kernel._replace(algorithm=word, rivals=())
    options = {name: word if name in OPEN_OPTIONS and value == AUTO else value for name, value in kernel.options.items()}
    return kernel._replace(options=options, rivals=())


def algorithm_of(kernel: MeshKernel, single_kernel: MeshKernel) -> str:
    """Algorithm that `single_kernel` has in place of the kernel's open algorithm."""
    if kernel.algorithm == AUTO:
        return single_kernel.algorithm
    return next(str(single_kernel.options[name]) for name in OPEN_OPTIONS if kernel.options.get(name) == AUTO)


def group_with_partitions(group_split: CoreGroupSplit, words: tuple[str, ...], which: Any) -> CoreGroupSplit:
    """Group whose product has one of several partitions, for each entry its own.

    Args:
        group_split: the group, as it is where the inner dimension is divided.
        words: the ways.
        which: place of each entry's among them, a number or an array.
    """
    single_group_split = group_with_partition(group_split, words[0])
    if len(words) == 1:
        return single_group_split._replace(ways=words)
    if "k" in words:
        single_group_split = single_group_split._replace(sums=group_split.sums, phases=group_split.phases)
    return single_group_split._replace(partition=AUTO, ways=words, which=which)


def group_with_partition(group_split: CoreGroupSplit, word: str) -> CoreGroupSplit:
    """Group with one partition for all entries; options of sums stay only with partial sums."""
    group_split = group_split if word == "k" else group_split._replace(sums="ring", phases=1)
    return group_split._replace(partition=word, ways=(), which=0)


def select_values(values: Sequence[Any], best: Any) -> Any:
    """Values of one of several equal structures, leaf by leaf, by an index or array of indices."""
    first = values[0]
    if not isinstance(best, np.ndarray):
        return values[best]
    if all(value is first for value in values):
        return first
    if isinstance(first, tuple):
        leaves = [select_values(leaf, best) for leaf in zip(*values, strict=True)]
        return type(first)(*leaves) if hasattr(first, "_fields") else tuple(leaves)
    if is_dataclass(first):
        names = [spec.name for spec in fields(first)]
        return replace(first, **{name: select_values([getattr(value, name) for value in values], best) for name in names})  # type: ignore[type-var]
    if isinstance(first, dict):
        return {name: select_values([value[name] for value in values], best) for name in first}
    if isinstance(first, str | float | int) and all(type(value) is type(first) and value == first for value in values):
        return first
    places, *spread = np.broadcast_arrays(best, *values)
    return np.take_along_axis(np.stack(spread), places[None], axis=0)[0]


def _left_open(kernel: MeshKernel) -> list[str]:
    """Of which kind the open word of a kernel is, if it has one."""
    if kernel.algorithm == AUTO:
        return [kernel.kind]
    return [kind for name, kind in OPEN_OPTIONS.items() if kernel.options.get(name) == AUTO]
