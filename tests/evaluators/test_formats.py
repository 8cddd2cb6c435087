"""Number formats: what is held, read, multiplied and expanded in them, on drawn formats and models."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts.region_memory import region_core_memory
from dse.evaluators.layouts.regions import Region, region_blocks
from dse.evaluators.layouts.tensor_formats import blocks_touched, format_product, index_format
from dse.evaluators.layouts.tensor_parallel import device_memory
from dse.evaluators.silicon.area import format_area_factor
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.space.mapping import FormatPlan
from dse.space.number_formats import (
    BYTES_BY_FORMAT,
    FORMATS,
    TENSORS,
    UNSCALED_FORMATS,
    FormatRates,
    formats_of_tensor,
    relative_rate,
)
from dse.space.parameter_counts import ffn_parameter_count, mixing_parameter_count, parameter_count
from tests.samples import asked, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

BITS = {
    "int8": 8, "fp8": 8, "bf16": 16, "fp16": 16, "fp32": 32, "mxfp8": 8.25, "mxfp4": 4.25, "nvfp4": 4.5, "fp8_1x128": 8.25,
    "fp8_128x128": 8 + 32 / 16384, "int4_g128": 4.125, "int4_g32": 4.5, "int4_head": 4.25,
}  # fmt: skip
"""Of a value with its scales."""

SMALL = ("workload.batch=[2]", "workload.prompt=256", "workload.output=16")
MOE = ("model=mixtral_8x7b", *SMALL)
WEIGHTS, ACTIVATIONS, CACHED = (st.sampled_from(formats_of_tensor(tensor)) for tensor in ("weights", "activations", "kv"))
WHERE = {
    "h100": ("chip=h100", "mapping.both.tp=2"),
    "b200": ("chip=b200", "mapping.both.tp=2", "mapping=tensor_parallel"),
    "a100": ("chip=a100", "mapping.both.tp=4"),
    "ascend910b": ("chip=ascend910b", "mapping.both.tp=4"),
    "h800_ep": ("chip=h800_ep", "chip.dies.rows=1", "mapping.both.ep=8"),
    "npu64": ("chip=npu64",),
    "wse2": ("chip=wse2", "mapping.simulated_layers=4"),
}
NARROW = [name for name in FORMATS if FORMATS[name].bits <= 16]
"""What cores of a mesh, which multiply 16 bits, have kernels for."""


def question(*words: str) -> Any:
    return asked(*words, "+mapping.precision.experts=fp8", "+mapping.precision.attention=fp8")


def formats(base: Design, **formats_by_name: Any) -> Design:
    return replace_leaves(base, {f"mapping.precision.{name}": word for name, word in formats_by_name.items()})


@pytest.mark.parametrize("name", FORMATS)
def test_a_value_takes_its_bits_and_its_share_of_scales(name: str) -> None:
    assert BYTES_BY_FORMAT[name] == BITS[name] / 8
    assert (name in UNSCALED_FORMATS) == (BITS[name] in (8, 16, 32))


@pytest.mark.parametrize("model", ["mixtral_8x7b", "qwen3_30b_a3b", "llama3_8b"])
@given(weights=WEIGHTS, experts=WEIGHTS, attention=WEIGHTS, kv=CACHED, positions=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_a_device_holds_each_tensor_in_its_format(
    model: str, weights: str, experts: str, attention: str, kv: str, positions: int
) -> None:
    given_model = asked(f"model={model}").workload.cases[0].model  # type: ignore[union-attr]
    formats = FormatPlan(weights=weights, activations="bf16", kv=kv, experts=experts, attention=attention)
    held = device_memory(
        transformer_segments(given_model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0)),
        given_model,
        1,
        formats,
        cached=positions,
        sequences=1.0,
        tokens=1.0,
    )
    routed = (
        given_model.experts.count * ffn_parameter_count(given_model, given_model.experts.intermediate)
        if given_model.experts
        else 0
    )
    rest = 0 if given_model.experts else given_model.layers * ffn_parameter_count(given_model, given_model.ffn_intermediate)
    projected = given_model.hidden * given_model.head_dim * 2 * (given_model.heads + given_model.kv_heads)
    assert projected <= mixing_parameter_count(given_model)  # with norms and biases
    unquantized = parameter_count(given_model) - given_model.layers * (routed + projected) - rest
    wanted = (
        given_model.layers * (routed * BYTES_BY_FORMAT[experts] + projected * BYTES_BY_FORMAT[attention])
        + rest * BYTES_BY_FORMAT[weights]
        + unquantized * max(BYTES_BY_FORMAT[weights], BYTES_BY_FORMAT["bf16"])
    )
    assert held.weights == pytest.approx(wanted, rel=1e-12)
    assert held.kv == pytest.approx(
        positions * given_model.layers * 2 * given_model.kv_heads * given_model.head_dim * BITS[kv] / 8, rel=1e-12
    )


@pytest.mark.sampled
@pytest.mark.parametrize("where", WHERE)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_operators_take_adds_up_in_all_formats(where: str, data: st.DataObject) -> None:
    given_question = question(*WHERE[where], *MOE)
    kept = (WEIGHTS, CACHED) if where != "wse2" else (strategy.filter(NARROW.__contains__) for strategy in (WEIGHTS, CACHED))
    met = {"npu64": st.sampled_from(UNSCALED_FORMATS), "wse2": st.sampled_from(["bf16", "fp16"])}.get(where, ACTIVATIONS)
    weights, cached = kept
    draws = {name: data.draw(weights) for name in ("weights", "experts", "attention")}
    draws |= {"kv": data.draw(cached), "activations": data.draw(met)}
    design = formats(given_question.base, **draws)
    latency = evaluate(stack_designs([design]), given_question.workload).columns["latency"][0]
    explanation = explain(design, given_question.workload.cases[0])
    assert sum(row.seconds for row in explanation.rows) == pytest.approx(latency, rel=1e-9)
    for row in explanation.rows:
        assert sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12)


@given(st.sampled_from(["h100", "b200", "ascend910b", "h800_ep"]), st.data())
@settings(max_examples=40, deadline=None)
def test_fewer_bits_of_weights_that_are_multiplied_as_they_are_never_take_decode_longer(
    where: str, data: st.DataObject
) -> None:
    given_question = question(*WHERE[where], *MOE)
    rates = given_question.base.chip.core.rates
    native = [name for name in formats_of_tensor("weights") if relative_rate(name, rates) is not None]
    narrow = [name for name in native if FORMATS[name].bits <= 8 and name in formats_of_tensor("activations")]
    activations = data.draw(st.sampled_from(narrow))
    few, many = sorted((data.draw(st.sampled_from(native)) for _ in range(2)), key=lambda name: BYTES_BY_FORMAT[name])
    tensor = data.draw(st.sampled_from(["weights", "experts", "attention"]))
    other = data.draw(st.sampled_from(native))
    usual = dict.fromkeys(("weights", "experts", "attention"), other) | {"activations": activations, "kv": "bf16"}
    designs = [formats(given_question.base, **usual | {tensor: word}) for word in (few, many)]
    fast, slow = (evaluate(stack_designs([design]), given_question.workload).columns["tpot"][0] for design in designs)
    assert fast <= slow * (1 + 1e-12)


@pytest.mark.sampled
@given(st.sampled_from(list(FORMATS)), st.sampled_from(list(FORMATS)), st.data())
@settings(max_examples=300, deadline=None)
def test_two_formats_meet_at_the_rate_of_the_slower_and_what_is_not_multiplied_is_expanded(
    first: str, second: str, data: st.DataObject
) -> None:
    draws = {name: data.draw(st.none() | st.floats(0.5, 8)) for name in ("int8", "fp8", "mxfp8", "mxfp4", "nvfp4")}
    rates = FormatRates(**draws)
    met, turned = format_product(first, second, rates), format_product(second, first, rates)
    assert (turned.width, turned.pace, turned.first, turned.second) == (met.width, met.pace, met.second, met.first)
    for name, work in ((first, met.first), (second, met.second)):
        assert work in (0.0, FORMATS[name].expand)
        assert relative_rate(name, rates) is not None or work > 0
    if not met.first and not met.second:
        assert met.pace == 1 / min(relative_rate(first, rates), relative_rate(second, rates))
        assert met.width == max(BYTES_BY_FORMAT[first], BYTES_BY_FORMAT[second])
    if relative_rate(first, rates) is None and relative_rate(second, rates) is None:
        assert (met.pace, met.width) == (1.0, 2.0)


@given(st.sampled_from(UNSCALED_FORMATS), st.sampled_from(UNSCALED_FORMATS))
def test_where_a_chip_says_nothing_plain_formats_go_by_the_wider_one(first: str, second: str) -> None:
    wide = max(BYTES_BY_FORMAT[first], BYTES_BY_FORMAT[second])
    assert format_product(first, second, None) == (wide, wide / 2, 0.0, 0.0)


@pytest.mark.parametrize("where", ["b200", "h800_ep", "npu64", "tile_gh200"])
def test_keys_of_an_indexer_are_held_and_read_in_their_format(where: str) -> None:
    words = (
        *WHERE.get(where, (f"chip={where}",)),
        "model=qwen3_30b_a3b",
        "+model.qwen3_30b_a3b.indexer={heads: 8, dim: 128, top: 2048}",
    )
    long = ("workload.batch=[2]", "workload.prompt=30000", "workload.output=9", "+mapping.precision.index=bf16")
    settings = ("mapping.sram_kv_share=0", "mapping.both.tp=16", "mapping.both.pp=4") if where == "npu64" else ()
    question = asked(*words, *long, *settings)
    columns = {
        word: evaluate(stack_designs([formats(question.base, index=word)]), question.workload).columns
        for word in ("bf16", "fp8_1x128")
    }
    wide, narrow = columns["bf16"], columns["fp8_1x128"]
    assert narrow["tpot"][0] < wide["tpot"][0]
    assert narrow["hbm_used"][0] < wide["hbm_used"][0]
    if where in ("b200", "tile_gh200"):  # a pair of dies has all keys each
        saved = 2 * 30_008 * 128 * 48 * (BYTES_BY_FORMAT["bf16"] - BYTES_BY_FORMAT["fp8_1x128"])
        assert wide["hbm_used"][0] - narrow["hbm_used"][0] == pytest.approx(saved, rel=1e-3)
    if where == "tile_gh200":  # a key in bytes with a scale of four, read once a step by decode: 132 for 256
        words_ = ("bf16", "fp8_1x128", "mxfp4")
        read = {
            word: sum(row.nbytes for row in explain(formats(question.base, index=word), question.workload.cases[0]).rows
                      if (row.phase, row.operator) == ("decode", "index"))
            for word in words_
        }  # fmt: skip
        assert read["fp8_1x128"] / read["bf16"] == pytest.approx(132 / 256, rel=0.03)  # beside scores
        # in four bits 68; queries have 16 bits there, so that all that is saved is of keys, eight steps of 48 layers long
        saved = (read["bf16"] - read["mxfp4"]) / (8 * 48 * 2 * 30_004)
        assert saved == pytest.approx(256 - 68, rel=0.01)


@given(st.integers(1, 300), st.sampled_from([1, 16, 32, 128]))
@settings(max_examples=100, deadline=None)
def test_a_piece_has_the_scales_of_all_blocks_that_it_has_a_share_of(values: int, block: int) -> None:
    pieces = [range(values * place, values * (place + 1)) for place in range(block)]
    assert blocks_touched(values, block) == max(len({at // block for at in piece}) for piece in pieces)
    assert blocks_touched(np.array([1.0 * values, 1.0]), block).tolist() == [blocks_touched(values, block), 1]


@given(
    st.integers(1, 90), st.integers(1, 90), st.sampled_from(["mxfp4", "int8", "fp8_128x128", "int4_g32", "bf16"]),
    st.sampled_from(["mxfp8", "int4_head", "fp8", "bf16"]), st.integers(0, 500),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_core_of_a_region_holds_tiles_in_their_format(rows: int, cols: int, word: str, kv: str, tokens: int) -> None:
    question = asked("chip=wse2", "model=qwen3_1b7", "mapping.precision.weights=bf16")
    design, model = formats(question.base, weights=word, kv=kv), question.workload.cases[0].model
    place = Region(CoreMesh(rows, cols), 1.0, model.layers, model.layers, 1.0, model.layers)
    core_memory, last = region_core_memory(model, place, design.mapping, tokens=1.0, cached=1.0 * tokens, scores=True)

    def piece(name: str, long: int, wide: int) -> float:
        """Values of a core and the scales of what they are in blocks of, which cores count one by one."""
        number_format, across = FORMATS[name], 128 if name == "fp8_128x128" else 1
        met = [max((n * (index + 1) - 1) // block - n * index // block + 1 for index in range(200))
               for n, block in ((long, number_format.block), (wide, across))]  # fmt: skip
        return (long * wide * number_format.bits + (met[0] * met[1] * number_format.scale if number_format.scale else 0)) / 8

    def tile(k: int, n: int) -> float:
        return piece(word, -(-k // rows), -(-n // cols))

    h, q, w, f = model.hidden, model.heads * 128, model.kv_heads * 128, model.ffn_intermediate
    layer = tile(h, q) + 2 * tile(h, w) + tile(q, h) + 2 * tile(h, f) + tile(f, h)
    norms = 2 * (2 * h + 2 * 128) / cols
    head = piece(word if BITS[word] > 16 else "bf16", -(-h // rows), -(-model.vocab // cols))
    beside = norms * max(BITS[word] / 16, 1)
    assert core_memory.weights == pytest.approx(model.layers * (layer + beside), rel=1e-12)
    assert last.weights == pytest.approx(
        model.layers * (layer + beside) + head + 2 * h / cols * max(BITS[word] / 16, 1), rel=1e-12
    )
    assert core_memory.kv == pytest.approx(tokens * model.layers * 2 * piece(kv, -(-w // cols), 1), rel=1e-12)


@pytest.mark.parametrize("word", ["int8", "mxfp8", "mxfp4", "int4_g128"])
def test_a_wafer_expands_each_weight_once_a_step(word: str) -> None:
    """Elements of the calls that do so: whole tiles, thus no fewer than the weights of a layer, and few more."""
    question = asked("chip=wse2", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=512", "workload.output=4")
    (case,), base = question.workload.cases, formats(question.base, weights=word)
    for step in (prefill_step(case), decode_steps(case, "last")[0][1]):
        side = 660.0 if step.phase == "prefill" else 360.0
        made = region_blocks(case.model, step, Region(CoreMesh(side, side), 1.0, 32.0, 32.0, 1.0, 32.0), base.mapping, 4.0)
        kernels = [
            (call.kernel, call.kernel.times * block.times)
            for block in made
            for call in block.calls
            if call.name.endswith("_expand")
        ]
        values = sum(times * kernel.shape.m * kernel.shape.k for kernel, times in kernels)
        stored = parameter_count(case.model) - 2 * case.model.vocab * case.model.hidden  # both tables have 16 bits
        assert stored * 0.999 <= values <= stored * 1.06
        assert {kernel.options["operations"] for kernel, _ in kernels} == {FORMATS[word].expand}


def test_weights_at_the_edge_come_in_their_format() -> None:
    question = asked("chip=wse2_hbm", "model=llama3_70b", "workload.batch=[1]", "workload.prompt=256", "workload.output=4")
    columns = {
        word: evaluate(stack_designs([formats(question.base, weights=word)]), question.workload).columns
        for word in ("fp16", "mxfp8")
    }
    model = question.workload.cases[0].model
    kept = 2 * model.vocab * model.hidden + (2 * model.layers + 1) * model.hidden
    narrow = parameter_count(model) - kept
    assert columns["mxfp8"]["hbm_used"][0] == pytest.approx(2 * kept + narrow * 8.25 / 8, rel=1e-12)
    assert columns["mxfp8"]["tpot"][0] < 0.6 * columns["fp16"]["tpot"][0]


def rows(design: Design, question: Any, phase: str, part: str) -> float:
    rows = explain(design, question.workload.cases[0]).rows
    return sum(row.parts.get(part, 0.0) for row in rows if row.phase == phase)


@pytest.mark.sampled
@pytest.mark.parametrize("where", ["h100", "ascend910b", "npu64", "tile_gh200", "wse2"])
@pytest.mark.parametrize("tensor", ["weights", "kv"])
def test_what_is_expanded_takes_the_vector_engine(where: str, tensor: str) -> None:
    """Slow lanes bind decode in four bits, which no engine of these chips multiplies, more than in formats that it does."""
    stack = () if where in ("npu64", "tile_gh200", "wse2") else ("stack=ideal",)
    overrides = WHERE.get(where, (f"chip={where}",))
    prompt = 16384 if where == "wse2" else 4096  # what attention of few keys does beside it is as much
    question = asked(
        *overrides, *stack, "model=llama3_8b", "workload.batch=[2]", f"workload.prompt={prompt}", "workload.output=4"
    )
    lanes = "chip.tile.vector.lanes" if where in ("npu64", "tile_gh200") else "chip.core.vector"
    if where == "wse2":  # cores multiply 16 bits alone, and have one engine
        slow, usual, part = (
            replace_leaves(
                question.base, {"chip.core.vector_operation": leaf_at(question.base, "chip.core.vector_operation") * 20}
            ),
            "fp16",
            "products",
        )
    else:
        slow, usual, part = replace_leaves(question.base, {lanes: leaf_at(question.base, lanes) / 20}), "int8", "vector"
    narrow = "int4_g128" if tensor == "weights" else "int4_head"
    plain = {"activations": usual, "weights": usual, "kv": usual}
    native, expanded = (formats(slow, **plain | {tensor: word}) for word in (usual, narrow))
    assert rows(expanded, question, "decode", part) > 1.5 * rows(native, question, "decode", part)


@pytest.mark.parametrize("word", ["mxfp8", "mxfp4", "int4_g32"])
def test_pipelines_expand_weights_again_for_each_block_of_tokens(word: str) -> None:
    """They stay as they are stored, and come so, block after block."""

    def expanding(prompt: int) -> float:
        question = asked(
            "chip=npu64",
            "model=qwen3_1b7",
            "workload.batch=[1]",
            f"workload.prompt={prompt}",
            "workload.output=2",
            f"mapping.precision.weights={word}",
        )
        (case,) = question.workload.cases
        rows = explain(question.base, case, decode_context="mean", fidelity="analytical").rows
        return sum(row.parts.get("vector", 0.0) for row in rows if (row.phase, row.operator) == ("prefill", "gate"))

    once = expanding(512)
    assert once > 0
    assert [expanding(prompt) for prompt in (100, 1024, 1025)] == pytest.approx([once, 2 * once, 3 * once])


def test_four_bits_of_weights_are_read_in_half_the_time_and_multiplied_as_fast_as_activations() -> None:
    """On an H100 W4A16 decodes as fast as memory lets it, and prefills as fast as 16 bits."""
    question = asked(
        "chip=h100",
        "model=llama3_8b",
        "stack=ideal",
        "mapping.both.tp=1",
        "workload.batch=[1]",
        "workload.prompt=4096",
        "workload.output=2",
    )
    wide, narrow = (explain(formats(question.base, weights=word), question.workload.cases[0]) for word in ("fp16", "int4_g128"))

    def seconds(width: Any, phase: str, name: str) -> float:
        return next(row.seconds for row in width.rows if row.phase == phase and row.operator == name)

    assert seconds(narrow, "decode", "gate") == pytest.approx(seconds(wide, "decode", "gate") * 4.125 / 16, rel=0.01)
    assert seconds(narrow, "prefill", "gate") == pytest.approx(seconds(wide, "prefill", "gate"), rel=1e-12)


def test_an_engine_without_a_format_multiplies_sixteen_bits_and_pays_for_it() -> None:
    """FP8 on an A100, which has none: no faster than 16 bits where products bind, and more energy than int8, which it has."""
    question = asked("chip=a100", "model=llama3_8b", "mapping.both.tp=2", *SMALL)

    def alike(word: str) -> Any:
        return formats(question.base, weights=word, activations=word)

    columns = {word: evaluate(stack_designs([alike(word)]), question.workload).columns for word in ("fp8", "int8", "fp16")}
    assert columns["int8"]["ttft"][0] < columns["fp8"]["ttft"][0]
    assert columns["fp8"]["tpot"][0] < columns["fp16"]["tpot"][0]  # half the bytes
    assert columns["fp8"]["energy"][0] > columns["int8"]["energy"][0]
    matrix = [rows(alike(word), question, "prefill", "matrix") for word in ("fp8", "fp16")]
    assert matrix[0] == pytest.approx(matrix[1], rel=0.2)


@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_rate_beyond_what_multipliers_do_takes_more_of_them(name: str) -> None:
    question = asked("chip=h100", "model=llama3_8b", *SMALL)
    chips = [replace_leaves(question.base, {f"chip.core.rates.{name}": value}) for value in (1.0, 2.0, 4.0)]
    parts = [explain(chip, question.workload.cases[0]) for chip in chips]
    first, usual, more = (part.area["matrix engines"] for part in parts)
    assert first == usual == pytest.approx(more / 2)
    assert parts[2].power["matrix engines"] == pytest.approx(2 * parts[1].power["matrix engines"])
    assert format_area_factor(FormatRates(mxfp4=8.0)) == 2.0


def test_rates_of_many_designs_are_those_of_each() -> None:
    question = asked(
        "chip=b200", "model=llama3_8b", "mapping.precision.weights=mxfp4", "mapping.precision.activations=mxfp8", *SMALL
    )
    designs = [replace_leaves(question.base, {"chip.core.rates.mxfp8": value}) for value in (1.0, 2.0, 3.0)]
    together = evaluate(stack_designs(designs), question.workload).columns
    alone = [evaluate(stack_designs([design]), question.workload).columns for design in designs]
    for name in ("ttft", "tpot", "energy", "system_mm2"):
        assert np.allclose(together[name], [columns[name][0] for columns in alone], rtol=1e-12)
    assert together["ttft"][0] > together["ttft"][1]


REFUSED = [
    (
        ("chip=h100", "mapping.precision.activations=int4_g128"),
        "activations: int4_g128 is a format of weights only; for activat",
    ),
    (
        ("chip=h100", "mapping.precision.kv=fp8_128x128"),
        "kv: fp8_128x128 is a format of weights only; for the KV cache use: .*mxfp8",
    ),
    (
        ("chip=h100", "mapping.precision.weights=int4"),
        "weights: int4 does not say which values share a scale; use int4_g128 or",
    ),
    (("chip=h100", "mapping.precision.kv=int4"), "kv: int4 does not say which values share a scale; use int4_head"),
    (
        ("chip=h100", "mapping.precision.weights=fp4"),
        "weights: fp4 does not say which values share a scale; use mxfp4 or nvfp4",
    ),
    (("chip=h100", "precision={weights: fp7}"), "weights: no option 'fp7'; did you mean 'fp8'"),
    (("chip=h100", "precision={expert: fp8}"), "no field 'precision.expert'; did you mean 'experts'"),
    (
        ("chip=h100", "mapping.precision.experts=mxfp4"),
        r"experts: this mapping leaves it out; \+mapping.precision.experts=\.\.\. says",
    ),
    (("chip=h100", "+mapping.precision.experts=mxfp4"), "experts: has no effect, since no model here has experts"),
    (("chip=h100", "+mapping.precision.index=fp8"), "index: has no effect, since no model here has a sparse indexer"),
    *(
        (words, "combine: has no effect, since experts send nothing back here; .*many dies .chip=wafer64, chip=h800_ep.")
        for words in (
            ("chip=h100", "+mapping.precision.combine=bf16"),
            ("chip=npu64", "+mapping.precision.combine=bf16"),
            ("chip=wse2", "precision={combine: bf16}"),
            ("chip=tile_gh200", "model=deepseek_v2_lite", "+mapping.precision.combine=bf16"),
        )
    ),
    (("chip=wafer64", "+mapping.precision.combine=bf16"), "combine: has no effect, since no model here has experts"),
    (
        ("chip=wafer64", "model=deepseek_v2_lite", "+mapping.precision.combine=mxfp8"),
        "combine: mxfp8 has scales of blocks.*valid: int8",
    ),
    (
        ("chip=wse2", "mapping.precision.activations=fp8"),
        "activations: fp8 has no kernels on a mesh of cores; valid: bf16, fp16",
    ),
    (
        ("chip=wse2", "mapping.precision.kv=fp32"),
        "kv: fp32 has no kernels on a mesh of cores; valid: int8, fp8, bf16, fp16, mx",
    ),
    (("chip=tile32", "mapping.precision.activations=mxfp8"), "activations: mxfp8 has scales of blocks.*valid: int8, .*KV"),
    (("chip=npu64", "mapping.precision.activations=mxfp8"), "activations: mxfp8 has scales of blocks.*valid: int8, fp8, bf16"),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_a_format_that_cannot_be_is_refused_in_a_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message) as refused:
        metrics("model=qwen3_1b7", *SMALL, *words)
    assert "\n" not in str(refused.value)


def test_attention_alone_has_no_weights_of_a_format_of_their_own() -> None:
    with pytest.raises(DesignError, match=r"weights: .* one size, got fp8 and activations of fp16"):
        metrics("chip=tile32", "workload=attention", "precision={weights: fp8, activations: fp16, kv: fp16}")


def test_every_tensor_has_formats_and_keys_of_an_indexer_have_those_of_the_cache() -> None:
    assert all(set(UNSCALED_FORMATS) <= set(formats_of_tensor(tensor)) for tensor in TENSORS)
    formats = FormatPlan(weights="fp8", activations="fp8", kv="bf16")
    assert index_format(formats) == "bf16"
    assert index_format(replace_leaves(formats, {"index": "fp8_1x128"})) == "fp8_1x128"
