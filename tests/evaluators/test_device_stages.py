"""Pipeline stages and replicas of devices: layers, micro-batches, messages, memory and sums."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.phase import IterationSchedule, phase_seconds
from dse.evaluators.cost_models.analytical_collectives import stage_message_seconds
from dse.evaluators.evaluation import explain, explain_infeasibility
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.device_stages import layers_per_stage, messages_between_nodes, stage_groups, stage_orders
from dse.evaluators.layouts.model_weights import model_weight_bytes
from dse.evaluators.layouts.tensor_parallel import device_memory
from dse.evaluators.machine.machine import shared_cache_machine
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.layers import layers
from dse.space.workload import BatchCase, Workload
from tests.samples import asked, typed

ROUNDING = 1e-9

MODELS = ("qwen3_1b7", "llama3_8b", "mixtral_8x7b", "deepseek_v2_lite", "gemma3_12b", "qwen35_27b")
"""Tied tables and others, experts after dense layers, windows, and states between attention."""

FREE_LINKS = {
    "chip.network.bandwidth": 1e40,
    "chip.network.latency": 0.0,
    "chip.network.nodes.bandwidth": 1e40,
    "chip.network.nodes.latency": 0.0,
    "mapping.stack.collective_launch": 0.0,
}
"""Links on which nothing takes time."""

models, degrees = st.sampled_from(MODELS), st.sampled_from((1, 2, 4, 8, 16))


def staged(tp: int = 1, pp: int | None = 1, dp: int | None = 1, **leaves: Any) -> Design:
    """An H100 with some degrees, and other leaves by address."""
    base = asked("chip=h100", "mapping.both.tp=2").base
    both = {"tp": tp, "pp": pp, "dp": dp}
    plans = {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in both.items()}
    return replace_leaves(base, plans | leaves)


def load_of(name: str, *requests: tuple[int, int, int]) -> Workload:
    """A batch of one model: requests, each with a prompt and an output."""
    model = asked(f"model={name}").workload.cases[0].model
    return Workload("stages", (BatchCase("", model, requests),))


def metrics(design: Design, workload: Workload) -> dict[str, float]:
    """Metrics of one design in closed form, limits apart."""
    outcomes = evaluate(stack_designs([design]), workload)
    return {name: float(column[0]) for name, column in outcomes.columns.items()}


@given(st.integers(1, 200), st.integers(1, 200))
def test_layers_of_stages_add_up_and_differ_by_one(count: int, stages: int) -> None:
    each = layers_per_stage(count, stages)
    assert (len(each), sum(each)) == (stages, count)
    assert max(each) - min(each) <= 1
    assert each[-1] == min(each)


@given(models, st.integers(1, 60), st.sampled_from((0, 1)))
def test_stages_have_the_segments_of_a_step_in_order(name: str, stages: int, guesses: int) -> None:
    model = asked(f"model={name}").workload.cases[0].model
    stages = min(stages, len(layers(model).line))
    orders = stage_orders(model, guesses, stages)
    step = StepCounts("decode", 1.0, 1.0, 1.0, 1.0, guesses)
    assert sum(orders, ()) == segment_order(model, step)
    groups = stage_groups(model, guesses, stages)
    assert {place: group.order for group in groups for place in group.places} == dict(enumerate(orders))


@settings(max_examples=30, deadline=None)
@given(models, st.integers(1, 60))
def test_weights_of_all_stages_are_those_of_the_model(name: str, stages: int) -> None:
    """But for a tied table, which the first and the last stage both have."""
    model, precision = asked(f"model={name}").workload.cases[0].model, staged().mapping.precision
    parts = transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0))
    stages = min(stages, len(layers(model).line))

    def held(stage: tuple[str, ...] | None) -> Any:
        return device_memory(parts, model, 1, precision, cached=100.0, sequences=1.0, tokens=1.0, stage=stage)

    each = [held(order) for order in stage_orders(model, 0, stages)]
    table = model.vocab * model.hidden * 2.0 * (model.tied_embeddings and stages > 1)
    assert sum(stage.weights for stage in each) == pytest.approx(model_weight_bytes(model, precision) + table, rel=ROUNDING)
    assert sum(stage.kv for stage in each) == pytest.approx(held(None).kv, rel=ROUNDING)


@settings(max_examples=8, deadline=None)
@given(models, degrees, st.integers(1, 40), st.integers(1, 3000), st.integers(1, 300))
def test_one_stage_is_what_devices_have_been(name: str, tp: int, batch: int, prompt: int, output: int) -> None:
    load = load_of(name, (batch, prompt, output))
    one, before = (metrics(design, load) for design in (staged(tp), staged(tp, None, None)))
    assert list(map(repr, one.items())) == list(map(repr, before.items()))


@settings(max_examples=10, deadline=None)
@given(models, st.sampled_from((1, 2, 4, 8)), st.integers(2, 16), st.integers(1, 3000), st.integers(2, 300))
def test_stages_with_free_links_take_a_request_as_long_as_one_stage(
    name: str, tp: int, pp: int, prompt: int, output: int
) -> None:
    load = load_of(name, (1, prompt, output))
    one, several = (metrics(staged(tp, stages, **FREE_LINKS), load) for stages in (1, pp))
    assert several["latency"] == pytest.approx(one["latency"], rel=ROUNDING)
    assert several["energy"] >= one["energy"]


@settings(max_examples=8, deadline=None)
@given(models, st.integers(1, 8), st.integers(1, 12), st.integers(1, 40), st.integers(1, 300))
def test_more_bandwidth_of_links_never_hurts(name: str, tp: int, pp: int, batch: int, prompt: int) -> None:
    load = load_of(name, (batch, prompt, 20))
    before = metrics(staged(tp, pp), load)["latency"]
    for leaves in ({"chip.network.bandwidth": 9e11}, {"chip.network.nodes.bandwidth": 1.6e12}):
        assert metrics(staged(tp, pp, **leaves), load)["latency"] <= before * (1 + ROUNDING)


@settings(max_examples=8, deadline=None)
@given(models, st.integers(1, 8), st.integers(1, 12), st.integers(1, 3), st.integers(1, 60), st.integers(1, 30))
def test_rows_of_a_breakdown_add_up(name: str, tp: int, pp: int, dp: int, batch: int, output: int) -> None:
    """Time to that of the mean stage and its waits; operations to those of the batch, whatever its division."""
    load = load_of(name, (batch, 50, output), (3, 80, output))
    rows = explain(staged(tp, pp, dp), load.cases[0]).rows
    assert sum(row.seconds for row in rows) == pytest.approx(metrics(staged(tp, pp, dp), load)["latency"], rel=1e-6)
    assert all(row.seconds >= 0 for row in rows if row.segment == "stages")
    whole = explain(staged(), load.cases[0]).rows
    assert sum(row.flop for row in rows) == pytest.approx(sum(row.flop for row in whole), rel=1e-6)
    assert any(row.operator == "transfer" for row in rows) == (pp > 1)


@settings(max_examples=6, deadline=None)
@given(models, st.lists(st.tuples(degrees, st.integers(1, 12), st.integers(1, 3)), min_size=2, max_size=8), st.integers(1, 60))
def test_designs_together_are_designs_one_by_one(name: str, each: list[tuple[int, int, int]], batch: int) -> None:
    load, designs = load_of(name, (batch, 30, 9), (1, 90, 12)), [staged(*degree) for degree in each]
    together = evaluate(stack_designs(designs), load).columns
    for row, design in enumerate(designs):
        mine = {name: float(column[row]) for name, column in together.items()}
        assert mine == pytest.approx(metrics(design, load), rel=ROUNDING, nan_ok=True)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(("llama3_8b", "mixtral_8x7b")), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))
def test_replicas_share_a_batch(name: str, tp: int, pp: int, dp: int) -> None:
    """Each has the share rounded up: what fits in it comes at no cost."""
    alone = metrics(staged(tp, pp), load_of(name, (7, 64, 16)))
    shared, fewer = (metrics(staged(tp, pp, dp), load_of(name, (batch, 64, 16))) for batch in (7 * dp, 6 * dp + 1))
    for name_of_metric in ("latency", "ttft", "tpot", "hbm_used"):
        assert shared[name_of_metric] == pytest.approx(alone[name_of_metric], rel=ROUNDING)
        assert fewer[name_of_metric] == pytest.approx(alone[name_of_metric], rel=ROUNDING)
    for name_of_metric in ("throughput", "system_mm2", "energy", "hbm_bytes", "system_price"):
        assert shared[name_of_metric] == pytest.approx(dp * alone[name_of_metric], rel=ROUNDING)


def test_stages_and_replicas_are_devices() -> None:
    alone, several = (metrics(staged(2, pp, dp), load_of("llama3_8b", (8, 64, 16))) for pp, dp in ((1, 1), (4, 3)))
    for name in ("system_mm2", "peak_flops", "system_price"):
        assert several[name] == pytest.approx(12 * alone[name], rel=ROUNDING)


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=9), st.integers(1, 12))
def test_equal_prompts_fill_and_drain_stages_as_a_program_of_them_does(stages: list[float], prompts: int) -> None:
    free = [0.0] * len(stages)
    for _ in range(prompts):
        now = 0.0
        for stage, seconds in enumerate(stages):
            now = free[stage] = max(now, free[stage]) + seconds
    formula = phase_seconds(sum(stages), max(stages), IterationSchedule(prompts, is_ring=False))
    assert formula == pytest.approx(free[-1], rel=ROUNDING)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.sampled_from((1, 2, 3, 8, 16, 24)), st.integers(1, 24))
def test_messages_leave_a_node_where_no_further_stage_fits(stages: int, tp: int, size: int) -> None:
    node, used, left = 0, 0, []
    for _ in range(stages + 1):
        fits = used + tp <= size and tp <= size
        left.append(0 if fits else 1)
        node, used = (node, used + tp) if fits else (node + 1, min(tp, size))
    found = messages_between_nodes(tuple(range(stages)), tp, size)
    assert found == sum(left[1:])
    assert messages_between_nodes(tuple(range(stages)), np.array([float(tp)]), float(size)).tolist() == [found]


def test_devices_of_a_stage_share_the_bandwidth_of_their_node() -> None:
    ideal = staged(8, 2, **{"mapping.stack.network_efficiency": 1.0, "mapping.stack.network_half_size": 0.0})
    nodes = ideal.chip.network.nodes
    machine = shared_cache_machine(ideal.chip, ideal.mapping)
    call = ideal.mapping.stack.collective_launch + nodes.latency
    for tp, share in ((1, ideal.chip.network.bandwidth), (8, nodes.bandwidth / 8), (16, nodes.bandwidth / 8)):
        assert stage_message_seconds(4e9, tp, machine)[1] == pytest.approx(4e9 / share + call)


@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_a_step_waits_for_the_micro_batches_that_are_set(microbatches: int) -> None:
    design = staged(1, 4, **{f"mapping.{phase}.microbatches": microbatches for phase in ("prefill", "decode")})
    (job,) = arrays_by_model(load_of("llama3_8b", (8, 64, 16)))
    prefill, decode = layout_of(design).phases(design, job, "analytical")
    assert decode.runs == pytest.approx(job.steps * microbatches)
    assert prefill.runs == microbatches
    assert np.all(decode.useful_share == 1.0)


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((64, 64, 1, 1), "Llama-3-8B has 32 layers, and a stage needs one: mapping.both.pp=32 at most"),
        ((2, 4, 1, 1), "the same devices do both phases: set mapping.both.pp"),
        ((1, 1, 2, 1), "the same devices do both phases: set mapping.both.dp"),
    ],
)
def test_stages_that_cannot_be_say_what_would_do(counts: tuple[int, ...], text: str) -> None:
    addresses = [f"mapping.{phase}.{name}" for name in ("pp", "dp") for phase in ("prefill", "decode")]
    design = staged(**dict(zip(addresses, counts, strict=True)))
    worst = explain_infeasibility(design, load_of("llama3_8b", (8, 64, 16)))
    assert worst is not None
    assert worst.remedy == text


def test_a_model_that_no_tp_holds_is_told_how_many_stages_would_do() -> None:
    words = "chip=groq", "model=llama2_70b", "workload.batch=[1]", "workload.prompt=1000", "workload.output=100"
    question = asked(*words, "mapping.both.tp=8")
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    stages = int(worst.remedy.split("mapping.both.pp=")[1])
    plans = [{f"mapping.{phase}.pp": count for phase in ("prefill", "decode")} for count in (stages, stages - 1)]
    fits = [explain_infeasibility(replace_leaves(question.base, plan), question.workload) is None for plan in plans]
    assert fits == [True, False]


def test_micro_batches_need_stages() -> None:
    with pytest.raises(DesignError, match=r"mapping\.prefill\.microbatches: has no effect with one stage; set mapping.both.pp"):
        typed(asked("chip=h100", "mapping.both.tp=2", "mapping.both.microbatches=2"))
