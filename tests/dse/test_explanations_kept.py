"""What an explanation works out is kept: a second one evaluates nothing, and says the same."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.commands.explain import explain_config
from dse.commands.notebook_api import StoredStudy
from dse.config.compose import compose
from dse.evaluators import PHYSICS_VERSION
from dse.execution.study import build_study, workload_key
from dse.explanations import explanation as explained
from dse.explanations import neighbours
from dse.explanations.bound_relaxations import LOOSER, SLO_BOUNDS
from dse.explanations.design_from_overrides import place_study_design
from dse.explanations.elasticities import KnobEffect
from dse.explanations.explanation import STAGES, Explanation, explain_stored_design, study_goal
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.explanations.neighbours import StudyGoal, evaluate_points, list_neighbours
from dse.explanations.stored_design import find_stored_design
from dse.space.design import Design, design_key
from dse.store.store import ResultContext, Store
from tests.dse.toy import design_ids, searched

SERVED = (
    "name=served",
    "space=quickstart",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+constraints.slo_attainment='>= 0.5'",
    "model=llama3_8b",
    "workload=serving",
    "workload.rate='4 Hz'",
    "workload.requests=40",
    "fidelity=steady_state",
    "search=random",
    "screen.run=false",
)


@pytest.fixture
def ran(tmp_path: Path) -> StoredStudy:
    """A study of served loads in the steady state."""
    study = build_study(compose([*SERVED, f"run_dir={tmp_path}"]), tmp_path)
    searched(study, budget=24)
    return StoredStudy(study)


def _explain(ran: StoredStudy, **options: Any) -> Explanation:
    part = ran.part()
    design = find_stored_design(ran.study, part.frame, None, design_ids(ran)[0])
    return explain_stored_design(ran.study, part.frame, design, **options)


def _effects(changes: Sequence[KnobEffect]) -> list[Any]:
    return [(change.step.knob, change.step.new, dict(change.change), change.point.violations_text) for change in changes]


def _never(*given: Any, **options: Any) -> Any:
    raise AssertionError("evaluated again")


def test_a_second_explanation_evaluates_nothing_and_says_the_same(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _explain(ran)
    gap = first.certificate
    monkeypatch.setattr(neighbours, "_evaluate_answers", _never)
    monkeypatch.setattr(explained, "explain", _never)
    monkeypatch.setattr(explained, "limits", _never)
    monkeypatch.setattr(explained, "compute_optimality_gap", _never)
    second = _explain(ran)
    assert _effects(second.changes) == _effects(first.changes)
    assert _effects(second.bounds) == _effects(first.bounds)
    assert (second.shares, second.limits, second.certificate) == (first.shares, first.limits, gap)
    assert [str(price) for price in second.prices] == [str(price) for price in first.prices]


def test_what_is_stored_comes_first_and_needs_no_evaluation(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    came: list[int] = []
    evaluated = neighbours._evaluate_answers

    def noted(designs: Sequence[Design], goal: StudyGoal) -> Any:
        came.append(len(designs))
        return evaluated(designs, goal)

    monkeypatch.setattr(neighbours, "_evaluate_answers", noted)
    why = _explain(ran, show=lambda stage, explanation: seen.append((stage, len(came))))
    assert [stage for stage, _ in seen] == list(STAGES)
    assert dict(seen)["known"] == dict(seen)["time"] == 0
    assert why.point.metrics["tpot"] == pytest.approx(ran.frame().set_index("design")["tpot"][why.id], rel=1e-12)
    assert len(came) <= 1 + sum(bound.address in {effect.step.knob for effect in why.bounds} for bound in SLO_BOUNDS) + 2


def test_steps_that_come_together_are_those_that_come_alone(ran: StoredStudy) -> None:
    """Each step by itself, in a store that knows nothing of it."""
    space, goal = ran.study.question.space, study_goal(ran.study)
    for change in _explain(ran).changes:
        (alone,) = evaluate_points([change.step.design], replace(goal, metrics=tuple(goal.objectives)), kept=NOTHING_KEPT)
        assert alone is not None
        assert alone.limit == change.point.limit
        for name in goal.objectives if not alone.limit else ():
            assert change.point.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-9)
    assert space.knobs


def test_what_beats_a_design_is_what_whynot_names(ran: StoredStudy) -> None:
    part = ran.part()
    for which in design_ids(ran)[::5]:
        design = find_stored_design(ran.study, part.frame, None, which)
        stands = place_study_design(ran.study, part.frame, design)
        assert {name for rival in stands.rivals for name in (rival.name, *rival.alike)} == set(
            explain_stored_design(ran.study, part.frame, design, seconds=-1.0).beaten_by or ()
        )


def test_a_way_is_found_again_without_an_evaluation(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    part = ran.part()
    which = next(row["design"] for row in part.frame.to_dict("records") if not row["front"] and row["limit"] is None)
    design = find_stored_design(ran.study, part.frame, None, which)
    seen: list[int] = []
    first = place_study_design(ran.study, part.frame, design, show=lambda stands: seen.append(len(stands.path)))
    assert seen == [0]
    assert first.path
    monkeypatch.setattr(neighbours, "_evaluate_answers", _never)
    second = place_study_design(ran.study, part.frame, design)
    assert [(hop.knob, hop.new, dict(hop.point.metrics)) for hop in second.path] == [
        (hop.knob, hop.new, dict(hop.point.metrics)) for hop in first.path
    ]


def test_answers_of_another_physics_or_workload_do_not_count(ran: StoredStudy) -> None:
    kept, workload = KeptAnswers(ran.study.store), ran.study.question.workload
    kept.keep("question", workload, "steady_state", "0" * 32, {"answer": 1})
    assert kept.find("question", workload, "steady_state", "0" * 32) == {"answer": 1}
    assert kept.find("question", workload, "analytical", "0" * 32) is None
    assert kept.find("other", workload, "steady_state", "0" * 32) is None
    other = ResultContext(workload_key(workload), "steady_state", PHYSICS_VERSION + 1)
    with closing(Store(ran.study.store, create=False)) as store:
        assert store.find_explanations(other, "question", ["0" * 32]) == {}


def test_results_of_a_search_answer_for_steps(ran: StoredStudy) -> None:
    """And are not changed by what explanations keep."""
    study = ran.study
    with closing(Store(study.store, create=False)) as store:
        before = store.results(study.context)
    _explain(ran)
    with closing(Store(study.store, create=False)) as store:
        assert store.results(study.context) == before
    sound = [key for key, result in before.items() if not result.limit]
    answers = KeptAnswers(study.store).find_outcomes(study.question.workload, study.fidelity, sound)
    assert {key: answer["metrics"] for key, answer in answers.items()} == {key: before[key].metrics for key in sound}


def test_a_store_without_the_table_gets_it_and_damaged_answers_are_replaced(ran: StoredStudy) -> None:
    kept, workload = KeptAnswers(ran.study.store), ran.study.question.workload
    ask = partial(kept.find, "question", workload, "steady_state", "0" * 32)
    with closing(sqlite3.connect(ran.study.store)) as connection, connection:
        connection.execute("DROP TABLE explanations")
    assert ask() is None
    kept.keep("question", workload, "steady_state", "0" * 32, [1.5])
    assert ask() == [1.5]
    with closing(sqlite3.connect(ran.study.store)) as connection, connection:
        connection.execute("UPDATE explanations SET answer = '[2.5]'")
    assert ask() is None
    kept.keep("question", workload, "steady_state", "0" * 32, [3.5])
    assert ask() == [3.5]


def test_nothing_is_kept_where_there_is_no_store(tmp_path: Path, ran: StoredStudy) -> None:
    workload = ran.study.question.workload
    for kept in (NOTHING_KEPT, KeptAnswers(str(tmp_path / "none.sqlite"))):
        kept.keep("question", workload, "steady_state", "0" * 32, 1)
        assert kept.find("question", workload, "steady_state", "0" * 32) is None
    assert not (tmp_path / "none.sqlite").exists()


def test_a_looser_bound_is_what_typing_it_gives() -> None:
    """At the largest rate, where objectives follow from bounds."""
    line = [
        "chip=npu_dse",
        "model=llama3_8b",
        "workload=serving",
        "workload.rate=max",
        "workload.requests=20",
        "workload.ttft='40 ms'",
        "workload.tpot='4.6 ms'",
        "+objectives.max_rate=max",
        "space=quickstart",
    ]
    why = explain_config(compose(line), "", seconds=1e-9)  # no time for knobs
    assert why.left
    base = dse.evaluate(line)
    typed = {
        "workload.ttft": f"workload.ttft='{0.04 * (1 + LOOSER)} s'",
        "workload.tpot": f"workload.tpot='{0.0046 * (1 + LOOSER)} s'",
        "workload.slo_percentile": f"workload.slo_percentile={100 - 10 * (1 + LOOSER)}",
    }
    goal = replace(why.goal, metrics=("max_rate",))
    bounds = explained.compute_bound_relaxations(why.design, goal, why.point)
    assert bounds
    effects = {effect.step.knob: effect.change["max_rate"] for effect in bounds}
    for address, word in typed.items():
        looser = dse.evaluate([*(old for old in line if not old.startswith(f"{address}=")), word])
        assert effects.get(address, 0.0) == pytest.approx(looser.metrics["max_rate"] / base.metrics["max_rate"] - 1, abs=1e-9)


def test_neighbours_have_keys_of_their_own(ran: StoredStudy) -> None:
    space = ran.study.question.space
    why = _explain(ran)
    keys = {design_key(step.design) for step in list_neighbours(space, why.values)}
    assert len(keys) == len({step.design for step in list_neighbours(space, why.values)})
