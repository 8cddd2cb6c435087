"""What an inference engine adds around experts, on devices and on many dies: passes over rows, the busiest die, and gathers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.cost_models import die_exchange_jobs as crossings
from dse.evaluators.cost_models.die_exchange_jobs import DieExchangeJob, analytical_exchange
from dse.evaluators.cost_models.simulated_die_exchange import EVENTS
from dse.evaluators.graph.expert_loads import busiest_core_load, experts_touched, mean_core_load
from dse.evaluators.layouts.tensor_parallel import EXPERT_ROWS
from dse.evaluators.machine.die_network import DieNetworkLevel
from dse.evaluators.workloads.serving import serving_layout
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.model import ExpertLayers
from dse.space.stack import ExpertOverheads, IterationOverheads
from dse.space.workload import ServingLoad
from tests.samples import asked, load_of, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

MOE = ("model=deepseek_v2_lite", "workload.batch=[64]", "workload.prompt=128", "workload.output=8")
DEVICE = ("chip=h100", "stack=tuned", "mapping.both.tp=2", *MOE)
DIES = ("chip=h100_ep", "chip.dies.rows=1", "mapping.both.ep=8", *MOE)
SERVED = (
    *("chip=h100_ep", "chip.dies.rows=1", "mapping.both.ep=8", "model=deepseek_v2_lite", "workload=serving"),
    *("workload.requests=60", "workload.prompt=300", "workload.output=60", "workload.rate=20 Hz"),
)
PASSES = {"row_passes": 12.7, "intermediate_passes": 3.0}
SIZES = "1 2 4 8 16 32 64"
HOST = {
    "host_time": 1e-3,
    "request_host_time": 4e-6,
    "eager_launch": 3.77e-5,
    "dense_layer_kernels": 12,
    "moe_layer_kernels": 25,
    "graph_batch_sizes": SIZES,
    "logit_bytes": 14.0,
}


def engine(design: Design, moe: Mapping[str, Any] = {}, iteration: Mapping[str, Any] = {}, **flat: Any) -> Design:
    """A design whose stack has some terms."""
    parts = {
        "moe": ExpertOverheads(**moe) if moe else None,
        "iteration": IterationOverheads(**iteration) if iteration else None,
    }
    return replace_leaves(design, {f"mapping.stack.{name}": value for name, value in (parts | flat).items()})


def rows_of(design: Design, question: Any, phase: str = "decode") -> dict[str, Any]:
    """Breakdown rows of a phase by operator, of layers with experts."""
    rows = explain(design, question.workload.cases[0]).rows
    return {
        row.operator: row for row in rows if row.phase == phase and (row.segment.startswith("moe") or row.operator != "norm")
    }


def column(design: Design, question: Any, name: str) -> float:
    """A metric of one design."""
    return float(evaluate(stack_designs([design]), question.workload).require_compatible().columns[name][0])


@pytest.mark.parametrize("words", [DEVICE, DIES])
def test_passes_over_rows_are_traffic_of_main_memory(words: tuple[str, ...]) -> None:
    """Rows of a die's experts times passes times 16 bits, at the memory's rate, in a call of its own with its launch."""
    question = asked(*words, "workload.expert_load=even")
    base = question.base
    with_passes = rows_of(engine(base, PASSES), question)
    model, stack, chip = question.workload.cases[0].model, base.mapping.stack, base.chip
    devices = 2 if words is DEVICE else 1
    rows = 64 * model.experts.top_k / (1 if words is DEVICE else 8)
    nbytes = rows * model.hidden * 2.0 * 12.7
    steps = 7 * 26  # layers with experts
    seconds = nbytes / (chip.hbm.bandwidth * stack.hbm_efficiency) + stack.operator_launch
    assert with_passes[EXPERT_ROWS].seconds == pytest.approx(steps * seconds, rel=1e-9)
    assert with_passes[EXPERT_ROWS].nbytes == pytest.approx(steps * nbytes * (devices if words is DEVICE else 8), rel=1e-9)
    between = rows * model.experts.intermediate / devices * 2.0 * 3.0
    seconds = between / (chip.hbm.bandwidth * stack.hbm_efficiency) + stack.operator_launch
    assert with_passes["experts_activation"].seconds == pytest.approx(steps * seconds, rel=1e-9)


@pytest.mark.parametrize("words", [DEVICE, DIES])
@pytest.mark.parametrize("terms", [{"row_passes": 12.7}, {"intermediate_passes": 30.0}, {"imbalance": 0.95}])
def test_each_term_lengthens_its_own_rows_alone(words: tuple[str, ...], terms: dict[str, float]) -> None:
    question = asked(*words)
    plain, changed = rows_of(question.base, question), rows_of(engine(question.base, terms), question)
    longer = {name for name, row in changed.items() if name not in plain or row.seconds > plain[name].seconds * (1 + 1e-9)}
    if "imbalance" in terms:
        assert all(name.startswith("experts_") for name in longer)
        assert bool(longer) == (words is DIES)
    else:
        assert longer == {EXPERT_ROWS if "row_passes" in terms else "experts_activation"}


@pytest.mark.parametrize(("weights", "slower"), [("mxfp4", True), ("bf16", False)])
def test_expert_products_that_expand_weights_take_their_pace_longer(weights: str, slower: bool) -> None:
    """By prompts, which engines bound; products of attention keep their time, in whatever format experts are."""
    question = asked(*DEVICE, "workload.prompt=4096", f"precision={{weights: bf16, experts: {weights}, activations: bf16}}")
    plain, paced = (
        rows_of(each, question, "prefill") for each in (question.base, engine(question.base, {"expanded_pace": 3.0}))
    )
    for name, row in paced.items():
        ratio = 3.0 if slower and name in ("experts_gate", "experts_up", "experts_down") else 1.0
        assert row.parts.get("matrix", 0.0) == pytest.approx(plain[name].parts.get("matrix", 0.0) * ratio), name


@pytest.mark.parametrize("words", [DEVICE, DIES])
def test_parts_add_up_with_all_terms(words: tuple[str, ...]) -> None:
    question = asked(*words, *(("mapping.both.all_to_all=gather",) if words is DIES else ()))
    design = engine(
        question.base,
        PASSES | {"imbalance": 0.95},
        HOST | {"eager_launch": 1e-3, "host_overlap": 0.5, "moe_replay_launch": 5e-5},
        network_half_size=17e6,
        reduction_format="bf16",
    )
    explanation = explain(design, question.workload.cases[0])
    assert sum(row.seconds for row in explanation.rows) == pytest.approx(column(design, question, "latency"), rel=1e-9)
    assert all(sum(row.parts.values()) == pytest.approx(row.seconds) for row in explanation.rows)
    assert {"host", "launch", "logits", EXPERT_ROWS} <= {row.operator for row in explanation.rows}


def test_a_stack_whose_library_has_expert_kernels_has_no_passes_beside_them() -> None:
    question = asked(*DIES, "stack=measured_ep")
    assert column(engine(question.base, PASSES), question, "latency") == column(question.base, question, "latency")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((*DIES, "stack=measured_ep", "+mapping.stack.moe.row_passes=3"), "grouped_gemm"),
        ((*DEVICE, "+mapping.stack.moe.imbalance=1"), "experts are not on other dies"),
        ((*DEVICE[:3], "model=qwen3_1b7", "+mapping.stack.moe.row_passes=3"), "no model here has experts"),
    ],
)
def test_terms_that_nothing_reads_are_refused_where_they_are_typed(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(DesignError, match=reason):
        asked(*words)


def test_passes_of_many_designs_are_those_one_by_one() -> None:
    question = asked(*DEVICE)
    designs = [engine(question.base, {"row_passes": float(passes), "intermediate_passes": 3.0}) for passes in (1, 5, 12)]
    together = evaluate(stack_designs(designs), question.workload).columns["latency"]
    alone = [column(design, question, "latency") for design in designs]
    assert together == pytest.approx(alone, rel=1e-12)


def test_the_busiest_die_has_an_excess_of_rows_where_the_workload_has_no_load() -> None:
    experts, skewed = (ExpertLayers(count=64, top_k=6, intermediate=1408, skew=skew) for skew in (0.0, 0.5))
    for tokens, dies in ((64.0, 8.0), (4096.0, 16.0)):
        rows, read = busiest_core_load(experts, tokens, dies, excess=0.95)
        assert rows == pytest.approx(tokens * 6 / dies * (1 + 0.95 * (1 - 1 / dies)))
        assert read == pytest.approx(experts_touched(experts, tokens) / dies)
        assert busiest_core_load(experts, tokens, dies, excess=0.0)[0] == pytest.approx(tokens * 6 / dies)
        assert busiest_core_load(skewed, tokens, dies, excess=0.95) == busiest_core_load(skewed, tokens, dies)
    assert busiest_core_load(experts, 64.0, 1.0, excess=0.95)[0] == 64 * 6  # all of them
    assert busiest_core_load(experts, 1.0, 64.0, excess=20.0)[0] <= 1.0  # no more than a row a token and expert
    cores = np.array([1.0, 8.0])
    many, _ = busiest_core_load(experts, 64.0, cores, excess=0.5)
    assert many.tolist() == [busiest_core_load(experts, 64.0, float(core), excess=0.5)[0] for core in cores]


@pytest.mark.parametrize("load", ["expected", "even", "sampled"])
@pytest.mark.parametrize("skew", [0.0, 0.7])
@pytest.mark.parametrize("copies", [(0, 0), (8, 0), (6, 1)])
def test_the_mean_core_has_its_share_of_all_rows_and_experts(load: str, skew: float, copies: tuple[int, int]) -> None:
    experts = ExpertLayers(count=64, top_k=6, intermediate=1408, skew=skew, load=load, shared=2)
    rows, read = mean_core_load(experts, 512.0, 8, *copies)
    most, _ = busiest_core_load(experts, 512.0, 8.0, *copies)
    assert rows == 512 * (6 + 2 * (copies[1] > 0)) / 8
    assert rows <= most * (1 + 1e-12)
    assert read <= (64 + copies[0] + 2 * copies[1]) / 8
    assert mean_core_load(experts, 512.0, 1, *copies)[0] == 8 * rows


def test_what_all_dies_do_is_the_sum_over_them_however_busy_one_is() -> None:
    question = asked(*DIES)
    even, uneven = (engine(question.base, {"imbalance": excess}) for excess in (0.0, 0.95))
    assert column(uneven, question, "latency") > column(even, question, "latency")
    assert column(uneven, question, "hbm_bytes") == pytest.approx(column(even, question, "hbm_bytes"), rel=1e-12)


@pytest.mark.parametrize("words", [SERVED, (*SERVED, "mapping.both.ep=4", "mapping.both.attention_dies=4")])
@pytest.mark.parametrize("made_of", [(0.0, 0.0, 256.0, 500.0, 0.0), (2048.0, 128.5, 0.0, 0.0, 0.0)])
def test_a_busy_die_lengthens_an_iteration_and_adds_no_energy(words: tuple[str, ...], made_of: tuple[float, ...]) -> None:
    base, load = load_of(*words)
    (even, joules), (uneven, more_joules) = (
        serving_layout(design).iteration_energies(design, load, 0, made_of, "analytical")[0]  # type: ignore[attr-defined]
        for design in (engine(base, {"imbalance": excess}) for excess in (0.0, 0.95))
    )
    assert uneven > even
    assert more_joules == pytest.approx(joules, rel=1e-12)


def test_experts_on_eight_dies_move_the_bytes_and_do_the_work_of_one() -> None:
    formats = [f"mapping.precision.{name}=fp8" for name in ("weights", "activations", "kv")]
    dies = asked(*DIES, *formats)
    device = asked("chip=h100", "mapping=tensor_parallel", "stack=tuned_ep", "mapping.both.tp=1", *MOE, *formats)
    found, whole = (rows_of(question.base, question) for question in (dies, device))
    for name in ("experts_gate", "experts_up", "experts_activation", "experts_down"):
        assert found[name].nbytes == pytest.approx(whole[name].nbytes, rel=1e-9)
        assert found[name].executed_flop == pytest.approx(whole[name].executed_flop, rel=1e-9)


@pytest.mark.parametrize("load", ["even", "sampled"])
def test_a_load_of_the_workload_is_not_lengthened(load: str) -> None:
    question = asked(*DIES, f"workload.expert_load={load}")
    assert column(engine(question.base, {"imbalance": 0.95}), question, "tpot") == column(question.base, question, "tpot")


def test_a_gather_and_a_scatter_bring_whole_vectors_to_all_dies() -> None:
    """(n - 1) M h values each way in each layer of experts, round a ring of 2 (n - 1) steps, and no message of another kind."""
    words = (*DIES, "mapping.both.all_to_all=gather", "mapping.precision.activations=bf16", "mapping.precision.weights=bf16")
    question = asked(*words, "workload.speculation=none")
    rows, model = rows_of(question.base, question), question.workload.cases[0].model
    each = 64 / 8 * model.hidden * 2.0  # vectors of a die's tokens, of 16 bits
    for name in ("gather", "scatter"):
        assert rows[name].sent == pytest.approx(7 * 26 * 8 * 7 * each, rel=1e-9)
        d2d = question.base.chip.d2d
        seconds = 7 * (each / (d2d.bandwidth * d2d.ports) + 2 * d2d.latency) + d2d.barrier
        assert rows[name].seconds == pytest.approx(7 * 26 * seconds, rel=1e-9)
    assert not {"dispatch", "combine"} & set(rows)


def test_reduction_format_is_that_of_sums_and_gathers() -> None:
    words = (*DIES, "mapping.both.all_to_all=gather")
    question = asked(*words)
    sent = {
        name: {row: rows_of(engine(question.base, reduction_format=name), question)[row].sent for row in ("gather", "scatter")}
        for name in (None, "fp8", "bf16")
    }
    assert sent["bf16"]["gather"] == pytest.approx(2 * sent["fp8"]["gather"])
    assert sent["bf16"]["scatter"] == pytest.approx(2 * sent["fp8"]["scatter"])
    assert sent[None] == pytest.approx({"gather": sent["fp8"]["gather"], "scatter": sent["bf16"]["scatter"]})  # combine: bf16


def test_a_message_of_the_half_size_takes_twice_as_long_and_sends_the_same() -> None:
    network, at = DieNetworkLevel(1, 8, "switch", 1, 400e9, 0.0), np.arange(8)[None]
    for pattern in ("all_to_all", "allgather", "reduce_scatter", "allreduce"):
        job = DieExchangeJob(pattern, network, at, None, 17e6, 8)
        whole, half = analytical_exchange(job), analytical_exchange(job._replace(half=17e6))
        assert half.seconds == pytest.approx(2 * whole.seconds, rel=1e-12)
        assert (half.sent_bytes, half.hop_bytes) == pytest.approx((whole.sent_bytes, whole.hop_bytes), rel=1e-12)
        assert EVENTS.job_cost(job._replace(half=17e6)).seconds == pytest.approx(half.seconds, rel=0.05)
        assert sum(crossings.time_by_resource(job._replace(half=17e6)).values()) == pytest.approx(half.seconds)
        nothing = analytical_exchange(job._replace(nbytes=0.0, half=17e6))
        assert nothing.seconds == analytical_exchange(job._replace(nbytes=0.0)).seconds


def test_absent_terms_leave_every_metric_as_it_is() -> None:
    for words in (DIES, SERVED):
        question = asked(*words)
        absent = engine(question.base)
        before, after = (evaluate(stack_designs([design]), question.workload).columns for design in (question.base, absent))
        assert {name: values.tolist() for name, values in before.items()} == {
            name: values.tolist() for name, values in after.items()
        }
        assert all(value is None for address, value, _ in iterate_leaves(absent) if address.startswith("mapping.stack.moe"))


@pytest.mark.parametrize("term", ["host", "launch", "padding"])
def test_terms_of_iterations_have_rows_of_their_own_on_dies(term: str) -> None:
    own = {
        "host": {"host_time": 1e-3, "request_host_time": 4e-6},
        "launch": {"eager_launch": 1e-4, "dense_layer_kernels": 12, "moe_layer_kernels": 25},
        "padding": {"graph_batch_sizes": "1 2 4 8 16 48"},
    }[term]
    question = asked(*DIES, "workload.batch=[256]")
    rows = explain(engine(question.base, iteration=own), question.workload.cases[0]).rows
    plain = explain(question.base, question.workload.cases[0]).rows
    kept = [row for row in rows if row.operator != term]
    assert [(row.operator, row.seconds) for row in kept] == [(row.operator, row.seconds) for row in plain]
    found = [row for row in rows if row.operator == term]
    assert {row.phase for row in found} == {
        "host": {"prefill", "decode"},
        "launch": {"prefill"},
        "padding": {"decode"},
    }[term]
    assert all(row.seconds > 0 for row in found)
    if term == "host":  # of a copy of attention, which has 32 of the requests
        seconds = {row.phase: row.seconds for row in found}
        steps = {"prefill": 32, "decode": 7}  # prompts go one by one
        assert seconds == pytest.approx({"prefill": steps["prefill"] * 1e-3, "decode": steps["decode"] * (1e-3 + 32 * 4e-6)})


def served(question: Any, **terms: Any) -> tuple[Design, ServingLoad]:
    """A design with terms of an iteration, and its load."""
    return engine(question.base, PASSES, terms, network_half_size=17e6), question.workload.cases[0]


@pytest.mark.parametrize(
    "made_of", [(0.0, 0.0, 20.0, 500.0, 0.0), (600.0, 150.5, 0.0, 0.0, 0.0), (300.0, 150.5, 17.0, 400.0, 0.0)]
)
def test_rows_of_a_served_iteration_add_up_to_its_time(made_of: tuple[float, ...]) -> None:
    design, load = served(asked(*SERVED, "mapping.both.all_to_all=gather"), **HOST)
    layout = serving_layout(design)
    ((seconds, _),) = layout.iteration_energies(design, load, 0, made_of, "analytical")  # type: ignore[attr-defined]
    rows = layout.iteration_rows(design, load, 0, 1.0, made_of, "analytical")  # type: ignore[attr-defined]
    assert sum(row.seconds for row in rows) == pytest.approx(seconds, rel=1e-9)
    names = {row.operator for row in rows}
    assert "host" in names
    assert ("padding" in names) == (made_of[0] == 0.0)
    assert ("launch" in names) == (made_of[0] > 0.0)


def test_tables_of_iterations_are_those_one_by_one() -> None:
    design, load = served(asked(*SERVED, "mapping.both.all_to_all=gather"), **HOST)
    layout = serving_layout(design)
    (instance,) = layout.instances(design, load, "analytical")  # type: ignore[attr-defined]
    assert set(instance.graph_sizes) == {8 * size for size in (1, 2, 4, 8, 16, 32, 64)}
    each = [(0.0, 0.0, 9.0, 500.0, 0.0), (0.0, 0.0, 600.0, 500.0, 0.0), (600.0, 150.5, 0.0, 0.0, 0.0)]
    counts = [np.array(values) for values in zip(*each, strict=True)]
    together = instance.pricing(*counts)
    for seconds, made_of in zip(together, each, strict=True):
        ((alone, _),) = layout.iteration_energies(design, load, 0, made_of, "analytical")  # type: ignore[attr-defined]
        assert seconds == pytest.approx(alone, rel=1e-12)


def test_served_requests_far_apart_take_what_a_batch_of_one_takes_with_all_terms() -> None:
    one_die = ("chip.dies.rows=1", "chip.dies.cols=1", "chip.nodes.size=1", "mapping.both.ep=1")
    words = ("chip=h100_ep", *one_die, "model=deepseek_v2_lite", "workload.prompt=300", "workload.output=60")
    load = asked(*words, "workload=serving", "workload.requests=20", "workload.rate=0.01 Hz", "workload.arrivals=constant")
    batch = asked(*words, "workload.batch=[1]")
    found = [
        {name: column(engine(question.base, PASSES, HOST), question, name) for name in ("ttft", "tpot")}
        for question in (load, batch)
    ]
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_one_die_with_all_terms_is_a_device_by_itself() -> None:
    single_die = (
        "chip.dies.rows=1",
        "chip.dies.cols=1",
        "mapping.prefill.microbatches=1",
        "chip.nodes=null",
        "mapping.both.ep=1",
    )
    formats = [f"mapping.precision.{name}=fp8" for name in ("weights", "activations", "kv")]
    formats += [f"++mapping.precision.{name}=as_weights" for name in ("embedding", "head")]
    dies = asked("chip=h100_ep", *MOE, *single_die, *formats)
    device = asked("chip=h100", "mapping=tensor_parallel", "stack=tuned_ep", "mapping.both.tp=1", *MOE, *formats)
    flat = {"matrix_energy": 1.3e-13, "roofline_exponent": 3.0}
    found = [
        {
            name: column(engine(question.base, PASSES | {"imbalance": 0.95}, HOST, **flat), question, name)
            for name in ("ttft", "tpot", "latency", "throughput")
        }
        for question in (dies, device)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_gathers_need_dies_that_share_experts() -> None:
    words = (
        "chip=h100_ep",
        "chip.dies.rows=1",
        "mapping.both.ep=1",
        "mapping.both.dp=8",
        *MOE,
        "mapping.both.all_to_all=gather",
    )
    assert not evaluate(stack_designs([asked(*words).base]), asked(*words).workload).feasible[0]
    assert metrics(*DIES, "mapping.both.all_to_all=gather")["latency"] > 0
