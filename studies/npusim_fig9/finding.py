"""Findings on TTFT by prompt and partition of products, and the breakdown of partition k."""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate, explain
from dse.studies.write import table


def finding() -> str:
    """One row per prompt length, in Markdown."""
    asked = find_study("npusim_fig9").question
    size = asked.space.combinations
    assert size is not None
    found = evaluate(asked.space.stack(asked.space.grid(0, size)), asked.workload, cases=True).cases["ttft"]
    names = list(asked.space.knobs[0].values)
    divided = asked.space.at({asked.space.knobs[0].address: "k"})
    rows = []
    for case, times in zip(asked.workload.cases, found, strict=True):
        ms = dict(zip(names, 1e3 * times, strict=True))
        best = min(ms, key=lambda name: ms[name])
        spent = explain(divided, case).by_bound()
        works = (spent["matrix"] + spent["vector"]) / sum(spent.values())
        rows.append([case.label, *(f"{ms[name]:.3g}" for name in names), f"{ms['mn'] / ms['k']:.2f}", best, f"{works:.0%}"])
    return table(["one request", *(f"{name} [ms]" for name in names), "mn / k", "first", "k: engines"], rows)
