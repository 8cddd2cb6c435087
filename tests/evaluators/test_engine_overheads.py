"""What an inference engine adds to kernels: each term has its own effect, its own row, and is seen wherever time is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting import tensor_parallel as devices
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.accounting.serving_runs.steady_state_run import coarse_table_points
from dse.evaluators.calls.call import CallProduct, KernelCall, LeadingCollective
from dse.evaluators.calls.prefetch import prefetched_bytes
from dse.evaluators.cost_models import call_table
from dse.evaluators.cost_models.analytical import ANALYTICAL
from dse.evaluators.cost_models.analytical_collectives import die_allreduce_seconds
from dse.evaluators.cost_models.call_cost import _duration, call_cost
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.collective import ALLREDUCE
from dse.evaluators.layouts.engine_overheads import (
    LOGITS,
    StepTerms,
    launch_floor,
    overhead_times,
    padded_requests,
    padded_step,
    recorded_batch_sizes,
    step_terms,
)
from dse.evaluators.machine.machine import shared_cache_machine
from dse.evaluators.malloc_settings import MANY
from dse.evaluators.serving.iteration_time import axis_points, geometric_axes, tabulate_time
from dse.evaluators.serving.iteration_time_lookup import table_at_composition
from dse.evaluators.workloads.serving import serving_layout
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.stack import IterationOverheads
from dse.space.workload import ServingLoad
from tests.samples import asked, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

SIZES = "1 2 4 8 16 32 64"
FLAT = {"matrix_energy": None, "roofline_exponent": None, "network_half_size": None, "reduction_format": None}
TERMS: dict[str, Any] = {
    "matrix_energy": 1.3e-13,
    "roofline_exponent": 3.0,
    "network_half_size": 2e6,
    "reduction_format": "fp16",
    "iteration.host_time": 1e-3,
    "iteration.request_host_time": 4e-6,
    "iteration.eager_launch": 3.77e-5,
    "iteration.graph_batch_sizes": SIZES,
    "iteration.logit_bytes": 14.0,
}
"""One value of each dense term."""

BATCH = ("chip=h100", "mapping=tensor_parallel", "model=llama3_8b", "workload.prompt=384", "workload.output=40")
SERVED = ("chip=h100", "model=llama3_8b", "workload=serving", "workload.prompt=300", "workload.output=60")
FP8 = "precision={weights: fp8, activations: fp8, kv: fp8, embedding: as_weights, head: as_weights}"


def engine(design: Design, terms: Mapping[str, Any]) -> Design:
    """A design whose stack has some terms alone."""
    own = {name.partition(".")[2]: value for name, value in terms.items() if name.startswith("iteration.")}
    if own:
        own |= {"dense_layer_kernels": 12, "moe_layer_kernels": 25}
    flat = FLAT | {name: value for name, value in terms.items() if "." not in name}
    changes = {"iteration": IterationOverheads(**own) if own else None} | flat
    return replace_leaves(design, {f"mapping.stack.{name}": value for name, value in changes.items()})


def batch_question(*words: str) -> tuple[Design, BatchArrays]:
    """Design and job of a batch."""
    question = asked(*BATCH, *words)
    (job,) = layout_of(question.base).batch_arrays(question.workload)
    return question.base, job


def phase_seconds(design: Design, job: BatchArrays) -> list[float]:
    """Prefill and decode time of a batch. [s]"""
    return [float(np.sum(phase.seconds)) for phase in layout_of(design).phases(design, job, "analytical")]


def served_load(*words: str) -> tuple[Design, ServingLoad, ServingLayout]:
    """Design, load and layout of requests that are served."""
    question = asked(*SERVED, *words)
    (load,) = question.workload.cases
    assert isinstance(load, ServingLoad)
    return question.base, load, serving_layout(question.base)


def iteration_pricing(design: Design, load: ServingLoad) -> Any:
    """Iteration time of the only pool, by composition."""
    (instance,) = serving_layout(design).instances(design, load, "analytical")  # type: ignore[attr-defined]
    return instance.pricing


# --- absent and neutral terms ---


@pytest.mark.parametrize("stack", ["trtllm_v1", "trtllm_v0"])
@pytest.mark.parametrize("words", [BATCH, SERVED], ids=["batch", "served"])
def test_a_stack_without_its_terms_is_its_flat_rates(stack: str, words: tuple[str, ...]) -> None:
    """To the bit: what has no terms takes the way of those that never had any."""
    engines, plain = asked(*words, f"stack={stack}"), asked(*words, "stack=tuned")
    rates = {
        f"mapping.stack.{name}": value
        for name, value, _ in iterate_leaves(engines.base.mapping.stack)
        if name.endswith(("efficiency", "launch")) and "." not in name
    }
    bare = replace_leaves(engine(engines.base, {}), {"mapping.stack.moe": None})
    columns = [
        evaluate(stack_designs([design]), plain.workload).columns for design in (bare, replace_leaves(plain.base, rates))
    ]
    assert columns[0].keys() == columns[1].keys()
    for name, column in columns[0].items():
        np.testing.assert_array_equal(column, columns[1][name], err_msg=name)


@pytest.mark.parametrize("name", ["matrix_energy", "network_half_size", "iteration.host_time", "iteration.eager_launch"])
def test_a_term_of_nothing_costs_nothing(name: str) -> None:
    design, job = batch_question("mapping.both.tp=4", "workload.batch=[5]")
    assert phase_seconds(engine(design, {name: 0.0}), job) == pytest.approx(phase_seconds(engine(design, {}), job), rel=1e-13)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("words", [BATCH, SERVED], ids=["batch", "served"])
def test_no_term_ever_makes_anything_quicker(name: str, words: tuple[str, ...]) -> None:
    """On several dies, in fp8, with requests that are no size of a graph."""
    question = asked(
        *words, "mapping.both.tp=4", FP8, *(("workload.batch=[5]",) if words is BATCH else ("workload.requests=40",))
    )
    each = [engine(question.base, terms) for terms in ({}, {name: TERMS[name]})]
    outcomes = [evaluate(stack_designs([design]), question.workload) for design in each]
    assert all(outcome.feasible.all() for outcome in outcomes)
    ends = "latency"
    assert outcomes[1].columns[ends][0] > outcomes[0].columns[ends][0]


# --- the exact effect of each ---


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20000), st.integers(1, 20000), st.sampled_from([16, 128, 256]))
def test_cores_compute_whole_squares_of_results(m: int, n: int, side: int) -> None:
    """Rounds of one square a core, whose squares are as large as results over them; attention has no squares."""
    design, _ = batch_question("workload.batch=[1]")
    calls = [
        KernelCall("ffn", "up", (), 1.0, (m, 64, n), (CallProduct(1.0, m, 64, n),), reads=reads, fetch=1.0)
        for reads in ("weights", "kv")
    ]
    even, squared = (
        [call_cost(call, shared_cache_machine(each.chip, each.mapping), ANALYTICAL).engines for call in calls]
        for each in (engine(design, {}), engine(design, {"product_block": side}))
    )
    squares = -(-m // side) * -(-n // side)
    rounds = -(-squares // 132)
    assert squared[0] == pytest.approx(even[0] * rounds * 132 / squares)
    assert squared[1] == even[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 20000), st.integers(1, 20000), st.integers(1, 20000), st.floats(0.25, 1.0), st.floats(1e-14, 1e-12))
def test_the_power_limit_adds_energy_over_power_to_every_operation(m: int, k: int, n: int, pace: float, energy: float) -> None:
    design, _ = batch_question("workload.batch=[1]")
    call = KernelCall("ffn", "up", (), 1.0, (m, k, n), (CallProduct(1.0, m, k, n),), pace=pace, reads="weights", fetch=1.0)
    plain, limited = (
        call_cost(call, shared_cache_machine(each.chip, each.mapping), ANALYTICAL)
        for each in (engine(design, {}), engine(design, {"matrix_energy": energy}))
    )
    operations = 2.0 * m * k * n
    assert limited.matrix - plain.matrix == pytest.approx(operations * energy / design.chip.power, rel=1e-6)
    reached = design.mapping.stack.matrix_efficiency * design.chip.cores * design.chip.core.matrix / 2 / pace
    assert plain.matrix / limited.matrix == pytest.approx(1 / (1 + energy * reached / design.chip.power), rel=1e-9)


def test_the_share_of_the_peak_falls_with_operations_a_joule() -> None:
    """e0 / (1 + F / P / X) with E = 1 / (e0 X): 0.66 of H100's peak in 16 bits, and 0.58 in 8."""
    design, _ = batch_question("workload.batch=[1]")
    limited = engine(
        replace_leaves(design, {"mapping.stack.matrix_efficiency": 0.738}), {"matrix_energy": 1 / (0.738 * 10.7e12)}
    )
    peak = design.chip.cores * design.chip.core.matrix / 2
    machine = shared_cache_machine(limited.chip, limited.mapping)
    for pace, share in ((1.0, 0.652), (0.5, 0.584)):
        call = KernelCall("ffn", "up", (), 1.0, (1, 1, 1), (CallProduct(1.0, 4096.0, 4096.0, 4096.0),), pace=pace)
        seconds = call_cost(call, machine, ANALYTICAL).matrix
        assert 2 * 4096.0**3 / seconds / (peak / pace) == pytest.approx(share, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4096), st.integers(64, 16384), st.integers(64, 16384), st.floats(1.0, 12.0), st.floats(0.0, 1.0))
