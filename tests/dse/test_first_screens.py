"""First screens: at most 25 lines of 80 columns for every kind of chip and workload, with the answer and the way on."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dse
from dse.accuracy.residuals import ErrorBand
from dse.accuracy.result_kind import ResultKind
from dse.analysis.best_knob import SHORT_STREAM, find_best_knob
from dse.analysis.evaluation import Evaluation
from dse.analysis.evaluation_screen import band_text, figure_text, lengths_text
from dse.commands.notebook_api import StoredStudy
from dse.space.errors import DesignError
from dse.terminal.screen_lines import MAX_LINES, ScreenRow, format_columns, format_screen

Typed = Callable[..., tuple[int, str, str]]

CONF = Path(__file__).parents[2] / "conf"

KINDS = {
    "static": ["workload.batch=[4]"],
    "cases": ["workload.batch=[1,2,4,8,16,32,64,128,256,512]"],
    "steady": ["workload=serving", "workload.rate='2 Hz'", "fidelity=steady_state"],
    "gemm": ["workload=gemm"],
    "gemv": ["workload=gemv"],
    "attention": ["workload=attention"],
    "collective": ["workload=collective"],
    "traffic": ["workload=traffic"],
    "stream": ["workload=stream"],
}
"""Overrides of each kind of workload."""

KNOWN = {
    "static": "chip=npu_dse",
    "cases": "chip=h100",
    "steady": "chip=h100",
    "gemm": "chip=wse2",
    "gemv": "chip=wse2",
    "attention": "chip=npu64",
    "collective": "chip=tile32",
    "traffic": "chip=mesh8",
    "stream": "chip=hbm3",
}
"""A chip that supports each kind of workload."""


def _drawn_lines() -> Iterator[list[str]]:
    """A line that is known to run for each kind, and three random chips and models more."""
    draw = random.Random(59)
    chips, models = (sorted(path.stem for path in (CONF / group).glob("*.yaml")) for group in ("chip", "model"))
    for kind, words in KINDS.items():
        yield [KNOWN[kind], *words]
        for _ in range(3):
            model = [f"model={draw.choice(models)}"] if kind in ("static", "cases", "steady") else []
            yield [f"chip={draw.choice(chips)}", *model, *words]


@pytest.mark.parametrize("line", list(_drawn_lines()), ids=" ".join)
def test_a_first_screen_has_at_most_25_lines_of_80_columns(line: list[str]) -> None:
    try:
        evaluation = dse.evaluate(line)
    except DesignError:
        assert line not in [[chip, *KINDS[kind]] for kind, chip in KNOWN.items()]
        return
    lines = evaluation.first_screen()
    assert len(lines) <= MAX_LINES, lines
    assert max(map(len, lines)) <= 80, lines
    assert lines == repr(evaluation).splitlines()
    names = [text[:11].strip() for text in lines]
    assert "chip" in names
    assert "mapping" in names
    assert "more" in names
    assert ("infeasible" in names) == ("change" in names) == (evaluation.infeasible is not None)
    assert ("fits" in names) == ("best knob" in names or "overload" in names) == (evaluation.infeasible is None)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, dse.evaluate("workload.batch=[1,8]").first_screen(width))) <= width


def test_figures_have_units_and_bands() -> None:
    lines = {line[:11].strip(): line[12:] for line in dse.evaluate("chip=h100").first_screen()}
    assert re.match(r"[\d.]+ token/s; measured [\d.]+ token/s to", lines["throughput"])
    assert re.match(r"[\d.]+ m?s; ([\d.]+ token/s a user; )?(no )?measured", lines["TPOT"])
    assert re.match(r"[\d.]+ m?s; (no )?measured", lines["TTFT"])
    assert re.match(r"[\d.]+ J/token; [\d.]+ k?W mean power", lines["energy"])
    assert re.match(r"[\d.]+ USD/Mtoken; system [\d,]+ USD", lines["price"])


def test_memory_is_told_by_what_holds_it_with_what_is_free() -> None:
    evaluation = dse.evaluate("chip=npu_dse", "workload.batch=[16]", "mapping.both.tp=1")
    text = " ".join(" ".join(evaluation.first_screen()).split())
    holds = re.search(r"yes, ([\d.]+) GB of 64 GB .*: weights ([\d.]+) GB, KV cache ([\d.]+) GB.*; ([\d.]+) GB free", text)
    assert holds
    used, weights, cache, free = map(float, holds.groups())
    assert used + free == pytest.approx(64, rel=0.01)
    assert weights + cache < used
    assert used == pytest.approx(evaluation.metrics["hbm_used"] / 1e9, rel=0.01)
    more = re.search(r"KV memory for (\d+) such requests", text)
    assert more
    assert dse.evaluate("chip=npu_dse", "mapping.both.tp=1", f"workload.batch=[{more[1]}]").infeasible is None
    assert dse.evaluate("chip=npu_dse", "mapping.both.tp=1", f"workload.batch=[{int(more[1]) + 2}]").infeasible is not None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("chip=h100 model=llama3_70b mapping.both.tp=4", "4 x h100; "),
        ("chip=mi300x", "1 x mi300x, of 8 dies; "),
        ("chip=wse2 workload=gemv", "1 x wse2; "),
        (
            "chip=h200 model=llama3_8b workload=serving workload.requests=20 pools.prefill.chip=h100 mapping.both.tp=2 "
            "fidelity=steady_state +part@pools.link=pool_link_400g",
            "1 x h100 and 2 x h200; ",
        ),
        ("chip=wafer64 model=deepseek_v3 workload.batch=[256]", "wafer64; 64 dies; "),
    ],
)
def test_chips_and_dies_are_counted(line: str, text: str) -> None:
    screen = dse.evaluate(*line.split()).first_screen()
    assert next(row for row in screen if row.startswith("chip"))[12:].startswith(text)


def test_a_range_whose_ends_print_alike_is_one_number() -> None:
    kind = ResultKind("npu64", "", "static", "all", "time", "analytical")
    assert band_text(ErrorBand("latency", 1.0, kind, -0.031, -0.029, 2, compares=True)) == "error -3% (2 comparisons)"
    assert band_text(ErrorBand("latency", 1.0, kind, -0.2, 0.1, 2, compares=True)) == "error -20% to +10% (2 comparisons)"
    assert band_text(ErrorBand("latency", 1.0, kind, -0.05, -0.001, 2, compares=True)) == "error -5% to +0% (2 comparisons)"


@pytest.mark.parametrize("line", ["chip=mesh8 workload=traffic", "chip=tile32 workload=collective"])
def test_the_best_knob_keeps_what_was_asked(line: str) -> None:
    """Fewer cores would make traffic and collectives smaller: another question."""
    evaluation = dse.evaluate(*line.split())
    best = find_best_knob(evaluation.design, evaluation.workload)
    assert best is not None
    assert not best.knob.startswith("chip.mesh.")


def test_a_long_stream_has_no_best_knob_on_its_first_screen() -> None:
    evaluation = dse.evaluate("chip=hbm3", "workload=stream", "workload.requests=256")
    case = replace(evaluation.workload.cases[0], requests=SHORT_STREAM + 1)
    assert find_best_knob(evaluation.design, replace(evaluation.workload, cases=(case,))) is None


def test_rates_of_requests_have_no_prefix() -> None:
    assert figure_text("goodput", 0.03116) == "0.03116 requests/s"


def test_room_is_told_by_whole_bytes() -> None:
    text = " ".join(dse.evaluate("chip=sn40l", "model=llama3_70b", "workload.batch=[1]").first_screen())
    assert "0 B free" in text


def test_the_best_knob_compares_prices_by_the_model_alone() -> None:
    """A data sheet's area and power hold for the chip as sold: each step of it would seem to move area and price."""
    evaluation = dse.evaluate("chip=h100", "workload=gemm", "mapping.both.tp=8")
    best = find_best_knob(evaluation.design, evaluation.workload)
    assert best is not None
    assert best.knob == "chip.network.bandwidth"
    own = ["chip=h100", "workload=gemm", "mapping.both.tp=8", "chip.published=null"]
    area, wider = (dse.evaluate([*own, *more]).metrics["system_mm2"] for more in ([], [f"{best.knob}='{best.new}'"]))
    assert best.changes["system_mm2"] == pytest.approx(wider / area - 1)
    assert best.changes["system_mm2"] < 0.01
    assert "data sheet" in best.text


