"""Findings on fused against disaggregated serving by lengths, micro-batch and decode bandwidth."""

from dse.studies.designs import metrics
from dse.studies.markdown_table import table

APART = {"mapping.serving.prefill_cores": 42, "mapping.serving.decode_cores": 21}
OWN = {**APART, "chip.decode.bandwidth": 480e9}
RATIOS = ((100, 1000), (100, 200), (100, 100), (500, 100), (1000, 100))
BUDGET, CHUNK = {"mapping.serving.max_batched_tokens": 36}, "mapping.both.max_chunk_tokens"
"""A budget for four decodes and one chunk, of 32 units; and tokens of a chunk."""

FEW, LANES = {"mapping.both.microbatch_size": 4, "mapping.both.max_chunk_tokens": 256}, "chip.tile.vector.lanes=2048 op/cycle"
MANY, STEADY = FEW | {"mapping.both.microbatch_size": 16}, ("workload.requests=2000", "chip.hbm.capacity=8 GB")
READINGS = {
    "as configured": (FEW, 480e9, ()),
    "one chunk of 64 an iteration": (FEW | BUDGET | {CHUNK: 64}, 480e9, ()),
    "one chunk of 128 an iteration": (FEW | BUDGET | {CHUNK: 128}, 480e9, ()),
    "that, on half as many lanes": (FEW | BUDGET | {CHUNK: 128}, 480e9, (LANES,)),
    "2000 requests in micro-batches of 16": (MANY, 480e9, STEADY),
    "30 GB/s, own decode cores 120": (FEW, 120e9, ("chip.hbm.channel_bandwidth=30 GB/s",)),
}
"""What is said of fusion, bandwidth of own decode cores, overrides."""


def finding() -> str:
    """One row per micro-batch, chunk and length ratio; then one per assumption on chunk cost."""
    rows = []
    for requests, chunk in ((4, 256), (4, 64), (8, 256)):
        knobs = {"microbatch_size": requests, "max_chunk_tokens": chunk}
        both = {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in knobs.items()}
        # prompts go whole where pipelines only prefill
        whole = both | {"mapping.prefill.max_chunk_tokens": 0}
        for prompt, output in RATIOS:
            load = (f"workload.prompt={prompt}", f"workload.output={output}")
            fused, apart, own = metrics("npusim_fig14", [both, whole | APART, whole | OWN], *load)
            pairs = ((apart, "throughput"), (own, "throughput"), (own, "throughput_per_system_mm2"), (apart, "tbt_p99"))
            ratios = (f"{fused[name] / other[name]:.2f}" for other, name in pairs)
            rows.append([str(requests), str(chunk), f"{prompt}:{output}", *ratios])
    head = ["throughput", "over own decode cores", "that per area", "TBT, 99 %"]
    return table(["micro-batch", "chunk", "prompt:output", *head], rows) + "\n\n" + _readings()


def _readings() -> str:
    """Ratios at ten prompt tokens per output token and at a tenth, under varied unstated assumptions."""
    rows = []
    for reading, (knobs, bandwidth, overrides) in READINGS.items():
        both = {address.replace("both", phase): value for address, value in knobs.items() for phase in ("prefill", "decode")}
        whole = both | {"mapping.prefill.max_chunk_tokens": 0}
        designs = [both, whole | APART, whole | OWN | {"chip.decode.bandwidth": bandwidth}]
        fused, apart, own = metrics("npusim_fig14", designs, "workload.prompt=1000", "workload.output=100", *overrides)
        short, _, other = metrics("npusim_fig14", designs, "workload.prompt=100", "workload.output=1000", *overrides)
        ratios = [
            own["throughput"] / fused["throughput"],
            *(fused[name] / apart[name] for name in ("tbt_p50", "tbt", "tbt_p99")),
        ]
        ratios.append(short["throughput_per_system_mm2"] / other["throughput_per_system_mm2"])
        rows.append([reading, *(f"{ratio:.2f}" for ratio in ratios)])
    head = ["own decode cores over fusion, 1000:100", "TBT of fusion, median", "mean", "99 %"]
    return table(["reading", *head, "fusion over own, per area, 100:1000"], rows)
