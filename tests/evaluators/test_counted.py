"""Counts that formulas give, made once more one by one: bytes, messages, heads, draws and streams."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models.die_exchange_jobs import analytical_exchange, exchange_activity, job_cost, make_die_groups
from dse.evaluators.cost_models.simulated_die_exchange import EVENTS
from dse.evaluators.cost_models.timeline import WorkSpan, schedule_segment
from dse.evaluators.graph.expert_loads import busiest_core_load, core_of_expert
from dse.evaluators.layouts.residency import core_cache_bytes
from dse.evaluators.machine.compute_engines import ACCUMULATOR_BYTES, TileEngines
from dse.evaluators.silicon import area
from dse.space.chip import MatrixEngine, VectorEngine
from dse.space.fields import replace_leaves
from dse.space.model import ExpertLayers
from tests.evaluators.test_boxes_of_dies import BOXES, TWO
from tests.samples import asked

few = st.integers(1, 90)


@given(few, few, few, st.integers(1, 32), st.integers(1, 32), st.sampled_from(["weight", "input", "output", "ce"]))
def test_bytes_of_a_product_are_those_of_its_tiles(m: int, k: int, n: int, rows: int, cols: int, dataflow: str) -> None:
    """What stays comes once; what streams comes for each tile; a sum that is not the first is read before it is written."""
    depth = 2 if dataflow == "ce" else 0
    engine = MatrixEngine(dataflow=dataflow, rows=rows, cols=cols, depth=depth, reload="hidden", fill=0.0, start=0.0)
    counted = 0.0
    if dataflow in ("output", "ce"):
        wide = cols * (depth + 1)
        for top in range(0, m, rows):
            for left in range(0, n, wide):
                high, across = min(rows, m - top), min(wide, n - left)
                counted += 2 * (high * k + k * across + high * across)
    else:
        ways, streams = (n, m) if dataflow == "weight" else (m, n)
        for first in range(0, k, rows):
            for left in range(0, ways, cols):
                deep, across = min(rows, k - first), min(cols, ways - left)
                counted += 2 * (deep * across + streams * deep) + streams * across * ACCUMULATOR_BYTES * (1 + (first > 0))
    engines = TileEngines(1.0, engine, VectorEngine(lanes=1.0, special=1.0, start=0.0), 1.0)
    assert engines.streamed_bytes(m, k, n, 2.0) == pytest.approx(counted)


seconds = st.floats(0, 10)


@given(seconds, st.lists(st.tuples(seconds, st.none() | seconds), min_size=1, max_size=7), st.randoms(use_true_random=False))
def test_what_is_prefetched_comes_one_after_the_other(
    collective: float, works: list[tuple[float, float | None]], rng: object
) -> None:
    """From the collective's start on; no work starts before its own has come, or waits for more than that and its turn."""
    durations, prefetches = zip(*works, strict=True)
    order, spans = list(range(len(works))), list[WorkSpan]()
    rng.shuffle(order)  # type: ignore[attr-defined]
    end = schedule_segment(collective, durations, prefetches, order, spans)
    turns = [place for place in order if prefetches[place] is not None]
    came = dict(zip(turns, np.cumsum([prefetches[place] for place in turns]), strict=True))
    now = collective
    for place, span in enumerate(spans):
        assert span.ready == now
        assert span.start == pytest.approx(max(now, came.get(place, 0.0)))
        now = span.end
        assert now == pytest.approx(span.start + durations[place])
    assert end == now


@given(st.integers(1, 16), st.integers(1, 40), st.integers(1, 1000))
def test_a_core_of_a_group_caches_whole_heads(kv_heads: int, tp: int, cached: int) -> None:
    """As many as the one that was dealt most, and one at least."""
    question = asked("chip=npu64", "model=qwen3_4b", "mapping.both.partition=k")
    model = replace_leaves(question.workload.cases[0].model, {"kv_heads": kv_heads, "heads": 4 * kv_heads})
    single_plan, plan = (replace_leaves(question.base.mapping.decode, {"tp": degree}) for degree in (1, tp))
    precision = question.base.mapping.precision
    head = sum(core_cache_bytes(replace_leaves(model, {"kv_heads": 1}), single_plan, float(cached), 1.0, precision))
    cache_bytes = sum(core_cache_bytes(model, plan, float(cached), 1.0, precision))
    held = np.bincount(np.arange(max(kv_heads, tp)) % tp)[0] if kv_heads >= tp else 1
    assert cache_bytes == pytest.approx(head * held)


