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
from dse.execution.result_frame import knob_values, report_order, with_feasibility_and_front
from dse.execution.study import MetricConstraint
from dse.explanations import neighbours as moves
from dse.explanations.design_from_overrides import of_study_not_in
from dse.explanations.elasticities import SAME, knob_effect, knob_effects
from dse.explanations.explanation import APART, Explanation, explain_front, front_shadow_prices, of_stored, study_goal
from dse.explanations.neighbours import (
    FEW_AT_ONCE,
    GROWTH,
    DesignOutcome,
    Neighbour,
    StudyGoal,
    analytical_goal,
    batch_size,
    evaluate_points,
    neighbourhood_space,
    neighbours,
)
from dse.explanations.shadow_prices import MAX_RELAXATION, MIN_GAIN, KnownDesign, gain_over_rivals, shadow_prices
from dse.explanations.stored_design import stored_design
from dse.search.samplers import RandomSampler
from dse.space.design import LEAST, Design, design_key, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves
from dse.space.knobs import IntervalKnob
from dse.space.units import format_quantity
from tests.dse.toy import design_ids, searched, toy

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    """A study of 120 designs, some of which break a limit or a constraint."""
    asked = toy(tmp_path_factory.mktemp("why"), "model=llama3_70b", "++constraints.ttft='<= 2 s'")
    searched(asked, budget=120)
    return StoredStudy(asked)


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
    found = explain_overrides(*line)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert min(found.shares.values()) > -1e-12
    assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_step_is_what_evaluating_the_override_gives(line: list[str]) -> None:
    """A drawn step of each line, typed as anybody would."""
    found = explain_overrides(*line)
    rng = np.random.default_rng(len(line[0]))
    some = [one for one in found.changes if not one.point.refused and isinstance(one.step.new, int | float)]
    for one in rng.choice(np.array(some, dtype=object), 2, replace=False):
        unit = found.space.spec(one.step.knob).metadata["unit"]
        value = f"'{one.step.new!r} {unit}'" if unit not in ("", "1") else repr(one.step.new)
        typed = dse.evaluate(
            [*line, f"++{one.step.knob}={value}" if "both" not in one.step.knob else f"{one.step.knob}={value}"]
        )
        for name, by in one.change.items():
            assert typed.metrics[name] == pytest.approx((1 + by) * found.point.metrics[name])
        assert (typed.infeasible is None) == (not one.point.limit)


def test_an_elasticity_is_a_ratio_of_logarithms(why: Explanation) -> None:
    numbers = [one for one in why.changes if one.step.up is not None]
    assert {one.step.knob for one in numbers} > {"chip.cores", "mapping.both.tp"}
    for one in numbers:
        for name, elastic in one.elasticity.items():
            by = log(float(one.step.new) / float(one.step.old))
            assert elastic * by == pytest.approx(log(one.point.metrics[name] / why.point.metrics[name]), abs=1e-12)
    assert not any(one.elasticity for one in why.changes if one.step.up is None)


def test_steps_go_both_ways_to_the_next_value_of_the_space(ran: StoredStudy) -> None:
    space = ran.study.question.space
    for _, row in ran.frame().head(20).iterrows():
        values = knob_values(ran.study, row.to_dict())
        for knob in space.knobs:
            moved = sorted(one.new for one in neighbours(space, values) if one.knob == knob.address and one.up is not None)
            if isinstance(knob, IntervalKnob):
                tenths = [max(knob.low, values[knob.address] * 0.9), min(knob.high, values[knob.address] * 1.1)]
                assert moved == pytest.approx([end for end in tenths if end != values[knob.address]])
            elif not knob.words:
                known = sorted(knob.values)
                at = known.index(values[knob.address])
                assert moved == known[max(at - 1, 0) : at] + known[at + 1 : at + 2]


