"""Costs of elementwise operators: vector operations, and reads plus writes, per element."""

from typing import Any

from dse.evaluators.graph.operators import ElementwiseOp, MatrixDim

NORM_COST = (4, 2)
ROPE_COST = (3, 2)
GATE_COST = (5, 3)
"""Square, sum, scale, multiply; two products and a sum; SiLU and a product of two inputs."""

TANH_COST = (5, 2)
"""Scale, exponential, sum, quotient, scale."""


def norm_operator(name: str, needs: tuple[str, ...], rows: Any, dim: MatrixDim) -> ElementwiseOp:
    """Operator for a norm over rows."""
    return ElementwiseOp(name, needs, rows, dim, *NORM_COST)


def convolution_cost(tokens: int, *, alone: bool) -> tuple[int, int]:
    """Vector operations and memory passes per element of a causal convolution with a SiLU.

    Four operations are added to products and sums. Where tokens belong to sequences of their own, earlier values
    are read from what was kept of them, and the new one is kept too.
    """
    return 2 * tokens + 4, tokens + 2 if alone else 2
