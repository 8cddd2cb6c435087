"""Findings on library kernels: errors by kind and stack, and causes of GPU GEMM times."""

import csv
from collections.abc import Sequence
from pathlib import Path

from dse.accuracy.validate import compare_file, simulate_metric
from dse.studies.gpu_measured.measured import RESULTS, SAMPLE
from dse.studies.markdown_table import table

GEMM = "workload=gemm mapping=tensor_parallel mapping.decode.tp=1"
FORMATS = {"bf16": ("bf16", "bf16"), "fp8": ("fp8", "fp8"), "block fp8": ("fp8_128x128", "fp8_1x128")}

WEIGHTS = ((1024, 1024, 0.5), (4096, 4096, 2.0), (8192, 8192, 2.7), (65536, 8192, 2.8))
"""n and k of 16 bits, and TB/s that an H100 reads them with at one row, measured ([aiconfigurator2025], given rows)."""

GAIN = {"bf16": 16.6, "fp8": 18.5, "block fp8": 11.7}
"""Microseconds of 1 x 4096 x 4096 on an H100, measured."""

SHAPES = (1, 64, 128, 256, 1024, 4096, 16384)


def finding() -> str:
    """Tables of errors, bandwidth by weight, rows and formats, an unfitted device, and the sample."""
    return "\n\n".join(
        [
            "Errors of seconds, simulated / measured - 1 without its sign, in %: median / 90 % / worst. Fitted rows; the same "
            "rows by numbers that were fitted without them, five times a fifth; and checks, every fifth row, which nothing is "
            "fitted on.",
            table(
                ["kind", "stack", "chip", "rows", "numbers", "fitted", "held out", "checks"], _errors(RESULTS)
            ),
            "An H100 at one row: bandwidth grows with the weight.",
            table(
                ["weights", "measured", "simulated"],
                [
                    [f"{2 * n * k / 1e6:.0f} MB", f"{rate} TB/s", f"{2 * n * k / _gemm('h100', 1, k, n) / 1e12:.2f} TB/s"]
                    for n, k, rate in WEIGHTS
                ],
            ),
            "8192 x 8192 by rows, microseconds; H200 is an H100 with more bandwidth and memory, by the same stack.",
            table(
                ["rows", *(str(m) for m in SHAPES)],
                [_by_rows(chip, name) for chip in ("h100", "h200") for name in FORMATS],
            ),
            "1 x 4096 x 4096 on an H100: fp8 pays for quantising.",
            table(
                ["format", "measured", "simulated"],
                [[name, f"{us} us", f"{_gemm('h100', 1, 4096, 4096, name) * 1e6:.1f} us"] for name, us in GAIN.items()],
            ),
            "Rows that ship, as `dse validate` compares them.",
            table(["row", "what", "measured", "simulated", "error", "role"], _sample(SAMPLE)),
        ]
    )  # fmt: skip


def _errors(path: Path) -> list[list[str]]:
    sets_by_part: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            sets_by_part.setdefault((row["kind"], row["stack"]), {})[row["of"]] = row
    lines = []
    for (kind, stack), sets in sets_by_part.items():
        rows = sum(int(sets[name]["rows"]) for name in ("fitted", "checks"))
        spreads = (
            _spread([float(sets[name][statistic]) for statistic in ("median", "p90", "worst")])
            for name in ("fitted", "held out", "checks")
        )
        lines.append([kind, stack, sets["fitted"]["chip"], str(rows), sets["fitted"]["numbers"], *spreads])
    return lines


def _spread(errors: Sequence[float]) -> str:
    return " / ".join(f"{100 * error:.1f}" for error in errors)


def _gemm(chip: str, m: int, k: int, n: int, name: str = "bf16") -> float:
    weights, activations = FORMATS[name]
    formats = f"mapping.precision.weights={weights} mapping.precision.activations={activations}"
    words = f"chip={chip} stack=trtllm_h100 {GEMM} {formats} workload.shapes=[{m}x{k}x{n}]"
    gemm = simulate_metric(tuple(words.split()), "latency")
    assert gemm is not None
    return gemm


def _by_rows(chip: str, name: str) -> list[str]:
    return [f"{chip}, {name}", *(f"{_gemm(chip, m, 8192, 8192, name) * 1e6:.1f}" for m in SHAPES)]


def _sample(path: Path) -> list[list[str]]:
    sample = []
    for row in compare_file(path):
        seconds = 0.0 if row.simulated is None else row.simulated
        error = "" if row.error is None else f"{row.error:+.1%}"
        sample.append(
            [
                row.id,
                row.note.partition(";")[0],
                f"{float(row.published) * 1e6:.4g} us",
                f"{seconds * 1e6:.4g} us",
                error,
                row.role,
            ]
        )
    return sample
