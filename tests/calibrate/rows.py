"""Rows as if they were measured: simulated by a known chip, with noise. No machine was measured.

``python -m tests.calibrate.rows`` writes ``measured.csv`` again.
"""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dse.accuracy.validate import COLUMNS, simulate_metric

SAMPLE = Path(__file__).with_name("measured.csv")
CHIP = ("chip=a100", "stack=tuned", "inference_engine=none")
TRUTH = {
    "mapping.stack.operator_launch": 7e-6,
    "mapping.stack.hbm_efficiency": 0.7,
    "mapping.stack.matrix_efficiency": 0.6,
}
UNITS = {"mapping.stack.operator_launch": " s"}
SHAPES = [(m, k) for m in (1, 16, 256, 2048, 8192) for k in (512, 2048, 8192)]


def rows(truth: Mapping[str, float], noise: float, seed: int) -> str:
    """Products and steps of a model, as text of a file; every fifth row is a check."""
    random = np.random.default_rng(seed)
    known = [
        f"{address}='{value}{UNITS[address]}'" if address in UNITS else f"{address}={value}" for address, value in truth.items()
    ]
    questions = [
        (f"mapping=tensor_parallel workload=gemm workload.shapes=[{m}x{k}x{k}]", "latency", "s", 1.0) for m, k in SHAPES
    ]
    few = "mapping=tensor_parallel model=qwen3_1b7 workload.prompt=512 workload.output=16 workload.batch"
    questions += [(f"{few}=[{batch}]", name, "ms", 1e3) for batch in (1, 16) for name in ("ttft", "tpot")]
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for number, (overrides, name, unit, scale) in enumerate(questions):
        value = (simulate_metric((*CHIP, *overrides.split(), *known), name, strict=False) or 0.0) * scale
        text = f"{value * np.exp(noise * random.standard_normal()):.5g}"
        role = "check" if number % 5 == 4 else "calibration"
        table.writerow((f"r{number}", "simulated with noise", overrides, "", name, text, unit, role, "not measured"))
    return file.getvalue()


if __name__ == "__main__":
    SAMPLE.write_text(rows(TRUTH, 0.03, 1))
