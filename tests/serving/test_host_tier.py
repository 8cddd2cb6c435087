"""Prefixes that go to the host when they leave the pool: the loop against its reference, what comes back, and in words."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import evaluate
from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import POLICIES, make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from tests.serving import reference

pytestmark = pytest.mark.usefixtures("flat_stack")


@st.composite
def streams(draw: st.DrawFn) -> Requests:
    """Requests whose prompts begin alike now and then, further apart than a small pool remembers."""
    count = draw(st.integers(3, 25))
    lengths = draw(st.lists(st.tuples(st.integers(9, 40), st.integers(1, 9)), min_size=count, max_size=count))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 4.0, 40.0]), min_size=count, max_size=count))
    whose = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    hashes = [[10 * who + place for place in range(prompt // 8)] for who, (prompt, _) in zip(whose, lengths, strict=True)]
    for digest in hashes if draw(st.booleans()) else []:
        place, like = draw(st.integers(0, 4)), draw(st.integers(0, 4))
        if max(place, like) < len(digest):
            digest[place] = digest[like]  # named twice, by a trace whose names say nothing of what stands before
    starts = np.cumsum([0, *(len(digest) for digest in hashes)])
    many = make_requests(lengths, np.cumsum(gaps))
    return replace(many, starts=starts, hashes=np.array([h for digest in hashes for h in digest], np.int32), block=8)


@pytest.mark.sampled
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(streams(), st.data())
def test_both_tiers_do_what_the_plain_reference_does(many: Requests, data: st.DataObject) -> None:
    draw = data.draw
    longest = int((many.prompt + many.output - 1).max())
    block = draw(st.sampled_from([1, 2, 4, 8]))

    def pool() -> InstancePool:
        blocks, host = -(-longest // block) + draw(st.integers(0, 4)), draw(st.sampled_from([0.0, 0.01]))
        rule = POLICIES[draw(st.sampled_from(sorted(POLICIES)))]
        by_chunk = rule.chunked and not rule.lifetime and draw(st.booleans())
        rule = replace(rule, by_chunk=by_chunk, tokens=64, swap=draw(st.booleans()))
        return InstancePool(
            linear_time(1.0, 0.125),
            rule,
            KvMemory(blocks, block, spare=0.0, host=host),
            draw(st.sampled_from([1, 2])),
            batch=4,
            pooled=True,
            hosted=draw(st.sampled_from([0, 3, 10, 1000])),
            copies=draw(st.sampled_from([1, 2, 3])),
        )

    pools = [pool()]
    if draw(st.booleans()):  # prefill and decode; who decodes may share nothing
        last = pool()
        pools.append(last if draw(st.booleans()) else replace(last, pooled=False, hosted=0))
    way = KvTransfer(
        draw(st.sampled_from([0.0, 0.01, 0.1])), draw(st.sampled_from([0.0, 0.3])), draw(st.sampled_from([1, 2])), True
    )
    run = simulate_serving(many, pools, transfer=way)
    plain, world = reference.run(many, pools, way)
    assert run["completed"].tolist() == [r["tokens"][-1] for r in plain]
    assert run["hit"].tolist() == [r["hit"] for r in plain]
    assert {name: run.total[name] for name in world["total"]} == world["total"]
    assert (run.state.instances["hosted"] <= max(pool.hosted for pool in pools)).all()


def _in_turn(rounds: int = 3) -> Requests:
    """Three prompts of 32 tokens that come one after the other, again and again, each when nobody else is there."""
    many = make_requests([(32, 1)] * 3 * rounds, 1000.0 * np.arange(3 * rounds))
    hashes = np.tile(np.arange(12), rounds).astype(np.int32)
    return replace(many, starts=np.arange(0, 12 * rounds + 1, 4), hashes=hashes, block=8)


def test_what_left_the_pool_is_reused_and_takes_the_way_from_the_host() -> None:
    """One of three prompts fits: without a host each is forgotten before it comes again."""
    memory = KvMemory(40, 1, spare=0.0, host=0.25)
    pool = InstancePool(linear_time(1.0, 0.5), make_policy("prefill_first"), memory, pooled=True)
    forgotten, kept = simulate_serving(_in_turn(), [pool]), simulate_serving(_in_turn(), [replace(pool, hosted=1000)])
    whole = simulate_serving(_in_turn(), [replace(pool, memory=replace(memory, blocks=1000))])
    assert forgotten["hit"].sum() == 0
    assert kept["hit"].tolist() == whole["hit"].tolist() == [0] * 3 + [24] * 6
    # one token at least is computed, so that of four blocks the last is, and three come back
    took = kept["first"] - kept.requests.arrival
    assert took.tolist() == [17.0] * 3 + [1 + 8 * 0.5 + 24 * 0.25] * 6
    assert kept.total["fetched"] == 24 * 6


@settings(max_examples=40, deadline=None)
@given(streams(), st.integers(0, 40))
def test_a_host_that_forgets_nothing_and_costs_nothing_is_a_pool_that_forgets_nothing(many: Requests, more: int) -> None:
    """Requests by themselves, so that no blocks are short."""
    alone = replace(many, arrival=1e4 * np.arange(len(many)))
    longest = int((many.prompt + many.output - 1).max())
    small = InstancePool(
        linear_time(1.0, 0.125),
        make_policy("orca"),
        KvMemory(longest + more, 1, spare=0.0),
        pooled=True,
        hosted=1 << 30,
        batch=4,
    )
    run = simulate_serving(alone, [small])
    large = simulate_serving(alone, [replace(small, hosted=0, memory=KvMemory(1 << 20, 1, spare=0.0))])
    assert run["hit"].tolist() == large["hit"].tolist()
    assert run["completed"].tolist() == large["completed"].tolist()


def test_prefill_instances_have_a_host_as_one_pool_has() -> None:
    """Each prompt comes alone: its first token is that of a pool that does all."""
    memory = KvMemory(40, 1, spare=0.0, host=0.25)
    pool = InstancePool(linear_time(1.0, 0.5), make_policy("prefill_first"), memory, pooled=True, hosted=1000)
    run, two = simulate_serving(_in_turn(), [pool]), simulate_serving(_in_turn(), [pool, replace(pool, pooled=False, hosted=0)])
    assert two["first"].tolist() == run["first"].tolist()
    assert two.total["fetched"] == run.total["fetched"] == 24 * 6


def test_a_request_computed_again_elsewhere_fetches_nothing_again() -> None:
    """Two caches that do not fit a decode instance together: one is lost and computed again, by who has no host."""
    many = replace(
        make_requests([(32, 1), (32, 1), (32, 40), (32, 40)], [0.0, 1e3, 2e3, 2e3]),
        starts=np.arange(0, 17, 4), hashes=np.tile(np.arange(8), 2).astype(np.int32), block=8,
    )  # fmt: skip
    pool = InstancePool(
        linear_time(1.0, 0.5), make_policy("prefill_first"), KvMemory(32, 1, spare=0.0, host=0.25), pooled=True, hosted=1000
    )
    last = replace(pool, memory=KvMemory(80, 1, spare=0.0), pooled=False, hosted=0)
    run = simulate_serving(many, [pool, last])
    assert run.total["preempted"] > 0
    assert run.total["fetched"] == 2 * 24


@pytest.mark.parametrize(("copies", "most"), [(1, 3), (2, 2), (3, 1), (8, 1)])
def test_copies_of_attention_fetch_at_the_same_time(copies: int, most: int) -> None:
    """Three prompts that come back in one iteration, dealt to copies: the one with most of them ends last."""
    requests_before, starts = (
        [(32, 1)] * 3,
        np.array([0, 4, 8, 12, 12, 16, 20, 24]),
    )  # and one without hashes that takes all memory
    many = make_requests([*requests_before, (160, 1), *requests_before], [0.0, 1e3, 2e3, 2.5e3, 3e3, 3e3, 3e3])
    many = replace(many, starts=starts, hashes=np.tile(np.arange(12), 2).astype(np.int32), block=8)
    memory = KvMemory(160, 1, spare=0.0, host=0.25)
    pool = InstancePool(linear_time(1.0, 0.5), make_policy("prefill_first"), memory, pooled=True, hosted=1000, copies=copies)
    run = simulate_serving(many, [pool])
    assert run.total["fetched"] == 3 * 24
    assert (run["first"][-3:] - 3e3).tolist() == [1 + 3 * 8 * 0.5 + most * 24 * 0.25] * 3


def test_a_host_beside_no_pool_of_blocks_is_refused() -> None:
    with pytest.raises(DesignError, match="5 blocks on the host"):
        InstancePool(linear_time(1.0), make_policy("orca"), KvMemory(9), hosted=5)


def _asked(words: str) -> Question:
    more = (
        "chip=h200", "model=llama3_8b", "model.max_position=131072", "workload=serving", "workload.requests=300",
        "workload.prompt=400", "workload.output=30", "workload.sessions={turns: 8, think: 30 s}", "workload.rate=6 Hz",
        "mapping.both.tp=1",
    )  # fmt: skip
    return compose_question((*more, *shlex.split(words))).question


def test_the_host_keeps_what_sessions_come_back_for() -> None:
    pool = "mapping.serving.prefix_cache=shared mapping.serving.kv_blocks=1200"
    results = []
    for words in (
        pool,
        f"{pool} mapping.serving.host_kv_capacity='20 GB' mapping.serving.host_bandwidth='64 GB/s'",
        f"{pool} mapping.serving.host_kv_capacity='20 GB' mapping.serving.host_bandwidth='1 GB/s'",
        f"{pool} mapping.serving.host_kv_capacity='20 MB' mapping.serving.host_bandwidth='64 GB/s'",
    ):
        question = _asked(words)
        columns = evaluate(stack_designs([question.base]), question.workload).columns
        results.append({name: float(columns[name][0]) if name in columns else 0.0 for name in NAMES})
    none, fast, slow, small = results
    assert fast["prefix_hit_rate"] > none["prefix_hit_rate"] + 0.1
    assert fast["prefix_host_hit_rate"] > 0.1
    assert fast["ttft"] < none["ttft"]
    assert slow["ttft"] > fast["ttft"]
    assert none["prefix_hit_rate"] <= small["prefix_hit_rate"] < fast["prefix_hit_rate"]
    assert none["prefix_host_hit_rate"] == 0


NAMES = ("prefix_hit_rate", "prefix_host_hit_rate", "ttft")


def test_a_host_where_prefixes_have_a_part_of_the_memory_is_refused() -> None:
    with pytest.raises(DesignError, match=r"mapping\.serving\.host_kv_capacity: has no effect with"):
        _asked("mapping.serving.host_kv_capacity='20 GB'")
