"""What a report embeds: columns once, facts that add up, strings that stay strings, and a live page that keeps up."""

import base64
import json
import sqlite3
import threading
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.commands.follow_report import follow_files, follow_studies
from dse.commands.notebook_api import StoredStudy, write_comparison_report
from dse.commands.run_study import run_study
from dse.execution.ask_tell import base_design_key
from dse.execution.study_settings import BarPicture
from dse.explanations.explanation import explain_front
from dse.explanations.knob_importance import estimate_sobol_index
from dse.report.case_metrics import rows_by_case
from dse.report.page_cache import PageCache
from dse.report.page_parts import unpack_text
from dse.report.payload import MAX_EXPLAINED, ReportedStudy, report_payload
from dse.report.study_page import write_page
from dse.report.time_breakdown import cached_breakdown, time_stacks
from dse.search.optuna_samplers import Ask
from dse.store.store import DesignResult, Store
from tests.dse.toy import toy

HOSTILE = '</script><img src=x onerror="window.hacked=1"><b>&amp;\u2028${window.hacked=1}</b>'


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ReportedStudy:
    study = toy(tmp_path_factory.mktemp("toy"), "screen.run=true", "screen.limit=256", "search.budget=60")
    run_study(study)
    return StoredStudy(study).part()


def column(data: dict[str, Any], name: str) -> Any:
    (packed,) = [column for column in data["columns"] if column["name"] == name]
    values = np.frombuffer(
        base64.b64decode(packed["data"]), {"f4": "<f4", "f8": "<f8", "i2": "<i2", "u1": "u1"}[packed["type"]]
    )
    if "levels" in packed:
        return np.where(values < 0, np.nan, np.array([*packed["levels"], np.nan])[values])
    if "words" in packed:
        return np.array([*packed["words"], None], dtype=object)[values]
    return values


def rows_of(part: ReportedStudy) -> pd.DataFrame:
    """The frame in the order of the page."""
    frame = part.frame.sort_values(next(iter(part.study.objectives)), ascending=False, kind="stable")
    return pd.concat([frame[frame["front"]], frame[~frame["front"]]], ignore_index=True)


def test_words_are_in_the_order_of_the_space(part: ReportedStudy) -> None:
    columns = {column["name"]: column for column in report_payload([part])["columns"]}
    for knob in part.study.question.space.knobs:
        words = columns[knob.address].get("words", [])
        assert words == [value for value in map(str, getattr(knob, "values", ())) if value in words]


def test_every_knob_and_metric_is_embedded_once_and_reads_back(part: ReportedStudy) -> None:
    data, frame = report_payload([part]), rows_of(part)
    names = [column["name"] for column in data["columns"]]
    assert len(names) == len(set(names))
    for knob in part.study.question.space.knobs:
        expected = frame[knob.address].astype(object).where(frame[knob.address].notna(), None).tolist()
        assert [value if isinstance(value, str | None) else float(value) for value in column(data, knob.address)] == expected
    for name in ("tpot", "throughput_per_system_mm2", "die_mm2"):
        np.testing.assert_array_equal(column(data, name), frame[name].to_numpy(dtype="f4"))
    assert column(data, "front").sum() == frame["front"].sum()


def test_metrics_that_a_chip_does_not_have_are_left_out(part: ReportedStudy) -> None:
    assert "sram_used" not in {column["name"] for column in report_payload([part])["columns"]}


