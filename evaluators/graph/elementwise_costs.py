"""What operators on elements cost: vector operations an element, and reads plus writes of it."""

from typing import Any

from dse.evaluators.graph.operators import ElementwiseOp, MatrixDim

NORM_COST = (4, 2)
ROPE_COST = (3, 2)
GATE_COST = (5, 3)
"""Square, sum, scale, multiply; two products and a sum; SiLU and a product of two inputs."""

TANH_COST = (5, 2)
"""Scale, exponential, sum, quotient, scale."""


def norm_operator(name: str, needs: tuple[str, ...], rows: Any, dim: MatrixDim) -> ElementwiseOp:
    """A norm of rows."""
    return ElementwiseOp(name, needs, rows, dim, *NORM_COST)


def convolution_cost(tokens: int, *, alone: bool) -> tuple[int, int]:
    """A causal convolution over so many tokens, channel by channel, and a SiLU: products, sums, and four operations more.

    Where tokens are of sequences of their own, earlier ones are read from what was kept of them, and the new one is kept too.
    """
    return 2 * tokens + 4, tokens + 2 if alone else 2
