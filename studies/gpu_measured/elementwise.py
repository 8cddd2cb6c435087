"""Measured elementwise kernels, and the stack parts fitted on them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dse.evaluators.accounting.kernel_workloads.shared_cache_kernels import ELEMENTWISE_COSTS
from dse.evaluators.kernels.library.elementwise import ElementwiseKernel, kernel_time
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.libraries.elementwise import ElementwiseConstants, ElementwisePass
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

ADD = "starts of measured kernels under a recorded graph or a profiler add: nothing hides them"
NOTHING, NO_TABLE = "rows show nothing of it", "no row picks from a table"
SHARED = "rows of this table are shared out: few take no longer for their columns"

LAYERS_8B = {
    "act_fn": ("gate", 14336),
    "layernorm": ("norm", 4096),
    "final_layernorm": ("norm", 4096),
    "rotary_emb": ("rotate", 4096),
    "embedding": ("gather", 4096),
}
"""Sort and columns of layers of the table of RTX 4090: of a rotation, those of queries, as a graph has it."""

LAYERS_70B = {
    "input_layernorm": ("norm", 8192, False),
    "post_attention_layernorm": ("norm", 8192, False),
    "attn_rope": ("rotate", 8192, True),
    "mlp_act": ("gate", 28672, True),
    "add": ("copy", 8192, False),
    "emb": ("gather", 8192, False),
}
"""Likewise of the table of Llama 2 70B, and whether devices divide the columns."""

EAGER = {"softmax": "softmax", "layernorm": "norm", "gelu": "gate"}


def parts(folder: Path) -> list[FittedPart]:
    """Elementwise parts of each stack that has measurements."""
    return [
        _part(
            "vllm_rtx4090", "rtx4090", _layers(folder), ("norm", "gate", "rotate", "gather"),
            ("gate.cached", "gate.core", "rotate.core", "walked"),
            {f"{sort}.{leaf}": f"norm.{leaf}" for sort in ("gate", "rotate") for leaf in ("start", "share")}
            | {"rotate.cached": "gate.cached"},
            {"row": SHARED, "sharpness": ADD}, "llmservingsim2026",
        ),
        _part(
            "vllm_a100", "a100", _operators(folder), ("norm", "gate", "rotate", "copy", "gather"), ("row", "walked"),
            {"rotate.start": "gate.start", "gather.start": "copy.start"}, {"sharpness": ADD, "gate.cached": NOTHING},
            "vidur2024",
        ),
        _part(
            "eager_a100", "a100", _eager(folder), ("norm", "gate", "softmax"), ("sharpness",), {},
            {"row": SHARED, "walked": NO_TABLE}, "llmcompass2024",
        ),
    ]  # fmt: skip


RANGES = {
    "walked": (5e-7, 0.0, 5e-6),
    "row": (1e10, 1e9, 1e12),
    "gate.cached": (0.3, 0.001, 1.0),
    "gate.core": (5e10, 1e9, 1e12),
    "rotate.core": (5e10, 1e9, 1e12),
    "sharpness": (1.5, 1.0, 20.0),
}
"""Start, low and high."""


def _part(
    stack: str, chip: str, rows: tuple[PartRow, ...], sorts: tuple[str, ...], common: tuple[str, ...], alike: dict[str, str],
    texts: dict[str, str], sources: str,
) -> FittedPart:  # fmt: skip
    own = [f"{sort}.{leaf}" for sort in sorts for leaf in ("start", "share") if f"{sort}.{leaf}" not in alike]
    ranges = [RANGES[name] for name in common]
    ranges += [(5e-6, 0.0, 1e-4) if name.endswith("start") else (0.5, 0.01, 20.0) for name in own]
    start, low, high = zip(*ranges, strict=True)
    names = (*common, *own)
    texts = texts | {name: f"as of {other.partition('.')[0]}, which it is fitted with" for name, other in alike.items()}
    return FittedPart(
        "elementwise", stack, chip, rows, _record(names, sorts, alike), _seconds, names, start, low, high, texts, sources
    )  # fmt: skip


def _record(names: tuple[str, ...], sorts: tuple[str, ...], alike: dict[str, str]) -> Callable[[Vector], ElementwiseConstants]:
    def record(values: Vector) -> ElementwiseConstants:
        given_values = dict(zip(names, map(float, values), strict=True))
        given_values |= {name: given_values[other] for name, other in alike.items()}
        passes = {
            sort: ElementwisePass(**{leaf: given_values.get(f"{sort}.{leaf}") for leaf in ("start", "share", "cached", "core")})
            for sort in sorts
        }
        return ElementwiseConstants(
            row=given_values.get("row"),
            walked=given_values.get("walked"),
            sharpness=given_values.get("sharpness", 1.0),
            **passes,
        )

    return record


def _seconds(sizes: dict[str, Vector], sort: str, constants: ElementwiseConstants, silicon: LibraryDie) -> Vector:
    time = kernel_time(
        ElementwiseKernel(sizes["rows"], sizes["columns"] * ELEMENTWISE_COSTS[sort][1] * 2.0, sort), constants, silicon
    )
    assert time is not None
    return np.asarray(time.seconds())


def _row(sort: str, rows: float, columns: float, seconds: str, source: str) -> PartRow:
    words = f"workload=elementwise mapping=tensor_parallel mapping.decode.tp=1 workload.operator={sort}"
    words += f" workload.rows=[{rows:.0f}] workload.columns=[{columns:.0f}] mapping.precision.activations=bf16"
    return PartRow({"rows": rows, "columns": columns}, sort, words, float(seconds), source)


def _layers(folder: Path) -> tuple[PartRow, ...]:
    return tuple(
        _row(LAYERS_8B[entry["layer"]][0], float(entry["tokens"]), LAYERS_8B[entry["layer"]][1], entry["seconds"], where)
        for entry, where in table(folder, "rtx4090_llama31_8b_layers.csv")
        if entry["layer"] in LAYERS_8B
    )


def _operators(folder: Path) -> tuple[PartRow, ...]:
    operators = []
    for entry, where in table(folder, "vidur_a100_llama2_70b_ops.csv"):
        if entry["op"] in LAYERS_70B:
            sort, columns, divided = LAYERS_70B[entry["op"]]
            columns = columns // int(entry["tp"]) if divided else columns
            operators.append(_row(sort, float(entry["tokens"]), columns, entry["seconds"], where))
    return tuple(operators)


def _eager(folder: Path) -> tuple[PartRow, ...]:
    found_rows = []
    for entry, where in table(folder, "llmcompass_a100_ops.csv"):
        if entry["kind"] in EAGER:
            rows, columns = (float(entry["m"]), float(entry["n"])) if entry["n"] else (float(entry["m"]) / 1024, 1024.0)
            found_rows.append(_row(EAGER[entry["kind"]], rows, columns, entry["seconds"], where))
    return tuple(found_rows)
