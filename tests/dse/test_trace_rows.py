"""Rows of a trace that a rule passes over are counted wherever the load is answered for."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

ROWS = "arrival,prompt,output\n" + "".join(f"{place / 2},{4000 + place},{place % 4}\n" for place in range(400))
SKIPPED = 100


@pytest.fixture
def overrides(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "trace.csv").write_text(ROWS)
    return (
        "chip=h200", "model=qwen3_1b7", f"workload.trace={tmp_path / 'trace.csv'}", "workload.skip=zero_output",
        "workload.arrivals=trace", "workload.requests=null",
    )  # fmt: skip


def test_an_evaluation_counts_them(overrides: tuple[str, ...], typed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = typed("evaluate", "--json", *overrides, "workload=serving")
    assert code == 0
    (case,) = json.loads(out)["cases"]
    assert case["rows_skipped"] == SKIPPED
    _, out, _ = typed("evaluate", "--json", "chip=h200", "model=qwen3_1b7")
    assert all("rows_skipped" not in case for case in json.loads(out)["cases"])


def test_a_capacity_counts_them(overrides: tuple[str, ...], tmp_path: Path, typed: Callable[..., tuple[int, str, str]]) -> None:
    words = (*overrides, "devices=1", "workload.ttft=500 ms", "workload.tpot=50 ms", "--out", str(tmp_path / "page.html"))
    code, out, err = typed("capacity", "--json", *words)
    assert code == 0, err
    (chip,) = json.loads(out)["chips"]
    assert (chip["requests"]["count"], chip["requests"]["rows_skipped"]) == (300, SKIPPED)
    code, out, _ = typed("capacity", "--full", *words)
    assert code == 0
    assert "300 requests (100 rows skipped)" in out
