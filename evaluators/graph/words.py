"""What operators on elements cost: vector operations an element, and reads plus writes of it."""

from typing import Any

from dse.evaluators.graph.operators import Dim, Elementwise

NORM = (4, 2)
ROPE = (3, 2)
GATE = (5, 3)
"""Square, sum, scale, multiply; two products and a sum; SiLU and a product of two inputs."""

TANH = (5, 2)
"""Scale, exponential, sum, quotient, scale."""


def norm(name: str, needs: tuple[str, ...], rows: Any, dim: Dim) -> Elementwise:
    """A norm of rows."""
    return Elementwise(name, needs, rows, dim, *NORM)


def convolution(tokens: int, *, alone: bool) -> tuple[int, int]:
    """A causal convolution over so many tokens, channel by channel, and a SiLU: products, sums, and four operations more.

    Where tokens are of sequences of their own, earlier ones are read from what was kept of them, and the new one is kept too.
    """
    return 2 * tokens + 4, tokens + 2 if alone else 2
