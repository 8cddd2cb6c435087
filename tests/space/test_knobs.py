from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import build_question
from dse.config.sweep_syntax import parse_knobs
from dse.space.design import Design, design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from tests.samples import base, wide


@pytest.fixture(scope="module")
def design() -> Design:
    return base()


def space(design: Design) -> Space:
    return Space(
        design,
        (
            ChoiceKnob("chip.l2.size", (8e6, 16e6, 32e6)),
            ChoiceKnob("mapping.both.prefetch", ("none", "whole")),
            ChoiceKnob("mapping.both.prefetch_share", (0.5, 1.0), when=(("mapping.both.prefetch", ("whole",)),)),
            ChoiceKnob("mapping.both.tp", (2, 4)),
        ),
    )


def test_a_range_leaves_out_its_end() -> None:
    assert parse_knobs({"x": "range(8, 24, 8)"})["x"]["values"] == [8, 16]


def test_an_interval_has_both_ends(design: Design) -> None:
    knob = IntervalKnob("chip.l2.size", 8e6, 16e6)
    columns = Space(design, (knob,)).sample(np.array([[0.0], [1.0]]))
    assert columns["chip.l2.size"].tolist() == [8e6, 16e6]


def test_a_tag_gives_the_unit_of_a_sweep() -> None:
    question = build_question(compose(["space=l2"]), Path())
    assert question.space.knobs[0].values[:2] == (8e6, 16e6)  # type: ignore[union-attr]


def test_both_moves_the_leaf_of_each_phase(design: Design) -> None:
    moved = space(design).design_at({"mapping.both.tp": 2})
    assert (moved.mapping.prefill.tp, moved.mapping.decode.tp) == (2, 2)


def test_the_grid_has_no_row_twice_where_a_knob_is_conditional(design: Design) -> None:
    tried = space(design)
    columns = tried.grid(0, tried.combinations or 0)
    rows = [tuple(tried.row(columns, i).items()) for i in range(len(columns["chip.l2.size"]))]
    assert len(set(rows)) == len(rows) == 3 * 2 * (1 + 2)


def test_an_inactive_knob_leaves_the_base_value(design: Design) -> None:
    moved = space(design).design_at({"mapping.both.prefetch": "none", "mapping.both.prefetch_share": 0.5})
    assert moved.mapping.prefill.prefetch_share == design.mapping.prefill.prefetch_share


def test_stacked_columns_are_the_designs_of_their_rows(design: Design) -> None:
    tried = space(design)
    columns = tried.grid(0, tried.combinations or 0)
    for rows, group in tried.stack(columns).groups:
        for place, row in enumerate(rows):
            single_design = tried.design_at(tried.row(columns, row))
            for address, value, _ in iterate_leaves(single_design):
                entry = next(v for a, v, _ in iterate_leaves(group) if a == address)
                assert (entry[place] if isinstance(entry, np.ndarray) else entry) == value, address


def test_parts_of_rows_have_one_structure_where_it_has_rows_enough(design: Design) -> None:
    shapes = (ChoiceKnob("mapping.both.tp", (1, 2, 4)), ChoiceKnob("mapping.both.prefetch", ("none", "whole")))
    tried = Space(
        design, (IntervalKnob("chip.l2.size", 8e6, 3e7), ChoiceKnob("chip.network.ports", tuple(range(2, 100))), *shapes)
    )
    columns = tried.sample(np.random.default_rng(0).random((6000, 4)))
    parts = tried.parts(columns, 900)
    assert sorted(np.concatenate(parts).tolist()) == list(range(6000))
    assert max(map(len, parts)) <= 900
    for knob in shapes:
        assert all(len(set(columns[knob.address][part])) == 1 for part in parts)
    few = tried.parts({address: column[:50] for address, column in columns.items()}, 900)
    assert [len(part) for part in few] == [50]


@pytest.mark.parametrize(
    "knob",
    [
        ChoiceKnob("chip.l3.size", (1.0,)),
        ChoiceKnob("mapping.both.prefetch", ("hole",)),
        ChoiceKnob("chip.cores", (1.5,)),
        ChoiceKnob("chip.cores", (2, 2)),
        IntervalKnob("chip.cores", 1, 9),
        IntervalKnob("chip.l2.size", 9.0, 1.0),
        ChoiceKnob("mapping.both.prefetch_share", (1.5,)),
    ],
)
def test_a_knob_that_makes_no_sense_is_refused(design: Design, knob: ChoiceKnob | IntervalKnob) -> None:
    with pytest.raises(DesignError):
        Space(design, (knob,))


def test_two_knobs_on_one_leaf_are_refused(design: Design) -> None:
    with pytest.raises(DesignError, match="both set"):
        Space(design, (ChoiceKnob("mapping.both.tp", (2, 4)), ChoiceKnob("mapping.prefill.tp", (1, 2))))


def test_equal_designs_have_equal_keys(design: Design) -> None:
    assert design_key(replace_leaves(design, {"chip.cores": 435})) == design_key(replace_leaves(design, {"chip.cores": 435.0}))


@given(st.sampled_from([a for a, v, _ in iterate_leaves(base()) if not isinstance(v, str)]))
def test_every_number_is_in_the_key(address: str) -> None:
    design = base()
    value = next(v for a, v, _ in iterate_leaves(design) if a == address)
    assert design_key(design) != design_key(replace_leaves(design, {address: value * 1.5 + 1}))


@pytest.mark.sampled
@given(st.integers(0, 2**32 - 1))
def test_the_key_at_values_is_the_key_of_the_design_there(seed: int) -> None:
    tried = wide(base())
    columns = tried.sample(np.random.default_rng(seed).random((1, len(tried.knobs))))
    values = tried.row(columns, 0)
    assert tried.key_at(values) == design_key(tried.design_at(values))


def test_one_design_stacked_is_itself(design: Design) -> None:
    assert stack_designs([design]).groups[0][1] is design
