"""Findings on long contexts in SRAM: a request on a wafer against eight dies with HBM."""

from functools import cache
from pathlib import Path

import numpy as np

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

MODELS = {
    "qwen3_8b": "GQA",
    "gpt_oss_20b": "GQA, every second layer a window of 128",
    "deepseek_v2_lite": "MLA",
}
"""Models that fit in a wafer's SRAM, with all weights of 8 bits."""

MACHINES = {"h200": "8 H200", "wse3": "WSE-3"}
WEIGHTS = {"h200": "fp8", "wse3": "int8"}
"""8-bit formats that the software of each machine has kernels for."""

CONTEXTS = (8192, 32768, 131072)
LONGEST = 1 << 20
STEP = 8192
"""Tokens by which the longest context is looked for."""

SIDES = (64, 96, 128, 160, 180, 192, 224, 256, 288, 320, 352, 360, 384, 448, 512, 640, 720)
"""Region sides on a wafer, of which the fastest that fits is used. [cores]"""


def token_time_table() -> str:
    """Table of the time of a token of one request, and the longest context that fits."""
    head = ["model", "attention", "machine", *(f"{context // 1024}k" for context in CONTEXTS), "longest", "price"]
    rows = [_row(model, machine) for model in MODELS for machine in MACHINES]
    return "\n\n".join(
        [
            "One request where caches are in SRAM: time of a token by context on a wafer, all weights of 8 bits and the cache "
            "in its cores' memories, beside eight H200 that hold both in HBM; and the longest context, to 8k, up to 1M.",
            table(head, rows),
        ]
    )


def _row(model: str, machine: str) -> list[str]:
    times = [
        format_quantity(seconds, "s") if (seconds := fastest_token_time(model, machine, context)) else "does not fit"
        for context in CONTEXTS
    ]
    most = longest(model, machine)
    name = make_question(model, machine, STEP).workload.cases[0].model.name  # type: ignore[union-attr]
    return [name, MODELS[model], MACHINES[machine], *times, f"{most // 1024}k", format_quantity(_price(model, machine), "USD")]


@cache
def make_question(model: str, machine: str, context: int) -> Question:
    """Question of the last token of a context; prefill runs elsewhere."""
    words = [f"chip={machine}", f"model={model}", "workload.prompt=[1]", f"workload.output=[{context}]", "workload.batch=[1]"]
    words += ["workload.decode_context=last", "model.max_position=2097152", f"mapping.precision.weights={WEIGHTS[machine]}"]
    words += ["++mapping.precision.embedding=as_weights", "++mapping.precision.head=as_weights"]
    if machine == "h200":
        words += ["workload.speculation=none", "mapping.prefill.tp=8", "mapping.decode.tp=8"]
    return build_question(compose(words), Path(__file__).parent)


@cache
def fastest_token_time(model: str, machine: str, context: int) -> float:
    """Time of a token by the fastest mapping that fits; 0 if none fits. [s]"""
    question = make_question(model, machine, context)
    designs = [question.base]
    if machine == "wse3":
        designs = [
            replace_leaves(question.base, {f"mapping.{phase}.rows": side for phase in ("prefill", "decode")}) for side in SIDES
        ]
    evaluation = evaluate(stack_designs(designs), question.workload, metrics=("tpot",))
    fitting = evaluation.columns["tpot"][evaluation.feasible]
    return float(np.min(fitting)) if len(fitting) else 0.0


def longest(model: str, machine: str) -> int:
    """Longest context that some mapping has memory for, in steps of 8k tokens up to a million."""
    low, high = 0, LONGEST // STEP + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fastest_token_time(model, machine, middle * STEP) else (low, middle)
    return low * STEP


def _price(model: str, machine: str) -> float:
    question = make_question(model, machine, STEP)
    return float(
        evaluate(stack_designs([question.base]), question.workload, metrics=("system_price",)).columns["system_price"][0]
    )
