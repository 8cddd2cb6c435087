"""One convention of weights: every layout holds the parameters of a model, in the formats in which files store them."""

from dataclasses import replace

import pytest

from dse.evaluators.accounting.multi_die_memory import layers_of_units, unit_weight_bytes
from dse.evaluators.accounting.tile_operators import hbm_bytes_by_use
from dse.evaluators.graph.operators import MatMulOp
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.model_weights import (
    ONE_TOKEN_STEP,
    model_weight_bytes,
    product_values,
    unquantized_values,
)
from dse.evaluators.layouts.multi_die import EMBEDDING, HEAD, DieSplit, layer_label
from dse.evaluators.layouts.residency import core_residency
from dse.evaluators.layouts.tensor_formats import HEAD_OPERATORS, ROUTING_OPERATORS, value_bytes
from dse.evaluators.layouts.tensor_parallel import device_memory
from dse.space.layers import layers
from dse.space.mapping import FormatPlan
from dse.space.model import Model
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import mtp_parameter_count, parameter_count, position_values
from tests.presets import EVERY
from tests.samples import asked

WIDE = FormatPlan(weights="bf16", activations="bf16", kv="bf16")
NARROW = FormatPlan(weights="int4_g128", activations="bf16", kv="bf16")
SPLIT = DieSplit(tp=1, pp=1, ep=1, dp=1, group=1, redundant=0, batches=1, halves=1)


def shipped(name: str) -> Model:
    model: Model = asked(f"model={name}").workload.cases[0].model  # type: ignore[union-attr]
    return model


def weights_of_devices(model: Model, tp: int, formats: FormatPlan) -> float:
    parts = transformer_segments(model, ONE_TOKEN_STEP)
    return float(device_memory(parts, model, tp, formats, cached=0.0, sequences=0.0, tokens=0.0).weights)


def weights_of_stages(model: Model, pp: int, formats: FormatPlan) -> float:
    """Weights of dies that have one unit or several each, all together."""
    units = [EMBEDDING, *(layer_label(model, *names) for names in layers(model).line), HEAD]
    of_units, split = layers_of_units(model), SPLIT._replace(pp=pp)
    return sum(unit_weight_bytes(unit, of_units.get(unit, ("", "")), model, split, value_bytes(formats)) for unit in units)


@pytest.mark.parametrize("name", EVERY)
def test_every_layout_holds_the_parameters_of_a_model(name: str) -> None:
    model = shipped(name)
    for formats in (WIDE, NARROW, replace(NARROW, head="int4_g128"), replace(NARROW, embedding="fp8", experts="fp8")):
        whole = model_weight_bytes(model, formats)
        if formats is WIDE:
            assert whole == 2 * parameter_count(model)
            assert model_weight_bytes(model, formats, 1) == whole + 2 * mtp_parameter_count(model)
        assert weights_of_devices(model, 1, formats) == pytest.approx(whole, rel=1e-12)
        assert weights_of_stages(model, 1, formats) == pytest.approx(whole, rel=1e-12)
        table = model.vocab * model.hidden * value_bytes(formats).head
        assert weights_of_stages(model, 4, formats) == pytest.approx(whole + model.tied_embeddings * table, rel=1e-12)
        assert dict(hbm_bytes_by_use(model, ONE_TOKEN_STEP, 0.0, 1.0, formats))["weights"] == whole


@pytest.mark.parametrize("name", EVERY)
def test_norms_biases_routers_embedding_and_head_keep_16_bits(name: str) -> None:
    model = shipped(name)
    parts = transformer_segments(model, ONE_TOKEN_STEP)
    kept = sum(
        part.times * product_values(operator)
        for part in parts
        for operator in part.operators
        if isinstance(operator, MatMulOp) and operator.name in (*HEAD_OPERATORS, *ROUTING_OPERATORS)
    )
    kept += sum(part.times * sum(unquantized_values(part, model)) for part in parts) + position_values(model)
    kept += 0 if model.tied_embeddings else model.vocab * model.hidden
    narrow = parameter_count(model) - kept
    assert all(min(unquantized_values(part, model)) >= 0 for part in parts)
    assert model_weight_bytes(model, NARROW) == pytest.approx(2 * kept + BYTES_BY_FORMAT["int4_g128"] * narrow, rel=1e-12)


@pytest.mark.parametrize("name", ["llama3_8b", "gpt_oss_20b", "qwen3_next_80b_a3b", "deepseek_v3"])
def test_devices_and_cores_share_out_the_same_weights(name: str) -> None:
    """Dies and devices of any number hold the same; cores of a pipeline of one stage hold all once."""
    model = shipped(name)
    parts, mapping = transformer_segments(model, ONE_TOKEN_STEP), asked("chip=npu64", "mapping.both.pp=1").base.mapping
    for formats in (WIDE, NARROW):
        plan, with_formats = mapping.decode, replace(mapping, precision=formats)
        held = core_residency(parts, model, plan, with_formats, 1e9, tokens=3.0, cached=1.0)
        assert held.weights * plan.tp == pytest.approx(model_weight_bytes(model, formats), rel=1e-12)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("tokens", [1.0, 100.0])
def test_devices_and_tiles_have_the_same_activations(name: str, tokens: float) -> None:
    """What is alive at once: no less than the residual stream and one result, and no more than all results of a layer."""
    model = shipped(name)
    step = StepCounts("prefill", tokens, 1.0, tokens * (tokens + 1) / 2, 0.0)
    parts = transformer_segments(model, step)
    tiles = dict(hbm_bytes_by_use(model, step, 0.0, 1.0, WIDE))["activations"]
    devices = device_memory(parts, model, 1, WIDE, cached=0.0, sequences=1.0, tokens=tokens).activations
    assert devices == pytest.approx(tiles, rel=1e-12)
    products = [
        [operator.m * operator.n.units * operator.n.width for operator in part.operators if isinstance(operator, MatMulOp)]
        for part in parts
    ]
    assert 2 * max(max(made, default=0.0) for made in products) <= tiles
    assert tiles < 2 * max(3 * sum(made) + 4 * part.rows * model.hidden for part, made in zip(parts, products, strict=True))


@pytest.mark.parametrize("name", EVERY)
def test_papers_count_all_weights_in_one_format(name: str) -> None:
    model = shipped(name)
    alike = replace(NARROW, embedding="as_weights", head="as_weights")
    assert model_weight_bytes(model, alike) == pytest.approx(parameter_count(model) * BYTES_BY_FORMAT["int4_g128"], rel=1e-12)


def test_a_model_in_four_bits_is_as_large_as_its_file() -> None:
    """A log of vLLM loads 5.20 GiB of Qwen2.5-7B in int4_g128, whose embedding and head have 16 bits."""
    assert model_weight_bytes(shipped("qwen2_7b"), NARROW) / 2**30 == pytest.approx(5.20, rel=0.01)
