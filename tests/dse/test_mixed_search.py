"""Searches over several chips, whose knobs and conditions differ: on the grid of six chips of the study of samplers."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from dse.search.design_encoding import DesignEncoder
from dse.search.local_search import LocalSearch
from dse.search.optuna_samplers import MedianImputer, make_sampler, run_plain_optuna
from dse.search.samplers import Feedback, Values, count_active_knobs, recommend_sampler
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.space.multi_chip_space import CHIP_KNOB, AnySpace
from dse.studies.search_quality.finding import summarise
from dse.studies.search_quality.replay import Grid, grid, search_rows
from tests.samples import base


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    return grid("mixed", tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def space(mixed: Grid) -> AnySpace:
    return mixed.study.question.space


def full_rows(space: AnySpace, seed: int, count: int = 400) -> np.ndarray:
    return DesignEncoder(space).rows_at(np.random.default_rng(seed).random((count, len(space.knobs))))


def test_what_is_active_is_what_the_chip_of_a_row_reads(space: AnySpace) -> None:
    """An A100 prefetches only if told so, and a 910B unless told not to: `prefetch_share` counts on one of them without TP."""
    places, rows = DesignEncoder(space), full_rows(space, 1)
    for row, full in zip(places.clear_inactive(rows), rows, strict=True):
        assert places.decode_row(row) == space.canonical(places.decode_row(full))


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_only_active_knobs_move_and_one_of_them_does(space: AnySpace, share: float) -> None:
    places, rows = DesignEncoder(space), full_rows(space, 2)
    after = places.mutated_rows(rows, np.full(len(rows), share), np.random.default_rng(3))
    changed, active = after != rows, places.find_active(rows)
    assert not (changed & ~active).any()
    assert changed.any(axis=1).mean() > 0.95  # a step beyond both ends of a knob is cut off
    assert share or (changed.sum(axis=1) <= 1).all()


def test_a_move_to_another_chip_keeps_what_both_have(space: AnySpace) -> None:
    places, rows = DesignEncoder(space), full_rows(space, 4)
    after = places.mutated_rows(rows, np.zeros(len(rows)), np.random.default_rng(5))
    moved = after[:, 0] != rows[:, 0]
    assert moved.any()
    for one, other in zip(rows[moved], after[moved], strict=True):
        before, now = (places.decode_row(row) for row in places.clear_inactive(np.stack([one, other])))
        assert all(before[address] == now[address] for address in before.keys() & now.keys() - {CHIP_KNOB})


def test_active_knobs_are_counted_as_the_longest_design_has_them(mixed: Grid, space: AnySpace) -> None:
    longest = max(len(space.row(mixed.columns, row)) for row in range(mixed.size))
    assert count_active_knobs(space) == longest < len(space.knobs)
    assert recommend_sampler(space, 3, 4 * longest)[0] == "local"
    assert recommend_sampler(space, 3, 4 * longest - 1)[0] == "qmc"


@pytest.mark.parametrize("ruled_out", ["", "wse2"])
def test_a_search_begins_with_as_many_designs_of_each_chip(space: AnySpace, ruled_out: str) -> None:
    """Also where nine of ten designs of one of them break a limit that is known before."""

    def possible(several: Sequence[Values]) -> list[bool]:
        return [values[CHIP_KNOB] != ruled_out or values["mapping.decode.rows"] == 240 for values in several]

    source = LocalSearch(space, ["max", "min", "min"], 1, 64, possible)
    chips = len(space.knobs[0].values) if isinstance(space.knobs[0], ChoiceKnob) else 0
    asks = [source.ask(number, None).values for number in range(chips)]
    assert Counter(values[CHIP_KNOB] for values in asks) == dict.fromkeys(space.knobs[0].values, 1)  # type: ignore[union-attr]
    assert all(possible(asks))


def test_local_finds_more_of_a_mixed_front_than_chance(mixed: Grid) -> None:
    rows, budget = mixed.rows(), mixed.size // 50
    shares = [mixed.share(search_rows(mixed, rows, "local", seed, budget, [])) for seed in (50, 51)]
    chance = [mixed.share(search_rows(mixed, rows, "random", seed, budget, [])) for seed in (50, 51)]
    assert min(shares) > 0.85 > 0.7 > max(chance)


def test_tpe_has_parameters_of_active_knobs_alone_and_a_resumed_one_asks_the_same(space: AnySpace) -> None:
    def answer(number: int) -> Feedback:
        return (
            Feedback((float(number % 7), float(number % 5), 1.0), {"limit": 0.0})
            if number % 3
            else Feedback(None, {"limit": 1.0})
        )

    def source() -> object:
        return make_sampler("tpe", space, ["max", "min", "min"], seed=2, population=8)

    whole, forced = source(), space.canonical({CHIP_KNOB: "wse2", "mapping.decode.rows": 300})
    asks = []
    for number in range(30):
        asks.append(whole.ask(number, forced if number == 3 else None))  # type: ignore[attr-defined]
        assert asks[-1].values == space.canonical(asks[-1].values)
        assert asks[-1].marks["params"].keys() == asks[-1].values.keys()
        whole.tell(asks[-1], answer(number))  # type: ignore[attr-defined]
    assert {address: asks[3].values[address] for address in forced} == forced
    later = source()
    for ask in asks[:20]:
        later.restore(ask, answer(ask.number))  # type: ignore[attr-defined]
    for ask in asks[20:]:
        assert later.ask(ask.number, None) == ask  # type: ignore[attr-defined]
        later.tell(ask, answer(ask.number))  # type: ignore[attr-defined]


def test_optuna_is_told_a_number_between_those_of_other_designs_where_there_is_none() -> None:
    """Neither an infinity nor the worst: what is wrong with the design is in its constraint."""
    imputer = MedianImputer(2)
    assert imputer.fill(Feedback(None, {"limit": 1.0})) == [0.0, 0.0]
    for first in (1.0, 3.0, 50.0):
        assert imputer.fill(Feedback((first, -first), {"limit": 0.0})) == (first, -first)
    assert imputer.fill(Feedback(None, {"limit": 1.0})) == [3.0, -3.0]
    assert imputer.fill(Feedback((float("nan"), 7.0), {"limit": 1.0})) == [3.0, 7.0]
    assert imputer.fill(Feedback(None)) is None


def test_plain_optuna_has_numbers_as_numbers_and_limits_as_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    own = Space(
        base(),
        (
            ChoiceKnob("chip.cores", (400, 100, 200)),
            ChoiceKnob("mapping.both.prefetch", ("none", "whole")),
            IntervalKnob("chip.l2.size", 1e6, 1e9, log=True),
        ),
    )
    studies, create = [], optuna.create_study
    monkeypatch.setattr(optuna, "create_study", lambda **words: studies.append(create(**words)) or studies[-1])

    def evaluate(values: Values) -> Feedback:
        cores = float(values["chip.cores"])
        return Feedback((float("nan"), cores), {"limit": 1.0}) if cores > 300 else Feedback((-cores, cores), {"limit": 0.0})

    run_plain_optuna("tpe", own, ["max", "min"], seed=1, trials=20, evaluate=evaluate)
    (study,) = studies
    for trial in study.trials:
        cores = (100, 200, 400)[trial.params["chip.cores"]]
        assert isinstance(trial.distributions["chip.cores"], optuna.distributions.IntDistribution)
        assert trial.state == optuna.trial.TrialState.COMPLETE
        assert np.isfinite(trial.values).all()
        assert trial.values[1] == cores
        assert (trial.constraints["limit"] > 0) == (cores > 300)
    assert {trial.params["chip.cores"] for trial in study.trials} == {0, 1, 2}


def test_designs_near_the_front_and_evaluations_to_a_share_are_counted(mixed: Grid) -> None:
    front = mixed.front
    assert mixed.front_coverage(front) == mixed.share(front) == pytest.approx(1.0)
    assert mixed.front_coverage(front[:0]) == 0.0
    assert mixed.front_coverage(front[:5]) >= 5 / len(front)
    others = np.setdiff1d(np.flatnonzero(mixed.limit < 0), front)
    assert mixed.front_coverage(others, within=0.0) < mixed.front_coverage(others, within=10.0) == 1.0
    order = np.concatenate([others[:50], front])
    count = mixed.count_evaluations(0.9, order)
    assert count is not None
    assert mixed.share(order[: count - 1]) < 0.9 <= mixed.share(order[:count])
    assert mixed.count_evaluations(0.999, others[:50]) is None


def test_a_front_of_few_designs_is_said_beside_its_hypervolume() -> None:
    rows = [("needle", "local", 700, 500, 4, 10, 7.0, 1.0, 1.0), ("needle", "local", 701, 500, 4, 10, None, 0.0, 0.25)]
    columns = ["space", "sampler", "seed", "designs", "front", "budget", "found", "share", "coverage"]
    text = summarise(pd.DataFrame(rows, columns=columns))
    assert "needle: 10 of 500; a front of 4, of which hypervolume says little" in text
    assert "| local | 1 of 2; 7; 50.0% |" in text
    assert "| local | 62% |" in text
    assert "says little" not in summarise(pd.DataFrame(rows, columns=columns).assign(front=40))
