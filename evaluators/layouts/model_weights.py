"""Bytes of a model's weights, by one convention for all layouts: products, tables, norms and biases.

Products have the formats of `tensor_formats.weight_format`. Norms, biases and what else no product multiplies by are stored
as files of quantised models leave them. The sum over segments and tables is `parameter_count`.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from dse.evaluators.graph.operators import FEEDING, MIXING, MatMulOp, MatrixDim, Segment, dim_width, local_width
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.tensor_formats import embedding_format, unquantized_format, weight_bytes
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import (
    feeding_parameter_count,
    head_bias_values,
    mixing_parameter_count,
    norm_values,
    norms_before_feeding,
    norms_of_half_layer,
    position_values,
)

ONE_TOKEN_STEP = StepCounts("decode", 1.0, 1.0, 1.0, 1.0)
"""A token of a request: operators that have weights are the same of any."""


class UnquantizedValues(NamedTuple):
    """Weights of one instance of a segment that no product multiplies by.

    Attributes:
        norms: of hidden vectors, of which each device of a group has all.
        others: biases, norms of heads and latents, convolutions: devices of a group share them out.
    """

    norms: float
    others: float

    def per_device(self, tp: Any) -> Any:
        """Values on one of `tp` devices that share a layer."""
        return self.norms + self.others / tp


def unquantized_values(part: Segment, model: Model) -> UnquantizedValues:
    """Weights of one instance of a segment besides those of its products.

    Args:
        part: of a step of the model.
        model: for what is outside its layers.
    """
    if part.kind == MIXING:
        return UnquantizedValues(norms_of_half_layer(part.of), mixing_parameter_count(part.of) - _product_values(part))
    if part.kind == FEEDING:
        norms = norms_before_feeding(part.of)
        return UnquantizedValues(norms, feeding_parameter_count(part.name, part.of) - norms - _product_values(part))
    outside = {"head": (norm_values(model), head_bias_values(model)), "mtp": (3 * norm_values(model), 0)}
    return UnquantizedValues(*outside.get(part.name, (0, 0)))


def unquantized_bytes(part: Segment, model: Model, precision: FormatPlan, tp: Any = 1) -> Any:
    """Bytes of norms and biases of one instance of a segment on one of `tp` devices. [B]"""
    return unquantized_values(part, model).per_device(tp) * BYTES_BY_FORMAT[unquantized_format(precision)]


def _product_values(part: Segment) -> float:
    return sum(product_values(operator) for operator in part.operators if isinstance(operator, MatMulOp))


def product_values(operator: MatMulOp) -> float:
    """Weights of a product, of all experts that exist. [1]"""
    return float(operator.stored * dim_width(operator.k) * dim_width(operator.n))


def product_bytes(part: Segment, precision: FormatPlan, values: Any = product_values) -> Any:
    """Bytes of the weights of a segment's products. [B]

    Args:
        part: whose.
        precision: number formats.
        values: from an operator to its values, of a device or in all.
    """
    total: Any = 0.0
    for operator in part.operators:
        if isinstance(operator, MatMulOp):
            total = total + weight_bytes(part, operator, precision) * values(operator)
    return total


def embedding_bytes(model: Model, precision: FormatPlan, tp: Any = 1) -> Any:
    """Bytes of tables that the head is not: of the embedding unless it is tied, and of positions. [B]

    The embedding's rows are divided over `tp` devices; each has all positions.
    """
    nbytes = BYTES_BY_FORMAT[embedding_format(precision)]
    rows = 0.0 if model.tied_embeddings else local_width(MatrixDim(model.vocab, split=True), tp)
    return (rows * model.hidden + position_values(model)) * nbytes


@lru_cache(maxsize=256)
def model_weight_bytes(model: Model, precision: FormatPlan, guesses: int = 0) -> float:
    """Bytes of all weights of a model, with its modules that predict tokens, in their formats. [B]"""
    parts = transformer_segments(model, replace(ONE_TOKEN_STEP, guesses=guesses))
    return float(
        sum(part.times * (product_bytes(part, precision) + unquantized_bytes(part, model, precision)) for part in parts)
        + embedding_bytes(model, precision)
    )
