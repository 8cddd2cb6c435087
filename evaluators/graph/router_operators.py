"""Elementwise work of mixture-of-experts routers beside their matrix product."""

from dataclasses import replace

from dse.evaluators.graph.operators import ElementwiseOp, MatMulOp, MatrixDim, Segment
from dse.space.model import Model
from dse.space.parameter_counts import expert_input_width


def with_router_operators(model: Model, part: Segment, beside: int = 0) -> Segment:
    """A segment with the choice of experts after the router, and the sum of outputs after the experts.

    The largest scores of a token are found one by one; outputs are scaled by their scores and summed.

    Args:
        model, part: as they are.
        beside: outputs of shared experts that return like those of routed experts.
    """
    if model.experts is None:
        return part
    top, tokens = model.experts.top_k, part.rows
    summed = top + beside
    after = {
        "router": ElementwiseOp("choice", ("router",), tokens, MatrixDim(model.experts.count), 1 + 2 * top, 1),
        "experts_down": ElementwiseOp(
            "combination", ("experts_down",), tokens, MatrixDim(expert_input_width(model)), 2 * summed, summed + 1
        ),
    }
    all_operators = []
    for operator in part.operators:
        all_operators.append(operator)
        if isinstance(operator, MatMulOp) and operator.name in after:
            all_operators.append(after[operator.name])
    return replace(part, operators=tuple(all_operators))
