"""Rates of GPUs alone and beside SRAM chips or wafers, of tiles and of dies, at equal bounds.

    python -m dse.studies.split_pools.finding [MODEL]

prints the tables of one model, or of all.
"""

import itertools
import sys
from collections.abc import Iterator
from typing import NamedTuple

from dse.accuracy.validate import compose_question
from dse.config.question import Question
from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.units import format_quantity
from dse.space.workload import Workload
from dse.studies.markdown_table import table

BOUNDS = ("50 ms", "20 ms", "10 ms", "5 ms")
"""Times per output token that 90 % of the requests keep, beside 4 s to the first token."""

LOAD = (
    *("workload=serving", "workload.rate=max", "workload.prompt=2048", "workload.output=512", "workload.ttft=4 s"),
    "workload.speculation=none",
)

LINKS = (1e9, 5e9, 10e9, 25e9, 50e9, 100e9)
"""Bandwidths of the link that are tried, of each prefill chip in one direction. [B/s]"""

LINK_BOUND = "20 ms"
"""Time per output token at which the link is varied."""

FP8 = ("precision={weights: fp8, activations: fp8, kv: fp8}",)

LINK = "+part@pools.link=pool_link_400g"


class Kind(NamedTuple):
    """A kind of deployment: what is said of it, and the numbers that are tried.

    Attributes:
        words: overrides.
        instances: that decode, or that do both phases.
        prefills: instances that only prefill; 0 where each does both.
        tries: leaves of further choices, each with its values; ``both`` stands for both phases.
    """

    words: tuple[str, ...]
    instances: tuple[int, ...] = (1,)
    prefills: tuple[int, ...] = (0,)
    tries: tuple[tuple[str, tuple[float, ...]], ...] = ()


BATCH = ("mapping.serving.max_batch_size", (8, 32, 128, 512))
"""Requests that an instance runs at a time, at most."""

SRAM = ("chip=groq3_lpu", "stack=groq", "mapping.serving.admission=prompt")
"""SRAM chips whose programs are scheduled ahead, as their vendor's first chips run them."""

WAFERS = ("chip=wse3", "+part@chip=wafers_ethernet")

GPU_PREFILL = ("pools.prefill.chip=b200", "pools.prefill.mapping.both.tp=8", LINK)

MANY = ("mapping.serving.max_batched_tokens=65536",)
"""Token budget of instances of 32 to 64 dies, of all dies together."""

MANY_PREFILL = ("mapping.serving.prefill_instances=1", "mapping.serving.prefill_max_batched_tokens=131072")
"""The same of instances that only prefill."""

MANY_BATCH = ("mapping.serving.max_batch_size", (128, 512, 2048, 8192))
"""Requests that such an instance runs at a time, at most."""

NODE_PREFILL = ("pools.prefill.chip=nvl72", "pools.prefill.mapping.both.ep=64", LINK)

KINDS: dict[str, dict[str, Kind]] = {
    "llama3_70b": {
        "GPUs": Kind(("chip=b200", "mapping.both.tp=8", *FP8), tries=(BATCH, ("mapping.both.tp", (2, 4, 8)))),
        "GPUs, prefill apart": Kind(
            ("chip=b200", "mapping.both.tp=8", *FP8), (1, 2), (1, 2), (BATCH, ("mapping.both.tp", (2, 4, 8)))
        ),
        "GPUs and SRAM chips": Kind(
            (*SRAM, "mapping.both.tp=32", "mapping.both.pp=8", *FP8, *GPU_PREFILL), prefills=(1, 2), tries=(BATCH,)
        ),
        "GPUs and wafers": Kind(
            (*WAFERS, "chip.chain.chips=5", *GPU_PREFILL, "pools.prefill.precision={weights: fp8, activations: fp8, kv: fp16}"),
            prefills=(1, 2),
            tries=(BATCH,),
        ),
        "wafers": Kind((*WAFERS, "chip.chain.chips=12"), tries=(BATCH,)),
        "mesh tiles": Kind(("chip=tile_gh200", *FP8), tries=(BATCH,)),
        "wafer of dies": Kind(("chip=wafer64", "mapping.both.ep=1", *FP8), tries=(BATCH,)),
    },
    "deepseek_v3": {
        "GPUs": Kind(("chip=nvl72", "mapping.both.ep=64", *MANY), tries=(MANY_BATCH,)),
        "GPUs, prefill apart": Kind(
            ("chip=nvl72", "mapping.both.ep=32", *MANY, *MANY_PREFILL), prefills=(1,), tries=(MANY_BATCH,)
        ),
        "GPUs and SRAM chips": Kind(
            (*SRAM, "mapping.both.tp=32", "mapping.both.pp=61", *MANY_PREFILL, *NODE_PREFILL), prefills=(1,), tries=(BATCH,)
        ),
        "GPUs and wafers": Kind(
            (*WAFERS, "chip.chain.chips=62", "mapping.both.rows=750", "mapping.both.cols=1200", *MANY_PREFILL, *NODE_PREFILL),
            prefills=(1,),
            tries=(BATCH,),
        ),
        "wafer of dies": Kind(("chip=wafer64", *MANY), tries=(("mapping.serving.max_batch_size", (128, 1024, 8192)),)),
    },
}
"""Kinds of deployments of each model; the first are GPUs alone."""


