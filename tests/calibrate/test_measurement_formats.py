"""Reports, exports, snapshots and profiles: the same run gives the same figures in each format; what is not known is asked for.

Files are written by hand in the published keys; no machine was measured.
"""

import gzip
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.accuracy.calibrate import simulate_rows
from dse.accuracy.determined_constants import choose_determined
from dse.accuracy.engine_calibration import calibrate_measurements, choose_constants
from dse.accuracy.measurements.json_scanner import CHUNK_CHARS, JsonScanner
from dse.accuracy.measurements.measured_questions import build_rows
from dse.accuracy.measurements.measured_run import MeasuredRun, name_file, name_run
from dse.accuracy.measurements.measurement_files import FileOptions, read_measurements
from dse.main import main
from dse.space.errors import DesignError
from tests.calibrate.rows import SAMPLE

FILES = Path(__file__).parent / "files"
CHIP = ("chip=h100", "model=qwen3_1b7")


def figures(run: MeasuredRun) -> dict[str, tuple[float, float]]:
    return {figure.metric: (figure.low, figure.high) for figure in run.figures}


def fitted(run: MeasuredRun) -> set[str]:
    return {figure.metric for figure in run.figures if figure.role == "calibration"}


def outcome(path: Path) -> tuple[list[MeasuredRun], str]:
    """Runs of a file, or the message of its refusal."""
    try:
        return read_measurements([path], FileOptions(runs=1)), ""
    except DesignError as error:
        return [], str(error)


def changed(tmp_path: Path, name: str, old: str, new: str) -> Path:
    """A sample with other text."""
    text = (FILES / name).read_text()
    assert old in text
    path = tmp_path / name
    path.write_text(text.replace(old, new))
    return path


def test_a_report_of_trtllm_bench_says_the_same_as_text_and_as_json() -> None:
    (text,), (document,) = (read_measurements([FILES / f"trtllm_report.{kind}"]) for kind in ("txt", "json"))
    assert figures(text) == figures(document)
    assert text.settings == document.settings
    assert text.source == document.source == "trtllm-bench, TensorRT-LLM 1.2.0"
    assert figures(text)["ttft"] == pytest.approx((0.2, 0.2))
    assert document.settings["mapping.serving.max_batched_tokens"] == "2048"
    assert document.settings["mapping.precision.kv"] == "bf16"
    assert fitted(text) == {"ttft", "tpot", "throughput"}


def test_exports_of_both_programs_and_formats_say_the_same() -> None:
    runs = [read_measurements([FILES / name])[0] for name in ("aiperf.json", "genai_perf.json", "genai_perf.csv")]
    assert [run.source for run in runs] == ["AIPerf 0.5.0", "GenAI-Perf", "GenAI-Perf or AIPerf (CSV)"]
    assert figures(runs[1])["tpot"] == figures(runs[2])["tpot"] == pytest.approx((0.0105, 0.0105))
    assert figures(runs[2])["throughput"][0] == 1307.2
    assert [run.load.concurrency for run in runs if run.load] == [4, 4, None]
    assert [run.load.requests for run in runs if run.load] == [24, 24, 24]
    assert all("inter_token_latency p50 (ms): no metric" in " ".join(run.notes) for run in runs)


