"""Fusion over disaggregation by prompt and output tokens, with two lengths of chunks; and with decode cores of their own."""

from studies.designs import metrics
from studies.write import table

APART = {"mapping.serving.prefill_cores": 40}
OWN = {**APART, "chip.decode.bandwidth": 480e9, "chip.decode.rows": 64, "chip.decode.cols": 64}


def finding() -> str:
    """One row a ratio of lengths."""
    four, eight = ({f"mapping.{phase}.microbatch": n for phase in ("prefill", "decode")} for n in (4, 8))
    short = {f"mapping.{phase}.chunk": 64 for phase in ("prefill", "decode")}
    designs = [four, four | short, four | APART, eight, eight | short, eight | APART, eight | OWN]
    rows = []
    for prompt, output in ((100, 1000), (100, 200), (100, 100), (500, 100), (1000, 100), (2000, 100)):
        found = metrics("npusim_fig14", designs, f"workload.prompt={prompt}", f"workload.output={output}")
        a, a_short, a_apart, b, b_short, b_apart, b_own = (one["throughput"] for one in found)
        ratios = (a / a_apart, a_short / a_apart, b / b_apart, b_short / b_apart, b / b_own)
        tails = found[3]["tbt_p99"] / found[5]["tbt_p99"]
        rows.append([f"{prompt}:{output}", *(f"{ratio:.2f}" for ratio in (*ratios, tails))])
    head = ["prompt:output", "micro-batch 4", "chunk 64", "micro-batch 8", "chunk 64", "own decode cores", "TBT, 99 %"]
    return table(head, rows)
