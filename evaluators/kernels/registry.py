"""Kernels by kind and name: modules with their analytical model, program and buffers."""

from typing import Any

from dse.evaluators.kernels.collective import find_collective
from dse.evaluators.kernels.data_movement import MOVE
from dse.evaluators.kernels.gemm import find_gemm
from dse.evaluators.kernels.gemv import find_gemv
from dse.evaluators.kernels.kv import find_kv_method
from dse.evaluators.kernels.vector import VECTOR
from dse.space.errors import choose_option


def kernel_module(kind: str, algorithm: str) -> Any:
    """Return the module of a kernel by its kind and algorithm.

    Args:
        kind: gemm, gemv, collective, kv, vector or move.
        algorithm: a name in the registry of that kind.
    """
    if kind == "gemm":
        return find_gemm(algorithm)
    if kind == "gemv":
        return find_gemv(algorithm)
    if kind == "collective":
        return find_collective(algorithm)
    if kind == "kv":
        return find_kv_method(algorithm)
    return choose_option(VECTOR if kind == "vector" else MOVE, algorithm, kind)
