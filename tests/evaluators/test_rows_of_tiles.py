"""What tiles that attend together load of a position of a cache: as many values as it has, whatever they are to a model."""

import pytest

from dse.evaluators.graph.operators import AttentionOp
from dse.evaluators.graph.step_counts import decode_steps
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.attention_requests import attention_shape
from dse.space.parameter_counts import kv_values_per_token
from tests.presets import EVERY
from tests.samples import asked


@pytest.mark.parametrize("name", EVERY)
def test_a_position_of_a_cache_is_loaded_once(name: str) -> None:
    """Rows that are key and value of all heads too, as latents are: DeepSeek-V4's were loaded as keys, and again as values."""
    question = asked(
        f"model={name}", "workload.batch=[3]", "workload.prompt=700", "workload.output=9", "workload.speculation=none"
    )
    ((_, step),) = decode_steps(question.workload.cases[0], "mean")
    operators = [
        (part, operator) for part in transformer_segments(question.workload.cases[0].model, step) for operator in part.operators
    ]
    attention_parts = [(part.of, operator) for part, operator in operators if isinstance(operator, AttentionOp)]
    assert attention_parts
    for model, operator in attention_parts:
        shape = attention_shape(model, operator, 3, 1, 700, prefilling=False)
        assert shape.kv_heads * (shape.key_dim + shape.v) == operator.cached_values(operator.kv_heads.units)
        assert model.kv_reused or shape.kv_heads * (shape.key_dim + shape.v) == kv_values_per_token(model)