def test_a_product_overlaps_with_its_weights_by_the_exponent(m: int, k: int, n: int, p: float, share: float) -> None:
    design, _ = batch_question("workload.batch=[1]")
    call = KernelCall(
        "ffn", "up", (), 1.0, (m, k, n), (CallProduct(1.0, float(m), k, n),), reads="weights", fetch=2.0 * k * n,
        local=2.0 * m * (k + n),
    )  # fmt: skip
    machine = shared_cache_machine(*_machine_of(engine(design, {"roofline_exponent": p})))
    cost = call_cost(call, machine, ANALYTICAL)
    whole = (cost.engines**p + cost.memory**p) ** (1 / p)
    assert _duration(cost, None, machine) == pytest.approx(whole + machine.overhead, rel=1e-9)
    assert _duration(cost, None, machine) >= max(cost.engines, cost.memory)
    ahead = [_duration(cost, nbytes * call.fetch, machine) for nbytes in (0.0, share / 2, share)]
    assert ahead == sorted(ahead, reverse=True)  # more prefetched bytes never cost more


def _machine_of(design: Design) -> tuple[Any, Any]:
    return design.chip, design.mapping


def test_only_products_of_weights_overlap_by_the_exponent() -> None:
    design, _ = batch_question("workload.batch=[1]")
    plain, smooth = (shared_cache_machine(*_machine_of(engine(design, terms))) for terms in ({}, {"roofline_exponent": 2.0}))
    attention = KernelCall(
        "attention", "attention", (), 1.0, (8, 64, 8), (CallProduct(1.0, 512.0, 256.0, 1.0),), reads="kv", fetch=1e6, local=1e4
    )
    norm = KernelCall("ffn", "norm", (), 1.0, (8, 1, 64), operations=1e6, local=1e6)
    for call in (attention, norm):
        assert _duration(call_cost(call, smooth, ANALYTICAL), None, smooth) == _duration(
            call_cost(call, plain, ANALYTICAL), None, plain
        )


