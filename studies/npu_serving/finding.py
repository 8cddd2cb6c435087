"""Findings on published serving settings on one chip, at a trace's pace and at maximum rates."""

from dse.studies.designs import compose_study, metric_cells, metrics
from dse.studies.markdown_table import table

WAYS = {
    "fusion": ("mapping=npu_serving",),
    "disaggregation": ("mapping=npu_serving", "mapping.serving.prefill_cores=32"),
    "WSC-LLM": ("mapping=npu_serving_wsc_llm",),
    "WaferLLM": ("mapping=npu_serving_waferllm",),
    "T10": ("mapping=npu_serving_t10",),
}
METRICS = {"throughput": "token/s", "ttft": "s", "tbt_p99": "s", "energy_per_token": "J/token", "slo_attainment": "1"}


GROUPS = ("mapping.prefill.tp=4", "mapping.prefill.pp=4")
"""Groups of four cores in pipelines of four groups."""

AT_CAPACITY = ("workload.rate=max", "workload.arrivals=poisson", "workload.resample=true", "fidelity=steady_state")
"""The sample's lengths in other orders, at the largest rate that keeps the bounds."""


def finding() -> str:
    """One row per serving setting at the trace's pace, and at the load that it carries, in Markdown."""
    return f"{ways()}\n\nThe same at the load that each carries (steady state):\n\n{ways_at_capacity()}"


def ways_at_capacity() -> str:
    """One row per serving setting at its maximum rate, or the bound that no rate keeps."""
    names = ["max_rate", "capacity_per_mm2", "energy_per_token", "price_per_mtoken", "ttft_p90", "tbt_p99"]
    rows = []
    for name, chosen in WAYS.items():
        question = compose_study("npu_serving", *chosen, *GROUPS, *AT_CAPACITY)
        rows.append([name, *metric_cells(question.base, question.workload, names, "steady_state")])
    return table(["way", *names], rows)


def ways(*overrides: str) -> str:
    """One row per serving setting, in groups of four cores and pipelines of four groups."""
    rows = []
    for name, chosen in WAYS.items():
        (metrics_row,) = metrics("npu_serving", [{}], *chosen, *GROUPS, *overrides)
        rows.append([name, *(f"{metrics_row[metric]:.3g}" for metric in METRICS)])
    return table(["way", *(f"{name} [{unit}]" for name, unit in METRICS.items())], rows)
