import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.graph.operators import Segment, Work
from evaluators.graph.prefetch import breadth_first, prefetched


def segment(*sizes: float) -> Segment:
    works = tuple(
        Work(f"w{i}", (f"w{i - 1}",) if i else (), "matmul", (1, 1, 1), weight_bytes=size) for i, size in enumerate(sizes)
    )
    return Segment("s", 1.0, works, breadth_first(works), 1)


def test_a_graph_is_reached_breadth_first() -> None:
    def work(name: str, *needs: str) -> Work:
        return Work(name, needs, "matmul", (1, 1, 1))

    works = (work("norm"), work("q", "norm"), work("o", "attention"), work("k", "norm"), work("attention", "q", "k"))
    assert [works[i].name for i in breadth_first(works)] == ["norm", "q", "k", "attention", "o"]


def test_whole_stops_at_the_first_that_does_not_fit() -> None:
    assert prefetched(segment(4.0, 9.0, 1.0), "whole", 10.0) == [4.0, 0.0, 0.0]


def test_partial_takes_what_is_left_of_the_first_that_does_not_fit() -> None:
    assert prefetched(segment(4.0, 9.0, 1.0), "partial", 10.0) == [4.0, 6.0, 0.0]


def test_none_prefetches_nothing() -> None:
    assert prefetched(segment(4.0, 9.0), "none", 100.0) == [None, None]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.floats(0, 300), st.sampled_from(["whole", "partial"]))
def test_the_budget_is_never_exceeded(sizes: list[float], budget: float, policy: str) -> None:
    taken = prefetched(segment(*sizes), policy, budget)
    assert sum(taken) <= budget * (1 + 1e-12)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.floats(0, 300))
def test_partial_takes_at_least_what_whole_takes(sizes: list[float], budget: float) -> None:
    whole, partial = (sum(prefetched(segment(*sizes), policy, budget)) for policy in ("whole", "partial"))
    assert partial >= whole - 1e-9


def test_partial_fills_the_budget() -> None:
    assert sum(prefetched(segment(4.0, 9.0, 1.0), "partial", 10.0)) == pytest.approx(10.0)