@pytest.mark.parametrize(
    ("name", "old", "new", "hint"),
    [
        ("aiperf.json", '"schema_version": "1.0"', '"schema_version": "9.0"', "schema_version: '9.0' is not known"),
        ("aiperf.json", '"was_cancelled": false', '"was_cancelled": true', "the run was cancelled"),
        ("aiperf.json", '{"unit": "ms", "avg": 60.0', '{"unit": "furlong", "avg": 60.0', "unit 'furlong' is no time"),
        ("aiperf.json", '"avg": 512.0', '"avg": null', "input_sequence_length, output_sequence_length: needed"),
        ("genai_perf.csv", "60.00,52.00", "fast,52.00", "row 2: column avg: 'fast' is no number"),
        ("genai_perf.csv", "60.00,52.00", "-60.00,52.00", "expected 0 or more, got -60"),
        ("trtllm_report.json", '"num_requests": 24', '"num_requests": 0', "num_requests: expected a whole number of 1"),
        (
            "trtllm_report.txt",
            "Number of requests",
            "Requests",
            "num_requests: expected a whole number of 1 or more, got nothing",
        ),
        ("metrics_after.prom", "generation_tokens_total{", "generation_tokens_total ", "is no sample"),
        ("metrics_after.prom", "} 4.7", "} many", "'many' is no number"),
        ("metrics_after.prom", "vllm:", "other:", "no metric of vLLM or SGLang"),
        ("metrics_after.prom", 'python_info{implementation="CPython"}', 'vllm:x_total{model_name="b"}', "metrics of 2 models"),
        (
            "metrics_after.prom",
            'reason="stop",model_name="example/small-8b"} 4',
            'reason="abort",model_name="a"} 4',
            "2 models",
        ),
        ("nsys_kernels.csv", "140000000", "-5", "kernel 1: column Total Time (ns): '-5' is no number of 0 or more"),
        ("torch_trace.json", '"dur": 9.0', '"dur": -9.0', "dur -9.0 is no time in us"),
        ("torch_trace.json", '"cat": "kernel"', '"cat": "other"', "a trace without kernels"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, old: str, new: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as error:
        read_measurements([changed(tmp_path, name, old, new)], FileOptions(runs=1))
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["trtllm_report.json", "aiperf.json", "torch_trace.json", "trtllm_report.txt", "nsys_kernels.csv"]
)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.98])
def test_a_file_that_is_cut_is_refused_or_has_whole_figures_only(name: str, share: float, tmp_path: Path) -> None:
    whole = (FILES / name).read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(whole[: int(share * len(whole))])
    known = {
        (figure.source, figure.low) for run in read_measurements([FILES / name], FileOptions(runs=1)) for figure in run.figures
    }
    runs, message = outcome(path)
    assert bool(runs) != bool(message)
    assert "\n" not in message
    assert not runs or name.endswith((".txt", ".csv"))  # a table that ends early is a table
    assert name.endswith(".csv") or all((figure.source, figure.low) in known for run in runs for figure in run.figures)


def test_two_snapshots_are_what_lies_between() -> None:
    paths = [FILES / "metrics_before.prom", FILES / "metrics_after.prom"]
    (run,) = read_measurements(paths, FileOptions(interval=6.0))
    found = figures(run)
    assert found["ttft"] == pytest.approx((1.2 / 24, 1.2 / 24))
    assert found["tbt"] == pytest.approx((0.01, 0.01))
    assert found["ttft_p50"] == (0.04, 0.06)
    assert found["ttft_p90"] == (0.06, 0.08)
    assert found["throughput"][0] == 128.0
    assert "ttft_p99" not in found
    assert fitted(run) == {"ttft", "tbt", "throughput"}
    assert run.load is not None
    assert (run.load.requests, run.load.prompt, run.load.output, run.load.rate) == (24, 512.0, 32.0, 4.0)


def sglang_snapshot(path: Path, times: int) -> Path:
    """Counters after so many times eight requests of 512 + 32 tokens, in two series as of streamed requests and others."""
    samples = {
        "prompt_tokens_total": 4096, "generation_tokens_total": 256, "cached_tokens_total": 1024, "num_requests_total": 8,
        "time_to_first_token_seconds_sum": 0.4, "time_to_first_token_seconds_count": 8,
        "inter_token_latency_seconds_sum": 2.48, "inter_token_latency_seconds_count": 248,
        "e2e_request_latency_seconds_sum": 2.88, "e2e_request_latency_seconds_count": 8,
    }  # fmt: skip
    series = [f'sglang:{name}{{model_name="m",is_streaming="{kind}"}} ' for name in samples for kind in ("true", "false")]
    values = [times * value / 2 for value in samples.values() for _ in range(2)]
    path.write_text("\n".join(f"{name}{value}" for name, value in zip(series, values, strict=True)))
    return path