@pytest.mark.parametrize("algorithm", [name for name in ALLREDUCE if name != "library"])
@pytest.mark.parametrize("words", ["chip=h100", "chip=a100"])
def test_a_small_message_takes_as_long_as_one_longer_by_the_half_size(algorithm: str, words: str) -> None:
    design = asked(words, "mapping=tensor_parallel").base
    half, rng = 3e6, np.random.default_rng(3)
    plain, slow = (shared_cache_machine(*_machine_of(engine(design, terms))) for terms in ({}, {"network_half_size": half}))
    for peers in (2, 4, 8, 16):
        nbytes = float(rng.uniform(1e3, 1e8))
        collective = LeadingCollective(algorithm, peers, nbytes, True, 2)
        longer = collective._replace(nbytes=nbytes + half)
        if peers <= 8:  # in a node
            assert die_allreduce_seconds(collective, slow) == pytest.approx(die_allreduce_seconds(longer, plain), rel=1e-12)


@pytest.mark.parametrize("algorithm", [name for name in ALLREDUCE if name != "library"])
@pytest.mark.parametrize("peers", [16, 32])
def test_a_message_over_nodes_starts_as_much_later_as_one_inside(algorithm: str, peers: int) -> None:
    """The half size was measured on links inside a node: slower links between nodes make no longer start of it."""
    design, half = asked("chip=h100", "mapping=tensor_parallel").base, 3e6
    plain, slow = (shared_cache_machine(*_machine_of(engine(design, terms))) for terms in ({}, {"network_half_size": half}))
    alone = plain._replace(network=plain.network._replace(of=replace(plain.network.of, nodes=None)))
    for nbytes in (1e3, 1e6, 3e7):
        collective = LeadingCollective(algorithm, peers, nbytes, True, 2)
        later = die_allreduce_seconds(collective, slow) - die_allreduce_seconds(collective, plain)
        inside = die_allreduce_seconds(collective._replace(nbytes=half + nbytes), alone)
        assert later == pytest.approx(inside - die_allreduce_seconds(collective, alone), rel=1e-9)
        assert later > 0


@pytest.mark.parametrize("words", ["chip=h100", "chip=a100"])
def test_one_device_adds_up_nothing(words: str) -> None:
    design = asked(words, "mapping=tensor_parallel").base
    slow = shared_cache_machine(*_machine_of(engine(design, {"network_half_size": 3e6})))
    for algorithm in (name for name in ALLREDUCE if name != "library"):
        assert die_allreduce_seconds(LeadingCollective(algorithm, 1, 1e6, True, 2), slow) == 0


