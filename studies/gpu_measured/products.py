"""Measured matrix products, and the stack parts fitted on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dse.evaluators.kernels.library.gemm import Gemm, kernel_time
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.libraries.gemm import EightBitGemm, GemmConstants, QuantisedGemm
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

FORMATS = {
    "bfloat16": ("bf16", "bf16", ""),
    "fp16": ("fp16", "fp16", ""),
    "fp8": ("fp8", "fp8", "tensor"),
    "fp8_block": ("fp8_128x128", "fp8_1x128", "block"),
}
"""Formats of weights and activations by what tables call them, and how a library scales them."""

GROUPS = {"fp8_block": "block fp8, other rows", "bfloat16": "narrow"}
"""Groups of added products by format: row counts between multiples of a tile, and sides below 1,024."""

RANGES = {
    "start": (5e-6, 0.0, 4e-5),
    "achieved": (0.8, 0.2, 1.0),
    "hbm": (0.8, 0.3, 1.0),
    "sharpness": (4.0, 1.0, 20.0),
    "tile": (5e-7, 0.0, 1e-5),
    "waves": (0.5, 0.0, 1.0),
    "join": (2e-6, 0.0, 1e-5),
    "eight.traffic": (0.4, 0.05, 2.0),
    "eight.tensor.start": (9e-6, 0.0, 3e-5),
    "eight.tensor.achieved": (0.7, 0.2, 1.0),
    "eight.block.start": (2e-6, 0.0, 3e-5),
    "eight.block.achieved": (0.6, 0.2, 1.0),
    "eight.block.padding": (2e-11, 0.0, 1e-9),
}
"""Start, low and high of what is fitted, SI."""

SPLIT = "libraries of this stack split the inner dimension where that takes less"
WHOLE = "kernels with scales of blocks do not split the inner dimension"
FEW = "too few rows to fit it beside the others"
NO_NARROW = "no row has so few tiles that only a split of the inner dimension helps"

Fixed = dict[str, tuple[Any, str]]
"""Numbers that are not fitted, with reasons; None for those that a part does not have."""

LLAMA_8B = {
    "qkv_proj": (4096, 6144),
    "o_proj": (4096, 4096),
    "gate_up_proj": (4096, 28672),
    "down_proj": (14336, 4096),
    "lm_head": (4096, 128256),
}
"""k and n of layers of the table of RTX 4090."""


def parts(folder: Path) -> list[FittedPart]:
    """Product parts of each stack that has measurements."""
    whole: Fixed = {"splits": (16, SPLIT)}
    common = whole | {"join": (None, NO_NARROW)}
    cut = "kernels of this stack cut tiles to fit the cores: a fit of it ends at 0"
    eight: Fixed = {"eight.tensor.splits": (16, SPLIT), "eight.block.splits": (1, WHOLE)}
    eight |= {"eight.block.waves": (1.0, "kernels with scales of blocks have tiles of few sizes, and take whole waves")}
    return [
        _part("trtllm_h100", "h100", _aic(folder, "H100"), "aiconfigurator2025", whole | eight | dict.fromkeys(
            ("tile", "waves"), (0.0, cut)
        )),
        _part("trtllm_a100", "a100", _aic(folder, "A100"), "aiconfigurator2025", common),
        _part("vllm_rtx4090", "rtx4090", _layers(folder), "llmservingsim2026", common),
        _part("vllm_a100", "a100", _operators(folder), "vidur2024", common),
        _part("eager_a100", "a100", _eager(folder), "llmcompass2024", common | {"sharpness": (4.0, FEW), "tile": (0.0, FEW)}),
        _part("deepgemm_h800", "h800", _deepgemm(folder), "deepgemm2025", {
            "splits": (1, WHOLE), "join": (None, WHOLE),
            "waves": (1.0, "a core has whole tiles, and rows are too few to fit it"),
        }),
    ]  # fmt: skip


def _part(stack: str, chip: str, rows: tuple[PartRow, ...], source: str, fixed: Fixed) -> FittedPart:
    """A part with fitted numbers and some fixed ones with reasons, with 8-bit products if measured."""
    eight = any(name.startswith("eight") for name in fixed)
    names = tuple(name for name in RANGES if name not in fixed and (eight or not name.startswith("eight")))
    start, low, high = zip(*(RANGES[name] for name in names), strict=True)

    def record(values: Vector) -> GemmConstants:
        given_values = {name: value for name, (value, _) in fixed.items()} | dict(zip(names, map(float, values), strict=True))
        return GemmConstants(**_under(given_values, ""), eight=_eight(given_values) if eight else None)

    return FittedPart(
        "gemm",
        stack,
        chip,
        rows,
        record,
        _seconds,
        names,
        start,
        low,
        high,
        {name: why for name, (_, why) in fixed.items()},
        source,
    )


def _under(values: dict[str, Any], group: str) -> dict[str, Any]:
    """Values of a group, by their own names."""
    return {name.removeprefix(group): value for name, value in values.items() if name.rpartition(".")[0] == group.rstrip(".")}


def _eight(values: dict[str, Any]) -> EightBitGemm:
    tensor, block = (QuantisedGemm(**_under(values, f"eight.{scales}.")) for scales in ("tensor", "block"))
    return EightBitGemm(**_under(values, "eight."), tensor=tensor, block=block)


def _seconds(sizes: dict[str, Vector], sort: str, constants: GemmConstants, silicon: LibraryDie) -> Vector:
    weights, act, scaling = FORMATS[sort]
    m, k, groups = sizes["m"], sizes["k"], sizes.get("groups", 1.0)
    n = sizes["n"] * groups
    gemm = Gemm(m, k, n, k * n * BYTES_BY_FORMAT[weights], BYTES_BY_FORMAT[act], scaling, 0.5 if scaling else 1.0, 1.0, groups)
    return np.asarray(kernel_time(gemm, constants, silicon).seconds())


def row(m: float, k: float, n: float, dtype: str, seconds: str, source: str, group: str = "") -> PartRow:
    """Measured row of one matrix product."""
    weights, act, _ = FORMATS[dtype]
    words = f"workload=gemm mapping=tensor_parallel mapping.decode.tp=1 workload.shapes=[{m:.0f}x{k:.0f}x{n:.0f}]"
    words += f" mapping.precision.weights={weights} mapping.precision.activations={act}"
    return PartRow({"m": m, "k": k, "n": n}, dtype, words, float(seconds), source, group)


def _aic(folder: Path, device: str) -> tuple[PartRow, ...]:
    tables = {"aic_gemm.csv": False, "aic_gemm_m_sweep.csv": False, "extra/gemm.csv": True}
    return tuple(
        row(
            *(float(entry[name]) for name in ("m", "k", "n")),
            entry["dtype"],
            entry["seconds"],
            where,
            GROUPS[entry["dtype"]] if grouped else "",
        )
        for name, grouped in tables.items()
        for entry, where in table(folder, name)
        if entry["device"].startswith(device)
    )


def _layers(folder: Path) -> tuple[PartRow, ...]:
    return tuple(
        row(
            float(entry["tokens"] or entry["sequences"]),
            *map(float, LLAMA_8B[entry["layer"]]),
            "bfloat16",
            entry["seconds"],
            where,
        )
        for entry, where in table(folder, "rtx4090_llama31_8b_layers.csv")
        if entry["layer"] in LLAMA_8B
    )


def _operators(folder: Path) -> tuple[PartRow, ...]:
    def shape(name: str, tp: int) -> tuple[float, float] | None:
        shapes = {
            "attn_pre_proj": (8192, 10240 / tp),
            "attn_post_proj": (8192 / tp, 8192),
            "mlp_up_proj": (8192, 57344 / tp),
            "mlp_down_proj": (28672 / tp, 8192),
        }
        return shapes.get(name)

    return tuple(
        row(float(entry["tokens"]), *sizes, "fp16", entry["seconds"], where)
        for entry, where in table(folder, "vidur_a100_llama2_70b_ops.csv")
        if (sizes := shape(entry["op"], int(entry["tp"]))) is not None
    )


def _eager(folder: Path) -> tuple[PartRow, ...]:
    return tuple(
        row(float(entry["m"]), float(entry["k"]), float(entry["n"]), "fp16", entry["seconds"], where)
        for entry, where in table(folder, "llmcompass_a100_ops.csv")
        if entry["kind"] == "matmul"
    )


def _deepgemm(folder: Path) -> tuple[PartRow, ...]:
    """One product, or one for each group by one call; rows of groups lie one after the other."""
    rows = []
    for entry, where in table(folder, "deepgemm_h800.csv"):
        single_row = row(
            float(entry["m_per_group"]), float(entry["k"]), float(entry["n"]), entry["dtype"], entry["seconds"], where
        )
        several = (
            single_row.words.replace("shapes=[", f"shapes=[{entry['groups']}x") if entry["groups"] != "1" else single_row.words
        )
        rows.append(replace(single_row, sizes=single_row.sizes | {"groups": float(entry["groups"])}, words=several))
    return tuple(rows)
