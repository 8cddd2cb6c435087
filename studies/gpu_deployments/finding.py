"""Findings on whole models on GPUs: measured against simulated, and the deciding assumptions."""

import csv
import shlex
from functools import cache
from pathlib import Path

from dse.accuracy.validate import compare_file, format_row_error
from dse.analysis.evaluation import Evaluation, evaluate_config
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.compose import compose
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

PUBLISHED = Path(__file__).with_name("published.csv")

BATCHES = (256, 1024)

POINTS = ("sglang-prefill-1k", "sglang-prefill-4k", "sglang-decode", "profile-tpot")

OTHERWISE = {
    "as it is said": (),
    "imbalance 1: even loads": ("workload.expert_load=even",),
    "no overlap": ("mapping.both.overlap=none",),
    "one copy a expert, not a box": ("mapping.prefill.all_to_all=direct",),
    "fp8 with a scale a tensor": ("precision={weights: fp8, activations: fp8, kv: bf16}",),
    "links ten times as fast": ("chip.nodes.bandwidth=500 GB/s", "chip.d2d.bandwidth=3.6 TB/s"),
    "rates of the tuned stack": ("stack=tuned_ep",),
}

GROUPS = {
    "attention": ("attention", "q_absorb", "v_absorb", "rope", "kv_up"),
    "products": (
        "q_down", "kv_down", "q_up", "o_proj", "gate", "up", "down", "router", "head",
        "shared_gate", "shared_up", "shared_down",
    ),
    "experts": ("experts_gate", "experts_up", "experts_down", "experts_activation"),
    "dispatch": ("dispatch",),
    "combine": ("combine",),
    "hidden by overlap": ("exchanges behind the other half",),
}  # fmt: skip


def finding() -> str:
    """Tables of the study's findings, in Markdown."""
    names = ["512, as assumed", *(f"batch {batch}" for batch in BATCHES)]
    return "\n\n".join(
        [
            "Measured against simulated, as `dse validate gpu_deployments` has it.",
            table(["figure", "measured", "simulated", "error", "role"], _compared()),
            "MLPerf's offline load on eight H200: output tokens/s by requests that an instance runs at a time, assumed.",
            table(["model", "measured", *names], [_by_batch(row) for row in _rows() if row["id"].startswith("mlperf")]),
            "Deployments of DeepSeek-V3 otherwise: tokens/s of a node, or time of a token.",
            table(["", *POINTS], [[name, *(_point(point, *more) for point in POINTS)] for name, more in OTHERWISE.items()]),
            "Where the time of these points goes, shares of all that is done (exchanges are hidden behind the other half).",
            table(["", *POINTS], [[name, *(_share(point, name) for point in POINTS)] for name in (*GROUPS, "the rest")]),
        ]
    )


@cache
def _rows() -> list[dict[str, str]]:
    with PUBLISHED.open(newline="") as file:
        return list(csv.DictReader(file))


def _compared() -> list[list[str]]:
    rows = []
    for row in compare_file(PUBLISHED):
        simulated = "infeasible" if row.simulated is None else f"{row.simulated:.4g}"
        rows.append([row.id, f"{row.published} {row.unit}", simulated, format_row_error(row), row.role])
    return rows


@cache
def _evaluated(*words: str) -> Evaluation:
    return evaluate_config(compose(list(words)))


def _by_batch(row: dict[str, str]) -> list[str]:
    words = shlex.split(row["overrides"])
    questions = [words, *([*words, f"mapping.serving.max_batch_size={batch}"] for batch in BATCHES)]
    return [row["id"], row["value"], *(_throughput(_evaluated(*words_of_row)) for words_of_row in questions)]


def _throughput(evaluation: Evaluation) -> str:
    return "infeasible" if evaluation.infeasible else f"{evaluation.metrics['throughput']:,.0f}"


def _words(point: str) -> tuple[str, ...]:
    return tuple(shlex.split(next(row["overrides"] for row in _rows() if row["id"] == point)))


def _point(point: str, *more: str) -> str:
    words = _words(point)
    given = {word.partition("=")[0] for word in more}
    evaluation = _evaluated(*(word for word in words if word.partition("=")[0] not in given), *more)
    nodes = float(evaluation.design.chip.dies.rows)
    metrics = computed_metrics(evaluation.metrics)  # some readings have more compute than a reticle has room for
    if "prefill" in point:
        return f"{metrics['prefill_throughput'] / nodes:,.0f}/s"
    if point.startswith("profile"):
        return format_quantity(metrics["tpot"], "s")
    return f"{metrics['decode_throughput'] / nodes:,.0f}/s"


def _share(point: str, name: str) -> str:
    phase = "prefill" if "prefill" in point else "decode"
    rows = [row for row in _evaluated(*_words(point)).breakdown.rows if row.phase.startswith(phase)]
    done = sum(row.seconds for row in rows if row.seconds > 0)
    known = {operator for operators in GROUPS.values() for operator in operators}
    current_rows = [row for row in rows if (row.operator in GROUPS[name] if name in GROUPS else row.operator not in known)]
    return f"{sum(row.seconds for row in current_rows) / done:.0%}"
