"""The best designs at a higher fidelity: what is stored is what the reader says, once, whoever evaluates it and however often
the run was stopped; and what is said of the two is true of them.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse.execution.verify
from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.commands.study_output import print_verification
from dse.config.compose import compose
from dse.evaluators import FIDELITIES, METRICS, evaluate, explain, fidelities
from dse.execution.ask_tell import base_design_key
from dse.execution.provenance import RunClock
from dse.execution.result_frame import combine_with_front, knob_values, round_significant
from dse.execution.screen import run_screen
from dse.execution.study import Study, build_study
from dse.execution.verify import MetricShift, Verification
from dse.execution.verify_order import order_for_verification
from dse.execution.winner_lead import winner_lead
from dse.execution.workers import Batch, SerialWorkers, make_evaluator
from dse.report.page_parts import embed_json
from dse.report.payload import report_payload
from dse.search.pareto import front_mask, nondominated_layers
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.store.store import Store
from tests.dse.toy import toy

PRODUCTS = (
    "name=products",
    "chip=wse2",
    "mapping=product",
    "workload=gemm",
    "workload.shapes=[60x96x48,64x64x64]",
    "space.mapping.rows=range(8,25,4)",
    "space.mapping.gemm=choice(meshgemm,cannon,summa,allgather)",
    "+objectives.latency=min",
    "+objectives.cores=min",
    "+constraints.cycles='<= 1e6 cycle'",
    "search=none",
    "workers=serial",
    "verify=next",
    "verify.designs=12",
)


def products(folder: Path, *overrides: str) -> Study:
    """A study of small products on a mesh of cores, which has events."""
    words = [word if not word.startswith("space.") else f"+{word}" for word in (*PRODUCTS, *overrides)]
    return build_study(compose([*words, f"run_dir={folder}"]), folder)


def ran(study: Study) -> Verification:
    assert run_study(study) == 0
    stored_study = StoredStudy(study).verification()
    assert stored_study is not None
    print_verification(study, stored_study)
    return stored_study


def stored(study: Study) -> dict[str, dict[str, float]]:
    with closing(Store(study.store)) as store:
        return {key: result.metrics for key, result in store.results(study.context_at(study.higher)).items()}


def test_what_is_stored_is_what_the_higher_reader_says(tmp_path: Path) -> None:
    study = products(tmp_path)
    stored_study = ran(study)
    assert (stored_study.low, stored_study.high, len(stored_study.after)) == ("analytical", "events", 12)
    space, workload = study.question.space, study.question.workload
    for record in stored_study.after.to_dict("records"):
        outcomes = evaluate(stack_designs([space.design_at(knob_values(study, record))]), workload, fidelity="events")
        for name in ("latency", "cores", "compute_share", "energy"):
            assert record[name] == outcomes.columns[name][0]
    assert (stored_study.after["latency"] != stored_study.before["latency"]).any()


def test_the_front_is_verified_before_what_is_behind_it(tmp_path: Path) -> None:
    study = products(tmp_path)
    stored_study, frame = ran(study), StoredStudy(study).frame()
    best = set(frame.index[frame["front"]])
    assert set(stored_study.before.index[: len(best)]) == best
    assert 2 < len(best) < 12
    few = products(tmp_path, "verify.designs=2")
    assert set(StoredStudy(few).verification().before.index) < best  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [("workers=ray", "workers.count=1"), ("workers=ray", "workers.count=2")])
def test_workers_in_other_processes_find_the_same(tmp_path: Path, workers: tuple[str, ...]) -> None:
    study, other_study = products(tmp_path / "serial"), products(tmp_path / "ray", *workers)
    stored_study, other = ran(study), ran(other_study)
    assert stored(study) == stored(other_study)
    pd.testing.assert_frame_equal(stored_study.after, other.after)
    assert stored_study.shifts() == other.shifts()


class Counting:
    """Evaluates, counts what it evaluated, and is stopped as by Ctrl-C before it would be more than so many."""

    def __init__(self, inner: Callable[[Batch], Any], most: float = np.inf) -> None:
        self.inner, self.most, self.keys = inner, most, list[str]()

    def __call__(self, batch: Batch) -> Any:
        if len(self.keys) + len(batch) > self.most:
            raise KeyboardInterrupt
        self.keys += [key for key, _, _ in batch]
        return self.inner(batch)


def test_a_run_that_was_stopped_goes_on_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, study = products(tmp_path / "whole"), products(tmp_path / "part")
    expected = ran(whole)
    evaluate = make_evaluator(study.question.workload, "events")
    first, second, third = Counting(evaluate, most=4), Counting(evaluate), Counting(evaluate)
    for count, status in ((first, 130), (second, 0), (third, 0)):
        monkeypatch.setattr(dse.execution.verify, "make_evaluator", lambda workload, fidelity, count=count: count)
        assert run_study(study) == status
    assert 1 <= len(first.keys) <= 4
    assert not set(first.keys) & set(second.keys)
    assert len(first.keys) + len(second.keys) == 20
    assert not third.keys
    pd.testing.assert_frame_equal(StoredStudy(study).verification().after, expected.after)  # type: ignore[union-attr]


def test_what_is_stored_so_far_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = products(tmp_path)
    assert run_study(products(tmp_path, "verify=none")) == 0
    assert StoredStudy(study).verification() is None
    count = Counting(make_evaluator(study.question.workload, "events"), most=1)
    monkeypatch.setattr(dse.execution.verify, "make_evaluator", lambda workload, fidelity: count)
    assert run_study(study) == 130
    (shown,) = report_payload([StoredStudy(study).part()])["studies"]
    assert (shown["verified"]["wanted"], len(shown["verified"]["rows"])) == (12, len(count.keys))


def test_a_design_that_fails_is_off_the_front_and_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = products(tmp_path / "asked", "workers.retries=0")
    victim: list[str] = []
    evaluate = make_evaluator(study.question.workload, "events")

    def broken(batch: Batch) -> Any:
        victim.extend([batch[0][0]] if not victim else [])
        if any(key == victim[0] for key, _, _ in batch):
            raise ZeroDivisionError("a fault of this design")
        return evaluate(batch)

    monkeypatch.setattr(dse.execution.verify, "make_evaluator", lambda workload, fidelity: broken)
    stored_study = ran(study)
    errors = stored_study.after["error"].dropna()
    assert list(errors) == ["ZeroDivisionError: a fault of this design"]
    assert stored_study.moves()[errors.index[0]] == "falls off"
    (shown,) = json.loads(embed_json(report_payload([StoredStudy(study).part()])))["studies"]
    assert shown["verified"]["notes"][0] == errors.iloc[0]
    assert shown["verified"]["metrics"]["latency"][0] is None


def test_a_chip_without_a_higher_fidelity_is_one_line_and_no_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = toy(tmp_path, "search.budget=8", "verify=next")
    assert run_study(study) == 0
    err = capsys.readouterr().err
    assert err.count("verify:") == 1
    assert "verify: this kind of chip has no fidelity above analytical" in err
    assert StoredStudy(study).verification() is None


def test_the_next_fidelity_is_the_one_above_the_study_s_own(tmp_path: Path) -> None:
    question = products(tmp_path).question
    ladder = fidelities(question.base, question.workload)
    assert set(ladder) <= set(FIDELITIES)
    for low, high in zip(ladder, (*ladder[1:], ""), strict=True):
        assert products(tmp_path, f"fidelity={low}", "search=random").higher == high
    assert products(tmp_path, "verify=none").higher == ""
    assert products(tmp_path, "verify.fidelity=events").higher == "events"


def test_on_a_part_of_their_meshes_both_readers_play_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = products(tmp_path, "verify.fidelity=cycles", "verify.submesh=4", "verify.designs=5")
    stored_study = ran(study)
    assert (stored_study.low, stored_study.high, len(stored_study.after)) == ("analytical@4", "cycles@4", 5)
    assert "matrices shrink with the mesh" in stored_study.part
    assert set(stored_study.moves()) == {"compared"}
    assert set(stored_study.after["cores"]) == {16}
    space, workload = study.question.space, study.question.workload
    for frame, fidelity in ((stored_study.before, stored_study.low), (stored_study.after, stored_study.high)):
        for record in frame.to_dict("records"):
            outcomes = evaluate(stack_designs([space.design_at(knob_values(study, record))]), workload, fidelity=fidelity)
            assert record["latency"] == outcomes.columns["latency"][0]
    output = capsys.readouterr().out
    assert stored_study.part in " ".join(output.split())
    gaps = [f"{gap:+.1%}" for gap in stored_study.after["latency"] / stored_study.before["latency"] - 1]
    assert all(gap in output for gap in gaps)
    (shown,) = report_payload([StoredStudy(study).part()])["studies"]
    assert shown["verified"]["part"] == stored_study.part
    assert shown["verified"]["before"]["latency"] == [float(f"{value:.9g}") for value in stored_study.before["latency"]]
    whole = products(tmp_path, "verify.fidelity=cycles", "verify.submesh=0")
    assert whole.compared_fidelities == ("analytical", "cycles")


def test_a_time_that_was_far_off_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the first design waits for loops to be compiled."""
    messages: list[str] = []
    waiting: list[Any] = []
    seconds = iter([100.0])

    class Crew(SerialWorkers):
        def submit(self, batch: Batch) -> None:
            waiting.extend(batch)

        def collect(self) -> list[Any]:
            super().submit([waiting.pop(0)])
            return [replace(result, seconds=next(seconds, 0.5)) for result in super().collect()]

    monkeypatch.setattr(dse.execution.verify, "make_workers", lambda crew, evaluate, **_: Crew(evaluate))
    study = products(tmp_path, "verify.designs=6", "verify.off_front=0")
    rows = combine_with_front(study, pd.DataFrame(), run_screen(study, lambda done, total, size: None))
    with closing(Store(study.store)) as store:
        store.begin(study.name, study.identity(), {})
        dse.execution.verify.run_verification(
            study, store, base_design_key(study), rows, lambda done, total: None, messages.append, RunClock()
        )
    assert messages[1:] == [
        "verify: 1 of 6 designs done at events, 100 s each: some 500 s for the other 5",
        "verify: 3 of 6 designs done at events, 500 ms each: some 1.5 s for the other 3",
    ]


