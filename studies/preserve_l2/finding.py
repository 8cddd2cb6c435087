"""Findings on the L2 size of best throughput density under each reading of the paper's text."""

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.studies.markdown_table import table

READINGS = (
    ("as configured", (), "decode_throughput_per_die_mm2"),
    ("throughput counts prefill time too", (), "throughput_per_die_mm2"),
    ("per area of all 32 dies", (), "decode_throughput_per_system_mm2"),
    ("KV cache at its mean length in every step", ("workload.decode_context=mean",), "decode_throughput_per_die_mm2"),
    (
        "operator that straddles the budget prefetched in part",
        ("mapping.prefill.prefetch=partial",),
        "decode_throughput_per_die_mm2",
    ),
    ("half of L2 for prefetching", ("mapping.prefill.prefetch_share=0.5",), "decode_throughput_per_die_mm2"),
    ("one-way ring", ("mapping.prefill.allreduce=ring",), "decode_throughput_per_die_mm2"),
    ("latency paid per hop of the ring", ("chip.network.latency_per=hop",), "decode_throughput_per_die_mm2"),
    ("full mesh", ("mapping.prefill.allreduce=full_mesh", "chip.network.ports=31"), "decode_throughput_per_die_mm2"),
    ("batches of 24 and 32 alone", ("workload.batch=[24,32]",), "decode_throughput_per_die_mm2"),
    ("batches of 32 alone", ("workload.batch=[32]",), "decode_throughput_per_die_mm2"),
    (
        "batches of 24 and 32 alone, KV cache at its mean length",
        ("workload.batch=[24,32]", "workload.decode_context=mean"),
        "decode_throughput_per_die_mm2",
    ),
    (
        "the same, with 0.85 of L2 for prefetching",
        ("workload.batch=[24,32]", "workload.decode_context=mean", "mapping.prefill.prefetch_share=0.85"),
        "decode_throughput_per_die_mm2",
    ),
    ("16-bit activations", ("mapping.precision.activations=bf16",), "decode_throughput_per_die_mm2"),
    ("Mistral without its sliding window", ("model.mistral_7b.window=0",), "decode_throughput_per_die_mm2"),
)


def finding() -> str:
    """Tables of the readings, then of figure 5's latencies by model."""
    rows = []
    for text, overrides, name in READINGS:
        (off_at, off), (on_at, on_time) = peaks(overrides, name)
        rows.append([text, f"{off_at:.0f}", f"{off:.2f}", f"{on_at:.0f}", f"{on_time:.2f}", f"{on_time / off:.3f}"])
    head = ["reading", "best L2 without [MB]", "token/s/mm2", "best L2 with [MB]", "token/s/mm2", "gain"]
    return table(head, rows) + "\n\nLatency against the smallest L2 (figure 5), with prefetching:\n\n" + _figure5()


def peaks(overrides: tuple[str, ...], name: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Best L2 size and its density without and with prefetching, as (MB, density)."""
    peaks_found = []
    policy = next((o for o in overrides if "prefetch=" in o), "mapping.prefill.prefetch=whole")
    for prefetch in ("mapping.prefill.prefetch=none", policy):
        given_overrides = overrides if prefetch == policy else [o for o in overrides if "prefetch_share=" not in o]
        question = find_study("preserve_l2", "space=l2", *given_overrides, prefetch).question
        columns = question.space.grid(0, question.space.combinations or 0)
        values = evaluate(question.space.stack(columns), question.workload).columns[name]
        best = int(values.argmax())
        peaks_found.append((float(columns["chip.l2.size"][best]) / 1e6, float(values[best])))
    return peaks_found[0], peaks_found[1]


def _figure5() -> str:
    study = find_study("preserve_l2", "space=l2", "mapping.prefill.prefetch=whole")
    columns = study.question.space.grid(0, study.question.space.combinations or 0)
    sizes = columns["chip.l2.size"] / 1e6
    cases = study.question.workload.cases
    latency = evaluate(study.question.space.stack(columns), study.question.workload, cases=True).cases["latency"]
    rows = []
    means = []
    for model in dict.fromkeys(case.model.name for case in cases):
        mean = latency[[case.model.name == model for case in cases]].mean(axis=0)
        relative = mean / mean[0]
        means.append(relative)
        rows.append([model, *_reached(sizes, relative)])
    rows.append(["mean", *_reached(sizes, np.mean(means, axis=0))])
    return table(["model", "lowest latency", "reduction", "reached within 1 % at [MB]"], rows)


def _reached(sizes: np.ndarray, relative: np.ndarray) -> list[str]:
    low = float(relative.min())
    return [f"{low:.3f}", f"{1 - low:.1%}", f"{sizes[np.flatnonzero(relative <= low * 1.01)[0]]:.0f}"]
