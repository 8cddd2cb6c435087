"""What a mapping leaves open is certified for served loads as well, by the mean iterations of their run."""

import pytest

from dse.analysis.optimality_gap import OptimalityGap, compute_mean_iteration_rows, compute_optimality_gap
from dse.evaluators import explain
from dse.evaluators.workloads.serving import mean_iterations
from dse.space.fields import replace_leaves
from tests.samples import asked

LOAD = ("workload=serving", "workload.requests=30", "workload.prompt=200", "workload.output=20")
WAFER = ("chip=wse2", "model=qwen3_1b7", *LOAD)
NPU = ("chip=npu64", "model=qwen3_1b7", *LOAD)
OPEN = {"mapping.prefill.gemm": "auto", "mapping.decode.gemm": "auto", "mapping.decode.gemv": "auto"}


def test_words_of_a_served_load_are_above_a_bound_that_is_reached_where_the_product_chooses_best() -> None:
    question = asked(*WAFER)
    open_one = replace_leaves(question.base, OPEN)
    found_optimality_gap = compute_optimality_gap(open_one, question.workload, 1.0)
    assert found_optimality_gap is not None
    assert found_optimality_gap.served
    assert found_optimality_gap.looked > len(OPEN)
    assert -1e-9 <= found_optimality_gap.gap < 0.02
    assert "of mean iterations" in str(found_optimality_gap)


@pytest.mark.parametrize("overrides", [WAFER, NPU, ("chip=h200", *LOAD)], ids=lambda words: words[0])
def test_operators_of_mean_iterations_are_those_of_the_breakdown(overrides: tuple[str, ...]) -> None:
    """Which are made as long as the iterations of the run have taken, so that shares are equal."""
    question = asked(*overrides)
    (load,) = question.workload.cases
    means = mean_iterations(question.base, load)  # type: ignore[arg-type]
    mine = [row for row in compute_mean_iteration_rows(question.base, load, means) if row.seconds > 0]  # type: ignore[arg-type]
    whole = [row for row in explain(question.base, load).rows if row.bound != "idle" and row.seconds > 0]
    shares = [[row.seconds / sum(row.seconds for row in rows) for row in rows] for rows in (mine, whole)]
    assert len(mine) > 10
    assert shares[0] == pytest.approx(shares[1], rel=1e-9)


def test_a_word_that_the_product_would_not_choose_is_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a design whose mean iterations take longer than with the best word, were that word left to it."""
    question = asked(*WAFER)
    (load,) = question.workload.cases
    slow = replace_leaves(question.base, {**OPEN, "mapping.prefill.gemm": "cannon"})
    means = mean_iterations(slow, load)  # type: ignore[arg-type]
    monkeypatch.setattr("dse.evaluators.workloads.serving.mean_iterations", lambda *_: means)
    own = {
        word: sum(
            row.seconds
            for row in compute_mean_iteration_rows(replace_leaves(slow, {"mapping.prefill.gemm": word}), load, means)
        )  # type: ignore[arg-type]
        for word in ("cannon", "meshgemm", "auto")
    }
    found_optimality_gap = compute_optimality_gap(
        replace_leaves(slow, {"mapping.prefill.gemm": "auto"}), question.workload, 1.0
    )
    assert found_optimality_gap is not None
    assert found_optimality_gap.bound <= min(own.values()) * (1 + 1e-9)
    assert own["cannon"] > found_optimality_gap.bound * 1.01


def test_where_no_other_choice_fits_that_is_said() -> None:
    gap = OptimalityGap(("mapping.prefill.partition", "mapping.decode.partition"), 2.0, 2.0, 0, True, served=True)
    text = "no other choice keeps all limits, for mapping.prefill.partition, mapping.decode.partition"
    assert str(gap) == text
