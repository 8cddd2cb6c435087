"""Rows of numbers stand for designs, and a model of rows predicts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.search import acquisition
from dse.search.acquisition import HypervolumeAcquisition, KnownResults
from dse.search.design_encoding import DesignEncoder
from dse.search.gaussian_process import fit_scales, predict
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from tests.samples import base

SPACE = Space(
    base(),
    (
        ChoiceKnob("mapping.both.prefetch_share", (0.25, 0.5, 1.0), ((("mapping.both.prefetch"), ("whole", "partial")),)),
        ChoiceKnob("chip.cores", tuple(range(100, 601, 100))),
        ChoiceKnob("mapping.both.prefetch", ("none", "whole", "partial")),
        ChoiceKnob("mapping.both.tp", (8,)),
        IntervalKnob("chip.l2.size", 1e6, 1e9, log=True),
    ),
)
PLACES = DesignEncoder(SPACE)
SEEDS = st.integers(0, 2**32 - 1)


def rows(seed: int, count: int = 50) -> np.ndarray:
    return PLACES.rows_at(np.random.default_rng(seed).random((count, len(SPACE.knobs))))


@pytest.mark.sampled
@given(SEEDS)
def test_a_row_is_its_design_and_back(seed: int) -> None:
    for row, full in zip(PLACES.clear_inactive(rows(seed)), rows(seed), strict=True):
        values = PLACES.decode_row(row)
        assert values == SPACE.canonical(PLACES.decode_row(full))
        np.testing.assert_allclose(PLACES.encode_design(values), row, rtol=1e-9)


@given(SEEDS, st.floats(0, 0.9))
def test_a_moved_row_is_a_design_of_the_space(seed: int, share: float) -> None:
    before = rows(seed)
    after = PLACES.mutated_rows(before, np.full(len(before), share), np.random.default_rng(seed))
    changed = (before != after).sum(axis=1)
    assert changed.any()
    assert share or (changed <= 1).all()
    for row in after:
        values = PLACES.decode_row(row)
        for knob in SPACE.knobs:
            if isinstance(knob, ChoiceKnob):
                assert values[knob.address] in knob.values
            else:
                assert knob.low <= values[knob.address] <= knob.high


@given(SEEDS)
def test_a_line_goes_on_as_far_as_the_others_are_apart_and_stays_in_the_space(seed: int) -> None:
    single_rows, two, three = rows(seed), rows(seed + 1), rows(seed + 2)
    far = PLACES.differential_rows(single_rows, two, three, np.random.default_rng(seed))
    assert (PLACES.differential_rows(single_rows, two, two, np.random.default_rng(seed)) == single_rows).all()
    assert ((far >= 0) & (far <= [2, 5, 2, 0, 1])).all()
    assert (far[:, 2] == single_rows[:, 2]).all()


def test_features_measure_numbers_by_logs_and_words_alike() -> None:
    full = PLACES.rows_at(np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [0.5, 0.99, 0.5, 0.0, 1.0], [0.99, 0.5, 0.99, 0.0, 0.5]]))
    x = PLACES.compute_features(PLACES.clear_inactive(full))
    assert x.shape == (3, len(PLACES.groups))
    assert x[0, 0] == 0.5  # no cap without prefetching
    assert x[1, 0] == pytest.approx(np.log(2) / np.log(4))
    words = x[:, PLACES.groups == 2]
    assert ((words[:, None] - words) ** 2).sum(axis=2) == pytest.approx(1 - np.eye(3))


@settings(max_examples=20)
@given(SEEDS)
def test_a_process_passes_through_what_it_learned_and_doubts_what_is_far(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, groups = rng.random((40, 3)), np.arange(3)
    y = np.sin(3 * x[:, 0]) + x[:, 1]
    y = (y - y.mean()) / y.std()
    scales = fit_scales(x, groups, y)
    assert scales.lengths[2] > scales.lengths[0]  # nothing depends on the third
    mean, spread = predict(scales, x, groups, y, x)
    np.testing.assert_allclose(mean, y, atol=0.05)
    far_mean, far_spread = predict(scales, x, groups, y, x + 1000)
    assert (far_spread > 3 * spread).all()
    np.testing.assert_allclose(far_mean, 0, atol=1e-6)


def test_what_promises_most_is_feasible_and_beyond_the_front() -> None:
    """Smaller is better in both objectives, left of a third nothing fits; the best feasible rows lie next to that."""
    rng = np.random.default_rng(0)
    space = Space(base(), (IntervalKnob("chip.l2.size", 0.0, 1e9), IntervalKnob("chip.hbm.strided_row_overhead", 0.0, 1e-8)))
    places = DesignEncoder(space)

    def known(at: np.ndarray) -> KnownResults:
        y = np.column_stack([1 + at[:, 0] + at[:, 1], 2 + at[:, 0] - 0.5 * at[:, 1]])
        excess = np.maximum(1 / 3 - at[:, 0], 0.0)
        beaten = [(excess > 0)[i] or ((y <= y[i]).all(1) & (y < y[i]).any(1) & (excess <= 0)).any() for i in range(len(y))]
        return KnownResults(at, y, excess, [int(i) for i in np.flatnonzero(~np.array(beaten))])

    near = rng.random((300, 2))
    best = HypervolumeAcquisition(places).choose_best(near, near[:5], known(rng.random((60, 2))), 8, rng)
    assert len({row.tobytes() for row in best}) == 8
    assert (best[:, 0] > 0.3).all()
    assert best[:, 0].mean() < 0.42


def test_a_model_that_expects_no_gain_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a design is asked for of which little is known, and not the first of those that are known to gain nothing."""
    places = DesignEncoder(Space(base(), (IntervalKnob("chip.l2.size", 1e6, 1e9),)))
    held = np.array([[1.0, 2.0], [2.0, 1.0]])
    known = KnownResults(np.array([[0.1], [0.9]]), held, np.zeros(2), [0, 1])
    near = np.array([[0.2], [0.5]])
    means = np.log(np.array([[1.0, 2.0], [2.3, 2.3]]))  # like one of the front, and behind both
    spreads = np.array([[1e-9, 1e-9], [0.05, 0.05]])
    monkeypatch.setattr(HypervolumeAcquisition, "_predict_targets", lambda *_: (means, spreads))

    def best() -> float:
        return float(HypervolumeAcquisition(places).choose_best(near, near[:0], known, 1, np.random.default_rng(1))[0, 0])

    assert best() == 0.5
    monkeypatch.setattr(acquisition, "VARIANCE_SCALES", (1.0,))
    assert best() == 0.2
