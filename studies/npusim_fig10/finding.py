"""Findings on placement: latency of a request by chip, group and placement, with and without locks."""

from typing import Any

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.studies.markdown_table import table

PLACEMENTS = ("linear_seq", "linear_interleave", "ring", "mesh")


def finding() -> str:
    """One row per chip and group size."""
    rows = []
    for chip in ("npu64", "npu256"):
        # where routes are not locked, products divided by k are to the cycle what events say (fidelity_gap)
        locked, step, apart = _seconds(chip), _seconds(chip, "analytical"), _seconds(chip, "events", "wormhole")
        for cores in sorted({cores for cores, _ in locked}):
            seconds, in_step, other = ([times[cores, name] for name in PLACEMENTS] for times in (locked, step, apart))
            rows.append(
                [chip, f"{cores:.0f}", *(f"{value:.3g}" for value in seconds)]
                + [f"{seconds[1] / value:.2f}" for value in seconds if value is not seconds[1]]
                + [f"{in_step[0]:.3g}", f"{in_step[1]:.3g}", f"{max(other) / min(other) - 1:.1%}"]
            )
    speedups = ["speedup of linear_seq", "of ring", "of mesh"]
    others = ["linear_seq, closed [s]", "linear_interleave, closed [s]", "spread with wormhole routing"]
    return table(["chip", "TP", *(f"{name} [s]" for name in PLACEMENTS), *speedups, *others], rows)


def _seconds(chip: str, fidelity: str = "", routing: str = "locked") -> dict[tuple[float, str], float]:
    """Latency by size of the group and placement, at the study's own fidelity or another. [s]"""
    study = find_study("npusim_fig10", f"chip={chip}", f"chip.noc.routing={routing}")
    question = study.question
    size: Any = question.space.combinations
    columns = question.space.grid(0, size)
    latency = evaluate(question.space.stack(columns), question.workload, fidelity=fidelity or study.fidelity).columns["latency"]
    names = question.space.knob("mapping.both.placement").values
    places = [str(names[int(code)]) for code in columns["mapping.both.placement"]]
    return dict(zip(zip(columns["mapping.both.tp"], places, strict=True), map(float, latency), strict=True))
