"""Table 1 as published and as simulated."""

from dse.validate import measured
from studies.write import table

PUBLISHED = {
    "llama3_8b": {2: (148.8, 111.3), 4: (128.2, 80.6), 8: (60.3, 54.5)},
    "qwen2_7b": {2: (130.9, 111.6), 4: (68.8, 63.0), 8: (57.6, 52.7)},
    "phi3_small": {2: (147.8, 110.0), 4: (128.4, 79.9), 8: (59.2, 54.2)},
    "llama3_70b": {},
    "qwen2_72b": {},
    "phi3_medium": {},
}


def finding() -> str:
    """One row a model and cluster size; the last three models are predictions."""
    rows = []
    for model, published in PUBLISHED.items():
        for devices in (2, 4, 8):
            off, on = simulated(model, devices)
            seconds = published.get(devices)
            known = [f"{seconds[0]}", f"{seconds[1]}", f"{seconds[0] / seconds[1]:.2f}"] if seconds else ["-"] * 3
            rows.append([model, str(devices), *known, f"{off:.1f}", f"{on:.1f}", f"{off / on:.2f}"])
    head = [
        "model",
        "NPUs",
        "baseline [s]",
        "prefetching [s]",
        "speedup",
        "simulated baseline [s]",
        "prefetching [s]",
        "speedup",
    ]
    return table(head, rows)


def simulated(model: str, devices: int) -> tuple[float, float]:
    """Seconds without and with prefetching."""
    overrides = ("study=preserve_table1", f"model={model}", f"mapping.prefill.tp={devices}")
    off = measured((*overrides, "mapping.prefill.prefetch=none"), "latency")
    on = measured((*overrides, "mapping.prefill.prefetch=whole"), "latency")
    assert off is not None
    assert on is not None
    return off, on
