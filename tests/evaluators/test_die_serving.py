"""Serving on dies: agreement with single batches, loads that do not fit, traces, and arrays of designs."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.chrome_trace import trace_events
from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import Design, Designs, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import growing_values_per_token, sequence_memory
from tests.marks import slow_if
from tests.samples import asked, load_of, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

SERVING = ("workload=serving", "workload.requests=40", "mapping.both.tp=8")


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["llama3_8b", "mixtral_8x7b", "deepseek_v2_lite"])
@pytest.mark.parametrize("policy", ["prefill_first", "static", "orca"])
def test_requests_far_apart_take_what_a_batch_of_one_takes(model: str, policy: str) -> None:
    """Whole prompts, one request at a time: the two readings differ by the table's error alone."""
    far = metrics(
        *SERVING, f"model={model}", "workload.rate=0.01 Hz", "workload.arrivals=constant", f"mapping.serving.policy={policy}"
    )
    single_metrics = metrics(
        "mapping.both.tp=8", "workload.batch=[1]", "workload.prompt=1024", "workload.output=256", f"model={model}"
    )
    assert far["ttft"] == pytest.approx(single_metrics["ttft"], rel=0.02)
    assert far["tpot"] == pytest.approx(single_metrics["tpot"], rel=0.02)
    assert far["load_status"] == 0
    assert far["iteration_time_error"] < 0.02
    assert far["peak_power"] == pytest.approx(single_metrics["peak_power"], rel=0.02)


def test_more_requests_than_can_be_served_are_overload_and_more_instances_help() -> None:
    much = ("workload.requests=4000", "workload.rate=300 Hz")
    assert metrics(*SERVING, *much)["load_status"] == 2
    assert metrics(*SERVING, *much, "mapping.serving.instances=8")["load_status"] == 0


def test_prefill_instances_of_their_own_leave_decodes_alone() -> None:
    busy = (*SERVING, "workload.requests=400", "workload.rate=20 Hz", "workload.prompt=7900")
    both, apart = metrics(*busy, "mapping.serving.instances=2"), metrics(*busy, "mapping.serving.prefill_instances=1")
    assert both["system_mm2"] == apart["system_mm2"]
    assert apart["tbt_p99"] < both["tbt_p99"]


APART = (
    *SERVING,
    "workload.requests=300",
    "workload.rate=100 Hz",
    "workload.prompt=700",
    "mapping.serving.prefill_instances=1",
)


