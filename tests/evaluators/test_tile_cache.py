"""A cache in front of the main memory of a mesh of tiles: what stays in it is read at its rate, and not from main memory."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.forward_passes import StagedPass, pass_through_stages
from dse.evaluators.accounting.pipelines import (
    _batch_tokens,
    _held_memory,
    _pass_blocks,
    _pipeline_instances,
    _pipeline_placement,
)
from dse.evaluators.cost_models import READERS
from dse.evaluators.machine.machine import tile_core_machine
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import PARTITIONS, PLACEMENTS
from tests.samples import asked, metrics

MODELS = ("qwen3_4b", "deepseek_v2_lite")
SIZES = ("workload.batch=[4,16]", "workload.prompt=600", "workload.output=20")
PART = "+part@chip.l2=l2_256mb"


def question(model: str = "qwen3_4b", *more: str) -> Question:
    return asked("chip=npu64", f"model={model}", PART, *SIZES, *more)


def said(design: Design, **knobs: Any) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.{name}": value for name, value in knobs.items()
                             for phase in ("prefill", "decode")})  # fmt: skip


def passed(design: Design, model: str, phase: str, fidelity: str = "analytical") -> StagedPass:
    (job,) = arrays_by_model(question(model).workload)
    plan = getattr(design.mapping, phase)
    laid = _pass_blocks(
        job, phase, plan, design.mapping.precision, _batch_tokens(job, phase, plan, _pipeline_instances(design.chip, plan))
    )
    way, held = _pipeline_placement(design.chip, plan), _held_memory(design, job, phase)
    return pass_through_stages(job.model, laid, 0.0, tile_core_machine(design.chip), way, plan, held, READERS[fidelity])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(("prefill", "decode")), st.sampled_from(PARTITIONS), st.sampled_from(PLACEMENTS),
    st.sampled_from((1, 2, 4, 8, 16)), st.floats(1e6, 64e6), st.floats(0, 1e11), st.floats(0, 1e11), st.floats(1e12, 1e14),
    st.floats(1, 4),
)  # fmt: skip
def test_a_larger_or_faster_cache_never_slows_a_pass_and_takes_from_main_memory_what_it_gives(
    model: str, phase: str, partition: str, placement: str, tp: int, sram: float, first_size: float, other: float, rate: float,
    faster: float,
) -> None:  # fmt: skip
    design = replace_leaves(said(question(model).base, partition=partition, placement=placement, tp=tp, pp=64 // tp),
                      {"chip.tile.sram": sram})  # fmt: skip
    none, small, large, fast = (
        passed(replace_leaves(design, {"chip.l2.size": size, "chip.l2.bandwidth": bandwidth}), model, phase)
        for size, bandwidth in (
            (0.0, rate),
            (min(first_size, other), rate),
            (max(first_size, other), rate),
            (max(first_size, other), rate * faster),
        )
    )
    order = (none, small, large, fast)
    for less, more in pairwise(order):
        assert np.all(more.seconds <= less.seconds * (1 + 1e-12))
        assert np.all(more.activity.memory_bytes <= less.activity.memory_bytes * (1 + 1e-12))
    for staged_pass in order:
        assert np.all(staged_pass.activity.memory_bytes >= 0)
        both = staged_pass.activity.memory_bytes + staged_pass.activity.cache_bytes
        assert both == pytest.approx(none.activity.memory_bytes, rel=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_what_fits_a_cache_is_read_at_its_rate(model: str) -> None:
    design = replace_leaves(said(question(model).base, tp=8, pp=8), {"chip.l2.size": 1e13, "chip.tile.sram": 1e6})
    staged_pass = passed(design, model, "decode")
    held, rate = _held_memory(design, arrays_by_model(question(model).workload)[0], "decode"), design.chip.l2.bandwidth / 64
    assert np.all(staged_pass.activity.memory_bytes == 0)
    for call, cost, *_ in staged_pass.calls():
        if call.reads:
            kv_here = held.kv_here if call.reads == "kv" else held.weights_here
            assert np.all(kv_here < 0.5)
            assert cost.memory == pytest.approx((1 - kv_here) * call.fetch / rate, rel=1e-9)


def test_an_empty_cache_or_a_slow_one_changes_no_time() -> None:
    plain = asked("chip=npu64", "model=qwen3_4b", *SIZES)
    before = evaluate(stack_designs([plain.base]), plain.workload).columns
    for change in ({"chip.l2.size": 0.0}, {"chip.l2.bandwidth": 1e11}):
        after = evaluate(stack_designs([replace_leaves(question().base, change)]), plain.workload).columns
        for name in ("ttft", "tpot", "latency", "hbm_used", "sram_used"):
            assert after[name] == pytest.approx(before[name], rel=1e-12), name


def test_a_cache_costs_area_and_saves_energy_of_main_memory() -> None:
    overrides = ("chip=npu64", "model=qwen3_4b", *SIZES, "mapping.both.tp=8", "mapping.both.pp=8", "chip.tile.sram='8 MB'")
    plain, cached = (
        metrics(*overrides),
        metrics(*overrides, PART, "chip.l2.size='4 GB'", "chip.technology.static_power_density=0"),
    )
    assert cached["die_mm2"] > plain["die_mm2"]
    assert cached["tpot"] < plain["tpot"]
    assert cached["energy"] < metrics(*overrides, "chip.technology.static_power_density=0")["energy"]


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("model", MODELS)
def test_rows_add_up_to_the_latency(model: str, fidelity: str) -> None:
    asked_ = question(model, "mapping=npu_prefetch")
    design = replace_leaves(said(asked_.base, tp=8, pp=8, partition="k"), {"chip.tile.sram": 8e6})
    latency = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity, cases=True).cases["latency"]
    for case, wanted in zip(asked_.workload.cases, latency, strict=True):
        explanation = explain(design, case, fidelity=fidelity)
        assert explanation.seconds == pytest.approx(wanted[0], rel=1e-9)
        assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in explanation.rows)
        assert explanation.by_bound()["l2"] > 0


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng, asked_ = np.random.default_rng(5), question("deepseek_v2_lite")
    designs = []
    for _ in range(40):
        tp = int(rng.choice([1, 2, 4, 8, 16]))
        single_design = said(asked_.base, tp=tp, pp=64 // tp, partition=str(rng.choice(PARTITIONS)))
        sizes = {"chip.l2.size": 10 ** rng.uniform(7, 11), "chip.l2.bandwidth": 10 ** rng.uniform(12.5, 14)}
        designs.append(replace_leaves(single_design, sizes))
    together = evaluate(stack_designs(designs), asked_.workload).columns
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), asked_.workload).columns
        for name, column in alone.items():
            assert together[name][place] == pytest.approx(column[0], rel=1e-12, nan_ok=True), name


def test_a_cache_helps_pipelines_that_serve() -> None:
    load = ("chip=npu64", "model=qwen3_4b", "workload=serving", "workload.requests=20", "chip.tile.sram='8 MB'")
    plain, cached = metrics(*load), metrics(*load, PART, "chip.l2.size='8 GB'")
    assert cached["tpot"] < plain["tpot"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("chip=tile32", "workload=attention"), "chip.l2: attention alone read nothing twice"),
        (("chip=tile32", "workload=gemm"), "chip.l2: products alone read nothing twice"),
        (("chip=wse2", "model=qwen3_4b"), "chip.l2: a mesh of cores does not read it"),
    ],
)
def test_a_cache_that_nothing_reads_is_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        asked(*words, PART)
