"""Benchmarks of inference engines: settings from what a page states, rows of the study, files that are refused in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from dse.space.errors import DesignError
from dse.space.parameter_counts import parameter_count
from dse.studies.engines.bench import read_bench
from dse.studies.engines.benchmark import REQUESTS, OfflineBenchmark
from dse.studies.engines.fit import FITS, rows_of_fit
from dse.studies.engines.rows import PUBLISHED, measured_rows, model_of, published_rows, simulate_rows

FILE = "bench: offline\nchip: h100\nmodel: llama3_8b\nweights: fp8\nkv: fp8\nversion: v1.0\n"


def test_published_rows_are_those_that_the_module_writes() -> None:
    assert len(PUBLISHED.read_text().splitlines()) == len(published_rows()) + 1
    assert all(row[0] in PUBLISHED.read_text() for row in published_rows())


def test_every_row_with_a_stack_is_in_a_fit() -> None:
    fitted = {row for name in FITS for row in rows_of_fit(name)}
    assert fitted == {row for row in measured_rows() if row.stack}


def test_a_decode_heavy_benchmark_has_a_smaller_token_budget() -> None:
    sizes = {lengths: OfflineBenchmark(model_of("llama3_8b"), "fp8", "fp8", *lengths, 1, 1, 80e9) for lengths in REQUESTS}
    _batch, tokens = sizes[128, 4096].batch_and_tokens
    assert tokens < sizes[2048, 128].batch_and_tokens[1]
    assert all(tokens >= lengths[0] + batch for lengths, size in sizes.items() for batch, tokens in [size.batch_and_tokens])


def test_recorded_graphs_end_at_the_largest_batch() -> None:
    size = OfflineBenchmark(model_of("llama3_70b"), "fp8", "fp8", 1024, 8192, 2, 1, 150e9)
    batch, _ = size.batch_and_tokens
    assert 128 < batch < 256
    assert size.graph_sizes("1 2 128 256 512") == f"1 2 128 {batch}"
    assert size.graph_sizes("256 512") == str(batch)


@pytest.mark.parametrize("model", ["gpt_oss_20b", "llama4_scout", "llama3_8b"])
def test_the_batch_has_room_for_all_positions_of_all_layers(model: str) -> None:
    found = model_of(model)
    size = OfflineBenchmark(found, "fp8", "fp8", 2000, 2000, 1, 1, 190e9)
    request = 4000 * 2 * found.kv_heads * found.head_dim * found.layers
    batch, _ = size.batch_and_tokens
    assert 0.8 * batch * request < 190e9 - parameter_count(found) < 1.4 * batch * request


def test_a_rate_is_that_of_the_whole_run_with_ramp_and_drain() -> None:
    row = next(row for row in measured_rows() if row.id.startswith("v1.0-h100-llama3_8b-fp8-1000-1000"))
    few, many = (simulate_rows([row], f"workload.requests={count}")[0] for count in (300, 6000))
    assert few < many


def test_lengths_that_no_page_states_need_a_count() -> None:
    with pytest.raises(DesignError, match=r"bench\.requests"):
        _ = OfflineBenchmark(model_of("llama3_8b"), "fp8", "fp8", 7, 7, 1, 1, 80e9).requests


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (FILE, "prompt"),
        (FILE + "prompt: 128\n", "output"),
        (FILE + "prompt: 128\noutput: -1\n", "output"),
        (FILE + "prompt: 128\noutput: 128\npromt: 3\n", "promt"),
        ("bench: other\nchip: h100\nmodel: llama3_8b\nprompt: 128\noutput: 128\n", "bench"),
        ("- 1\n", "expected keys"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(text)
    with pytest.raises(DesignError, match=word) as refusal:
        read_bench(path)
    assert "\n" not in str(refusal.value)


def test_the_command_prints_the_rate_and_its_overrides(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(FILE + "prompt: 1000\noutput: 1000\n")
    words = [sys.executable, "-m", "dse.studies.engines.bench", str(path)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "throughput" in run.stdout
    assert "inference_engine=trtllm_v1" in run.stdout