@slow_if(lambda chip: len(chip) > 0)
@pytest.mark.parametrize("chip", [(), ("chip=tile_gh200", "workload.rate=60 Hz", "model=llama3_8b")])
def test_prefill_instances_have_a_policy_a_budget_and_a_batch_of_their_own(chip: tuple[str, ...]) -> None:
    usual = metrics(*APART, *chip)
    same = ("prefill_policy=prefill_first", "prefill_max_batched_tokens=4096", "prefill_max_batch_size=128")
    assert metrics(*APART, *chip, *(f"mapping.serving.{word}" for word in same)) == usual
    for word in ("prefill_policy=chunked_prefill", "prefill_max_batch_size=1", "prefill_max_batched_tokens=100000"):
        assert metrics(*APART, *chip, f"mapping.serving.{word}")["ttft"] != usual["ttft"]
    # a budget of their own is none of those that decode
    busy = [
        metrics(
            *APART, *chip, "mapping.serving.prefill_policy=chunked_prefill", f"mapping.serving.prefill_max_batched_tokens={n}"
        )
        for n in (64, 4096)
    ]
    assert busy[0]["prefill_busy_share"] > busy[1]["prefill_busy_share"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("mapping.serving.prefill_max_batched_tokens=512",),
            "every instance does both phases; set mapping.serving.prefill_instances=1",
        ),
        (("+space.mapping.serving.prefill_max_batch_size='choice(8, 16)'",), "every instance does both phases"),
        (
            (
                "+space.mapping.serving.prefill_instances='choice(0, 1, 2)'",
                "+space.mapping.serving.prefill_policy='choice(chunked_prefill, prefill_first)'",
            ),
            r"add when: {mapping.serving.prefill_instances: \[1, 2\]}",
        ),
    ],
)
def test_what_is_said_of_prefill_instances_is_read(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        asked(*SERVING, *words)


HOST, SWAP = (
    "+space.mapping.serving.host_bandwidth='tag(GB/s, choice(16, 64))'",
    "+space.mapping.serving.preemption='choice(recompute, swap)'",
)


def test_the_way_to_the_host_is_a_knob_where_caches_go_there() -> None:
    with pytest.raises(DesignError, match=r"no KV cache is swapped; set mapping.serving.preemption=swap"):
        asked(*SERVING, HOST)
    with pytest.raises(DesignError, match=r"add when: {mapping.serving.preemption: \[swap\]}"):
        asked(*SERVING, HOST, SWAP)
    knob = (
        "+space.mapping.serving.host_bandwidth={sweep: 'tag(GB/s, choice(16, 64))', when: {mapping.serving.preemption: [swap]}}"
    )
    assert (
        len(asked(*SERVING, knob, SWAP).space.knobs)
        == len(asked(*SERVING, HOST, "mapping.serving.preemption=swap").space.knobs) + 1
    )


WAFERS = (
    "chip=wse2",
    "model=qwen3_1b7",
    "workload=serving",
    "workload.requests=20",
    "workload.prompt=200",
    "workload.output=8",
)


def test_the_way_to_the_host_is_a_knob_where_caches_are_sent_by_it() -> None:
    """Chips without links to others send caches between instances by way of the host, whatever is swapped."""
    prefill_knob = "+space.mapping.serving.prefill_instances='choice(0,1)'"
    assert len(asked(*WAFERS, "space=empty", "mapping.serving.prefill_instances=1", HOST).space.knobs) == 1
    with pytest.raises(DesignError, match=r"no KV cache is swapped or transferred"):
        asked(*WAFERS, "space=empty", HOST)
    with pytest.raises(DesignError, match=r"add when: {mapping.serving.prefill_instances: \[1\]}"):
        asked(*WAFERS, "space=empty", prefill_knob, HOST)
    when = "when: {mapping.serving.prefill_instances: [1]}"
    knob = f"+space.mapping.serving.host_bandwidth={{sweep: 'tag(GB/s, choice(16, 64))', {when}}}"
    assert len(asked(*WAFERS, "space=empty", prefill_knob, knob).space.knobs) == 2
    first, second = (
        metrics(*WAFERS, "mapping.serving.prefill_instances=1", f"mapping.serving.host_bandwidth={pace} GB/s")["tpot"]
        for pace in (1, 64)
    )
    assert first > second


@pytest.mark.parametrize("apart", [0, 1])
def test_the_time_of_instances_goes_into_operators_or_is_idle(apart: int) -> None:
    chosen = (*SERVING, f"mapping.serving.prefill_instances={apart}")
    question, values = asked(*chosen), metrics(*chosen)
    parts = explain(question.base, question.workload.cases[0])
    shares = [values["prefill_busy_share"], values["decode_busy_share"]][1 - apart :]
    idle = parts.by_bound()["idle"] / parts.seconds
    assert idle == pytest.approx(1 - sum(shares) / len(shares))
    assert {row.operator for row in parts.rows} > {"q_proj", "attention", "allreduce", "head"}
    assert 0 < values["mfu"] < 1
    assert 0 < values["hbm_utilisation"] < 1


def test_a_model_that_leaves_no_room_for_a_request_is_infeasible_with_the_bytes() -> None:
    question = asked(*SERVING, "chip.hbm.capacity=1 GB")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"
    assert dict(verdict.parts)["KV cache"] > 0
    outcomes = evaluate(stack_designs([question.base]), question.workload)
    assert not outcomes.feasible[0]


def test_many_designs_are_judged_as_each_by_itself() -> None:
    question = asked(*SERVING)
    bandwidths = np.array([4e11, 1.2e12, 3e12])
    many = Designs(3, ((np.arange(3), replace_leaves(question.base, {"chip.hbm.bandwidth": bandwidths})),))
    together = evaluate(many, question.workload)
    for row, bandwidth in enumerate(bandwidths):
        single: Design = replace_leaves(question.base, {"chip.hbm.bandwidth": float(bandwidth)})
        alone = evaluate(stack_designs([single]), question.workload)
        for name in ("ttft", "tbt_p99", "throughput", "goodput"):
            assert together.columns[name][row] == alone.columns[name][0]
    assert (np.diff(together.columns["tpot"]) < 0).all()


def test_a_trace_gives_lengths_and_times(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output\n0,100,5\n1.5,200,6\n4,50,7\n")
    config = compose(
        [*SERVING, f"workload.trace={path}", "workload.arrivals=trace", "workload.max_length=150", "workload.rate_scale=2"]
    )
    load = build_question(config, tmp_path).workload.cases[0]
    assert load.requests.prompt.tolist() == [100, 144, 50]  # type: ignore[union-attr]
    assert load.requests.arrival.tolist() == [0, 0.75, 2]  # type: ignore[union-attr]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workload.arrivals=trace", "workload.arrivals: a trace with times is needed"),
        ("workload.arrivals=poison", "workload.arrivals: no option 'poison'; did you mean 'poisson'"),
        ("workload.rate=0 Hz", "workload.rate: must be above 0"),
        ("workload.trace=none.csv", "workload.trace: no file 'none.csv'"),
        ("+workload.rates=3", "no field 'workload.rates'; did you mean 'rate'"),
        ("mapping.serving.policy=chunk", "mapping.serving.policy: no option 'chunk'; did you mean 'chunked_prefill'"),
        ("workload.rate=[5 Hz,max]", "max cannot be in a list"),
        ("workload.rate=[5 Hz,3]", "workload.rate: 3 has no unit"),
        ("mapping=tensor_parallel", "for served requests on a shared-cache die choose mapping=serving"),
        ("chip=hbm3", "nothing runs served requests on this chip"),
    ],
)
def test_what_cannot_be_asked_is_refused(override: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        metrics("workload=serving", "workload.requests=40", override)


def test_rates_as_a_list_are_a_load_each(tmp_path: Path) -> None:
    """Cases of one workload, each what it is by itself; a trace's times are scaled likewise."""
    question = asked(*SERVING, "workload.rate=[5 Hz,40 Hz]")
    slow, fast = question.base, replace_leaves(question.base, {"mapping.prefill.tp": 2, "mapping.decode.tp": 2})
    many = evaluate(stack_designs([slow, fast]), question.workload, cases=True).cases
    for row, rate in enumerate((5, 40)):
        alone = asked(*SERVING, f"workload.rate={rate} Hz").workload
        assert question.workload.cases[row].content == alone.cases[0].content
        assert f" {rate} Hz" in question.workload.cases[row].label
        assert many["ttft"][row].tolist() == evaluate(stack_designs([slow, fast]), alone).columns["ttft"].tolist()
    (tmp_path / "trace.csv").write_text("arrival,prompt,output\n0,100,3\n1,100,3\n3,100,3\n")
    trace = (f"workload.trace={tmp_path / 'trace.csv'}", "workload.arrivals=trace", "workload.rate_scale=[1,2]")
    usual, twice = (case.requests.arrival.tolist() for case in asked(*SERVING, *trace).workload.cases)  # type: ignore[union-attr]
    assert (usual, twice) == ([0, 1, 3], [0, 0.5, 1.5])


def test_a_load_is_known_by_its_requests() -> None:
    first_case, same, other = (
        asked(*SERVING, f"seed={seed}", f"run_dir=runs/{run}").workload.cases[0] for seed, run in ((0, 1), (0, 2), (1, 1))
    )
    assert first_case.content == same.content
    assert first_case.content != other.content


def test_the_timeline_of_a_load_has_a_track_for_each_instance() -> None:
    question = asked(*SERVING, "mapping.serving.instances=2", "workload.rate=50 Hz")
    parts = explain(question.base, question.workload.cases[0])
    drawn = json.loads(json.dumps(trace_events(parts)))
    assert {entry["args"]["name"] for entry in drawn if entry["name"] == "thread_name"} == {"instance 0", "instance 1"}
    bars = [entry for entry in drawn if entry["ph"] == "X"]
    assert any("prompt tokens" in entry["name"] for entry in bars)
    for track in (0, 1):
        mine = [entry for entry in bars if entry["tid"] == track]
        assert all(a["ts"] + a["dur"] <= b["ts"] * (1 + 1e-9) for a, b in pairwise(mine))


def test_prefill_instances_may_have_a_parallelism_of_their_own() -> None:
    apart = (*SERVING, "mapping.prefill.tp=16", "mapping.decode.tp=8")
    question = asked(*apart)
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "mapping.decode.tp"
    question = asked(*apart, "mapping.serving.prefill_instances=1")
    assert explain_infeasibility(question.base, question.workload) is None
    wide, narrow = (
        metrics(*SERVING, "mapping.serving.prefill_instances=1", f"mapping.prefill.tp={tp}", "mapping.decode.tp=8")
        for tp in (8, 2)
    )
    assert wide["ttft"] < narrow["ttft"]
    assert wide["tbt_p50"] == pytest.approx(narrow["tbt_p50"])


parallel, copies = st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 4)


