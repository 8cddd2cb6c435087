"""What a reader does with a report: reads it without scripts, takes a view or its designs along, draws points beside them."""

import csv
import gzip
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.offline
import pytest

from dse.report.page_parts import BUNDLES
from dse.report.payload import ReportedStudy, report_payload
from dse.report.study_page import write_page
from dse.report.verdict import find_knee, metric_text
from dse.terminal.plain_names import plain_name
from tests.dse.test_report_page import browser, frame_rows, opened, part, rows_of, settle

__all__ = ["browser", "opened", "part"]


def test_bundles_are_of_the_major_version_that_plotly_writes_for() -> None:
    for path in sorted(BUNDLES.glob("*.gz")):
        head = gzip.decompress(path.read_bytes())[:300].decode()
        found = re.search(r"plotly\.js \((\w+) - minified\) v(\d+)\.", head)
        assert found
        assert found[1] in path.name
        assert found[2] == plotly.offline.get_plotlyjs_version().split(".")[0]
    assert "MIT" in (BUNDLES / "LICENSE").read_text()


def test_the_verdict_names_the_balanced_design_with_its_values_and_knobs(part: ReportedStudy) -> None:
    (study,) = report_payload([part])["studies"]
    frame = rows_of(part)
    front = frame[frame["front"]]
    knee = front.iloc[find_knee(front, part.study.objectives)]
    first, ends, knobs, *_ = study["verdict"]
    assert first.startswith(f"For a balance build design {knee['design']}: ")
    for name, direction in part.study.objectives.items():
        assert f"{plain_name(name)} of {metric_text(name, knee[name])}" in first
        best = front[name].max() if direction == "max" else front[name].min()
        assert metric_text(name, best) in ends
    assert f"cores of a die {knee['chip.cores']:.0f}" in knobs
    rest = (front[list(part.study.objectives)] == knee[list(part.study.objectives)]).all(axis=1)
    assert rest.sum() == 1


def test_a_page_reads_without_scripts(browser: Any, part: ReportedStudy, tmp_path: Path) -> None:
    path = write_page([part], tmp_path / "report.html")
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("body").inner_text()
    frame = rows_of(part)
    front = frame[frame["front"]]
    (study,) = report_payload([part])["studies"]
    assert all(sentence in text for sentence in study["verdict"])
    assert page.locator("#table tbody tr").count() == len(study["table"]["rows"]) <= 30
    assert front["design"].iloc[0] in text
    context.close()


