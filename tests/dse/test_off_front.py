"""Designs off the front: drawn from all over what is not best, stored as others, and what they say of two readers."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse.execution.verify
from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.evaluators import evaluate
from dse.evaluators.cost_models.fidelity_parts import compare_fidelities
from dse.execution.rank_agreement import rank_agreement, rank_correlation
from dse.execution.result_frame import knob_values
from dse.execution.stratified_sample import dominated_share, stratified_sample
from dse.execution.workers import Batch, make_evaluator
from dse.report.payload import report_payload
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from tests.dse.test_verify import products, ran

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40)


@given(ROWS)
def test_who_is_better_in_all_dominates_more(rows: list[tuple[int, int]]) -> None:
    values = np.array(rows, dtype=float)
    score = dominated_share(values, ["max", "min"])
    assert (score > 0).all()
    assert (score <= 1).all()
    for point, own in zip(values, score, strict=True):
        beaten = (values[:, 0] <= point[0]) & (values[:, 1] >= point[1])
        assert (score[beaten] <= own).all()


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(0, 70), st.integers(1, 8), st.integers(0, 9))
def test_as_many_are_drawn_of_each_stratum(scores: list[float], many: int, strata: int, seed: int) -> None:
    values = np.array(scores)
    rows, strata_of = stratified_sample(values, many, strata, seed)
    assert len(rows) == len(set(rows.tolist())) == min(many, len(scores))
    assert all(
        np.array_equal(a, b) for a, b in zip((rows, strata_of), stratified_sample(values, many, strata, seed), strict=True)
    )
    counts = np.bincount(strata_of)[1:]
    if len(rows):
        assert counts.max() - counts.min() <= 1
        assert len(counts) == min(strata, many, len(scores))
    for upper, lower in itertools.pairwise(strata_of):
        assert upper <= lower
    for stratum in range(1, strata_of.max() if len(strata_of) else 1):
        assert values[rows[strata_of == stratum]].min() >= values[rows[strata_of == stratum + 1]].max()


def test_the_interval_holds_the_true_correlation_as_often_as_it_says() -> None:
    draws, held = np.random.default_rng(1), []
    for _ in range(400):
        count, given_draws = int(draws.integers(12, 60)), float(draws.uniform(-0.9, 0.9))
        low = draws.normal(size=count)
        high = given_draws * low + np.sqrt(1 - given_draws**2) * draws.normal(size=count)
        correlation = rank_correlation(np.exp(low), np.exp(3 * high))  # scales are not asked
        assert correlation.low is not None
        assert correlation.high is not None
        held.append(correlation.low <= 2 / np.pi * np.arcsin(given_draws) <= correlation.high)
    assert 0.92 <= np.mean(held) <= 0.985


@given(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=30, unique=True), st.integers(0, 99))
def test_what_is_told_of_ranks_is_true(values: list[float], seed: int) -> None:
    low = np.array(values)
    draws = np.random.default_rng(seed)
    high = low * draws.uniform(0.7, 1.4, len(low))
    front = draws.random(len(low)) < 0.5
    rows = draws.permutation(100)[: len(low)]
    agreement = rank_agreement("latency", low, high, rows, front, ~front)
    assert agreement.front.designs + agreement.off.designs == agreement.overall.designs == len(low)
    before, after = (np.argsort(np.argsort(column)) + 1 for column in (low, high))
    if len(set(high)) == len(high):
        moved = np.abs(before - after)
        assert (agreement.row == -1) == (not moved.any())
        if moved.any():
            place = list(rows).index(agreement.row)
            assert (agreement.before, agreement.after) == (before[place], after[place])
            assert moved[place] == moved.max()
    order = [int(place) for place in np.argsort(low) if front[place]]
    shift = np.std(np.log(high / low))
    decided = 0
    for lower_design, other in itertools.pairwise(order):
        gaps = np.log(low[other] / low[lower_design]), np.log(high[other] / high[lower_design])
        decided += min(gaps) > shift
    assert (agreement.pairs, agreement.decided) == (max(len(order) - 1, 0), decided)


def test_few_designs_have_no_interval_and_fewer_no_ranks() -> None:
    assert rank_correlation(np.arange(4.0), np.arange(4.0)).low is None
    assert rank_correlation(np.arange(4.0), np.arange(4.0)).tau == 1
    assert rank_correlation(np.arange(2.0), np.arange(2.0)).tau is None
    assert rank_correlation(np.ones(9), np.arange(9.0)).tau is None
    few, many = (rank_correlation(np.arange(float(count)), np.arange(float(count))) for count in (6, 60))
    assert few.low is not None
    assert many.low is not None
    assert few.low < many.low < 1


def test_designs_off_the_front_are_none_of_the_best_and_stored_as_any(tmp_path: Path) -> None:
    study = products(tmp_path, "verify.off_front=6", "verify.strata=3", "verify.designs=5")
    stored_study, frame = ran(study), StoredStudy(study).frame()
    off = stored_study.off
    assert (off.wanted, len(off.after), len(stored_study.after)) == (6, 6, 5)
    assert not set(off.before.index) & set(stored_study.before.index)
    assert not frame.loc[off.before.index, "front"].any()
    assert off.strata.tolist() == [1, 1, 2, 2, 3, 3]
    assert {rank.metric for rank in stored_study.ranks} == set(study.objectives)
    assert [rank.overall.designs for rank in stored_study.ranks] == [11, 11]
    space, workload = study.question.space, study.question.workload
    for record in off.after.to_dict("records"):
        outcomes = evaluate(stack_designs([space.design_at(knob_values(study, record))]), workload, fidelity="events")
        assert record["latency"] == outcomes.columns["latency"][0]
    assert (stored_study.shared, stored_study.own) == tuple(map(tuple, compare_fidelities("product", "analytical", "events")))
    none = products(tmp_path, "verify.off_front=0", "verify.designs=5")
    alone = StoredStudy(none).verification()
    assert alone is not None
    assert len(alone.off.after) == 0
    assert alone.after.index.tolist() == stored_study.after.index.tolist()


def test_a_design_that_only_the_higher_reader_finds_good_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = products(tmp_path, "verify.off_front=4", "verify.designs=4")
    best = ran(products(tmp_path / "first", "verify.off_front=4", "verify.designs=4"))
    chosen = knob_values(study, best.off.before.iloc[-1].to_dict())
    victim = study.question.space.key_at(chosen)
    plain = make_evaluator(study.question.workload, "events")

    def generous(batch: Batch) -> Any:
        features = list(plain(batch))
        for place, feature in enumerate(features):
            if feature.key == victim:
                features[place] = dse.execution.verify.DesignResult(
                    **{**as_dict(feature), "metrics": {**feature.metrics, "latency": 1e-9, "cores": 1.0}}
                )
        return features

    monkeypatch.setattr(dse.execution.verify, "make_evaluator", lambda workload, fidelity: generous)
    stored_study = ran(study)
    assert stored_study.off.better.tolist() == [False] * 3 + [True]
    latency = next(rank for rank in stored_study.ranks if rank.metric == "latency")
    assert latency.row == stored_study.off.before.index[-1]
    assert latency.after == 1
    assert "1 would be on the front at events" in " ".join(capsys.readouterr().out.split())
    (shown,) = report_payload([StoredStudy(study).part()])["studies"]
    assert shown["verified"]["off"]["moves"] == ["off the front"] * 3 + ["comes on"]


def as_dict(rank: Any) -> dict[str, Any]:
    return {name: getattr(rank, name) for name in rank.__dataclass_fields__}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify.off_front=-1"], "verify.off_front: -1 is below the minimum, 0"),
        (["verify.strata=0"], "verify.strata: 0 is below the minimum, 1"),
    ],
)
def test_a_mistake_is_told_by_its_address(tmp_path: Path, words: list[str], line: str) -> None:
    with pytest.raises(DesignError, match=line):
        products(tmp_path, *words)


def test_a_report_has_them_apart_from_the_best(tmp_path: Path) -> None:
    study = products(tmp_path, "verify.off_front=5", "verify.designs=4")
    assert run_study(study) == 0
    (shown,) = report_payload([StoredStudy(study).part()])["studies"]
    verified = shown["verified"]
    assert (len(verified["rows"]), len(verified["off"]["rows"])) == (4, 5)
    assert not set(verified["rows"]) & set(verified["off"]["rows"])
    assert {rank["metric"] for rank in verified["ranks"]} == set(study.objectives)
