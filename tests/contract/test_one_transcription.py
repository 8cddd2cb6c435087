"""One transcription: whatever the layout, calls do each operator of the graph once, all of its work, and hold its weights."""

from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import pytest

from dse.evaluators.accounting import whole_chip as tiles
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import jobs as jobs_of
from dse.evaluators.graph.operators import MIXING, MatMulOp, Segment, dim_width, useful_flop
from dse.evaluators.graph.router_operators import with_router_operators
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts import pipelines, regions
from dse.evaluators.layouts import tensor_parallel as devices
from dse.evaluators.layouts.model_weights import unquantized_values
from dse.evaluators.layouts.region_memory import VALUE, region_core_memory
from dse.evaluators.layouts.residency import core_residency
from dse.evaluators.layouts.whole_chip import passes_by_phase
from dse.evaluators.machine.machine import mesh_program_machine
from dse.space.fields import replace_leaves
from dse.space.model import Model
from dse.space.parameter_counts import mtp_parameter_count, parameter_count, value_head_dim
from dse.space.workload import BatchCase
from tests.evaluators.test_transformer import BF16
from tests.marks import slow_if
from tests.presets import MODELS
from tests.samples import asked

PROMPT, OUTPUT = 20000, 40
"""Tokens, several times as many as a sliding window that ships has."""

HYBRIDS = {
    "delta_beside_attention": "order='6 (3 state, full), 4 state' kinds={state:{recurrence:{rule:delta,heads:32,key_heads:16,"
    "key_dim:128,value_dim:64,conv:4}},full:{v_dim:96,rope:0.5}}",
    "channel_delta_beside_latents": "order='7 (3 state, full)' kinds={state:{recurrence:{rule:channel_delta,heads:16,"
    "key_heads:16,key_dim:64,value_dim:128,conv:4,gate_rank:128}},full:{latent:{q_rank:0,kv_rank:512,nope_dim:128,rope_dim:64,"
    "v_dim:96}}}",
    "ssd_alone": "order='4 (5 state), 8 nothing' kinds={state:{ffn:none,recurrence:{rule:ssd,heads:32,key_heads:8,key_dim:128,"
    "value_dim:64,conv:4,chunk:128}},nothing:{mixing:none}}",
    "linear_beside_windows": "order='7 (state, 3 near)' kinds={state:{recurrence:{rule:linear,heads:16,key_heads:16,"
    "key_dim:128,value_dim:128,chunk:1}},near:{window:512}}",
    "indexer_over_latents": "order='14 (own, same)' kinds={own:{latent:{q_rank:1536,kv_rank:512,nope_dim:128,rope_dim:64,"
    "v_dim:128},indexer:{heads:16,dim:128,top:2048}},same:{latent:{q_rank:1536,kv_rank:512,nope_dim:128,rope_dim:64,"
    "v_dim:128},indexer:{heads:16,dim:128,top:2048,reused:true}}}",
    "indexer_over_heads": "order='28 own' kinds={own:{indexer:{heads:4,dim:128,top:2048,block:128}}}",
}
"""Kinds of layers of a model of 28 layers, by name."""

MESHES = (CoreMesh(24, 24), CoreMesh(30, 45), CoreMesh(100, 60))


class Laid(NamedTuple):
    """A step of a case: its parts, and the blocks that a layout makes of them."""

    parts: tuple[Segment, ...]
    blocks: tuple[CallBlock, ...]


def words_of(name: str) -> tuple[str, ...]:
    """Overrides for a model that ships, or one of `HYBRIDS`."""
    if name not in HYBRIDS:
        return (f"model={name}",)
    order, kinds = HYBRIDS[name].split(" kinds=")
    return ("model=qwen3_1b7", f"+model.qwen3_1b7.{order}", f"+model.qwen3_1b7.kinds={kinds}")


@cache
def case_of(name: str, phase: str, *more: str) -> tuple[BatchCase, StepCounts]:
    """One prompt, or one token of each of three requests."""
    batch = 1 if phase == "prefill" else 3
    words = (*words_of(name), f"workload.batch=[{batch}]", f"workload.prompt={PROMPT}", f"workload.output={OUTPUT}")
    case = asked(*words, *more).workload.cases[0]
    return case, prefill_step(case) if phase == "prefill" else decode_steps(case, "mean")[0][1]


