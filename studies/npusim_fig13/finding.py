"""End-to-end latency by stages, memory and prompt, of the study's load and of one request."""

from studies.designs import metrics
from studies.write import table

STAGES = (32, 18, 12)
SRAM = (16, 32, 48)


def finding() -> str:
    """One row a load, prompt and memory."""
    designs = [
        {"chip.tile.sram": size * 1e6, "mapping.prefill.pp": stages, "mapping.decode.pp": stages}
        for size in SRAM
        for stages in STAGES
    ]
    rows = []
    for requests in (500, 1):
        for prompt in (100, 1000):
            found = metrics("npusim_fig13", designs, f"workload.requests={requests}", f"workload.prompt={prompt}")
            for place, size in enumerate(SRAM):
                values = [one["latency"] for one in found[3 * place : 3 * place + 3]]
                ratios = [f"{value / values[0]:.2f}" for value in values[1:]]
                rows.append([str(requests), str(prompt), str(size), *(f"{value:.3g}" for value in values), *ratios])
    head = [
        "requests at once",
        "prompt",
        "SRAM [MB]",
        *(f"{stages} stages [s]" for stages in STAGES),
        "18 over 32",
        "12 over 32",
    ]
    return table(head, rows)