@pytest.mark.parametrize("reduction", ["fp16", "bf16", "fp32", "fp8"])
def test_sums_have_the_bytes_of_their_format(reduction: str) -> None:
    """And so have their links' energy and time; all else stays."""
    design, job = batch_question("mapping.both.tp=8", "workload.batch=[3]", FP8)
    plain, wide = engine(design, {}), engine(design, {"reduction_format": reduction})
    each = [layout_of(way).phases(way, job, "analytical", detailed=True) for way in (plain, wide)]
    ratio = BYTES_BY_FORMAT[reduction] / BYTES_BY_FORMAT["fp8"]
    for before, after in zip(*each, strict=True):
        assert after.activity.linked_bytes == pytest.approx(ratio * before.activity.linked_bytes)
        assert after.activity.memory_bytes == before.activity.memory_bytes
        for block, other in zip(before.timed, after.timed, strict=True):
            assert [cost.engines for cost in block.costs] == [cost.engines for cost in other.costs]
            if block.block.opener is not None and other.block.opener is not None:
                assert other.block.opener.nbytes == ratio * block.block.opener.nbytes


@settings(max_examples=25, deadline=None)
@given(st.floats(0.0, 5e-3), st.floats(0.0, 5e-5), st.sampled_from([1, 3, 17]), st.integers(2, 60))
def test_the_host_works_once_an_iteration_and_once_a_decoding_request(
    host: float, request: float, batch: int, output: int
) -> None:
    design, job = batch_question(f"workload.batch=[{batch}]", f"workload.output={output}")
    plain = phase_seconds(engine(design, {}), job)
    hosted = phase_seconds(engine(design, {"iteration.host_time": host, "iteration.request_host_time": request}), job)
    steps = float(np.sum(job.steps))
    assert hosted[0] - plain[0] == pytest.approx(host, abs=1e-12)
    assert hosted[1] - plain[1] == pytest.approx(steps * (host + request * batch), abs=1e-11)


@pytest.mark.parametrize(
    ("model", "layers"), [("llama3_8b", 32 * 12), ("qwen3_30b_a3b", 48 * 25), ("deepseek_v2_lite", 1 * 12 + 26 * 25)]
)
def test_prompts_take_at_least_the_launches_of_all_kernels(model: str, layers: int) -> None:
    terms: dict[str, Any] = {"eager_launch": 2e-5, "dense_layer_kernels": 12, "moe_layer_kernels": 25}
    iteration = IterationOverheads(**terms)
    prompts = StepCounts("prefill", 64.0, 1.0, 2080.0, 0.0)
    found_model = asked(f"model={model}").workload.cases[0].model  # type: ignore[union-attr]
    assert launch_floor(iteration, found_model, prompts) == pytest.approx(2e-5 * layers)
    assert launch_floor(iteration, found_model, StepCounts("decode", 4.0, 4.0, 64.0, 64.0)) == 0


@pytest.mark.parametrize("launch", [1e-8, 3.77e-5, 1e-3])
def test_an_iteration_with_prompts_is_the_longer_of_kernels_and_launches(launch: float) -> None:
    design, job = batch_question("workload.batch=[2]")
    plain, eager = (phase_seconds(engine(design, terms), job) for terms in ({}, {"iteration.eager_launch": launch}))
    assert eager[0] == pytest.approx(max(plain[0], launch * 12 * 32))
    assert eager[1] == plain[1]


@pytest.mark.parametrize("kernels", [1e-4, 1e-3, 1.0])
@pytest.mark.parametrize("overlap", [None, 0.0, 0.25, 1.0])
def test_replayed_kernels_hide_the_host_and_prompts_do_not(overlap: float | None, kernels: float) -> None:
    iteration = IterationOverheads(host_time=1e-3, request_host_time=1e-5, host_overlap=overlap)
    model = asked("model=llama3_8b").workload.cases[0].model  # type: ignore[union-attr]
    decodes, prompts = StepCounts("decode", 4.0, 4.0, 64.0, 64.0), StepCounts("prefill", 64.0, 1.0, 2080.0, 0.0)
    assert overhead_times(iteration, model, decodes, kernels).host == pytest.approx(
        max(1e-3 + 4e-5 - (overlap or 0.0) * kernels, 0.0)
    )
    assert overhead_times(iteration, model, prompts, kernels).host == pytest.approx(1e-3)


def test_replayed_layers_with_experts_start_the_kernels_that_are_no_operators() -> None:
    design, job = batch_question("model=qwen3_30b_a3b", "workload.batch=[2]")
    plain = phase_seconds(engine(design, {}), job)
    replayed = phase_seconds(engine(design, {"iteration.moe_replay_launch": 5e-5}), job)
    assert replayed[0] == plain[0]
    assert replayed[1] - plain[1] == pytest.approx(float(np.sum(job.steps)) * 48 * 5e-5)


