"""Time to the first token by prompt and way to divide products."""

from dse.api import study_of
from evaluators import evaluate
from studies.write import table


def finding() -> str:
    """One row a prompt."""
    asked = study_of("npusim_fig9").question
    size = asked.space.combinations
    assert size is not None
    found = evaluate(asked.space.stack(asked.space.grid(0, size)), asked.workload, cases=True).cases["ttft"]
    names = list(asked.space.knobs[0].values)
    rows = []
    for case, times in zip(asked.workload.cases, found, strict=True):
        ms = dict(zip(names, 1e3 * times, strict=True))
        best = min(ms, key=lambda name: ms[name])
        rows.append([case.label, *(f"{ms[name]:.3g}" for name in names), f"{ms['mn'] / ms['k']:.2f}", best])
    return table(["one request", *(f"{name} [ms]" for name in names), "mn / k", "first"], rows)
