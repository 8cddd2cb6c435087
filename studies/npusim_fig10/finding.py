"""Latency of one request by group and placement."""

from dse.api import study_of
from evaluators import evaluate
from studies.write import table


def finding() -> str:
    """One row a group."""
    asked = study_of("npusim_fig10").question
    size = asked.space.combinations
    assert size is not None
    columns = asked.space.grid(0, size)
    found = evaluate(asked.space.stack(columns), asked.workload).columns["latency"]
    tp, codes = columns["mapping.both.tp"], columns["mapping.both.placement"]
    names = list(asked.space.knob("mapping.both.placement").values)
    rows = []
    for cores in sorted(set(tp)):
        seconds = {name: float(found[(tp == cores) & (codes == code)][0]) for code, name in enumerate(names)}
        rows.append(
            [f"{cores:.0f}", *(f"{seconds[name]:.3g}" for name in names)]
            + [f"{seconds['linear_interleave'] / seconds[name]:.2f}" for name in ("linear_seq", "ring", "mesh")]
        )
    return table(["TP", *(f"{name} [s]" for name in names), "speedup of linear_seq", "of ring", "of mesh"], rows)
