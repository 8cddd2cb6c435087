"""The report as a reader has it: in a real browser, marks counted as drawn, clicks made at pixels, no console error.

Needs Chromium (Debian's package, or CHROMIUM=PATH). Without it these tests are skipped at a desk, and fail in CI.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.commands.validate_all import list_published_files, simulate_rows, validation_record
from dse.config.compose import compose
from dse.evaluators import METRICS
from dse.execution.study import build_study
from dse.execution.study_settings import BarPicture
from dse.report.payload import ReportedStudy, report_payload
from dse.report.standalone_pages import build_validation_page
from dse.report.study_page import LivePage, write_page
from dse.report.time_breakdown import MAX_STACKS
from dse.terminal.plain_names import plain_name, setting_name
from tests.dse.test_report import hostile, rows_of
from tests.dse.test_verify import products
from tests.dse.toy import toy
from tests.marks import slow_if

DRAWN = "window.Plotly && document.querySelector('#front .plot')?.rowsOf && document.querySelector('#cards .card')"
PAINTED = "document.querySelector('#parallel canvas').dataset.painted"


def browser_program() -> str:
    """Path of Chromium; where there is none, the test is skipped, and fails in CI."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium here; apt-get install chromium, or CHROMIUM=PATH")
    return str(path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = browser_program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        chromium = player.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens parts as a page from a file; at the end, nothing was complained of and nothing fetched from elsewhere."""
    complaints: list[str] = []
    contexts = []

    def show(*parts: ReportedStudy, path: Path | None = None, width: int = 1366, height: int = 768, **how: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda ask: complaints.append(ask.url) if ask.url.startswith("http") else None)
        page.goto((path or write_page(parts, tmp_path / "report.html")).as_uri())
        page.wait_for_function(DRAWN, timeout=60_000)
        page.wait_for_function(PAINTED, timeout=60_000)
        return page

    yield show
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ReportedStudy:
    study = toy(tmp_path_factory.mktemp("toy"), "screen.run=true", "screen.limit=1024", "search.budget=60")
    run_study(study)
    return StoredStudy(study).part()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> ReportedStudy:
    study = toy(
        tmp_path_factory.mktemp("three"),
        "screen.run=true",
        "screen.limit=256",
        "search.sampler=none",
        "+objectives.system_mm2=min",
    )
    run_study(study)
    return StoredStudy(study).part()


def settle(page: Any) -> None:
    """Lets a change be drawn."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")


def frame_rows(page: Any) -> int:
    settle(page)
    return int(page.inner_text("#passed").split(" of ")[0].replace(",", ""))


def marks(page: Any) -> list[list[float]]:
    """Centres of the marks of the front, as drawn."""
    settle(page)
    marks: list[list[float]] = page.evaluate("""() => {
      const plot = document.querySelector("#front .plot");
      const traces = [...plot.querySelectorAll(".scatterlayer .trace")], all = plot._fullData.filter(t => t.type === "scatter");
      const of = all.findIndex(trace => trace.mode === "markers" && trace.name.startsWith("front"));
      return of < 0 ? [] : [...traces[of].querySelectorAll(".point")].map(mark => {
        const box = mark.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
      });
    }""")
    return marks


def wait_open(page: Any, design: str) -> None:
    """Until a design is open."""
    page.wait_for_function("text => document.querySelector('#design h2')?.textContent === text", arg=f"Design {design}")


def open_design(page: Any) -> str:
    settle(page)
    return str(page.inner_text("#design h2"))


