"""Prefetching where all tiles work on one operator: into a cache, or local memories, while main memory has nothing to do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_case
from dse.evaluators.accounting.layout import layout_of
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

MODELS = ("qwen3_1b7", "deepseek_v2_lite")
L2 = "+part@chip.l2=l2_256mb"
SIZES = ("workload.batch=[8]", "workload.prompt=300", "workload.output=6")


def question(*more: str, model: str = "qwen3_1b7") -> Question:
    return asked("chip=tile_gh200", f"model={model}", "mapping=flat_prefetch", *SIZES, *more)


def said(design: Design, **knobs: Any) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.prefetch.{name}": value for name, value in knobs.items()
                             for phase in ("prefill", "decode")})  # fmt: skip


def columns(designs: list[Design], question: Question) -> dict[str, Any]:
    return dict(evaluate(stack_designs(designs), question.workload).columns.items())


@pytest.mark.sampled
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(("whole", "partial")), st.sampled_from((4, 8, 32)), st.floats(0.2, 8),
    st.floats(2e5, 4e6), st.floats(0, 1), st.floats(0, 1),
)  # fmt: skip
def test_more_room_never_slows_a_step_and_memory_is_never_asked_for_more_than_it_can(
    model: str, policy: str, side: int, rate: float, sram: float, first_cap: float, other: float
) -> None:
    given_question = question(model=model)
    changes = {"chip.mesh.rows": side, "chip.mesh.cols": side, "chip.tile.sram": sram}
    base = replace_leaves(
        given_question.base, changes | {"chip.hbm.channel_bandwidth": given_question.base.chip.hbm.channel_bandwidth * rate}
    )
    none, *capped = [said(base, policy="none"), *(said(base, policy=policy, share=cap) for cap in sorted((first_cap, other)))]
    found_columns = [columns([design], given_question) for design in (none, *capped)]
    for less, more in ((found_columns[0], found_columns[1]), (found_columns[1], found_columns[2])):
        for name in ("ttft", "tpot", "latency"):
            assert more[name][0] <= less[name][0] * (1 + 1e-9), name
        assert more["hbm_bytes"] == pytest.approx(less["hbm_bytes"], rel=1e-9)
    assert all(column["hbm_utilisation"][0] <= base.chip.hbm.stream_efficiency * (1 + 1e-9) for column in found_columns)


@pytest.mark.parametrize("policy", ["whole", "partial"])
def test_what_is_read_ahead_fits(policy: str) -> None:
    given_question = question(L2, "chip.l2.size='40 MB'")
    for cap in (0.05, 0.4, 1.0):
        design = said(given_question.base, policy=policy, share=cap)
        taken = 0.0
        for phase in layout_of(design).phases(design, arrays_by_case(given_question.workload)[0], "analytical", detailed=True):
            for block in phase.timed:
                for call, share in zip(block.block.calls, block.resident, strict=True):
                    nbytes = float(share * call.job.nbytes)
                    assert 0 <= nbytes <= cap * 40e6 * (1 + 1e-9)
                    assert policy == "partial" or not nbytes or call.job.nbytes <= cap * 40e6
                    taken += nbytes
        assert taken > 0 or policy == "whole"


def test_without_room_nothing_changes() -> None:
    plain = asked("chip=tile_gh200", "model=qwen3_1b7", "mapping=flat", *SIZES)
    before = columns([plain.base], plain)
    for knobs in ({"policy": "none"}, {"share": 0.0}):
        after = columns([said(question().base, **knobs)], plain)
        for name, column in before.items():
            assert after[name] == pytest.approx(column, rel=1e-9, nan_ok=True), name


@pytest.mark.parametrize("more", [(), (L2,)])
def test_reading_ahead_pays_where_engines_leave_memory_idle(more: tuple[str, ...]) -> None:
    whole = "mapping.both.gemm.split_k=1"  # with depths divided, engines wait for memory
    given_question = question(*more, "workload.batch=[16]", "workload.prompt=1024", whole, model="qwen3_8b")
    tpot = [columns([said(given_question.base, policy=word)], given_question)["tpot"][0] for word in ("none", "partial")]
    assert tpot[1] < 0.97 * tpot[0]


@pytest.mark.parametrize("more", [(), (L2,)])
@pytest.mark.parametrize("model", MODELS)
def test_rows_add_up_to_the_latency(model: str, more: tuple[str, ...]) -> None:
    given_question = question(*more, model=model)
    (latency,) = columns([given_question.base], given_question)["latency"]
    explanation = explain(given_question.base, given_question.workload.cases[0])
    assert explanation.seconds == pytest.approx(latency, rel=1e-9)
    assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in explanation.rows)
    assert 0 < max(row.prefetched for row in explanation.rows) <= 1 + 1e-9


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng, given_question = np.random.default_rng(7), question(L2)
    designs = [
        replace_leaves(said(given_question.base, share=float(rng.random())), {"chip.l2.size": 10 ** rng.uniform(7, 9)})
        for _ in range(6)
    ]
    together = columns(designs, given_question)
    for place, design in enumerate(designs):
        for name, column in columns([design], given_question).items():
            assert together[name][place] == pytest.approx(column[0], rel=1e-9, nan_ok=True), name


def test_steps_of_several_lengths_are_read_ahead_alike() -> None:
    given_question = question(L2)
    (case,) = given_question.workload.cases
    times = []
    for requests in (((8, 300, 4),), ((8, 300, 9),), ((4, 300, 4), (4, 300, 9))):
        workload = replace(given_question.workload, cases=(replace(case, requests=requests),))
        latency = evaluate(stack_designs([given_question.base, said(given_question.base, policy="none")]), workload).columns[
            "latency"
        ]
        assert latency[0] < latency[1]
        times.append(latency[0])
    assert times[0] < times[2] < times[1]


@pytest.mark.sampled
@pytest.mark.parametrize("more", [(), (L2,)])
def test_events_play_operators_and_what_is_read_ahead_of_them(more: tuple[str, ...]) -> None:
    """Reading ahead makes times what it makes them in closed form, nearly, and rows add up to them."""
    sizes = (f"model.qwen3_1b7.{size}" for size in ("layers=2", "vocab=2000", "ffn_intermediate=1000", "hidden=512"))
    mesh = ("chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4", "chip.tile.sram='1 MB'")
    given_question = question(*more, *sizes, *mesh, "workload.prompt=60", "workload.output=2")
    none, ahead = said(given_question.base, policy="none"), said(given_question.base, policy="partial")
    ratios = []
    for fidelity in ("analytical", "events"):
        before, after = (
            evaluate(stack_designs([design]), given_question.workload, fidelity=fidelity).columns["latency"][0]
            for design in (none, ahead)
        )
        ratios.append(after / before)
    assert ratios[1] == pytest.approx(ratios[0], rel=0.01)
    assert more or ratios[0] < 0.98
    explanation = explain(ahead, given_question.workload.cases[0], fidelity="events")
    assert explanation.seconds == pytest.approx(after, rel=1e-9)