def on_devices(case: BatchCase, at: StepCounts) -> Laid:
    parts = transformer_segments(case.model, at)
    return Laid(parts, devices.device_blocks(parts, (segment_order(case.model, at),), 1, BF16, "ring"))


def on_pipelines(case: BatchCase, at: StepCounts) -> Laid:
    mapping = asked("chip=npu64").base.mapping
    plan = mapping.prefill if at.phase == "prefill" else mapping.decode
    return Laid(transformer_segments(case.model, at), pipelines.group_blocks(case.model, at, plan, mapping.precision))


def on_pipelines_with_whole_experts(case: BatchCase, at: StepCounts) -> Laid:
    mapping = asked("chip=npu64", "model=mixtral_8x7b", "mapping.both.experts=whole").base.mapping
    plan = mapping.prefill if at.phase == "prefill" else mapping.decode
    return Laid(transformer_segments(case.model, at), pipelines.group_blocks(case.model, at, plan, mapping.precision))


def on_the_whole_chip(case: BatchCase, at: StepCounts) -> Laid:
    base = asked("chip=tile32").base
    ((_, blocks),) = passes_by_phase(case, base.chip, base.mapping, "mean")[at.phase]
    return Laid(tuple(with_router_operators(case.model, part) for part in transformer_segments(case.model, at)), blocks)


def in_regions(case: BatchCase, at: StepCounts, mesh: CoreMesh = MESHES[0]) -> Laid:
    """Without what the host does."""
    mapping = asked("chip=wse2").base.mapping
    place = regions.Region(mesh, 1.0, case.model.layers, case.model.layers, 1.0, case.model.layers)
    blocks = regions.region_blocks(case.model, at, place, mapping, OUTPUT / 2)
    return Laid(tuple(part for part in transformer_segments(case.model, at) if part.name not in regions.HOST_OPERATORS), blocks)


LAYOUTS = (on_devices, on_pipelines, on_pipelines_with_whole_experts, on_the_whole_chip, in_regions)
EVERY = (*MODELS, *HYBRIDS)
ON_TILES = tuple(name for name in EVERY if not name.startswith("gemma2"))
"""But scores that go through a tanh, which kernels of tiles have not."""

BOTH = ("prefill", "decode")
LONGEST: dict[tuple[Any, str], tuple[str, ...]] = {
    (on_devices, "gemma2_27b"): ("prefill",),
    (on_devices, "phi_4"): ("prefill",),
    (on_the_whole_chip, "codellama_34b"): ("prefill",),
    (on_the_whole_chip, "command_a"): BOTH,
    (on_the_whole_chip, "gemma3_12b"): BOTH,
    (on_the_whole_chip, "gemma4_31b"): ("prefill",),
    (on_the_whole_chip, "gpt_oss_120b"): BOTH,
    (on_the_whole_chip, "llama4_maverick"): BOTH,
    (on_the_whole_chip, "mimo_v2_flash"): BOTH,
    (on_the_whole_chip, "mistral_7b"): ("decode",),
    (on_the_whole_chip, "nemotron3_nano"): ("decode",),
}
"""Phases that take long, by layout and model."""

CELLS = [
    (layout, name, phase)
    for layout in LAYOUTS
    for name in (ON_TILES if layout is on_the_whole_chip else EVERY)
    for phase in BOTH
]


@cache
def laid(layout: Any, name: str, phase: str) -> Laid:
    """What a layout makes of a model."""
    case, at = case_of(name, phase)
    found_layout: Laid = layout(case, at)
    return found_layout


def named(layout: Any) -> str:
    return str(getattr(layout, "__name__", layout))