def test_a_front_at_once_is_its_designs_one_by_one(ran: StoredStudy) -> None:
    members = explain_front(ran.study, ran.frame())
    assert [one.name for one in members] == design_ids(ran)[: int(ran.frame()["front"].sum())]
    for member in members[:3]:
        alone = ran.why(member.name)
        assert member.changes is not None
        assert [one.step for one in member.changes] == [one.step for one in alone.changes]
        for one, other in zip(member.changes, alone.changes, strict=True):
            assert one.change == pytest.approx(other.change)
            assert one.point.why == other.point.why


def test_what_there_is_no_time_for_is_said(ran: StoredStudy) -> None:
    space, goal = ran.study.question.space, study_goal(ran.study)
    values = [knob_values(ran.study, row.to_dict()) for _, row in ran.frame().iterrows()]
    first = stored_design(ran.study, ran.frame(), None, design_ids(ran)[0])
    assert set(map(type, knob_effects(space, values, goal, seconds=-1.0))) == {type(None)}
    assert of_stored(ran.study, ran.frame(), first, seconds=-1.0).left == tuple(
        dict.fromkeys(
            one.knob
            for one in neighbours(space, knob_values(ran.study, report_order(ran.study, ran.frame()).iloc[0].to_dict()))
        )
    )


def test_relaxed_as_little_as_the_price_says_the_front_moves_and_not_before(ran: StoredStudy) -> None:
    frame = ran.frame()
    found = [one for one in front_shadow_prices(ran.study, frame) if one.address == "ttft"]
    assert found
    (price,) = found
    (bound,) = ran.study.bounds
    old = frame[frame["front"]]
    for share, moved in ((1 - 1e-6, False), (1 + 1e-9, True)):
        relaxed = replace(bound, value=bound.value + price.relaxation * share)
        new = with_feasibility_and_front(replace(ran.study, bounds=(relaxed,)), frame)
        fresh = new[new["front"] & ~frame["feasible"]]
        better = [
            gain_over_rivals(study_goal(ran.study), _point(row, ran), [_point(one, ran) for _, one in old.iterrows()])
            for _, row in fresh.iterrows()
        ]
        assert any(one is not None for one in better) == moved


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
    found = shadow_prices(goal, known, lambda point: gain_over_rivals(goal, point, [DesignOutcome(row) for row in good]))
    moving = [
        row["ttft"]
        for row in bad
        if row["ttft"] - 1 <= MAX_RELAXATION
        and not any(
            one["throughput"] >= row["throughput"] * (1 - MIN_GAIN) and one["tpot"] <= row["tpot"] * (1 + MIN_GAIN)
            for one in good
        )
    ]
    assert [price.then for price in found] == ([min(moving)] if moving else [])
    for price in found:
        at = price.known.at
        beside = [one["throughput"] for one in good if one["tpot"] <= at["tpot"]]
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
        assert price.text.endswith(f"it buys {', or '.join(bought)}") or not bought


def _never() -> Any:
    raise AssertionError("a constraint needs no limits")


def test_a_limit_is_priced_by_what_is_needed_of_it(ran: StoredStudy) -> None:
    """In its own unit, and no design that needs less of it would move the front."""
    space, goal = ran.study.question.space, replace(study_goal(ran.study), bounds=())
    columns = space.sample(np.random.default_rng(3).random((600, len(space.knobs))))
    values = [space.row(columns, row) for row in range(600)]
    found = evaluate_points([space.at(one) for one in values], goal)
    good = [point for point in found if point is not None and point.feasible]
    known = [
        KnownDesign(at, partial(space.at, at), point) for at, point in zip(values, found, strict=True) if point is not None
    ]
    (price,) = shadow_prices(goal, known, lambda point: gain_over_rivals(goal, point, good))
    assert (price.address, price.unit) == ("chip.hbm.capacity", "B")
    moving = [one.point.need for one in known if one.point.limit and gain_over_rivals(goal, one.point, good) is not None]
    assert price.then == min(moving)
    assert price.now == pytest.approx(64e9)


