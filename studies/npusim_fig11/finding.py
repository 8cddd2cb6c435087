"""Findings on core splits: latencies by prefill and decode cores and places, by load."""

from dse.studies.designs import metrics
from dse.studies.markdown_table import table

CORES = ((49, 14), (42, 21), (28, 28), (21, 42))
APART = [{"mapping.serving.prefill_cores": prefill, "mapping.serving.decode_cores": decode} for prefill, decode in CORES]
COLUMNS = {"ttft": "TTFT", "tbt_p50": "TBT, median", "tbt": "TBT, mean", "latency": "end to end"}

LOADS = {f"{requests} at once": (f"workload.requests={requests}",) for requests in (100, 250, 500, 1000)} | {
    f"1000 at {rate} a second": ("workload.requests=1000", "workload.arrivals=poisson", f"workload.rate={rate} Hz")
    for rate in (20, 24, 28)
}


def finding() -> str:
    """One row per ratio of cores; then one row per load."""
    by_block = [setting | {"mapping.serving.arrangement": "dp_first"} for setting in APART]
    rows = []
    for (prefill, decode), metric, other in zip(
        CORES, *(metrics("npusim_fig11", each) for each in (APART, by_block)), strict=True
    ):
        values = (metric[name] for name in (*COLUMNS, "throughput"))
        ratio = f"{other['latency'] / metric['latency']:.4f}"
        rows.append([f"P{prefill}/D{decode}", *(f"{value:.3g}" for value in values), ratio])
    head = [*(f"{name} [s]" for name in COLUMNS.values()), "throughput [token/s]", "end to end, DP first over PP first"]
    return table(["cores", *head], rows) + "\n\n" + _loads()


def _loads() -> str:
    rows = []
    for load, overrides in LOADS.items():
        most, best, half, least = metrics("npusim_fig11", APART, *overrides)
        pairs = [(most, least, "ttft"), (least, most, "latency")]
        pairs += [(best, other, name) for other in (most, half) for name in ("ttft", "tbt")]
        rows.append([load, *(f"{row_pair[name] / other[name]:.2f}" for row_pair, other, name in pairs)])
    extremes = ("TTFT, P49/D14 over P21/D42", "end to end, P21/D42 over P49/D14")
    best_over = (f"{what}, P42/D21 over {other}" for other in ("P49/D14", "P28/D28") for what in ("TTFT", "mean TBT"))
    return table(["requests", *extremes, *best_over], rows)
