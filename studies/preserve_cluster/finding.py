"""Findings on figures 7 and 8: prefetch gains by number of devices and link bandwidth."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.breakdown import Breakdown
from dse.space.array_math import Array
from dse.space.knobs import ChoiceKnob, Space
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

DEVICES = (8, 16, 32, 64, 128, 256)
GBITS = (200, 400, 600, 800, 1000)
SUITE = (
    "model=[llama3_8b,llama3_70b,llama3_405b,qwen2_7b,qwen2_72b,qwen15_110b,"
    "phi3_small,phi3_medium,phi35_moe,mistral_7b,mixtral_8x7b,mixtral_8x22b]"
)
PAPER = ("space=empty",)


def finding() -> str:
    """Tables of figures 7 and 8, in Markdown."""
    return "\n\n".join((_figure7(), _figure8()))


def _figure7() -> str:
    question = find_study("preserve_cluster", *PAPER).question
    rows = []
    for devices, gain in zip(DEVICES, gains(ChoiceKnob("mapping.both.tp", DEVICES), *PAPER)[0], strict=True):
        base = Space(question.base, (ChoiceKnob("mapping.both.tp", DEVICES),)).design_at({"mapping.both.tp": devices})
        parts = explain(base, question.workload.cases[0], decode_context=question.workload.decode_context)
        spans = {segment: _step(parts, segment) for segment in ("attention", "ffn")}
        cells = [format_quantity(seconds, "s", 3) for segment in spans.values() for seconds in segment]
        rows.append([str(devices), f"{gain:.3f}", *cells])
    head = ["devices", "speedup", "attention: allreduce", "prefetch", "FFN: allreduce", "prefetch"]
    return "Figure 7, Llama-3.1-405B, batch 16, 8k tokens, 104 MB, end to end; times of one layer in decode:\n\n" + table(
        head, rows
    )


def _step(parts: Breakdown, segment: str) -> tuple[float, float]:
    bars = parts.segments["decode"][segment]
    allreduce = sum(end - start for stream, _, start, end in bars if stream == "communication")
    prefetch = sum(end - start for stream, _, start, end in bars if stream == "prefetch")
    return allreduce, prefetch


def _figure8() -> str:
    knob = ChoiceKnob("chip.network.bandwidth", tuple(g * 1e9 / 8 for g in GBITS))
    grid = gains(knob, *PAPER, SUITE, "mapping.prefill.tp=128")
    question = find_study("preserve_cluster", *PAPER, SUITE).question
    rows = [[case.model.name, *(f"{x:.3f}" for x in row)] for case, row in zip(question.workload.cases, grid, strict=True)]
    rows.append(["mean", *(f"{x:.3f}" for x in np.mean(grid, axis=0))])
    head = ["model", *(f"{g} Gbit/s" for g in GBITS)]
    return "Figure 8, 128 devices, batch 16, 8k tokens, 104 MB, speedup end to end:\n\n" + table(head, rows)


def gains(knob: ChoiceKnob, *overrides: str) -> Array:
    """Speedup by prefetching, shape (cases, values of the knob)."""
    latencies = []
    for prefetch in ("none", "whole"):
        question = find_study("preserve_cluster", *overrides, f"mapping.prefill.prefetch={prefetch}").question
        space = Space(question.base, (knob,))
        outcomes = evaluate(space.stack(space.grid(0, len(knob.values))), question.workload, cases=True)
        latencies.append(outcomes.cases["latency"])
    return latencies[0] / latencies[1]
