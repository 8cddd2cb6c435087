"""A part of a mesh: every core has the tile that it has on the whole, and what does not get smaller is refused."""

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.kernel_workloads import mesh_product as product
from dse.evaluators.accounting.kernel_workloads import tile_attention as attention
from dse.evaluators.accounting.kernel_workloads import tile_gemm as summa
from dse.evaluators.calls.submesh import OVER, kernel_on_submesh, submesh_sides
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.submesh_jobs import MAX_WAVES, job_on_submesh
from dse.evaluators.evaluation import limits
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.attention.attention_shape import AttentionTiling, block_counts
from dse.evaluators.kernels.gemm.tiling import CoreMesh
from dse.evaluators.layouts import regions
from dse.evaluators.layouts.whole_chip import passes_by_phase
from dse.evaluators.workloads.kernels import shrink_to_submesh
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.workload import BatchCase, ProductCase, Workload


def asked(*words: str) -> Question:
    return build_question(compose(words), Path())


@lru_cache
def on_a_wafer(model: str) -> Question:
    return asked("chip=wse2", f"model={model}")


@lru_cache
def wafer() -> Question:
    return asked("chip=wse2", "workload=gemm")


def smaller(question: Question, side: int) -> tuple[Any, Any]:
    submesh = shrink_to_submesh(question.base, question.workload.cases[0], side)
    assert submesh is not None
    return submesh


@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 32))
def test_a_part_is_within_its_side_and_never_larger_than_the_mesh(rows: int, cols: int, side: int) -> None:
    high, wide = submesh_sides(rows, cols, side)
    assert 1 <= high <= min(rows, side)
    assert 1 <= wide <= min(cols, side)
    assert (high, wide) == (rows, cols) or max(high, wide) * 2 > side


@given(st.integers(8, 40), st.integers(1, 2), st.integers(20, 900), st.sampled_from(["gemm", "gemv"]))
def test_the_tiles_of_a_product_stay(rows: int, tall: int, size: int, kind: str) -> None:
    design = replace_leaves(wafer().base, {"mapping.rows": rows * tall, "mapping.cols": rows})
    case = ProductCase("", kind, 1 if kind == "gemv" else size, size, size)
    side = shrink_to_submesh(design, case, 8)
    assert side is not None
    whole, part_limit = (
        product.limits(design, product.prepare_case(design, (case,)))[0] for design, case in ((design, case), side)
    )  # type: ignore[arg-type]
    assert (part_limit.need, part_limit.parts) == (whole.need, whole.parts)


def test_a_mesh_that_is_small_enough_is_played_as_it_is() -> None:
    question = asked("chip=wse2", "workload=gemm", "workload.shapes=[60x96x48]", "mapping.rows=6")
    for fidelity in ("analytical", "events"):
        whole, outcome_on_part = (
            evaluate(stack_designs([question.base]), question.workload, fidelity=word) for word in (fidelity, f"{fidelity}@8")
        )
        assert {name: column[0] for name, column in whole.columns.items()} == pytest.approx(
            {name: column[0] for name, column in outcome_on_part.columns.items()}, nan_ok=True
        )


@pytest.mark.parametrize("words", [
    ["workload.batch=2", "workload.heads=32", "workload.keys=[4096]"],
    ["workload.batch=64", "workload.heads=32", "workload.kv_heads=8", "workload.queries=1", "workload.keys=[8192]"],
    ["workload.batch=2", "workload.heads=32", "workload.keys=[4096]", "mapping.dataflow=flash2"],
    ["workload.batch=64", "workload.heads=128", "workload.kv_heads=1", "workload.qk=576", "workload.v=512",
     "workload.latent=true", "workload.queries=2", "workload.keys=[4096]"],
])  # fmt: skip
def test_attention_keeps_its_slices_blocks_and_share_of_the_memory(words: list[str]) -> None:
    question = asked("chip=tile_gh200", "workload=attention", *words)
    design, case = smaller(question, 8)
    (before, whole), (after, part_case) = (
        (attention.chosen_tiling(design, c), c) for design, c in ((question.base, question.workload.cases[0]), (design, case))
    )
    assert (after.queries, after.keys) == (before.queries, before.keys)
    cuts = [
        block_counts(
            attention.attention_shape(c),
            AttentionTiling(*(int(getattr(t, name)) for name in ("rows", "cols", "queries", "keys"))),
            CoreMesh(n, n),
        )
        for c, t, n in ((whole, before, 32), (part_case, after, 8))
    ]
    assert cuts[1].inner == cuts[0].inner
    assert cuts[1].waves == min(cuts[0].waves, MAX_WAVES)
    slow, fast = (
        evaluate(stack_designs([design]), Workload("", (c,))).columns for design, c in ((question.base, whole), (design, case))
    )
    assert fast["hbm_utilisation"][0] == pytest.approx(slow["hbm_utilisation"][0], rel=0.35)
    assert fast["engine_utilisation"][0] == slow["engine_utilisation"][0]


def test_a_product_on_tiles_keeps_what_a_tile_multiplies_and_every_reader_plays_it() -> None:
    question = asked("chip=tile_gh200", "workload=gemm", "mapping=summa", "workload.shapes=[4096x512x8192]")
    design, case = smaller(question, 8)
    whole, part_job = (
        summa.prepare_case(design, (c,)).part
        for design, c in ((question.base, cast(ProductCase, question.workload.cases[0])), (design, case))
    )
    assert part_job == whole._replace(rows=whole.rows * 8 / 32)
    times = [
        evaluate(stack_designs([question.base]), question.workload, fidelity=word).columns["latency"][0]
        for word in ("events@4", "cycles@4")
    ]
    assert times[1] == pytest.approx(times[0], rel=0.1)


