"""A wafer with main memory at its edge: weights that do not fit its cores stream from there, ahead of their use or not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.forward_passes import pass_through_regions
from dse.evaluators.accounting.regions import REGION_LAYOUT, _phase_regions, _weight_stream, phase_memory
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.model_weights import product_bytes
from dse.evaluators.layouts.regions import region_blocks
from dse.evaluators.machine.edge_memory import edge_memory
from dse.evaluators.machine.machine import mesh_program_machine
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

MODELS = ("llama2_13b", "llama2_70b", "mixtral_8x7b")
SIZES = ("workload.batch=[1]", "workload.prompt=512", "workload.output=8")
TIMES = ("ttft", "tpot", "latency")


def question(model: str, *more: str, chip: str = "wse2_hbm") -> Question:
    return asked(f"chip={chip}", f"model={model}", *SIZES, *more)


def said(design: Design, **knobs: Any) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.{name.replace('__', '.')}": value for name, value in knobs.items()
                             for phase in ("prefill", "decode")})  # fmt: skip


def columns(designs: list[Design], question: Question) -> dict[str, Any]:
    return dict(evaluate(stack_designs(designs), question.workload).columns.items())


@settings(max_examples=15, deadline=None)
@given(st.integers(560, 750), st.integers(340, 700), st.integers(0, 3))
def test_a_model_that_fits_its_cores_is_as_fast_as_without(prefill: int, decode: int, regions: int) -> None:
    sides = {"mapping.prefill.rows": prefill, "mapping.decode.rows": decode, "mapping.decode.regions": regions}
    plain, edged = (question("qwen3_1b7", chip=chip) for chip in ("wse2", "wse2_hbm"))
    before, after = (columns([replace_leaves(question.base, sides)], question) for question in (plain, edged))
    for name in TIMES[:2]:
        assert after[name] == pytest.approx(before[name], rel=1e-9)
    assert after["relayout_time"][0] <= before["relayout_time"][0] * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(("meshgemm", "cannon", "summa")), st.integers(150, 700), st.integers(150, 700),
    st.floats(0.1, 10), st.floats(30e3, 200e3), st.floats(1, 4),
)  # fmt: skip
def test_more_memory_or_bandwidth_never_slows(
    model: str, gemm: str, prefill: int, decode: int, rate: float, sram: float, more: float
) -> None:
    given_question = question(model)
    base = replace_leaves(
        said(given_question.base, gemm=gemm), {"mapping.prefill.rows": prefill, "mapping.decode.rows": decode}
    )
    base = replace_leaves(base, {"chip.hbm.channel_bandwidth": base.chip.hbm.channel_bandwidth * rate, "chip.core.sram": sram})
    before = columns([base], given_question)
    for address, value in (("chip.hbm.channel_bandwidth", base.chip.hbm.channel_bandwidth), ("chip.core.sram", sram)):
        after = columns([replace_leaves(base, {address: value * more})], given_question)
        for name in TIMES:
            assert after[name][0] <= before[name][0] * (1 + 1e-9), (address, name)
    assert before["hbm_utilisation"][0] <= base.chip.hbm.stream_efficiency * (1 + 1e-9)


@pytest.mark.sampled
@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(("whole", "partial")), st.integers(200, 700), st.sampled_from((0, 1)),
    st.floats(0, 1e9), st.floats(0, 1e9),
)  # fmt: skip
def test_more_room_to_read_ahead_never_slows_and_what_is_read_ahead_fits(
    model: str, policy: str, side: int, phase: int, first_budget: float, other: float
) -> None:
    design = said(question(model, "mapping=waferllm_prefetch").base, rows=side, prefetch__policy=policy)
    (job,) = arrays_by_model(question(model).workload)
    name = ("prefill", "decode")[phase]
    at = StepCounts(name, 200.0, 1.0, 2e4, 0.0) if name == "prefill" else StepCounts(name, 1.0, 1.0, 300.0, 300.0)
    place = _phase_regions(design, job.model)[name]
    made = _weight_stream(design, job, name, place, "analytical")
    assert made is not None
    stream = made(1.0)._replace(away=1.0)
    blocks, seconds = region_blocks(job.model, at, place, design.mapping), []
    for budget in (0.0, *sorted((first_budget, other))):
        with_room = stream._replace(budget=budget)
        region_pass = pass_through_regions(
            blocks,
            job.model,
            place,
            0,
            mesh_program_machine(design.chip),
            READERS["analytical"],
            lambda _, blocks_given=with_room: blocks_given,
        )
        seconds.append(region_pass.seconds)
        assert all(
            np.all(bytes_ahead <= budget * (1 + 1e-9))
            for part in region_pass.timed
            for bytes_ahead in part.resident
            if bytes_ahead is not None
        )
        assert np.all(region_pass.seconds >= region_pass.activity.memory_bytes * stream.edge.byte * (1 - 1e-9))
    assert seconds[2] <= seconds[1] * (1 + 1e-12)
    assert seconds[1] <= seconds[0] * (1 + 1e-12)


@pytest.mark.parametrize("model", ["llama2_13b", "llama2_70b"])
def test_every_step_reads_the_share_of_weights_that_does_not_stay(model: str) -> None:
    given_question = question(model, "mapping.both.rows=600")
    (job,) = arrays_by_model(given_question.workload)
    away = max(float(part.away) for part in phase_memory(given_question.base, job, "decode"))
    step = StepCounts("decode", 1.0, 1.0, 1.0, 1.0)
    precision = given_question.base.mapping.precision
    weights = sum(
        part.times * product_bytes(part, precision)
        for part in transformer_segments(job.model, step)
        if part.name != "embedding"
    )
    decode = REGION_LAYOUT.phases(given_question.base, job, "analytical")[1]
    assert decode.activity is not None
    assert np.max(decode.activity.memory_bytes) == pytest.approx(weights * away * float(np.sum(job.steps)), rel=1e-9)


def test_the_slower_of_channels_and_links_sets_the_pace() -> None:
    chip = question("llama2_70b").base.chip
    link = chip.noc.word_bytes * chip.clock
    channels = chip.hbm.channel_bandwidth * chip.hbm.channels * chip.hbm.stream_efficiency
    assert 1 / edge_memory(chip, 360, 360, 1.0).byte == pytest.approx(360 * link)
    assert 1 / edge_memory(chip, 360, 360, 3.0).byte == pytest.approx(360 * link)  # three side by side, one has a third
    assert 1 / edge_memory(chip, 360, 360, 6.0).byte == pytest.approx(180 * link)  # two in each column
    slow = replace_leaves(chip, {"hbm.channel_bandwidth": 1e9})
    assert 1 / edge_memory(slow, 360, 360, 1.0).byte == pytest.approx(channels * 1e9 / chip.hbm.channel_bandwidth)
    side = replace_leaves(chip, {"hbm.channel_side": "west"})
    assert 1 / edge_memory(side, 300, 10, 1.0).byte == pytest.approx(300 * link)


def test_reading_ahead_pays_in_prefill() -> None:
    plain, ahead = (
        question("llama2_70b", f"mapping={name}", "workload.prompt=2048") for name in ("waferllm", "waferllm_prefetch")
    )
    assert columns([ahead.base], ahead)["ttft"][0] < 0.96 * columns([plain.base], plain)["ttft"][0]


def test_a_model_runs_that_does_not_fit_without() -> None:
    without, beside = (question("llama2_70b", chip=chip) for chip in ("wse2", "wse2_hbm"))
    assert explain_infeasibility(without.base, without.workload) is not None
    assert explain_infeasibility(beside.base, beside.workload) is None
    larger = question("llama3_405b")
    verdict = explain_infeasibility(larger.base, larger.workload)
    assert verdict is not None
    assert verdict.limit == "chip.hbm.capacity"


@pytest.mark.sampled
@pytest.mark.parametrize("mapping", ["waferllm", "waferllm_prefetch"])
@pytest.mark.parametrize("model", MODELS)
def test_rows_add_up_to_the_latency(model: str, mapping: str) -> None:
    given_question = question(model, f"mapping={mapping}", "workload.batch=[1,4]")
    latency = evaluate(stack_designs([given_question.base]), given_question.workload, cases=True).cases["latency"]
    for case, wanted in zip(given_question.workload.cases, latency, strict=True):
        explanation = explain(given_question.base, case)
        assert explanation.seconds == pytest.approx(wanted[0], rel=1e-9)
        assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in explanation.rows)


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng, given_question = (
        np.random.default_rng(8),
        question("mixtral_8x7b", "mapping=waferllm_prefetch", "workload.batch=[1,4]"),
    )
    designs = []
    for _ in range(30):
        sides = {f"mapping.{phase}.rows": int(rng.integers(200, 700)) for phase in ("prefill", "decode")}
        single_design = said(
            given_question.base,
            prefetch__share=float(rng.random() / 4),
            prefetch__policy=str(rng.choice(["none", "whole", "partial"])),
        )
        designs.append(replace_leaves(single_design, sides | {"chip.hbm.channel_bandwidth": 10 ** rng.uniform(9, 11)}))
    together = columns(designs, given_question)
    for place, design in enumerate(designs):
        for name, column in columns([design], given_question).items():
            assert together[name][place] == pytest.approx(column[0], rel=1e-9, nan_ok=True), name


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("chip=wse2", "model=qwen3_1b7", "mapping=waferllm_prefetch"),
            "mapping.prefill.prefetch: this chip has no main memory",
        ),
        (
            ("chip=wse2_hbm", "model=qwen3_1b7", "workload=serving"),
            "chip.hbm: served requests on a mesh of cores do not use it",
        ),
        (("chip=wse2_hbm", "workload=gemv"), "chip.hbm: products on a mesh of cores do not use it"),
        (
            ("chip=wse2_hbm", "model=qwen3_1b7", "chip.hbm.channel_side=core"),
            "chip.hbm.channel_side: main memory of a mesh of cores is at an edge",
        ),
    ],
)
def test_what_nothing_reads_is_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        asked(*words)


def test_events_play_kernels_that_wait_for_what_the_closed_form_says() -> None:
    """Memory moves as much; kernels are as much quicker as where all weights stay, and rows add up."""
    sizes = (f"model.qwen3_1b7.{size}" for size in ("layers=2", "vocab=2000", "ffn_intermediate=1000", "hidden=512"))
    sides = (f"{side}=16" for side in ("chip.mesh.rows", "chip.mesh.cols", "mapping.prefill.rows", "mapping.decode.rows"))
    given_question = question("qwen3_1b7", *sizes, *sides, "chip.core.sram='48 KiB'")
    workload = replace(given_question.workload, cases=given_question.workload.cases[:1])
    roomy = replace_leaves(given_question.base, {"chip.core.sram": 200e3})

    def latencies(design: Design, fidelity: str) -> dict[str, float]:
        return {
            name: float(column[0])
            for name, column in evaluate(stack_designs([design]), workload, fidelity=fidelity).columns.items()
        }

    closed, events = (latencies(given_question.base, fidelity) for fidelity in ("analytical", "events"))
    assert events["hbm_bytes"] == pytest.approx(closed["hbm_bytes"], rel=1e-9)
    assert events["hbm_bytes"] > 0
    news = [
        latencies(design, "analytical")["ttft"] - latencies(design, "events")["ttft"] for design in (given_question.base, roomy)
    ]
    assert news[0] > 0
    assert news[0] == pytest.approx(news[1], rel=0.05)
    rows = explain(given_question.base, workload.cases[0], fidelity="events")
    assert rows.seconds == pytest.approx(events["latency"], rel=1e-9)


def test_a_part_of_the_mesh_has_no_share_of_its_edge() -> None:
    given_question = question("qwen3_1b7")
    workload = replace(given_question.workload, cases=given_question.workload.cases[:1])
    for fidelity in ("events@8", "cycles@8"):
        with pytest.raises(DesignError, match="fidelity=events; valid: analytical"):
            evaluate(stack_designs([given_question.base]), workload, fidelity=fidelity)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("chip", "layers", "needs"),
    [
        ("wse2_hbm", 0, None),
        ("wse2_hbm", 32, None),
        ("wse2_hbm", 4, 32),
        ("wse2_hbm", 40, 40),
        ("wse2", 4, None),
        ("wse2", 32, None),
        ("wse2", 40, 40),
    ],
)
def test_layers_that_stand_for_all_are_of_the_model_and_of_no_wafer_with_main_memory(
    chip: str, layers: int, needs: int | None
) -> None:
    """Else weights that have to come from main memory would come for nothing, or more layers move than there are."""
    given_question = question("llama3_8b", f"mapping.simulated_layers={layers}", chip=chip)
    infeasibility = explain_infeasibility(given_question.base, given_question.workload)
    assert (infeasibility and infeasibility.need) == needs
    assert infeasibility is None or (
        infeasibility.limit == "mapping.simulated_layers" and "mapping.simulated_layers=0" in infeasibility.remedy
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_token_of_fewer_requests_takes_no_longer(seed: int) -> None:
    """Weights come once for each micro-batch: as many of these as regions is not always quickest."""
    rng = np.random.default_rng(seed)
    given_question = question(("llama2_70b", "mixtral_8x7b")[seed == 2])
    knobs = {"mapping.decode.rows": float(rng.integers(300, 400)), "chip.hbm.channels": float(rng.integers(32, 300))}
    design, (case,) = replace_leaves(given_question.base, knobs), given_question.workload.cases
    batches = tuple(replace(case, requests=((count, 512, 8),)) for count in range(1, 10))
    taken = [
        columns([design], replace(given_question, workload=replace(given_question.workload, cases=(batch,))))["tpot"][0]
        for batch in batches
    ]
    assert (np.diff(taken) >= -1e-9).all(), taken