def test_the_next_designs_are_the_nearest_of_the_front_on_either_side(ran: StoredStudy) -> None:
    frame = report_order(ran.study, ran.frame())
    front = frame[frame["front"]]
    for place in range(min(5, len(front))):
        why, here = ran.why(front["design"].iloc[place]), front.iloc[place]
        for near, side in ((why.cheaper, -1), (why.faster, 1)):
            far = {}
            for _, one in front.iterrows():
                cost, slow = log(one["system_price"] / here["system_price"]), log(one["tpot"] / here["tpot"])
                if side * cost >= APART and -side * slow >= APART:
                    far[one["design"]] = abs(cost) + abs(slow)
            assert (near.name if near else None) == (min(far, key=lambda name: far[name]) if far else None)


def test_a_design_is_named_by_its_id_and_by_no_rank(ran: StoredStudy) -> None:
    """Of every row, searched or screened: the id is the beginning of the key of the design that is built of its knobs."""
    asked, frame = ran.study, ran.frame()
    rows = report_order(asked, frame)
    assert len(set(rows["design"])) == len(rows)
    for rank, row in list(enumerate(rows.to_dict("records"), 1))[::7]:
        own = design_key(asked.question.space.at(knob_values(asked, row)))
        assert own.startswith(row["design"])
        assert len(row["design"]) >= LEAST
        found = [stored_design(asked, frame, None, typed) for typed in (row["design"], own[:LEAST].upper(), own)]
        assert all((one.id, one.values) == (row["design"], knob_values(asked, row)) for one in found)
        for typed in (str(rank), f"#{rank}"):
            with pytest.raises(DesignError, match=f"is a rank, .* rank {rank} is {row['design']} now"):
                stored_design(asked, frame, None, typed)
    for wrong in ("0", str(len(frame) + 1)):
        with pytest.raises(DesignError, match=r"is a rank, .* ranks are 1 to"):
            stored_design(asked, frame, None, wrong)
    for wrong in ("zzzzzz", "fad1", "", own + "0"):
        with pytest.raises(DesignError, match=r"is no id of a design; .* the first of its front are"):
            stored_design(asked, frame, None, wrong)
    with pytest.raises(DesignError, match="no design '0123456789abcdef' in study toy"):
        stored_design(asked, frame, None, "0123456789abcdef")


def test_every_command_answers_for_the_design_of_an_id(ran: StoredStudy) -> None:
    """Each for the same design: with the metrics that its row has."""
    for row in report_order(ran.study, ran.frame()).to_dict("records")[:20:9]:
        which = row["design"]
        own = ran.evaluate(which)
        assert design_key(own.design).startswith(which)
        assert own.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-12)
        assert ran.explain(design=which).point.metrics["tpot"] == pytest.approx(row["tpot"], rel=1e-12)
        stands = of_study_not_in(ran.study, ran.frame(), stored_design(ran.study, ran.frame(), None, which))
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
    first = next(digit for digit in "abcdef" if sum(one.startswith(digit) for one in ids) > 1)
    same = [one for one in ids if one.startswith(first)]
    with pytest.raises(DesignError, match=f"{len(same)} designs of study toy begin with '{first}': ") as refused:
        stored_design(ran.study, frame, None, first)
    named = str(refused.value).partition(f"'{first}': ")[2].partition(";")[0].partition(" and ")[0].split(", ")
    assert set(named) <= set(same)
    for one in named:
        assert stored_design(ran.study, frame, None, one).id == one


