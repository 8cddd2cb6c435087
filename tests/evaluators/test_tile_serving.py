"""Serving on tiles: agreement with single batches, laws of a run, phases apart, what does not fit, caches on links."""

from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.chrome_trace import trace_events
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.serving_instances import pipelines
from dse.evaluators.accounting.serving_instances.pipeline_fleet import PipelinePool, pipeline_pools
from dse.evaluators.accounting.serving_runs.run_metrics import mean_iterations
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.layouts.kv_transfer import FleetLayout, PipelineFleet, core_order, transfer_cost
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.serving.simulator import ServingRun
from dse.space.chip import decode_only_chip
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.mapping import ARRANGEMENTS
from dse.space.parameter_counts import active_parameter_count
from dse.space.workload import Workload
from tests.samples import asked

SERVING = ("chip=npu64", "model=qwen3_1b7", "workload=serving", "workload.requests=60", "workload.rate=8 Hz")
APART = ("mapping.serving.prefill_cores=32",)
PRESETS = ("npu_serving", "npu_serving_prefetch", "npu_serving_t10", "npu_serving_waferllm", "npu_serving_wsc_llm")


def columns(design: Design, workload: Workload, **options: str) -> dict[str, float]:
    return {name: float(column[0]) for name, column in evaluate(stack_designs([design]), workload, **options).columns.items()}


def metrics(*overrides: str, **options: str) -> dict[str, float]:
    question = asked(*overrides)
    return columns(question.base, question.workload, **options)


def run(*overrides: str) -> tuple[ServingRun, tuple[PipelinePool, ...]]:
    question = asked(*overrides)
    load = question.workload.cases[0]
    fleet = pipeline_pools(question.base, load)  # type: ignore[arg-type]
    return pipelines._serve_load(question.base, load, fleet, "analytical", 0)[0], fleet  # type: ignore[arg-type]


@pytest.mark.parametrize("partition", ["k", "mn"])
def test_requests_far_apart_take_what_a_batch_of_one_takes(partition: str) -> None:
    """With HBM so fast that what stays in local memory does not matter: cores that do both phases keep room for prompts."""
    overrides = (
        "chip=npu64",
        "model=qwen3_1b7",
        f"mapping.prefill.partition={partition}",
        "chip.hbm.channel_bandwidth=100 TB/s",
    )
    overrides = (
        *overrides,
        "chip.dram.device_bandwidth=10 PB/s",
        "chip.die.max_power_density=1000 W/mm2",
    )  # of which nothing can be made
    alone = (
        "workload.rate=0.01 Hz",
        "workload.arrivals=constant",
        "workload.requests=5",
        "mapping.serving.policy=prefill_first",
    )
    far = metrics(*SERVING, *overrides, *alone)
    ring = ("mapping.prefill.allreduce.algorithm=ring",) if partition == "k" else ()  # as cores have that do both phases
    single_metrics = metrics(
        *overrides, "workload.batch=[1]", "workload.prompt=1024", "workload.output=256", "mapping.prefill.pp=4", *ring
    )
    assert far["ttft"] == pytest.approx(single_metrics["ttft"], rel=0.01)
    assert far["tpot"] == pytest.approx(single_metrics["tpot"], rel=0.01)
    assert far["iteration_time_error"] < 0.01
    assert far["peak_power"] == pytest.approx(single_metrics["peak_power"], rel=0.05)  # what comes from HBM takes energy


