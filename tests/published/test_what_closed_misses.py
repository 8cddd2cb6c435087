"""Search for gaps between fidelities, causes of gaps, and overlaps of operators (studies/what_closed_misses)."""

from functools import cache

import pytest

from dse.space.fields import iterate_leaves
from dse.studies.what_closed_misses.causes import COUNTERFACTUALS, design_of, find_cause
from dse.studies.what_closed_misses.families import FAMILIES, DesignFamily
from dse.studies.what_closed_misses.gap_search import Gap, design_gaps, search_gaps
from dse.studies.what_closed_misses.overlaps import merge_programs, operator_pairs, preset, program_seconds
from dse.studies.what_closed_misses.stored_gaps import largest_gaps, read_gaps

QUICK = "nodes of dies"
"""A family whose designs take hundredths of a second."""


def family(name: str) -> DesignFamily:
    return next(family for family in FAMILIES if family.name == name)


@cache
def found_gaps(designs: int) -> tuple[Gap, ...]:
    return tuple(search_gaps(family(QUICK), 60.0, designs))


def stored_gap(name: str) -> Gap:
    """The largest stored gap of a family."""
    return max((gap for gap in read_gaps() if gap.family == name), key=lambda gap: abs(gap.gap))


def test_a_search_finds_larger_gaps_than_its_first_designs() -> None:
    first = {gap.settings for gap in found_gaps(8)}
    largest = max(abs(gap.gap) for gap in found_gaps(30))
    assert largest > max(abs(gap.gap) for gap in found_gaps(30) if gap.settings in first)


def test_equal_searches_find_equal_gaps() -> None:
    assert tuple(search_gaps(family(QUICK), 60.0, 8)) == found_gaps(8)


@pytest.mark.parametrize("name", [QUICK, "dies with a cache"])
def test_a_stored_gap_is_that_of_its_settings(name: str) -> None:
    stored = stored_gap(name)
    design, workload = design_of(family(name), stored, family(name).overrides)
    again = {gap.phase: gap for gap in design_gaps(family(name), design, workload, stored.settings)}[stored.phase]
    assert (again.analytical, again.simulated) == pytest.approx((stored.analytical, stored.simulated), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "category", "where"), [(QUICK, "link contention", "combine"), ("dies with a cache", "memory banks", "attention")]
)
def test_the_cause_of_a_gap_is_what_closes_it(name: str, category: str, where: str) -> None:
    gap = stored_gap(name)
    cause = find_cause(gap)
    assert cause.category == category
    assert where in cause.where
    assert abs(cause.left) < abs(gap.gap) / 2


def test_every_counterfactual_is_of_a_setting_that_some_family_has() -> None:
    addresses = {address for family in FAMILIES for address, _, _ in iterate_leaves(family.study().question.base)}
    words = " ".join(word for family in FAMILIES for word in family.overrides)
    for counterfactual in COUNTERFACTUALS:
        of_load = any(old in words for old in counterfactual.overrides)
        assert of_load or counterfactual.limit or addresses & set(counterfactual.leaves), counterfactual.what


def test_the_largest_gaps_are_of_different_kinds() -> None:
    kinds = [(gap.family, gap.phase, gap.gap > 0) for gap in largest_gaps(read_gaps())]
    assert len(set(kinds)) == len(kinds) == 10


def test_operators_together_take_no_less_than_the_longer_one() -> None:
    chip = preset("tile32", "chip.mesh.rows=4", "chip.mesh.cols=4", "chip.hbm.channels=4")
    for _, _, first, second in operator_pairs(chip):
        alone = [program_seconds(program, chip, "events") for program in (first, second)]
        assert program_seconds(merge_programs(first, second), chip, "events") >= max(alone) * (1 - 1e-9)