@pytest.mark.parametrize("kernels", [1e-3, 1.0])
@pytest.mark.parametrize("overlap", [None, 0.0, 0.25, 1.0])
def test_launches_of_experts_that_kernels_do_not_hide_add_to_them(overlap: float | None, kernels: float) -> None:
    counts: dict[str, Any] = {"eager_launch": 2e-5, "dense_layer_kernels": 12, "moe_layer_kernels": 25}
    iteration = IterationOverheads(**counts, moe_launch_overlap=overlap)
    prompts = StepCounts("prefill", 64.0, 1.0, 2080.0, 0.0)
    dense, experts = 2e-5 * 12, 2e-5 * 26 * 25
    hidden = experts * (1.0 if overlap is None else overlap)
    found_model = asked("model=deepseek_v2_lite").workload.cases[0].model  # type: ignore[union-attr]
    launch = overhead_times(iteration, found_model, prompts, kernels).launch
    assert launch == pytest.approx(experts - hidden + max(dense + hidden - kernels, 0.0))
    assert overhead_times(iteration, found_model, StepCounts("decode", 4.0, 4.0, 64.0, 64.0), kernels).launch == 0


@given(st.lists(st.integers(1, 5000), min_size=1, unique=True).map(sorted), st.integers(1, 6000))
def test_requests_are_padded_to_the_next_size(sizes: list[int], requests: int) -> None:
    padded = padded_requests(float(requests), tuple(map(float, sizes)))
    assert padded == next((size for size in sizes if size >= requests), requests)
    assert padded_requests(np.array([[float(requests)]]), tuple(map(float, sizes))).tolist() == [[padded]]


@pytest.mark.parametrize("text", ["", "2 1", "1 1", "0 4", "1,2", "1 2.5", "-1 2", "one", "1 ²"])
def test_sizes_that_do_not_rise_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        DesignError, match=r"^mapping\.stack\.iteration\.graph_batch_sizes: expected rising whole numbers"
    ) as told:
        recorded_batch_sizes(text)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("words", ["+mapping.stack.roofline_exponent=0.5", "+mapping.stack.matrix_energy=-1 pJ"])
def test_a_term_out_of_its_range_is_refused_in_one_line(words: str) -> None:
    with pytest.raises(DesignError, match="is below the minimum") as told:
        asked(*BATCH, words)
    assert "\n" not in str(told.value)


def test_the_power_limit_needs_a_power() -> None:
    design, job = batch_question("workload.batch=[1]")
    for power in (0.0, None):
        unknown = replace_leaves(engine(design, {"matrix_energy": 1e-13}), {"chip.power": power})
        with pytest.raises(DesignError, match=r"^mapping\.stack\.matrix_energy: needs the chip's power limit"):
            phase_seconds(unknown, job)


def test_of_many_designs_only_those_without_a_power_are_infeasible() -> None:
    question = asked(*BATCH, "workload.batch=[1]")
    each = [replace_leaves(engine(question.base, {"matrix_energy": 1e-13}), {"chip.power": power}) for power in (700.0, 0.0)]
    assert evaluate(stack_designs(each), question.workload).feasible.tolist() == [True, False]


def test_bounds_of_designs_without_a_power_have_no_limit_of_it() -> None:
    base, load, layout = served_load("mapping.both.tp=1")
    each = [replace_leaves(engine(base, {"matrix_energy": 1e-13}), {"chip.power": power}) for power in (700.0, 0.0)]
    ((_, both),) = stack_designs(each).groups
    prompts = np.broadcast_to(layout.work_lower_bounds(both, load).prompt, 2)
    assert prompts[1] == np.squeeze(layout.work_lower_bounds(engine(base, {}), load).prompt)
    assert prompts[0] > prompts[1]


def test_padding_leaves_what_attention_reads() -> None:
    step = StepCounts("decode", 6.0, 6.0, 300.0, 300.0, guesses=1)
    assert padded_step(step, (1.0, 2.0, 4.0, 8.0)) == StepCounts("decode", 8.0, 8.0, 300.0, 300.0, guesses=1)
    prompts = StepCounts("prefill", 6.0, 1.0, 300.0, 300.0)
    assert padded_step(prompts, (8.0,)) is prompts


@pytest.mark.parametrize("tp", [1, 4])
def test_a_padded_step_has_the_calls_of_the_next_size_but_for_attention(tp: int) -> None:
    design, job = batch_question(f"mapping.both.tp={tp}", "workload.batch=[37]")
    _, whole = batch_question(f"mapping.both.tp={tp}", "workload.batch=[64]")
    padded = engine(design, {"iteration.graph_batch_sizes": SIZES})
    terms = step_terms(padded.mapping.stack)
    plan, precision, rates = design.mapping.decode, design.mapping.precision, design.chip.core.rates
    blocks, larger, smaller = (
        devices._laid(work, "decode", plan, precision, rates, each)
        for work, each in ((job, terms), (whole, terms), (job, terms.without_padding))
    )
    for block, other, own in zip(blocks, larger, smaller, strict=True):
        assert (block.opener and block.opener.nbytes) == (other.opener and other.opener.nbytes)
        for call, next_call, alone in zip(block.calls, other.calls, own.calls, strict=True):
            if call.reads == "kv":
                assert (call.macs, call.fetch) == (alone.macs, alone.fetch)
            else:
                assert call == next_call