@slow_if(lambda layout, name, phase: phase in LONGEST.get((layout, name), ()))
@pytest.mark.sampled
@pytest.mark.parametrize(("layout", "name", "phase"), CELLS, ids=named)
def test_each_operator_is_done_once_as_often_as_its_part_runs(layout: Any, name: str, phase: str) -> None:
    parts, blocks = laid(layout, name, phase)
    done: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        for call in block.calls:
            done.update({(call.part, operator): block.times for operator in call.operators})  # type: ignore[dict-item]
    assert done == {(part.name, operator.name): part.times for part in parts for operator in part.operators}


@pytest.mark.sampled
@pytest.mark.parametrize(("layout", "name", "phase"), CELLS, ids=named)
def test_useful_operations_are_those_of_the_graph(layout: Any, name: str, phase: str) -> None:
    parts, blocks = laid(layout, name, phase)
    counts: Counter[str] = Counter()
    for block in blocks:
        for call in block.calls:
            counts[call.part] += block.times * call.flop
    for part in parts:
        assert counts[part.name] == pytest.approx(part.times * sum(map(useful_flop, part.operators)), rel=1e-12), part.name


PADDED = ("scores", "values", "q_absorb", "v_absorb", "o_down", "index_scores")
"""Products that are of whole tiles or heads; those of states and chunks are too."""


def asked_for(call: KernelCall) -> float:
    """Operations of a kernel's shape, without what is padded on cores."""
    kernel = call.kernel
    assert kernel is not None
    return float(2.0 * kernel.shape.m * kernel.shape.k * kernel.shape.n * kernel.times * kernel.copies)


@pytest.mark.sampled
@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{mesh.rows}x{mesh.cols}")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_regions_do_beyond_is_padding_or_repetition_or_masked(phase: str, name: str, mesh: CoreMesh) -> None:
    """Products are those of the graph, K and V repeated for every query head; scores and values are those of whole tiles."""
    case, at = case_of(name, phase)
    machine = mesh_program_machine(asked("chip=wse2").base.chip)
    assert machine.fabric is not None
    models = {part.name: part.of or case.model for part in transformer_segments(case.model, at)}
    for block in in_regions(case, at, mesh).blocks:
        kind = models.get(block.name, case.model)
        heads, kv, keys, values = kind.heads, kind.kv_heads, kind.head_dim, value_head_dim(kind) * kind.v_proj
        all_heads = heads * keys + heads * (keys + values), heads * keys + kv * (keys + values)
        repeated = {"k_proj": heads / kv, "v_proj": heads / kv, "qkv_proj": all_heads[0] / all_heads[1]}
        for call in block.calls:
            if call.kernel is None or not call.flop:
                continue
            done = READERS["analytical"].kernel(call.kernel, machine)
            if call.kernel.kind == "vector":  # multiply-adds of vector instructions
                elements = done.activity.elements * call.kernel.times * call.kernel.copies
                assert 2 * elements >= call.flop * (1 - 1e-12), call.name
                continue
            assert done.activity.macs * 2 * call.kernel.times * call.kernel.copies >= asked_for(call) * (1 - 1e-12), call.name
            if call.name in PADDED or call.name.startswith(("state_read", "state_add", "chunk_")):
                assert asked_for(call) >= call.flop * (1 - 1e-12), call.name
            else:
                assert asked_for(call) == pytest.approx(call.flop * repeated.get(call.name, 1.0), rel=1e-12), call.name


def weights(parts: tuple[Segment, ...]) -> float:
    """Values that all products store."""
    return sum(
        part.times * operator.stored * dim_width(operator.k) * dim_width(operator.n)
        for part in parts
        for operator in part.operators
        if isinstance(operator, MatMulOp)
    )


def unquantized(parts: tuple[Segment, ...], model: Model, tp: int) -> float:
    """Norms, biases and other values that no product multiplies by, on one of some devices."""
    return sum(part.times * unquantized_values(part, model).per_device(tp) for part in parts)


def table(model: Model) -> float:
    """Values of the table of the embedding where the head has another."""
    return 0.0 if model.tied_embeddings else float(model.vocab * model.hidden)