@given(parallel, parallel, copies, copies, st.floats(1.0, 50.0))
@settings(deadline=None, max_examples=10)
def test_caches_cross_nodes_where_one_does_not_have_all_dies(
    prefill: int, decode: int, prefilling: int, decoding: int, times: float
) -> None:
    """A slower network of nodes makes caches later, by all that it is slower where it binds; within a node it is not asked."""
    base, load = load_of(*SERVING, "chip=a100", "mapping=serving", "model=llama3_8b")
    tps = {"mapping.prefill.tp": float(prefill), "mapping.decode.tp": float(decode)}
    counts = {"mapping.serving.prefill_instances": float(prefilling), "mapping.serving.instances": float(decoding)}
    base = replace_leaves(base, tps | counts)

    def sent(**nodes: float) -> tuple[float, float]:
        design = replace_leaves(base, {f"chip.network.nodes.{leaf}": value for leaf, value in nodes.items()})
        room, latency, *_ = devices.TensorParallelServing().kv_path(design, load)
        return float(room.request_bytes(5000)), float(latency)

    alone = replace_leaves(base, {"chip.network": replace(base.chip.network, nodes=None)})  # type: ignore[union-attr]
    room, latency, *_ = devices.TensorParallelServing().kv_path(alone, load)
    within, nodes = (float(room.request_bytes(5000)), float(latency)), base.chip.network.nodes  # type: ignore[union-attr]
    assert sent(size=128.0) == within
    slower = sent(bandwidth=nodes.bandwidth / times, latency=nodes.latency * times)
    if prefilling * prefill + decoding * decode <= nodes.size:
        assert sent() == slower == within
        return
    assert within[0] <= sent()[0] <= slower[0]
    assert sent()[1] * times == pytest.approx(slower[1])
    bound = sent(bandwidth=1e6)[0]
    assert sent(bandwidth=1e6 / times)[0] == pytest.approx(bound * times)
    # at least what one node's port takes for a cache, all of whose heads are in one of the nodes that have it
    whole = 5000 * growing_values_per_token(load.model) / max(-(-prefill // nodes.size), -(-decode // nodes.size))
    assert bound >= whole / 1e6 * (1 - 1e-9)


def test_many_deployments_across_nodes_are_what_each_is_by_itself() -> None:
    base, load = load_of(*SERVING, "chip=a100", "mapping=serving", "model=llama3_8b", "mapping.serving.prefill_instances=1")
    columns = {"mapping.prefill.tp": [1.0, 4.0, 8.0, 16.0], "mapping.decode.tp": [2.0, 4.0, 4.0, 1.0]}
    columns["chip.network.latency"] = [1e-6, 2e-6, 3e-6, 4e-6]
    room, latency, *_ = devices.TensorParallelServing().kv_path(
        replace_leaves(base, {name: np.array(values) for name, values in columns.items()}), load
    )
    for row in range(4):
        transfer, start, *_ = devices.TensorParallelServing().kv_path(
            replace_leaves(base, {name: values[row] for name, values in columns.items()}), load
        )
        assert (room.design_memory(row), latency[row]) == (transfer.design_memory(0), start)


@pytest.mark.parametrize("model", ["deepseek_v2_lite", "qwen3_30b_a3b", "llama3_8b"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 8), (8, 1), (4, 8), (8, 8)])
def test_caches_that_several_dies_take_leave_those_that_have_them_as_often(model: str, before: int, after: int) -> None:
    """A latent goes to each die that decodes; so does a head of keys that several of these have."""
    base, load = load_of(*SERVING, "chip=a100", "mapping=serving", f"model={model}", "mapping.serving.prefill_instances=1")
    base = replace_leaves(base, {"mapping.prefill.tp": before, "mapping.decode.tp": after, "chip.network.nodes.size": 64})
    given_model, each = load.model, BYTES_BY_FORMAT[base.mapping.precision.kv] * 5000
    whole = sum(memory.layer.times * memory.kv for memory in sequence_memory(given_model))
    copies = after if given_model.latent is not None else max(after / given_model.kv_heads, 1.0)
    leaves, comes = (whole * copies * each / dies for dies in (before, after))
    room = devices.TensorParallelServing().kv_path(base, load).seconds
    port = base.chip.network.bandwidth * base.mapping.stack.network_efficiency  # type: ignore[union-attr]
    assert float(room.request_bytes(5000)) == pytest.approx(max(leaves, comes) / port, rel=1e-9)


WIDE = {"gpt_oss_20b": (4, 2880), "mixtral_8x7b": (2, 14336), "llama3_8b": (1, 14336)}
"""Experts of a token, and their columns, which devices share out."""


@pytest.mark.parametrize("model", WIDE)
@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        (("policy=prefill_first",), 4096),  # its budget: a prompt and some
        (("policy=prefill_first", "max_batch_size=1"), 3015),  # a prompt whose tokens are computed again
        (("policy=prefill_first", "max_batch_size=1", "preemption=swap"), 3000),
        (("policy=chunked_prefill",), 512),
        (("policy=pd_fusion",), 1024),
        (("policy=orca", "max_batch_size=7"), 21000),
        (("policy=static", "max_batch_size=7"), 21000),
        (("policy=orca", "max_batch_size=64"), 27000),  # no more than there are requests
        (("policy=orca", "prefill_instances=1", "prefill_policy=chunked_prefill", "max_batch_size=7"), 512),
    ],
)
def test_activations_are_those_of_as_many_tokens_as_go_at_a_time(
    model: str, tp: int, words: tuple[str, ...], tokens: int
) -> None:
    plan = ("chip=h200", f"mapping.both.tp={tp}", f"model={model}", "chip.hbm.capacity='1 TB'")
    asked_for = ("workload=serving", "workload.requests=9", "workload.prompt=3000", "workload.output=16")
    base, load = load_of(*plan, *asked_for, *(f"mapping.serving.{word}" for word in words))
    (nbytes,) = (
        dict(limit.parts)["activations"] for limit in devices.TensorParallelServing().limits(base, load) if limit.parts
    )
    (experts, columns), hidden = WIDE[model], load.model.hidden
    gated = 3 * experts * columns / tp  # gates, what they multiply, and the products of these
    joined = hidden + 2 * experts * columns / tp if experts == 1 else experts * (columns / tp + hidden)
    alive = hidden + max(gated, joined)
    assert nbytes == pytest.approx(tokens * alive * BYTES_BY_FORMAT[base.mapping.precision.activations], rel=1e-9)


