"""Prices that designs share: those of each by itself, worked out once, and never those of another structure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.accounting.serving_instances import SERVING_PREFIXES
from dse.evaluators.accounting.serving_instances import shared_part_times as shared_prices
from dse.evaluators.accounting.serving_instances.shared_part_times import SharedTimes
from dse.evaluators.accounting.serving_runs.run_metrics import select_rows
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.fields import replace_leaves
from tests.samples import asked

BASE = asked("chip=tile_gh200", "model=qwen3_1b7", "workload=serving").base


def several(seed: int, count: int, words: str = "flat_async") -> Design:
    """Designs with few widths of links and few bandwidths, which come again, and with batches that prices do not depend on."""
    rng = np.random.default_rng(seed)
    columns = {
        "chip.noc.word_bytes": rng.choice([32.0, 64.0, 128.0], count),
        "chip.hbm.channel_bandwidth": rng.choice([1e10, 2e10], count),
        "mapping.serving.max_batch_size": rng.choice([8.0, 16.0], count),
    }
    return replace_leaves(BASE, {**columns, "mapping.prefill.attention.dataflow": words})


def price(design: Design, tokens: float) -> Array:
    """Something that depends on a design, shape (2, designs)."""
    width, pace = np.broadcast_arrays(np.ravel(design.chip.noc.word_bytes), np.ravel(design.chip.hbm.channel_bandwidth))
    return np.array([tokens / width, pace + tokens])


@pytest.mark.sampled
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(2, 40), min_size=1, max_size=4))
def test_what_is_shared_is_what_each_design_is_by_itself_and_is_worked_out_once(seed: int, counts: list[int]) -> None:
    priced: list[tuple[float, ...]] = []

    def spent(design: Design, tokens: float) -> Array:
        width, pace = np.broadcast_arrays(np.ravel(design.chip.noc.word_bytes), np.ravel(design.chip.hbm.channel_bandwidth))
        priced.extend((tokens, *row) for row in zip(width.tolist(), pace.tolist(), strict=True))
        return price(design, tokens)

    shared_prices._structures.forget()
    for place, count in enumerate(counts):
        design = several(seed + place, count)
        times = SharedTimes(design, lambda designs_part: designs_part, SERVING_PREFIXES)
        for tokens in (1.0, 7.0):
            costs = times.spent_for(tokens, lambda designs_part, tokens=tokens: spent(designs_part, tokens))  # type: ignore[misc]
            for row in range(count):
                assert costs[:, row].tolist() == price(select_rows(design, np.array([row])), tokens)[:, 0].tolist()
    assert len(priced) == len(set(priced))


def test_another_word_shares_nothing_unless_it_is_said_not_to_matter() -> None:
    def asked_of(words: str, without: tuple[str, ...]) -> float:
        times = SharedTimes(several(0, 5, words), lambda designs_part: designs_part, without)
        return float(times.spent_for("which", lambda designs_part: price(designs_part, 0.0) * 0 + len(words))[0, 0])

    shared_prices._structures.forget()
    assert asked_of("flat_async", SERVING_PREFIXES) != asked_of("flash3", SERVING_PREFIXES)
    apart = (*SERVING_PREFIXES, "mapping.prefill.attention.")
    assert asked_of("flat_async", apart) == asked_of("flash3", apart)


def test_structures_that_were_not_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_prices._structures.forget()
    monkeypatch.setattr(shared_prices, "MAX_VALUES", 5)
    for words in ("flat_async", "flash3", "flat_tree"):
        times = SharedTimes(several(0, 9, words), lambda designs_part: designs_part, SERVING_PREFIXES)
        times.spent_for(1.0, lambda designs_part: price(designs_part, 1.0))
    assert len(shared_prices._structures) < 3
    assert times.spent_for(1.0, lambda designs_part: np.full((2, 9), np.nan))[0, 0] > 0
