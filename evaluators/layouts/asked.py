"""What a library kernel is asked for an operator on one device: which products are one kernel, and in which formats."""

from typing import Any

from dse.evaluators.graph.operators import MatMul, Part, local
from dse.evaluators.kernels.library.products import Multiply
from dse.evaluators.layouts.formats import weights_of
from dse.space.elementwise import ceil_div
from dse.space.mapping import BYTES, Precision
from dse.space.numbers import FORMATS

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate", "up"), ("shared_gate", "shared_up"), ("q_down", "kv_down"))
"""Products of the same rows whose weights libraries keep side by side, as one kernel."""


def multiplication(part: Part, of: MatMul, tp: Any, precision: Precision, pace: Any) -> Multiply | None:
    """What a library's product is asked for; None of experts, whose products are grouped.

    Args:
        part: of a step.
        of: its operator.
        tp: devices that share it.
        precision: formats.
        pace: time of an operation over that of one on 16 bits.
    """
    if of.name.startswith("experts_"):
        return None
    one, act = weights_of(part, of, precision), float(BYTES[precision.activations])
    m, k, n = of.m, local(of.k, tp), local(of.n, tp)
    beside = next((names for names in FUSED if of.name in names), (of.name,))
    columns = sum(
        local(other.n, tp)
        for other in part.operators
        if isinstance(other, MatMul) and other.name in beside and weights_of(part, other, precision) == one
    )
    apart = ceil_div(of.apart, tp) if of.apart > 1 and of.n.split else of.apart
    return Multiply(m, k, columns, k * columns * BYTES[one], act, scaling(precision.activations, one), pace, n / columns, apart)


def scaling(activations: str, weights: str) -> str:
    """How operands of 8 bits or less are scaled, where both have so few: tensor or block; else nothing.

    >>> scaling("fp8", "fp8"), scaling("fp8_1x128", "fp8_128x128"), scaling("bf16", "fp8")
    ('tensor', 'block', '')
    """
    one, other = FORMATS[activations], FORMATS[weights]
    if one.bits > 8 or other.bits > 8:
        return ""
    return "block" if one.scale else "tensor"
