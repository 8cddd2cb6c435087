"""Findings on decode cores: throughput, density and TBT by array and HBM, relative to the base chip."""

from collections.abc import Sequence

from dse.studies.designs import metrics
from dse.studies.markdown_table import table

KINDS = [(side, bandwidth) for side in (64, 32) for bandwidth in (30, 60, 120, 240, 480)]
READINGS = {
    "100 + 100 tokens, 500 requests, micro-batches of 4, as in figure 11": (
        *("workload.prompt=100", "workload.requests=500", "mapping.prefill.microbatch_size=4"),
    ),
    "arrays only, each weight tile filled and drained": ("chip.tile.gemm_engine=matrix",),
    "one 16-bit weight a cycle and row of an array": ("chip.tile.sram_per_row=2 B/cycle",),
}
"""Possible bottlenecks besides HBM: prompts, or the bandwidth of weights to the engines."""


def finding() -> str:
    """One row per kind of decode cores; then one per assumption on the bottleneck."""
    alike, *rest = _over(KINDS)
    shown = ("throughput", "throughput_per_system_mm2", "tbt_p50")
    rows = [
        [f"A{side}H{bandwidth}", *(f"{metrics[metric] / alike[metric]:.2f}" for metric in shown)]
        for (side, bandwidth), metrics in zip(KINDS, rest, strict=True)
    ]
    first = table(["decode cores", "throughput", "throughput / area", "TBT, median"], rows)
    kinds = [(64, 120), (64, 480), (32, 60)]
    rows = []
    for reading, overrides in READINGS.items():
        alike, *rest = _over(kinds, *overrides)
        rows.append([reading, *(f"{metrics['throughput'] / alike['throughput']:.2f}" for metrics in rest)])
    return first + "\n\n" + table(["throughput", *(f"A{side}H{bandwidth}" for side, bandwidth in kinds)], rows)


def _over(kinds: Sequence[tuple[int, int]], *overrides: str) -> list[dict[str, float]]:
    """Metrics of the homogeneous chip, and of each kind of decode cores: side of the array, GB/s."""
    own = [
        {"chip.decode.rows": side, "chip.decode.cols": side, "chip.decode.bandwidth": bandwidth * 1e9}
        for side, bandwidth in kinds
    ]
    return metrics("npusim_fig12", [{}, *own], *overrides)