def test_snapshots_of_sglang_tell_lengths_by_totals(tmp_path: Path) -> None:
    before, after = (sglang_snapshot(tmp_path / f"{times}.prom", times) for times in (1, 4))
    (run,) = read_measurements([before, after], FileOptions(interval=6.0))
    found = figures(run)
    assert (found["ttft"][0], found["tbt"][0], found["latency"][0]) == pytest.approx((0.05, 0.01, 0.36))
    assert found["throughput"][0] == pytest.approx(3 * 256 / 6)
    assert run.source == "SGLang /metrics"
    assert run.settings == {"inference_engine": "sglang"}
    assert run.load is not None
    assert (run.load.requests, run.load.prompt, run.load.output, run.load.rate) == (24, 512.0, 32.0, 4.0)
    assert any("25% of prompt tokens" in note for note in run.notes)
    with pytest.raises(DesignError, match="a snapshot of SGLang after one of another server"):
        read_measurements([FILES / "metrics_before.prom", after], FileOptions(interval=6.0))
    after.write_text(after.read_text().replace("prompt_tokens_total", "prompt_total"))
    with pytest.raises(DesignError, match="no counter prompt_tokens_total"):
        read_measurements([after])


def test_three_snapshots_are_two_runs(tmp_path: Path) -> None:
    """The third has what the second has, and once more what lies between the first two."""
    before, after = ((FILES / f"metrics_{name}.prom").read_text().splitlines() for name in ("before", "after"))
    first = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in before if not line.startswith("#")}
    third = tmp_path / "third.prom"
    third.write_text(
        "\n".join(
            f"{name} {2 * float(value) - first.get(name, 0.0)}"
            for name, _, value in (line.rpartition(" ") for line in after if not line.startswith("#"))
        )
    )
    runs = read_measurements([FILES / "metrics_before.prom", FILES / "metrics_after.prom", third], FileOptions(interval=6.0))
    assert len(runs) == 2
    first_run, second_run = map(figures, runs)
    assert first_run.keys() == second_run.keys()
    assert np.array([*first_run.values()]) == pytest.approx(np.array([*second_run.values()]))


ODD = [
    ("nsys_kernels.csv", ",StdDev (ns),Name", ",StdDev (ns)"),
    ("trtllm_report.json", '"tp_size": 1', '"tp_size": Infinity'),
    ("genai_perf.csv", "Request Count (count)", '"Request\nCount (count)"'),
    ("torch_trace.json", '"name": "aten::mm"', '"name": ["aten::mm"]'),
]


