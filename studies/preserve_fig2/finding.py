"""Findings on layer memory per device, and the devices at which both layers fit in L2."""

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.studies.markdown_table import table

L2 = {"Ascend 910B": 192, "TPU v5p": 128, "TPU v5e": 128, "H100": 50}
"""On-chip memory in MB: 910B from the paper, section 4; H100 from its whitepaper. The vendor publishes none for the TPUs:
128 MiB of vector memory is what is commonly quoted, and is assumed here."""


def finding() -> str:
    """Table of MB per device by model and devices, then the numbers of devices that fit."""
    question = find_study("preserve_fig2").question
    columns = question.space.grid(0, question.space.combinations or 0)
    devices = columns["mapping.both.tp"].astype(int)
    outcomes = evaluate(question.space.stack(columns), question.workload, cases=True)
    rows, fits = [], []
    for case, attention, ffn in zip(
        question.workload.cases, outcomes.cases["attention_layer_bytes"], outcomes.cases["ffn_layer_bytes"], strict=True
    ):
        rows.append([case.model.name, *(f"{a / 1e6:.0f} / {f / 1e6:.0f}" for a, f in zip(attention, ffn, strict=True))])
        larger = [max(a, f) / 1e6 for a, f in zip(attention, ffn, strict=True)]
        fits.append([case.model.name, *(_first(devices, larger, size) for size in L2.values())])
    head = ["model", *(f"{n} devices" if n > 1 else "1 device" for n in devices)]
    text = "Attention / MLP layer on one device [MB], batch 8, 16k tokens, int8:\n\n" + table(head, rows)
    limits = [f"{name} ({size} MB)" for name, size in L2.items()]
    return text + "\n\nDevices from which the larger of the two layers fits in L2:\n\n" + table(["model", *limits], fits)


def _first(devices: list[int], sizes: list[float], limit: float) -> str:
    return next((str(n) for n, size in zip(devices, sizes, strict=True) if size <= limit), "more than 64")
