"""Serving on wafers: agreement with batches, chunks of prompts, changes of layout, room for caches, what does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting import regions
from dse.evaluators.accounting.serving_instances import regions as service
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.graph.operators import useful_flop
from dse.evaluators.graph.step_counts import prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.design import Designs, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import KV_HEADS
from dse.space.workload import BatchCase
from tests.samples import asked, load_of, metrics

SERVING = ("chip=wse2", "model=qwen3_1b7", "workload=serving", "workload.requests=40")
ALONE = ("workload.rate=0.01 Hz", "workload.arrivals=constant", "workload.requests=4")
CHANGING = "mapping.prefill.rows=660"

OVER_KEYS = {"scores": "n", "softmax": "k", "values": "k"}
"""Kernels that go over keys, and along which side of their shape."""


def priced(*overrides: str) -> service.ServingInstance:
    design, load = load_of(*SERVING, *overrides)
    return service.RegionServing().instances(design, load, "analytical")[0]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(6))
def test_requests_far_apart_take_what_a_batch_of_one_takes(seed: int) -> None:
    """On random wafers and lengths; the two readings differ by the table's error, and by where on its way a token stands."""
    rng = np.random.default_rng(seed)
    model = str(rng.choice(["qwen3_1b7", "llama3_8b", "qwen3_4b", "mistral_7b"]))
    prompt, output = int(rng.integers(20, 4000)), int(rng.integers(2, 400))
    rows, policy = int(rng.integers(360, 376)), str(rng.choice(["prefill_first", "static", "orca"]))
    words = [f"mapping.kv_placement={rng.choice(['shift', 'concat'])}", f"mapping.kv_projection={rng.choice(KV_HEADS)}"]
    overrides = (f"model={model}", f"mapping.prefill.rows={rows}", f"mapping.decode.rows={rows}", *words)
    lengths = f"workload.prompt={prompt}", f"workload.output={output}"
    far = metrics(*SERVING, *ALONE, *overrides, *lengths, f"mapping.serving.policy={policy}")
    single_metrics = metrics("chip=wse2", *overrides, *lengths, "workload.batch=[1]")
    assert far["ttft"] == pytest.approx(single_metrics["ttft"], rel=0.02)
    assert far["tpot"] == pytest.approx(single_metrics["tpot"], rel=0.02)
    assert far["latency"] == pytest.approx(
        single_metrics["ttft"] + (output - 1) * single_metrics["tpot"], rel=0.02
    )  # the first comes with prefill
    assert far["iteration_time_error"] < 0.02
    assert far["load_status"] == 0
    assert far["peak_power"] == pytest.approx(single_metrics["peak_power"], rel=0.02)


@pytest.mark.parametrize("requests", [3, 7])
def test_requests_at_once_in_a_static_batch_take_what_a_batch_takes(requests: int) -> None:
    at_once = ("workload.arrivals=offline", f"workload.requests={requests}", "mapping.serving.policy=static")
    together = metrics(*SERVING, *at_once)
    batch = metrics(
        *SERVING[:2], "mapping.prefill.rows=360", f"workload.batch=[{requests}]", "workload.prompt=1024", "workload.output=256"
    )
    assert together["ttft"] == pytest.approx(batch["ttft"], rel=0.05)  # the table's error, between so many prompts and one more
    assert together["latency"] == pytest.approx(batch["latency"], rel=0.05)


def test_a_wafer_that_changes_its_layout_pays_both_ways_for_each_iteration_with_prompts() -> None:
    lengths = "workload.prompt=1000", "workload.output=30"
    changing = metrics(*SERVING, *ALONE, CHANGING, *lengths)
    single_metrics = metrics(*SERVING[:2], *lengths, "workload.batch=[1]")
    assert single_metrics["relayout_time"] > 0
    # back with keys and values, which is the static case's way, and there without
    assert single_metrics["relayout_time"] < changing["ttft"] - single_metrics["ttft"] < 2.02 * single_metrics["relayout_time"]
    assert changing["tpot"] == pytest.approx(single_metrics["tpot"], rel=0.01)


