"""Findings on analytical against event-driven times by workload, and trends of a shared-cache die."""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.studies.markdown_table import table

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
    """Both tables of the study's findings, in Markdown."""
    rows = []
    for name, what, batch, prompt, output in CASES:
        fixed = (
            f"workload.{batch}",
            f"workload.prompt={prompt}",
            f"workload.output={output}",
            "chip.hbm.channel_bandwidth=60GB/s",
        )
        closed, events, peak = (
            _latency(*fixed, *more, fidelity=fidelity)
            for fidelity, *more in (("analytical",), ("events",), ("analytical", "chip.hbm.stream_efficiency=1"))
        )
        errors = (f"{seconds / events - 1:+.1%}" for seconds in (closed, peak))
        rows.append([name, what, f"{closed:.4g}", f"{events:.4g}", *errors])
    head = ["", "workload", "closed [s]", "events [s]", "error of closed", "of closed at the peak bandwidth"]
    trend = []
    for output in (128, 256):
        question = find_study(
            "npusim_fig7", "chip=ascend910b", "stack=cann_yuzuguler2025", "mapping=tensor_parallel", "mapping.prefill.tp=1",
            "space=empty", "workload.batch=[8,16,32,64]", "workload.prompt=128", f"workload.output={output}", "verify=none",
            "search=none", "report.lines=[]",
        ).question  # fmt: skip
        latencies = evaluate(stack_designs([question.base]), question.workload, cases=True).cases["latency"][:, 0]
        trend.append([str(output), *(f"{value:.3g}" for value in latencies)])
    return f"{table(head, rows)}\n\n{table(['output tokens', *(f'batch {batch} [s]' for batch in BATCHES)], trend)}"


def _latency(*overrides: str, fidelity: str) -> float:
    question = find_study("npusim_fig7", *overrides).question
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])