@pytest.mark.parametrize("damage", ["cut off", "no data", "cut in the middle of the data"])
def test_a_page_without_its_data_says_so_in_one_line(browser: Any, part: ReportedStudy, tmp_path: Path, damage: str) -> None:
    path = write_page([part], tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    data = text.index('id="data">') + len('id="data">')
    changed = {"cut off": text[: data + 5000], "no data": text[:data] + text[text.index("</script>", data) :]}
    path.write_text(changed.get(damage, text[: data + 400] + text[data + 800 :]), encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".refused")
    (line,) = page.locator(".refused").all_inner_texts()
    assert "cut off" in line
    assert "\n" not in line
    page.close()
    assert complaints == []


def test_the_address_restores_the_view(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    page.select_option('#front select[aria-label="across"]', "ttft")
    page.click('#bar button[data-value="all"]')
    page.evaluate("setRange('tpot', [0, 1]); view.marked.add(2); openDesign(1)")
    settle(page)
    page.evaluate("writeLink()")
    wanted = page.evaluate("[view.x, view.scope, [...view.ranges.keys()], [...view.marked], view.open, view.passed]")
    assert wanted[:5] == ["ttft", "all", ["tpot"], [2], 1]
    other = page.context.new_page()
    other.goto(page.evaluate("location.href"))
    other.wait_for_function("view.started && view.passed > 0")
    settle(other)
    assert other.evaluate("[view.x, view.scope, [...view.ranges.keys()], [...view.marked], view.open, view.passed]") == wanted
    other.goto(page.evaluate("location.href.replace(/#.*/, '#x=nothing&scope=odd&keep.none=1~2&shortlist=zz')"))
    settle(other)
    assert other.evaluate("[view.scope, view.ranges.size]") == ["feasible", 0]


def test_designs_in_view_are_saved_as_csv(opened: Callable[..., Any], part: ReportedStudy, tmp_path: Path) -> None:
    page = opened(part)
    page.click('#bar button[data-value="front"]')
    rows = frame_rows(page)
    with page.expect_download() as download:
        page.click('#table button:has-text("CSV")')
    table = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    front = rows_of(part).set_index("design").query("front")
    assert len(table) == rows == len(front)
    for line in table:
        assert float(line["tpot [s]"]) == pytest.approx(front.loc[line["design"], "tpot"], rel=1e-6)
        assert line["front"] == "1"


def test_own_values_are_drawn_and_wrong_ones_named(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    page.click('#front button:has-text("Own values")')
    fields = page.locator(".own input")
    fields.nth(0).fill("mine <b>")
    fields.nth(1).fill("1,000 token/s/mm2")
    fields.nth(2).fill("soon")
    page.click('.own button[type="submit"]')
    assert page.inner_text(".own small") == "time per output token: expected a number in s, got “soon”"
    fields.nth(2).fill("2.5 ms")
    page.click('.own button[type="submit"]')
    settle(page)
    assert page.evaluate("view.own[0].metrics") == {"throughput_per_system_mm2": 1000, "tpot": 0.0025}
    drawn = page.evaluate("document.querySelector('#front .plot')._fullData.find(t => t.name.startsWith('own')).x[0]")
    low, high = page.evaluate("document.querySelector('#front .plot')._fullLayout.xaxis.range")
    assert low <= drawn <= high or 10**low <= drawn <= 10**high
    assert page.locator("#front b").count() == 0


def test_two_axes_of_one_quantity_have_one_unit(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    page.select_option('#front select[aria-label="across"]', "ttft")
    settle(page)
    units = [re.search(r"\[(.*?)\]", page.text_content(f"#front .{axis}title"))[1] for axis in "xy"]
    assert units[0] == units[1]


def test_measured_values_lie_within_the_bars_of_a_band(opened: Callable[..., Any], part: ReportedStudy) -> None:
    """A prediction that was 25 % too high or 20 % too low means 0.8 to 1.25 of it."""
    page = opened(part)
    page.evaluate("for (const band of designs.studies[0].bands) Object.assign(band, {low: -0.2, high: 0.25})")
    page.evaluate("openDesign(0)")
    settle(page)
    low, high = page.evaluate("bandOf(0, 'tpot').map(value => value / valueOf('tpot', 0))")
    assert (low, high) == (pytest.approx(0.8), pytest.approx(1.25))
    lines = "document.querySelector('#front .plot').data.filter(trace => trace.x.includes(null)).length"
    assert page.evaluate(lines) == 2  # of the open design, one along each axis
    page.click("#front button:has-text('Bands')")
    settle(page)
    assert page.evaluate(lines) == 4
    assert "bands=1" in page.evaluate("viewHash()")


def test_rates_of_whole_models_give_bands_where_no_row_of_the_kind_does(
    opened: Callable[..., Any], part: ReportedStudy
) -> None:
    page = opened(part)
    (rates,) = report_payload([part])["studies"][0]["rates"]["chips"].values()
    low, high = page.evaluate("bandOf(0, 'tpot').map(value => value / valueOf('tpot', 0))")
    assert (low, high) == (pytest.approx(1 / rates["high"]), pytest.approx(1 / rates["low"]))
    goal = "throughput_per_system_mm2"
    low, high = page.evaluate(f"bandOf(0, '{goal}').map(value => value / valueOf('{goal}', 0))")
    assert (low, high) == (pytest.approx(rates["low"]), pytest.approx(rates["high"]))
    assert page.evaluate("bandOf(0, 'system_mm2')") is None
