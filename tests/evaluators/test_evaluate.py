"""Identities of the closed form over random designs."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.graph.step_counts import stack_steps as stacked_steps
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.tensor_parallel import weights_per_device
from dse.space.design import Design, stack_designs
from dse.space.fields import leaf_at, replace_leaves
from dse.space.mapping import BYTES_BY_FORMAT
from dse.space.parameter_counts import mtp_parameter_count, parameter_count
from dse.space.workload import Workload
from tests.samples import asked, base, wide

MODELS = ("llama3_8b", "qwen2_7b", "mixtral_8x7b", "deepseek_v3", "deepseek_v2_lite", "mistral_7b", "qwen3_1b7")
seeds = st.integers(0, 2**32 - 1)


def workload_of(model: str) -> Workload:
    return asked(f"model={model}", "workload.batch=[3]", "workload.sequence=[600]").workload


workloads = st.sampled_from(MODELS).map(workload_of)


def random_designs(seed: int, count: int) -> list[Design]:
    space = wide(base())
    columns = space.sample(np.random.default_rng(seed).random((count, len(space.knobs))))
    return [space.design_at(space.row(columns, i)) for i in range(count)]


@pytest.mark.sampled
@given(seeds, workloads)
@settings(max_examples=40, deadline=None)
def test_a_batch_is_its_singles(seed: int, workload: object) -> None:
    designs = random_designs(seed, 9)
    batch = evaluate(stack_designs(designs), workload)  # type: ignore[arg-type]
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), workload)  # type: ignore[arg-type]
        for name in METRICS:
            assert batch.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True)
        assert batch.limit[row] == evaluation.limit[0]


@pytest.mark.sampled
@given(seeds, workloads)
@settings(max_examples=40, deadline=None)
def test_the_breakdown_sums_to_the_total(seed: int, workload: object) -> None:
    (design,) = random_designs(seed, 1)
    case = workload.cases[0]  # type: ignore[attr-defined]
    parts = explain(design, case)
    total = evaluate(stack_designs([design]), workload).columns["latency"][0]  # type: ignore[arg-type]
    assert parts.seconds == pytest.approx(total, rel=1e-9)
    assert sum(parts.by_bound().values()) == pytest.approx(total, rel=1e-9)
    assert all(value >= 0 for row in parts.rows for value in row.parts.values())


@pytest.mark.sampled
@given(seeds, workloads)
@settings(max_examples=40, deadline=None)
def test_no_operator_is_faster_than_its_roofline(seed: int, workload: object) -> None:
    (design,) = random_designs(seed, 1)
    chip, case = design.chip, workload.cases[0]  # type: ignore[attr-defined]
    precision = design.mapping.precision
    fastest = max(chip.hbm.bandwidth, chip.l2.bandwidth)
    for row in explain(design, case).rows:
        if row.operator != "allreduce":
            beside = precision.kv if row.operator == "attention" else precision.weights
            peak = chip.cores * chip.core.matrix / max(BYTES_BY_FORMAT[precision.activations], BYTES_BY_FORMAT[beside])
            devices = getattr(design.mapping, row.phase).tp
            assert row.flop / (devices * peak) <= row.seconds * (1 + 1e-9)
            assert row.nbytes / (devices * fastest) <= row.seconds * (1 + 1e-9)


BETTER = (
    "chip.core.matrix", "chip.core.vector", "chip.hbm.bandwidth", "chip.network.bandwidth", "chip.l2.bandwidth",
)  # fmt: skip


@pytest.mark.sampled
@given(seeds, workloads, st.sampled_from(BETTER), st.floats(1.01, 10))
@settings(max_examples=60, deadline=None)
def test_more_of_a_resource_never_hurts(seed: int, workload: object, address: str, factor: float) -> None:
    (design,) = random_designs(seed, 1)
    more = replace_leaves(design, {address: leaf_at(design, address) * factor})
    latency = evaluate(stack_designs([design, more]), workload).columns["latency"]  # type: ignore[arg-type]
    assert latency[1] <= latency[0] * (1 + 1e-12)


@pytest.mark.sampled
@given(seeds, workloads, st.floats(1.01, 10))
@settings(max_examples=40, deadline=None)
def test_more_l2_never_hurts_the_best_mapping(seed: int, workload: object, factor: float) -> None:
    """A cap keeps what was prefetched with the smaller cache; the best over caps can only gain."""
    (design,) = random_designs(seed, 1)
    assume(design.chip.l2.bandwidth >= design.chip.hbm.bandwidth)  # in a slower L2, keeping activations there can hurt
    caps = [design.mapping.decode.prefetch_share, design.mapping.decode.prefetch_share / factor]
    small = replace_leaves(design, {"mapping.prefill.prefetch_share": caps[0], "mapping.decode.prefetch_share": caps[0]})
    large = [
        replace_leaves(
            design,
            {
                "chip.l2.size": design.chip.l2.size * factor,
                "mapping.prefill.prefetch_share": cap,
                "mapping.decode.prefetch_share": cap,
            },
        )
        for cap in caps
    ]
    latency = evaluate(stack_designs([small, *large]), workload).columns["latency"]  # type: ignore[arg-type]
    assert min(latency[1:]) <= latency[0] * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_one_device_holds_the_weights_of_the_model(model: str) -> None:
    case = asked(f"model={model}").workload.cases[0]
    parts = transformer_segments(case.model, prefill_step(case))
    held = sum(part.times * weights_per_device(part, 1) for part in parts)
    table = 0 if case.model.tied_embeddings else case.model.vocab * case.model.hidden
    whole = parameter_count(case.model) + case.guesses * mtp_parameter_count(case.model)
    assert held + table == pytest.approx(whole, rel=2e-4)  # norms and biases are not matrices


@pytest.mark.parametrize("model", MODELS)
def test_prefill_and_decode_store_the_same_weights(model: str) -> None:
    case = asked(f"model={model}").workload.cases[0]
    both = (prefill_step(case), decode_steps(case, "mean")[0][1])
    first, second = (
        sum(part.times * weights_per_device(part, 4) for part in transformer_segments(case.model, step)) for step in both
    )
    assert first == second


def test_prefetching_gains_nothing_on_one_device() -> None:
    designs = [
        replace_leaves(
            base(), {f"mapping.{p}.{k}": v for p in ("prefill", "decode") for k, v in (("tp", 1), ("prefetch", policy))}
        )
        for policy in ("none", "whole", "partial")
    ]
    latency = evaluate(stack_designs(designs), workload_of(MODELS[0])).columns["latency"]
    assert latency.tolist() == [latency[0]] * 3


def test_decode_priced_stretch_by_stretch_is_the_sum_of_its_steps() -> None:
    """With unequal requests, the stretches between ends add up to pricing every step alone, where time is linear."""
    case = asked("workload.lengths=lengths.csv", "workload.batch=[4]", "workload.requests=4").workload.cases[0]
    steps = decode_steps(case, "mean")
    by_stretch = sum(times * step.positions for times, step in steps)
    by_step = sum(n * sum(prompt + token for token in range(1, output)) for n, prompt, output in case.requests)
    assert by_stretch == pytest.approx(by_step)
    assert sum(times * step.tokens for times, step in steps) == case.decode_tokens == case.output_tokens - case.batch


def test_a_limit_is_itemised() -> None:
    tight = asked("model=llama3_70b", "mapping.prefill.tp=1", "chip.hbm.capacity='16 GB'")
    verdict = explain_infeasibility(tight.base, tight.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"
    assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)


@pytest.mark.parametrize(
    ("overrides", "limit"),
    [
        (("mapping.prefill.tp=8", "mapping.prefill.allreduce=full_mesh", "chip.network.ports=2"), "chip.network.ports"),
        (("mapping.prefill.tp=8", "mapping.decode.tp=4"), "mapping.decode.tp"),
    ],
)
def test_what_cannot_be_says_which_limit_binds(overrides: tuple[str, ...], limit: str) -> None:
    tight = asked(*overrides)
    verdict = explain_infeasibility(tight.base, tight.workload)
    assert verdict is not None
    assert verdict.limit == limit


def test_metrics_that_no_design_has_read_as_not_a_number() -> None:
    die, tiles = asked("model=qwen3_4b"), asked("chip=npu64", "model=qwen3_4b")
    alone = evaluate(stack_designs([die.base]), die.workload)
    assert "sram_used" not in alone.columns
    assert np.isnan(alone.columns["sram_used"]).tolist() == [True]
    with pytest.raises(KeyError):
        alone.columns["no_metric"]
    both = evaluate(stack_designs([die.base, tiles.base]), die.workload, cases=True)
    assert np.isnan(both.columns["sram_used"]).tolist() == [True, False]
    assert np.isnan(both.cases["sram_used"]).tolist() == [[True, False]]
    again = pickle.loads(pickle.dumps(both))
    assert list(again.columns) == list(both.columns)
    assert np.isnan(again.columns["ttft_p50"]).tolist() == [True, True]


def test_a_design_that_cannot_be_laid_out_adds_no_metrics_to_those_beside_it() -> None:
    """It has its areas, and so has a workload of which one model cannot be."""
    question = asked("chip=cm384", "chip.dies.rows=2", "model=deepseek_v2_lite", "mapping.both.ep=8")
    fine, broken = question.base, replace_leaves(question.base, {"mapping.prefill.ep": 7})
    together, alone = (evaluate(stack_designs(designs), question.workload) for designs in ([broken, fine], [fine]))
    assert list(together.feasible) == [False, True]
    assert together.columns.keys() == alone.columns.keys()
    assert together.row_outcome(1) == alone.row_outcome(0)
    assert together.columns["system_mm2"][0] == alone.columns["system_mm2"][0]
    two = asked("chip=cm384", "chip.dies.rows=2", "model=[deepseek_v2_lite,qwen3_1b7]", "mapping.both.ep=8")
    evaluation = evaluate(stack_designs([two.base]), two.workload, cases=True)
    assert "latency" not in evaluation.columns
    assert evaluation.columns["system_mm2"][0] > 0
    experts, dense = evaluation.cases["latency"][:, 0]
    assert experts > 0
    assert np.isnan(dense)


def test_cases_average_to_the_workload() -> None:
    many = asked("model=[llama3_8b,qwen2_7b]", "workload.batch=[1,8]", "workload.sequence=[512,2048]")
    outcomes = evaluate(stack_designs([many.base]), many.workload, cases=True)
    for name in ("latency", "throughput", "tpot"):
        assert outcomes.cases[name][:, 0].mean() == pytest.approx(outcomes.columns[name][0])


def test_stacked_steps_keep_their_order() -> None:
    case = asked("workload.lengths=lengths.csv", "workload.batch=[4]", "workload.requests=4").workload.cases[0]
    steps = [step for _, step in decode_steps(case, "mean")]
    assert stacked_steps(steps).positions[:, 0].tolist() == [step.positions for step in steps]
