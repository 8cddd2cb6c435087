"""Why designs are as they are: each share, step, price and neighbour against what evaluating and counting by hand gives."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.commands.explain import explain_overrides
from dse.commands.notebook_api import StoredStudy, find_study
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.result_frame import knob_values, mark_feasibility_and_front, report_order
from dse.execution.study import MetricConstraint
from dse.explanations import neighbours as moves
from dse.explanations.design_from_overrides import place_study_design
from dse.explanations.elasticities import SAME, compute_knob_effect, compute_knob_effects
from dse.explanations.explanation import (
    APART,
    Explanation,
    compute_front_shadow_prices,
    explain_front,
    explain_stored_design,
    study_goal,
)
from dse.explanations.neighbours import (
    FEW_AT_ONCE,
    GROWTH,
    DesignOutcome,
    StudyGoal,
    analytical_goal,
    batch_size,
    evaluate_points,
    list_neighbours,
)
from dse.explanations.shadow_prices import MAX_RELAXATION, MIN_GAIN, KnownDesign, find_shadow_prices, gain_over_rivals
from dse.explanations.stored_design import find_stored_design
from dse.search.samplers import RandomSampler
from dse.space.design import LEAST, Design, design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves
from dse.space.knobs import IntervalKnob
from dse.space.neighbourhood import Neighbour, build_neighbourhood_space
from dse.space.units import format_quantity
from dse.space.workload import Workload
from tests.dse.toy import design_ids, searched, toy
from tests.samples import AT_ONE_RATE, base

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    """A study of 120 designs, some of which break a limit or a constraint."""
    study = toy(tmp_path_factory.mktemp("why"), "model=llama3_70b", "++constraints.ttft='<= 2 s'")
    searched(study, budget=120)
    return StoredStudy(study)


@pytest.fixture(scope="module")
def why(ran: StoredStudy) -> Explanation:
    return ran.why(design_ids(ran)[1])


LINES = [
    ["chip=npu_dse", "workload.batch=[1,8]"],
    ["chip=a100", "mapping.both.tp=4", "workload.batch=[2]", "workload.prompt=[300]", "workload.output=[16]"],
    ["chip=npu64", "model=qwen3_1b7", "workload.batch=[4]"],
    ["chip=wse2", "workload=gemm", "workload.shapes=[512x512x512]", "mapping.rows=64"],
    ["chip=tile32", "workload=attention"],
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_shares_of_time_add_up_to_one_and_none_is_below_zero(line: list[str]) -> None:
    overrides = explain_overrides(*line)
    assert sum(overrides.shares.values()) == pytest.approx(1.0)
    assert min(overrides.shares.values()) > -1e-12
    assert list(overrides.shares.values()) == sorted(overrides.shares.values(), reverse=True)


@pytest.mark.sampled
@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_step_is_what_evaluating_the_override_gives(line: list[str]) -> None:
    """A drawn step of each line, typed as anybody would."""
    overrides = explain_overrides(*line)
    rng = np.random.default_rng(len(line[0]))
    effects = [change for change in overrides.changes if not change.point.refused and isinstance(change.step.new, int | float)]
    for effect in rng.choice(np.array(effects, dtype=object), 2, replace=False):
        unit = overrides.space.spec(effect.step.knob).metadata["unit"]
        value = f"'{effect.step.new!r} {unit}'" if unit not in ("", "1") else repr(effect.step.new)
        typed = dse.evaluate(
            [*line, f"++{effect.step.knob}={value}" if "both" not in effect.step.knob else f"{effect.step.knob}={value}"]
        )
        for name, by in effect.change.items():
            assert typed.metrics[name] == pytest.approx((1 + by) * overrides.point.metrics[name])
        assert (typed.infeasible is None) == (not effect.point.limit)


def test_an_elasticity_is_a_ratio_of_logarithms(why: Explanation) -> None:
    numbers = [change for change in why.changes if change.step.is_upward is not None]
    assert {number.step.knob for number in numbers} > {"chip.cores", "mapping.both.tp"}
    for number in numbers:
        for name, elastic in number.elasticity.items():
            by = log(float(number.step.new) / float(number.step.old))
            assert elastic * by == pytest.approx(log(number.point.metrics[name] / why.point.metrics[name]), abs=1e-12)
    assert not any(change.elasticity for change in why.changes if change.step.is_upward is None)


@given(st.floats(0.1, 10), st.floats(1.1, 8), st.floats(-2, 2), st.booleans())
def test_an_elasticity_is_the_power_of_a_power_law(start: float, by: float, power: float, down: bool) -> None:
    new = start / by if down else start * by
    goal = StudyGoal(Workload("", ()), {"tpot": "min", "latency": "min"}, (), "analytical")
    step = Neighbour("chip.l2.size", start, new, base())
    here, there = (DesignOutcome({"tpot": 3 * at**power, "latency": 2.0}) for at in (start, new))
    effect = compute_knob_effect(step, here, there, goal)
    assert effect.elasticity == pytest.approx({"tpot": power, "latency": 0.0}, abs=1e-6)
    assert effect.change == pytest.approx({"tpot": (new / start) ** power - 1, "latency": 0.0}, abs=1e-6)


def test_steps_go_both_ways_to_the_next_value_of_the_space(ran: StoredStudy) -> None:
    space = ran.study.question.space
    for _, row in ran.frame().head(20).iterrows():
        values = knob_values(ran.study, row.to_dict())
        for knob in space.knobs:
            moved = sorted(
                neighbour.new
                for neighbour in list_neighbours(space, values)
                if neighbour.knob == knob.address and neighbour.is_upward is not None
            )
            if isinstance(knob, IntervalKnob):
                tenths = [max(knob.low, values[knob.address] * 0.9), min(knob.high, values[knob.address] * 1.1)]
                assert moved == pytest.approx([end for end in tenths if end != values[knob.address]])
            elif not knob.words:
                known = sorted(knob.values)
                at = known.index(values[knob.address])
                assert moved == known[max(at - 1, 0) : at] + known[at + 1 : at + 2]


def test_a_front_at_once_is_its_designs_one_by_one(ran: StoredStudy) -> None:
    members = explain_front(ran.study, ran.frame())
    assert [member.name for member in members] == design_ids(ran)[: int(ran.frame()["front"].sum())]
    for member in members[:3]:
        alone = ran.why(member.name)
        assert member.changes is not None
        assert [change.step for change in member.changes] == [change.step for change in alone.changes]
        for change, other in zip(member.changes, alone.changes, strict=True):
            assert change.change == pytest.approx(other.change)
            assert change.point.violations_text == other.point.violations_text


def test_what_there_is_no_time_for_is_said(ran: StoredStudy) -> None:
    space, goal = ran.study.question.space, study_goal(ran.study)
    values = [knob_values(ran.study, row.to_dict()) for _, row in ran.frame().iterrows()]
    first = find_stored_design(ran.study, ran.frame(), None, design_ids(ran)[0])
    assert set(map(type, compute_knob_effects(space, values, goal, seconds=-1.0))) == {type(None)}
    assert explain_stored_design(ran.study, ran.frame(), first, seconds=-1.0).left == tuple(
        dict.fromkeys(
            neighbour.knob
            for neighbour in list_neighbours(
                space, knob_values(ran.study, report_order(ran.study, ran.frame()).iloc[0].to_dict())
            )
        )
    )


def test_relaxed_as_little_as_the_price_says_the_front_moves_and_not_before(ran: StoredStudy) -> None:
    frame = ran.frame()
    shadow_prices = [
        shadow_price for shadow_price in compute_front_shadow_prices(ran.study, frame) if shadow_price.address == "ttft"
    ]
    assert shadow_prices
    (price,) = shadow_prices
    (bound,) = ran.study.bounds
    old = frame[frame["front"]]
    for share, moved in ((1 - 1e-6, False), (1 + 1e-9, True)):
        relaxed = replace(bound, value=bound.value + price.relaxation * share)
        new = mark_feasibility_and_front(replace(ran.study, bounds=(relaxed,)), frame)
        fresh = new[new["front"] & ~frame["feasible"]]
        better = [
            gain_over_rivals(
                study_goal(ran.study), _point(row, ran), [_point(point_row, ran) for _, point_row in old.iterrows()]
            )
            for _, row in fresh.iterrows()
        ]
        assert any(gain is not None for gain in better) == moved


def _point(row: pd.Series, ran: StoredStudy) -> DesignOutcome:
    return DesignOutcome({name: float(row[name]) for name in ran.study.objectives})


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_prices_are_the_least_of_all_that_would_move_the_front(seed: int) -> None:
    """Against every design in turn, with the definition of dominance written out."""
    rng = np.random.default_rng(seed)
    objectives = {"throughput": "max", "tpot": "min"}
    bound = MetricConstraint("ttft", "<=", 1.0)
    goal = StudyGoal(None, objectives, (bound,), "analytical")  # type: ignore[arg-type]
    rows = [dict(zip(("throughput", "tpot", "ttft"), map(float, rng.uniform(0.5, 2.5, 3)), strict=True)) for _ in range(30)]
    good = [row for row in rows if row["ttft"] <= 1]
    bad = [row for row in rows if row["ttft"] > 1]
    known = [KnownDesign(row, _never, DesignOutcome(row, broken=((str(bound), row["ttft"] - 1),))) for row in bad]
    prices = find_shadow_prices(goal, known, lambda point: gain_over_rivals(goal, point, [DesignOutcome(row) for row in good]))
    moving = [
        row["ttft"]
        for row in bad
        if row["ttft"] - 1 <= MAX_RELAXATION
        and not any(
            values["throughput"] >= row["throughput"] * (1 - MIN_GAIN) and values["tpot"] <= row["tpot"] * (1 + MIN_GAIN)
            for values in good
        )
    ]
    assert [price.then for price in prices] == ([min(moving)] if moving else [])
    for price in prices:
        at = price.known.at
        beside = [values["throughput"] for values in good if values["tpot"] <= at["tpot"]]
        assert price.gains.get("throughput") == (pytest.approx(at["throughput"] - max(beside)) if beside else None)
        assert all(rate * price.relaxation == pytest.approx(price.gains[name]) for name, rate in price.rates.items())
        more = {"throughput": "more", "tpot": "less"}
        bought = [
            f"{format_quantity(gain, METRICS[name].unit)} {more[name]} {name} "
            f"({format_quantity(price.rates[name], METRICS[name].unit)} for each s)"
            for name, gain in price.gains.items()
        ]
        assert (
            f"moves the front is {format_quantity(at['ttft'] - 1, 's')}, from 1 s to {format_quantity(at['ttft'], 's', 6)}"
            in price.text
        )
        assert price.text.endswith(f"gain: {', or '.join(bought)}") or not bought


def _never() -> Any:
    raise AssertionError("a constraint needs no limits")


def test_a_limit_is_priced_by_what_is_needed_of_it(ran: StoredStudy) -> None:
    """In its own unit, and no design that needs less of it would move the front."""
    space, goal = ran.study.question.space, replace(study_goal(ran.study), bounds=())
    columns = space.sample(np.random.default_rng(3).random((600, len(space.knobs))))
    values = [space.row(columns, row) for row in range(600)]
    points = evaluate_points([space.design_at(values) for values in values], goal)
    good = [point for point in points if point is not None and point.feasible]
    known = [
        KnownDesign(at, partial(space.design_at, at), point)
        for at, point in zip(values, points, strict=True)
        if point is not None
    ]
    (price,) = find_shadow_prices(goal, known, lambda point: gain_over_rivals(goal, point, good))
    assert (price.address, price.unit) == ("chip.hbm.capacity", "B")
    moving = [
        known_design.point.need
        for known_design in known
        if known_design.point.limit and gain_over_rivals(goal, known_design.point, good) is not None
    ]
    assert price.then == min(moving)
    assert price.now == pytest.approx(64e9)


def test_the_next_designs_are_the_nearest_of_the_front_on_either_side(ran: StoredStudy) -> None:
    frame = report_order(ran.study, ran.frame())
    front = frame[frame["front"]]
    for place in range(min(5, len(front))):
        why, place_row = ran.why(front["design"].iloc[place]), front.iloc[place]
        for near, side in ((why.cheaper, -1), (why.faster, 1)):
            far = {}
            for _, front_row in front.iterrows():
                cost, slow = (
                    log(front_row["system_price"] / place_row["system_price"]),
                    log(front_row["tpot"] / place_row["tpot"]),
                )
                if side * cost >= APART and -side * slow >= APART:
                    far[front_row["design"]] = abs(cost) + abs(slow)
            assert (near.name if near else None) == (min(far, key=lambda name: far[name]) if far else None)


def test_a_design_is_named_by_its_id_and_by_no_rank(ran: StoredStudy) -> None:
    """Of every row, searched or screened: the id is the beginning of the key of the design that is built of its knobs."""
    study, frame = ran.study, ran.frame()
    rows = report_order(study, frame)
    assert len(set(rows["design"])) == len(rows)
    for rank, row in list(enumerate(rows.to_dict("records"), 1))[::7]:
        own = design_key(study.question.space.design_at(knob_values(study, row)))
        assert own.startswith(row["design"])
        assert len(row["design"]) >= LEAST
        stored_designs = [find_stored_design(study, frame, None, typed) for typed in (row["design"], own[:LEAST].upper(), own)]
        assert all(
            (stored_design.id, stored_design.values) == (row["design"], knob_values(study, row))
            for stored_design in stored_designs
        )
        for typed in (str(rank), f"#{rank}"):
            with pytest.raises(DesignError, match=f"is a rank, .* rank {rank} is now {row['design']}"):
                find_stored_design(study, frame, None, typed)
    for wrong in ("0", str(len(frame) + 1)):
        with pytest.raises(DesignError, match=r"is a rank, .* ranks are 1 to"):
            find_stored_design(study, frame, None, wrong)
    for wrong in ("zzzzzz", "fad1", "", own + "0"):
        with pytest.raises(DesignError, match=r"is no id of a design; .* the first of its front are"):
            find_stored_design(study, frame, None, wrong)
    with pytest.raises(DesignError, match="no design '0123456789abcdef' in study toy"):
        find_stored_design(study, frame, None, "0123456789abcdef")


def test_every_command_answers_for_the_design_of_an_id(ran: StoredStudy) -> None:
    """Each for the same design: with the metrics that its row has."""
    for row in report_order(ran.study, ran.frame()).to_dict("records")[:20:9]:
        which = row["design"]
        own = ran.evaluate(which)
        assert design_key(own.design).startswith(which)
        assert own.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-12)
        assert ran.explain(design=which).point.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-12)
        stands = place_study_design(ran.study, ran.frame(), find_stored_design(ran.study, ran.frame(), None, which))
        assert stands.id == stands.name == which
        assert stands.point.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-12)
        assert bool(stands.rivals) == (not row["front"])


def test_a_beginning_that_several_designs_share_is_refused_with_them(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a study of very many designs: here ids of one digit, and a beginning of one."""
    monkeypatch.setattr("dse.space.design.LEAST", 1)
    monkeypatch.setattr("dse.explanations.stored_design.SHORTEST", 1)
    frame = ran.frame()
    ids = frame["design"].tolist()
    assert len(set(ids)) == len(ids)
    first = next(digit for digit in "abcdef" if sum(design_id.startswith(digit) for design_id in ids) > 1)
    same = [design_id for design_id in ids if design_id.startswith(first)]
    with pytest.raises(DesignError, match=f"{len(same)} designs of study toy begin with '{first}': ") as refused:
        find_stored_design(ran.study, frame, None, first)
    named = str(refused.value).partition(f"'{first}': ")[2].partition(";")[0].partition(" and ")[0].split(", ")
    assert set(named) <= set(same)
    for design_id in named:
        assert find_stored_design(ran.study, frame, None, design_id).id == design_id


