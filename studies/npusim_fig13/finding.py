"""End-to-end latency by stages, memory and prompt, of the study's load and of one request; and what cutting layers brings."""

from dse.studies.designs import metrics
from dse.studies.write import table

STAGES = (32, 18, 12)
SRAM = (16, 32, 48)
PHASES = ("prefill", "decode")
HEAD = [*(f"{stages} stages [s]" for stages in STAGES), "18 over 32", "12 over 32"]

WAYS = (("layers", "fp16", 0.5), ("parts", "fp16", 0.5), ("parts", "fp16", 0.0), ("parts", "int8", 0.5), ("parts", "int8", 0.0))


def finding() -> str:
    """One row a load, prompt and memory; then one row a way to cut, a format of weights and a share of memory for caches."""
    rows = []
    for requests in (500, 1):
        for prompt in (100, 1000):
            load = (f"workload.requests={requests}", f"workload.prompt={prompt}")
            rows += [[str(requests), str(prompt), str(size), *_latencies(size, "parts", *load)] for size in SRAM]
    cuts = []
    for stages, weights, caches in WAYS:
        for size in (SRAM[0], SRAM[-1]):
            found = _latencies(size, stages, f"mapping.precision.weights={weights}", f"mapping.sram_kv={caches}")
            cuts.append([stages, weights, f"{caches:g}", str(size), *found])
    first = table(["requests at once", "prompt", "SRAM [MB]", *HEAD], rows)
    return first + "\n\n" + table(["stages have", "weights", "caches' share", "SRAM [MB]", *HEAD], cuts)


def _latencies(size: int, stages: str, *overrides: str) -> list[str]:
    """By stages; and those of fewer stages over those of the most."""
    designs = [
        {"chip.tile.sram": size * 1e6}
        | {f"mapping.{p}.pp": pp for p in PHASES}
        | {f"mapping.{p}.stages": stages for p in PHASES}
        for pp in STAGES
    ]
    values = [one["latency"] for one in metrics("npusim_fig13", designs, *overrides)]
    return [*(f"{value:.3g}" for value in values), *(f"{value / values[0]:.2f}" for value in values[1:])]
