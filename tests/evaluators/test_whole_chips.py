"""Chips of several designs as one: what is worked out for them at once is what each by itself has, to the bit."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators.silicon import area, energy, price
from dse.evaluators.silicon import chip_batches as whole
from dse.evaluators.silicon.chip_batches import batch_chips
from dse.evaluators.silicon.manufacturing_limits import exceeded_limits
from dse.evaluators.silicon.manufacturing_limits import silicon_limits as silicon_limits
from dse.space.array_math import ALIKE, distinct_values, map_distinct, sum_nonzero
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import iterate_leaves, leaf_at, replace_leaves
from tests.samples import asked as question_of


@pytest.mark.parametrize("chip", ["a100", "npu64", "wse2", "wafer64"])
def test_silicon_of_groups_of_a_block_is_that_of_each_by_itself(chip: str) -> None:
    """To the bit, whatever words and numbers groups have."""
    question, rng = question_of(f"chip={chip}"), np.random.default_rng(len(chip))
    groups = []
    for _ in range(6):
        size = int(rng.integers(1, 40))
        numbers = {
            "clock": rng.uniform(0.6, 1.3, size) * question.base.chip.clock,
            "die.max_power_density": rng.uniform(0.1, 2.0, size),
        }
        words = {"die.reticle": float(rng.choice([400.0, 858.0]))}
        groups.append(replace_leaves(question.base.chip, numbers | words))
    alone = [
        (
            silicon_limits(replace_leaves(group, {})),
            price.price_by_part(replace_leaves(group, {})),
            energy.static_power(replace_leaves(group, {})),
        )
        for group in groups
    ]
    assert len({id(made) for _, made, _ in whole.chips_by_batch(groups).values()}) in (1, 2)  # those of one reticle are one
    with batch_chips([(np.arange(np.size(group.clock)), Design(group, question.base.mapping)) for group in groups]):
        for group, (limits, spent, idle) in zip(groups, alone, strict=True):
            found_limits = silicon_limits(group)
            assert [limit.address for limit in found_limits] == [limit.address for limit in limits]
            for silicon_limit, other in zip(found_limits, limits, strict=True):
                assert np.array_equal(silicon_limit.need, other.need)
                assert np.array_equal(silicon_limit.have, other.have)
            assert all(np.array_equal(value, spent[name]) for name, value in price.price_by_part(group).items())
            assert np.array_equal(energy.static_power(group), idle)
    assert not whole._parts.innermost


@pytest.mark.parametrize("chip", ["a100", "npu64", "wse2", "wafer64", "tile_gh200", "tpu_v5p"])
def test_silicon_of_few_values_is_worked_out_once_for_each_combination(chip: str) -> None:
    """To the bit, also of the same values in another order, and whatever memory there is."""
    base, rng = question_of(f"chip={chip}"), np.random.default_rng(len(chip))
    given_chip, size = base.base.chip, int(rng.integers(400, 800))
    addresses = [
        address
        for address, _, _ in iterate_leaves(given_chip)
        if address in ("clock", "hbm.bandwidth", "tile.sram", "core.sram", "hbm.capacity")
    ]
    several = [np.sort(rng.uniform(0.6, 1.3, int(rng.integers(2, 7)))) * leaf_at(given_chip, address) for address in addresses]
    for _ in range(2):
        numbers = {address: rng.choice(values, size) for address, values in zip(addresses, several, strict=True)}
        leaves, alone = replace_leaves(given_chip, numbers), replace_leaves(given_chip, numbers)
        expected = [work(alone) for work in OF_CHIPS]
        with batch_chips([(np.arange(size), Design(leaves, base.base.mapping))]):
            _, made, places = (whole._parts.innermost or {})[id(leaves)]
            work = [work(leaves) for work in OF_CHIPS]
        assert len(made.chip.clock) == prod(
            len(values) for address, values in zip(addresses, several, strict=True) if address not in whole.UNREAD
        )
        assert len(places) == size
        for left, right in zip(work, expected, strict=True):
            assert left.keys() == right.keys()
            assert all(np.array_equal(left[name], right[name]) for name in left)


OF_CHIPS: tuple[Callable[[Chip], dict[str, Any]], ...] = (
    area.area_by_block,
    energy.design_power_by_part,
    price.price_by_part,
    lambda chip: {"static": energy.static_power(chip), "system": price.system_price(chip), "plugged": price.wall_power(chip)},
    lambda chip: {limit.address: limit.have for limit in silicon_limits(chip)},
    lambda chip: {name: part for limit in silicon_limits(chip) for name, part in (("need", limit.need), *limit.parts)},
)
"""What is known of a chip alone, by name."""


@pytest.mark.parametrize("chip", ["a100", "npu64", "wse2"])
def test_limits_that_every_design_keeps_are_left_out(chip: str) -> None:
    given_chip, rng = question_of(f"chip={chip}").base.chip, np.random.default_rng(len(chip))
    for scale in (1.0, 40.0):
        leaves = replace_leaves(given_chip, {"clock": given_chip.clock * rng.uniform(0.5, scale, 50)})
        over = [limit.address for limit in silicon_limits(leaves) if np.any(limit.need > limit.have)]
        assert [limit.address for limit in exceeded_limits(leaves)] == over
    assert "chip.clock" in over


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=40, unique=True), st.integers(1, 900), st.integers(0, 99))
def test_few_values_are_told_and_many_are_not(values: list[float], size: int, seed: int) -> None:
    numbers = np.random.default_rng(seed).choice(values, size)
    few = np.unique(numbers)
    distinct = distinct_values(numbers)
    if distinct is None:  # many, one, or two that are nearly the same
        near = np.diff(few).min() < (few[-1] - few[0]) / 4000 if len(few) > 1 else True
        assert near or len(few) * ALIKE > size
    else:
        assert np.isin(few, distinct[0]).all()  # beside values of the same ends from before
        assert (np.diff(distinct[0]) > 0).all()
        assert np.array_equal(distinct[0][distinct[1]], numbers)
    assert np.array_equal(map_distinct(np.sqrt, numbers), np.sqrt(numbers))


@given(st.lists(st.one_of(st.just(0.0), st.floats(0, 1e9), st.lists(st.floats(0, 1e9), min_size=3, max_size=3)), max_size=6))
def test_a_total_is_the_sum(values: list[Any]) -> None:
    terms = [np.array(value) if isinstance(value, list) else value for value in values]
    assert np.array_equal(sum_nonzero(terms), sum(terms))