def test_a_batch_that_is_a_size_of_a_graph_is_not_padded() -> None:
    design, job = batch_question("workload.batch=[32]")
    assert phase_seconds(engine(design, {"iteration.graph_batch_sizes": SIZES}), job) == phase_seconds(engine(design, {}), job)


def test_a_batch_beyond_the_largest_graph_is_not_padded() -> None:
    design, job = batch_question("workload.batch=[65]")
    assert phase_seconds(engine(design, {"iteration.graph_batch_sizes": SIZES}), job) == phase_seconds(engine(design, {}), job)


@pytest.mark.parametrize("tp", [1, 8])
def test_logits_are_bytes_of_main_memory(tp: int) -> None:
    design, job = batch_question(f"mapping.both.tp={tp}", "workload.batch=[3]")
    layout, vocab, logit = layout_of(design), job.model.vocab, 14.0
    plain, more = (
        layout.phases(each, job, "analytical", detailed=True)
        for each in (engine(design, {}), engine(design, {"iteration.logit_bytes": logit}))
    )
    steps = (1.0, float(np.sum(job.steps)))
    for before, after, runs in zip(plain, more, steps, strict=True):
        extra = 3 * np.ceil(vocab / tp) * logit * runs
        assert after.activity.memory_bytes - before.activity.memory_bytes == pytest.approx(extra, rel=1e-6)  # type: ignore[union-attr]
        row = next(row for row in layout.breakdown_rows(after, "analytical") if row.operator == LOGITS)
        assert row.nbytes == pytest.approx(extra * tp)
        assert row.seconds == pytest.approx(
            extra / (design.chip.hbm.bandwidth * design.mapping.stack.hbm_efficiency)
            + runs * design.mapping.stack.operator_launch
        )


def test_logits_are_not_prefetched() -> None:
    design, job = batch_question("mapping.both.tp=4", "mapping.both.prefetch=whole", "workload.batch=[3]")
    plan, precision = design.mapping.decode, design.mapping.precision
    blocks = devices._laid(job, "decode", plan, precision, design.chip.core.rates, StepTerms(logit_bytes=14.0))
    (head,) = (block for block in blocks if block.name == "head")
    ahead = dict(zip((call.name for call in head.calls), prefetched_bytes(head, "whole", 1e12), strict=True))
    assert ahead[LOGITS] is None
    assert ahead["head"] > 0


# --- rows, batches, loads ---


@pytest.mark.parametrize("words", ["mapping.both.tp=1", "mapping.both.tp=8", "mapping.both.tp=4 mapping.both.prefetch=partial"])
@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b", "gemma2_9b"])
def test_rows_of_a_batch_add_up_and_each_term_has_its_own(words: str, model: str) -> None:
    design, job = batch_question(*words.split(), f"model={model}", "workload.batch=[37]", FP8, "workload.prompt=16")
    full = engine(design, TERMS | {"iteration.eager_launch": 1e-4})
    layout = layout_of(full)
    for phase in layout.phases(full, job, "analytical", detailed=True):
        rows = layout.breakdown_rows(phase, "analytical")
        assert sum(row.seconds for row in rows) == pytest.approx(float(np.sum(phase.seconds)), rel=1e-9)
        assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in rows)
        own = {row.operator for row in rows if row.segment == "iteration"}
        assert own == ({"launch", "host"} if phase.name == "prefill" else {"padding", "host"})
        assert LOGITS in {row.operator for row in rows}
        moved = phase.activity.memory_bytes * phase.workers  # type: ignore[union-attr]
        near = sum(row.nbytes for row in rows)
        assert near >= moved * (1 - 1e-9)  # rows have what goes through the cache as well


def test_what_is_detailed_takes_as_long_as_what_is_not() -> None:
    design, job = batch_question("mapping.both.tp=4", "workload.batch=[37]")
    full = engine(design, TERMS)
    each = [layout_of(full).phases(full, job, "analytical", detailed=detailed) for detailed in (False, True)]
    for phase, other in zip(*each, strict=True):
        assert float(np.sum(phase.seconds)) == pytest.approx(float(np.sum(other.seconds)), rel=1e-12)
        assert phase.useful_flop == other.useful_flop


@pytest.mark.parametrize("fidelity", ["analytical", "steady_state"])
def test_rows_of_a_load_add_up_and_each_term_has_its_own(fidelity: str) -> None:
    question = asked(*SERVED, "mapping.both.tp=4", "workload.rate=4 Hz", "workload.requests=80", f"fidelity={fidelity}")
    full = engine(question.base, TERMS)
    broken = explain(full, question.workload.cases[0], fidelity=fidelity)
    assert sum(row.seconds for row in broken.rows) == pytest.approx(broken.seconds)
    assert {"padding", "host", LOGITS} <= {row.operator for row in broken.rows}
    assert "host" in broken.by_bound()