class Scripts(HTMLParser):
    """The scripts of a page and their texts; the tags there are."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: set[str] = set()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self._inside = tag == "script"
        if self._inside:
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[-1] += data


def hostile(part: ReportedStudy) -> ReportedStudy:
    """The same study with every string that a user chooses turned against the page."""
    workload = part.study.question.workload
    cases = tuple(replace(case, label=HOSTILE) for case in workload.cases)
    sources = tuple(replace(source, note=HOSTILE, value=HOSTILE) for source in part.study.question.sources)
    question = replace(part.study.question, workload=replace(workload, cases=cases), sources=sources)
    study = replace(part.study, name=HOSTILE, text=HOSTILE, question=question, overrides=("study=quickstart", HOSTILE))
    frame = part.frame.copy()
    frame["error"] = frame["error"].astype(object)
    broken = frame.index[~frame["front"]][:3]
    frame.loc[broken, "error"] = HOSTILE
    frame.loc[broken, "feasible"] = False
    word = frame["mapping.both.prefetch"].astype(object).where(frame["front"], HOSTILE)
    return ReportedStudy(study, frame.assign(**{"mapping.both.prefetch": word}), part.screened, part.runs)


def test_strings_of_users_stay_inside_their_script(part: ReportedStudy, tmp_path: Path) -> None:
    bad = hostile(part)
    text = write_page([bad], tmp_path / "report.html").read_text()
    scripts = Scripts()
    scripts.feed(text)
    assert len(scripts.texts) == 5
    assert "img" not in scripts.tags
    assert json.loads(unpack_text(scripts.texts[1]))["studies"][0]["question"] == HOSTILE


def test_the_page_of_20_000_designs_is_below_6_mb(part: ReportedStudy, tmp_path: Path) -> None:
    frame = part.frame
    many = pd.concat([frame, *[frame.assign(front=False)] * (20_000 // len(frame) + 1)], ignore_index=True)
    jitter = 1 + 1e-3 * np.random.default_rng(0).random(len(many))
    many["chip.l2.size"] *= jitter
    path = write_page([replace(part, frame=many)], tmp_path / "report.html")
    assert len(many) > 20_000
    assert path.stat().st_size < 6e6


def test_operators_add_up_to_what_binds(part: ReportedStudy) -> None:
    (study,) = report_payload([part])["studies"]
    explained = study["explained"]
    assert len(explained["designs"]) == min(MAX_EXPLAINED, part.frame["feasible"].sum()) > part.frame["front"].sum()
    assert all(str(row) in explained["designs"] for row in range(part.frame["front"].sum()))
    for design in explained["designs"].values():
        by_phase: dict[str, float] = {}
        for operator in design["operators"]:
            phase = explained["words"][operator[0]]
            by_phase[phase] = by_phase.get(phase, 0.0) + operator[8]  # seconds
        for phase, spent in design["spent"].items():
            assert sum(spent.values()) == pytest.approx(by_phase[phase], rel=1e-4)


def test_what_a_search_found_only_grows_and_ends_whole(tmp_path: Path) -> None:
    wanted_study = toy(tmp_path, "search.budget=80")
    run_study(wanted_study)
    loaded = StoredStudy(wanted_study).part()
    (study,) = report_payload([loaded])["studies"]
    history, frame = study["history"], loaded.frame
    shares = [value or 0.0 for value in history["values"]]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert history["asks"][0] == 1
    assert history["asks"][-1] == frame["search_order"].max() + 1

    def volume(rows: pd.DataFrame) -> float:
        """Of more throughput and less time up to a tenth beyond the worst of the front, one strip after the other."""
        best = frame.loc[frame["front"], ["throughput_per_system_mm2", "tpot"]]
        worst, span = best.agg({"throughput_per_system_mm2": "min", "tpot": "max"}), best.max() - best.min()
        least, most = worst.iloc[0] - 0.1 * span.iloc[0], worst.iloc[1] + 0.1 * span.iloc[1]
        total = 0.0
        for speed, tpot in sorted(rows[["throughput_per_system_mm2", "tpot"]].to_numpy(dtype=float).tolist(), reverse=True):
            if speed > least and tpot < most:
                total, most = total + (speed - least) * (most - tpot), tpot
        return total

    whole = volume(frame[frame["front"]])
    for ask, share in zip(history["asks"], shares, strict=True):
        found = frame[frame["feasible"] & (frame["search_order"] < ask)]
        assert share == pytest.approx(volume(found) / whole)


def test_studies_with_the_same_objectives_share_one_measure(part: ReportedStudy, tmp_path: Path) -> None:
    study = toy(tmp_path, "name=less", "search.budget=10")
    run_study(study)
    first, second = report_payload([part, StoredStudy(study).part()])["studies"]
    assert second["start"] == first["rows"]
    assert second["history"]["all"] < first["history"]["all"] <= 1 + 1e-12
    path = write_comparison_report([StoredStudy(part.study), StoredStudy(study)])
    assert path == part.study.run_dir / "report_less.html"


def test_importance_finds_the_knob_that_does_it_all() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 8, 5000).astype(float), rng.random(5000)
    assert estimate_sobol_index(a**3, a) == pytest.approx(1.0)
    assert estimate_sobol_index(a**3, b) < 0.01
    assert estimate_sobol_index(a + 7 * b, a) == pytest.approx(estimate_sobol_index(7 - a + 7 * (1 - b), a), abs=0.02)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-10, 10)), min_size=1, max_size=60))
def test_importance_is_a_share_and_the_same_for_any_rising_function(rows: list[tuple[int, float]]) -> None:
    knob, values = (np.array(side, dtype=float) for side in zip(*rows, strict=True))
    values = np.round(values, 3)
    share = estimate_sobol_index(values, knob)
    assert 0 <= share <= 1
    assert estimate_sobol_index(np.exp(values), knob) == pytest.approx(share)
    assert estimate_sobol_index(-values, knob) == pytest.approx(share)


def test_following_files_writes_what_arrives_until_the_run_ends(tmp_path: Path) -> None:
    study = toy(tmp_path / "runs/toy", "search.budget=40")
    full = toy(tmp_path / "other", "search.budget=40")
    run_study(full)
    source = Store(full.store)
    asks, known = source.asks("toy", study.context.physics), source.results(study.context)
    store = Store(study.store)
    run = store.begin("toy", study.identity(), {"overrides": list(study.overrides), "host": "elsewhere"})
    page = study.run_dir / "report.html"
    thread = threading.Thread(target=follow_files, args=([StoredStudy(study)], ["toy"], page, 0.05))
    thread.start()
    for half in (asks[:20], asks[20:]):
        append(store, study, half, known)
        wanted = len({ask[1] for ask in asks[: half[-1][0].number + 1]})
        wait_for(lambda wanted=wanted: page.exists() and embedded_rows(page) == wanted)
    assert 'data-live="report.live.js"' in page.read_text()
    store.end(run, "done", {})
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert 'data-live=""' in page.read_text()
    assert not list(study.run_dir.glob("*.js"))


def append(store: Store, study: Any, asks: list[tuple[Ask, str]], known: dict[str, DesignResult]) -> None:
    store.append("toy", study.context, base_design_key(study), asks, list({key: known[key] for _, key in asks}.values()))


def embedded_rows(page: Path) -> int:
    scripts = Scripts()
    scripts.feed(page.read_text())
    return int(json.loads(unpack_text(scripts.texts[1]))["rows"])


def wait_for(condition: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.sampled
@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_following_a_run_that_was_killed_ends(part: ReportedStudy, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    store = Store(part.study.store)
    where = {"host": "elsewhere"} if host == "elsewhere" else {}
    store.begin("toy", part.study.identity(), {"overrides": list(part.study.overrides), **where})
    store.close()
    monkeypatch.setattr("dse.commands.follow_report.load", lambda name, **_: StoredStudy(part.study))
    assert follow_studies(["toy"], period=0.01) == 0


def test_stacks_of_a_picture_are_the_times_of_the_best_designs(part: ReportedStudy) -> None:
    knob = part.study.question.space.knobs[0].address
    pictures = (BarPicture(x=knob, each="case"), BarPicture(x=knob, each="case", of="operator"))
    study = replace(part.study, report=replace(part.study.report, lines=(), bars=pictures))
    with PageCache(study) as kept:
        stacks = time_stacks(study, part.frame, 7, kept)
    cases = study.question.workload.cases
    assert [stack["case"] for stack in stacks] == 2 * [case.label for case in cases]
    times = rows_by_case(study, part.frame, "latency")
    first, direction = next(iter(study.objectives.items()))
    for stack in stacks:
        latency = times[stack["case"]]["latency"]
        assert [sum(spent.values()) for spent in stack["spent"]] == pytest.approx(
            [latency[row - 7] for row in stack["rows"]], rel=1e-4
        )
        best = part.frame[part.frame["feasible"]].groupby(knob)[first].agg(direction)
        assert part.frame.loc[[row - 7 for row in stack["rows"]], first].tolist() == best.tolist()


def test_what_a_page_took_long_to_work_out_is_not_worked_out_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy(tmp_path, "screen.run=true", "screen.limit=32", "search=local", "search.budget=8")
    run_study(study)  # has written a page
    worked: set[str] = set()
    monkeypatch.setattr(
        "dse.report.time_breakdown.cached_breakdown", lambda *arguments: worked.add("spent") or cached_breakdown(*arguments)
    )
    monkeypatch.setattr(
        "dse.report.front_explanations.explain_front",
        lambda *arguments, **how: worked.add("why") or explain_front(*arguments, **how),
    )

    def page(part: ReportedStudy) -> tuple[Any, Any, set[str]]:
        worked.clear()
        (study,) = report_payload([part])["studies"]
        return study["explained"], study["why"], set(worked)

    part = StoredStudy(study).part()
    spent, whys, new = page(part)
    assert not new
    looser = replace(study, bounds=tuple(replace(bound, value=bound.value * 1.1) for bound in study.bounds))
    assert page(replace(part, study=looser))[::2] == (spent, {"why"})
    assert page(replace(part, frame=part.frame.assign(tpot=part.frame["tpot"] * 1.01)))[::2] == (spent, {"why"})
    assert page(part) == (spent, whys, {"why"})  # what the last page did not ask for is gone
    with monkeypatch.context() as other:
        other.setattr("dse.report.page_cache.code_state", lambda: "other")
        assert page(part) == (spent, whys, {"spent", "why"})
    with sqlite3.connect(study.store) as rows:
        rows.execute("UPDATE explanations SET answer = replace(answer, '0', '1') WHERE question LIKE 'breakdown%'")
        rows.execute("UPDATE explanations SET checksum = checksum + 1 WHERE question = 'front'")
    rows.close()
    assert page(part) == (spent, whys, {"spent", "why"})
    assert page(part) == (spent, whys, set())
