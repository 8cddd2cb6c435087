"""Where a design of the user's stands in a study: dominance, changes and distance against their definitions, written out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.commands.notebook_api import StoredStudy
from dse.execution.result_frame import report_order
from dse.explanations.dominance import (
    OUTSIDE,
    DominanceReport,
    DominatingDesign,
    count_changes_to_domination,
    merge_equal_rivals,
)
from dse.explanations.neighbours import DesignOutcome, StudyGoal
from dse.explanations.row_dominance import find_better_rows, find_worse_rows
from dse.space.workload import Workload
from tests.dse.toy import design_ids, searched, toy

Typed = Callable[..., tuple[int, str, str]]

LINES = [
    ["chip.cores=300", "mapping.both.tp=4"],
    ["chip.cores=500", "chip.l2.size='200 MB'", "mapping.both.tp=16", "mapping.both.prefetch=none"],
    ["mapping.prefill.tp=4", "mapping.decode.tp=8", "chip.hbm.bandwidth='2.3 TB/s'"],
    ["mapping.both.tp=1"],
    ["chip=ascend910b"],
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    folder = tmp_path_factory.mktemp("whynot")
    study = toy(folder, "model=llama3_70b")
    searched(study, budget=120)
    (folder / "runs" / "toy").mkdir(parents=True)
    (folder / "runs" / "toy" / "store.url").write_text(study.store)
    return StoredStudy(study)


@pytest.fixture(scope="module", params=LINES, ids=" ".join)
def stands(request: pytest.FixtureRequest, ran: StoredStudy) -> tuple[DominanceReport, list[str]]:
    return ran.whynot(request.param), request.param


@pytest.mark.sampled
def test_the_design_is_what_the_same_overrides_evaluate_to(stands: tuple[DominanceReport, list[str]], ran: StoredStudy) -> None:
    dominance, line = stands
    overrides = ["chip=npu_dse", "model=llama3_70b", "workload.sequence=[2048]"]
    alone = dse.evaluate([*(word for word in overrides if line[0][:5] != word[:5]), *line])
    if alone.infeasible is None:  # others withhold their metrics
        assert dominance.point.metrics == pytest.approx(dict(alone.metrics))
    assert bool(dominance.point.limit) == (alone.infeasible is not None)


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_beat_a_design_are_those_that_no_pair_of_objectives_speaks_against(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.integers(0, 4, (60, 2)).astype(float), columns=["throughput", "tpot"])
    goal = StudyGoal(Workload("", ()), {"throughput": "max", "tpot": "min"}, (), "analytical")
    for fast, slow in rng.integers(0, 4, (10, 2)).astype(float):
        mine = DesignOutcome({"throughput": fast, "tpot": slow})
        better, worse = find_better_rows(goal, mine, rows), find_worse_rows(goal, mine, rows)
        for place, (throughput, tpot) in enumerate(rows.to_numpy()):
            gains, losses = (throughput > fast) + (tpot < slow), (throughput < fast) + (tpot > slow)
            assert better[place] == (gains > 0 and losses == 0)
            assert worse[place] == (losses > 0 and gains == 0)


def test_rivals_are_the_front_designs_that_dominate(stands: tuple[DominanceReport, list[str]], ran: StoredStudy) -> None:
    dominance, _ = stands
    rows = report_order(ran.study, ran.frame())
    mine = {name: dominance.point.metrics[name] for name in ran.study.objectives}
    wanted = set()
    for _, row in rows[rows["front"]].iterrows():
        as_good = row["throughput_per_system_mm2"] >= mine["throughput_per_system_mm2"] and row["tpot"] <= mine["tpot"]
        better = row["throughput_per_system_mm2"] > mine["throughput_per_system_mm2"] or row["tpot"] < mine["tpot"]
        wanted |= {row["design"]} if as_good and better else set()
    assert {name for rival in dominance.rivals for name in (rival.name, *rival.alike)} == wanted
    many = [len(rival.knobs) for rival in dominance.rivals]
    assert many == sorted(many)
    assert all(old != new for rival in dominance.rivals for old, new in rival.knobs.values())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(-4e-4, 4e-4)), max_size=12))
def test_rivals_that_are_named_differ_in_their_objectives(drawn: list[tuple[int, int, float]]) -> None:
    """Each other one is as good as the one that it stands beside, and the order stays."""
    rivals = [
        DominatingDesign(f"#{place}", DesignOutcome({"rate": 10.0**rate * (1 + little), "time": 10.0**-time}), {}, {})
        for place, (rate, time, little) in enumerate(drawn)
    ]
    where = {rival.name: kind[:2] for rival, kind in zip(rivals, drawn, strict=True)}
    equal_rivals = merge_equal_rivals(rivals)
    firsts = {kind[:2]: f"#{place}" for place, kind in reversed([*enumerate(drawn)])}
    assert {equal_rival.name for equal_rival in equal_rivals} == set(firsts.values())
    assert all(where[name] == where[equal_rival.name] for equal_rival in equal_rivals for name in equal_rival.alike)
    assert sorted(name for equal_rival in equal_rivals for name in (equal_rival.name, *equal_rival.alike)) == sorted(where)


def test_the_way_is_greedy_and_ends_at_the_stored_design(stands: tuple[DominanceReport, list[str]], ran: StoredStudy) -> None:
    dominance, _ = stands
    assert dominance.target is not None
    assert not dominance.left
    assert {hop.knob for hop in dominance.path} - {OUTSIDE} == set(dominance.target.knobs)
    assert (OUTSIDE in {hop.knob for hop in dominance.path}) == bool(dominance.outside)
    rows = report_order(ran.study, ran.frame())
    row = rows.set_index("design").loc[dominance.target.name]
    last = dominance.path[-1].point
    assert last.feasible
    for name in ran.study.objectives:
        assert last.metrics[name] == pytest.approx(row[name])
    assert dominance.path[-1].beats == (min(dominance.target.gains.values()) >= 0)


def test_no_stored_design_that_beats_it_differs_in_fewer_knobs(
    stands: tuple[DominanceReport, list[str]], ran: StoredStudy
) -> None:
    dominance, _ = stands
    assert dominance.target is not None
    rows = report_order(ran.study, ran.frame())
    rows = rows[rows["feasible"]]
    mine = dominance.point.metrics
    dominating = rows[(rows["throughput_per_system_mm2"] >= mine["throughput_per_system_mm2"]) & (rows["tpot"] <= mine["tpot"])]
    knobs = list(ran.study.question.space.targets)
    least = min((sum(dominance.values[knob] != row[knob] for knob in knobs) for _, row in dominating.iterrows()), default=None)
    if least is not None:
        assert len(dominance.target.knobs) == least


def test_the_first_change_is_the_best_of_all(ran: StoredStudy) -> None:
    """Typed one by one, as the user would."""
    line = ["chip.cores=300", "mapping.both.tp=4"]
    dominance = ran.whynot(line)
    best = dominance.path[0]

    def gain(metrics: Any) -> float:
        old = dominance.point.metrics
        more = {name: float(np.log(metrics[name] / old[name])) for name in ("throughput_per_system_mm2", "tpot")}
        return more["throughput_per_system_mm2"] - more["tpot"]

    for hop in dominance.path[1:]:
        unit = dominance.space.spec(hop.knob).metadata["unit"]
        value = f"'{hop.new!r} {unit}'" if unit not in ("", "1") else hop.new
        other = ran.whynot([*line, f"{hop.knob}={value}"])
        if other.point.feasible or not best.point.feasible:
            assert gain(other.point.metrics) <= gain(best.point.metrics) + 1e-9


def test_better_by_the_distance_nothing_beats_it_by_less_something_does(
    stands: tuple[DominanceReport, list[str]], ran: StoredStudy
) -> None:
    dominance, _ = stands
    front = ran.front()
    rate, time = dominance.point.metrics["throughput_per_system_mm2"], dominance.point.metrics["tpot"]

    def beaten(rate: float, time: float) -> bool:
        return bool(((front["throughput_per_system_mm2"] > rate * (1 + 1e-12)) & (front["tpot"] < time * (1 - 1e-12))).any())

    by = 1 + dominance.distance
    assert not beaten(rate * by, time / by)
    assert dominance.distance == 0 or beaten(rate * (1 + 0.999 * dominance.distance), time / (1 + 0.999 * dominance.distance))
    assert bool(dominance.distance) == bool(dominance.rivals)
    if "tpot" in dominance.alone:
        assert not beaten(rate, dominance.alone["tpot"])
        assert beaten(rate * (1 - 1e-9), dominance.alone["tpot"] * (1 + 1e-6))


def test_a_design_of_the_front_is_beaten_by_none(ran: StoredStudy) -> None:
    values = ran.why(design_ids(ran)[0]).values
    space = ran.study.question.space
    line = []
    for knob, value in values.items():
        unit = space.spec(knob).metadata["unit"]
        line.append(f"{knob}='{value!r} {unit}'" if unit not in ("", "1") else f"{knob}={value}")
    dominance = ran.whynot(line)
    assert (dominance.rivals, dominance.distance, dominance.alone, dominance.path) == ((), 0.0, {}, ())


def test_what_is_tied_and_typed_stands_beside_what_the_study_has_at_its_knobs(tmp_path: Path) -> None:
    study = toy(tmp_path, "+space.chip.hbm.capacity={tied: \"chip.cores * '320 MB'\"}")
    searched(study, budget=20)
    dominance = StoredStudy(study).whynot(["chip.cores=300", "chip.hbm.capacity='64 GB'"])
    assert dominance.outside == {"chip.hbm.capacity": (96e9, 64e9)}


def test_of_a_design_that_is_not_feasible_it_is_said_how_many_changes_make_it_so(ran: StoredStudy) -> None:
    dominance = ran.whynot(["mapping.both.tp=1"])
    assert not dominance.point.feasible
    assert count_changes_to_domination(dominance.path, feasible=False) == next(
        place for place, hop in enumerate(dominance.path, 1) if hop.point.feasible
    )


def test_halfway_there_it_is_said_how_many_changes_do(ran: StoredStudy) -> None:
    path = ran.whynot(["chip.cores=300", "mapping.both.tp=4"]).path
    assert count_changes_to_domination(path) == next((place for place, hop in enumerate(path, 1) if hop.beats), 0)
    assert count_changes_to_domination(path[:0]) == 0


def test_the_terminal_and_json_say_where_it_stands(ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ran.study.run_dir)
    line = ["chip.cores=300", "mapping.both.tp=4", "chip.clock='0.9 GHz'"]
    dominance = ran.whynot(line)
    code, out, _ = typed("whynot", "--full", "toy", *line)
    assert not code
    output = " ".join(out.split())
    assert "no knob of the study moves: chip.clock 900 MHz (study: 1 GHz)" in output
    assert f"better by {dominance.distance:.2%} in every objective" in output
    assert all(rival.name in out for rival in dominance.rivals[:3])
    code, out, _ = typed("whynot", "--json", "toy", *line)
    record = json.loads(out)
    assert [rival_document["design"] for rival_document in record["front_designs_that_beat_it"]] == [
        rival.name for rival in dominance.rivals
    ]
    assert [hop["change"] for hop in record["path"]] == [hop.knob for hop in dominance.path]
    assert record["outside_the_study"] == {"chip.clock": {"study": 1e9, "here": 9e8}}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ([], "expected the name of one study"),
        (["a", "b"], "expected the name of one study"),
        (["toy", "workload.batch=[7]"], "designs cannot be compared"),
        (["toy", "model=qwen3_8b"], "designs cannot be compared"),
        (["toy", "chip.cors=3"], "chip.cor"),
        (["toy", "fidelity=events"], "remove the override of fidelity"),
        (["toy", "chip=wse2"], "lacks the study's knobs: "),
        (["toy", "objectives.tpot=max"], "objectives are set by the study, not by a design"),
        (["toy", "+constraints.tpot=<= 1 ms"], "dse run study=toy name=NEW +constraints.tpot"),
        (["toy", "space.chip.cores=choice(1,2)"], "space is set by the study"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(
    line: list[str], why: str, ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ran.study.run_dir)
    code, _, err = typed("whynot", "--full", *line)
    assert code == 2
    assert why in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("command", ["whynot", "explain"])
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            ["mapping.both.prefetch=none", "mapping.both.prefetch_share=0.4"],
            "mapping.both.prefetch_share: has no effect with ",
        ),
        (
            ["mapping.both.prefetch=none", "mapping.decode.prefetch_share=0.4"],
            "mapping.decode.prefetch_share: has no effect with ",
        ),
        (
            ["mapping.both.tp=1", "mapping.stack.collective_launch=3 us"],
            "mapping.stack.collective_launch: has no effect, since ",
        ),
    ],
)
def test_what_nothing_reads_of_the_design_is_refused_though_knobs_of_the_study_could_have_it_read(
    command: str, line: list[str], why: str, ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ran.study.run_dir)
    code, _, err = typed(command, "toy", *line)
    assert code == 2
    assert err.startswith(f"dse: {why}")
    assert "leave it out" in err
    assert len(err.strip().splitlines()) == 1


def test_what_the_study_says_of_all_designs_is_not_asked_of_one(tmp_path: Path) -> None:
    """Its run gives a cap, which designs without prefetching have and do not read."""
    study = toy(tmp_path, "model=llama3_70b", "mapping.both.prefetch_share=0.4")
    searched(study, budget=30)
    assert StoredStudy(study).whynot(["mapping.both.prefetch=none"]).rivals


def test_a_study_that_another_ran_under_a_name_is_found_in_the_store_that_is_given(
    ran: StoredStudy, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is of no study that ships and of none that ran in this folder; other overrides are not taken for its own."""
    monkeypatch.chdir(tmp_path)
    place, of_folder = f"store={ran.study.store}", f"run_dir={Path(ran.study.run_dir) / 'runs/toy'}"
    for command in (["whynot", "toy", place, "chip.cores=300"], ["show", "toy", place], ["show", "toy", of_folder]):
        code, out, err = typed(*command)
        assert (code, err) == (0, "")
        assert out
    assert len(dse.load("toy", place).frame()) == len(ran.frame())
    for words, why in (
        ([f"store={tmp_path / 'none.sqlite'}"], "no such file"),
        ([place, "chip.cores=300"], "study 'toy' is read as it was run; remove chip.cores=300"),
        (["chip.cores=300"], "no study 'toy'"),
    ):
        code, _, err = typed("show", "--full", "toy", *words)
        assert code == 2
        assert why in err
        assert len(err.strip().splitlines()) == 1
