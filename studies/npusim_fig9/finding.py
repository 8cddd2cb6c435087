"""Findings on TTFT by prompt and partition of products, and the breakdown of partition k."""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate, explain
from dse.studies.markdown_table import table


def finding() -> str:
    """One row per prompt length, in Markdown."""
    question = find_study("npusim_fig9").question
    size = question.space.combinations
    assert size is not None
    ttft = evaluate(question.space.stack(question.space.grid(0, size)), question.workload, cases=True).cases["ttft"]
    names = list(question.space.knobs[0].values)
    divided = question.space.design_at({question.space.knobs[0].address: "k"})
    rows = []
    for case, times in zip(question.workload.cases, ttft, strict=True):
        ms = dict(zip(names, 1e3 * times, strict=True))
        best = min(ms, key=lambda name: ms[name])
        spent = explain(divided, case).by_bound()
        works = (spent["matrix"] + spent["vector"]) / sum(spent.values())
        rows.append([case.label, *(f"{ms[name]:.3g}" for name in names), f"{ms['mn'] / ms['k']:.2f}", best, f"{works:.0%}"])
    return table(["one request", *(f"{name} [ms]" for name in names), "mn / k", "first", "k: engines"], rows)
