"""Latency of one request by chip, group and placement, and what placements differ by where routes are not locked."""

from typing import Any

from dse.api import study_of
from evaluators import evaluate
from studies.write import table

PLACEMENTS = ("linear_seq", "linear_interleave", "ring", "mesh")


def finding() -> str:
    """One row a chip and group."""
    rows = []
    for chip in ("npu64", "npu256"):
        # words that follow one another through routers take what links that are busy say, in a hundredth of the time
        locked, apart = _seconds(chip, "locked", "cycles"), _seconds(chip, "wormhole", "events")
        for cores in sorted({cores for cores, _ in locked}):
            seconds, other = ([found[cores, name] for name in PLACEMENTS] for found in (locked, apart))
            rows.append(
                [chip, f"{cores:.0f}", *(f"{value:.3g}" for value in seconds)]
                + [f"{seconds[1] / value:.2f}" for value in seconds if value is not seconds[1]]
                + [f"{max(other) / min(other) - 1:.1%}"]
            )
    speedups = ["speedup of linear_seq", "of ring", "of mesh"]
    return table(["chip", "TP", *(f"{name} [s]" for name in PLACEMENTS), *speedups, "spread with wormhole routing"], rows)


def _seconds(chip: str, routing: str, fidelity: str) -> dict[tuple[float, str], float]:
    """Latency by size of the group and placement. [s]"""
    asked = study_of("npusim_fig10", f"chip={chip}", f"chip.noc.routing={routing}").question
    size: Any = asked.space.combinations
    columns = asked.space.grid(0, size)
    found = evaluate(asked.space.stack(columns), asked.workload, fidelity=fidelity).columns["latency"]
    names = asked.space.knob("mapping.both.placement").values
    places = [str(names[int(code)]) for code in columns["mapping.both.placement"]]
    return dict(zip(zip(columns["mapping.both.tp"], places, strict=True), map(float, found), strict=True))
