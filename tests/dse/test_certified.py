"""Mappings that are left to the product are certified: as enumeration has it where that is small, else above a bound."""

from itertools import product

import numpy as np
import pytest

from dse.analysis.optimality_gap import compute_optimality_gap
from dse.evaluators import evaluate, explain
from dse.evaluators.layouts.operator_partitions import offered_partitions
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.workload import Workload
from tests.samples import asked

SMALL = ("chip=tile32", "chip.mesh.rows=4", "chip.mesh.cols=4")
ATTENTION = (*SMALL, "workload=attention", "workload.batch=1", "workload.heads=2", "workload.keys=[256]", "workload.qk=64")
PRODUCT = (*SMALL, "workload=gemm", "workload.shapes=[128x192x96]")
WAFER = (
    "chip=wse2",
    "chip.core.sram='64 MiB'",
    "model=qwen3_1b7",
    "model.qwen3_1b7.layers=2",
    "workload.batch=[2]",
    "workload.prompt=48",
    "workload.output=4",
    "mapping.prefill.rows=8",
    "mapping.decode.rows=8",
)
AUTO = ("mapping.both.gemm=auto", "mapping.both.gemv=auto")


def seconds(design: Design, workload: Workload) -> float:
    """Of the first case."""
    return explain(design, workload.cases[0], decode_context=workload.decode_context).seconds


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("overrides", "tried"),
    [
        (ATTENTION, {"rows": (1, 2, 4), "cols": (1, 2, 4), "queries": range(16, 257, 16), "keys": range(16, 257, 16)}),
        (PRODUCT, {"rows": (1, 2, 4), "m": (16, 32, 64, 128), "k": (16, 48, 96, 192), "n": (16, 24, 48, 96)}),
    ],
    ids=["attention", "product"],
)
def test_groups_and_slices_of_a_small_case_are_those_of_enumeration(overrides: tuple[str, ...], tried: dict) -> None:  # type: ignore[type-arg]
    """Every size by hand, also those that the product never tries; half a per cent is given up for less memory."""
    question = asked(*overrides)
    each = [
        replace_leaves(question.base, {f"mapping.{name}": value for name, value in zip(tried, values, strict=True)})
        for values in product(*tried.values())
    ]
    evaluation = evaluate(stack_designs(each), question.workload)
    least = evaluation.columns["latency"][evaluation.feasible].min()
    own = seconds(question.base, question.workload)
    certified = compute_optimality_gap(question.base, question.workload, own)
    assert certified is not None
    assert certified.whole
    assert own == pytest.approx(least, rel=6e-3)
    assert certified.bound <= own * (1 + 1e-12)
    assert certified.bound == pytest.approx(least, rel=6e-3)


def test_words_of_a_small_model_are_those_of_enumeration() -> None:
    """Every pair of words for all operators of both phases: none is below the bound, which the product's own choice reaches."""
    question = asked(*WAFER, *AUTO)
    own = seconds(question.base, question.workload)
    certified = compute_optimality_gap(question.base, question.workload, own)
    assert certified is not None
    words = {"gemm": ("meshgemm", "cannon", "summa", "allgather"), "gemv": ("ktree", "ring", "pipeline")}
    least = np.inf
    for gemm, gemv in product(*words.values()):
        given_words = {
            f"mapping.{phase}.{name}": word
            for phase in ("prefill", "decode")
            for name, word in (("gemm", gemm), ("gemv", gemv))
        }
        leaves = replace_leaves(question.base, given_words)
        if evaluate(stack_designs([leaves]), question.workload).feasible[0]:
            least = min(least, seconds(leaves, question.workload))
    assert own <= least * (1 + 1e-12)
    assert certified.gap == pytest.approx(0.0, abs=1e-9)


def test_the_gap_is_of_what_the_design_takes_at_its_fidelity() -> None:
    question = asked(*WAFER, *AUTO)
    own = seconds(question.base, question.workload)
    certified = compute_optimality_gap(question.base, question.workload, 1.5 * own)
    assert certified is not None
    assert certified.gap == pytest.approx(0.5)
    assert "50.00% above" in str(certified)


@pytest.mark.parametrize(
    "overrides",
    [("chip=a100",), ("chip=wse2", "workload=gemm", "workload.shapes=[64x64x64]"), (*ATTENTION, "chip.tile.sram='1 KiB'")],
)
def test_there_is_nothing_to_certify_where_nothing_is_left_open_or_can_be(overrides: tuple[str, ...]) -> None:
    question = asked(*overrides)
    assert compute_optimality_gap(question.base, question.workload, 1.0) is None


@pytest.mark.sampled
@pytest.mark.parametrize("placement", ["ring", "mesh"])
@pytest.mark.parametrize("batch", [1, 16])
def test_partitions_that_a_group_has_are_above_the_bound(placement: str, batch: int) -> None:
    """A product of a mesh is no choice of a ring; what a choice has to send and another spares is in no bound."""
    model = ("model=qwen3_1b7", f"workload.batch=[{batch}]", "workload.prompt=300", "workload.output=20")
    words = ("chip=npu64", *model, "mapping.both.tp=16", "mapping.both.pp=4", f"mapping.both.placement={placement}")
    question = asked(*words, "mapping.both.partition=auto")
    own = seconds(question.base, question.workload)
    certified = compute_optimality_gap(question.base, question.workload, own)
    assert certified is not None
    assert certified.bound <= own * (1 + 1e-12)
    for word in offered_partitions(question.base.mapping.prefill):
        single_question = asked(*words, f"mapping.both.partition={word}")
        if evaluate(stack_designs([single_question.base]), single_question.workload).feasible[0]:
            assert certified.bound <= seconds(single_question.base, single_question.workload) * (1 + 1e-12), word
