"""A space over several chips answers as the spaces of its chips do, row by row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate
from dse.search.design_encoding import DesignEncoder
from dse.space.design import design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, IntervalKnob, Knob, order_by_dependency
from dse.space.multi_chip_space import CHIP_KNOB, MultiChipSpace, chips_with_address, multi_chip_space
from tests.samples import asked

NAMES = ("a100", "npu64", "wse2")
BASES = {name: asked(f"chip={name}", "workload.prompt=512", "workload.output=64", "workload.batch=[2]").base for name in NAMES}
KNOBS: tuple[Knob, ...] = (
    ChoiceKnob("mapping.both.partition", ("k", "mn")),
    ChoiceKnob("mapping.decode.ktree_k", (1, 2), when=(("mapping.decode.gemv", ("ktree",)),)),
    ChoiceKnob("mapping.decode.gemv", ("ktree", "ring")),
    ChoiceKnob("chip.hbm.bandwidth", (1e12, 2e12), when=((CHIP_KNOB, ("a100",)),)),
    ChoiceKnob("mapping.both.tp", (1, 2, 4)),
    ChoiceKnob("mapping.prefill.rows", (360, 480)),
    ChoiceKnob("chip.technology.static_power_density", (0.05, 0.1)),
)
GRID = multi_chip_space(BASES, KNOBS)
MIXED = multi_chip_space(BASES, (*KNOBS, IntervalKnob("chip.noc.hop_cycles", 1.0, 3.0)))
SEEDS = st.integers(0, 2**32 - 1)


def rows(space: MultiChipSpace, columns: dict[str, np.ndarray]) -> list[dict[str, object]]:
    return [space.row(columns, place) for place in range(len(columns[CHIP_KNOB]))]


def test_the_grid_is_that_of_each_chip_one_after_the_other() -> None:
    for name, space in GRID.spaces.items():
        own = space.grid(0, space.combinations or 0)
        alone = [{CHIP_KNOB: name} | space.row(own, place) for place in range(len(next(iter(own.values()))))]
        assert [row for row in rows(GRID, GRID.grid(0, GRID.combinations or 0)) if row[CHIP_KNOB] == name] == alone


@given(st.integers(0, 200), st.integers(1, 60))
def test_blocks_of_the_grid_are_parts_of_it(start: int, size: int) -> None:
    total = GRID.combinations or 0
    start, stop = min(start, total - 1), min(start + size, total)
    whole = rows(GRID, GRID.grid(0, total))
    assert all(row in whole for row in rows(GRID, GRID.grid(start, stop)))
    parts = [row for low in range(0, total, size) for row in rows(GRID, GRID.grid(low, min(low + size, total)))]
    assert parts == whole


@pytest.mark.sampled
@given(SEEDS)
def test_a_row_has_the_design_and_key_of_its_chips_own_space(seed: int) -> None:
    columns = MIXED.sample(np.random.default_rng(seed).random((20, len(MIXED.knobs))))
    for values in rows(MIXED, columns):
        own = {address: value for address, value in values.items() if address != CHIP_KNOB}
        alone = MIXED.spaces[str(values[CHIP_KNOB])]
        assert set(own) <= set(alone.targets)
        assert MIXED.design_at(values) == alone.design_at(own)
        assert MIXED.key_at(values) == alone.key_at(own) == design_key(alone.design_at(own))
        assert MIXED.canonical(values) == values


@given(SEEDS)
def test_values_of_knobs_that_a_chip_lacks_change_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {knob.address: rng.choice(knob.values).item() if isinstance(knob, ChoiceKnob) else 2.0 for knob in MIXED.knobs}
    kept = MIXED.canonical(values)
    assert all(MIXED.active(address, values) == (address in kept) for address in values)
    assert MIXED.key_at(values) == MIXED.key_at(kept)


@given(SEEDS)
def test_places_are_designs_and_back(seed: int) -> None:
    places = DesignEncoder(MIXED)  # type: ignore[arg-type]
    for row in places.clear_inactive(places.rows_at(np.random.default_rng(seed).random((20, len(MIXED.knobs))))):
        values = places.decode_row(row)
        assert values == MIXED.canonical(values)
        np.testing.assert_allclose(places.encode_design(values), row, rtol=1e-9)


@pytest.mark.parametrize("most", [7, 1000])
def test_a_batch_over_chips_is_its_designs_one_by_one(most: int) -> None:
    workload = asked("chip=a100", "workload.prompt=512", "workload.output=64", "workload.batch=[2]").workload
    columns = MIXED.sample(np.random.default_rng(3).random((60, len(MIXED.knobs))))
    parts = MIXED.parts(columns, most)
    assert sorted(np.concatenate(parts).tolist()) == list(range(60))
    assert max(map(len, parts)) <= most
    for part in parts:
        selected_columns = {address: column[part] for address, column in columns.items()}
        evaluation = evaluate(MIXED.stack(selected_columns), workload)
        for place, values in enumerate(rows(MIXED, selected_columns)):
            alone = evaluate(stack_designs([MIXED.design_at(values)]), workload)
            for name in ("tpot", "system_mm2"):
                np.testing.assert_allclose(evaluation.columns[name][place], alone.columns[name][0], rtol=1e-12)
            assert evaluation.limit[place] == alone.limit[0]


def test_a_knob_that_no_chip_has_names_the_nearest_of_any() -> None:
    with pytest.raises(DesignError, match="ktree_k"):
        chips_with_address(BASES, "mapping.decode.ktreek")


@pytest.mark.parametrize(
    ("knob", "says"),
    [
        (ChoiceKnob("mapping.both.partition", ("k", "sideways")), "npu64"),
        (ChoiceKnob("mapping.both.tp", (1, 2), when=((CHIP_KNOB, ("wse2",)),)), "chip wse2 has no such field"),
        (ChoiceKnob("mapping.both.tp", (1, 2), when=((CHIP_KNOB, ("a10",)),)), "a100"),
        (ChoiceKnob("mapping.both.tp", (1, 2), when=(("mapping.decode.gemv", ("ktree",)),)), "no chip has it"),
        (ChoiceKnob("mapping.both.tp", (1, 2), when=(("mapping.both.tp", (1,)),)), "its 'when' depends on itself"),
    ],
)
def test_a_knob_that_cannot_count_is_refused_with_the_chip(knob: Knob, says: str) -> None:
    others = tuple(other for other in KNOBS if other.address != knob.address)
    with pytest.raises(DesignError, match=says):
        multi_chip_space(BASES, (*others, knob))


def test_knobs_stand_after_those_they_depend_on() -> None:
    addresses = [knob.address for knob in order_by_dependency(MIXED.knobs)]
    assert all(addresses.index(other) < addresses.index(knob.address) for knob in MIXED.knobs for other, _ in knob.when)
