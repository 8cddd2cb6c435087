"""What the operators of a step multiply with is what parameters count, norms and biases apart."""

import json
from pathlib import Path

import pytest

from dse.config.workloads import read_models
from dse.evaluators.graph.operators import MatMulOp
from dse.evaluators.graph.step_counts import prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.huggingface import model_fields
from dse.space.parameter_counts import parameter_count, position_values
from dse.space.workload import BatchCase
from tests.dse.published_models import PUBLISHED, Published
from tests.space.test_model import FILES, model_of


@pytest.mark.sampled
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_products_have_the_weights_of_the_model(path: Path) -> None:
    model = model_of(path)
    products = sum(
        part.times * operator.k.units * operator.k.width * operator.n.units * operator.n.width * operator.stored
        for part in transformer_segments(model, prefill_step(BatchCase("one", model, ((1, 512, 64),))))
        for operator in part.operators
        if isinstance(operator, MatMulOp)
    )
    table = 0 if model.tied_embeddings else model.vocab * model.hidden
    rest = parameter_count(model) - table - products
    assert 0 < rest < 4e-4 * parameter_count(model)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published.name)
def test_products_have_the_weights_of_published_models(published: Published, tmp_path: Path) -> None:
    """Tables of positions and of embeddings apart; biases are up to some thousandths of the smallest."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(published.fields))
    (model,) = read_models({"read": model_fields(path)}).values()
    products = sum(
        part.times * operator.k.units * operator.k.width * operator.n.units * operator.n.width * operator.stored
        for part in transformer_segments(model, prefill_step(BatchCase("one", model, ((1, 512, 64),))))
        for operator in part.operators
        if isinstance(operator, MatMulOp)
    )
    table = position_values(model) + (0 if model.tied_embeddings else model.vocab * model.hidden)
    assert 0 < parameter_count(model) - table - products < 3e-3 * parameter_count(model)