def test_steps_around_a_design_are_those_that_may_be_typed() -> None:
    found = dse.evaluate("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]")
    space = neighbourhood_space(found.design, lambda address, word: word == "ce")
    known = {knob.address: knob.values for knob in space.knobs}
    assert known["mapping.both.tp"] == (4, 2, 8)
    assert known["chip.clock"] == pytest.approx((5e8, 4.5e8, 5.5e8))
    assert "ce" not in known["chip.tile.matrix.dataflow"]
    assert "chip.noc.topology" not in {
        one.step.knob for one in explain_overrides("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]").changes
    }
    assert not [
        address for address in known if address.startswith(("chip.technology.", "mapping.precision.", "mapping.stack."))
    ]
    fewer = neighbourhood_space(found.design, lambda address, word: word == "ce", lambda _: ["chip.clock"])
    assert {knob.address for knob in space.knobs} - {knob.address for knob in fewer.knobs} == {"chip.clock"}
    moved = {target for targets in space.targets.values() for target in targets}
    assert moved < {address for address, _, _ in iterate_leaves(found.design)}


def test_designs_are_evaluated_as_each_by_itself(ran: StoredStudy) -> None:
    """Those that are refused among others as well, and those asked for twice."""
    space, goal = ran.study.question.space, analytical_goal(study_goal(ran.study), ran.study.question.base)
    designs = [space.at(knob_values(ran.study, row.to_dict())) for _, row in ran.frame().head(40).iterrows()]
    for design, point in zip([*designs, designs[0]], evaluate_points([*designs, designs[0]], goal), strict=True):
        columns = dse.evaluators.evaluate(stack_designs([design]), goal.workload, metrics=goal.metrics).columns
        assert point is not None
        assert point.metrics == pytest.approx({name: column[0] for name, column in columns.items() if np.isfinite(column[0])})


def test_knobs_that_change_nothing_are_named(typed: Typed) -> None:
    line = ["chip=tile32", "workload=attention"]
    found = explain_overrides(*line)
    assert "chip.hbm.capacity" in found.idle
    assert not {"chip.clock", "chip.noc.word_bytes"} & set(found.idle)
    _, out, _ = typed("explain", *line)
    assert "knobs without effect:  " in out


