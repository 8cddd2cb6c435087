"""Prefetching on pipelines of NPU cores: into local memory, while a group's own messages are on their way."""

from dataclasses import replace
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
from dse.evaluators.accounting.serving_instances.pipeline_fleet import iteration_pass, pipeline_pools
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import find_worst_violation
from dse.evaluators.machine.machine import tile_core_machine
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import PARTITIONS, PLACEMENTS
from dse.space.workload import ServingLoad
from tests.samples import asked

MODELS = ("qwen3_4b", "deepseek_v2_lite")
SIZES = ("workload.batch=[4,16]", "workload.prompt=600", "workload.output=20")


def question(model: str = "qwen3_4b", *more: str) -> Question:
    return asked("chip=npu64", f"model={model}", "mapping=npu_prefetch", *SIZES, *more)


def said(design: Design, **knobs: Any) -> Design:
    return replace_leaves(design, {f"mapping.{phase}.{name.replace('__', '.')}": value for name, value in knobs.items()
                             for phase in ("prefill", "decode")})  # fmt: skip


def passed(design: Design, model: str, phase: str, budget: float, fidelity: str = "analytical") -> StagedPass:
    """A pass under so large a buffer, with what stays in local memory as if there were none."""
    (job,) = arrays_by_model(question(model).workload)
    plan = getattr(design.mapping, phase)
    none = said(design, prefetch__policy="none")
    laid = _pass_blocks(
        job, phase, plan, design.mapping.precision, _batch_tokens(job, phase, plan, _pipeline_instances(design.chip, plan))
    )
    held = _held_memory(none, job, phase)._replace(buffer=budget)
    return pass_through_stages(
        job.model,
        laid,
        0.0,
        tile_core_machine(design.chip),
        _pipeline_placement(design.chip, plan),
        plan,
        held,
        READERS[fidelity],
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MODELS), st.sampled_from(("prefill", "decode")), st.sampled_from(PARTITIONS), st.sampled_from(PLACEMENTS),
    st.sampled_from((1, 2, 4, 8, 16)), st.floats(8, 256), st.floats(0, 3e7), st.floats(0, 3e7),
)  # fmt: skip
def test_a_larger_buffer_never_slows_a_pass(
    model: str, phase: str, partition: str, placement: str, tp: int, word: float, first_budget: float, other: float
) -> None:
    design = said(question(model).base, partition=partition, placement=placement, tp=tp, pp=64 // tp)
    design = replace_leaves(design, {"chip.noc.word_bytes": word, "mapping.sram_kv_share": 0.0})
    small, large = (passed(design, model, phase, budget).seconds for budget in sorted((first_budget, other)))
    assert np.all(large <= small * (1 + 1e-12))


@pytest.mark.parametrize("policy", ["whole", "partial"])
def test_what_is_prefetched_is_read_within_the_messages_before_it_and_fits(policy: str) -> None:
    budget = 3e6
    design = said(question().base, tp=16, pp=4, prefetch__policy=policy)
    taken = 0.0
    for block in passed(design, "qwen3_4b", "decode", budget).timed:
        nbytes, left = 0.0, np.inf  # before the first messages of a block those of another one count
        for cost, bytes_ahead in zip(block.costs, block.resident, strict=True):
            nbytes, left = (
                nbytes + (0.0 if bytes_ahead is None else bytes_ahead),
                left - (0.0 if bytes_ahead is None else bytes_ahead * cost.per_byte),
            )
            assert np.all(left >= -1e-12)
            assert np.all(nbytes <= budget * (1 + 1e-12))
            taken += float(np.sum(nbytes))
            if cost.network is not None:
                nbytes, left = 0.0, cost.network
    assert taken > 0


def test_without_a_buffer_nothing_changes() -> None:
    plain = asked("chip=npu64", "model=qwen3_4b", "mapping=npu", *SIZES)
    now = evaluate(stack_designs([plain.base]), plain.workload).columns
    for knobs in ({"prefetch__policy": "none"}, {"prefetch__share": 0.0}):
        then = evaluate(stack_designs([said(question().base, **knobs)]), plain.workload).columns
        for name, column in now.items():
            assert then[name] == pytest.approx(column, rel=1e-12, nan_ok=True), name


def test_prefetching_pays_where_sums_leave_the_memory_idle() -> None:
    none, with_prefetch = (said(question().base, tp=16, pp=4, prefetch__policy=word) for word in ("none", "partial"))
    tpot = evaluate(stack_designs([none, with_prefetch]), question().workload).columns["tpot"]
    assert tpot[1] < 0.95 * tpot[0]


@pytest.mark.parametrize("model", MODELS)
def test_a_prefetched_byte_is_read_once(model: str) -> None:
    design = said(question(model).base, tp=8, pp=8)
    none, with_prefetch = (passed(design, model, "decode", budget) for budget in (0.0, 2e6))
    assert np.all(with_prefetch.seconds <= none.seconds)
    assert with_prefetch.activity.memory_bytes == pytest.approx(none.activity.memory_bytes)


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("model", [*MODELS, "mixtral_8x7b"])
def test_rows_add_up_to_the_latency(model: str, fidelity: str) -> None:
    asked_ = question(model)
    design = said(asked_.base, tp=8, pp=8, partition="k")
    latency = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity, cases=True).cases["latency"]
    for case, wanted in zip(asked_.workload.cases, latency, strict=True):
        explanation = explain(design, case, fidelity=fidelity)
        assert explanation.seconds == pytest.approx(wanted[0], rel=1e-9)
        assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in explanation.rows)
        assert max(row.prefetched for row in explanation.rows) > 0
        assert max(row.prefetched for row in explanation.rows) <= 1 + 1e-9


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng, asked_ = np.random.default_rng(4), question("deepseek_v2_lite")
    designs = []
    for _ in range(40):
        tp = int(rng.choice([1, 2, 4, 8, 16]))
        words = {"prefetch__policy": str(rng.choice(["none", "whole", "partial"])), "partition": str(rng.choice(PARTITIONS))}
        single_design = said(asked_.base, tp=tp, pp=64 // tp, prefetch__share=float(rng.random()), **words)
        designs.append(replace_leaves(single_design, {"chip.noc.word_bytes": float(rng.choice([16, 64, 256]))}))
    together = evaluate(stack_designs(designs), asked_.workload).columns
    for place, design in enumerate(designs):
        alone = evaluate(stack_designs([design]), asked_.workload).columns
        for name, column in alone.items():
            assert together[name][place] == pytest.approx(column[0], rel=1e-12, nan_ok=True), name


def test_the_share_of_a_prompt_that_is_written_now_is_not_read_before() -> None:
    design = said(question().base, tp=8, pp=8)
    for block in passed(replace(design, mapping=replace(design.mapping, sram_kv_share=0.0)), "qwen3_4b", "prefill", 3e7).timed:
        for call, bytes_ahead in zip(block.block.calls, block.resident, strict=True):
            assert call.reads != "kv" or np.all(bytes_ahead == 0)


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (("mapping=flat", "+mapping.decode.prefetch.policy=partial"), "mapping.decode.prefetch.share: missing"),
        (
            (
                "mapping=flat_serving",
                "workload=serving",
                "+mapping.both.prefetch.policy=partial",
                "+mapping.both.prefetch.share=1",
            ),
            "mapping.prefill.prefetch: tiles with a serving load do not prefetch",
        ),
        (("workload=serving", "+mapping.decode.prefetch.policy=partial"), "mapping.decode.prefetch.share: missing"),
        (("mapping=npu_prefetch", "mapping.both.prefetch.policy=partly"), "no option 'partly'; .*partial"),
        (("mapping=npu", "+mapping.both.prefetch.policy=partial"), "mapping.prefill.prefetch.share: missing"),
    ],
)
def test_prefetching_elsewhere_is_refused_by_name(overrides: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        asked("chip=npu64", "model=qwen3_4b", *overrides)


SERVED = ("chip=npu64", "model=qwen3_4b", "workload=serving", "workload.requests=40", "workload.rate=4 Hz")


@pytest.mark.sampled
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(PARTITIONS), st.sampled_from((1, 2, 4, 8, 16)), st.integers(0, 300), st.integers(1, 60),
    st.floats(0, 2000), st.floats(0, 1), st.floats(0, 3e7), st.floats(0, 3e7),
)  # fmt: skip
def test_a_larger_buffer_never_slows_an_iteration(
    partition: str, tp: int, prompt: int, decodes: int, context: float, spilled: float, first_budget: float, other: float
) -> None:
    asked_ = asked(*SERVED, "mapping=npu_serving_prefetch")
    (load,) = asked_.workload.cases
    assert isinstance(load, ServingLoad)
    (pool,) = pipeline_pools(said(asked_.base, partition=partition, tp=tp, pp=64 // tp), load)
    counts = (float(prompt), (prompt + 1) / 2, float(decodes), context, spilled)

    def seconds(budget: float) -> float:
        held = pool._replace(held=pool.held._replace(buffer=budget))
        return float(iteration_pass(load, held, READERS["analytical"], "prefill", *counts).seconds)

    small, large = (seconds(budget) for budget in sorted((first_budget, other)))
    assert large <= small * (1 + 1e-12)
    plain = pool._replace(plan=replace(pool.plan, prefetch=None))
    none = float(iteration_pass(load, plain, READERS["analytical"], "prefill", *counts).seconds)
    assert seconds(0.0) == pytest.approx(none, rel=1e-12)


def test_served_pipelines_prefetch_behind_their_sums() -> None:
    said_ = (*SERVED, "workload.rate=2 Hz", "mapping=npu_serving_prefetch", "mapping.both.tp=16", "mapping.sram_kv_share=0")
    none, with_prefetch = (asked(*said_, f"mapping.prefill.prefetch.policy={word}") for word in ("none", "partial"))
    for fidelity in ("analytical", "steady_state"):
        latencies = [
            evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["tpot"][0]
            for question in (none, with_prefetch)
        ]
        assert latencies[1] < 0.99 * latencies[0], fidelity


@pytest.mark.parametrize("part", ["prefetch.policy=none", "allreduce={algorithm:two_level}"])
def test_cores_that_serve_both_phases_have_one_plan(part: str) -> None:
    question = asked(*SERVED, "mapping=npu_serving_prefetch", f"++mapping.decode.{part}")
    outcome = evaluate(stack_designs([question.base]), question.workload)
    assert not outcome.feasible[0]
    violation = find_worst_violation(question.base, question.workload)
    assert violation is not None
    assert violation.limit == f"mapping.decode.{part.partition('=')[0].partition('.')[0]}"


def test_a_space_leaves_the_buffer_out_where_nothing_is_prefetched() -> None:
    space = asked("chip=npu64", "model=qwen3_4b", "mapping=npu_prefetch", "space=npu_prefetch").space
    evaluation = evaluate(space.stack(space.grid(0, space.combinations or 0)), question().workload)
    assert len(evaluation.columns["tpot"]) == 3 * 3 * 2 * 2 * (1 + 2 * 3)
    assert np.isfinite(evaluation.columns["tpot"]).all()