def test_a_prompt_in_chunks_takes_longer_than_whole_and_its_last_chunk_longer_than_its_first() -> None:
    instance = priced()
    nothing = np.zeros(1)

    def seconds(tokens: float, past: float) -> float:
        return float(instance.pricing(np.array([tokens]), np.array([past + (tokens + 1) / 2]), nothing, nothing, nothing)[0])

    first, last, whole = seconds(720, 0), seconds(720, 2880), seconds(3600, 0)
    assert first < last < whole < sum(seconds(720, 720.0 * chunk) for chunk in range(5))


def test_an_iteration_of_prompts_and_decodes_is_one_after_the_other() -> None:
    instance = priced()
    prompt, context, decodes, cached, nothing = (np.array([value]) for value in (500.0, 250.5, 9.0, 800.0, 0.0))
    both = instance.pricing(prompt, context, decodes, cached, nothing)
    apart = instance.pricing(prompt, context, nothing, nothing, nothing) + instance.pricing(
        nothing, nothing, decodes, cached, nothing
    )
    assert both == pytest.approx(apart)


def test_what_goes_over_keys_goes_over_those_before_a_chunk_too() -> None:
    design, load = load_of(*SERVING)

    def kernels(past: float) -> list[MeshKernel]:
        prefill = regions.REGION_LAYOUT.phases(
            design, service._iteration_job(load, prompts=300.0, past=past), "analytical", detailed=True
        )[0]
        return [call.kernel for timed_block in prefill.timed for call in timed_block.block.calls if call.kernel is not None]

    assert set(OVER_KEYS) <= {kernel.name for kernel in kernels(0.0)}
    for kernel, longer in zip(kernels(0.0), kernels(500.0), strict=True):
        sizes, more = ((kernel_sized.shape.m, kernel_sized.shape.k, kernel_sized.shape.n) for kernel_sized in (kernel, longer))
        assert [b - a for a, b in zip(sizes, more, strict=True)] == [
            500.0 * (OVER_KEYS.get(kernel.name) == side) for side in "mkn"
        ]


@pytest.mark.parametrize("model", ["gemma3_12b", "gpt_oss_20b", "qwen3_8b"])
@given(st.integers(1, 9), st.integers(1, 2000))
@settings(max_examples=10, deadline=None)
def test_chunks_of_a_prompt_are_as_useful_as_the_prompt(model: str, chunks: int, chunk: int) -> None:
    """Within a window a token looks at no more than it, however long the prompt is, and wherever it is cut."""
    _, load = load_of("chip=wse2", "workload=serving", "workload.prompt=20000", f"model={model}")
    prompt = float(chunks * chunk)
    at = prefill_step(BatchCase("", load.model, ((1, int(prompt), 1),)))
    operators = [
        (part.times, operator)
        for part in transformer_segments(load.model, at)
        if part.name != "head"
        for operator in part.operators
    ]
    wanted = sum(times * float(useful_flop(operator)) for times, operator in operators)
    whole, *parts = (
        service._useful_operations(load, (own, past + (own + 1) / 2, 0.0, 0.0, 0.0))
        for own, past in ((prompt, 0.0), *((float(chunk), float(chunk * place)) for place in range(chunks)))
    )
    head = 2.0 * load.model.vocab * load.model.hidden
    assert whole - head == pytest.approx(wanted, rel=1e-9)
    assert sum(parts) - chunks * head == pytest.approx(wanted, rel=1e-9)