@pytest.mark.parametrize(("count", "top_k", "skew", "cores"), [(256, 8, 0.05, 64), (128, 8, 0.02, 128)])
def test_the_busiest_core_of_few_tokens_has_the_mean_of_the_largest_sums(
    count: int, top_k: int, skew: float, cores: int
) -> None:
    """Experts that are nearly alike get binomial numbers of rows."""
    experts = ExpertLayers(count=count, top_k=top_k, intermediate=1, skew=skew)
    weights = np.arange(1, count + 1) ** -skew
    shares, tokens, rng = top_k * weights / weights.sum(), 128, np.random.default_rng(5)
    assert shares.max() < 1
    core = core_of_expert(count, cores)
    draws = [np.bincount(core, rng.binomial(tokens, shares), cores).max() for _ in range(400)]
    rows, _ = busiest_core_load(experts, float(tokens), float(cores))
    assert rows == pytest.approx(np.mean(draws), rel=0.015)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 10**8))
def test_bytes_between_boxes_are_not_counted_inside(nbytes: int) -> None:
    """Two boxes of 2 x 4 dies: inside them along rows and columns, between them to a switch and from there."""
    chip = asked(*TWO, BOXES, "mapping.both.placement=linear").base.chip
    job = make_die_groups(chip, "linear", 1, 16, 1, 1).build_job("all_to_all", float(nbytes))
    row, col = np.divmod(np.arange(16), 4)
    box = np.arange(16) // 8
    far = abs(row[:, None] - row) + abs(col[:, None] - col)
    inside, outside = (far * (box[:, None] == box)).sum(), 2 * (box[:, None] != box).sum()
    activity = exchange_activity(analytical_exchange(job), job.ranks)
    assert 16 * activity.linked_bytes == pytest.approx(nbytes / 16 * inside)
    assert 16 * activity.boxed_bytes == pytest.approx(nbytes / 16 * outside)


@pytest.mark.parametrize("pattern", ["all_to_all", "allreduce", "allgather"])
@pytest.mark.parametrize("copies", [None, lambda boxes: 0.4])
def test_slow_links_between_boxes_make_no_later_start(pattern: str, copies: Any) -> None:
    """A message size that was measured in a box costs as much time over boxes, whatever their links."""
    half, later = 17e6, []
    group = ("linear", 1, 16, 16, 1)
    for bandwidth in ("50 GB/s", "5 GB/s"):
        chip = asked(*TWO, BOXES, "mapping.both.placement=linear", f"chip.nodes.bandwidth={bandwidth}").base.chip
        plain, slow = (make_die_groups(chip, *group, copies=copies, half=size).build_job(pattern, 1e6) for size in (None, half))
        later.append(job_cost(slow).seconds - job_cost(plain).seconds)
        assert EVENTS.job_cost(slow).seconds - EVENTS.job_cost(plain).seconds == pytest.approx(later[0], rel=1e-9)
        assert job_cost(slow).activity == job_cost(plain).activity
    inside = make_die_groups(replace_leaves(chip, {"nodes.size": 16}), *group, half=half).build_job(pattern, 1e6)
    assert later[0] == pytest.approx(later[1], rel=1e-9)
    plain_seconds = job_cost(inside._replace(half=None)).seconds
    assert later[0] == pytest.approx(job_cost(inside).seconds - plain_seconds, rel=1e-9)


@pytest.mark.parametrize("chip", ["wafer64", "wafer64_nvlink"])
def test_a_link_that_says_no_buffer_has_one_for_a_round_trip(chip: str) -> None:
    """What is sent until the first credit comes back, which are two ways."""
    given_chip = asked(f"chip={chip}", "model=deepseek_v2_lite").base.chip
    link = given_chip.d2d
    deep = replace_leaves(given_chip, {"d2d.credits": 2 * link.latency * link.bandwidth})
    shallow = replace_leaves(given_chip, {"d2d.credits": link.latency * link.bandwidth})
    assert link.credits == 0
    assert area.total_area(deep) == pytest.approx(area.total_area(given_chip), rel=1e-12)
    assert area.total_area(shallow) < area.total_area(given_chip)
