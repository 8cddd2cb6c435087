"""Metrics that only some workloads have, and the refusal of studies that want them of others."""

from collections.abc import Iterable

from dse.config.arrival_times import MAX_RATE_OPTION
from dse.config.metric_expressions import DefinedMetrics, input_metrics
from dse.evaluators.accounting.metrics import METRICS
from dse.space.compatibility import case_type_name
from dse.space.errors import DesignError
from dse.space.workload import BatchCase, ServingLoad, Workload, WorkloadCase

BATCHES = "static batches"

MAX_RATE_METRICS = frozenset({"max_rate", "max_rate_limit", "fleet_systems"})
"""Metrics of served requests at their maximum rate; so are those that are computed from them."""

SERVED_METRICS = frozenset(
    {
        *("ttft_p50", "ttft_p90", "ttft_p99", "tbt", "tbt_p50", "tbt_p90", "tbt_p99", "latency_p50", "latency_p90"),
        *("latency_p99", "queue_delay", "request_throughput", "goodput", "slo_attainment", "load_status", "offered_load"),
        *("queue_growth", "prefill_busy_share", "decode_busy_share", "blocked_by_batch_share", "blocked_by_kv_share"),
        *("kv_utilisation_mean", "kv_utilisation_peak", "kv_spilled_share", "preemptions", "recomputed_share"),
        *("prefix_hit_rate", "prefix_host_hit_rate", "tokens_per_step", "iteration_time_error", "kv_pool_bytes"),
        *("kv_pool_requests", "longest_context"),
    }
)
"""Metrics of served requests, at any rate."""

BATCH_METRICS = frozenset(
    {
        *("decode_throughput", "decode_throughput_per_chip", "decode_throughput_per_die_mm2", "relayout_time"),
        *("decode_throughput_per_system_mm2", "prefill_throughput", "tokens_per_s_per_user"),
        *("prefill_rated_energy_per_token", "decode_rated_energy_per_token", "attention_layer_bytes", "ffn_layer_bytes"),
    }
)
"""Metrics of static batches."""


def refuse_foreign_metrics(group: str, names: Iterable[str], defined: DefinedMetrics, workload: Workload) -> None:
    """Refuse metrics that no design has under a workload, and say what to write.

    Args:
        group: address of the names: objectives or constraints.
        names: of metrics, derived ones among them.
        defined: metrics that the study derives from others.
        workload: of the study.

    Raises:
        DesignError: naming the metric, the workload that has it, the study's workload, and the override.
    """
    for name in names:
        for metric in input_metrics([name], defined):
            if obstacle := _find_obstacle(metric, workload.cases[0]):
                made = f"is computed from {metric}, which " if metric != name else ""
                raise DesignError(f"{group}.{name}: {made}{obstacle}")


def _find_obstacle(metric: str, case: WorkloadCase) -> str:
    """Why no design has a metric under a case, and what to write; empty string if some may have it."""
    inputs, asked_for = _all_inputs(metric), BATCHES if isinstance(case, BatchCase) else case_type_name(type(case))
    if inputs & MAX_RATE_METRICS:
        if not isinstance(case, ServingLoad):
            do = f"set workload=serving workload.rate={MAX_RATE_OPTION}"
            return f"belongs to served requests at their maximum rate, got {asked_for}; {do}"
        if not case.largest:
            return f"needs the maximum rate, got requests at a fixed rate; set {_max_rate_override(case)}"
    if inputs & SERVED_METRICS and not isinstance(case, ServingLoad):
        return f"belongs to served requests, got {asked_for}; set workload=serving"
    if inputs & BATCH_METRICS and not isinstance(case, BatchCase):
        return f"belongs to {BATCHES}, got {asked_for}; set workload=static, or choose another metric"
    return ""


def _all_inputs(metric: str) -> set[str]:
    """A metric with all those that it is computed from."""
    known, left = set[str](), [metric]
    while left:
        if (name := left.pop()) not in known:
            known.add(name)
            left += METRICS[name].needs if name in METRICS else ()
    return known


def _max_rate_override(load: ServingLoad) -> str:
    """Override with which a load is served at its maximum rate."""
    if load.draw is not None and not load.requests.users:
        return f"workload.rate={MAX_RATE_OPTION}"
    if load.trace is not None and load.trace.times != "drawn":
        return f"workload.rate_scale={MAX_RATE_OPTION}, or workload.arrivals=poisson workload.rate={MAX_RATE_OPTION}"
    return f"workload.arrivals=poisson workload.rate={MAX_RATE_OPTION}"