@pytest.mark.parametrize("tp", [1, 4])
def test_a_request_alone_takes_what_a_batch_of_one_takes(tp: int) -> None:
    words = (
        "chip=h100",
        "stack=trtllm_v1",
        "model=qwen3_4b",
        f"mapping.both.tp={tp}",
        "workload.prompt=321",
        "workload.output=23",
    )
    far = ("workload=serving", "workload.arrivals=constant", "workload.rate=0.01 Hz", "workload.requests=2")
    policy = (
        "mapping.serving.policy=prefill_first",
        "mapping.serving.max_batch_size=1",
        "mapping.serving.max_batched_tokens=512",
    )
    alone, batch = metrics(*words, *far, *policy), metrics(*words, "workload.batch=[1]")
    assert alone["ttft"] == pytest.approx(batch["ttft"], rel=1e-6)
    assert alone["tpot"] == pytest.approx(batch["tpot"], rel=2e-3)


@pytest.mark.parametrize("requests", [1, 2, 5, 16, 37, 64, 100])
def test_a_served_decode_iteration_takes_what_a_step_of_a_batch_takes(requests: int) -> None:
    words = ("mapping.both.tp=2", "mapping.both.prefetch=none", FP8)
    base, load, _ = served_load(*words)
    design, job = batch_question(*words, f"workload.batch=[{requests}]", "workload.prompt=200", "workload.output=2")
    context = float(np.max(job.decode.positions)) / requests
    counts = map(np.array, (0.0, 0.0, float(requests), context, 0.0))
    served = float(np.squeeze(iteration_pricing(engine(base, TERMS), load)(*counts)))
    batch = phase_seconds(engine(design, TERMS), job)[1] / float(np.sum(job.steps))
    assert served == pytest.approx(batch, rel=1e-9)


@pytest.mark.parametrize("prefetch", ["none", "whole", "partial"])
@pytest.mark.parametrize("count", [1, 5, MANY + 3])
def test_a_table_of_calls_has_the_terms_or_declines(count: int, prefetch: str) -> None:
    """Engines' power and imperfect overlap are declined; padding, logits, sums and messages are as call by call."""
    design, job = batch_question("mapping.both.tp=4", f"mapping.both.prefetch={prefetch}", "workload.batch=[37]", FP8)
    within = {name: value for name, value in TERMS.items() if name not in ("matrix_energy", "roofline_exponent")}
    for terms, has_table in ((within, True), (TERMS, False)):
        each = [replace_leaves(engine(design, terms), {"chip.hbm.bandwidth": 2e12 + 1e10 * number}) for number in range(count)]
        ((_, many),) = stack_designs(each).groups
        machine, of_stack = shared_cache_machine(many.chip, many.mapping), step_terms(many.mapping.stack)
        inputs = job, "decode", many.mapping.decode, many.mapping.precision, many.chip.core.rates
        blocks = devices._laid(*inputs, of_stack)
        seconds = devices.step_seconds(*inputs, many.chip, machine, ANALYTICAL, of_stack)
        plan = many.mapping.decode
        timed = devices.timed_step(blocks, many.chip, plan, machine, ANALYTICAL)
        np.testing.assert_array_equal(seconds, devices.blocks_seconds(timed))
        table = call_table.table_seconds((blocks,), machine, ANALYTICAL, devices._prefetch(many.chip, plan))
        if count in (1, MANY + 3):
            assert (table is not None) == has_table