def test_steps_around_a_design_are_those_that_may_be_typed() -> None:
    evaluation = dse.evaluate("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]")
    space = build_neighbourhood_space(evaluation.design, lambda address, word: word == "ce")
    known = {knob.address: knob.values for knob in space.knobs}
    assert known["mapping.both.tp"] == (4, 2, 8)
    assert known["chip.clock"] == pytest.approx((5e8, 4.5e8, 5.5e8))
    assert "ce" not in known["chip.tile.matrix.dataflow"]
    assert "chip.noc.topology" not in {
        change.step.knob for change in explain_overrides("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]").changes
    }
    assert not [
        address for address in known if address.startswith(("chip.technology.", "mapping.precision.", "mapping.stack."))
    ]
    fewer = build_neighbourhood_space(evaluation.design, lambda address, word: word == "ce", lambda _: ["chip.clock"])
    assert {knob.address for knob in space.knobs} - {knob.address for knob in fewer.knobs} == {"chip.clock"}
    moved = {target for targets in space.targets.values() for target in targets}
    assert moved < {address for address, _, _ in iterate_leaves(evaluation.design)}


def test_designs_are_evaluated_as_each_by_itself(ran: StoredStudy) -> None:
    """Those that are refused among others as well, and those asked for twice."""
    space, goal = ran.study.question.space, analytical_goal(study_goal(ran.study), ran.study.question.base)
    designs = [space.design_at(knob_values(ran.study, row.to_dict())) for _, row in ran.frame().head(40).iterrows()]
    for design, point in zip([*designs, designs[0]], evaluate_points([*designs, designs[0]], goal), strict=True):
        columns = dse.evaluators.evaluate(stack_designs([design]), goal.workload, metrics=goal.metrics).columns
        assert point is not None
        assert point.metrics == pytest.approx({name: column[0] for name, column in columns.items() if np.isfinite(column[0])})