@pytest.mark.sampled
@pytest.mark.parametrize("extra", [(), APART, ("model=qwen3_30b_a3b", "mapping.prefill.tp=8", "mapping.prefill.pp=4")])
def test_the_time_of_pipelines_goes_into_operators_or_is_idle(extra: tuple[str, ...]) -> None:
    question = asked(*SERVING, *extra)
    parts, values = explain(question.base, question.workload.cases[0]), metrics(*SERVING, *extra)
    served, fleet = run(*SERVING, *extra)
    many, span = len(served.state.instances), float(served["completed"].max() - served.requests.arrival[0])
    assert sum(parts.by_bound().values()) == pytest.approx(many * span)
    assert {row.operator for row in parts.rows} > {"q_proj", "attention", "o_proj"}
    # mean iterations, priced by themselves, take together what the table has said of each one
    load, priced, of_pool = question.workload.cases[0], pipelines.READERS["analytical"], served.state.instances["pool"]
    for number, pool in enumerate(fleet):
        each = [
            (mean.times, pipelines.mean_iteration_pass(load, pool, priced, mean)) for mean in mean_iterations(served, number)
        ]  # type: ignore[arg-type]
        busy = float(served.state.instances["busy"][of_pool == number].sum())
        assert sum(times * float(at.seconds) for times, at in each) == pytest.approx(busy, rel=0.1)
    for name in ("mfu", "hbm_utilisation", "noc_utilisation"):
        assert 0 < values[name] < 1
    assert len(fleet) == (2 if extra is APART else 1)


def test_operations_of_a_run_are_twice_its_weights_a_token_and_attention() -> None:
    question = asked(*SERVING)
    served, _ = run(*SERVING)
    model, requests = question.workload.cases[0].model, question.workload.cases[0].requests  # type: ignore[union-attr]
    tokens, outputs = float((requests.prompt + requests.output - 1).sum()), float(requests.output.sum())
    head = model.hidden * model.vocab
    layers = active_parameter_count(model) - head * (1 if model.tied_embeddings else 2)
    products = 2.0 * layers * tokens + 2.0 * head * outputs
    pairs = ((requests.prompt + requests.output - 1.0) * (requests.prompt + requests.output) / 2).sum()
    attending = 4.0 * pairs * model.heads * model.head_dim * model.layers
    span = float(served["completed"].max() - served.requests.arrival[0])
    peak = 64 * 2 * 128 * 128 * 500e6
    assert metrics(*SERVING)["mfu"] * peak * span == pytest.approx(products + attending, rel=0.02)


@pytest.mark.sampled
@pytest.mark.parametrize("extra", [(), APART])
def test_readers_agree(extra: tuple[str, ...]) -> None:
    few = ("workload.prompt=24", "workload.output=8", "mapping.prefill.microbatch_size=2")
    closed, events = (metrics(*SERVING, *few, *extra, fidelity=name) for name in ("analytical", "events"))
    for name in ("ttft", "tpot", "throughput", "energy_per_token"):
        assert events[name] == pytest.approx(closed[name], rel=0.03), name  # sizes are whole where they are played


@pytest.mark.sampled
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("chip", ["npu64", "npu256"])
def test_every_preset_serves_all_that_is_asked(preset: str, chip: str) -> None:
    served, fleet = run(*SERVING, f"chip={chip}", f"mapping={preset}")
    total, asked_ = served.total, served.requests
    assert total["served"] == len(asked_)
    assert (served["made"] == asked_.output).all()
    held = int((asked_.prompt + asked_.output - 1).sum())
    assert total["prefilled"] + total["decoded"] + total["reused"] - total["lost"] == held
    # every cache is sent once where phases are apart, and none elsewhere
    assert total["sent"] == (int(asked_.prompt.sum()) if len(fleet) == 2 else 0)
    # Little's law, and no pipeline is busier than always
    assert total["system_area"] == pytest.approx(float((served["completed"] - asked_.arrival).sum()))
    instances, end = served.state.instances, float(served["completed"].max())
    assert (instances["busy"] / instances["stages"] <= end * (1 + 1e-9)).all()


