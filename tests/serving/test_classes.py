"""Classes of requests in one load: who is served first, whose bounds count, and how they are said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.record_parser import parse_settings
from dse.config.slo_classes import assign_slo_classes, read_slo_classes
from dse.evaluators.serving.iteration_time import constant_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.run_statistics import SloTargets, class_results, run_statistics
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, ServingRun, simulate_serving
from dse.evaluators.serving.trace_rows import RequestKinds
from dse.evaluators.serving.traces import read_trace
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import SloClass
from dse.space.workload_settings import ServingSettings

TWO = [{"name": "chat", "share": 0.7}, {"name": "batch", "share": 0.3, "ttft": "9 s", "priority": 1}]


def with_classes(classes: Any, ttft: str = "1 s", tpot: str = "1 s") -> ServingSettings:
    return parse_settings(ServingSettings, {"ttft": ttft, "tpot": tpot, "slo_classes": classes}, "workload")


def served(many: Requests, batch: int = 1) -> ServingRun:
    return simulate_serving(many, [InstancePool(constant_time(1.0), make_policy("prefill_first"), KvMemory(100), batch=batch)])


def test_the_least_rank_is_served_first_and_of_one_rank_the_first_to_come() -> None:
    """All wait for one that runs; it stays where it is."""
    many = replace(make_requests([(4, 2)] * 5, [0.0, 0.1, 0.2, 0.3, 0.4]), ranks=np.array([2, 1, 0, 1, 0]))
    assert np.argsort(served(many)["scheduled"]).tolist() == [0, 2, 4, 1, 3]


def test_for_want_of_memory_the_least_urgent_leaves_though_it_came_first() -> None:
    lengths, pool = [(4, 8), (4, 8)], InstancePool(constant_time(1.0), make_policy("prefill_first"), KvMemory(14, 1, spare=0.0))
    many = make_requests(lengths, [0.0, 0.5])
    assert simulate_serving(many, [pool])["preempted"].tolist() == [0, 1]
    run = simulate_serving(replace(many, ranks=np.array([1, 0])), [pool])
    assert run["preempted"].tolist() == [1, 0]
    assert run["completed"][1] < run["completed"][0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.integers(0, 2)), min_size=2, max_size=30))
def test_each_request_counts_against_the_bounds_of_its_class(rows: list[tuple[int, int, int]]) -> None:
    lengths, kinds = [row[:2] for row in rows], np.array([row[2] for row in rows])
    classes = (SloClass("a", 2.0, 1.0), SloClass("b", 6.0, 2.0, 1), SloClass("c", 20.0, 4.0, 1))
    many = replace(make_requests(lengths, 0.7 * np.arange(len(rows))), kinds=kinds, ranks=np.array([0, 1, 1])[kinds])
    run = served(many, batch=3)
    good, span = np.zeros(len(rows), bool), run["completed"].max()
    for r, slo_class in enumerate(classes[kind] for kind in kinds):
        each = (run["completed"][r] - run["first"][r]) / (lengths[r][1] - 1) if lengths[r][1] > 1 else 0.0
        good[r] = run["first"][r] - many.arrival[r] <= slo_class.ttft and each <= slo_class.tpot
    bounds = SloTargets(
        np.array([slo_class.ttft for slo_class in classes])[kinds], np.array([slo_class.tpot for slo_class in classes])[kinds]
    )
    values = run_statistics(run, bounds)
    assert values["slo_attainment"] == good.sum() / len(rows)
    assert values["goodput"] == pytest.approx(good.sum() / span)
    for number, class_result in enumerate(class_results(run, classes)):
        mine = kinds == number
        assert class_result.requests == mine.sum()
        assert class_result.attainment == pytest.approx(good[mine].mean() if mine.any() else np.nan, nan_ok=True)


def test_classes_are_drawn_by_their_shares_whatever_the_rate() -> None:
    many = make_requests([(1, 1)] * 4000)
    load = with_classes(TWO, tpot="50 ms")
    slo_classes = read_slo_classes(load)
    assert slo_classes == (SloClass("chat", 1.0, 0.05, 0), SloClass("batch", 9.0, 0.05, 1))
    classes = assign_slo_classes(many, slo_classes, load, seed=3)
    assert (classes.kinds == 0).mean() == pytest.approx(0.7, abs=0.03)  # four standard deviations
    assert (classes.ranks == classes.kinds).all()
    assert classes.digest != many.digest
    assert (classes.shuffle_order(1).kinds != classes.kinds).any()


def test_one_priority_is_none() -> None:
    classes = [{"name": "a", "share": 0.5, "priority": 4}, {"name": "b", "share": 0.5, "priority": 4}]
    load = with_classes(classes)
    slo_classes = assign_slo_classes(make_requests([(1, 1)] * 9), read_slo_classes(load), load, seed=0)
    assert len(slo_classes.ranks) == 0


def test_a_column_says_the_class(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival,prompt,output,tier\n0,3,0,chat\n1,3,2,batch\n2,3,1,chat\n")
    trace = read_trace(path, skip="zero_output", sorts=RequestKinds("tier", ("chat", "batch")))
    assert trace.kinds.tolist() == [1, 0]
    with pytest.raises(DesignError, match="row 3, column tier: 'batch' is none of chat, other"):
        read_trace(path, skip="zero_output", sorts=RequestKinds("tier", ("chat", "other")))


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        ("chat", "is not a list"),
        ([{"name": "a", "share": 0.5}], "are not 1 together"),
        ([{"name": "a"}], "slo_classes.0.share: missing; set the share"),
        ([{"name": "a", "share": 0.5}, {"name": "a", "share": 0.5}], "is listed twice"),
        ([{"name": "a", "share": 1, "prio": 1}], "no field 'workload\\.slo_classes\\.0\\.prio'; did you mean 'priority'"),
        ([{"name": "a", "share": 1, "priority": 0.5}], "not a whole number"),
        ([{"name": "a", "share": 1, "ttft": "0 s"}], "must be above 0"),
    ],
)
def test_classes_that_cannot_be_are_refused(classes: Any, why: str) -> None:
    def assign() -> None:
        load = with_classes(classes)
        assign_slo_classes(make_requests([(1, 1)]), read_slo_classes(load), load, seed=0)

    with pytest.raises(DesignError, match=why):
        assign()
