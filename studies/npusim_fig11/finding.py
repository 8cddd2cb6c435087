"""Latencies by prefilling cores, and how two ratios depend on how many requests come at once."""

from studies.designs import metrics
from studies.write import table

CORES = (49, 42, 28, 21)


def finding() -> str:
    """One row a ratio of cores; then one row a load."""
    apart = [{"mapping.serving.prefill_cores": cores} for cores in CORES]
    rows = []
    for cores, found in zip(CORES, metrics("npusim_fig11", apart), strict=True):
        values = (found[name] for name in ("ttft", "tbt_p50", "latency", "throughput"))
        rows.append([f"P{cores}/D{(64 - cores) // 7 * 7}", *(f"{value:.3g}" for value in values)])
    first = table(["cores", "TTFT [s]", "TBT, median [s]", "end to end [s]", "throughput [token/s]"], rows)
    loads = []
    for requests in (100, 250, 500, 1000):
        many, few = metrics("npusim_fig11", [apart[0], apart[-1]], f"workload.requests={requests}")
        loads.append([f"{requests}", f"{many['ttft'] / few['ttft']:.2f}", f"{few['latency'] / many['latency']:.2f}"])
    return first + "\n\n" + table(["requests at once", "TTFT, P49/D14 over P21/D42", "end to end, P21/D42 over P49/D14"], loads)