def test_every_front_design_is_a_mark_and_a_click_on_it_opens_it(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page, frame = opened(part), rows_of(part)
    front = frame[frame["front"]]
    assert len(marks(page)) == len(front)
    x, y = marks(page)[0]
    page.mouse.click(x, y)
    wait_open(page, frame["design"].iloc[0])
    text, named = page.inner_text("#design"), page.locator("#design .facts dt").all_inner_texts()
    for knob in part.study.question.space.knobs:
        given_text = isinstance(front.iloc[0][knob.address], str) or np.isfinite(
            front.iloc[0][knob.address]
        )  # or it is inactive
        assert (setting_name(knob.address) in named) == given_text
    assert f"{front.iloc[0]['tpot'] * 1e3:.4g} ms" in text
    assert "prefill" in text
    assert page.locator("#design .operators tbody td.word").count() > 10
    assert page.locator("#design .neighbours li").count() == 4


def test_a_click_where_marks_overlap_opens_the_nearest(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    places = np.array(marks(page))
    far = np.hypot(*(places[:, None] - places[None]).T)
    pairs = np.argwhere((far > 1.5) & (far < 10))
    assert len(pairs)  # marks are 10 px wide
    for mark, other in pairs[:: len(pairs) // 3 + 1]:
        away = np.floor(places[mark] + 0.25 * (places[other] - places[mark]))  # a pointer is at whole pixels
        near = int(np.hypot(*(places - away).T).argmin())
        page.mouse.click(*away)
        wait_open(page, rows_of(part)["design"].iloc[near])


@pytest.mark.parametrize("swapped", [False, True])
def test_the_front_is_joined_by_what_is_reached_and_by_no_design_between_two(
    opened: Callable[..., Any], part: ReportedStudy, swapped: bool
) -> None:
    """The corner between two neighbours is as bad as the worse of them in both objectives."""
    page = opened(part)
    if swapped:
        page.select_option('#front select[aria-label="up"]', "throughput_per_system_mm2")
        page.select_option('#front select[aria-label="across"]', "tpot")
        settle(page)
    line = page.evaluate(
        """() => {
          const one = document.querySelector("#front .plot")._fullData.find(trace => trace.mode === "lines");
          return {x: Array.from(one.x), y: Array.from(one.y), shape: one.line.shape};
        }"""
    )
    axes = ["tpot", "throughput_per_system_mm2"] if swapped else ["throughput_per_system_mm2", "tpot"]
    for x, y, next_x, next_y in zip(line["x"], line["y"], line["x"][1:], line["y"][1:], strict=False):
        corner = {axes[0]: x, axes[1]: next_y} if line["shape"] == "vh" else {axes[0]: next_x, axes[1]: y}
        ends = [dict(zip(axes, end, strict=True)) for end in ((x, y), (next_x, next_y))]
        assert corner["tpot"] == max(end["tpot"] for end in ends)
        assert corner["throughput_per_system_mm2"] == min(end["throughput_per_system_mm2"] for end in ends)
    assert len(line["x"]) == part.frame["front"].sum() > 2


def test_the_front_has_its_room_before_it_is_drawn(browser: Any, part: ReportedStudy, tmp_path: Path) -> None:
    """Nothing below it moves when its picture comes, which takes a second."""
    text = write_page((part,), tmp_path / "report.html").read_text(encoding="utf8")
    (tmp_path / "report.html").write_text(
        text.replace("setTimeout(loadPlotly)", "(window.later = loadPlotly)"), encoding="utf8"
    )
    page = browser.new_context(viewport={"width": 1366, "height": 768}).new_page()
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_function(f"{PAINTED} && !!window.later")
    before = [page.locator(card).bounding_box() for card in ("#front", "#parallel")]
    page.evaluate("later()")
    page.wait_for_function(DRAWN, timeout=60_000)
    settle(page)
    assert [page.locator(card).bounding_box() for card in ("#front", "#parallel")] == before
    page.context.close()


@pytest.mark.slow
def test_thousands_of_designs_are_drawn_on_a_canvas(opened: Callable[..., Any], tmp_path: Path) -> None:
    study = toy(tmp_path, "screen.run=true", "screen.limit=8192", "search.sampler=none")
    run_study(study)
    many = StoredStudy(study).part()
    assert many.frame["feasible"].sum() > 3000
    page = opened(many)
    box = page.locator("#front .cloud").bounding_box()
    drawn = page.evaluate("Number(document.querySelector('#front .cloud').dataset.drawn)")
    assert 3000 < drawn <= many.frame["feasible"].sum() - many.frame["front"].sum()
    assert page.locator("#front .scatterlayer .point").count() < 500  # the front alone is SVG
    page.locator("#front").scroll_into_view_if_needed()
    with_marks = page.screenshot(clip=box)
    page.add_style_tag(content="#front .cloud { visibility: hidden }")
    without = page.screenshot(clip=box)
    assert different_pixels(page, with_marks, without) > 3000


def different_pixels(page: Any, first: bytes, second: bytes) -> int:
    import base64

    urls = [f"data:image/png;base64,{base64.b64encode(png).decode()}" for png in (first, second)]
    return int(
        page.evaluate(
            """async urls => {
              const [a, b] = await Promise.all(urls.map(async url => {
                const image = new Image();
                image.src = url;
                await image.decode();
                const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
                pen.drawImage(image, 0, 0);
                return pen.getImageData(0, 0, image.width, image.height).data;
              }));
              let count = 0;
              for (let i = 0; i < a.length; i += 4) count += Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) > 24;
              return count;
            }""",
            urls,
        )
    )


@pytest.mark.slow
def test_brushing_an_axis_filters_the_front_and_the_table(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part, height=1700)
    axis = page.locator('.axis[data-axis="mapping.both.tp"] .axis-line').bounding_box()
    top, bottom = axis["y"], axis["y"] + axis["height"]
    x = axis["x"]
    page.mouse.move(x, top + 2)
    page.mouse.down()
    page.mouse.move(x, (top + bottom) / 2, steps=4)
    page.mouse.up()
    kept = sorted(part.frame["mapping.both.tp"].unique())[-3:]
    page.wait_for_selector(".brush")
    frame = rows_of(part)
    right = frame[frame["feasible"] & frame["mapping.both.tp"].isin(kept)]
    assert frame_rows(page) == len(right) < frame["feasible"].sum()
    assert len(marks(page)) == right["front"].sum() < frame["front"].sum()
    assert f"{len(right):,} designs in view" in page.inner_text("#table")
    page.mouse.click(x, bottom - 2)
    page.wait_for_selector(".brush", state="detached")
    assert frame_rows(page) == frame["feasible"].sum()


@slow_if(lambda axes: axes == "linear")
@pytest.mark.parametrize("axes", ["linear", "log"])
def test_a_box_on_the_front_filters_the_lines_and_the_table(opened: Callable[..., Any], part: ReportedStudy, axes: str) -> None:
    page, frame = opened(part, height=1700), rows_of(part)
    if axes == "log":  # as where a front's designs lie far apart
        page.evaluate("logarithmic = (column, low) => low > 0; refresh()")
    points = marks(page)
    assert page.evaluate("document.querySelector('#front .plot')._fullLayout.xaxis.type") == axes
    assert len(points) == frame["front"].sum()
    xs, ys = [x for x, _ in points], [y for _, y in points]
    gaps = np.diff(sorted(xs))
    third = len(gaps) // 3
    # marks are apart where the box ends
    selected_points = sorted(points)[: third + int(np.argmax(gaps[third : 2 * third])) + 1]
    middle = (max(x for x, _ in selected_points) + sorted(xs)[len(selected_points)]) / 2
    page.mouse.move(min(xs) - 8, min(ys) - 8)
    page.mouse.down()
    page.mouse.move(middle, max(ys) + 8, steps=5)
    page.mouse.up()
    page.wait_for_selector('.axis[data-axis="tpot"] .brush')
    bounds = page.evaluate("Object.fromEntries(view.ranges)")
    assert set(bounds) == {"throughput_per_system_mm2", "tpot"}
    inside = frame["feasible"]
    for name, (low, high) in bounds.items():
        inside &= frame[name].astype("f4").between(low, high)
    assert frame_rows(page) == inside.sum() < frame["feasible"].sum()
    assert len(marks(page)) == len(selected_points)
    assert page.locator("#table tbody tr.best").count() == min(len(selected_points), 40)


@pytest.mark.slow
def test_designs_at_two_fidelities_are_marks_that_open(opened: Callable[..., Any], tmp_path: Path) -> None:
    study = products(tmp_path)
    run_study(study)
    part = StoredStudy(study).part()
    page = opened(part)
    assert part.verified is not None
    page.wait_for_selector("#verified .point")
    assert page.locator("#verified .plot").count() == 1  # cores are the same by both
    assert len(part.verified.after) == 12
    assert page.locator("#verified .point").count() == 12 + len(part.verified.off.after) == 20
    assert page.locator("#verified .shifts tbody tr").count() == len(part.verified.shifts())
    assert page.locator("#verified .ranks tbody tr").count() == len(part.verified.ranks) == 2
    (lead,) = part.verified.decisions
    assert lead.text("analytical", "events", part=False) in page.inner_text("#verified .leads")
    given_text = page.inner_text("#verified .shares")
    assert all(part in given_text for part in (*part.verified.shared, *part.verified.own))
    page.locator("#verified").scroll_into_view_if_needed()
    box = page.locator("#verified .point").last.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    settle(page)
    text = page.inner_text("#design")
    assert "BY EVENTS" in text
    assert "stays on the front" in text


@pytest.mark.slow
def test_shares_of_what_overlaps_are_those_of_all_work(opened: Callable[..., Any], tmp_path: Path) -> None:
    line = ["name=npus", "chip=npu64", "model=qwen3_1b7", "workload.batch=[16]", "workload.sequence=[1024]", "screen.run=true"]
    line += ["search.sampler=none", "+objectives.tpot=min", "+space.mapping.both.tp=choice(4,8)", f"run_dir={tmp_path}"]
    study = build_study(compose(line), tmp_path)
    run_study(study)
    page = opened(StoredStudy(study).part())
    settle(page)
    keys = page.locator("#design .stack-key").all_inner_texts()
    assert len(keys) == 2 + 3  # and area, power and price of the chip
    for text in keys[:2]:  # prefill and decode, whose requests follow one another through stages
        shares = [float(share) for share in re.findall(r"([\d.]+) %", text)]
        assert 95 < sum(shares) < 100.5
    assert "of work, partly in parallel" in page.inner_text("#design")


@pytest.mark.slow
def test_rows_are_sorted_opened_and_compared(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page, frame = opened(part, height=1700), rows_of(part)
    page.click('#table thead button:has([title^="tpot:"])')
    settle(page)
    best = frame[frame["feasible"]]["tpot"].astype("f4").idxmin()
    assert page.locator("#table tbody tr").first.get_attribute("data-row") == str(best)
    page.locator("#table tbody tr").nth(1).click()
    second = frame[frame["feasible"]]["tpot"].astype("f4").nsmallest(2, keep="all").index[1]
    assert open_design(page) == f"Design {frame['design'].iloc[second]}"
    for row in (0, 2):
        page.locator("#table > .scroll:last-of-type tbody tr").nth(row).locator("input").click()
        settle(page)
    assert page.locator(".compare thead th").count() == 3
    page.click('#bar button:has-text("Shortlist")')
    assert frame_rows(page) == 2


@pytest.mark.slow
def test_a_line_is_opened_where_it_is_clicked(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part, height=1700)
    x, y = page.evaluate("""() => {
      const section = document.getElementById("parallel"), {x, heights} = section.shape, row = 2;
      const box = section.querySelector(".lines").getBoundingClientRect(), last = heights.length - 2;
      const y = heights[last][row] * 0.65 + heights[last + 1][row] * 0.35;
      return [box.x + x(last) + 0.35 * (x(last + 1) - x(last)), box.y + y];
    }""")
    page.mouse.click(x, y)
    near = page.evaluate(f"rowNear(document.getElementById('parallel'), {{clientX: {x}, clientY: {y}}})")
    wait_open(page, rows_of(part)["design"].iloc[near])


@pytest.mark.slow
def test_the_line_to_copy_evaluates_to_the_same_metrics(
    opened: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = dse.run("quickstart", "screen.limit=64", "search.budget=12")
    made = ran.part()
    page, frame = opened(made), rows_of(made)
    for row in (0, len(frame) - 1):
        page.evaluate(f"view.scope = 'all'; openDesign({row})")
        wait_open(page, frame["design"].iloc[row])
        *_, line, text = page.locator("#design .code pre").all_inner_texts()  # of a front design, other commands before them
        program, verb, *overrides = shlex.split(line)
        assert (program, verb) == ("dse", "evaluate")
        metrics = dse.evaluate(*overrides).metrics
        assert metrics["tpot"] == pytest.approx(frame.iloc[row]["tpot"], rel=1e-12)
        assert metrics["throughput_per_system_mm2"] == pytest.approx(frame.iloc[row]["throughput_per_system_mm2"], rel=1e-12)
        assert leaves_of(text) == dict(word.split("=", 1) for word in overrides if word.startswith(("chip.", "mapping.")))


def leaves_of(text: str) -> dict[str, str]:
    import yaml

    def walk(node: Any, prefix: str) -> Iterator[tuple[str, str]]:
        for key, value in node.items():
            yield from walk(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, str(value))]

    return dict(walk(yaml.safe_load(text), ""))


@pytest.mark.slow
def test_three_objectives_are_drawn_in_space_and_clicked_there(opened: Callable[..., Any], three: ReportedStudy) -> None:
    page = opened(three, height=1000)
    page.click('#front button:has-text("3-D")')
    page.wait_for_function("document.querySelector('#front .plot')._fullLayout?.scene?._scene?.glplot")
    page.wait_for_timeout(1500)
    kinds = page.evaluate("document.querySelector('#front .plot')._fullData.map(t => [t.type, t.x.length])")
    assert ["scatter3d", int(three.frame["front"].sum())] in kinds
    box = page.locator("#front .plot canvas").first.bounding_box()
    before, pointed = open_design(page), 0
    for step in range(20 * 20):  # where in space a mark comes to lie is Plotly's affair: look for one
        x = box["x"] + box["width"] * (0.15 + 0.7 * (step % 20) / 19)
        y = box["y"] + box["height"] * (0.2 + 0.6 * (step // 20) / 19)
        page.mouse.move(x, y)
        page.wait_for_timeout(40)
        if not page.locator("#tip").is_visible():
            continue
        pointed += 1
        wanted = f"Design {page.inner_text('#tip b').split()[0]}"
        page.mouse.down()
        page.wait_for_timeout(100)
        page.mouse.up()
        page.wait_for_timeout(300)
        if wanted != before and open_design(page) == wanted:
            return
    pytest.fail(f"no click opened a design; {pointed} marks were pointed at")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme_and_the_toggle_overrides_it(
    opened: Callable[..., Any], part: ReportedStudy, scheme: str
) -> None:
    page = opened(part, color_scheme=scheme)
    light = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] > 128"
    assert page.evaluate(light) is (scheme == "light")
    other = "dark" if scheme == "light" else "light"
    page.click(f'#head button[data-value="{other}"]')
    assert page.evaluate(light) is (other == "light")


def test_hostile_strings_are_letters(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(hostile(part))
    page.click('#bar button[data-value="all"]')
    page.select_option('#front select[aria-label="colour"]', "mapping.both.prefetch")
    page.select_option('#front select[aria-label="across"]', "mapping.both.prefetch")
    row = page.evaluate("[...Array(designs.rows).keys()].find(row => !Number.isNaN(valueOf('error', row)))")
    page.evaluate(f"openDesign({row})")
    page.wait_for_selector("#design .broken")
    page.wait_for_timeout(300)
    assert "<img src=x" in page.inner_text("h1")
    assert "<img src=x" in page.inner_text("#design .broken")
    assert page.locator("img, b b").count() == 0
    assert page.evaluate("window.hacked") is None


def with_rows(part: ReportedStudy, keep: Any) -> ReportedStudy:
    frame = part.frame[keep].reset_index(drop=True)
    return replace(part, frame=frame, screened=None)


@pytest.mark.slow
def test_a_page_without_a_feasible_design_says_why(opened: Callable[..., Any], tmp_path: Path) -> None:
    study = toy(tmp_path, "constraints.ttft='<= 1 ns'", "search.budget=30")
    run_study(study)
    bad = StoredStudy(study).part()
    page = opened(bad)
    assert "no feasible design" in page.inner_text("#head")
    assert "No feasible design" in page.inner_text("#cards")
    assert f"time to first token ≤ 1 ns\n{len(bad.frame)}" in page.inner_text(".limits")
    assert frame_rows(page) == len(bad.frame)
    page.click('#bar button[data-value="feasible"]')
    page.wait_for_selector('#table .empty:has-text("No feasible design")')


def test_the_address_of_a_page_opens_its_design(opened: Callable[..., Any], part: ReportedStudy) -> None:
    """It ends with the id of the design that is open, and shows that design to whoever opens it, on a newer page too."""
    page, ids = opened(part), rows_of(part)["design"]
    page.evaluate("view.scope = 'all'; openDesign(7)")
    settle(page)
    address = page.url
    assert f"#design={ids.iloc[7]}" in address
    page.goto("about:blank")
    page.goto(address)
    wait_open(page, ids.iloc[7])
    assert "rank 8" in page.inner_text("#design")
    page.evaluate(f"location.hash = 'design={ids.iloc[2]}'")
    wait_open(page, ids.iloc[2])


@pytest.mark.slow
def test_a_page_of_a_single_design_opens_it(opened: Callable[..., Any], part: ReportedStudy) -> None:
    alone = with_rows(part, part.frame.index == part.frame.index[part.frame["front"]][0])
    page = opened(alone)
    assert open_design(page) == f"Design {alone.frame['design'].iloc[0]}"
    assert len(marks(page)) == 1


@pytest.mark.slow
def test_a_single_objective_stands_over_the_knob_that_matters_most(opened: Callable[..., Any], tmp_path: Path) -> None:
    study = toy(tmp_path, "~objectives.throughput_per_system_mm2", "search.budget=60")
    run_study(study)
    made = StoredStudy(study).part()
    page = opened(made)
    shares = report_payload([made])["studies"][0]["importance"]["tpot"]
    assert page.evaluate("[view.x, view.y]") == [max(shares, key=lambda knob: shares[knob]), "tpot"]
    assert "Best time per output token by evaluations" in page.inner_text("#cards")
    assert len(marks(page)) == 1


@pytest.mark.slow
def test_studies_are_compared_on_one_page(opened: Callable[..., Any], part: ReportedStudy, three: ReportedStudy) -> None:
    other = replace(
        part, study=replace(part.study, name="other"), frame=part.frame[~part.frame["front"]].reset_index(drop=True)
    )
    frame = other.frame
    feasible = frame[frame["feasible"]]
    from dse.search.pareto import front_mask

    frame["front"] = False
    best = front_mask(feasible[list(part.study.objectives)].to_numpy(dtype=float), part.study.directions)
    frame.loc[feasible.index, "front"] = best
    page = opened(part, other)
    table = page.inner_text(".studies")
    assert "toy" in table
    assert "other" in table
    drawn = page.evaluate(
        "document.querySelector('#front .plot')._fullData.filter(t => t.name.startsWith('front of')).map(t => t.x.length)"
    )
    assert drawn == [part.frame["front"].sum(), frame["front"].sum()]
    page.click('.chip.study:has-text("other")')
    page.wait_for_function(f"view.passed === {len(feasible)}")
    assert opened(part, three).locator(".studies thead th").count() == 3
    phone = opened(part, three, width=390, height=844, is_mobile=True)
    sides = phone.evaluate("(of => [of.left, of.right])(document.querySelector('#head .scroll').getBoundingClientRect())")
    assert 0 <= sides[0] < sides[1] <= 390


@pytest.mark.slow
def test_an_open_page_takes_what_arrives_and_keeps_the_view(
    opened: Callable[..., Any], part: ReportedStudy, tmp_path: Path
) -> None:
    few = replace(part, frame=part.frame.iloc[: len(part.frame) // 2].reset_index(drop=True))
    path = tmp_path / "live.html"
    live = LivePage(path)
    live.write(report_payload([few]))
    page = opened(path=path)
    assert page.inner_text("#live") == "live"
    page.evaluate("openDesign(1)")
    page.click('#bar button[data-value="all"]')
    before = page.evaluate("signature(view.open)")
    page.evaluate("window.same = true")
    live.close(report_payload([part]))
    page.wait_for_function(f"designs.rows === {len(part.frame)}", timeout=20_000)
    page.wait_for_function("document.getElementById('live').textContent === 'finished'")
    assert frame_rows(page) == len(part.frame)
    assert page.evaluate("[signature(view.open), window.same]") == [before, True]


@slow_if(lambda width: width > 1000)
@pytest.mark.parametrize(("width", "height"), [(1366, 768), (2560, 1440), (700, 900), (320, 640)])
def test_nothing_is_wider_than_the_screen(opened: Callable[..., Any], part: ReportedStudy, width: int, height: int) -> None:
    page = opened(part, width=width, height=height)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    overlapping = page.evaluate("""() => {
      const cards = document.querySelectorAll(".choose > section, #cards > section");
      const boxes = [...cards].map(card => card.getBoundingClientRect());
      const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
      return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b => meet(a, b))).length;
    }""")
    assert overlapping == 0


@pytest.mark.parametrize("width", [320, 360])
def test_limits_that_designs_break_fit_a_phone(
    opened: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.chdir(tmp_path)
    page = opened(dse.run("quickstart", "screen.limit=256", "search.budget=12").part(), width=width, height=640)
    assert page.locator(".limits button").count() >= 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_time_in_stacks_is_a_bar_for_each_value_of_a_knob_and_a_click_opens_the_design(
    opened: Callable[..., Any], part: ReportedStudy
) -> None:
    knob = part.study.question.space.knobs[0].address
    report = replace(part.study.report, bars=(BarPicture(x=knob, of="operator"),))
    page = opened(replace(part, study=replace(part.study, report=report)))
    card = page.locator("#cards .card", has_text=f"Time by {knob}")
    card.scroll_into_view_if_needed()
    feasible = part.frame[part.frame["feasible"]]
    traces = card.locator(".barlayer .trace")
    traces.first.wait_for(state="attached")
    assert traces.count() > 3
    assert traces.first.locator(".point").count() == min(feasible[knob].nunique(), MAX_STACKS)
    before = open_design(page)
    boxes = [bar.bounding_box() for bar in card.locator(".barlayer .point path").all()[:300]]
    box = max((box for box in boxes if box), key=lambda box: box["height"])
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert open_design(page) != before


@pytest.mark.slow
def test_the_page_says_how_far_off_measured_rows_were(opened: Callable[..., Any], tmp_path: Path) -> None:
    wanted_study = products(tmp_path)
    assert run_study(wanted_study) == 0
    part = StoredStudy(wanted_study).part()
    page = opened(part)
    shown = page.locator(".bands tr").all_inner_texts()
    (study,) = report_payload([part])["studies"]
    assert len(shown) == len(study["bands"]) >= len(wanted_study.objectives)
    for band, text in zip(study["bands"], shown, strict=True):
        assert band["text"] in text
        assert (band["low"] is None) == ("no measured row" in text)
    gemm = {knob.address: knob.values for knob in wanted_study.question.space.knobs}["mapping.gemm"]
    assert {band["software"] for band in study["bands"] if band["metric"] == "latency"} == {
        f"product: {band_document}" for band_document in gemm
    }


@pytest.mark.slow
def test_the_page_of_a_validation_has_a_trace_a_study(browser: Any, tmp_path: Path) -> None:
    rows = simulate_rows(list_published_files(["preserve_l2", "deepseek_wafer"]))
    path = tmp_path / "validation.html"
    path.write_text(build_validation_page(validation_record(rows, path)), encoding="utf-8")
    complaints: list[str] = []
    page = browser.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelectorAll('#plots .js-plotly-plot').length === 2", timeout=60_000)
    traces = page.evaluate("[...document.querySelectorAll('#plots > div')].map(d => d.data.map(t => [t.name, t.x.length]))")
    own = {study: sum(row.study == study and not row.row.order for row in rows) for study in ("deepseek_wafer", "preserve_l2")}
    for drawn in traces:
        assert {name: many for name, many in drawn if name != "equal"} == own
    assert page.locator("#failures tr").count() == 1 + sum(row.fails for row in rows)
    assert page.locator("#groups tr").count() == 1 + len({row.place for row in rows})
    page.close()
    assert complaints == []


def test_arrow_keys_go_from_point_to_point_and_say_which(opened: Callable[..., Any], part: ReportedStudy) -> None:
    """By both axes, to the ends and not beyond; Enter opens."""
    page, frame = opened(part), rows_of(part)
    front = frame[frame["front"]].reset_index(drop=True)
    page.evaluate("view.x = 'throughput_per_system_mm2'; view.y = 'tpot'; refresh()")
    settle(page)
    page.focus("#front .plot")
    by = {
        axis: list(front[name].astype("f4").sort_values(kind="stable").index)
        for axis, name in (("x", "throughput_per_system_mm2"), ("y", "tpot"))
    }
    page.keyboard.press("Home")
    position, last = by["x"][0], len(front) - 1
    for key, axis, step in [("ArrowRight", "x", 1), ("ArrowUp", "y", 1), ("ArrowDown", "y", -1), *[("ArrowLeft", "x", -1)] * 2]:
        place = min(max(by[axis].index(position) + step, 0), last)
        position = by[axis][place]
        page.keyboard.press(key)
        text = page.inner_text("#said")
        assert text.startswith(
            f"Design {front['design'][position]}, on the front, {place + 1} of {len(front)}: throughput per system "
        )
        ring = page.locator("#spot").bounding_box()
        middle = ring["x"] + ring["width"] / 2, ring["y"] + ring["height"] / 2
        assert min(abs(middle[0] - x) + abs(middle[1] - y) for x, y in marks(page)) < 3
    page.keyboard.press("Enter")
    assert open_design(page) == f"Design {front['design'][position]}"
    page.locator("#front .plot").evaluate("plot => plot.blur()")
    assert page.locator("#spot").is_hidden()


def test_metrics_have_plain_names_and_their_address_where_the_pointer_rests(
    opened: Callable[..., Any], part: ReportedStudy
) -> None:
    page = opened(part)
    for place in ("#head .figure", "#table thead th", ".axis-name"):
        named = page.locator(f'{place} [title^="tpot:"]').first
        assert named.inner_text().replace("\n", " ") == "time per output token"
    options = page.locator("#front select").first.locator("option[value=tpot]")
    assert (options.inner_text(), options.get_attribute("title")) == ("time per output token", "tpot")
    assert page.locator("#head").inner_text().count("tpot") == 0
    assert all("_" not in plain_name(name) for name in METRICS)
    assert len({plain_name(name) for name in METRICS}) == len(METRICS)


@pytest.mark.sampled
@pytest.mark.parametrize("width", [1366, 1100, 700, 390])
def test_names_of_axes_are_not_cut_off(opened: Callable[..., Any], part: ReportedStudy, width: int) -> None:
    page = opened(part, width=width)
    names = page.locator("#parallel .axis-name")
    assert names.count() > 3
    page.evaluate(
        "document.querySelectorAll('#parallel .axis-name').forEach(of => { of.style.maxWidth = '96px'; })"
    )  # many axes
    room = page.locator("#parallel .lines").bounding_box()
    for box in (names.nth(place).bounding_box() for place in range(names.count())):
        assert box["y"] >= room["y"]


def test_the_header_fits_a_phone(opened: Callable[..., Any], part: ReportedStudy) -> None:
    """Nothing stands out of 390 pixels, the name is on one line, and every theme can be read and pressed."""
    page = opened(part, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    outside = "[...document.querySelectorAll('#head *, #bar *')].filter(e => e.getBoundingClientRect().right > 390.5).length"
    assert page.evaluate(outside) == 0
    page.evaluate("document.querySelector('h1').textContent = 'quickstart'")
    tall = "(h => h.getBoundingClientRect().height / parseFloat(getComputedStyle(h).lineHeight))"
    assert page.evaluate(f"{tall}(document.querySelector('h1'))") < 1.5
    assert page.evaluate(f"{tall}(document.querySelector('.brand'))") < 1.5
    group = page.locator(".title .segments").bounding_box()
    last = page.locator(".title .segments button").last.bounding_box()
    assert last["x"] + last["width"] <= group["x"] + group["width"] + 0.5