class Answer(NamedTuple):
    """The best design of a kind at a bound, or why there is none.

    Attributes:
        values: metrics; empty where no design keeps the bounds.
        text: what was chosen, or the limit that the first design breaks.
        changes: leaves of the design.
    """

    values: dict[str, float]
    text: str
    changes: dict[str, float]


def finding() -> str:
    """Tables of the study's findings, in Markdown."""
    return "\n\n".join(_model_text(model) for model in KINDS)


def _model_text(model: str) -> str:
    """Rates, prices and powers of each kind of deployment of a model, and what the link has to carry."""
    head = ["time per token", "kind", "requests/s", "token/s/user", "USD/Mtoken", "token/s/kW", "chips", "choice"]
    best = {(bound, name): _best(model, kind, bound) for name, kind in KINDS[model].items() for bound in BOUNDS}
    rows = [[bound, name, *_cells(best[bound, name])] for bound in BOUNDS for name in KINDS[model]]
    shared = [name for name, kind in KINDS[model].items() if LINK in kind.words]
    links = [[name, *_link_cells(model, KINDS[model][name], best[LINK_BOUND, name])] for name in shared]
    speeds = [format_quantity(speed, "B/s") for speed in LINKS]
    return (
        f"{model}, {LOAD[2].partition('=')[2]} tokens in, {LOAD[3].partition('=')[2]} out:\n\n{table(head, rows)}\n\n"
        f"Requests/s at {LINK_BOUND} a token by the bandwidth of the link, of each prefill chip:\n\n"
        f"{table(['kind', *speeds], links)}"
    )


def _link_cells(model: str, kind: Kind, answer: Answer) -> list[str]:
    """Largest rates of the best design of a kind with other links between its pools."""
    if not answer.values:
        return ["-"] * len(LINKS)
    question = _question(model, kind, LINK_BOUND)
    cells = []
    for speed in LINKS:
        design = replace_leaves(question.base, answer.changes | {"pools.link.bandwidth": speed})
        values, _ = _evaluate(design, question.workload)
        cells.append(f"{values['max_rate']:.3g}" if values else "-")
    return cells


def _cells(answer: Answer) -> list[str]:
    values = answer.values
    if not values:
        return ["-", "-", "-", "-", "-", answer.text]
    return [
        f"{values['max_rate']:.3g}",
        f"{1 / values['tpot']:.3g}",
        f"{values['price_per_mtoken']:.3g}",
        f"{1e3 * values['capacity_per_watt']:.3g}",
        f"{values['devices']:.0f}",
        answer.text,
    ]


def _question(model: str, kind: Kind, bound: str) -> Question:
    """A kind of deployment under the load, at a bound on the time per token."""
    words = (f"model={model}", *LOAD, f"workload.tpot={bound}", "fidelity=steady_state", *kind.words)
    return compose_question(words).question


def _best(model: str, kind: Kind, bound: str) -> Answer:
    """The design of a kind with most tokens a dollar at a bound on the time per token."""
    question, best, why = _question(model, kind, bound), Answer({}, "", {}), ""
    for changes in _choices(kind):
        values, reason = _evaluate(replace_leaves(question.base, changes), question.workload)
        why = why or reason
        if values and values[METRIC] > best.values.get(METRIC, 0.0):
            named = {address.rpartition(".")[2]: f"{value:g}" for address, value in changes.items()}
            best = Answer(values, ", ".join(f"{name} {value}" for name, value in named.items()), changes)
    return best if best.values else Answer({}, why, {})


METRIC = "capacity_per_dollar"
"""By which the best of a kind is chosen."""


def _choices(kind: Kind) -> Iterator[dict[str, float]]:
    """Changes of each design of a kind."""
    tries = [[(address, value) for value in values] for address, values in kind.tries]
    for prefill, count, *others in itertools.product(kind.prefills, kind.instances, *tries):
        serving = {"mapping.serving.prefill_instances": prefill, "mapping.serving.instances": count}
        changes: dict[str, float] = {}
        for address, value in others:
            both = [address.replace("both", phase) for phase in ("prefill", "decode")] if ".both." in address else [address]
            changes |= dict.fromkeys(both, value)
        yield serving | changes


def _evaluate(design: Design, workload: Workload) -> tuple[dict[str, float], str]:
    """Metrics of a design that keeps its limits at some rate, or why none are."""
    why = explain_infeasibility(design, workload)
    if why is not None:
        return {}, str(why)
    outcomes = evaluate(stack_designs([design]), workload, fidelity="steady_state")
    if not outcomes.feasible[0]:
        return {}, str(outcomes.row_outcome(0))
    return {name: float(column[0]) for name, column in outcomes.columns.items() if name in METRICS}, ""


if __name__ == "__main__":
    for asked in sys.argv[1:] or KINDS:
        print(_model_text(asked))
