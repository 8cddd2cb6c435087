"""Cases and breakdowns of a finished study are worked out once, unless they are damaged, stale or cannot be kept."""

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dse.commands.notebook_api import StoredStudy, find_study
from dse.commands.run_study import run_study
from dse.evaluators import evaluate
from dse.execution.result_frame import knob_values
from dse.execution.study import Study
from dse.report import case_metrics, page_cache, time_breakdown
from dse.report.case_metrics import rows_by_case
from dse.report.figures import build_figure
from dse.report.front_explanations import _followed_from
from dse.report.payload import report_payload
from dse.space.design import key_of_leaves, stack_designs
from dse.space.errors import DesignError
from dse.store.store import Store
from tests.dse.test_verify import products

PICTURES = (
    "report.lines=[{x: mapping.rows, y: latency, each: case},{x: mapping.rows, y: cycles, by: mapping.gemm, each: case}]",
    "report.bars=[{x: mapping.rows, each: case},{x: mapping.gemm, of: operator, each: case}]",
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("products")
    events = ("fidelity=events", "search=exhaustive", "search.budget=20", "verify=none", "screen.run=false")
    study = products(folder, *events, *PICTURES)
    assert run_study(study) == 0
    return study


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Sizes of the batches of designs that are evaluated, and the cases that are broken down."""
    seen: list[Any] = []

    def watch(room: Any, name: str, note: Callable[..., Any]) -> None:
        real = getattr(room, name)
        monkeypatch.setattr(room, name, lambda *given, **how: seen.append(note(*given)) or real(*given, **how))

    watch(case_metrics, "evaluate", lambda designs, workload: len(designs))
    watch(time_breakdown, "cached_breakdown", lambda design, case, *_: case.label)
    return seen


def page(study: Study) -> dict[str, Any]:
    data = report_payload([StoredStudy(study).part()])
    del data["written"]
    return data


def change(study: Study, statement: str) -> None:
    with closing(sqlite3.connect(study.store)) as store, store:
        assert store.execute(statement).rowcount


def test_a_finished_study_pays_for_nothing_twice(study: Study, worked: list[Any]) -> None:
    before = page(study)
    assert worked == []  # the page of the run has worked all out
    change(study, "DELETE FROM explanations")
    assert page(study) == before
    assert worked.count(20) == 1
    assert {*worked} == {20, *(case.label for case in study.question.workload.cases)}
    worked.clear()
    assert page(study) == before
    build_figure(StoredStudy(study).part(), "cost")
    assert [what for what in worked if what == 20] == []


def test_kept_cases_are_those_of_each_design_evaluated_alone(study: Study) -> None:
    frame = StoredStudy(study).frame()
    views = rows_by_case(study, frame, "latency", "cycles", "mfu")
    workload, space = study.question.workload, study.question.space
    for row, record in enumerate(frame[frame["feasible"]].to_dict("records")):
        design = stack_designs([space.design_at(knob_values(study, record))])
        cases = evaluate(design, workload, fidelity=study.fidelity, cases=True).cases
        for place, case in enumerate(workload.cases):
            for name in ("latency", "cycles", "mfu"):
                assert views[case.label][name].iloc[row] == cases[name][place, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE explanations SET answer = replace(answer, '1', '2') WHERE question = 'cases'",
        "UPDATE explanations SET checksum = checksum + 1 WHERE question = 'cases'",
        "DELETE FROM explanations WHERE question = 'cases'",
    ],
)
def test_cases_that_are_damaged_are_evaluated_again(study: Study, worked: list[Any], statement: str) -> None:
    frame = StoredStudy(study).frame()
    before = rows_by_case(study, frame, "latency")
    change(study, statement)
    for sizes in ([20], []):
        worked.clear()
        again = rows_by_case(study, frame, "latency")
        assert worked == sizes
        assert all(again[label].equals(view) for label, view in before.items())


def test_cases_of_other_numbers_are_evaluated_again(study: Study, worked: list[Any]) -> None:
    frame = StoredStudy(study).frame()
    before = rows_by_case(study, frame, "latency")
    with closing(Store(study.store)) as store:
        (key, *_) = store.results(study.context)
        store.keep_explanations(study.context, "cases", {key: {"latency": [1.0]}})
    worked.clear()
    again = rows_by_case(study, frame, "latency")
    assert worked == [1]
    assert all(again[label].equals(view) for label, view in before.items())


def test_a_store_that_cannot_be_written_still_reports(study: Study, worked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = page(study)
    change(study, "DELETE FROM explanations")

    def refuse(*given: Any) -> None:
        raise DesignError("store: read-only")

    monkeypatch.setattr(Store, "keep_explanations", refuse)
    for _ in range(2):
        worked.clear()
        assert page(study) == before
        assert worked.count(20) == 1


def test_a_formula_is_computed_again_and_not_kept(tmp_path: Path, worked: list[Any]) -> None:
    study = products(tmp_path, "search=exhaustive", "search.budget=20", "verify=none", "screen.run=false")
    assert run_study(study) == 0
    frame = StoredStudy(study).frame()
    for _ in range(2):
        worked.clear()
        views = rows_by_case(study, frame, "latency", "area_of_none")
        assert worked == [20]
        assert all(np.isnan(view["area_of_none"]).all() for view in views.values())
    with closing(Store(study.store)) as store:
        assert store.find_explanations(study.context, "cases", list(store.results(study.context))) == {}


def test_another_workload_has_cases_of_its_own(study: Study, worked: list[Any]) -> None:
    frame = StoredStudy(study).frame()
    rows_by_case(study, frame, "latency")
    workload = study.question.workload
    fewer = replace(study, question=replace(study.question, workload=replace(workload, cases=workload.cases[:1])))
    worked.clear()
    rows_by_case(fewer, frame, "latency")
    assert worked == [20]


def test_a_page_of_the_same_designs_spends_no_more(study: Study, worked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = page(study)
    change(study, "DELETE FROM explanations")
    with monkeypatch.context() as busy:
        busy.setattr("dse.report.payload.BUDGET_S", 0.0)
        busy.setattr(time_breakdown, "BUDGET_S", 0.0)
        first = page(study)
    assert {design["by"] for design in first["studies"][0]["explained"]["designs"].values()} == {"analytical"}
    worked.clear()
    assert page(study) == first
    assert worked == []
    change(study, "UPDATE explanations SET checksum = checksum + 1 WHERE question = 'late'")
    assert page(study) == whole


def test_the_explanation_of_a_front_follows_from_names_and_sources_that_no_design_has() -> None:
    """Of a stack that says of other chips that it was fitted on, and of a chip with another name."""
    study, frame = find_study("mesh_llm"), pd.DataFrame({"design": ["one"]})
    config, (first, *_) = study.config, study.config["chips"]
    renamed = {**config["chips"], first: {**config["chips"][first], "choices": {"chip": "another"}}}
    fitted = [replace(source, fitted_on=("another",)) for source in study.question.sources]
    others = [
        study,
        replace(study, config={**config, "chips": renamed}),
        replace(study, question=replace(study.question, sources=fitted)),
    ]
    keys = {key_of_leaves(_followed_from(other, frame, None, 0)) for other in others}
    assert len(keys) == len(others)


def test_kept_answers_follow_from_all_code_that_makes_them() -> None:
    """Beside what reads models, of which workloads have keys, and what keeps and shows an answer."""
    package = Path(page_cache.__file__).parents[1]
    imported = {
        name
        for room in page_cache.WATCHED_PACKAGES
        for path in (package / room).resolve().rglob("*.py")
        for name in re.findall(r"^ *from dse\.(\w+)", path.read_text(), re.MULTILINE)
    }
    others = {"huggingface", "store", "terminal"}
    assert {name for name in imported if (package / name).is_dir()} <= {*page_cache.WATCHED_PACKAGES, *others}
