"""Results of benchmark clients: figures, units and loads as the files have them; what cannot be used is named or refused.

Files are written by hand in the published keys; no machine was measured.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.accuracy.calibrate import simulate_rows
from dse.accuracy.engine_calibration import calibrate_measurements, choose_constants
from dse.accuracy.measurements.measured_questions import build_rows
from dse.accuracy.measurements.measured_run import MeasuredRun
from dse.accuracy.measurements.measurement_files import is_row_file, read_measurements
from dse.space.errors import DesignError
from tests.calibrate.rows import SAMPLE

FILES = Path(__file__).parent / "files"
VLLM, SGLANG = FILES / "vllm_serve.json", FILES / "sglang_serving.jsonl"
CHIP = ("chip=h100", "model=qwen3_1b7")


def result(**changes: Any) -> dict[str, Any]:
    """The vLLM sample with other values; None takes a key away."""
    values = json.loads(VLLM.read_text()) | changes
    return {key: value for key, value in values.items() if value is not None}


def read(tmp_path: Path, *results: dict[str, Any]) -> list[MeasuredRun]:
    path = tmp_path / "result.json"
    path.write_text("\n".join(map(json.dumps, results)))
    return read_measurements([path])


def test_times_are_in_seconds_and_tails_are_checks() -> None:
    (run,) = read_measurements([VLLM])
    figures = {figure.metric: figure for figure in run.figures}
    assert (figures["ttft"].low, figures["tpot"].low, figures["latency_p99"].low) == (0.06, 0.0105, 0.402)
    assert {name for name, figure in figures.items() if figure.role == "calibration"} == {"ttft", "tpot", "throughput"}
    assert (run.source, run.model) == ("vllm bench serve", "example/small-8b")
    assert any("median_tpot_ms" in note for note in run.notes)


def test_lines_are_runs_with_their_own_loads() -> None:
    first, second = read_measurements([SGLANG])
    assert first.source == second.source == "sglang.bench_serving"
    assert first.settings == {"inference_engine": "sglang", "mapping.both.tp": "2"}
    assert first.load is not None
    assert (first.load.rate, first.load.concurrency, first.load.prompt) == (4.0, None, 512.0)
    assert second.load is not None
    assert (second.load.rate, second.load.concurrency) == (math.inf, 8)
    assert second.load.prompts is not None
    assert second.load.prompts[:2].tolist() == [500, 524]


def test_zero_and_nan_are_named_and_a_run_without_tokens_times_fits_its_latency() -> None:
    run = read_measurements([SGLANG])[1]
    assert {"mean_ttft_ms is 0, as where nothing was measured: not used", "mean_tpot_ms is nan: not used"} <= set(run.notes)
    assert {figure.metric for figure in run.figures if figure.role == "calibration"} == {"throughput", "latency"}


def test_a_closed_loop_has_the_lengths_that_were_sent() -> None:
    run = read_measurements([SGLANG])[1]
    rows, _ = build_rows(run, CHIP)
    requests = rows[0].asked.question.workload.cases[0].requests
    assert requests.users == 8
    assert sorted(requests.prompt.tolist()) == sorted([500, 524, 512, 512] * 6)
    assert rows[0].asked.question.base.mapping.decode.tp == 2


def test_typed_settings_go_before_those_of_the_file() -> None:
    run = read_measurements([SGLANG])[0]
    rows, _ = build_rows(run, (*CHIP, "mapping.both.tp=1", "workload.prompt=100", "workload.requests=5"))
    requests = rows[0].asked.question.workload.cases[0].requests
    assert (requests.prompt.tolist(), rows[0].asked.question.base.mapping.decode.tp) == ([100] * 5, 1)


def test_bursts_have_the_spread_of_the_clients_gamma_process(tmp_path: Path) -> None:
    (run,) = read(tmp_path, result(request_rate=5.0, burstiness=0.25, max_concurrency=None))
    assert run.load is not None
    assert run.load.cv == 2.0
    rows, _ = build_rows(run, CHIP)
    assert rows[0].asked.question.workload.cases[0].requests.arrival.max() > 1


def test_start_times_are_replayed(tmp_path: Path) -> None:
    lists = {"input_lens": [10, 20, 30], "output_lens": [1, 2, 3], "start_times": [7.5, 7.0, 9.0]}
    values = result(completed=3, num_prompts=3, total_input_tokens=60, total_output_tokens=6, **lists)
    rows, _ = build_rows(read(tmp_path, values)[0], CHIP)
    requests = rows[0].asked.question.workload.cases[0].requests
    assert (requests.arrival.tolist(), requests.prompt.tolist()) == ([0.0, 0.5, 2.0], [20, 10, 30])


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"mean_ttft_ms": -1.0}, "mean_ttft_ms: expected 0 or more, got -1"),
        ({"mean_ttft_ms": "fast"}, "mean_ttft_ms: expected a number, got 'fast'"),
        ({"mean_ttft_ms": True}, "mean_ttft_ms: expected a number, got 'True'"),
        ({"completed": 0}, "completed: no request was completed"),
        ({"completed": 2.5}, "completed: expected a whole number of 0 or more, got 2.5"),
        ({"failed": 12}, "12 of 36 requests failed"),
        ({"total_output_tokens": 0}, "total_output_tokens: expected a whole number of 1 or more, got 0"),
        ({"total_input_tokens": 1e12}, "total_input_tokens: 4.16667e+10 tokens a request; expected at most 2,147,483,647"),
        ({"ramp_up_strategy": "linear"}, "ramp_up_strategy: a rising rate"),
        ({"input_lens": [1, 2], "output_lens": [1, 2]}, "input_lens: expected an entry for each of 24 requests, got 2"),
        ({"input_lens": [1, "x"], "output_lens": [1, 2]}, "input_lens: entry 2: 'x' is no number"),
        ({"input_lens": [10**400], "output_lens": [1]}, "input_lens: entry 1"),
        ({"input_lens": [1, 2, 3]}, "input_lens: expected an entry for each of 24 requests, got 3"),
        ({"start_times": [0.0]}, "start_times: expected an entry for each of 24 requests, got 1"),
        ({"completed": 10}, "num_prompts: completed 10 and failed 0 of 24 requests; 14 are neither"),
        ({"num_prompts": 10}, "num_prompts: completed 24 and failed 0 of 10 requests; the file contradicts itself"),
        ({"num_prompts": -1}, "num_prompts: expected 0 or more, got -1"),
        ({"num_prompts": 0}, "num_prompts: expected a whole number of 1 or more, got 0"),
        ({"duration": 0}, "duration: expected a time above 0, got 0"),
        ({"request_rate": 0}, "request_rate: expected a rate above 0, or inf, got '0'"),
        ({"request_rate": "abc"}, "request_rate: expected a rate above 0, or inf, got 'abc'"),
        ({"burstiness": 0}, "burstiness: expected a number above 0, got 0"),
        ({"completed": None}, "no keys of a known format"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], hint: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as error:
        read(tmp_path, result(**changes))
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_few_failures_are_named(tmp_path: Path) -> None:
    (run,) = read(tmp_path, result(failed=1, num_prompts=25))
    assert "1 of 25 requests failed; figures are of the others" in run.notes


def test_requests_of_which_a_file_says_nothing_are_named(tmp_path: Path) -> None:
    (run,) = read(tmp_path, result(num_prompts=25))
    assert "1 of num_prompts 25 are neither completed nor failed: not simulated" in run.notes


def test_a_list_that_lacks_its_other_is_named(tmp_path: Path) -> None:
    (run,) = read(tmp_path, result(input_lens=[512] * 24))
    assert "lengths of single requests: no output_lens in the file: all requests have the mean lengths" in run.notes


def test_times_of_a_trace_are_no_rate(tmp_path: Path) -> None:
    """SGLang's client writes the word where it replays a trace."""
    (run,) = read(tmp_path, result(request_rate="trace"))
    assert run.load is not None
    assert run.load.rate is None
    assert any("arrivals are not known" in note for note in run.notes)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"", "empty"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"\x1f\x8b\x08broken", "cannot be read"),
        (b'{"completed": 2', "not JSON, or cut off|cut off"),
        (VLLM.read_bytes()[:300], "cut off"),
        (b"[1, 2]", "no known format"),
        (VLLM.read_bytes().replace(b'"failed"', b'"duration": 3.5, "failed"'), "duration stands twice in an object"),
        (b"[{}]", "an array without kernels"),
        (b'{"a": ' + b"[" * 100_000, "cut off"),
        (b"hello", "no known format"),
    ],
)
def test_files_that_are_no_results_are_refused_in_one_line(content: bytes, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(DesignError, match=hint) as error:
        read_measurements([path])
    assert "\n" not in str(error.value)


def test_rows_of_validate_are_known_by_their_header() -> None:
    assert is_row_file(SAMPLE)
    assert not is_row_file(VLLM)


@pytest.mark.parametrize(
    ("words", "hint"),
    [((), "as in chip=h100"), (("chip=h100",), "the file names 'example/small-8b'; name the model")],
)
def test_chip_and_model_are_never_guessed(words: tuple[str, ...], hint: str) -> None:
    with pytest.raises(DesignError, match=hint):
        calibrate_measurements([VLLM], words)


def test_a_run_is_simulated_once_for_all_its_metrics() -> None:
    (run,) = read_measurements([VLLM])
    rows, _ = build_rows(run, CHIP)
    simulated = simulate_rows(rows, ["mapping.stack.hbm_efficiency"], np.array([[0.4], [0.8]]))
    by_metric = dict(zip((row.metric for row in rows), simulated.T, strict=True))
    assert np.isfinite(simulated).all()
    assert by_metric["tpot"][0] > by_metric["tpot"][1]
    # four users of equal requests: each waits for its own tokens
    assert by_metric["latency"] == pytest.approx(by_metric["ttft"] + 31 * by_metric["tpot"], rel=1e-6)


@pytest.mark.slow
def test_known_constants_come_back_and_others_are_named(tmp_path: Path) -> None:
    """Results that a known stack makes; matrix rate and memory rate are told apart by two loads."""
    truth = {"mapping.stack.matrix_efficiency": 0.5, "mapping.stack.hbm_efficiency": 0.6}
    paths = []
    for users, prompt in ((2, 256), (12, 1024)):
        sent = result(max_concurrency=users, total_input_tokens=24 * prompt)
        rows, _ = build_rows(read(tmp_path, sent)[0], CHIP)
        values = simulate_rows(rows, list(truth), np.array([list(truth.values())]))[0]
        made = {row.id.partition(": ")[2].partition(" (")[0]: value for row, value in zip(rows, values, strict=True)}
        paths.append(tmp_path / f"users{users}.json")
        paths[-1].write_text(
            json.dumps(sent | {key: value * (1e3 if key.endswith("_ms") else 1) for key, value in made.items()})
        )
    fit = f"fit=[{','.join(truth)}]"
    calibration = calibrate_measurements(paths, (*CHIP, fit))
    assert calibration.fitted.values == pytest.approx(list(truth.values()), rel=0.02)
    fitted = [row for row in calibration.rows if row.role == "calibration"]
    chosen, others = choose_constants(tmp_path, fitted, fitted[0].asked.question.base)
    assert 1 <= len(chosen) <= 5
    assert {each.address: each.reason for each in others}["mapping.stack.moe.imbalance"] == "no row depends on it"


@pytest.mark.slow
def test_a_constant_comes_back_from_a_load_at_a_rate(tmp_path: Path) -> None:
    """A schedule of requests at a rate has steps, between which a descent from the present value ends."""
    sent = result(request_rate=20.0, max_concurrency=None, total_input_tokens=24 * 512)
    rows, _ = build_rows(read(tmp_path, sent)[0], CHIP)
    address = "mapping.stack.hbm_efficiency"
    values = simulate_rows(rows, [address], np.array([[0.6]]))[0]
    made = {row.id.partition(": ")[2].partition(" (")[0]: value for row, value in zip(rows, values, strict=True)}
    path = tmp_path / "made.json"
    path.write_text(json.dumps(sent | {key: value * (1e3 if key.endswith("_ms") else 1) for key, value in made.items()}))
    assert calibrate_measurements([path], (*CHIP, f"fit=[{address}]")).fitted.values == pytest.approx([0.6], rel=1e-4)
