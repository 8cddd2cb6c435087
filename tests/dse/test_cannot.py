"""What a study cannot say: each remark against its definition, written out; and why, as the page has it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.residuals import Residual
from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.execution.result_frame import knob_values, mark_feasibility_and_front, report_order
from dse.execution.study import MetricConstraint
from dse.explanations.explanation import compute_front_shadow_prices, explain_front
from dse.explanations.near_feasible import collect_known_tables
from dse.report.caveats import (
    ASSUMED_RESOLUTION,
    Caveat,
    collect_study_caveats,
    find_idle_constraint_caveats,
    find_idle_knob_caveats,
    find_inactive_knob_caveats,
    objective_resolution,
    select_distinct_front,
    thin_to_resolution,
)
from dse.report.payload import report_payload
from dse.terminal.json_text import format_json
from tests.dse.toy import design_ids, searched, toy

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    """With a knob that costs money only, which no objective has."""
    study = toy(tmp_path_factory.mktemp("cannot"), "+space.chip.hbm.capacity='tag(GB, choice(64, 80, 96))'")
    searched(study, budget=100)
    return StoredStudy(study)


def test_a_knob_that_changes_nothing_is_named_and_no_other(ran: StoredStudy) -> None:
    (caveat,) = find_idle_knob_caveats(ran.study, ran.frame())
    assert (caveat.kind, caveat.what) == ("knob", "chip.hbm.capacity")
    priced = replace(ran.study, objectives={**ran.study.objectives, "system_price": "min"})
    assert not find_idle_knob_caveats(priced, ran.frame())


def test_a_knob_that_counts_at_no_design_is_named(ran: StoredStudy, tmp_path: Path) -> None:
    assert not find_inactive_knob_caveats(ran.study, ran.frame())
    never = "{sweep: 'tag(GB, choice(64, 80))', when: {mapping.both.tp: [7], chip.cores: [301, 302]}}"
    study = toy(tmp_path, f"+space.chip.hbm.capacity={never}")
    searched(study, budget=20)
    (caveat,) = find_inactive_knob_caveats(study, StoredStudy(study).frame())
    where = "as none has mapping.both.tp 7 and chip.cores 301 or 302"
    assert caveat == Caveat("knob", "chip.hbm.capacity", f"chip.hbm.capacity is inactive: at none of 20 designs, {where}")


def test_a_knob_is_not_idle_where_it_decides_what_fits(tmp_path: Path) -> None:
    study = toy(tmp_path, "model=llama3_70b", "+space.chip.hbm.capacity='tag(GB, choice(64, 80, 96))'")
    searched(study, budget=40)
    assert not find_idle_knob_caveats(study, StoredStudy(study).frame())


def test_at_a_higher_fidelity_stored_designs_say_which_knob_is_idle(ran: StoredStudy) -> None:
    """What the lowest reader does not see may well matter."""
    study = replace(ran.study, fidelity="events")
    rows = pd.DataFrame([knob_values(ran.study, row) for row in ran.frame().head(6).to_dict("records")])
    first = rows.iloc[:1].assign(**{"mapping.both.prefetch": "partial"})
    cores = pd.concat([first.assign(**{"chip.cores": value}) for value in (200, 300, 400)])
    ways = pd.concat([first.assign(**{"mapping.both.prefetch": word}) for word in ("none", "whole")])
    known = pd.concat([cores, ways], ignore_index=True).assign(limit=None, error=None, ttft=1.0, throughput_per_system_mm2=2.0)
    same = known.assign(tpot=[0.1, 0.1, 0.1, 0.2, 0.3])
    (caveat,) = find_idle_knob_caveats(study, same)
    assert (caveat.what, "3 stored designs" in caveat.text) == ("chip.cores", True)
    assert not find_idle_knob_caveats(study, known.assign(tpot=[0.1, 0.1, 0.11, 0.2, 0.3]))
    assert not find_idle_knob_caveats(study, same.assign(limit=["chip.hbm.capacity", None, None, None, None]))


def test_constraints_that_do_not_bind_are_those_without_which_the_front_is_the_same(ran: StoredStudy) -> None:
    frame = ran.frame()
    times = np.sort(frame["ttft"].to_numpy(dtype=float))
    kinds = set()
    for value in (times[-1] * 1.01, *np.quantile(times, [0.02, 0.2, 0.5, 0.8, 0.95, 0.99])):
        study = replace(ran.study, bounds=(MetricConstraint("ttft", "<=", float(value)),))
        rows = mark_feasibility_and_front(study, frame)
        broken = int((rows["ttft"] > value).sum())
        free = mark_feasibility_and_front(replace(study, bounds=()), frame)
        same = set(rows.index[rows["front"]]) == set(free.index[free["front"]])
        constraint_caveats = find_idle_constraint_caveats(study, rows)
        assert bool(constraint_caveats) == (same and bool(rows["feasible"].any()))
        for constraint_caveat in constraint_caveats:
            assert ("is never violated" in constraint_caveat.text) == (not broken)
            assert ("without it the front is the same" in constraint_caveat.text) == bool(broken)
        kinds.add((bool(constraint_caveats), bool(broken)))
    assert {(True, False), (False, True)} <= kinds


def test_a_design_that_was_screened_and_searched_is_counted_once(tmp_path: Path) -> None:
    small = ["+space.mapping.both.prefetch_share={sweep: 'choice(0.5, 1.0)', when: {mapping.both.prefetch: [partial]}}"]
    study = toy(tmp_path, *small, "screen.run=true", "screen.limit=64", "search=local", "search.budget=40")
    run_study(study)
    part = StoredStudy(study).part()
    assert part.screened is not None
    seen = [
        knob_values(study, row)
        for rows in collect_known_tables(study, part.frame, part.screened)
        for row in rows.to_dict("records")
    ]
    assert len(seen) == len({tuple(values.items()) for values in seen}) == len(part.frame)
    assert len(seen) < part.screened.rows + (part.frame["stage"] == "search").sum()


def test_all_that_was_screened_is_looked_through_and_not_only_what_a_frame_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("model=llama3_70b", "++constraints.ttft='<= 1 s'", "screen.run=true", "screen.limit=512", "search.sampler=none")
    study = toy(tmp_path, *more)
    run_study(study)
    part = StoredStudy(study).part()
    assert part.screened is not None
    whole = {price.what: (price.then, price.gains) for price in compute_front_shadow_prices(study, part.frame)}
    assert whole
    monkeypatch.setattr("dse.execution.result_frame.SCREEN_ROWS", 20)
    few = StoredStudy(study).frame()
    assert len(few) < len(part.frame) / 4
    assert {price.what: (price.then, price.gains) for price in compute_front_shadow_prices(study, few, part.screened)} == whole
    free = replace(study, bounds=(MetricConstraint("ttft", "<=", float(part.frame["ttft"].max())),))
    (caveat,) = find_idle_constraint_caveats(free, mark_feasibility_and_front(free, few), part.screened)
    assert f"is never violated: of {part.screened.rows} designs the nearest to it has " in caveat.text


def test_an_objective_that_tells_nothing_apart_is_named(ran: StoredStudy) -> None:
    def caveats_of(tpot: Any) -> list[Caveat]:
        rows = mark_feasibility_and_front(ran.study, ran.frame().assign(tpot=tpot))
        return [study_caveat for study_caveat in collect_study_caveats(ran.study, rows) if study_caveat.kind == "objective"]

    size = len(ran.frame())
    (same,) = caveats_of(0.02)
    assert (same.what, "constant: 20 ms of all" in same.text) == ("tpot", True)
    (near,) = caveats_of(np.linspace(0.02, 0.02 * (1 + ASSUMED_RESOLUTION / 2), size))
    assert "does not distinguish designs: it differs by 0.5" in near.text
    assert not caveats_of(np.linspace(0.02, 0.02 * (1 + 2 * ASSUMED_RESOLUTION), size))


def test_where_nothing_is_feasible_it_is_said_what_would_have_to_give(ran: StoredStudy) -> None:
    study = replace(ran.study, bounds=(MetricConstraint("tpot", "<=", 1e-6),))
    rows = mark_feasibility_and_front(study, ran.frame())
    first, second = (
        study_caveat.text for study_caveat in collect_study_caveats(study, rows) if study_caveat.kind == "feasible"
    )
    assert f"none of {len(rows)} designs is feasible: tpot <= 1 us rejects {len(rows)}" in first
    assert "smallest relaxation that admits a design: tpot <= " in second
    assert not [
        study_caveat for study_caveat in collect_study_caveats(ran.study, ran.frame()) if study_caveat.kind == "feasible"
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 3), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
@settings(max_examples=60)
def test_distinct_designs_stand_for_all_within_what_tells_them_apart(seed: int, rows: int, wide: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(1, 2, (rows, wide))
    directions = list(rng.choice(["max", "min"], wide))
    kept, representatives = thin_to_resolution(values, directions, [share] * wide)
    assert set(representatives) == set(kept)
    for row, stands in enumerate(representatives):
        for column, direction in enumerate(directions):
            mine, other = values[row, column], values[stands, column]
            assert other >= mine * (1 - share) if direction == "max" else other <= mine * (1 + share)
    if share == 0.5 and wide == 1:
        assert len(kept) == 1 or values.max() / values.min() > 1.5


def test_what_tells_designs_apart_is_half_the_band_of_measured_rows(ran: StoredStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {by for by, _ in objective_resolution(ran.study).values()} == {ASSUMED_RESOLUTION}
    from dse.accuracy.result_kind import kernel_algorithm, result_kind
    from dse.space.compatibility import workload_name

    question = workload_name(ran.study.config["workload"])
    kernel = kernel_algorithm(ran.study.question.base, question)
    names = {name: str(ran.study.config["choices"].get(name, "")) for name in ("chip", "mapping", "stack")}
    kind = result_kind(names, kernel, question, "tpot", "analytical")
    rows = tuple(Residual("a", str(place), "check", kind, False, error) for place, error in enumerate((-0.1, 0.05, 0.21)))
    monkeypatch.setattr("dse.accuracy.residuals.read_residuals", lambda: rows)
    by, how = objective_resolution(ran.study)["tpot"]
    assert by == pytest.approx((1.21 / 0.9) ** 0.5 - 1)
    assert "measured rows" in how
    kept, representatives = select_distinct_front(ran.study, ran.frame())
    assert len(kept) <= len(representatives) == int(ran.frame()["front"].sum())


def test_the_page_has_why_each_design_of_the_front_is_there(ran: StoredStudy) -> None:
    part = ran.part()
    (study,) = report_payload([part])["studies"]
    why = json.loads(format_json(study["why"]))
    members = explain_front(ran.study, part.frame)
    assert list(why["designs"]) == [str(place) for place in range(len(members))]
    for member, shown in zip(members, why["designs"].values(), strict=True):
        assert member.changes is not None
        assert [step[0] for step in shown["steps"]] == [change.step.knob for change in member.changes]
        assert [step[2][0] for step in shown["steps"]] == pytest.approx(
            [change.change["throughput_per_system_mm2"] for change in member.changes], rel=1e-3
        )
    for place in range(min(4, len(members))):
        alone = ran.why(members[place].name)
        shown = why["designs"][str(place)]
        for side, near in (("cheaper", alone.cheaper), ("faster", alone.faster)):
            assert (shown[side] and design_ids(ran)[shown[side]["row"]]) == (near.name if near else None)
    assert why["left"] == 0
    assert [remark["what"] for remark in why["remarks"] if remark["kind"] == "knob"] == ["chip.hbm.capacity"]
    assert set(why["distinct"]["of"]) == set(why["distinct"]["rows"])


def test_the_terminal_says_what_the_study_cannot(ran: StoredStudy, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(ran.study.run_dir)
    monkeypatch.chdir(folder)
    (folder / "runs" / "toy").mkdir(parents=True, exist_ok=True)
    (folder / "runs" / "toy" / "store.url").write_text(ran.study.store)
    code, out, _ = typed("explain", "--full", "toy")
    assert not code
    assert "chip.hbm.capacity changes nothing" in " ".join(out.split())
    code, out, _ = typed("explain", "--json", "toy")
    document = json.loads(out)
    assert {remark["what"] for remark in document["remarks"]} >= {"chip.hbm.capacity"}
    front = report_order(ran.study, ran.frame())
    assert set(document["distinct"]) <= set(front["design"][front["front"]])
