"""Algorithms that kernels choose among: who is offered where a plan leaves the word open, and a kernel with one of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from dse.evaluators.passes.call import Block, Kernel, Rival
from dse.space.mapping import AUTO

OPTIONS = {"gemm": "gemm", "allreduce": "gemv"}
"""Options of kernels that name an algorithm, and the kind that it is of."""


def offered(blocks: Sequence[Block], rivals: Mapping[str, tuple[Rival, ...]]) -> tuple[Block, ...]:
    """Blocks whose kernels have their rivals, by kind, where a word is left open."""

    def open_(call: Any) -> Any:
        kinds = _left_open(call.kernel)
        return call._replace(kernel=call.kernel._replace(rivals=rivals[kinds[0]])) if kinds else call

    return tuple(block._replace(calls=tuple(map(open_, block.calls))) for block in blocks)


def named(of: Kernel, word: str) -> Kernel:
    """A kernel with an algorithm in the place of the word that is left open.

    >>> from dse.evaluators.kernels.gemm.tiling import Mesh, Shape
    >>> norm = Kernel("attention", "norm", "vector", "norm", Shape(1, 64, 1), Mesh(4, 4), {"allreduce": "auto", "phases": 2})
    >>> named(norm, "ring").options
    {'allreduce': 'ring', 'phases': 2}
    """
    if of.algorithm == AUTO:
        return of._replace(algorithm=word, rivals=())
    options = {name: word if name in OPTIONS and value == AUTO else value for name, value in of.options.items()}
    return of._replace(options=options, rivals=())


def word_of(of: Kernel, one: Kernel) -> str:
    """The algorithm that a kernel has in the place of the word that is left open."""
    if of.algorithm == AUTO:
        return one.algorithm
    return next(str(one.options[name]) for name in OPTIONS if of.options.get(name) == AUTO)


def _left_open(of: Kernel) -> list[str]:
    """Of which kind the open word of a kernel is, if it has one."""
    if of.algorithm == AUTO:
        return [of.kind]
    return [kind for name, kind in OPTIONS.items() if of.options.get(name) == AUTO]