def test_a_part_says_by_how_much_the_best_leads_there_and_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cannon waits for the wrap-around of its rings, which on a small part of a large mesh is as long as any other way."""
    shapes = (
        "workload.shapes=[720x720x720]",
        "++space.mapping.rows=choice(720)",
        "++space.mapping.gemm=choice(meshgemm,cannon)",
    )
    study = products(tmp_path, *shapes, "verify.fidelity=cycles", "verify.submesh=8", "constraints.cycles='<= 1e9 cycle'")
    stored_study = ran(study)
    frame = StoredStudy(study).frame().set_index("mapping.gemm")["latency"]
    (lead,) = stored_study.decisions
    assert lead.metric == "latency"
    assert lead.whole == pytest.approx(frame["cannon"] / frame["meshgemm"] - 1, rel=1e-6)
    for lead_value, played in ((lead.low, stored_study.before), (lead.high, stored_study.after)):
        by = played.set_index("mapping.gemm")["latency"]
        assert lead_value == pytest.approx(by["cannon"] / by["meshgemm"] - 1, rel=1e-6)
    assert lead.low < lead.whole / 4
    lead_text = lead.text("analytical@8", "cycles@8", part=True)
    ids = StoredStudy(study).frame().set_index("mapping.gemm")["design"]
    report = f"{ids['meshgemm']} mapping.gemm meshgemm leads {ids['cannon']} mapping.gemm cannon {lead_text}"
    assert report in " ".join(capsys.readouterr().out.split())
    assert lead.tells == (np.log1p(lead.low) > lead.spread)
    (shown,) = report_payload([StoredStudy(study).part()])["studies"]
    assert shown["verified"]["decisions"][0]["said"] == lead_text


def test_a_decision_is_of_the_best_and_the_best_that_is_worse() -> None:
    whole, low, high = np.array([1.0, 1.0, 1.5, 1.2]), np.array([1.0, 0.9, 1.5, 1.1]), np.array([1.3, 0.9, 1.5, 1.1])
    lead = winner_lead("tpot", "min", whole, low, high, [4, 5, 6, 7], 0.05)
    assert lead is not None
    assert (lead.winner, lead.runner_up, lead.verdict) == (4, 7, "overturned")
    turned = winner_lead("throughput", "max", 1 / whole, 1 / low, 1 / high, [4, 5, 6, 7], 0.05)
    assert turned is not None
    assert (turned.whole, turned.low, turned.high) == pytest.approx((lead.whole, lead.low, lead.high))
    assert winner_lead("cores", "min", whole[:2], whole[:2], whole[:2], [4, 5], 0.0) is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify.submesh=-1"], "verify.submesh: -1 is below the minimum, 0"),
        (["verify.fidelity=evens"], "verify.fidelity: 'evens' is no fidelity; did you mean 'events'"),
        (["verify.fidelity=cycles@4"], "'cycles@4' is no fidelity; set verify.fidelity=cycles verify.submesh=4$"),
        (["verify.fidelity=cycls@4"], "'cycls@4' is no fidelity; did you mean 'cycles'"),
        (
            ["verify.fidelity=analytical"],
            "verify.fidelity: 'analytical' is not above fidelity=analytical; valid: none, next, events",
        ),
        (["verify.designs=0"], "verify.designs: 0 is below the minimum, 1"),
        (["verify.designs=true"], "verify.designs: True is not a number"),
        (["+verify.count=3"], "verify: no field 'verify.count'"),
    ],
)
def test_a_mistake_is_told_by_its_address(tmp_path: Path, words: list[str], line: str) -> None:
    with pytest.raises(DesignError, match=line.replace("(", r"\(")):
        products(tmp_path, *words)


VALUES = st.lists(st.floats(1e-3, 1e3).map(lambda value: float(f"{value:.5g}")), min_size=3, max_size=20)


def compared(before: list[float], after: list[float]) -> MetricShift:
    shift = dse.execution.verify._metric_shift("latency", pd.Series(before, dtype=float), pd.Series(after, dtype=float))
    assert shift.designs == len(before)
    return shift


@given(VALUES, st.floats(0.1, 10))
def test_what_only_scales_keeps_its_ranks(before: list[float], scale: float) -> None:
    shift = compared(before, [value * scale for value in before])
    assert shift.median == pytest.approx(scale - 1, abs=1e-7)
    assert shift.worst == pytest.approx(scale - 1, abs=1e-7)
    assert shift.correlation == (None if len(set(before)) == 1 else pytest.approx(1.0))


@pytest.mark.sampled
@given(VALUES.filter(lambda values: len(set(values)) == len(values)))
def test_ranks_turned_round_correlate_by_less_than_nothing(before: list[float]) -> None:
    assert compared(before, [1 / value for value in before]).correlation == pytest.approx(-1.0)


@given(VALUES)
def test_the_rounding_of_sums_is_no_change_of_rank(before: list[float]) -> None:
    noisy = [value * (1 + 1e-13 * (-1) ** place) for place, value in enumerate(before)]
    shift = compared(before, noisy)
    assert shift.worst == 0
    assert shift.correlation in (None, pytest.approx(1.0))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=30), st.integers(0, 35))
def test_layers_are_fronts_of_what_is_left(rows: list[tuple[int, int]], many: int) -> None:
    values = np.array(rows, dtype=float).reshape(-1, 2)
    layers = nondominated_layers(values, ["max", "min"], many)
    assert len(layers) == len(set(layers.tolist())) == min(many, len(rows))
    left = np.arange(len(values))
    while len(layers):
        layer = left[front_mask(values[left], ["max", "min"])]
        mine, layers = layers[: len(layer)], layers[len(layer) :]
        assert set(mine) <= set(layer)
        assert set(mine) == set(layer) or not len(layers)
        left = np.setdiff1d(left, layer)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 12))
def test_rounding_keeps_the_digits_that_are_asked_for(value: float, digits: int) -> None:
    assert round_significant(np.array([[value]]), digits).tolist() == [[float(f"{value:.{digits}g}")]]


def test_the_page_says_what_the_two_readers_say(tmp_path: Path) -> None:
    study = products(tmp_path)
    stored_study = ran(study)
    data = report_payload([StoredStudy(study).part()])
    shown = data["studies"][0]["verified"]
    after = stored_study.after["latency"].tolist()
    assert shown["metrics"]["latency"] == [float(f"{value:.9g}") for value in after]
    assert shown["moves"] == list(stored_study.moves())
    assert {shift["metric"] for shift in shown["shifts"]} <= set(METRICS)
    latencies = np.concatenate([StoredStudy(study).frame().sort_values("latency", kind="stable").pipe(by_front)])
    assert [latencies[row] for row in shown["rows"]] == stored_study.before["latency"].tolist()


def by_front(frame: pd.DataFrame) -> list[float]:
    return [*frame.loc[frame["front"], "latency"], *frame.loc[~frame["front"], "latency"]]


def test_a_page_breaks_designs_down_by_its_own_fidelity_while_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = products(tmp_path, "fidelity=events", "search=exhaustive", "search.budget=20", "verify=none")
    assert run_study(study) == 0
    loaded = StoredStudy(study)
    frame = loaded.frame().sort_values("latency", kind="stable")
    space, case = study.question.space, study.question.workload.cases[0]
    own = [
        explain(space.design_at(knob_values(study, row)), case, fidelity="events").seconds for row in frame.to_dict("records")
    ]

    def totals() -> list[float]:
        designs = report_payload([loaded.part()])["studies"][0]["explained"]["designs"]
        assert len({design["by"] for design in designs.values()}) == 1
        return sorted(sum(operator[8] for operator in design["operators"]) for design in designs.values())

    assert totals() == pytest.approx(sorted(own), rel=1e-5)
    monkeypatch.setattr("dse.report.payload.BUDGET_S", 0.0)
    assert totals() == pytest.approx(sorted(own), rel=1e-5)  # an earlier page has worked them out
    with closing(sqlite3.connect(study.store)) as store, store:
        store.execute("DELETE FROM explanations")
    assert totals() != pytest.approx(sorted(own), rel=1e-5)


@given(st.lists(st.tuples(*[st.integers(-5, 5)] * 3), max_size=12), st.tuples(*[st.sampled_from(["max", "min"])] * 3))
def test_the_best_two_of_each_objective_come_first(rows: list[tuple[int, ...]], directions: tuple[str, ...]) -> None:
    values = np.array(rows, dtype=float).reshape(-1, 3)
    order = order_for_verification(values, directions)
    assert sorted(order) == list(range(len(values)))
    signs = [1 if direction == "min" else -1 for direction in directions]
    first = {row for place, sign in enumerate(signs) for row in np.argsort(sign * values[:, place], kind="stable")[:2]}
    assert set(order[: len(first)]) == first
    assert list(order[len(first) :]) == sorted(order[len(first) :])


def test_it_says_its_time_before_the_rest_begins_and_takes_what_decides_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown, the first design tells; known, it is said before any is evaluated."""
    events: list[Any] = []

    class Crew(SerialWorkers):
        def submit(self, batch: Batch) -> None:
            events.extend(name for name, *_ in batch)
            super().submit(batch)

    monkeypatch.setattr(dse.execution.verify, "make_workers", lambda crew, evaluate, **_: Crew(evaluate))
    study = products(tmp_path, "workload.shapes=[24x24x24]", "verify.designs=4", "verify.off_front=1")
    rows = combine_with_front(study, pd.DataFrame(), run_screen(study, lambda done, total, size: None))
    more = replace(study, verify=replace(study.verify, designs=6))
    with closing(Store(study.store)) as store:
        store.begin(study.name, study.identity(), {})
        for given_study in (study, more):
            dse.execution.verify.run_verification(
                given_study, store, base_design_key(given_study), rows, lambda done, total: None, events.append, RunClock()
            )
    total = len(events) - 3  # designs of both times, beside what was said
    fresh = total - (again := next(place for place, text in enumerate(reversed(events)) if "each: some" in text))
    assert events.pop(0) == f"verify: {fresh} designs at events, decisive ones first; the first shows how long the others take"
    lines = [place for place, text in enumerate(events) if "each: some" in text]
    assert lines == [1, fresh + 1]  # after the first design; the other time the stored ones say it
    assert events[1].startswith(f"verify: 1 of {fresh} designs done at events, ")
    assert events[1].endswith(f" for the other {fresh - 1}")
    assert events[fresh + 1].startswith(f"verify: {again} designs at events, ")
    wanted = dse.execution.verify._best_designs(study, rows)
    values = rows.loc[list(wanted), list(study.objectives)].to_numpy(dtype=float)
    keys = [key for key, _ in wanted.values()]
    assert [events[0], *events[2 : 1 + len(keys)]] == [
        keys[place] for place in order_for_verification(values, study.directions)
    ]
