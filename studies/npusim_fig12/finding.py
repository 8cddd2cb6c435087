"""Throughput, that per area and time between tokens by the decode cores' array and HBM, over those of the chip as it is."""

from dse.studies.designs import metrics
from dse.studies.write import table

KINDS = [(side, bandwidth) for side in (64, 32) for bandwidth in (30, 60, 120, 240, 480)]


def finding() -> str:
    """One row a kind of decode cores."""
    own = [
        {"chip.decode.rows": side, "chip.decode.cols": side, "chip.decode.bandwidth": bandwidth * 1e9}
        for side, bandwidth in KINDS
    ]
    alike, *found = metrics("npusim_fig12", [{}, *own])
    twice = metrics("npusim_fig12", own, "chip.tile.sram_per_row=16 B/cycle")
    rows = []
    for (side, bandwidth), one, more in zip(KINDS, found, twice, strict=True):
        ratios = [one[name] / alike[name] for name in ("throughput", "throughput_per_system_mm2", "tbt_p50")]
        ratios.append(more["throughput"] / one["throughput"])
        rows.append([f"A{side}H{bandwidth}", *(f"{ratio:.2f}" for ratio in ratios)])
    head = ["throughput", "throughput / area", "TBT, median", "throughput with local memories twice as fast, over that"]
    return table(["decode cores", *head], rows)
