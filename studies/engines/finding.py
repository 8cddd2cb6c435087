"""Findings on inference engines as they run: measured against simulated rates, by kind of row."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np

from dse.space.array_math import Array
from dse.studies.engines.fit import describe, scores
from dse.studies.engines.rows import EngineRow, measured_rows, simulate_rows
from dse.studies.markdown_table import table

HEAD = ["rows", "bias", "median abs. error", "within 20 %", "measured / simulated, 10th..90th percentile"]

TERMS: dict[str, tuple[str, ...]] = {
    "energy of operations": ("matrix_energy=null",),
    "knee of products": ("roofline_exponent=null",),
    "share of attention": ("attention_efficiency=null",),
    "size of messages": ("network_half_size=null",),
    "sums in 16 bits": ("reduction_format=null",),
    "padding to graphs": ("iteration.graph_batch_sizes=null",),
    "logits": ("iteration.logit_bytes=null",),
    "eager launches": (
        "iteration.eager_launch=null",
        "iteration.dense_layer_kernels=null",
        "iteration.moe_layer_kernels=null",
        "iteration.moe_launch_overlap=null",
    ),
    "host": ("iteration.host_time=null", "iteration.request_host_time=null"),
    "passes over rows of experts": ("moe.row_passes=null", "moe.intermediate_passes=null"),
    "busiest die": ("moe.imbalance=null",),
}
"""Terms of an engine, each with the settings that switch it off."""

ONLY_LINKS, ONLY_EXPERTS = ("size of messages", "sums in 16 bits"), ("passes over rows of experts", "busiest die")
EVERY, OTHER_STACKS = 8, 4
"""One row in so many is simulated without each term, and on other stacks."""

MEASURED_KERNELS = ("gemm", "grouped_gemm", "prefill_attention", "decode_attention", "mla_prefill_attention")
"""Kinds of library kernels that were measured by themselves on H100."""


def finding() -> str:
    """Tables of the study's findings, in Markdown."""
    engine = engine_rows()
    return "\n\n".join(
        [
            "TensorRT-LLM, three versions, by what the rows are of; all rows were fitted on.",
            _grouped(engine, _logs(engine), lambda row: f"{row.version} {row.kind}"),
            _grouped(engine, _logs(engine), lambda row: row.chip),
            _grouped(engine, _logs(engine), lambda row: "weights of four bits" if row.four_bits else "others"),
            "One in four of these rows on a stack that knows nothing of engines, and on that of unmeasured chips.",
            table(["stack", *HEAD], [_line(name, _logs(engine[::OTHER_STACKS], name)) for name in ("tuned", "unfitted")]),
            "Dense rows on H100 and H200: flat rates against kernels measured alone, both with the engine's overheads.",
            _by_kernels(engine),
            "What each term is worth: rows of which one in eight is simulated without it, bias in all and by kind.",
            _without_terms(engine[::EVERY]),
            "Other vendors, each with its stack; static batches, first tokens and latencies as published.",
            _grouped(vendor_rows(), _logs(vendor_rows()), lambda row: row.stack),
        ]
    )


@cache
def engine_rows() -> tuple[EngineRow, ...]:
    """Measured rows of TensorRT-LLM, of all its versions."""
    return tuple(row for row in measured_rows() if row.stack.startswith("trtllm"))


@cache
def vendor_rows() -> tuple[EngineRow, ...]:
    """Rows of other vendors whose chips have a software stack."""
    return tuple(row for row in measured_rows() if row.stack and not row.stack.startswith("trtllm"))


@cache
def _logs(rows: tuple[EngineRow, ...], stack: str = "") -> Array:
    """Log of simulated over measured speed of each row, shape (rows,)."""
    return np.log(simulate_rows(rows, stack=stack))


def _line(name: str, logs: Array) -> list[str]:
    return [name, f"{len(logs)}", *describe(scores(logs))]


def _grouped(rows: Sequence[EngineRow], logs: Array, group: Callable[[EngineRow], str]) -> str:
    """Table of scores by a group of each row."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[group(row)].append(place)
    lines = [_line(name, logs[places[name]]) for name in sorted(places)]
    return table(["", *HEAD], [*lines, *([_line("all", logs)] if len(lines) > 1 else [])])


def _by_kernels(engine: Sequence[EngineRow]) -> str:
    """Scores of dense rows on Hopper with flat rates and with kernels that were measured by themselves."""
    rows = tuple(row for row in engine if row.kind.startswith("dense") and row.chip in ("h100", "h200"))
    by_library = [
        f"+library/{part}@mapping.stack.{part}=trtllm_h100" for part in MEASURED_KERNELS if part not in ("grouped_gemm",)
    ]
    measured = np.log(simulate_rows(rows, *by_library))
    return table(["kernels", *HEAD], [_line("flat rates", _logs(rows)), _line("measured alone", measured)])


def _without_terms(rows: Sequence[EngineRow]) -> str:
    """Bias of rows without each term, by kind of deployment."""
    kinds = sorted({row.kind for row in rows})
    lines = [["all terms", *_biases(rows, np.log(simulate_rows(rows)), kinds)]]
    for name, settings in TERMS.items():
        logs = np.log([_without(row, name, settings) for row in rows])
        lines.append([f"without {name}", *_biases(rows, logs, kinds)])
    return table(["", "median abs. error", "bias", *kinds], lines)


def _without(row: EngineRow, name: str, settings: Iterable[str]) -> float:
    """Simulated over measured speed of a row without a term; with it where the row's stack or deployment does not read it."""
    reads = (row.tp > 1 or name not in ONLY_LINKS) and (row.kind.startswith("experts") or name not in ONLY_EXPERTS)
    if (name == "busiest die" and row.ep == 1) or (name == "eager launches" and row.stack != "trtllm_v1"):
        reads = False
    return simulate_rows([row], *(f"mapping.stack.{setting}" for setting in settings if reads))[0]


def _biases(rows: Sequence[EngineRow], logs: Array, kinds: Sequence[str]) -> list[str]:
    scored = scores(logs)
    of_kinds = (float(np.median(np.exp(logs[[row.kind == kind for row in rows]]))) - 1 for kind in kinds)
    return [f"{scored['median']:.1%}", f"{scored['bias']:+.0%}", *(f"{bias:+.0%}" for bias in of_kinds)]


if __name__ == "__main__":
    print(finding())