@pytest.mark.parametrize(("name", "old", "new"), ODD)
def test_odd_values_where_nobody_looks_are_no_failure(name: str, old: str, new: str, tmp_path: Path) -> None:
    runs, message = outcome(changed(tmp_path, name, old, new))
    assert bool(runs) != bool(message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "expected a file of measurements, got nothing"),
        (["none.json"], "no file none.json"),
        ([str(SAMPLE), str(FILES / "aiperf.json")], "has rows of dse validate; such a file is fitted alone"),
        ([str(FILES / "aiperf.json"), "concurrency=0"], "name the one that was measured|concurrency"),
        ([str(FILES / "aiperf.json"), "chip=h100", "model=qwen3_1b7", "interval=-5 s"], "interval: expected a time above 0"),
    ],
)
def test_the_command_refuses_in_one_line(
    words: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["dse", "calibrate", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert re.search(hint, lines[0])


def test_one_snapshot_is_all_since_the_start_and_rates_need_a_time() -> None:
    (run,) = read_measurements([FILES / "metrics_after.prom"])
    assert any("since the server's start" in note for note in run.notes)
    assert any("no time between snapshots" in note for note in run.notes)
    with pytest.raises(DesignError, match=r"no rate of arrivals; set concurrency=N, workload\.rate or workload\.trace"):
        build_rows(run, CHIP)


def test_snapshots_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(DesignError, match="falls from one snapshot to the next"):
        read_measurements([FILES / "metrics_after.prom", FILES / "metrics_before.prom"])


def test_a_trace_with_shapes_gives_products_and_no_more_than_a_fifth_are_checks() -> None:
    (run,) = read_measurements([FILES / "torch_trace.json"])
    assert len(run.figures) == 6
    assert sum(figure.role == "check" for figure in run.figures) == 1
    longest = run.figures[0]
    assert (longest.low, longest.source) == (pytest.approx(640.25e-6), "2048x4096x14336 bf16, median of 2 (s)")
    rows, _ = build_rows(run, CHIP)
    simulated = simulate_rows(rows, ["mapping.stack.matrix_efficiency"], np.array([[0.3], [0.6]]))
    assert np.isfinite(simulated).all()
    assert simulated[0][0] > 1.5 * simulated[1][0]


def test_a_trace_may_be_packed_or_an_array_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress((FILES / "torch_trace.json").read_bytes()))
    alone = tmp_path / "array.json"
    alone.write_text(json.dumps(json.loads((FILES / "torch_trace.json").read_text())["traceEvents"]))
    whole = figures(read_measurements([FILES / "torch_trace.json"])[0])
    (run,) = read_measurements([path])
    assert figures(run) == figures(read_measurements([alone])[0]) == whole
    assert run.name == name_run(path, 1) == "trace"
    assert (name_file(path), name_file(tmp_path / "b.v2.json"), name_run(path, 2)) == ("trace", "b.v2", "trace-2")


@pytest.mark.parametrize(("name", "seconds"), [("nsys_kernels.csv", 0.2), ("key_averages.txt", 0.18)])
def test_a_summary_is_the_kernel_time_of_a_named_workload(name: str, seconds: float) -> None:
    with pytest.raises(DesignError, match=r"products 70 %|products 78%|products 70%"):
        read_measurements([FILES / name])
    (run,) = read_measurements([FILES / name], FileOptions(runs=4))
    assert figures(run) == {"latency": (pytest.approx(seconds / 4), pytest.approx(seconds / 4))}
    rows, _ = build_rows(run, (*CHIP, "stack=tuned", "inference_engine=none", "workload.batch=[4]"))
    assert rows[0].asked.called == "batch" or rows[0].metric == "latency"


def test_kernels_of_known_constants_determine_them() -> None:
    """Times of products by a stack: both rates and the start of a kernel are told apart, and nothing of the network is."""
    (run,) = read_measurements([FILES / "torch_trace.json"])
    rows, _ = build_rows(run, (*CHIP, "stack=tuned"))
    chosen, others = choose_constants(FILES, rows, rows[0].asked.question.base)
    assert {"mapping.stack.matrix_efficiency", "mapping.stack.hbm_efficiency"} <= {each.address for each in chosen}
    assert {each.address: each.reason for each in others}["mapping.stack.network_efficiency"] == "no row depends on it"
    calibration = calibrate_measurements([FILES / "torch_trace.json"], (*CHIP, "stack=tuned"))
    before, after = (
        np.median(np.abs(calibration.errors("calibration", values))) for values in (calibration.before, calibration.after)
    )
    assert after < before


def test_constants_that_move_rows_alike_are_not_fitted_together() -> None:
    slopes = np.array([[1.0, 2.0, 0.0, 0.001], [0.5, 1.0, 0.3, 0.0], [0.2, 0.4, 0.0, 0.0]])
    chosen, others = choose_determined(slopes, ["a", "b", "c", "d"])
    assert chosen == ("b", "c")
    assert [each.reason[:22] for each in others] == ["rows do not tell it fr", "rows depend on it too "]


def test_a_list_of_any_length_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    """Texts with quotes, brackets and escapes that lie across the ends of what is read at once."""
    path = tmp_path / "long.json"
    piece = json.dumps(['a "b" ]}', "c\\", [1, {"x": "y"}]])[1:-1]
    count = 4 * CHUNK_CHARS // len(piece)
    path.write_text('{"skip": [' + ", ".join([piece] * count) + '], "keep": 7}')
    import tracemalloc

    tracemalloc.start()
    with path.open() as file:
        scanner = JsonScanner(path, file)
        kept = {}
        for key in scanner.iterate_members():
            if key == "skip":
                scanner.skip_value()
            else:
                kept[key] = scanner.read_value()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert kept == {"keep": 7}
    assert path.stat().st_size > 4e6
    assert peak < 4 * CHUNK_CHARS * 4


@pytest.mark.parametrize("value", [None, math.inf, -1e300, 10**30, "1", True, [], {}])
def test_any_value_of_a_key_is_a_figure_a_note_or_one_line(value: Any, tmp_path: Path) -> None:
    for name, key in (
        ("aiperf.json", "time_to_first_token"),
        ("trtllm_report.json", "performance"),
        ("vllm_serve.json", "duration"),
    ):
        path = tmp_path / name
        path.write_text(json.dumps(json.loads((FILES / name).read_text()) | {key: value}))
        runs, message = outcome(path)
        assert bool(runs) != bool(message)
        assert "\n" not in message
