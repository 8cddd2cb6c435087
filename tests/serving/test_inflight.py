"""Whole prompts share the token budget of an iteration with decodes, as engines without eviction count it."""

import numpy as np
import pytest

from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.space.errors import DesignError
from dse.space.requests import make_requests
from tests.serving.test_measures import constant_time


def first_tokens(policy: str, tokens: int) -> list[float]:
    requests = make_requests([(10, 100)] * 30, np.zeros(30))
    pool = InstancePool(constant_time(1.0), make_policy(policy, tokens=tokens), KvMemory(10_000), batch=64)
    return [float(time) for time in simulate_serving(requests, [pool])["first"]]


def test_decodes_leave_less_room_for_prompts() -> None:
    shared, alone = first_tokens("inflight", 40), first_tokens("orca", 40)
    assert alone == [1.0 + place // 4 for place in range(30)]
    # 4 prompts, then 3 beside 4 to 10 decodes, then 2 beside 13 to 19, then 1 beside 21 and more
    assert [shared.count(1.0 + turn) for turn in range(6)] == [4, 3, 3, 3, 2, 2]


def test_a_budget_that_nobody_reaches_changes_nothing() -> None:
    assert first_tokens("inflight", 1 << 20) == first_tokens("orca", 1 << 20)


def test_a_prompt_longer_than_the_budget_runs_where_nothing_decodes() -> None:
    assert first_tokens("inflight", 5)[0] == 1.0


def test_chunks_have_a_shared_budget_already() -> None:
    with pytest.raises(DesignError, match="shared_budget"):
        SchedulingPolicy(mixed=True, chunked=True, shared_budget=True)
