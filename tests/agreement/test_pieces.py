"""Operators in two pieces of rows are the operators: on numbers, and in what they move and do; so are those of idle columns."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.evaluators.calls.call import KernelCall
from dse.evaluators.cost_models import analytical_attention as closed_attention
from dse.evaluators.cost_models import analytical_summa as closed_summa
from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.attention.attention_shape import AttentionShape, AttentionTiling, queries_of
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.layouts.whole_chip import passes_by_phase
from dse.evaluators.machine.memory_channels import near_memory
from dse.space.chip import Chip
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from dse.testing.functional import tiles
from dse.testing.functional.call_worker import AttentionInputs
from dse.testing.functional.layer import ScoreRules
from tests.samples import asked


def chip(rows: int, cols: int) -> Chip:
    chip: Chip = asked("chip=tile_gh200", "workload=gemm", "mapping=summa").base.chip
    return replace_leaves(chip, {"mesh.rows": rows, "mesh.cols": cols, "hbm.channels": cols})


def call(job: Any) -> KernelCall:
    return KernelCall("part", "of", (), 1.0, (1.0, 1.0, 1.0), job=job)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_pieces_of_products_are_the_product(data: Any) -> None:
    def pick(most: int) -> int:
        return data.draw(st.integers(1, most))

    first, rest, k, n, copies, given_chip = pick(9), pick(9), pick(12), pick(12), pick(2), chip(pick(5), pick(4))
    several = [
        closed_summa.SummaJob(
            GemmShape(m, k, n), SummaTiling(pick(3), pick(4), pick(4), pick(given_chip.mesh.rows)), given_chip, copies
        )
        for m in (first, rest)
    ]
    rng = np.random.default_rng(first)
    a, b = rng.normal(size=(copies, first + rest, k)), rng.normal(size=(copies, k, n))
    assert tiles.compute_products(call(JobSequence(tuple(several))), a, b) == pytest.approx(a @ b, abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["flat_async", "flat_hw", "flash3"]), st.sampled_from([0, 3]), st.data())
def test_pieces_of_queries_are_the_attention(name: str, window: int, data: Any) -> None:
    def pick(most: int, least: int = 1) -> int:
        return data.draw(st.integers(least, most))

    first, rest, before, given_chip, dataflow = pick(6), pick(6), pick(4, 0), chip(4, 4), find_dataflow(name)
    side = pick(2) if dataflow.grouped else 1
    queries, keys = first + rest, first + rest + before
    shape = AttentionShape(1, 2, 1, queries, keys, 4, 4, causal=True, window=window)
    pieces = [queries_of(shape, 0, first), queries_of(shape, first, queries)]
    cuts = [AttentionTiling(side, side, pick(3), pick(3)) for _ in pieces]
    several = tuple(
        closed_attention.AttentionJob(dataflow, piece, cut, given_chip) for piece, cut in zip(pieces, cuts, strict=True)
    )
    rng = np.random.default_rng(queries)
    q, k, v = (rng.normal(size=(1, many, heads, 4)) for many, heads in ((queries, 2), (keys, 1), (keys, 1)))
    attention = tiles.compute_attention(call(JobSequence(several)), AttentionInputs(q, k, v, np.zeros(2, int), ScoreRules()))
    scores = 0.5 * np.einsum("iqhd,ikd->ihqk", q, k[:, :, 0])
    behind = np.arange(keys)[None] - (np.arange(queries)[:, None] + before)
    seen = (behind <= 0) & ((behind > -window) if window else True)
    weights = np.where(seen, np.exp(scores), 0.0)
    wanted = np.einsum("ihqk,ikd->iqhd", weights / weights.sum(axis=-1, keepdims=True), v[:, :, 0])
    assert attention == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("sizes", [{"mesh.rows": 6, "mesh.cols": 4}, {"mesh.rows": 8, "mesh.cols": 6, "hbm.channels": 4}])
def test_what_is_chosen_is_played_as_it_is_priced(sizes: dict[str, int]) -> None:
    """Pieces, rows of tiles that no block needs, and columns that channels do not divide."""
    question = asked(
        "chip=tile_gh200",
        "model=qwen3_1b7",
        "mapping=flat",
        "workload.batch=[1]",
        "workload.prompt=[193]",
        "workload.output=[4]",
    )
    base = replace_leaves(question.base, {f"chip.{name}": size for name, size in {"hbm.channels": 4, **sizes}.items()})
    (case,) = question.workload.cases
    ((_, blocks),) = passes_by_phase(case, base.chip, base.mapping, "mean")["prefill"]  # type: ignore[arg-type]
    every = {id(call.job): call.job for block in blocks for call in block.calls}.values()
    assert any(isinstance(job, JobSequence) for job in every) == (base.chip.mesh.rows == 6)
    assert any(job.chip.mesh.cols < base.chip.mesh.cols for job in every) == (base.chip.mesh.cols == 6)
    closed, played = ([jobs.job_cost(reader, job) for job in every] for reader in ("analytical", "events"))
    assert sum(timed_block.seconds for timed_block in closed) == pytest.approx(
        sum(timed_block.seconds for timed_block in played), rel=0.05
    )
    for mine, theirs in zip(closed, played, strict=True):
        for name in ("macs", "elements", "memory_bytes", "sent_bytes"):
            assert getattr(mine.activity, name) == pytest.approx(getattr(theirs.activity, name)), name


def test_rows_near_memory_keep_their_faults() -> None:
    broken = replace_leaves(chip(6, 4), {"faults": "3-7+12+20-21+23"})
    assert near_memory(broken, 3).faults == "0+8-9+11"
    assert near_memory(replace_leaves(broken, {"hbm.channel_side": "north"}), 3).faults == "3-7"
    assert near_memory(broken, 6) is broken


@pytest.mark.parametrize("address", ["mapping.prefill.gemm.m", "mapping.prefill.attention.queries"])
def test_a_design_is_cut_whatever_sizes_the_others_say(address: str) -> None:
    question = asked("chip=tile_gh200", "model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=517", "workload.output=2")
    several = [question.base, replace_leaves(question.base, {address: 16}), replace_leaves(question.base, {address: 32})]
    together = evaluate(stack_designs(several), question.workload).require_compatible()
    for place, design in enumerate(several):
        alone = evaluate(stack_designs([design]), question.workload).require_compatible()
        for name in ("ttft", "energy", "sram_used"):
            assert together.columns[name][place] == pytest.approx(alone.columns[name][0], rel=1e-9), name
