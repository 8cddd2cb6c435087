"""Findings on DeepSeek-V3 on 64 dies: requests, splits of experts and layers, time of a layer."""

from functools import cache
from pathlib import Path

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

DIES = 64
BATCHES = (1, 4, 16, 64, 128, 256, 512)
"""Requests a die."""

SPLITS = ((1, 64), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1), (16, 2), (16, 1))
"""Dies that share out experts, and stages; with fewer than 64 dies in all there are copies of the model."""

CORE = ("attention", "q_absorb", "v_absorb", "rope")
"""Operators of latent attention, its products with absorbed weights and the rotation among them."""


def finding() -> str:
    """Tables of dataflows and splits by requests, operators of a layer, fidelities and expert loads."""
    return "\n\n".join(
        [
            "Tokens/s a die and time of a token, EP32-PP2, by requests a die; FlashMLA on the same tiles without groups.",
            _dataflows(),
            "Tokens/s a die and time of a token by split and requests a die; - where memory is too small.",
            _splits(),
            "Of the time of a layer with experts, 256 requests a die:",
            _layer(),
            "The same point otherwise: by events, and by how tokens spread over experts.",
            _otherwise(),
        ]
    )


def make_question(each: int, *more: str) -> Question:
    """Question of the study for a number of requests per die."""
    words = ["study=deepseek_wafer", f"workload.batch=[{each * DIES}]", *more]
    return build_question(compose(words), Path(__file__).parent)


@cache
def _pair(each: int, *more: str) -> tuple[float, float] | None:
    """Tokens/s a die and time of a token; nothing where it does not fit."""
    fidelity = "events" if "events" in more else "analytical"
    question = make_question(each, *(word for word in more if word != "events"))
    if explain_infeasibility(question.base, question.workload) is not None:
        return None
    columns = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns
    return float(columns["decode_throughput"][0]) / DIES, float(columns["tpot"][0])


def _cell(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:,.0f}, {format_quantity(pair[1], 's')}"


def _dataflows() -> str:
    rows = []
    for each in BATCHES:
        flat, mla = _pair(each), _pair(each, "mapping=flashmla_dies")
        gain = "-" if flat is None or mla is None else f"{flat[0] / mla[0]:.2f}"
        rows.append([f"{each}", _cell(flat), _cell(mla), gain])
    return table(["requests a die", "FlatAttention", "FlashMLA", "gain"], rows)


def _splits() -> str:
    head = ["split", *(f"{each}" for each in BATCHES)]
    rows = []
    for ep, pp in SPLITS:
        words = (f"mapping.both.ep={ep}", f"mapping.both.pp={pp}")
        copies = f", {DIES // ep // pp} copies" if ep * pp < DIES else ""
        rows.append([f"EP{ep}-PP{pp}{copies}", *(_cell(_pair(each, *words)) for each in BATCHES)])
    return table(head, rows)


def _layer() -> str:
    columns = {
        name: _of_layer(make_question(256, *words)) for name, words in (("Flat", ()), ("MLA", ("mapping=flashmla_dies",)))
    }
    names = [name for name in columns["Flat"] if max(column[name] / sum(column.values()) for column in columns.values()) > 0.01]
    rows = [[name, *(f"{column[name] / sum(column.values()):.1%}" for column in columns.values())] for name in names]
    for label, chosen in (("attention alone", ("attention",)), ("with absorbed products and rotation", CORE)):
        rows.append(
            [label, *(f"{sum(column[name] for name in chosen) / sum(column.values()):.1%}" for column in columns.values())]
        )
    return table(["operator", "FlatAttention", "FlashMLA"], rows)


def _of_layer(question: Question) -> dict[str, float]:
    """Seconds of the operators of layers with experts in decode: attention's of all layers, the share that these have."""
    breakdown: Breakdown = explain(question.base, question.workload.cases[0])
    model = question.workload.cases[0].model
    share = 1 - model.experts.dense_layers / (model.layers + 1)
    layer: dict[str, float] = {}
    for row in breakdown.rows:
        if row.phase == "decode" and row.segment in ("attention", "moe", "MoE layer", "MTP module"):
            layer[row.operator] = layer.get(row.operator, 0.0) + row.seconds * (share if row.segment == "attention" else 1.0)
    return layer


def _otherwise() -> str:
    rows = [["closed form, even loads", _cell(_pair(256))], ["events, even loads", _cell(_pair(256, "events"))]]
    rows.append(["independent choices, expected", _cell(_pair(256, "workload.expert_load=expected"))])
    rows.append(["one draw of them", _cell(_pair(256, "workload.expert_load=sampled"))])
    skewed = ("workload.expert_load=expected", "+model.deepseek_v3.experts.skew=0.3")
    rows.append(["Zipf 0.3", _cell(_pair(256, *skewed))])
    rows.append(["Zipf 0.3, 32 redundant experts", _cell(_pair(256, *skewed, "mapping.both.experts.redundant=32"))])
    rows.append(["no token guessed", _cell(_pair(256, "workload.speculation=none"))])
    rows.append(["links of 160 GB/s", _cell(_pair(256, "chip=wafer64_nvlink"))])
    rows.append(["links of 160 GB/s, 128 requests a die", _cell(_pair(128, "chip=wafer64_nvlink"))])
    return table(["how", "256 requests a die"], rows)
