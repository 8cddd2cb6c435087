"""Kernels by kind and name: what says their closed form, their steps and what they hold."""

from typing import Any

from dse.evaluators.kernels.collective import collective
from dse.evaluators.kernels.gemm import gemm
from dse.evaluators.kernels.gemv import gemv
from dse.evaluators.kernels.kv import kv
from dse.evaluators.kernels.move import MOVE
from dse.evaluators.kernels.vector import VECTOR
from dse.space.errors import chosen


def module_of(kind: str, algorithm: str) -> Any:
    """The module of a kernel.

    Args:
        kind: gemm, gemv, collective, kv, vector or move.
        algorithm: a name in the registry of that kind.
    """
    if kind == "gemm":
        return gemm(algorithm)
    if kind == "gemv":
        return gemv(algorithm)
    if kind == "collective":
        return collective(algorithm)
    if kind == "kv":
        return kv(algorithm)
    return chosen(VECTOR if kind == "vector" else MOVE, algorithm, kind)
