"""A product by itself that chooses its algorithm: the quickest of those that fit, alone and in a batch, whoever reads it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.analysis.optimality_gap import compute_optimality_gap
from dse.config.question import Question
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.accounting.kernel_workloads.mesh_product import LOCKED_ALGORITHMS, TILE_ALGORITHMS
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels import gemm, gemv
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import AUTO
from tests.samples import asked

WAFER, TILES, LOCKED = ("chip=wse2",), ("chip=tile32", "mapping=product"), ("chip=npu64", "mapping=product")
WORDS = {
    (WAFER, "gemm"): gemm.GEMM_CANDIDATES,
    (WAFER, "gemv"): gemv.GEMV_CANDIDATES,
    (TILES, "gemm"): tuple(word for word in gemm.GEMM_CANDIDATES if word in TILE_ALGORITHMS),
    (LOCKED, "gemm"): tuple(word for word in gemm.GEMM_CANDIDATES if word in LOCKED_ALGORITHMS),
}


def drawn(chip: tuple[str, ...], kind: str, seed: int) -> tuple[Question, Design]:
    """A product of any shape on a mesh of any sides, on cores whose memory may be short."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(2**size) for size in rng.uniform(3, 11, 3))
    question = asked(*chip, f"workload={kind}", f"workload.shapes=[{1 if kind == 'gemv' else m}x{k}x{n}]")
    rows = int(rng.integers(2, 9))
    return question, replace_leaves(
        question.base, {"mapping.rows": rows, "mapping.cols": int(rng.choice([0, rows, *range(2, 9)]))} | memory(question, rng)
    )


def memory(question: Question, rng: np.random.Generator) -> dict[str, float]:
    core = "tile" if question.base.chip.core is None else "core"
    return {f"chip.{core}.sram": float(getattr(question.base.chip, core).sram * 2 ** rng.uniform(-6, 4))}


def latency(question: Question, design: Design, fidelity: str = "analytical") -> float:
    return float(evaluate(stack_designs([design]), question.workload, fidelity=fidelity).columns["latency"][0])


@pytest.mark.sampled
@pytest.mark.parametrize(("chip", "kind"), WORDS)
@given(st.integers(0, 9999))
@settings(max_examples=6, deadline=None)
def test_the_quickest_that_fits_is_chosen_and_played(chip: tuple[str, ...], kind: str, seed: int) -> None:
    question, design = drawn(chip, kind, seed)
    each = {word: replace_leaves(design, {f"mapping.{kind}": word}) for word in (*WORDS[chip, kind], AUTO)}
    able = {
        word: latency(question, design)
        for word, design in each.items()
        if explain_infeasibility(design, question.workload) is None
    }
    assert (AUTO in able) == (len(able) > 0)
    if AUTO not in able:
        return
    assert able[AUTO] == min(able.values())
    shown = explain(each[AUTO], question.workload.cases[0])
    word = shown.rows[0].segment
    assert able[word] == able[AUTO]
    assert latency(question, each[AUTO], "events") == latency(question, each[word], "events")
    found_optimality_gap = compute_optimality_gap(each[AUTO], question.workload, able[AUTO])
    assert found_optimality_gap is not None
    assert found_optimality_gap.gap == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("chip", "kind"), WORDS)
@given(st.integers(0, 9999))
@settings(max_examples=4, deadline=None)
def test_a_batch_that_chooses_is_its_singles(chip: tuple[str, ...], kind: str, seed: int) -> None:
    question, design = drawn(chip, kind, seed)
    rng = np.random.default_rng(seed)
    designs = [
        replace_leaves(design, {f"mapping.{kind}": AUTO, "mapping.rows": int(rng.integers(2, 9))} | memory(question, rng))
        for _ in range(5)
    ]
    many = evaluate(stack_designs(designs), question.workload)
    for row, single_design in enumerate(designs):
        alone = evaluate(stack_designs([single_design]), question.workload)
        assert many.limit[row] == alone.limit[0]
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(alone.columns[name][0], rel=1e-12, nan_ok=True), name


def test_a_partition_of_groups_is_refused_with_what_would_do() -> None:
    question = asked("chip=npu64", "mapping=product", "workload=gemm", "mapping.rows=8", "mapping.gemm=k")
    with pytest.raises(DesignError, match=r"mapping.gemm: k divides .* for a single product choose summa, t10 or auto"):
        evaluate(stack_designs([question.base]), question.workload)