def test_many_designs_are_judged_as_each_by_itself() -> None:
    question = asked(*SERVING)
    knobs = [
        {"chip.hbm.channel_bandwidth": 6e10},
        {"chip.tile.sram": 128e6},
        {"mapping.serving.prefill_cores": 48},
        {"mapping.prefill.tp": 8, "mapping.decode.tp": 8},
        {"mapping.prefill.tp": 8},
    ]
    designs = [replace_leaves(question.base, knob) for knob in knobs]
    many = evaluate(stack_designs(designs), question.workload)
    for row, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), question.workload)
        for name, column in many.columns.items():
            assert column[row] == pytest.approx(alone.columns[name][0], nan_ok=True), name
        assert many.limit[row] == alone.limit[0]
    assert many.feasible.tolist() == [True, True, True, True, False]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("override", "limit"),
    [
        ("mapping.decode.tp=8", "mapping.decode.tp"),
        ("mapping.decode.microbatch_size=3", "mapping.decode.microbatch_size"),
        ("mapping.decode.max_chunk_tokens=64", "mapping.decode.max_chunk_tokens"),
        ("mapping.decode.dp=2", "mapping.decode.dp"),
        ("mapping.decode.partition=mn", "mapping.decode.partition"),
        ("mapping.decode.stages=operators", "mapping.decode.partition"),
    ],
)
def test_cores_that_do_both_phases_do_them_alike(override: str, limit: str) -> None:
    together, apart = asked(*SERVING, override), asked(*SERVING, override, *APART)
    verdict = explain_infeasibility(together.base, together.workload)
    assert verdict is not None
    assert verdict.limit == limit
    assert explain_infeasibility(apart.base, apart.workload) is None


def test_cores_that_are_given_to_no_phase_stand_idle() -> None:
    rest, all_of_it, fewer = (metrics(*SERVING, *APART, f"mapping.serving.decode_cores={cores}") for cores in (0, 32, 16))
    assert rest == pytest.approx(all_of_it, rel=1e-12, nan_ok=True)
    assert fewer["die_mm2"] == rest["die_mm2"]
    # half the cores, as if the chip had no others
    small = metrics(*SERVING, "mapping.serving.prefill_cores=0", "mapping.serving.decode_cores=32", "mapping.prefill.dp=2")
    assert small["throughput"] == metrics(*SERVING, "chip.mesh.rows=4", "mapping.prefill.dp=2")["throughput"]


@pytest.mark.parametrize("knob", ["prefill", "decode"])
def test_cores_that_there_are_not_cannot_be_set_apart(knob: str) -> None:
    question = asked(*SERVING, *APART, f"mapping.serving.{knob}_cores=64")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == f"mapping.serving.{knob}_cores"
    assert "set fewer cores apart" in verdict.remedy


def test_a_model_that_does_not_fit_says_what_would() -> None:
    question = asked(*SERVING, "model=qwen3_32b", "mapping.prefill.tp=2", "mapping.prefill.pp=2")
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"
    assert dict(verdict.parts)["weights"] > verdict.have
    tp, pp = verdict.remedy.split("mapping.both.tp=")[1].split(" mapping.both.pp=")
    both = {
        f"mapping.{phase}.{name}": int(value) for phase in ("prefill", "decode") for name, value in (("tp", tp), ("pp", pp))
    }
    assert explain_infeasibility(replace_leaves(question.base, both), question.workload) is None


def test_cores_that_decode_may_have_measures_of_their_own() -> None:
    apart = ("chip=npu64", "model=qwen3_4b", *SERVING[2:], *APART)
    alike, faster, narrow = (
        metrics(*apart, *extra)
        for extra in ((), ("chip.decode.bandwidth=480 GB/s",), ("chip.decode.rows=32", "chip.decode.cols=32"))
    )
    assert faster["tpot"] < alike["tpot"]
    assert faster["system_mm2"] > alike["system_mm2"] > narrow["system_mm2"]
    for name in ("tdp", "system_price"):
        assert faster[name] > alike[name] > narrow[name]
    assert faster["ttft"] == pytest.approx(alike["ttft"])
    question = asked(*apart, "chip.decode.bandwidth=480 GB/s")
    assert sum(explain(question.base, question.workload.cases[0]).price.values()) == pytest.approx(faster["system_price"])
    chip = asked(*apart, "chip.decode.lanes=2048 op/cycle").base.chip
    assert decode_only_chip(chip).tile.vector.special * 2 == chip.tile.vector.special