@pytest.mark.sampled
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cores_of_a_region_hold_the_weights_of_its_products(phase: str, name: str) -> None:
    """Sides divide all widths but scores of one column: little is padded. K and V are stored once, or for every head."""
    case, at = case_of(name, phase, "workload.speculation=none")
    mapping, parts = asked("chip=wse2").base.mapping, transformer_segments(case.model, at)
    place = regions.Region(CoreMesh(8, 4), 1.0, case.model.layers, case.model.layers, 1.0, case.model.layers)
    more = sum(
        (part.of.heads / part.of.kv_heads - 1)
        * weights((products(part, lambda operator: operator.name in ("k_proj", "v_proj")),))
        for part in parts
        if part.kind == MIXING
    )
    for word, repeated in (("own", 0.0), ("full", more)):
        leaves = replace_leaves(mapping, {"kv_heads": word})
        *_, core = region_core_memory(case.model, place, leaves, tokens=1.0, cached=1.0, scores=phase == "prefill")
        on_each_row = 8 * unquantized(parts, case.model, 1)
        assert core.weights * 32 == pytest.approx((weights(parts) + repeated + on_each_row) * VALUE, rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_two_devices_hold_each_weight_once_and_twice_what_is_not_divided(phase: str, name: str) -> None:
    case, at = case_of(name, phase)
    parts = transformer_segments(case.model, at)
    held = {
        tp: devices.device_memory(parts, case.model, tp, BF16, cached=1.0, sequences=1.0, tokens=1.0).weights for tp in (1, 2)
    }
    assert held[1] == 2 * (parameter_count(case.model) + at.guesses * mtp_parameter_count(case.model))
    whole = [products(part, lambda operator: not (operator.k.split or operator.n.split)) for part in parts]
    odd = case.model.vocab % 2 * case.model.hidden * (2 - case.model.tied_embeddings)  # rows of tables that nobody reads
    norms = 2 * unquantized(parts, case.model, 2) - unquantized(parts, case.model, 1)
    assert 2 * held[2] == held[1] + 2 * (weights(tuple(whole)) + odd + norms)


def products(part: Segment, kept: Any) -> Segment:
    """A part with some of its products alone."""
    return Segment(
        part.name,
        part.rows,
        tuple(operator for operator in part.operators if isinstance(operator, MatMulOp) and kept(operator)),
        part.times,
    )


@pytest.mark.sampled
@pytest.mark.parametrize("partition", ["mn", "k", "input_only"])
@pytest.mark.parametrize("name", MODELS)
def test_cores_of_a_pipeline_hold_each_weight_once_or_all_of_them_where_only_inputs_are_divided(
    name: str, partition: str
) -> None:
    case, at = case_of(name, "decode", "workload.speculation=none")
    mapping = asked("chip=npu64", f"mapping.both.partition={partition}", "mapping.both.pp=1").base.mapping
    parts, plan = transformer_segments(case.model, at), mapping.decode
    held = core_residency(parts, case.model, plan, mapping, 1e9, tokens=3.0, cached=1.0)
    copies = 1 if partition == "input_only" else plan.tp
    assert held.weights * copies == pytest.approx(2 * parameter_count(case.model), rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_memories_of_the_whole_chip_hold_each_weight_once(name: str) -> None:
    """With norms and biases, which are no products."""
    case, at = case_of(name, "decode")
    held = dict(tiles._main_memory_parts(asked("chip=tile32").base, case, "decode"))
    assert held["weights"] == 2 * (parameter_count(case.model) + case.guesses * mtp_parameter_count(case.model))
    assert held["weights"] == pytest.approx(2 * (weights(transformer_segments(case.model, at)) + table(case.model)), rel=5e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in MODELS if name in ON_TILES])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_engines_of_the_whole_chip_do_no_less_than_is_useful(phase: str, name: str) -> None:
    for block in laid(on_the_whole_chip, name, phase).blocks:
        for call in block.calls:
            done = jobs_of.job_cost("analytical", call.job).activity
            assert done is not None
            # states of a token by itself are the work of vector engines, an instruction or more for two operations
            assert 2 * (done.macs + done.elements * (call.name == "state")) >= call.flop * (1 - 1e-12), call.name
