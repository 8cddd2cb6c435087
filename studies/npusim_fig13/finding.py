"""Findings on pipeline stages: latency by stages, memory and prompt, and gains of cutting layers."""

from dse.studies.designs import metrics
from dse.studies.markdown_table import table

STAGES = (32, 18, 12)
SRAM = (16, 32, 48)
PHASES = ("prefill", "decode")
HEAD = [*(f"{stages} stages [s]" for stages in STAGES), "18 over 32", "12 over 32"]

LEAST = 15
"""GB/s of HBM a core, the least of table 3; npu256 has the most, 60."""
WAYS = (
    ("layers", "fp16", 0.5, 60), ("operators", "fp16", 0.5, 60), ("operators", "fp16", 0.0, 60), ("operators", "int8", 0.5, 60),
    ("operators", "int8", 0.0, 60), ("operators", "int8", 0.0, LEAST), ("operators", "int4_g128", 0.0, LEAST),
)  # fmt: skip


def finding() -> str:
    """One row per load, prompt and memory; then one per cut, format, cache share and bandwidth."""
    rows = []
    for requests in (500, 1):
        for prompt in (100, 1000):
            load = (f"workload.requests={requests}", f"workload.prompt={prompt}")
            rows += [[str(requests), str(prompt), str(size), *_latencies(size, "operators", *load)] for size in SRAM]
    cuts = []
    for stages, weights, caches, bandwidth in WAYS:
        words = (f"mapping.precision.weights={weights}", f"mapping.sram_kv_share={caches}")
        words += (f"chip.hbm.channel_bandwidth={bandwidth} GB/s",)
        for size in (SRAM[0], SRAM[-1]) if bandwidth != LEAST else SRAM:
            cuts.append([stages, weights, f"{caches:g}", str(bandwidth), str(size), *_latencies(size, stages, *words)])
    first = table(["requests at once", "prompt", "SRAM [MB]", *HEAD], rows)
    return first + "\n\n" + table(["stages have", "weights", "caches' share", "HBM [GB/s]", "SRAM [MB]", *HEAD], cuts)


def _latencies(size: int, stages: str, *overrides: str) -> list[str]:
    """By stages; and those of fewer stages over those of the most."""
    designs = [
        {"chip.tile.sram": size * 1e6}
        | {f"mapping.{p}.pp": pp for p in PHASES}
        | {f"mapping.{p}.stages": stages for p in PHASES}
        for pp in STAGES
    ]
    values = [metric["latency"] for metric in metrics("npusim_fig13", designs, *overrides)]
    return [*(f"{value:.3g}" for value in values), *(f"{value / values[0]:.2f}" for value in values[1:])]