ONE = "mapping.both.tp=1"

BOXED = ("chip=h800_ep", "chip.dies.rows=2", "chip.dies.cols=4", "chip.nodes.size=4", "mapping.both.ep=1", "mapping.both.pp=1")
"""Dies by a switch: what goes from one to another crosses two links. What else goes over links is nothing."""


HOSTS = [("chip=tile_gh200",), ("chip=wse2",)]
"""Chips whose caches go to a host, and from one to another chip."""


@pytest.mark.parametrize(
    ("chip", "links"),
    [(("chip=a100", ONE), 2), (("chip=ascend910b", ONE), 1), ((*BOXED, ONE), 2), *((chip, 2) for chip in HOSTS)],
)
def test_caches_that_go_to_other_instances_take_the_energy_of_links(chip: tuple[str, ...], links: int) -> None:
    """Of all requests with more than one token, those of their prompts."""
    few = ("workload=serving", "workload.requests=24", "workload.rate='30 Hz'", "workload.prompt=256", "workload.output=16")
    words = (*chip, *few, "model=qwen3_1b7", "mapping.serving.max_batch_size=64")

    def joules(picojoules: float, *more: str) -> float:
        dear = (f"chip.technology.{reach}_energy_per_byte='{picojoules} pJ/B'" for reach in ("module", "package", "board"))
        return metrics(*words, *more, *dear)["energy"]

    apart = "mapping.serving.prefill_instances=1"
    design, load = load_of(*words, apart)
    cached = 24 * 256 * growing_values_per_token(load.model) * BYTES_BY_FORMAT[design.mapping.precision.kv]
    assert joules(100, apart) - joules(0, apart) == pytest.approx(links * cached * 100e-12, rel=1e-6)
    assert joules(100) == joules(0)
    assert joules(100, apart, "workload.output=1") == joules(0, apart, "workload.output=1")
