"""What a search asks, evaluates, is told and keeps, by rules of its own: no sampler's wisdom and no physics."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.execution.ask_tell import compute_feedback
from dse.execution.result_frame import search_frame
from dse.execution.study import MetricConstraint
from dse.execution.workers import evaluate_batch, evaluate_with_retries
from dse.search.local_search import LocalSearch
from dse.search.samplers import (
    Ask,
    Feedback,
    ListSampler,
    SobolSampler,
    Values,
    value_at_unit,
    values_from_unit,
)
from dse.space.knobs import IntervalKnob
from dse.store.store import DesignResult
from tests.dse.test_samplers import WIDE
from tests.dse.test_search import Counting
from tests.dse.toy import searched, toy
from tests.samples import asked


@pytest.mark.parametrize(("need", "have"), [(3.0, 2.0), (1.0, 1.0), (1.1e9, 1e9), (5.0, 0.5)])
def test_an_excess_is_what_a_need_is_more_than_there_is(need: float, have: float, tmp_path: Path) -> None:
    study = toy(tmp_path)
    result = DesignResult("key", {}, dict.fromkeys((*study.objectives, "ttft"), 5.0), "chip.l2.size", need, have)
    told = compute_feedback(study, result)
    assert have * (1 + told.constraints["limit"]) == pytest.approx(need)
    assert 4.0 * (1 + told.constraints["ttft <= 4 s"]) == pytest.approx(5.0)
    (shown,) = search_frame(study, {0: (Ask(0, {}), result)})["excess"]
    assert have * (1 + shown) == pytest.approx(need)


def test_a_design_that_keeps_its_limits_is_told_its_objectives_in_their_order(tmp_path: Path) -> None:
    study = toy(tmp_path)
    metrics = {"ttft": 3.0, "tpot": 2.0, "throughput_per_system_mm2": 7.0}
    told = compute_feedback(study, DesignResult("key", {}, metrics))
    assert told.objectives == (7.0, 2.0)
    assert all(excess <= 0 for excess in told.constraints.values())


@pytest.mark.parametrize(("relation", "keeps"), [("<=", np.less_equal), (">=", np.greater_equal)])
def test_a_constraint_is_exceeded_where_it_does_not_hold_and_more_the_farther_off(relation: str, keeps: Any) -> None:
    rng = np.random.default_rng(3)
    for value in rng.lognormal(size=20):
        metric = np.sort(rng.lognormal(size=50))
        excess = MetricConstraint("tpot", relation, float(value)).excess(metric)
        assert ((excess <= 0) == keeps(metric, value)).all()
        assert (np.diff(excess) > 0).all() if relation == "<=" else (np.diff(excess) < 0).all()


@pytest.mark.parametrize("budget", [1, 2, 3, 10])
def test_a_budget_is_of_different_designs_and_each_is_evaluated_once(budget: int, tmp_path: Path) -> None:
    study = toy(tmp_path)
    rng = np.random.default_rng(5)
    one, two, three = (values_from_unit(study.question.space, rng.random(len(study.question.space.knobs))) for _ in range(3))
    repeated = [one, one, two, one, two, three, three, one]
    counting = Counting(study)
    rows = searched(study, source=ListSampler(repeated, 0), workers=counting, budget=budget)
    assert len({key for _, _, key, _ in rows}) == min(budget, 3)
    assert sorted(counting.keys) == sorted({key for _, _, key, _ in rows})


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_design_that_fails_is_tried_again_as_often_as_is_said(retries: int) -> None:
    tries: list[int] = []

    def evaluate(batch: Sequence[Any], good: int) -> list[DesignResult]:
        tries.append(len(tries) + 1)
        if tries[-1] < good:
            raise ArithmeticError("not yet")
        return [DesignResult("key", {}, {"tpot": 1.0})]

    (done,) = evaluate_with_retries(lambda batch: evaluate(batch, retries + 1), [("key", {}, None)], retries)  # type: ignore[list-item]
    assert (done.error, tries) == ("", [*range(1, retries + 2)])
    tries.clear()
    (failed,) = evaluate_with_retries(lambda batch: evaluate(batch, retries + 2), [("key", {}, None)], retries)  # type: ignore[list-item]
    assert failed.error.startswith("ArithmeticError: not yet")
    assert len(tries) == retries + 1


def test_designs_of_a_batch_take_no_longer_together_than_the_batch() -> None:
    question = asked("chip=npu_dse", "model=qwen3_1b7")
    start = time.perf_counter()
    results = evaluate_batch([(str(number), {}, question.base) for number in range(8)], question.workload, "analytical")
    assert 0 < sum(result.seconds for result in results) <= time.perf_counter() - start


def test_a_sequence_that_leaves_designs_out_asks_none_twice_and_goes_on_where_it_was() -> None:
    def possible(several: Sequence[Values]) -> list[bool]:
        return [values["chip.cores"] % 4 == 0 for values in several]

    source = SobolSampler(WIDE, 1, possible)
    asks = [source.ask(number, None) for number in range(24)]
    assert len({ask.values["chip.l2.size"] for ask in asks}) == 24
    for stop in (1, 7, 23):
        again = SobolSampler(WIDE, 1, possible)
        for ask in asks[:stop]:
            again.restore(ask, None)
        assert [again.ask(number, None) for number in range(stop, 24)] == asks[stop:]


def test_halves_of_a_knob_are_as_far_from_its_ends_in_its_own_scale() -> None:
    rng = np.random.default_rng(2)
    for low, factor, unit in rng.random((30, 3)) + 0.01:
        high = low * (1 + 9 * factor)
        places = min(float(unit), 1.0), 1 - min(float(unit), 1.0)
        logs, plain = (IntervalKnob("chip.l2.size", float(low), float(high), log=log) for log in (True, False))
        assert np.prod([value_at_unit(logs, place) for place in places]) == pytest.approx(low * high)
        assert sum(value_at_unit(plain, place) for place in places) == pytest.approx(low + high)


@pytest.mark.parametrize("seed", range(4))
def test_the_archive_is_the_front_of_those_that_break_limits_by_least(seed: int) -> None:
    """Among all that was told, by comparing each pair; of designs with the same objectives it has one."""
    rng = np.random.default_rng(seed)
    search = LocalSearch(WIDE, ["max", "min"], seed, 8)
    told: list[tuple[float, float, float]] = []
    for number in range(60):
        ask = search.ask(number, values_from_unit(WIDE, rng.random(len(WIDE.knobs))))
        more, less = map(float, rng.integers(0, 8, 2))
        excess = float(rng.choice([2.0, 1.0, -1.0])) if number < 20 + 10 * seed else float(rng.choice([0.5, -0.5]))
        search.tell(ask, Feedback((more, less), {"limit": excess}))
        told.append((more, -less, max(0.0, excess)))
        least = min(excess for *_, excess in told)
        good = {(first, second) for first, second, excess in told if excess == least}
        front = [
            point for point in good if not any(other != point and other >= point and other[1] >= point[1] for other in good)
        ]
        kept = [tuple(-search._objectives_of[place]) for place in search._front]
        assert sorted(kept) == sorted(front)
