"""Figures of a study hold what is stored, as `dse.load`, ``dse figure`` and the page draw them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dse.accuracy.measured_machines import MeasuredPoint, measured_points, published_die_areas, real_machines
from dse.analysis.load_curve import LATENCIES, latency_against_load
from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.evaluation import peak_rates
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.study import build_study
from dse.report import interactivity
from dse.report.design_figures import cost_figure, load_figure
from dse.report.figure_style import palette, resolve_colours
from dse.report.figures import FIGURES, MAX_BARS, build_figure
from dse.report.page_cache import PageCache
from dse.report.page_figures import _load_curves
from dse.report.payload import report_payload
from dse.report.plotly_library import FORMATS, write_figure
from dse.report.reported_study import ReportedStudy
from dse.search.pareto import front_mask
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.workload import ServingLoad, Workload
from dse.terminal.plain_names import setting_name
from tests.dse.test_report_page import browser_program
from tests.dse.toy import toy

SERVING = (
    "chip=npu_dse",
    "model=qwen3_1b7",
    "workload=serving",
    "workload.prompt=512",
    "workload.output=64",
    "workload.rate='4 Hz'",
    "workload.ttft='6 ms'",
    "workload.tpot='20 ms'",
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> StoredStudy:
    study = toy(tmp_path_factory.mktemp("figures"), "screen.run=true", "screen.limit=64", "search.sampler=none")
    run_study(study)
    return StoredStudy(study)


@pytest.fixture(scope="module")
def part(ran: StoredStudy) -> ReportedStudy:
    return ran.part()


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactivity, "measured_points", lambda models, metrics: ())


@pytest.fixture(scope="module")
def served() -> Question:
    config = compose(SERVING)
    return build_question(config, find_study_folder(config))


def front_of(part: ReportedStudy) -> Any:
    rows = report_order(part.study, part.frame)
    return rows[rows["front"]]


def trace_named(spec: Any, start: str, panel: int = 0) -> dict[str, Any]:
    (trace,) = [trace for trace in spec.panels[panel].traces if trace.get("name", "").startswith(start)]
    return dict(trace)


def test_the_front_of_a_pareto_figure_is_the_stored_one(part: ReportedStudy) -> None:
    front = front_of(part).sort_values("throughput_per_system_mm2")
    trace = trace_named(build_figure(part, "pareto"), "front")
    assert trace["x"] == pytest.approx(front["throughput_per_system_mm2"].tolist(), rel=1e-5)
    assert np.array(trace["y"]) / 1e3 == pytest.approx(front["tpot"].to_numpy(), rel=1e-5)  # in ms


def test_a_mark_of_the_front_says_the_values_of_its_knobs(part: ReportedStudy) -> None:
    front = front_of(part).sort_values("throughput_per_system_mm2", kind="stable")
    for text, row in zip(trace_named(build_figure(part, "pareto"), "front")["text"], front.to_dict("records"), strict=True):
        shown = dict(line.rsplit(" ", 1) for line in text.split("<br>"))
        assert shown["design"] == row["design"]
        for knob in part.study.question.space.knobs:
            value = row[knob.address]
            if value is None or value != value:
                assert setting_name(knob.address) not in shown
            else:
                text = shown[setting_name(knob.address)]
                assert text == value if isinstance(value, str) else float(text) == value


def test_axes_of_a_pareto_figure_may_be_any_metric_or_knob(part: ReportedStudy) -> None:
    front = front_of(part).sort_values("mapping.both.tp", kind="stable")
    trace = trace_named(build_figure(part, "pareto", x="mapping.both.tp", y="energy_per_token"), "front")
    assert trace["x"] == pytest.approx(front["mapping.both.tp"].astype(float).tolist())


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("per", "gain"), [("mm2", "throughput_per_system_mm2"), ("dollar", "price_per_mtoken"), ("watt", "energy_per_token")]
)
def test_a_curve_has_the_designs_that_no_other_beats_in_both_speeds(part: ReportedStudy, per: str, gain: str) -> None:
    rows = part.frame[part.frame["feasible"]]
    metric = rows[gain].to_numpy(dtype=float)
    gains = {"mm2": metric, "dollar": 1e6 / metric, "watt": 1 / metric}[per]
    speeds = np.column_stack([1 / rows["tpot"].to_numpy(dtype=float), gains])
    best = speeds[front_mask(speeds, ["max", "max"])]
    best = best[np.argsort(best[:, 0], kind="stable")]
    trace = trace_named(build_figure(part, "throughput_per_user", per=per), "npu_dse")
    assert np.column_stack([trace["x"], trace["y"]]) == pytest.approx(best, rel=1e-5)


@pytest.mark.usefixtures("unmeasured")
def test_each_case_of_a_workload_is_a_point_of_a_curve(tmp_path: Path) -> None:
    study = toy(tmp_path, "screen.run=true", "screen.limit=16", "search.sampler=none", "workload.batch=[1,64]")
    run_study(study)
    part = StoredStudy(study).part()
    rows = interactivity.interactivity_rows(study, part.frame, interactivity.RESOURCES["mm2"][-1])
    assert len(rows) == 2 * int(part.frame["feasible"].sum())
    row = rows[rows["best"]].iloc[0].to_dict()
    cases = {case.label: case for case in study.question.workload.cases}
    design = stack_designs([study.question.space.design_at(knob_values(study, row))])
    (tpot,) = evaluate(design, Workload("", (cases[row["case"]],))).columns["tpot"]
    assert row["user"] == pytest.approx(1 / tpot)


def test_measured_points_lie_where_their_rows_say() -> None:
    points = {point.id: point for point in measured_points(frozenset({"llama3_70b"}), frozenset({"throughput_per_system_mm2"}))}
    point = next(point for point in points.values() if point.chip == "wormhole_galaxy")
    assert point.user_rate == pytest.approx(1 / 0.0137931)  # TPOT of its row
    assert point.rate == pytest.approx(32 * point.user_rate)  # of its batch
    assert not point.has_prompt


def test_a_measured_point_over_area_is_its_throughput_over_the_area_of_its_dies() -> None:
    metrics = frozenset({"throughput_per_system_mm2", "system_mm2"})
    (point, *_) = (point for point in measured_points(frozenset({"llama3_70b"}), metrics) if point.chip == "gaudi3")
    assert point.throughput_per("throughput_per_system_mm2") == pytest.approx(point.rate / point.simulated["system_mm2"])


def test_published_die_areas_are_those_of_the_silicon_rows() -> None:
    assert published_die_areas()["h100"] == 814
    assert {"gaudi3", "h100", "wse2"} <= real_machines()
    assert not {"npu64", "tile32", "wafer64"} & real_machines()


@pytest.mark.parametrize("inverse", [0.0, 1e6])
def test_a_point_as_fast_as_simulated_has_the_simulated_metric(inverse: float) -> None:
    point = MeasuredPoint("", "", "", "", 1.0, 50.0, False, False, {"throughput": 50.0, "some": 4.0})
    assert point.throughput_per("some", inverse) == (inverse / 4.0 if inverse else 4.0)


def test_load_curves_have_the_metrics_of_an_evaluation_at_their_rates(served: Question) -> None:
    load = served.workload.cases[0]
    assert isinstance(load, ServingLoad)
    curve = latency_against_load(served.base, load, "steady_state", max_rate=8.0)
    (place,) = np.flatnonzero(curve.rates == 8.0)
    assert load.draw is not None
    case = replace(load, requests=load.draw(curve.requests, load.seed, 8.0), said=8.0)
    outcome = evaluate(stack_designs([served.base]), Workload("", (case,)), fidelity="steady_state").columns
    for name, values in curve.metrics.items():
        assert values[place] == pytest.approx(float(outcome[name][0])), name
    assert curve.is_known


def test_the_largest_rate_keeps_the_bounds_and_a_little_more_does_not(served: Question) -> None:
    load = served.workload.cases[0]
    assert isinstance(load, ServingLoad)
    curve = latency_against_load(served.base, load, "steady_state", 0.9)
    kept = curve.metrics["slo_attainment"] >= 0.9
    assert 0 < curve.max_rate < curve.saturated
    assert kept[curve.rates <= curve.max_rate].all()
    assert not kept[curve.rates > 1.02 * curve.max_rate].any()


def test_latency_against_load_needs_a_rate(served: Question) -> None:
    config = compose([*SERVING[:5], "workload.arrivals=offline"])
    offline = build_question(config, find_study_folder(config))
    with pytest.raises(DesignError, match=r"workload.arrivals: .*requests all at once; use poisson"):
        latency_against_load(offline.base, offline.workload.cases[0], "analytical")  # type: ignore[arg-type]


def test_a_load_figure_draws_each_latency_with_its_bound_and_the_largest_rate(served: Question) -> None:
    load = served.workload.cases[0]
    assert isinstance(load, ServingLoad)
    curve = latency_against_load(served.base, load, "steady_state")
    spec = load_figure("abc", curve)
    assert len(spec.panels) == 3
    for panel, prefix in ((0, "ttft"), (1, "t[pb][ot]t?")):
        lines = [trace for trace in spec.panels[panel].traces if trace["mode"] == "lines+markers"]
        assert len(lines) == sum(re.match(prefix, name) is not None for name in curve.metrics if name in LATENCIES)
    assert trace_named(spec, "bound", 0)["name"] == "bound: 6 ms"
    assert trace_named(spec, "largest rate", 0)["x"] == pytest.approx([curve.max_rate] * 2, rel=1e-5)
    assert spec.panels[2].traces[0]["y"] == pytest.approx((100 * curve.metrics["slo_attainment"]).tolist())


def test_a_roofline_has_the_operators_of_the_breakdown(part: ReportedStudy) -> None:
    study, name = part.study, front_of(part)["design"].iloc[0]
    design = study.question.space.design_at(knob_values(study, front_of(part).iloc[0].to_dict()))
    case = study.question.workload.cases[0]
    rows = [row for row in explain(design, case).rows if row.flop and row.nbytes and row.seconds]
    spec = build_figure(part, "roofline", design=name)
    marks = [trace for trace in spec.panels[0].traces if trace["mode"] == "markers+text"]
    drawn = sorted(x for trace in marks for x in trace["x"])
    assert drawn == pytest.approx(sorted(row.flop / row.nbytes for row in rows), rel=1e-4)


def test_roofs_are_those_of_utilisation(part: ReportedStudy) -> None:
    row = front_of(part).iloc[0].to_dict()
    design = part.study.question.space.design_at(knob_values(part.study, row))
    rates = peak_rates(design, part.study.question.workload.cases[0])
    assert rates is not None
    assert float(rates.flops) == pytest.approx(row["peak_flops"])
    assert float(rates.memory) == pytest.approx(row["hbm_bytes"] / row["latency"] / row["hbm_utilisation"])


def test_single_kernels_have_no_roofline() -> None:
    config = compose(["chip=tile32", "workload=attention"])
    question = build_question(config, find_study_folder(config))
    assert peak_rates(question.base, question.workload.cases[0]) is None


def test_bars_of_a_front_add_up_to_its_metrics(part: ReportedStudy) -> None:
    spec, front = build_figure(part, "cost"), front_of(part)
    area = next(panel for panel in spec.panels if panel.y["title"].startswith("area"))
    names = area.traces[0]["x"]
    assert len(names) == min(MAX_BARS, len(front))
    totals = np.sum([bar["y"] for bar in area.traces], axis=0)
    rows = front.set_index("design").loc[names]
    assert totals == pytest.approx((rows["system_mm2"] / rows["mapping.both.tp"]).to_numpy(dtype=float), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("parets", {}, r"no figure 'parets'.*pareto"),
        ("pareto", {"per": "mm2"}, r"figure pareto: per has no effect; it takes x, y"),
        ("pareto", {"x": "tpots"}, r"x: no numbers 'tpots'.*tpot"),
        ("throughput_per_user", {"per": "yen"}, r"per: no resource 'yen'"),
        ("load", {}, r"needs requests that arrive \(workload=serving\)"),
        ("roofline", {"design": "ffffffffff"}, r"--design: no design 'ffffffffff'"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(part: ReportedStudy, name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(DesignError, match=message) as error:
        build_figure(part, name, **options)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("name", [name for name in FIGURES if name != "load"])
def test_python_has_every_figure_with_colours_of_the_page(ran: StoredStudy, name: str) -> None:
    figure = ran.figure(name)
    text = figure.to_json()
    assert figure.data
    assert '"--' not in text
    assert palette("light")["--ink"] in text


def test_every_colour_of_a_scheme_is_a_variable_of_the_page() -> None:
    for scheme in ("light", "dark"):
        assert resolve_colours(["--s1", "--s8", "--bad", "--ghost"], palette(scheme)) != ["--s1", "--s8", "--bad", "--ghost"]


def test_an_html_figure_needs_nothing_beside_it(part: ReportedStudy, tmp_path: Path) -> None:
    path = tmp_path / "front.html"
    write_figure(build_figure(part, "pareto"), path)
    text = path.read_text()
    assert "Plotly.newPlot" in text
    assert path.stat().st_size < 1e6
    assert not re.findall(r'<script[^>]* src="http', text)


def test_bars_of_chips_of_very_different_size_are_shares_with_their_totals() -> None:
    records = {
        "a": [("area of a chip", "mm2", {"sram": 30.0, "links": 10.0})],
        "b": [("area of a chip", "mm2", {"sram": 4000.0})],
    }
    (panel,) = cost_figure(records, "two").panels
    assert panel.y["title"] == "share of area of a chip [%]"
    assert panel.traces[0]["x"] == ["a, 40 mm2", "b, 4e+03 mm2"]
    assert [bar["y"] for bar in panel.traces] == [[75.0, 100.0], [25.0, 0.0]]


def test_another_kind_of_file_is_refused_with_those_there_are(part: ReportedStudy, tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"front.pdf: expected a name that ends in .html, .svg, .png"):
        write_figure(build_figure(part, "pareto"), tmp_path / "front.pdf")
    assert FORMATS == ("html", "svg", "png")


def test_an_image_without_kaleido_says_what_to_install(
    part: ReportedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kaleido", None)
    with pytest.raises(DesignError, match=r"\.svg needs Kaleido: pip install 'mesh-dse\[figures\]'"):
        write_figure(build_figure(part, "pareto"), tmp_path / "front.svg")
    assert not list(tmp_path.iterdir())


def test_an_image_without_a_browser_says_what_to_install(
    part: ReportedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "none"))
    with pytest.raises(DesignError, match=r"needs Chromium or Chrome: apt-get install chromium, or set BROWSER_PATH"):
        write_figure(build_figure(part, "pareto"), tmp_path / "front.png")


def test_an_svg_has_the_axes_of_the_figure(part: ReportedStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", browser_program())
    write_figure(build_figure(part, "pareto"), tmp_path / "front.svg")
    text = (tmp_path / "front.svg").read_text()
    assert text.startswith("<svg")
    assert "time per output token [ms]" in text


def test_a_page_has_figures_of_the_study_and_of_its_front(part: ReportedStudy) -> None:
    (study,) = report_payload([part])["studies"]
    figures = study["figures"]
    assert list(figures["throughput_per_user"]) == ["mm2", "dollar", "watt"]
    assert figures["throughput_per_user"]["mm2"] == build_figure(part, "throughput_per_user").record()
    assert set(figures["roofline"]) == {str(row) for row in range(len(front_of(part)))}
    assert figures["load"] == {}
    assert METRICS["die_mm2"].unit in figures["cost"]["panels"][0]["y"]["title"].replace("²", "2")


@pytest.mark.parametrize(
    "words",
    [
        ("workload.arrivals=offline",),
        ("workload.arrivals=closed_loop", "workload.users=2", "workload.sessions={turns: 2, think: 1 s}"),
    ],
)
def test_a_page_of_requests_without_a_rate_has_no_load_curve(words: tuple[str, ...], tmp_path: Path) -> None:
    """And no error: nothing was asked of a rate."""
    config = compose(["name=served", "+objectives.tpot=min", "workload.requests=4", *SERVING, *words])
    study = build_study(config | {"run_dir": str(tmp_path)}, tmp_path)
    frame = pd.DataFrame({DESIGN: ["one"], "front": [True]})
    with PageCache(study) as kept:
        assert _load_curves(ReportedStudy(study, frame, None, []), frame, 0, {0: {}}, kept) == {}