def test_knobs_that_change_nothing_are_named(typed: Typed) -> None:
    line = ["chip=tile32", "workload=attention"]
    overrides = explain_overrides(*line)
    assert "chip.hbm.capacity" in overrides.idle
    assert not {"chip.clock", "chip.noc.word_bytes"} & set(overrides.idle)
    _, out, _ = typed("explain", "--full", *line)
    assert "knobs without effect:  " in out


def test_the_terminal_and_json_say_the_same(ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(ran.study.run_dir)
    monkeypatch.chdir(folder)
    (folder / "runs" / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "runs" / "toy" / "store.url").write_text(ran.study.store)
    second = design_ids(ran)[1]
    code, out, _ = typed("explain", "--full", "toy", "--design", second)
    assert not code
    explanation = ran.why(second)
    assert all(f"{name} {share:.1%}" in out for name, share in explanation.shares.items() if share > 0.01)
    rows = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert rows >= {change.step.knob for change in explanation.changes} - set(explanation.idle)
    code, out, _ = typed("explain", "--json", "toy", "--design", second)
    document = json.loads(out)
    assert document["shares_of_time"] == pytest.approx(dict(explanation.shares))
    assert len(document["steps"]) == len(explanation.changes)
    assert [prices["text"] for prices in document["prices_of_constraints"]] == [str(price) for price in explanation.prices]
    assert document["metrics"]["tpot"] == {"value": pytest.approx(explanation.point.metrics["tpot"]), "unit": "s"}
    code, out, _ = typed("explain", "--json", "toy")
    designs = json.loads(out)["designs"]
    assert len(designs) == int(ran.frame()["front"].sum())
    assert all(sum(design["shares_of_time"].values()) == pytest.approx(1.0) for design in designs)
    code, out, _ = typed("explain", "--full", "toy")
    assert "front of toy" in out
    code, _, err = typed("explain", "--full", "toy", "--design", second, "chip.cores=300")
    assert code == 2
    assert "remove one of them" in err
    code, out, _ = typed("explain", "--json", "toy", "chip.cores=300")
    cores = [step["to"] for step in json.loads(out)["steps"] if step["knob"] == "chip.cores"]
    assert cores == [280, 320]
    code, _, err = typed("explain", "--full", "toy", "workload.batch=[3]")
    assert code == 2
    assert "designs cannot be compared" in err


def test_flags_of_hydra_s_do_what_they_do_elsewhere(typed: Typed) -> None:
    code, out, _ = typed("explain", "--full", "--cfg", "job", "chip=npu_dse")
    assert not code
    assert out.startswith("name: adhoc")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["a", "b"], "expected the name of one study"),
        (["--design", "3"], "is a design of a study"),
        (["chip=npu_dse", "+objectives.nope=min"], "no metric 'nope'"),
        (["nosuch"], "nosuch"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_line(line: list[str], why: str, typed: Typed) -> None:
    code, _, err = typed("explain", "--full", *line)
    assert code == 2
    assert why in err
    assert len(err.strip().splitlines()) == 1


def test_what_a_constraint_is_broken_by_can_be_read() -> None:
    """A share of zero exceeds a bound without end."""
    near = DesignOutcome({"slo_attainment": 0.6}, broken=(("slo_attainment >= 0.9", 0.5),))
    none = DesignOutcome({"slo_attainment": 0.0}, broken=(("slo_attainment >= 0.9", 0.9 / 1e-300 - 1),))
    assert near.violations_text == "violates slo_attainment >= 0.9 by 50.00%"
    assert none.violations_text == "violates slo_attainment >= 0.9, is 0"


def test_loads_in_the_steady_state_come_together_as_each_design_by_itself() -> None:
    study = find_study("npu_serving")
    goal = analytical_goal(study_goal(study), study.question.base)
    assert goal.fidelity == "steady_state"
    draws = RandomSampler(study.question.space, 4)
    designs = [study.question.space.design_at(draws.ask(number, None).values) for number in range(24)]
    together, alone = evaluate_points(designs, goal), [evaluate_points([design], goal)[0] for design in designs]
    assert sum(point is not None and not point.limit for point in together) > 2
    for outcome, other in zip(together, alone, strict=True):
        assert outcome is not None
        assert other is not None
        assert outcome.violations_text == other.violations_text
        assert outcome.metrics == pytest.approx(other.metrics, rel=1e-9)


def test_as_many_come_at_once_as_there_is_time_for_and_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first are few, and say how many more there is time for; what time is left for all changes no answer."""
    study = find_study("mesh_llm", *AT_ONE_RATE)
    goal = analytical_goal(study_goal(study), study.question.base)
    draws = RandomSampler(study.question.space, 5)
    designs = list(dict.fromkeys(study.question.space.design_at(draws.ask(number, None).values) for number in range(24)))
    came, evaluated = list[int](), moves._evaluate_answers

    def noted(designs: list[Design], goal: StudyGoal) -> list[DesignOutcome]:
        came.append(len(designs))
        return evaluated(designs, goal)

    monkeypatch.setattr(moves, "_evaluate_answers", noted)
    monkeypatch.setattr(moves, "FEW_AT_ONCE", 2)
    monkeypatch.setattr(moves, "DESIGNS_PER_S", 0)
    limited = evaluate_points(designs, goal, seconds=1e6)
    assert came == [2, 16, len(designs) - 18]
    for outcome, other in zip(limited, evaluate_points(designs, goal), strict=True):
        assert outcome is not None
        assert other is not None
        assert outcome.violations_text == other.violations_text
        assert outcome.metrics == pytest.approx(other.metrics, rel=1e-9)


@given(before=st.integers(1, 4096), taken=st.floats(0, 1e3), left=st.floats(0, 1e3))
def test_what_comes_next_is_done_in_time_at_the_pace_of_what_came(before: int, taken: float, left: float) -> None:
    size = batch_size(before, taken, left)
    assert size <= max(GROWTH * before, FEW_AT_ONCE)
    assert size == FEW_AT_ONCE or size * taken <= before * left * (1 + 1e-9)


@pytest.mark.parametrize(("by", "nothing"), [(SAME / 10, True), (-SAME / 10, True), (SAME * 10, False)])
def test_what_rounding_leaves_is_no_change_and_no_elasticity(by: float, nothing: bool) -> None:
    study = find_study("quickstart")
    goal = replace(study_goal(study), objectives={"tpot": "min"})
    step = Neighbour("mapping.both.tp", 2, 4, study.question.space.base)
    effect = compute_knob_effect(step, DesignOutcome({"tpot": 0.01}), DesignOutcome({"tpot": 0.01 * (1 + by)}), goal)
    assert (effect.is_nothing, effect.change["tpot"] == 0.0, effect.elasticity["tpot"] == 0.0) == (nothing,) * 3


def test_steps_of_a_chip_with_a_data_sheet_are_compared_with_what_the_model_makes_of_it() -> None:
    """More HBM bandwidth costs more, whatever the data sheet's area is beside the model's."""
    line = ["chip=h100", "model=llama3_8b", "workload.batch=[16]", "workload.prompt=512", "workload.output=64"]
    why = dse.explain([*line, "+objectives.system_mm2=min", "+objectives.system_price=min", "+objectives.tpot=min"])
    steps = [effect for effect in why.changes if not isinstance(effect.step.new, str)]
    effects = {(effect.step.knob, effect.step.new > effect.step.old): effect for effect in steps}
    wider = effects["chip.hbm.bandwidth", True]
    assert wider.modelled == {"die_area", "tdp"}
    sizes = ([], [f"chip.hbm.bandwidth='{wider.step.new} B/s'"])
    before, after = (dse.evaluate([*line, "chip.published=null", *more]).metrics for more in sizes)
    for name in ("system_mm2", "system_price", "tpot"):
        assert wider.change[name] == pytest.approx(after[name] / before[name] - 1)
    assert 0 < wider.change["system_price"] < 0.05
    assert effects["mapping.both.tp", True].modelled == frozenset()
    assert "by the model's figures alone" in " ".join(repr(why).split())