def _evaluate_step(evaluation: Evaluation, line: list[str]) -> tuple[Evaluation, dict[str, float]]:
    best = find_best_knob(evaluation.design, evaluation.workload)
    assert best is not None
    assert best.knob
    return dse.evaluate([*line, f"{best.knob}='{best.new}'"]), dict(best.changes)


TILES = ["chip=tile_gh200", "model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=256", "workload.output=8"]
STREAM = ["chip=hbm3", "workload=stream", "workload.requests=256"]


@pytest.mark.parametrize("line", [["chip=npu_dse"], ["chip=wse2", "workload=gemv"], TILES, STREAM], ids=" ".join)
def test_the_best_knob_does_what_the_screen_says(line: list[str]) -> None:
    evaluation = dse.evaluate(line)
    stepped, changes = _evaluate_step(evaluation, line)
    for name, change in changes.items():
        assert stepped.metrics[name] / evaluation.metrics[name] - 1 == pytest.approx(change, abs=2e-3), name


@pytest.mark.parametrize(("rate", "pace"), [("max", "max_rate"), ("'4 Hz'", "latency")])
def test_the_best_knob_of_a_serving_load_is_that_of_its_steady_state(rate: str, pace: str) -> None:
    line = ["chip=h100", "model=llama3_8b", "workload=serving", f"workload.rate={rate}", "workload.requests=100"]
    line += ["workload.ttft='1 s'", "workload.tpot='30 ms'", "fidelity=steady_state"]
    evaluation = dse.evaluate(line)
    stepped, changes = _evaluate_step(evaluation, line)
    better = changes[pace] if pace == "max_rate" else -changes[pace]
    assert better >= 0.01
    assert stepped.metrics[pace] / evaluation.metrics[pace] - 1 == pytest.approx(changes[pace], abs=6e-3)