@given(st.integers(8, 700), st.integers(8, 700), st.integers(1, 700), st.sampled_from(["llama3_8b", "qwen3_30b_a3b"]))
def test_every_kernel_of_a_model_keeps_the_tiles_of_its_cores(rows: int, cols: int, tokens: int, model: str) -> None:
    question = on_a_wafer(model)
    mapping, place = question.base.mapping, regions.Region(CoreMesh(rows, cols), 1, 1, 1, 1, 1)
    prompt, token = StepCounts("prefill", float(tokens), 1.0, 0.0, 0.0), StepCounts("decode", 2.0, 2.0, 1000.0, 1000.0)
    blocks = regions.region_blocks(question.workload.cases[0].model, prompt, place, mapping)
    blocks += regions.region_blocks(question.workload.cases[0].model, token, place, mapping, 9.0)
    for kernel in (call.kernel for block in blocks for call in block.calls):
        assert kernel is not None
        current_kernel = kernel_on_submesh(kernel, 8)
        assert current_kernel._replace(shape=kernel.shape, mesh=kernel.mesh) == kernel
        assert current_kernel.mesh.rows <= kernel.mesh.rows
        assert current_kernel.mesh.cols <= kernel.mesh.cols
        for name, axis in zip("mkn", OVER.get(kernel.algorithm) or OVER[kernel.kind], strict=True):
            size, part_size = (float(getattr(kernel.shape, name)) for kernel in (kernel, current_kernel))
            if axis and part_size != size:
                kept, whole = (getattr(kernel.mesh, axis) for kernel in (current_kernel, kernel))
                assert part_size / kept == np.ceil(size / whole)


def test_a_model_on_a_wafer_is_played_kernel_by_kernel() -> None:
    sides_ = [f"mapping.{phase}.rows={side}" for phase, side in (("prefill", 64), ("decode", 48))]
    question = asked("chip=wse2", "model=qwen3_1b7", "workload.sequence=[256]", "workload.batch=1", *sides_)

    def column(fidelity: str) -> Any:
        return evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns

    whole, part_, cycles = column("events"), column("events@9999"), column("cycles@6")
    assert part_["ttft"] == whole["ttft"]
    assert part_["latency"] == pytest.approx(whole["latency"] - whole["relayout_time"])
    assert cycles["ttft"] == pytest.approx(column("events@6")["ttft"], rel=0.1)
    assert cycles["ttft"] < whole["ttft"]
    rows = explain(question.base, question.workload.cases[0], fidelity="cycles@6").rows
    assert sum(row.seconds for row in rows) == pytest.approx(cycles["latency"][0])


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["qwen3_4b", "qwen3_30b_a3b", "deepseek_v2_lite"])
def test_operators_of_a_model_on_tiles_take_on_a_part_what_they_take(model: str) -> None:
    """By the closed form, that is, in which turns are alike; what is short has no turns, and waits for a hop more or less."""
    question = asked("chip=tile_gh200", f"model={model}", "mapping=flat", "workload.sequence=[4096]", "workload.batch=16")
    passes = passes_by_phase(cast(BatchCase, question.workload.cases[0]), question.base.chip, question.base.mapping, "mean")  # type: ignore[arg-type]
    calls = [call for forward_pass in passes.values() for _, blocks in forward_pass for block in blocks for call in block.calls]
    assert calls
    for call in calls:
        whole = jobs.job_cost("analytical", call.job).seconds
        job, count = job_on_submesh(call.job, 8)
        assert count >= 1
        part_seconds = jobs.job_cost("analytical", job).seconds * count
        assert part_seconds == pytest.approx(whole, rel=0.1, abs=1e-6), call.name
        assert max(job.chip.mesh.rows, job.chip.mesh.cols) == 8


@pytest.mark.slow
def test_a_model_on_tiles_is_played_operator_by_operator() -> None:
    question = asked("chip=tile_gh200", "model=qwen3_1b7", "mapping=flat", "workload.sequence=[512]")

    def column(fidelity: str) -> Any:
        return evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns

    whole, events, cycles = column("events"), column("events@8"), column("cycles@8")
    assert column("events@99")["latency"] == pytest.approx(whole["latency"], rel=1e-3)  # but for turns left out
    assert events["latency"] == pytest.approx(whole["latency"], rel=0.1)
    assert cycles["latency"] == pytest.approx(events["latency"], rel=0.1)
    assert np.isnan(cycles["energy"])
    rows = explain(question.base, question.workload.cases[0], fidelity="cycles@8").rows
    assert sum(row.seconds for row in rows) == pytest.approx(cycles["latency"][0])


def test_a_collective_keeps_its_bytes() -> None:
    question = asked(
        "chip=tile32",
        "workload=collective",
        "workload.bytes=[1KiB]",
        "workload.group=16x16",
        "workload.root=20",
        "workload.group_axis=rectangle",
    )
    design, case = smaller(question, 8)
    assert (case.nbytes, case.rows, case.cols, case.root) == (1024, 8, 8, 20)
    assert not any(np.any(limit.need > limit.have) for limit in limits(design, Workload("", (case,))))


@pytest.mark.parametrize(("words", "line"), [
    (["fidelity=analytical@8"], "analytical@8 simulates a submesh, which only models on wafers .*; valid here: analytical"),
    (["chip=wse2", "workload=gemm", "fidelity=cycles@0"], "'cycles@0': @ must be followed by the side of a square"),
    (["chip=wse2", "workload=gemm", "fidelity=cycle@8"], "no option 'cycle'; did you mean 'cycles'"),
])  # fmt: skip
def test_what_makes_no_part_is_refused(words: list[str], line: str) -> None:
    question = asked(*words)
    with pytest.raises(DesignError, match=line):
        evaluate(stack_designs([question.base]), question.workload, fidelity=words[-1].partition("=")[2])
