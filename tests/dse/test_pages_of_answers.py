"""Pages of one answer, in a real browser on a phone: nothing is wider than it, and what stands on axes can be read."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dse.analysis.capacity import find_capacity
from dse.analysis.fleet import find_fleets, parse_query
from dse.analysis.sweep import sweep
from dse.commands.capacity_output import capacity_record
from dse.commands.compare_output import write_comparison
from dse.commands.fleet_output import fleet_record
from dse.commands.sweep_output import sweep_page
from dse.commands.validate_all import list_published_files, simulate_rows
from dse.commands.validate_all import validation_record as validated
from dse.documents.calibrate_document import (
    CalibrateDocument,
    ConstantRecord,
    ErrorSpreadRecord,
    MeasuredRowRecord,
    MeasuredRunRecord,
)
from dse.documents.robust_document import RobustDesignRecord, RobustDocument, TurningRecord
from dse.documents.study_records import KindOrderRecord
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.report.page_parts import read_page_data
from dse.report.robustness_page import build_robustness_page
from dse.report.standalone_pages import (
    build_calibration_page,
    build_capacity_page,
    build_fleet_page,
    build_validation_page,
)
from tests.dse.test_report_page import browser

__all__ = ["browser"]

WORDS = [
    "chip=h200", "model=llama3_8b", "devices=2", "workload.prompt=500", "workload.output=20", "workload.requests=100",
    "workload.ttft='400 ms'", "workload.tpot='30 ms'", "space=empty", "+space.mapping.both.tp='choice(1,2)'",
    "disaggregated=false",
]  # fmt: skip

BOXES = "of => [...document.querySelectorAll(of)].map(e => e.getBoundingClientRect().toJSON())"


@pytest.mark.parametrize("kind", ["capacity", "validated"])
def test_a_page_fits_a_phone(browser: Any, tmp_path: Path, kind: str) -> None:
    sides = find_capacity(WORDS) if kind == "capacity" else []
    text = (
        build_capacity_page(capacity_record(sides))
        if sides
        else build_validation_page(validated(simulate_rows(list_published_files(["deepseek_wafer"])), tmp_path / "page.html"))
    )
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 844}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelector('#plots > div:last-child .main-svg .ytick')", timeout=60_000)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    titles = page.evaluate(BOXES, ".gtitle")
    assert titles
    assert all(title["left"] >= 0 and title["right"] <= 390 for title in titles)
    for plot in range(1, len(titles) + 1):
        ticks = sorted(page.evaluate(BOXES, f"#plots > div:nth-child({plot}) .ytick text"), key=lambda tick: tick["top"])
        assert all(above["bottom"] <= below["top"] for above, below in pairwise(ticks))
    assert "e+" not in page.inner_text("body")
    if sides:  # as the terminal has it: the share that a latency is of, and what is not to be believed
        assert page.evaluate("[...document.querySelectorAll('.ytitle')].map(e => e.textContent).slice(1)") == [
            "time to first token, 90 %",
            "time per output token, 90 %",
        ]
        note = capacity_record(sides).chips[0].note
        assert note
        assert note in page.inner_text("body")
    page.close()


def test_the_page_of_a_fleet_fits_a_phone_and_draws_each_hour(browser: Any, tmp_path: Path) -> None:
    words = [word for word in WORDS if "=[" not in word and word.partition("=")[0] not in ("devices", "disaggregated", "space")]
    words = [word for word in words if not word.startswith("+space")]
    data = fleet_record(find_fleets(parse_query(words, day="sinusoid", peak="90 Hz", spare="1", cold_start="30 min")))
    (tmp_path / "page.html").write_text(build_fleet_page(data), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 844}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelector('#plots > div:last-child .main-svg .ytick')", timeout=60_000)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    drawn = page.evaluate("[...document.querySelectorAll('#plots > div')].map(of => [...of.data[0].y])")
    hours = data.fleets[0].models[0].hours
    assert drawn[0][:24] == pytest.approx(data.day.rates_hz)
    assert drawn[1][:24] == pytest.approx([hour.system_hours for hour in hours])
    assert drawn[2][:24] == pytest.approx([hour.load_hz for hour in hours])
    assert drawn[3][:24] == pytest.approx([hour.grid_power_w / 1e3 for hour in hours])
    text = page.inner_text("body")
    assert all(line in text for line in (*data.assumptions, data.day.text, data.fleets[0].models[0].note))
    page.close()


def test_the_page_of_a_comparison_has_a_bar_for_each_chip_and_all_metrics(browser: Any, tmp_path: Path) -> None:
    words = ["chip=[a100,npu64]", "model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=64", "workload.output=8"]
    write_comparison(words, "tpot", tmp_path / "page.html", as_json=False, trust=False)
    data = read_page_data(tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 390, "height": 844}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelector('#plots > div:last-child .main-svg .ytick')", timeout=60_000)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    drawn = page.evaluate("[...document.querySelectorAll('#plots > div')].map(of => of.data.flatMap(trace => [...trace.x]))")
    assert data["shown"][0] == "tpot"
    chips = data["answer"]["chips"]
    for name, values in zip(data["shown"], drawn, strict=False):
        metrics = [chip["metrics"][name]["value"] for chip in chips]
        assert max(values) / min(values) == pytest.approx(max(metrics) / min(metrics)), name
    shares = page.evaluate("[...document.querySelector('#plots > div:last-child').data].map(trace => [...trace.x])")
    assert [sum(column) for column in zip(*shares, strict=True)] == pytest.approx(
        [100, 100], abs=1.5
    )  # small shares are not drawn
    look = "of => of.marker.color + (of.marker.pattern?.shape ?? '')"
    looks = page.evaluate(f"[...document.querySelector('#plots > div:last-child').data].map({look})")
    assert len(set(looks)) == len(looks) > 3
    rows = page.evaluate("[...document.querySelectorAll('#metrics tbody tr')].length")
    assert rows == len({name for chip in chips for name in chip["metrics"]})
    assert data["best"] in page.inner_text("body")
    page.close()


def test_the_page_of_a_calibration_names_its_constants_and_has_a_line_for_each_figure(browser: Any, tmp_path: Path) -> None:
    launch = "mapping.stack.operator_launch"
    rows = [
        MeasuredRowRecord(
            id=f"run: {metric}", role=role, metric=metric, unit="s", measured=(low, high), before=0.02, after=after
        )
        for metric, role, low, high, after in (
            ("ttft", "calibration", 0.03, 0.03, 0.025),
            ("tbt_p99", "check", 0.01, 0.04, None),
        )
    ]
    spread = ErrorSpreadRecord(rows=1, median=0.1, p90=0.1, worst=0.1)
    document = CalibrateDocument(
        file="mine.json",
        physics=PHYSICS_VERSION,
        seed=0,
        simulations=3,
        overrides=[],
        constants=[
            ConstantRecord(
                address=launch,
                unit="s",
                before=4e-6,
                after=7.55e-6,
                interval=(6e-6, 9e-6),
                range=(0.0, 1.0),
                determined="roughly",
            )
        ],
        errors={"calibration, after": spread},
        warnings=["no held-out error: set folds=5"],
        rows=rows,
        runs=[MeasuredRunRecord(name="run", source="vllm bench serve", model="", notes=["one file says little"])],
        undetermined={"mapping.stack.hbm_efficiency": "no figure depends on it"},
    )
    (tmp_path / "page.html").write_text(build_calibration_page(document), encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 844}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelector('#plots > div:last-child .main-svg .ytick')", timeout=60_000)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    cells = page.evaluate("[...document.querySelectorAll('#constants tbody td')].map(of => of.innerText)")
    assert cells == [f"stack operator launch\n{launch}", "4 µs", "7.55 µs", "6 µs to 9 µs", "roughly"]
    figures = page.evaluate("[...document.querySelectorAll('#figures tbody tr')].map(of => of.innerText.split('\\t').slice(1))")
    assert figures == [
        ["time to first token", "calibration", "30 ms", "20 ms", "\N{MINUS SIGN}33.3 %", "25 ms", "\N{MINUS SIGN}16.7 %"],
        ["time between tokens, p99", "check", "10 ms to 40 ms", "20 ms", "holds", "none", "none"],
    ]
    assert page.evaluate(BOXES, ".gtitle")[0]["right"] <= 390
    said = page.inner_text("body")
    assert all(
        text in said for text in ("1 constant fitted to 1 of 2 figures", "no figure depends on it", "one file says little")
    )
    page.close()


def test_the_page_of_a_sweep_fits_a_phone_names_settings_and_grows_its_table(browser: Any, tmp_path: Path) -> None:
    bandwidth = "chip.hbm.bandwidth=tag(TB/s, choice(2,2.2,2.4,2.6,2.8,3,3.2,3.4))"
    words = ["model=llama3_8b", "chip=[h100,h200]", "mapping.both.tp=[1,2,4]", bandwidth]
    result = sweep(words, "throughput")
    (tmp_path / "page.html").write_text(sweep_page(result), encoding="utf-8")
    data = read_page_data(tmp_path / "page.html")
    designs, measured, settings = data["tables"]
    assert len(designs["rows"]) == 48
    assert ["HBM bandwidth", "chip.hbm.bandwidth"] in settings["rows"]
    assert [row[0] for row in measured["rows"]] == ["throughput"]
    assert result.best is not None
    low, high = result.best.measured_range("throughput") or (0.0, 0.0)
    (whisker,) = [trace["error_y"] for trace in data["figures"][0]["panels"][0]["traces"] if "error_y" in trace]
    assert whisker["array"][0] + whisker["arrayminus"][0] == pytest.approx(high - low)
    page = browser.new_page(viewport={"width": 390, "height": 844}, is_mobile=True)
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelectorAll('#plots .main-svg .ytick').length > 3", timeout=60_000)
    assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]
    assert page.evaluate("document.querySelectorAll('#table-0 tbody tr').length") == 40
    page.click("button.more:visible")
    assert page.evaluate("document.querySelectorAll('#table-0 tbody tr').length") == 48
    assert page.locator("button.more:visible").count() == 0
    page.close()


def test_the_page_of_a_robust_front_counts_the_designs_that_a_constant_turns(tmp_path: Path) -> None:
    def turning(address: str, ends: list[float]) -> TurningRecord:
        return TurningRecord(
            address=address, chips=[], value=1.0, unit="1", written="1", low=0.7, high=1.4, source="assumed", range_of="source",
            margin_lost=0.1, turns_at=ends,
        )  # fmt: skip

    records = [turning("chip.clock", [0.7]), turning("chip.technology.sram", [])]
    designs = [
        RobustDesignRecord(
            design=name, chip="", share=share, near_share=1.0, margin=0.02, turning=records[:many], not_distinguished=()
        )
        for name, share, many in (("a", 0.25, 2), ("b", 1.0, 1), ("c", 0.75, 0))
    ]
    order = KindOrderRecord(text="", bands=[], carried=[], not_distinguished={})
    document = RobustDocument(
        study="toy", fidelity="analytical", draws=16, constants_not_moved=0, constants=2, rivals=4, left_out=0, designs=designs,
        order=order,
    )  # fmt: skip
    (tmp_path / "page.html").write_text(build_robustness_page(document), encoding="utf-8")
    data = read_page_data(tmp_path / "page.html")
    assert data["verdict"].startswith("2 of 3 designs of the front stay")
    assert "Design b stays most often, in 100%" in data["verdict"]
    shares, bars = (figure["panels"][0]["traces"] for figure in data["figures"])
    assert shares[1]["error_y"]["array"][:2] == [pytest.approx(10.8), 0.0]  # % of 16 draws at a share of a quarter
    assert (bars[0]["y"], bars[0]["x"]) == (["clock"], [2])
    constants = data["tables"][0]["rows"]
    assert [(row[0], row[4]) for row in constants] == [
        ("clock (chip.clock)", "2"),
        ("SRAM density (chip.technology.sram)", "0"),
    ]