def test_wafers_that_only_prefill_leave_decodes_alone() -> None:
    busy = (*SERVING, "workload.requests=200", "workload.rate=30 Hz", CHANGING)
    both, apart = metrics(*busy, "mapping.serving.instances=2"), metrics(*busy, "mapping.serving.prefill_instances=1")
    assert both["system_mm2"] == apart["system_mm2"] == 2 * both["die_mm2"]
    assert apart["tbt_p99"] < both["tbt_p99"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "more", [(), (CHANGING, "mapping.serving.policy=chunked_prefill"), ("mapping.serving.prefill_instances=1",)]
)
def test_the_time_of_wafers_goes_into_kernels_or_is_idle(more: tuple[str, ...]) -> None:
    question, values = asked(*SERVING, *more), metrics(*SERVING, *more)
    parts = explain(question.base, question.workload.cases[0])
    assert sum(row.seconds for row in parts.rows) == pytest.approx(parts.seconds)
    for row in parts.rows:
        assert sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12)
    shares = [values["prefill_busy_share"], values["decode_busy_share"]][: 1 + len(more) % 2]
    assert parts.by_bound()["idle"] / parts.seconds == pytest.approx(1 - sum(shares) / len(shares), abs=1e-6)
    assert {row.operator for row in parts.rows} > {"q_proj", "qkv_proj", "scores", "head"}
    moved = [row.segment for row in parts.rows if row.operator == "reshuffle"]
    assert moved == (["to prefill: layouts", "to decode: layouts"] if CHANGING in more else [])


def test_no_declared_metric_is_missing() -> None:
    static = set(metrics(*SERVING[:2], "workload.batch=[1]"))
    for more in ((), (CHANGING, "mapping.serving.policy=pd_fusion"), ("mapping.serving.prefill_instances=2",)):
        found_metrics = metrics(*SERVING, *more)
        assert {"mfu", "noc_utilisation", "sram_used", "energy", "energy_per_token", "rated_energy"} <= set(found_metrics)
        assert {"energy", "energy_per_token", "sram_used"} <= static & set(found_metrics)
        assert all(np.isfinite(value) for value in found_metrics.values())
        for share in ("mfu", "noc_utilisation", "kv_utilisation_peak", "prefill_busy_share"):
            assert 0 < found_metrics[share] < 1, share


def test_caches_of_requests_have_the_room_that_the_static_case_has() -> None:
    """Of the decode layout, where prefill has the same."""
    single_metrics = metrics(
        *SERVING[:2], "mapping.prefill.rows=360", "workload.batch=[1]", "workload.prompt=1024", "workload.output=256"
    )
    instance = priced("mapping.prefill.rows=360")
    assert instance.free / instance.room.position == pytest.approx(single_metrics["kv_capacity"], rel=0.02)


def test_a_model_that_does_not_fit_is_refused_with_the_bytes_and_with_what_would_do() -> None:
    question = asked(*SERVING, "model=llama3_70b")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.core.sram"
    assert {name.split()[-1] for name, _ in verdict.parts} >= {"weights", "cache", "activations", "buffers"}
    assert "fits " in verdict.remedy
    outcomes = evaluate(stack_designs([question.base]), question.workload)
    assert not outcomes.feasible[0]
    assert np.isnan(outcomes.columns["throughput"][0])


def test_many_designs_are_judged_as_each_by_itself() -> None:
    question = asked(*SERVING)
    rows = np.array([300.0, 360.0, 375.0])
    many = Designs(3, ((np.arange(3), replace_leaves(question.base, {"mapping.prefill.rows": rows})),))
    together = evaluate(many, question.workload)
    for place, row in enumerate(rows):
        alone = evaluate(
            stack_designs([replace_leaves(question.base, {"mapping.prefill.rows": float(row)})]), question.workload
        )
        for name in alone.columns:
            assert together.columns[name][place] == alone.columns[name][0], name


def test_a_mapping_of_batches_is_refused_with_one_that_serves() -> None:
    with pytest.raises(DesignError, match="for served requests on a mesh of cores choose mapping=waferllm_serving"):
        metrics(*SERVING, "mapping=waferllm")
