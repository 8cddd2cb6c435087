"""Fusion over disaggregation by prompt and output tokens and by micro-batch; and over decode cores with more HBM bandwidth."""

from dse.studies.designs import metrics
from dse.studies.write import table

APART = {"mapping.serving.prefill_cores": 42, "mapping.serving.decode_cores": 21}
OWN = {**APART, "chip.decode.bandwidth": 480e9}
RATIOS = ((100, 1000), (100, 200), (100, 100), (500, 100), (1000, 100))


def finding() -> str:
    """One row a micro-batch, length of chunks and ratio of lengths."""
    rows = []
    for requests, chunk in ((4, 256), (4, 64), (8, 256)):
        knobs = {"microbatch": requests, "chunk": chunk}
        both = {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in knobs.items()}
        # prompts go whole where pipelines only prefill
        whole = both | {"mapping.prefill.chunk": 0}
        for prompt, output in RATIOS:
            load = (f"workload.prompt={prompt}", f"workload.output={output}")
            fused, apart, own = metrics("npusim_fig14", [both, whole | APART, whole | OWN], *load)
            pairs = ((apart, "throughput"), (own, "throughput"), (own, "throughput_per_system_mm2"), (apart, "tbt_p99"))
            ratios = (f"{fused[name] / other[name]:.2f}" for other, name in pairs)
            rows.append([str(requests), str(chunk), f"{prompt}:{output}", *ratios])
    head = ["throughput", "over own decode cores", "that per area", "TBT, 99 %"]
    return table(["micro-batch", "chunk", "prompt:output", *head], rows)