def test_what_local_memory_has_no_room_for_costs_time() -> None:
    """Blocks in local memory first, the rest from HBM at each step."""
    slow = (*SERVING, "chip.hbm.channel_bandwidth=30 GB/s")
    large, small = (metrics(*slow, f"mapping.sram_kv_share={share}") for share in (1.0, 0.0))
    assert small["kv_spilled_share"] == 1
    assert large["kv_spilled_share"] < 1
    # weights take what caches leave
    roomy = (*slow, "chip.tile.sram=1 GB")
    assert metrics(*roomy, "mapping.sram_kv_share=0.5")["kv_spilled_share"] == 0
    assert metrics(*roomy)["tpot"] < min(large["tpot"], small["tpot"])


TRACE = ("workload.arrivals=trace", "workload.requests=null", "model.max_position=100010")


@pytest.mark.parametrize("apart", [(), APART])
def test_a_long_request_after_the_last_keeps_nobody_waiting(apart: tuple[str, ...], tmp_path: Path) -> None:
    """Blocks of HBM are taken as they are needed; a ring's buffers are all as long as the longest request."""
    rows = [f"{k / 20},{700 + 17 * k % 900},{20 + 13 * k % 100}" for k in range(300)]
    waits: dict[str, list[float]] = {}
    for overflow, more in product(("pages", "ring"), ((), ("60,100000,10",))):
        trace = tmp_path / f"{len(more)}.csv"
        trace.write_text("\n".join(["arrival,prompt,output", *rows, *more, ""]))
        run_result, _ = run(*SERVING[:3], *apart, *TRACE, f"workload.trace={trace}", f"mapping.serving.kv_overflow={overflow}")
        waits.setdefault(overflow, []).append(float((run_result["first"] - run_result["arrival"])[:300].mean()))
    without, with_it = waits["pages"]
    # how stages share the time is measured on the mean request: the slowest has 1 % less of it, and queues differ
    assert with_it == pytest.approx(without, rel=0.1)
    assert waits["ring"][0] == pytest.approx(without)
    assert waits["ring"][1] > 5 * without


def test_an_instance_that_is_full_recomputes_what_has_left() -> None:
    small = ("chip.hbm.capacity=260 MB", "workload.rate=200 Hz", "workload.output=600", "mapping.prefill.microbatch_size=32")
    found_run, (pool,) = run(*SERVING, *small)
    assert found_run.total["preempted"] > 0
    assert (found_run["made"] == found_run.requests.output).all()
    memory = found_run.pools[0].memory
    assert memory.pages > 0
    assert found_run.state.instances["peak"].max() <= memory.blocks + memory.pages
    assert float(memory.pages * pool.room.request_bytes(memory.block)) <= pool.free * (1 + 1e-9)
    given_metrics = metrics(*SERVING, *small)
    assert given_metrics["blocked_by_kv_share"] > 0.5
    assert given_metrics["blocked_by_batch_share"] < 0.1
    few = metrics(*SERVING, "workload.rate=200 Hz", "mapping.prefill.microbatch_size=1")
    assert few["blocked_by_batch_share"] > 0.5
    assert few["blocked_by_kv_share"] == 0


def test_prefill_by_itself_leaves_decodes_alone() -> None:
    busy = (*SERVING, "workload.rate=20 Hz", "workload.prompt=4000")
    both, apart = metrics(*busy), metrics(*busy, *APART)
    assert both["system_mm2"] == apart["system_mm2"]
    assert apart["tbt_p99"] < both["tbt_p99"]