def test_the_terminal_and_json_say_the_same(ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(ran.study.run_dir)
    monkeypatch.chdir(folder)
    (folder / "runs" / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "runs" / "toy" / "store.url").write_text(ran.study.store)
    second = design_ids(ran)[1]
    code, out, _ = typed("explain", "toy", "--design", second)
    assert not code
    found = ran.why(second)
    assert all(f"{name} {share:.1%}" in out for name, share in found.shares.items() if share > 0.01)
    assert all(f"│ {knob} " in out for knob in {one.step.knob for one in found.changes} - set(found.idle))
    code, out, _ = typed("explain", "--json", "toy", "--design", second)
    said = json.loads(out)
    assert said["shares_of_time"] == pytest.approx(dict(found.shares))
    assert len(said["steps"]) == len(found.changes)
    assert [one["text"] for one in said["prices_of_constraints"]] == [str(one) for one in found.prices]
    assert said["metrics"]["tpot"] == {"value": pytest.approx(found.point.metrics["tpot"]), "unit": "s"}
    code, out, _ = typed("explain", "--json", "toy")
    designs = json.loads(out)["designs"]
    assert len(designs) == int(ran.frame()["front"].sum())
    assert all(sum(one["shares_of_time"].values()) == pytest.approx(1.0) for one in designs)
    code, out, _ = typed("explain", "toy")
    assert "front of toy" in out
    code, _, err = typed("explain", "toy", "--design", second, "chip.cores=300")
    assert code == 2
    assert "remove one of them" in err
    code, out, _ = typed("explain", "--json", "toy", "chip.cores=300")
    cores = [step["to"] for step in json.loads(out)["steps"] if step["knob"] == "chip.cores"]
    assert cores == [280, 320]
    code, _, err = typed("explain", "toy", "workload.batch=[3]")
    assert code == 2
    assert "designs cannot be compared" in err


def test_flags_of_hydra_s_do_what_they_do_elsewhere(typed: Typed) -> None:
    code, out, _ = typed("explain", "--cfg", "job", "chip=npu_dse")
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
    code, _, err = typed("explain", *line)
    assert code == 2
    assert why in err
    assert len(err.strip().splitlines()) == 1


def test_what_a_constraint_is_broken_by_can_be_read() -> None:
    """A share of zero exceeds a bound without end."""
    near = DesignOutcome({"slo_attainment": 0.6}, broken=(("slo_attainment >= 0.9", 0.5),))
    none = DesignOutcome({"slo_attainment": 0.0}, broken=(("slo_attainment >= 0.9", 0.9 / 1e-300 - 1),))
    assert near.why == "breaks slo_attainment >= 0.9 by 50.00%"
    assert none.why == "breaks slo_attainment >= 0.9, is 0"


def test_loads_in_the_steady_state_come_together_as_each_design_by_itself() -> None:
    asked = find_study("npu_serving")
    goal = analytical_goal(study_goal(asked), asked.question.base)
    assert goal.fidelity == "steady_state"
    draws = RandomSampler(asked.question.space, 4)
    designs = [asked.question.space.at(draws.ask(number, None).values) for number in range(24)]
    together, alone = evaluate_points(designs, goal), [evaluate_points([design], goal)[0] for design in designs]
    assert sum(point is not None and not point.limit for point in together) > 2
    for one, other in zip(together, alone, strict=True):
        assert one is not None
        assert other is not None
        assert one.why == other.why
        assert one.metrics == pytest.approx(other.metrics, rel=1e-9)


def test_as_many_come_at_once_as_there_is_time_for_and_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first are few, and say how many more there is time for; what time is left for all changes no answer."""
    asked = find_study("mesh_llm")
    goal = analytical_goal(study_goal(asked), asked.question.base)
    draws = RandomSampler(asked.question.space, 5)
    designs = list(dict.fromkeys(asked.question.space.at(draws.ask(number, None).values) for number in range(24)))
    came, evaluated = list[int](), moves._evaluated

    def noted(some: list[Design], of: StudyGoal) -> list[DesignOutcome]:
        came.append(len(some))
        return evaluated(some, of)

    monkeypatch.setattr(moves, "_evaluated", noted)
    monkeypatch.setattr(moves, "FEW_AT_ONCE", 2)
    monkeypatch.setattr(moves, "DESIGNS_PER_S", 0)
    limited = evaluate_points(designs, goal, seconds=1e6)
    assert came == [2, 16, len(designs) - 18]
    for one, other in zip(limited, evaluate_points(designs, goal), strict=True):
        assert one is not None
        assert other is not None
        assert one.why == other.why
        assert one.metrics == pytest.approx(other.metrics, rel=1e-9)


@given(before=st.integers(1, 4096), taken=st.floats(0, 1e3), left=st.floats(0, 1e3))
def test_what_comes_next_is_done_in_time_at_the_pace_of_what_came(before: int, taken: float, left: float) -> None:
    size = batch_size(before, taken, left)
    assert size <= max(GROWTH * before, FEW_AT_ONCE)
    assert size == FEW_AT_ONCE or size * taken <= before * left * (1 + 1e-9)


@pytest.mark.parametrize(("by", "nothing"), [(SAME / 10, True), (-SAME / 10, True), (SAME * 10, False)])
def test_what_rounding_leaves_is_no_change_and_no_elasticity(by: float, nothing: bool) -> None:
    asked = find_study("quickstart")
    goal = replace(study_goal(asked), objectives={"tpot": "min"})
    step = Neighbour("mapping.both.tp", 2, 4, asked.question.space.base)
    found = knob_effect(step, DesignOutcome({"tpot": 0.01}), DesignOutcome({"tpot": 0.01 * (1 + by)}), goal)
    assert (found.nothing, found.change["tpot"] == 0.0, found.elasticity["tpot"] == 0.0) == (nothing,) * 3
