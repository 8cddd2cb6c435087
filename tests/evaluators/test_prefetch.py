import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.calls.call import CallBlock, KernelCall, equal_call_index, sort_breadth_first
from dse.evaluators.calls.prefetch import prefetched_bytes


def call(name: str, *needs: str, fetch: float = 1.0) -> KernelCall:
    return KernelCall("part", name, needs, 1.0, (1, 1, 1), reads="weights", fetch=fetch)


def block(*sizes: float) -> CallBlock:
    calls = tuple(call(f"w{i}", *([f"w{i - 1}"] if i else []), fetch=size) for i, size in enumerate(sizes))
    return CallBlock("s", calls, equal_call_index(calls), sort_breadth_first(calls), 1.0)


def test_a_graph_is_reached_breadth_first() -> None:
    needs = {"norm": (), "q": ("norm",), "o": ("attention",), "k": ("norm",), "attention": ("q", "k")}
    calls = [call(name, *need) for name, need in needs.items()]
    assert [calls[i].name for i in sort_breadth_first(calls)] == ["norm", "q", "k", "attention", "o"]


def test_whole_stops_at_the_first_that_does_not_fit() -> None:
    assert prefetched_bytes(block(4.0, 9.0, 1.0), "whole", 10.0) == [4.0, 0.0, 0.0]


def test_partial_takes_what_is_left_of_the_first_that_does_not_fit() -> None:
    assert prefetched_bytes(block(4.0, 9.0, 1.0), "partial", 10.0) == [4.0, 6.0, 0.0]


def test_none_prefetches_nothing() -> None:
    assert prefetched_bytes(block(4.0, 9.0), "none", 100.0) == [None, None]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.floats(0, 300), st.sampled_from(["whole", "partial"]))
def test_the_budget_is_never_exceeded(sizes: list[float], budget: float, policy: str) -> None:
    taken = prefetched_bytes(block(*sizes), policy, budget)
    assert sum(taken) <= budget * (1 + 1e-12)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=8), st.floats(0, 300))
def test_partial_takes_at_least_what_whole_takes(sizes: list[float], budget: float) -> None:
    whole, partial = (sum(prefetched_bytes(block(*sizes), policy, budget)) for policy in ("whole", "partial"))
    assert partial >= whole - 1e-9


def test_partial_fills_the_budget() -> None:
    assert sum(prefetched_bytes(block(4.0, 9.0, 1.0), "partial", 10.0)) == pytest.approx(10.0)
