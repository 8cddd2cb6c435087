"""Robustness of fronts: identities of draws, planted ties, ranges of constants, and the order between kinds of chips."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from dse.accuracy.constant_ranges import DEFAULT_FACTORS, UncertainConstant, find_uncertain_constants
from dse.commands.notebook_api import StoredStudy
from dse.config.compose import compose
from dse.config.question import build_question
from dse.config.record_parser import ConstantSource
from dse.documents import build_schema
from dse.explanations import robustness as robustness_module
from dse.explanations.explanation import study_goal
from dse.explanations.neighbours import StudyGoal, analytical_goal, evaluate_points
from dse.explanations.robustness import (
    ContestedDesigns,
    apply_factors,
    draw_factors,
    evaluate_scores,
    front_margins,
    front_members,
    measure_robustness,
)
from dse.report import front_robustness
from dse.report.front_robustness import find_known_robustness, measure_front_robustness
from dse.report.kind_order import KindBand, find_kind_order, find_undecided
from dse.report.payload import report_payload
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.space.multi_chip_space import CHIP_KNOB
from tests.dse.toy import searched, toy

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    study = toy(tmp_path_factory.mktemp("robust"), "model=llama3_70b")
    searched(study, budget=100)
    return StoredStudy(study)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    """Dies with a cache and stacks of two kinds, and devices of both."""
    folder = tmp_path_factory.mktemp("several")
    chips = ("space=empty", "chips=[npu_dse,ascend910b]", "+space.mapping.both.tp='choice(1,2,4,8)'", "search=exhaustive")
    study = toy(folder, *chips)
    searched(study)
    return StoredStudy(study)


def constant(address: str, low: float, high: float, *chips: str) -> UncertainConstant:
    return UncertainConstant(address, chips or ("",), "1", 1.0, "1", low, high, "assumed", stated=True)


def contest_of(loaded: StoredStudy) -> ContestedDesigns:
    """All designs of a study that came out, as if all were of the front."""
    space, frame = loaded.study.question.space, loaded.frame()
    rows = frame[frame["error"].isna() & frame["feasible"]].to_dict("records")
    values = [front_robustness.knob_values(loaded.study, row) for row in rows]
    chips = tuple(str(at.get(CHIP_KNOB, "")) for at in values)
    return ContestedDesigns(stack_designs([space.design_at(at) for at in values]), chips, len(values))


def goal_of(loaded: StoredStudy, **objectives: str) -> StudyGoal:
    goal = replace(study_goal(loaded.study), bounds=())
    return analytical_goal(replace(goal, objectives=objectives) if objectives else goal, loaded.study.question.base)


@pytest.mark.parametrize("constants", [[], [constant("chip.technology.cache", 1.0, 1.0)]], ids=["none", "no range"])
def test_without_ranges_the_front_stays_in_every_draw(ran: StoredStudy, constants: list[UncertainConstant]) -> None:
    contest, goal = contest_of(ran), goal_of(ran)
    robustness = measure_robustness(contest, constants, goal, draws=8, seed=0)
    nominal = evaluate_scores(contest, constants, np.ones((1, len(constants))), goal)[0]
    assert robustness.shares.tolist() == front_members(nominal).astype(float).tolist()
    assert not any(robustness.turning)


def test_a_constant_that_scales_all_designs_alike_turns_none(ran: StoredStudy) -> None:
    contest, goal = contest_of(ran), goal_of(ran, electricity_per_mtoken="min", tpot="min")
    factors = np.array([[0.5], [1.0], [2.0]])
    scores = evaluate_scores(contest, [constant("chip.economics.electricity_price", 0.5, 2.0)], factors, goal)
    assert scores[2, :, 0] == pytest.approx(2 * scores[1, :, 0])
    fronts = [front_members(score).tolist() for score in scores]
    assert fronts[0] == fronts[1] == fronts[2]
    robustness = measure_robustness(contest, [constant("chip.economics.electricity_price", 0.5, 2.0)], goal, draws=8, seed=0)
    assert set(robustness.shares.tolist()) <= {0.0, 1.0}
    assert not any(robustness.turning)


def test_a_planted_tie_is_turned_by_its_constant(ran: StoredStudy) -> None:
    """More cache against more cores, of nearly one area: which is smaller depends on the area of a byte of cache."""
    base, goal = ran.study.question.base, goal_of(ran, system_mm2="min")
    cached = replace_leaves(base, {"chip.l2.size": 160e6, "chip.cores": 200})
    (wanted,) = evaluate_points([cached], goal)
    assert wanted is not None
    others = [replace_leaves(base, {"chip.l2.size": 20e6, "chip.cores": cores}) for cores in range(200, 900)]
    areas = np.array([point.metrics["system_mm2"] for point in evaluate_points(others, goal) if point is not None])
    cored = others[int(np.flatnonzero(areas > 1.01 * wanted.metrics["system_mm2"])[0])]
    contest = ContestedDesigns(stack_designs([cached, cored]), ("", ""), 2)
    constants = [
        constant("chip.technology.cache", 0.7, 1.4),
        constant("chip.dram.price", 0.7, 1.4),
        constant("chip.technology.hop", 0.7, 1.4),
    ]
    robustness = measure_robustness(contest, constants, goal, draws=32, seed=0)
    cache = draw_factors(constants, 32, 0)[:, 0]
    first = evaluate_scores(contest, constants, draw_factors(constants, 32, 0), goal)[:, :, 0]
    assert robustness.shares.tolist() == [(first[:, 0] <= first[:, 1]).mean(), (first[:, 1] <= first[:, 0]).mean()]
    assert 0.2 < robustness.shares[0] < 0.9
    assert cache[first[:, 0] <= first[:, 1]].max() < cache[first[:, 0] > first[:, 1]].min()
    assert [turns.constant.address for turns in robustness.turning[0]] == ["chip.technology.cache"]
    assert robustness.turning[0][0].turns_at == (1.4,)


@pytest.mark.parametrize("loaded", ["ran", "several"])
def test_draws_in_batches_are_designs_one_by_one(loaded: str, request: pytest.FixtureRequest) -> None:
    study: StoredStudy = request.getfixturevalue(loaded)
    contest, goal = contest_of(study), goal_of(study)
    constants = find_uncertain_constants(study.study.question.sources, study.study.question.space)[:24]
    factors = draw_factors(constants, 2, 1)
    scores = evaluate_scores(contest, constants, factors, goal)
    singles = unstacked(contest)
    for draw, row in ((0, 0), (1, len(singles) - 1)):
        changes = {
            one.address: leaf_at(singles[row], one.address) * factors[draw, place]
            for place, one in enumerate(constants)
            if contest.chips[row] in one.chips
        }
        (point,) = evaluate_points([replace_leaves(singles[row], changes)], goal)
        assert point is not None
        signs = [-1 if way == "max" else 1 for way in goal.objectives.values()]
        alone = [sign * point.metrics[name] for sign, name in zip(signs, goal.objectives, strict=True)]
        assert scores[draw, row, :-1].tolist() == pytest.approx(alone, rel=1e-9)


def unstacked(contest: ContestedDesigns) -> list[Design]:
    """The designs of a contest, one by one."""
    stacked: dict[int, Design] = {}
    for rows, design in contest.designs.groups:
        for place, row in enumerate(rows.tolist()):
            leaves = {
                address: type_of(value)(value[place])
                for address, value in leaves_of(design)
                if isinstance(value, np.ndarray) and value.ndim
            }
            stacked[row] = replace_leaves(design, leaves)
    return [stacked[row] for row in sorted(stacked)]


def leaves_of(design: Design) -> Iterator[tuple[str, Any]]:
    from dse.space.fields import iterate_leaves

    return ((address, value) for address, value, _ in iterate_leaves(design))


def type_of(values: Any) -> Callable[[Any], Any]:
    return int if (values == np.round(values)).all() else float


def test_a_constant_moves_only_chips_that_share_it(several: StoredStudy) -> None:
    contest = contest_of(several)
    shared = constant("chip.technology.cache", 0.5, 2.0, "npu_dse")
    moved = apply_factors(contest, [shared], np.array([[2.0]]))
    for (rows, design), (_, before) in zip(moved.groups, contest.designs.groups, strict=True):
        factor = 2.0 if contest.chips[int(rows[0])] == "npu_dse" else 1.0
        assert leaf_at(design, shared.address) == factor * leaf_at(before, shared.address)


def test_margins_say_how_much_worse_a_design_may_get() -> None:
    score = np.array([[-10.0, 4.0, 0.2], [-8.0, 1.0, 0.2], [-10.0, 5.0, 0.2], [-20.0, 0.5, -0.1]])
    assert front_members(score).tolist() == [True, True, False, False]
    assert front_margins(score, 4).tolist() == pytest.approx([0.2, 0.2, 0.0, -0.1])


def sources_of(study: StoredStudy, address: str, **facts: Any) -> list[ConstantSource]:
    known = next(source for source in study.study.question.sources if source.address == address)
    return [replace(known, **facts)]


@pytest.mark.parametrize(
    ("address", "facts", "ends"),
    [
        ("chip.technology.lane", {"source": "assumed"}, DEFAULT_FACTORS["assumed"]),
        ("chip.technology.lane", {"source": "fitted", "stated_range": None}, DEFAULT_FACTORS["fitted"]),
        ("chip.technology.lane", {"source": "zhang2024"}, None),
        ("chip.technology.lane", {"source": "zhang2024", "stated_range": (0.5, 1.5)}, (0.5, 1.5)),
        ("chip.technology.lane", {"value": "0.001 mm2*cycle/op", "note": "95 %: 0.0009 to 0.0012; more"}, None),
        ("chip.technology.lane", {"note": "95 %: 0.0009 mm2*cycle/op to 0.0012 mm2*cycle/op; more"}, (0.9, 1.2)),
        ("chip.die.memory_edge_share", {}, (1 - 0.35 * 1.4, 1 - 0.35 * 0.7)),
        ("chip.die.pcie_lanes", {}, None),
        ("chip.die.register_size", {}, None),
        ("chip.die.die_link_reach", {}, None),
        ("chip.die.reticle", {}, None),
        ("chip.cores", {"source": "assumed"}, None),
    ],
)
def test_a_range_is_stated_or_that_of_the_kind_of_source(
    ran: StoredStudy, address: str, facts: dict[str, Any], ends: tuple[float, float] | None
) -> None:
    constants = find_uncertain_constants(sources_of(ran, address, **facts), ran.study.question.space)
    if "95 %" in facts.get("note", "") and ends is None:  # no unit: the note is somebody's own
        ends = DEFAULT_FACTORS["assumed"]
    assert len(constants) == (ends is not None)
    for one in constants:
        scale = one.si_value if address == "chip.die.memory_edge_share" else 1.0
        assert (one.low * scale, one.high * scale) == pytest.approx(ends)


def test_nodes_and_prices_move_together_on_all_chips(several: StoredStudy) -> None:
    question = several.study.question
    constants = find_uncertain_constants(question.sources, question.space)
    shared = [one for one in constants if one.address.startswith(("chip.technology.", "chip.economics."))]
    assert len({one.address for one in shared}) == len(shared) > 20
    assert {one.chips for one in shared} == {("npu_dse", "ascend910b")}
    assert not any("tp" in one.address.split(".") for one in constants)


@pytest.mark.parametrize("text", ["[1.1,1.2]", "[0.8]", "wide", "[0,1]"])
def test_a_range_that_is_none_is_refused_by_its_address(text: str, tmp_path: Path) -> None:
    word = f"chip.technology.sram={{value: 0.5 mm2/MB, source: assumed, range: {text}}}"
    with pytest.raises(DesignError, match=r"chip\.technology\.sram\.range"):
        build_question(compose([word]), tmp_path)


def test_a_front_is_asked_once(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ran.part()
    asked = measure_front_robustness(part.study, part.frame, part.screened, draws=16)
    assert all(0 <= design.share <= design.near_share <= 1 for design in asked.designs.values())
    assert set(asked.designs) == set(part.frame[part.frame["front"]]["design"])
    assert any(design.turning for design in asked.designs.values())
    monkeypatch.setattr(front_robustness, "measure_robustness", None)
    assert measure_front_robustness(part.study, part.frame, part.screened, draws=16) == asked
    assert find_known_robustness(part.study, part.frame) == asked
    payload = report_payload([part])
    assert payload["studies"][0]["robust"]["draws"] == 16
    assert [column["name"] for column in payload["columns"] if column["kind"] == "robust"] == ["draw_share"]


def test_draws_reuse_those_before(ran: StoredStudy) -> None:
    constants = find_uncertain_constants(ran.study.question.sources, ran.study.question.space)
    assert (draw_factors(constants, 32, 0)[:16] == draw_factors(constants, 16, 0)).all()
    lows, highs = (np.array([getattr(one, end) for one in constants]) for end in ("low", "high"))
    factors = draw_factors(constants, 64, 0)
    assert (factors >= lows).all()
    assert (factors <= highs).all()


@pytest.fixture
def stored(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name by which commands find the study."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/toy").symlink_to(ran.study.run_dir)
    monkeypatch.chdir(tmp_path)
    return "toy"


def test_the_command_prints_shares_and_constants(stored: str, typed: Typed) -> None:
    code, out, err = typed("robust", stored, "--draws", "8")
    assert code == 0, err
    assert "8 draws of" in out
    assert "assumed x0.7 to x1.4" in out
    code, out, err = typed("robust", "--json", stored, "--draws", "8")
    assert code == 0, err
    document = json.loads(out)
    jsonschema.Draft202012Validator(build_schema("robust")).validate(document)
    assert document["draws"] == 8
    assert document["order"]["bands"] == []


@pytest.mark.parametrize(
    ("draws", "why"),
    [
        ("0", "0 is below the minimum, 8"),
        ("-3", "-3 is below the minimum, 8"),
        ("many", "'many' is not a number; write a number"),
        ("1000000", "1,000,000 is above the maximum, 4,096"),
    ],
)
def test_a_number_of_draws_that_is_none_is_refused(draws: str, why: str, stored: str, typed: Typed) -> None:
    code, _, err = typed("robust", stored, f"--draws={draws}")
    assert code == 2
    assert f"robust --draws: {why}" in err


BANDS = [KindBand("a", "x", 0.5, 1.5, ""), KindBand("b", "y", 0.8, 1.25, ""), KindBand("c", "y", 0.5, 2.0, "")]


def test_bands_of_no_width_tell_all_apart() -> None:
    values = np.random.default_rng(0).uniform(1, 2, (60, 2))
    chips = np.array(["a", "b", "c"] * 20)
    mask = np.ones(60, dtype=bool)
    narrow = [replace(band, low=1.0, high=1.0) for band in BANDS]
    exponents = np.array([1, 0])
    free = find_undecided(values, ["max", "min"], np.array([0, 0]), chips, mask, BANDS)
    assert find_undecided(values, ["max", "min"], exponents, chips, mask, narrow) == free
    wide = find_undecided(values, ["max", "min"], exponents, chips, mask, BANDS)
    assert all(set(names) <= set(wide.get(row, ())) for row, names in free.items())
    assert not any(chips[row] in ("b", "c") and {"b", "c"} & set(names) for row, names in wide.items())


def test_kinds_of_chips_carry_the_bands_of_their_stacks(several: StoredStudy, typed: Typed) -> None:
    order = find_kind_order(several.study, several.frame())
    assert {band.chip: (band.kind, band.low, band.high) for band in order.bands} == {
        "npu_dse": ("ideal", 0.24, 0.69),
        "ascend910b": ("unfitted", 0.6, 1.65),
    }
    assert order.carried == ("throughput_per_system_mm2", "tpot")
    front = several.front()
    for row in front.to_dict("records"):
        other = {"npu_dse": "ascend910b", "ascend910b": "npu_dse"}[row["chip"]]
        mine, theirs = (next(band for band in order.bands if band.chip == chip) for chip in (row["chip"], other))
        rows = several.frame()
        rows = rows[rows["feasible"] & (rows["chip"] == other)]
        rate, token = "throughput_per_system_mm2", "tpot"
        beaten = (rows[rate] * theirs.high > row[rate] * mine.low) & (rows[token] / theirs.high < row[token] / mine.low)
        assert (row["design"] in order.undecided) == beaten.any()


def test_time_that_is_over_leaves_draws_for_the_next_question(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    contest, goal, kept = contest_of(ran), goal_of(ran), dict[bytes, Any]()
    monkeypatch.setattr(robustness_module, "ROWS_AT_ONCE", 4 * len(contest.designs))
    constants = [constant("chip.technology.cache", 0.7, 1.4), constant("chip.clock", 0.7, 1.4)]

    def keep(factors: Any, compute: Callable[[], Any]) -> Any:
        if factors.tobytes() not in kept:
            kept[factors.tobytes()] = compute()
        return kept[factors.tobytes()]

    first = measure_robustness(contest, constants, goal, draws=16, seed=0, seconds=0.0, keep=keep)
    assert first.draws == 4
    whole = measure_robustness(contest, constants, goal, draws=16, seed=0, keep=keep)
    assert (whole.draws, whole.left) == (16, 0)
    fresh = measure_robustness(contest, constants, goal, draws=16, seed=0)
    assert whole.shares.tolist() == fresh.shares.tolist()
    assert whole.turning == fresh.turning