@pytest.mark.parametrize("extra", [(), APART])
def test_a_timeline_has_cores_memory_and_links_as_tracks_and_requests_as_flows(extra: tuple[str, ...]) -> None:
    question = asked(*SERVING, "workload.output=20", *extra)
    drawn = trace_events(explain(question.base, question.workload.cases[0]))
    tracks = {entry["tid"]: entry["args"]["name"] for entry in drawn if entry["name"] == "thread_name"}
    for kind in ("stage 3", "stage 3: HBM", "stage 3: links", *(["links: KV cache 0"] if extra else [])):
        assert any(name.endswith(kind) for name in tracks.values()), kind
    bars: dict[int, list[tuple[float, float]]] = {}
    for entry in drawn:
        if entry["ph"] == "X":
            bars.setdefault(entry["tid"], []).append((entry["ts"], entry["ts"] + entry["dur"]))
    for bar in bars.values():
        assert all(span[1] <= other[0] * (1 + 1e-9) + 1e-6 for span, other in pairwise(sorted(bar)))
    flows = [entry for entry in drawn if entry["ph"] in "stf"]
    assert len(flows) == 3 * len(question.workload.cases[0].requests)  # type: ignore[union-attr]
    for entry in flows:
        assert any(start - 1e-3 <= entry["ts"] <= end + 1e-3 for start, end in bars[entry["tid"]])


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(ARRANGEMENTS), st.integers(1, 6))
def test_a_line_goes_through_all_cores_once(rows: int, cols: int, arrangement: str, blocks: int) -> None:
    cores = core_order(rows, cols, arrangement, blocks)
    assert sorted(cores) == [(r, c) for r in range(rows) for c in range(cols)]
    if arrangement == "pp_first":
        assert all(abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1 for a, b in pairwise(cores))


@given(st.sampled_from(ARRANGEMENTS), st.integers(1, 12), st.integers(1, 12))
def test_every_pipeline_has_partners(arrangement: str, prefill: int, decode: int) -> None:
    layout = FleetLayout(12, 12, arrangement, *(PipelineFleet(1, 1, count, (0,), 1.0, 1.0) for count in (prefill, decode)))
    assert all(layout.partners)
    assert sorted({d for partner in layout.partners for d in partner}) == list(range(decode))
    # each block has its own
    assert len({tuple(partner) for partner in layout.partners}) == layout.blocks


@given(
    st.sampled_from(ARRANGEMENTS), st.sampled_from([1, 2, 4]), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4),
    st.integers(1, 4), st.floats(0, 1e6), st.floats(0, 2), st.sampled_from(["locked", "wormhole"]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_caches_take_at_least_their_bytes_and_nobody_gains_from_others(
    arrangement: str, tp: int, pp: int, down: int, dp: int, more: int, rate: float, made: float, routing: str
) -> None:
    chip = asked("chip=npu256", "model=qwen3_4b", f"chip.noc.routing={routing}").base.chip
    fabric = tile_fabric(chip)  # type: ignore[arg-type]
    layers = 12
    fleets = [
        PipelineFleet(tp, depth, count, tuple(layer * depth // layers for layer in range(layers)), 2048 / tp, 5120.0)
        for depth, count in ((pp, dp), (down, more))
    ]
    layout = FleetLayout(16, 16, arrangement, *fleets)
    cost = transfer_cost(layout, fabric, 16, rate, made * rate)
    # keys and values of all its layers come to a decoding core by four links
    least = -(-layers // down) * 2048 / tp / fabric.word_bytes * fabric.pace / 4
    assert cost.per_token >= least * (1 - 1e-9)
    assert min(cost.prefill, cost.decode, cost.together, cost.blocks) >= 1
    idle = transfer_cost(layout, fabric, 16, 0.0, 0.0)
    assert idle.per_token <= cost.per_token * (1 + 1e-9)
    assert idle.prefill == idle.decode == 1
