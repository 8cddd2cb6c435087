"""Closed form against events by workload, and the trends of a die with a cache over batches."""

from dse.api import study_of
from evaluators import evaluate
from space.design import stacked
from studies.write import table

CASES = (
    ("C1", "decode of 1", "batch=[1]", 128, 512),
    ("C2", "decode of 16", "batch=[16]", 128, 512),
    ("C3", "decode of 64", "batch=[64]", 128, 512),
    ("C4", "a prompt of 1024", "batch=[1]", 1024, 1),
    ("C5", "a prompt of 4096", "batch=[1]", 4096, 1),
    ("C6", "16 prompts of 2048", "batch=[16]", 2048, 1),
)
"""Name, what it is, and overrides: memory decides the first three, products and messages the others."""

BATCHES = (8, 16, 32, 64)


def finding() -> str:
    """Both tables."""
    rows = []
    for name, what, batch, prompt, output in CASES:
        asked = study_of(
            "npusim_fig7",
            f"workload.{batch}",
            f"workload.prompt={prompt}",
            f"workload.output={output}",
            "chip.hbm.bandwidth=60GB/s",
        ).question
        seconds = [
            float(evaluate(stacked([asked.base]), asked.workload, fidelity=fidelity).columns["latency"][0])
            for fidelity in ("closed", "events")
        ]
        rows.append([name, what, *(f"{value:.4g}" for value in seconds), f"{seconds[0] / seconds[1] - 1:+.1%}"])
    closed = table(["", "workload", "closed [s]", "events [s]", "error of closed"], rows)
    trend = []
    for output in (128, 256):
        asked = study_of(
            "npusim_fig7", "chip=ascend910b", "mapping=tensor_parallel", "mapping.prefill.tp=1", "space=empty",
            "workload.batch=[8,16,32,64]", "workload.prompt=128", f"workload.output={output}", "verify=none", "search=none",
            "report.lines=[]",
        ).question  # fmt: skip
        found = evaluate(stacked([asked.base]), asked.workload, cases=True).cases["latency"][:, 0]
        trend.append([str(output), *(f"{value:.3g}" for value in found)])
    return f"{closed}\n\n{table(['output tokens', *(f'batch {batch} [s]' for batch in BATCHES)], trend)}"
