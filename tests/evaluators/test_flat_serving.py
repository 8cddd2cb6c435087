"""Serving on tiles that work on one operator at a time: agreement with batches, weights read once, what does not fit."""

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.serving_instances import ServingInstance
from dse.evaluators.accounting.serving_instances import whole_chip as service
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import Designs, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked, load_of, metrics

CHIP = ("chip=tile_gh200", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=16")
SERVING = (*CHIP, "model=qwen3_1b7", "workload=serving", "workload.requests=20", "workload.prompt=200", "workload.output=30")
ALONE = ("workload.rate=0.01 Hz", "workload.arrivals=constant", "workload.requests=3")


def seconds(instance: ServingInstance, prompt: float, past: float, decodes: float, context: float) -> float:
    each = (prompt, past + (prompt + 1) / 2, decodes, context, 0.0)
    return float(instance.pricing(*(np.array([value]) for value in each))[0])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_requests_far_apart_take_what_a_batch_of_one_takes(seed: int) -> None:
    """On random meshes and lengths: the prompt is a point of the table, and contexts of tokens are between points."""
    rng = np.random.default_rng(seed)
    model = str(rng.choice(["qwen3_1b7", "qwen3_8b", "deepseek_v2_lite", "mixtral_8x7b"]))
    prompt, output = int(rng.integers(20, 2000)), int(rng.integers(2, 200))
    sides = f"chip.mesh.rows={2 ** rng.integers(2, 5)}", f"chip.mesh.cols={2 ** rng.integers(2, 5)}"
    flow = f"mapping.prefill.attention.dataflow={rng.choice(['flash2', 'flat_hw', 'flat_async'])}"
    policy = f"mapping.serving.policy={rng.choice(['prefill_first', 'static', 'orca'])}"
    lengths = f"workload.prompt={prompt}", f"workload.output={output}"
    far = metrics(*SERVING, *ALONE, *sides, f"model={model}", flow, *lengths, policy, "mapping.serving.max_batch_size=8")
    single_metrics = metrics(CHIP[0], CHIP[-1], *sides, f"model={model}", flow, *lengths, "workload.batch=[1]")
    assert far["ttft"] == pytest.approx(
        single_metrics["ttft"], rel=1e-3
    )  # slices for several prompts may do better than those for one
    assert far["tpot"] == pytest.approx(single_metrics["tpot"], rel=0.02)
    assert far["latency"] == pytest.approx(
        single_metrics["ttft"] + (output - 1) * single_metrics["tpot"], rel=0.02
    )  # the first comes with prefill
    assert far["iteration_time_error"] < 0.05
    assert far["load_status"] == 0
    assert far["peak_power"] == pytest.approx(single_metrics["peak_power"], rel=0.02)
    assert far["power"] <= far["peak_power"] <= far["tdp"]


def test_decodes_beside_a_prompt_read_no_weights_again() -> None:
    instance = service.WholeChipServing().instances(*load_of(*SERVING), "analytical")[0]
    prompt, tokens, both = seconds(instance, 200, 0, 0, 0), seconds(instance, 0, 0, 8, 220), seconds(instance, 200, 0, 8, 220)
    assert max(prompt, tokens) < both < 0.9 * (prompt + tokens)


@pytest.mark.parametrize("model", ["deepseek_v2_lite", "deepseek_v32", "qwen3_next_80b_a3b", "nemotron3_nano"])
def test_latents_and_states_have_one_pass_for_prompts_and_decodes(model: str) -> None:
    instance = service.WholeChipServing().instances(
        *load_of(*SERVING, f"model={model}", "chip.hbm.capacity=2 TB"), "analytical"
    )[0]
    prompt, tokens, both = seconds(instance, 200, 0, 0, 0), seconds(instance, 0, 0, 8, 220), seconds(instance, 200, 0, 8, 220)
    assert max(prompt, tokens) < both < 0.95 * (prompt + tokens)


@pytest.mark.parametrize("past", [0, 700, 3000])
def test_latents_before_a_chunk_are_expanded_again(past: int) -> None:
    """Which is repetition: useful is what is new."""
    model = "model=deepseek_v2_lite"
    design, load = load_of(*SERVING, model, *(f"mapping.prefill.attention.{name}=8" for name in ("rows", "cols")))
    rows = service.WholeChipServing().iteration_rows(design, load, 0, 1.0, (200.0, past + 100.5, 4.0, 220.0, 0.0), "analytical")
    (up,) = (row for row in rows if row.operator == "kv_up")
    row = 2 * 512 * 16 * 256 * 27
    assert up.flop == pytest.approx(200 * row)
    assert (up.excess or {}).get("repetition", 0.0) == pytest.approx(past * row)


def test_a_chunk_takes_longer_the_more_is_before_it() -> None:
    instance = service.WholeChipServing().instances(*load_of(*SERVING, "workload.prompt=2000"), "analytical")[0]
    assert seconds(instance, 500, 0, 0, 0) < seconds(instance, 500, 1500, 0, 0) < seconds(instance, 2000, 0, 0, 0)


SLICES = tuple(
    f"mapping.prefill.attention.{name}={size}" for name, size in (("rows", 8), ("cols", 8), ("queries", 32), ("keys", 32))
)


@pytest.mark.parametrize(
    "words",
    [
        ("model=qwen3_1b7", *SLICES),
        ("model=mixtral_8x7b", *SLICES),
        ("model=qwen3_1b7",),
        ("model=deepseek_v2_lite",),
        ("model=qwen3_1b7", "+part@chip.l2=l2_256mb"),
    ],
    ids=" ".join,
)
def test_an_iteration_has_one_price(words: tuple[str, ...]) -> None:
    """Table, rows, power and energy agree, with a cache too, and where slices are open, for which few lengths are tried."""
    (design, load), layout = load_of(*SERVING, *words), service.WholeChipServing()
    instance = layout.instances(design, load, "analytical")[0]
    for made_of in ((200.0, 100.5, 0.0, 0.0), (0.0, 0.0, 7.0, 210.0), (200.0, 100.5, 7.0, 210.0), (90.0, 145.5, 3.0, 210.0)):
        priced = instance.more(*(np.array([value]) for value in (*made_of, 0.0)))[0, :, 0]
        rows = layout.iteration_rows(design, load, 0, 3.0, (*made_of, 0.0), "analytical")
        ((seconds_, joules),) = layout.iteration_energies(design, load, 0, (*made_of, 0.0), "analytical")
        work = layout.work_of_iterations(design, load, [[(1.0, (*made_of, 0.0))]], "analytical")
        assert sum(row.seconds for row in rows) == pytest.approx(3 * priced[0], rel=1e-12)
        assert (seconds_, joules) == pytest.approx(priced[:2], rel=1e-12)
        assert (work.energy(), work.memory_bytes, work.hop_bytes, work.flop) == pytest.approx(priced[1:], rel=1e-12)


@pytest.mark.slow
def test_the_time_of_chips_goes_into_operators_or_is_idle() -> None:
    for apart in (0, 1):
        question = asked(*SERVING, f"mapping.serving.prefill_instances={apart}")
        parts, values = (
            explain(question.base, question.workload.cases[0]),
            metrics(*SERVING, f"mapping.serving.prefill_instances={apart}"),
        )
        assert sum(row.seconds for row in parts.rows) == pytest.approx(parts.seconds)
        for row in parts.rows:
            assert sum(row.parts.values()) == pytest.approx(row.seconds)
        shares = [values["prefill_busy_share"], values["decode_busy_share"]][1 - apart :]
        assert parts.by_bound()["idle"] / parts.seconds == pytest.approx(1 - sum(shares) / len(shares))
        assert {row.operator for row in parts.rows} > {"q_proj", "attention", "head"}


@pytest.mark.slow
def test_no_declared_metric_is_missing() -> None:
    for more in ("mapping.serving.policy=static", "mapping.serving.prefill_instances=1", "model=deepseek_v2_lite"):
        found_metrics = metrics(*SERVING, more)
        assert {"hbm_utilisation", "sram_used", "energy", "energy_per_token", "goodput", "system_mm2"} <= set(found_metrics)
        assert all(np.isfinite(value) for value in found_metrics.values())
        for share in ("mfu", "hbm_utilisation", "noc_utilisation", "kv_utilisation_peak", "prefill_busy_share"):
            assert 0 < found_metrics[share] < 1, share


def test_weights_are_read_once_an_iteration() -> None:
    """Of a load whose iterations are known: bytes are weights an iteration and keys and values beside."""
    more = (*SERVING, *ALONE, "mapping.serving.policy=prefill_first")
    steps = ("workload.batch=[1]", "workload.prompt=200", "workload.output=30")
    values, single_metrics = metrics(*more), metrics(*CHIP, "model=qwen3_1b7", *steps)
    load = asked(*more).workload.cases[0]
    span = 30 / values["throughput"] * len(load.requests)
    moved = values["hbm_utilisation"] * span / len(load.requests)
    assert moved == pytest.approx(single_metrics["hbm_utilisation"] * single_metrics["latency"], rel=1e-9)
    static = values["energy"] / len(load.requests) - single_metrics["energy"]
    assert static > 0  # the chip leaks while nobody asks


def test_a_model_that_does_not_fit_is_refused_with_the_bytes_and_with_what_would_do() -> None:
    question = asked(*SERVING, "chip.hbm.capacity=2 GB")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"
    assert [name for name, _ in verdict.parts] == ["weights", "KV cache", "activations"]
    assert "not even the weights fit" in verdict.remedy
    outcomes = evaluate(stack_designs([question.base]), question.workload)
    assert not outcomes.feasible[0]
    assert np.isnan(outcomes.columns["throughput"][0])


def test_groups_that_do_not_divide_the_mesh_are_refused() -> None:
    question = asked(*SERVING, "mapping.prefill.attention.rows=3")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "mapping.prefill.attention.rows"
    assert "2" in verdict.remedy


@pytest.mark.slow
def test_many_designs_are_judged_as_each_by_itself() -> None:
    question = asked(*SERVING)
    bandwidths = np.array([3e10, 6e10])
    many = Designs(2, ((np.arange(2), replace_leaves(question.base, {"chip.hbm.channel_bandwidth": bandwidths})),))
    together = evaluate(many, question.workload)
    for place, bandwidth in enumerate(bandwidths):
        alone = evaluate(
            stack_designs([replace_leaves(question.base, {"chip.hbm.channel_bandwidth": float(bandwidth)})]), question.workload
        )
        for name in alone.columns:
            assert together.columns[name][place] == alone.columns[name][0], name
    assert together.columns["tpot"][1] < together.columns["tpot"][0]


def test_a_mapping_of_batches_is_refused_with_one_that_serves() -> None:
    with pytest.raises(DesignError, match="choose mapping=flat_serving"):
        metrics(*SERVING, "mapping=flat")
