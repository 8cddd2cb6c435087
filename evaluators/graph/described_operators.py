"""Operators of a layer that a graph describes (`Model.operators`), for the counts of a step.

Layouts of devices divide them by their groups. Other layouts have no kernels for them, and `evaluation` refuses them there.
"""

from collections.abc import Sequence
from typing import Any

from dse.evaluators.graph.expert_loads import experts_touched
from dse.evaluators.graph.operators import AttentionOp, ElementwiseOp, MatMulOp, MatrixDim, Operator
from dse.evaluators.graph.step_counts import StepCounts
from dse.space.layers import AttentionReach, operator_reach, value_of_widest_reach
from dse.space.model import ExpertLayers, LayerOperator

DescribedOperators = Sequence[tuple[str, LayerOperator]]


def described_operators(
    described: DescribedOperators, step: StepCounts, reaches: tuple[AttentionReach, ...]
) -> tuple[Operator, ...]:
    """Operators of one layer in a step.

    Args:
        described: as a graph has them, by name.
        step: its counts at all reaches of the model.
        reaches: attention reaches of the model.
    """
    return tuple(_operator(name, each, step, reaches) for name, each in described)


def _operator(name: str, each: LayerOperator, step: StepCounts, reaches: tuple[AttentionReach, ...]) -> Operator:
    if each.kind == "attention":
        return _attention(name, each, step.at_reach(reaches.index(operator_reach(each))))
    count = _count(each.per, step)
    outputs = _dim(each.outputs, each.output_groups, split=each.divided == "outputs")
    if each.kind == "product":
        return _product(name, each, count, outputs)
    return ElementwiseOp(name, each.needs, count * each.rows, outputs, each.operations, each.passes)


def _count(per: str, step: StepCounts) -> Any:
    """How often an operator runs in a step, for each of what it runs for."""
    if per == "pair":
        return value_of_widest_reach(step.pairs)
    return {"token": step.tokens, "sequence": step.sequences}.get(per, 1.0)


def _dim(size: int, groups: int, *, split: bool) -> MatrixDim:
    return MatrixDim(groups, size // groups, split=split)


def _product(name: str, each: LayerOperator, count: Any, outputs: MatrixDim) -> MatMulOp:
    rows, inputs = count * each.rows, _dim(each.inputs, each.input_groups, split=each.divided == "inputs")
    read: Any = float(each.matrices)
    if each.chosen:  # of which tokens choose some, as of experts
        experts: Any = ExpertLayers
        read = experts_touched(experts(count=each.matrices, top_k=each.chosen, intermediate=1), count)
    return MatMulOp(
        name, each.needs, rows, inputs, outputs, read, float(each.matrices), apart=each.apart, unequal=bool(each.chosen)
    )


def _attention(name: str, each: LayerOperator, at: StepCounts) -> AttentionOp:
    seen: dict[str, Any] = {"tokens": at.tokens, "pairs": at.pairs, "positions": at.positions, "sequences": at.sequences}
    if at.phase == "prefill":
        seen |= {"prompts": True, "decodes": at.decodes, "queries": 1.0 + at.guesses}
        seen |= {"decoded": at.decoded, "scored": at.scored}
    heads, kv_heads = (_dim(units * each.qk_dim, units, split=each.divided != "none") for units in (each.heads, each.kv_heads))
    dims = each.qk_dim, each.v_dim, each.qk_dim + each.v_dim, each.qk_dim
    return AttentionOp(name, each.needs, heads, kv_heads, *dims, **seen)
