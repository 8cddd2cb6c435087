"""Step prices: what a table gives between its points, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from dse.evaluators.machine.compile_cache import compiled_loop
from dse.evaluators.serving.iteration_time import (
    constant_time,
    geometric_axes,
    linear_time,
    measure_table_errors,
    tabulate_time,
)
from dse.evaluators.serving.iteration_time_lookup import (
    CONTEXT,
    decode_corners,
    interpolate_context,
    interpolate_table,
    iteration_seconds,
    table_at_composition,
)
from dse.evaluators.serving.kv_memory import KvMemory, RequestMemory, paged_memory, sram_shares, two_level_memory
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.space.errors import DesignError
from dse.space.requests import make_requests


def rough(prompt: Any, prompt_context: Any, decodes: Any, context: Any, spilled: Any) -> Any:
    """A roof, so that no interpolation is exact."""
    work = prompt * (1 + 1e-4 * prompt_context) + decodes
    read = 3000.0 + decodes * context * (0.01 + 0.1 * spilled)
    return 1e-6 * np.maximum(30 * work, read)


def product(prompt: Any, prompt_context: Any, decodes: Any, context: Any, spilled: Any) -> Any:
    return 1e-3 + 1e-6 * prompt + 1e-9 * prompt * prompt_context + 1e-5 * decodes + 1e-8 * decodes * context * (1 + spilled)


def plain(prompt: Any, prompt_context: Any, decodes: Any, context: Any, spilled: Any) -> Any:
    return product(prompt, 0.0, decodes, context, spilled)


AXES = geometric_axes(512, 8192, 64, 8192, finer=0.5, spilled=True)
ROUGH, PRODUCT = tabulate_time(rough, AXES), tabulate_time(product, AXES)
within = st.tuples(*(st.floats(float(axis[0]), float(axis[-1])) for axis in AXES))


@given(within)
def test_a_table_is_multilinear_between_its_points(at: tuple[float, ...]) -> None:
    peer = RegularGridInterpolator(tuple(AXES), ROUGH.table.reshape([len(axis) for axis in AXES]))
    assert interpolate_table(ROUGH, at) == pytest.approx(float(peer([at])[0]), rel=1e-9, abs=1e-15)


@given(within, st.sampled_from(AXES[0][1:].tolist()), st.floats(0, float(AXES[1][-1])))
def test_a_table_of_products_of_counts_is_exact_at_its_tokens(at: tuple[float, ...], tokens: float, past: float) -> None:
    """Of one prompt whatever is before it; between points a table is linear in tokens, and pairs grow with their square."""
    counts_at = (tokens, past + (tokens + 1) / 2, *at[2:])
    assert table_at_composition(PRODUCT, *counts_at) == pytest.approx(float(product(*counts_at)), rel=1e-9)


@given(st.integers(1, 512), st.integers(1, 8))
def test_prompts_by_themselves_have_nothing_of_the_prices_of_several(tokens: int, many: int) -> None:
    """Several take ten times as long: a whole prompt is linear between whole ones, and so many are between so many."""

    def jump(prompt: Any, prompt_context: Any, *_: Any) -> Any:
        return 1.0 + prompt * np.where(prompt_context < 0.9 * (prompt + 1) / 2, 10.0, 1.0)

    table = tabulate_time(jump, AXES)
    none = (0.0, 0.0, 0.0)
    assert table_at_composition(table, float(tokens), (tokens + 1) / 2, *none) == pytest.approx(1 + tokens)
    if many > 1 and tokens >= 64:
        assert table_at_composition(table, float(tokens * many), (tokens + 1) / 2, *none) == pytest.approx(
            1 + 10 * tokens * many
        )


@given(st.integers(64, 2000), st.integers(64, 4096), st.integers(1, 300))
def test_prompts_that_are_many_at_once_take_what_each_of_them_takes(many: int, most: int, tokens: int) -> None:
    """Also of more prompts than `SEVERAL` has: attention is linear in what each has of the tokens, and so is the table."""

    def apart(prompt: Any, prompt_context: Any, *_: Any) -> Any:
        return 1 + prompt * np.maximum(2 * prompt_context - 1, 0.0)

    many = min(many, most)
    table = tabulate_time(apart, geometric_axes(most * 300, 300, most, 300))
    found_table = table_at_composition(table, float(many * tokens), (tokens + 1) / 2, 0.0, 0.0, 0.0)
    # at points beside, prompts of a token have no less than one
    assert found_table == pytest.approx(1 + many * tokens**2, rel=0.12 if tokens == 1 else 0.05)


def test_the_error_of_a_table_is_that_at_compositions_between_its_points() -> None:
    assert measure_table_errors([(tabulate_time(plain, AXES), AXES)], plain)[0].worst < 1e-9
    axes = geometric_axes(512, 8192, 64, 8192, finer=2.0, spilled=True)
    tables = [(ROUGH, AXES), (tabulate_time(rough, axes), axes)]
    coarse, fine = measure_table_errors(tables, rough)
    assert 0 < fine.mean < coarse.mean
    assert fine.mean < fine.worst < coarse.worst
    assert [*measure_table_errors(tables[:1], rough), *measure_table_errors(tables[1:], rough)] == [coarse, fine]


@given(st.lists(st.tuples(st.integers(1, 300_000), st.integers(1, 300_000)), min_size=4, max_size=4))
def test_larger_counts_add_points_and_move_none(counts: list[tuple[int, int]]) -> None:
    few, many = (geometric_axes(*(least(pair) for pair in counts)) for least in (min, max))
    for axis, (points, others, largest) in enumerate(zip(few, many, map(min, counts), strict=False)):
        skipped = int((others < points[0]).sum())  # of more prompts at once, before those of fewer
        assert skipped == 0 or axis == 1
        assert points.tolist() == others[skipped : skipped + len(points)].tolist()
        assert points[-1] >= largest
        assert (points[points >= 0] == np.rint(points[points >= 0])).all()


def test_a_table_prices_a_run_as_the_form_it_was_made_from() -> None:
    many = make_requests([(40 + 7 * i, 5 + i % 9) for i in range(40)]).with_arrivals("poisson", rate=20.0)
    form = linear_time(1e-3, 1e-6, 0.0, 1e-5, 1e-8)
    axes = geometric_axes(512, 512, 64, 512)
    table = tabulate_time(lambda p, c, d, e, s: 1e-3 + 1e-6 * p + 1e-5 * d + 1e-8 * d * e, axes)
    runs = [
        simulate_serving(many, [InstancePool(price, make_policy("chunked_prefill", tokens=64), KvMemory(1000))])
        for price in (form, table)
    ]
    assert runs[0].total["iterations"] == runs[1].total["iterations"]
    assert runs[0]["completed"] == pytest.approx(runs[1]["completed"], rel=1e-9)


@given(st.tuples(*(st.integers(0, 1000) for _ in range(6))))
def test_a_linear_price_is_the_sum_of_its_counts(counts: tuple[int, ...]) -> None:
    prompt, pairs, decodes, positions, past, far = counts
    price = linear_time(1.0, 2.0, 3.0, 5.0, 7.0, 11.0)
    expected = 1 + 2 * prompt + 3 * pairs + 5 * decodes + 7 * positions + 11 * far
    assert (
        iteration_seconds(price, float(prompt), float(pairs), float(decodes), float(positions), float(past), float(far))
        == expected
    )


@given(st.integers(0, 600), st.integers(0, 80), st.integers(1, 9000), st.integers(1, 9000))
def test_an_iteration_of_nothing_has_no_part_in_the_price_of_others(prompt: int, decodes: int, first: int, second: int) -> None:
    table = tabulate_time(lambda p, c, d, e, s: np.where((p > 0) | (d > 0), 0.25, np.nan), AXES)
    if prompt or decodes:
        assert interpolate_table(table, (float(prompt), float(first), float(decodes), float(second), 0.5)) == pytest.approx(
            0.25
        )


def test_prices_that_are_no_time_are_refused() -> None:
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(DesignError, match="iteration time"):
            constant_time(bad)
    with pytest.raises(DesignError, match="iteration time"):
        linear_time(1.0, -1e-9)
    with pytest.raises(DesignError, match=r"iteration-time table: .*0.0.* s for prefill_tokens"):
        tabulate_time(lambda *at: np.zeros_like(at[0]), AXES)
    with pytest.raises(DesignError, match="decode_requests must rise"):
        tabulate_time(product, [AXES[0], AXES[1], np.array([1.0, 1.0]), *AXES[3:]])
    with pytest.raises(DesignError, match="spilled must begin with 0"):
        tabulate_time(product, [*AXES[:4], np.array([0.5, 1.0])])


@compiled_loop
def decodes(price: Any, requests: Any, low: Any, above: Any) -> Any:
    return interpolate_context(price, decode_corners(price, requests), low, above)


@given(st.integers(1, 80), st.lists(st.floats(1.0, 3e4), min_size=1, max_size=20), st.booleans())
def test_decodes_that_go_on_have_the_price_of_each_by_itself(requests: int, contexts: list[float], alone: bool) -> None:
    """To the bit, at points of the table and between and beyond them, and where nothing else has an axis."""
    axes = [np.zeros(1), np.zeros(1), AXES[2], AXES[3], np.zeros(1)] if alone else AXES
    table = tabulate_time(rough, axes) if alone else ROUGH
    points = axes[CONTEXT]
    for context in [*contexts, *points[1:]]:
        low = int(np.searchsorted(points[1:-1], context, side="right"))
        above = (context - points[low]) / (points[low + 1] - points[low])
        found_decodes = decodes(table, float(requests), low, above)
        assert found_decodes == interpolate_table(table, (0.0, 0.0, float(requests), float(context), 0.0))


def test_a_price_that_falls_below_nothing_beyond_its_table_stops_the_run() -> None:
    axes = [np.array([0.0, 1.0, 2.0]), np.zeros(1), np.array([0.0, 1.0]), np.zeros(1), np.zeros(1)]
    table = tabulate_time(lambda p, c, d, e, s: 3.0 - p, axes)
    with pytest.raises(DesignError, match="an iteration of 50 prompt tokens"):
        simulate_serving(make_requests([(50, 2)], [0.0]), [InstancePool(table, make_policy("chunked_prefill"), KvMemory(100))])


@given(st.floats(1, 1e9), st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1))
def test_sram_is_shared_out_to_the_last_byte_that_is_wanted(sram: float, kv: float, weights: float, share: float) -> None:
    shared = sram_shares(sram, kv, weights, kv_share=share)
    assert sum(shared) <= sram * (1 + 1e-12)
    assert 0 <= shared.kv <= kv
    assert 0 <= shared.weights <= weights
    assert sum(shared) == pytest.approx(min(sram, kv + weights))


def test_memory_that_holds_nothing_is_refused() -> None:
    with pytest.raises(DesignError, match="one block of 16 tokens"):
        paged_memory(100, RequestMemory(1e3))
    with pytest.raises(DesignError, match="one buffer of 4096 tokens"):
        two_level_memory(1e6, 1e6, RequestMemory(1e3), longest=4096)