SPREAD: dict[str, tuple[float, float]] = {
    "matrix_energy": (0.0, 1e-12),
    "roofline_exponent": (1.0, 9.0),
    "network_half_size": (0.0, 2e7),
    "iteration.host_time": (0.0, 1e-2),
    "iteration.request_host_time": (0.0, 1e-4),
    "iteration.eager_launch": (0.0, 1e-4),
    "iteration.logit_bytes": (0.0, 50.0),
}
"""Least and most of each numeric term."""


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("words", [(*BATCH, "workload.batch=[37]"), (*SERVED, "fidelity=steady_state", "workload.rate=3 Hz")])
def test_designs_that_differ_in_terms_take_what_each_takes_alone(words: tuple[str, ...], count: int) -> None:
    question, rng = asked(*words), np.random.default_rng(11)
    fidelity = "steady_state" if "fidelity=steady_state" in words else "analytical"
    each = [
        replace_leaves(
            engine(question.base, TERMS | {name: rng.uniform(low, high) for name, (low, high) in SPREAD.items()}),
            {f"mapping.{phase}.tp": tp for phase in ("prefill", "decode")},
        )
        for tp in rng.choice([1, 2, 4, 8], count)
    ]
    together = evaluate(stack_designs(each), question.workload, fidelity=fidelity).columns
    for place, design in list(enumerate(each))[:: max(1, count // 4)]:
        alone = evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns
        for name in ("ttft", "tpot", "throughput", "energy", "mfu"):
            assert together[name][place] == pytest.approx(alone[name][0], rel=1e-9), name


@pytest.mark.parametrize("fidelity", ["analytical", "steady_state"])
def test_loop_and_steady_state_see_every_term(fidelity: str) -> None:
    question = asked(*SERVED, "mapping.both.tp=4", FP8, "workload.rate=4 Hz", "workload.requests=200")
    plain = evaluate(stack_designs([engine(question.base, {})]), question.workload, fidelity=fidelity).columns
    for name, value in TERMS.items():
        seen = evaluate(stack_designs([engine(question.base, {name: value})]), question.workload, fidelity=fidelity).columns
        assert seen["tpot"][0] > plain["tpot"][0], name


def test_terms_can_be_knobs() -> None:
    words = (*BATCH, "workload.batch=[5]", "stack=trtllm_v1", "mapping.both.tp=4")
    space = {"iteration.host_time": "tag(ms,choice(1,2,3))", "matrix_energy": "tag(pJ,choice(0.1,0.2,0.3))"}
    space |= {"iteration.graph_batch_sizes": 'choice("1 2 4 8","4 16")', "network_half_size": "tag(MB,choice(2,5,17))"}
    space |= {"reduction_format": "choice(fp16,fp8)", "iteration.logit_bytes": "tag(B,choice(6,14))"}
    question = asked(*words, *(f"+space.mapping.stack.{leaf}={values}" for leaf, values in space.items()))
    rng = np.random.default_rng(5)
    assert question.space is not None
    columns = question.space.sample(rng.random((24, len(question.space.knobs))))
    designs = [question.space.design_at(question.space.row(columns, row)) for row in range(24)]
    together = evaluate(stack_designs(designs), question.workload).columns["tpot"]
    alone = [evaluate(stack_designs([design]), question.workload).columns["tpot"][0] for design in designs]
    assert together.tolist() == pytest.approx(alone, rel=1e-9)
    assert len({*alone}) > 20


# --- tables and bounds ---


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("coarse", [False, True])
def test_a_table_has_what_padding_adds_at_any_number_of_requests(tp: int, coarse: bool) -> None:
    """With products bound by engines from few requests on, so that the staircase is all there is."""
    base, load, layout = served_load(f"mapping.both.tp={tp}")
    sizes = "1 2 4 8 16 32 64 128 256 384 512"
    full = replace_leaves(
        engine(base, TERMS | {"iteration.graph_batch_sizes": sizes}), {"chip.hbm.bandwidth": 5e13, "chip.l2.bandwidth": 1e15}
    )
    (instance,) = layout.instances(full, load, "analytical")  # type: ignore[attr-defined]
    spread = coarse_table_points(instance.axes, load, graph_sizes=instance.graph_sizes) if coarse else instance.axes
    axes = spread(512, 600, 600, 600)
    table = tabulate_time(instance.pricing, axes)
    rng = np.random.default_rng(2)
    context = float(axes[3][0]) if coarse else 333.0
    for requests in (*rng.integers(1, 600, 60), 65, 129, 257, 385, 513, 520):
        direct = float(np.squeeze(instance.pricing(*map(np.array, (0.0, 0.0, float(requests), context, 0.0)))))
        assert table_at_composition(table, 0.0, 0.0, float(requests), context, 0.0) == pytest.approx(direct, rel=0.02)


def test_axes_have_both_sides_of_every_step_of_padding() -> None:
    axes = geometric_axes(64, 64, 100, 64, graph_sizes=recorded_batch_sizes(SIZES + " 96"))
    assert {*map(float, SIZES.split()), 65.0, 33.0, 17.0, 9.0, 5.0, 96.0, 97.0} <= set(axes[2].tolist())
    assert [axis.tolist() for axis in geometric_axes(64, 64, 100, 64)] == [
        axis.tolist() for axis in geometric_axes(64, 64, 100, 64, graph_sizes=())
    ]
    assert len(axis_points(axes)) == 5


@pytest.mark.parametrize("seed", range(12))
def test_bounds_of_a_load_stay_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, load, layout = served_load(f"mapping.both.tp={rng.choice([1, 2, 8])}", *((FP8,) if seed % 2 else ()))
    terms = {name: rng.uniform(low, high) for name, (low, high) in SPREAD.items()}
    full = engine(base, {name: value for name, value in (TERMS | terms).items() if rng.random() < 0.7})
    bounds, pricing = layout.work_lower_bounds(full, load), iteration_pricing(full, load)
    decode = float(np.squeeze(pricing(*map(np.array, (0.0, 0.0, 1.0, 1.0, 0.0)))))
    assert float(bounds.decode) <= decode
    for tokens in (1.0, 64.0, 1024.0, 8192.0):
        prompts = float(np.squeeze(pricing(*map(np.array, (tokens, (tokens + 1) / 2, 0.0, 0.0, 0.0)))))
        assert float(bounds.prompt) * tokens <= prompts