def test_an_infeasible_design_ends_with_3_and_shows_no_metrics(typed: Typed) -> None:
    line = ["chip=h100", "model=llama3_70b", "mapping.both.tp=1"]
    for words in ([], ["--full"], ["--operators"]):
        code, out, _ = typed("evaluate", *words, *line)
        assert code == 3
        assert "chip.hbm.capacity" in out
        assert "mapping.both.tp=4" in out
        assert "tpot" not in out.lower()
    assert typed("evaluate", "--json", *line)[0] == 3
    assert typed("evaluate", *line[:2], "mapping.both.tp=4")[0] == 0


def test_views_of_an_answer_exclude_each_other(typed: Typed) -> None:
    code, _, err = typed("evaluate", "--full", "--operators")
    assert code == 2
    assert "--full, --operators and --json" in err


def test_operators_are_a_line_each_with_flop(typed: Typed) -> None:
    _, out, _ = typed("evaluate", "--operators")
    rows = [line for line in out.splitlines() if line.startswith("ffn ")]
    record = json.loads(typed("evaluate", "--json")[1])
    assert len(rows) == sum(row["segment"] == "ffn" for row in record["operators"])
    assert any("TFLOP" in row for row in rows)
    assert max(map(len, out.splitlines()[2:-1])) <= 80


def test_lengths_of_a_sample_are_told_by_mean_and_percentiles() -> None:
    prompt, output = np.arange(1, 102), np.full(101, 7)
    assert lengths_text(prompt, output) == "mean 51 (p50 51, p99 100) tokens in, 7 out"


def test_needed_rows_are_never_cut() -> None:
    long = " ".join(["word"] * 200)
    lines = format_screen("title", [ScreenRow("kept", long, needed=True), *[ScreenRow("cut", long)] * 3], most=20)
    assert " ".join(" ".join(line[12:] for line in lines if line != "title").split()).count("word") >= 200
    assert sum(line.endswith(" ...") for line in lines) == 3


def test_columns_that_do_not_fit_are_left_out_and_told() -> None:
    lines = format_columns(["case", *("column",) * 20], [["a", *("1.25 token/s",) * 20]], 80)
    assert lines[0].endswith("...")
    assert max(map(len, lines)) <= 80


def test_an_explained_design_says_where_its_figures_do_not_hold(typed: Typed) -> None:
    _, out, _ = typed("explain", "chip=wse2")
    assert re.search(r"^metrics +if its limits held, throughput", out, re.MULTILINE)
    _, out, _ = typed("explain", "chip=h100")
    assert "if its limits held" not in out
    assert "steps of the chip and their designs are" in " ".join(out.split())
    _, out, _ = typed("explain", "chip=npu_dse", "+objectives.tpot=min")
    assert "data sheet" not in out
    assert re.search(r"^chip.hbm.bandwidth .*% +HBM bandwidth$", out, re.MULTILINE)


def test_a_stored_study_is_read_once(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dse.run("quickstart", "screen.limit=16", "search=qmc", "search.budget=2", "workers=serial")
    read, count = StoredStudy.frame, []
    monkeypatch.setattr(StoredStudy, "frame", lambda study: count.append(study) or read(study))
    for words in (["quickstart"], ["quickstart", "--full"]):
        count.clear()
        assert not typed("show", *words)[0]
        assert len(count) == 1


def test_one_request_alone_has_no_status_of_a_load_and_its_bands_are_whole() -> None:
    alone = dse.evaluate("chip=h100", "model=llama3_8b", "workload=serving", "workload.requests=1").first_screen()
    assert not [line for line in alone if line.startswith("load status")]
    assert not [line for line in alone if "what arrives" in line]
    assert any(line.startswith("throughput") and "; measured " in line for line in alone)
    many = dse.evaluate("chip=h100", "model=llama3_8b", "workload=serving", "workload.requests=200").first_screen()
    assert any(line.startswith("load status stable") for line in many)
    (ttft,) = [line for line in many if line.startswith("TTFT")]
    assert ttft.endswith("; no measured row")
