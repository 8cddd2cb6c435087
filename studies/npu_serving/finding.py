"""Findings on published serving settings on one chip, with the study's sample trace."""

from dse.studies.designs import metrics
from dse.studies.markdown_table import table

WAYS = {
    "fusion": ("mapping=npu_serving",),
    "disaggregation": ("mapping=npu_serving", "mapping.serving.prefill_cores=32"),
    "WSC-LLM": ("mapping=npu_serving_wsc_llm",),
    "WaferLLM": ("mapping=npu_serving_waferllm",),
    "T10": ("mapping=npu_serving_t10",),
}
METRICS = {"throughput": "token/s", "ttft": "s", "tbt_p99": "s", "energy_per_token": "J/token", "slo_attainment": "1"}


def finding() -> str:
    """One row per serving setting, in Markdown."""
    return ways()


def ways(*overrides: str) -> str:
    """One row per serving setting, in groups of four cores and pipelines of four groups."""
    rows = []
    for name, chosen in WAYS.items():
        (metrics_row,) = metrics("npu_serving", [{}], *chosen, "mapping.prefill.tp=4", "mapping.prefill.pp=4", *overrides)
        rows.append([name, *(f"{metrics_row[metric]:.3g}" for metric in METRICS)])
    return table(["way", *(f"{name} [{unit}]" for name, unit in METRICS.items())], rows)
