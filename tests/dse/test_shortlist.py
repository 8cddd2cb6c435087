"""What a reader takes along from a report: the shortlist as YAML that `dse evaluate --from` answers, and plots as SVG."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.analysis.withheld_metrics import computed_metrics
from dse.commands.shortlist import evaluate_shortlist
from dse.report.payload import ReportedStudy
from dse.space.errors import DesignError
from tests.dse.test_report import hostile, rows_of
from tests.dse.test_report_page import browser, opened, part, settle

__all__ = ["browser", "opened", "part"]

QUOTED = """text => { view.marked = new Set(); return quoted(text); }"""


def saved(page: Any, button: str) -> tuple[str, str]:
    """What a button saves: the name of the file, and its text."""
    with page.expect_download() as download:
        page.click(f'button:has-text("{button}")')
    return download.value.suggested_filename, Path(download.value.path()).read_text()


def test_the_shortlist_is_answered_with_the_metrics_that_are_stored(
    opened: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = dse.run("quickstart", "screen.limit=64", "search.budget=12").part()
    page, frame = opened(made), rows_of(made)
    alone = frame.index[frame["mapping.both.tp"] == 1]  # of which no prefetch is said
    rows = tuple(sorted({0, 3, *alone[:1].tolist(), len(frame) - 1}))
    page.evaluate(f"view.marked = new Set({[*reversed(rows)]}); refresh()")
    settle(page)
    name, text = saved(page, "Shortlist (YAML)")
    typed("--version")  # what the run printed is read
    assert name == "quickstart_shortlist.yaml"
    assert "token/s/mm2" in text
    Path(name).write_text(text)
    code, out, err = typed("evaluate", "--json", "--from", name)
    assert (code, err) == (0, "")
    answers = json.loads(out)["designs"]
    assert list(answers) == [frame["design"].iloc[row] for row in rows]
    for row, answer in zip(rows, answers.values(), strict=True):
        for metric in ("tpot", "ttft", "throughput_per_system_mm2", "energy"):
            assert answer["metrics"][metric]["value"] == pytest.approx(frame.iloc[row][metric], rel=1e-12), metric
    more = evaluate_shortlist(Path(name), ["workload.batch=[1]"])
    for row, evaluation in zip(rows, more.values(), strict=True):
        assert computed_metrics(evaluation.metrics)["tpot"] < frame.iloc[row]["tpot"]
    code, out, _ = typed("evaluate", "--from", name)
    assert code == 0
    assert re.findall(r"([\da-f]{10,}) ─", out) == [frame["design"].iloc[row] for row in rows]


@pytest.fixture(scope="module")
def blank(browser: Any, tmp_path_factory: pytest.TempPathFactory, part: ReportedStudy) -> Any:
    from dse.report.study_page import write_page

    page = browser.new_page()
    page.goto(write_page([part], tmp_path_factory.mktemp("blank") / "report.html").as_uri())
    yield page
    page.close()


@pytest.mark.slow
def test_any_text_is_quoted_as_yaml_reads_it(blank: Any) -> None:
    letters = st.characters(exclude_categories=("Cs",))

    @given(st.text(letters) | st.sampled_from(["'\"\\", "a\n# b", "\u2028\x85\x7f\0", "😀 é", "${x}", "- a: b"]))
    def quoted(text: str) -> None:
        assert yaml.safe_load(f"- {blank.evaluate(QUOTED, text)}") == [text]

    quoted()


@pytest.mark.slow
def test_hostile_words_are_texts_of_the_shortlist(opened: Callable[..., Any], part: ReportedStudy) -> None:
    bad = hostile(part)
    bad = replace(bad, study=replace(bad.study, overrides=("study=toy", "x=a\n  evil: [1] # ", "-cd /tmp")))
    page = opened(bad)
    words = page.evaluate("wordsOf(0)")
    assert yaml.safe_load(page.evaluate("shortlistYaml([0])")) == {"designs": {rows_of(bad)["design"].iloc[0]: words}}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no designs; write designs: {NAME"),
        ("designs: {}", "no designs"),
        ("designs: [chip=a100]", "no designs"),
        ("designs: {a: chip=a100}", "design a: not a list of overrides"),
        ("designs: {a: [1]}", "design a: not a list of overrides"),
        ("designs: {a: [chip=a100]}\ndesign: 1", "no field 'design'; did you mean 'designs'"),
        ("designs: {a: [chip=a1000]}", "design a: .*did you mean 'a100'"),
        ("designs: {a: [--config-dir=mine]}", "design a, override --config-dir: a flag; refused"),
        ("designs: {a: ['+x._target_=os.system']}", "names code or sets how Hydra works"),
        ("designs: {a: ['chip=a100, npu64']}", "design a: "),
        ("designs: {a: [", "not YAML"),
    ],
)
def test_what_is_no_shortlist_is_refused_by_name(
    text: str, why: str, tmp_path: Path, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.yaml").write_text(text)
    with pytest.raises(DesignError, match=why):
        evaluate_shortlist(Path("list.yaml"))
    code, out, err = typed("evaluate", "--from", "list.yaml")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


def test_a_timeline_is_of_one_design(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = typed("evaluate", "--from", "list.yaml", "--trace", "step.json")
    assert (code, out) == (2, "")
    assert "a timeline needs one design" in err


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_plot_is_saved_as_a_picture_of_all_its_marks(opened: Callable[..., Any], part: ReportedStudy, scheme: str) -> None:
    page = opened(part, color_scheme=scheme)
    for section, count in (("#front", len(part.frame)), ("#cards", 0)):
        with page.expect_download() as download:
            page.locator(f'{section} button:has-text("Picture (SVG)")').first.click()
        root = ElementTree.parse(download.value.path()).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        points = [element for element in root.iter() if element.get("class") == "point"]
        assert len(points) > count
        paper = next(
            element
            for element in root.iter()
            if element.get("class") == "bg" or (element.tag.endswith("rect") and element.get("style"))
        )
        assert ("255, 255, 255" in paper.get("style", "")) is (scheme == "light")
