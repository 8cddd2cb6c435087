"""A cache in front of the main memory of tiles that all work on one operator: what main memory still moves."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.cost_models.cached_operators import distinct_rows_and_columns
from dse.evaluators.kernels.gemm import summa_diagonal
from dse.evaluators.kernels.gemm.summa_diagonal import SummaTiling
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked, metrics

MODELS = ("qwen3_1b7", "deepseek_v2_lite")
PART = "+part@chip.l2=l2_256mb"
TIMES = ("ttft", "tpot", "latency", "hbm_bytes")


def question(model: str, *more: str) -> Question:
    return asked("chip=tile_gh200", f"model={model}", *more)


def columns(designs: list[Design], question: Question) -> dict[str, Any]:
    return dict(evaluate(stack_designs(designs), question.workload).columns.items())


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(MODELS), st.integers(1, 24), st.integers(1, 900), st.sampled_from((4, 8, 16, 32)),
    st.lists(st.floats(0, 4e10), min_size=2, max_size=2), st.floats(5e11, 5e13), st.floats(1, 8),
)  # fmt: skip
def test_a_larger_or_faster_cache_never_takes_longer_nor_moves_more(
    model: str, batch: int, prompt: int, side: int, sizes: list[float], rate: float, faster: float
) -> None:
    options = (f"workload.batch=[{batch}]", f"workload.prompt={prompt}", "workload.output=3")
    given_question, plain = question(model, PART, *options), question(model, *options)
    tiles = {"chip.mesh.rows": side, "chip.mesh.cols": side}
    before = columns([replace_leaves(plain.base, tiles)], plain)
    small, large = sorted(sizes)
    ladder = ((0.0, rate), (small, rate), (large, rate), (large, rate * faster))
    base = replace_leaves(given_question.base, tiles)
    after = columns(
        [replace_leaves(base, {"chip.l2.size": size, "chip.l2.bandwidth": speed}) for size, speed in ladder], given_question
    )
    for name in TIMES[:3]:
        for less, more in pairwise([before[name][0], *after[name]]):
            assert more <= less * (1 + 1e-9), name
    assert np.all(after["hbm_bytes"] >= 0)


def test_a_cache_that_is_slower_than_the_memory_behind_it_changes_nothing() -> None:
    options = ("workload.batch=[4]", "workload.prompt=300", "workload.output=4")
    given_question, plain = question("qwen3_1b7", PART, *options), question("qwen3_1b7", *options)
    before, after = (
        columns([plain.base], plain),
        columns([replace_leaves(given_question.base, {"chip.l2.bandwidth": 1e12})], given_question),
    )
    for name in TIMES:
        assert after[name] == pytest.approx(before[name], rel=1e-9), name


@pytest.mark.sampled
@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 600), st.integers(1, 600), st.sampled_from(((8, 8), (6, 4), (4, 12), (1, 3))),
    st.integers(1, 40), st.integers(1, 40), st.data(),
)  # fmt: skip
def test_groups_of_a_turn_read_a_block_once(
    copies: int, m: int, n: int, sides: tuple[int, int], high: int, wide: int, data: st.DataObject
) -> None:
    mesh = CoreMesh(*sides)
    part = SummaTiling(high, 16, wide, data.draw(st.sampled_from([r for r in range(1, mesh.rows + 1) if mesh.rows % r == 0])))
    blocks, groups = summa_diagonal.block_counts(GemmShape(m, 64, n), part, mesh, copies), mesh.rows // part.rows
    item = np.arange(copies * blocks.down * blocks.across)
    turn, copy = item // groups, item // (blocks.down * blocks.across)
    down, across = item // blocks.across % blocks.down, item % blocks.across
    counted = [len(np.unique(np.stack([turn, copy, place]), axis=1).T) for place in (down, across)]
    rows, cols, outputs = distinct_rows_and_columns(blocks, groups, copies)
    assert outputs == len(item)
    assert counted[0] <= rows <= counted[0] + copies * blocks.down
    assert counted[1] <= cols <= len(item)
    if blocks.across % groups == 0 or groups % blocks.across == 0:
        assert rows == counted[0]


def test_what_all_fits_never_comes_from_main_memory() -> None:
    found_metrics = metrics("chip=tile_gh200", "model=qwen3_1b7", PART, "chip.l2.size='60 GB'", "workload.batch=[4]")
    assert found_metrics["hbm_bytes"] == 0
    assert found_metrics["hbm_utilisation"] == 0


@pytest.mark.parametrize("model", MODELS)
def test_rows_add_up_to_the_latency(model: str) -> None:
    given_question = question(
        model, PART, "chip.l2.size='2 GB'", "workload.batch=[8]", "workload.prompt=500", "workload.output=10"
    )
    (latency,) = columns([given_question.base], given_question)["latency"]
    explanation = explain(given_question.base, given_question.workload.cases[0])
    assert explanation.seconds == pytest.approx(latency, rel=1e-9)
    assert all(sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-6, abs=1e-12) for row in explanation.rows)
    assert explanation.by_bound()["l2"] > 0
    assert explanation.by_bound()["hbm"] > 0


def test_a_batch_is_its_designs_one_by_one() -> None:
    rng = np.random.default_rng(6)
    given_question = question("qwen3_1b7", PART, "workload.batch=[8]", "workload.prompt=300", "workload.output=4")
    designs = [
        replace_leaves(
            given_question.base, {"chip.l2.size": 10 ** rng.uniform(7, 10.5), "chip.l2.bandwidth": 10 ** rng.uniform(12, 14)}
        )
        for _ in range(8)
    ]
    together = columns(designs, given_question)
    for place, design in enumerate(designs):
        for name, column in columns([design], given_question).items():
            assert together[name][place] == pytest.approx(column[0], rel=1e-9, nan_ok=True), name


@pytest.mark.slow
def test_tiles_that_serve_read_less_of_main_memory() -> None:
    load = ("chip=tile_gh200", "model=qwen3_1b7", "workload=serving", "workload.requests=4")
    plain, cached = metrics(*load), metrics(*load, PART, "chip.l2.size='4 GB'")
    assert cached["tpot"] < plain["tpot"]
    assert cached["hbm_utilisation"] < 0.5 * plain["hbm_utilisation"]


SMALL = (
    *(f"model.qwen3_1b7.{size}" for size in ("layers=2", "vocab=2000", "ffn_intermediate=1000", "hidden=512")),
    *("workload.batch=[2]", "workload.prompt=60", "workload.output=2"),
    *("chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4"),
)


def played(design: Design, shape: Question, fidelity: str) -> dict[str, float]:
    columns = evaluate(stack_designs([design]), shape.workload, fidelity=fidelity).columns
    return {name: float(columns[name][0]) for name in TIMES if name in columns}


def test_events_play_blocks_that_come_through_a_cache() -> None:
    """Main memory moves what the closed form says; times are as near as without a cache, and rows add up to them."""
    rng, given_question = np.random.default_rng(8), question("qwen3_1b7", PART, *SMALL)
    for _ in range(2):
        memory = {"chip.hbm.channel_bandwidth": given_question.base.chip.hbm.channel_bandwidth * rng.uniform(0.2, 2)}
        cache = {"chip.l2.size": 10 ** rng.uniform(6, 8), "chip.l2.bandwidth": 10 ** rng.uniform(12, 13)}
        leaves = replace_leaves(given_question.base, memory | cache)
        closed, events = played(leaves, given_question, "analytical"), played(leaves, given_question, "events")
        assert events["hbm_bytes"] == pytest.approx(closed["hbm_bytes"], rel=1e-9)
        assert events["latency"] == pytest.approx(closed["latency"], rel=0.1)
    explanation = explain(leaves, given_question.workload.cases[0], fidelity="events")
    assert explanation.seconds == pytest.approx(events["latency"], rel=1e-9)


def test_events_play_a_cache_that_is_left_alone_as_none() -> None:
    given_question, plain = question("qwen3_1b7", PART, *SMALL), question("qwen3_1b7", *SMALL)
    slow = replace_leaves(given_question.base, {"chip.l2.bandwidth": 1e9})
    assert played(slow, given_question, "events") == pytest.approx(played(plain.base, plain, "events"), rel=1e-9)


def test_a_part_of_the_tiles_reads_through_its_share_of_the_cache() -> None:
    """On as many tiles as there are the part is the whole."""
    given_question = question("qwen3_1b7", PART, *SMALL)
    whole, part = (
        evaluate(stack_designs([given_question.base]), given_question.workload, fidelity=word).columns
        for word in ("analytical", "analytical@4")
    )
    for name in ("ttft", "tpot"):
        assert part[name][0] == pytest.approx(whole[name][0], rel=0.1)


def test_a_model_with_states_runs_beside_a_cache() -> None:
    """States are a part of memory beside weights, caches and activations."""
    words = ("chip=tile_gh200", "model=qwen3_next_80b_a3b", "workload.batch=[4]", "workload.sequence=[512]")
    question, latency = asked(*words, PART), metrics(*words, PART)["latency"]
    assert explain(question.base, question.workload.cases[0]).seconds == pytest.approx(latency, rel=1e-9)
    assert latency <= metrics(*words)["latency"]
