"""Measured products of matrices, and the parts of stacks that are fitted on them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from dse.evaluators.kernels.library.products import Multiply, took
from dse.evaluators.machine.library import Die
from dse.space.libraries.products import Eight, Products, Quantised
from dse.space.numbers import BYTES
from dse.studies.gpu_measured.measured import Part, Row, Vector, table

FORMATS = {
    "bfloat16": ("bf16", "bf16", ""),
    "fp16": ("fp16", "fp16", ""),
    "fp8": ("fp8", "fp8", "tensor"),
    "fp8_block": ("fp8_128x128", "fp8_1x128", "block"),
}
"""Formats of weights and activations by what tables call them, and how a library scales them."""

NAMES = ("start", "achieved", "hbm", "sharpness", "waves")
START = (5e-6, 0.8, 0.8, 4.0, 0.5)
LOW = (0.0, 0.2, 0.3, 1.0, 0.0)
HIGH = (4e-5, 1.0, 1.0, 20.0, 1.0)

LLAMA_8B = {
    "qkv_proj": (4096, 6144),
    "o_proj": (4096, 4096),
    "gate_up_proj": (4096, 28672),
    "down_proj": (14336, 4096),
    "lm_head": (4096, 128256),
}
"""k and n of layers of the table of RTX 4090."""


def parts(folder: Path) -> list[Part]:
    """Of each stack that has measured products."""
    split = "libraries of this stack split the inner dimension where that takes less"
    alone = "kernels of this table do not split the inner dimension"
    shared = [
        ("trtllm_a100", "a100", _aic(folder, "A100"), 16, split, "aiconfigurator2025"),
        ("vllm_rtx4090", "rtx4090", _layers(folder), 16, split, "llmservingsim2026"),
        ("vllm_a100", "a100", _operators(folder), 16, split, "vidur2024"),
        ("eager_a100", "a100", _eager(folder), 16, split, "llmcompass2024"),
        ("deepgemm_h800", "h800", _deepgemm(folder), 1, alone, "deepgemm2025"),
    ]
    found = [
        Part("products", stack, chip, rows, _plain(splits), _seconds, NAMES, START, LOW, HIGH, {"splits": why}, source)
        for stack, chip, rows, splits, why, source in shared
    ]
    names = (
        *NAMES[:4],
        "eight.tensor.start",
        "eight.tensor.achieved",
        "eight.traffic",
        "eight.block.start",
        "eight.block.achieved",
    )
    said = {
        "waves": "kernels of this stack cut tiles to fit the cores: a fit of it ends at 0",
        "splits": split,
        "eight.tensor.splits": split,
        "eight.block.splits": "kernels with scales of blocks do not split the inner dimension",
    }
    return [
        Part(
            "products", "trtllm_h100", "h100", _aic(folder, "H100"), _quantised, _seconds, names,
            (*START[:4], 9e-6, 0.7, 0.4, 2e-6, 0.6), (*LOW[:4], 0.0, 0.2, 0.05, 0.0, 0.2),
            (*HIGH[:4], 3e-5, 1.0, 2.0, 3e-5, 1.0), said, "aiconfigurator2025",
        ),
        *found,
    ]  # fmt: skip


def _seconds(sizes: dict[str, Vector], sort: str, constants: Products, silicon: Die) -> Vector:
    weights, act, scaling = FORMATS[sort]
    m, k, n = sizes["m"], sizes["k"], sizes["n"]
    own = "" if sizes["quantised"].any() else scaling
    of = Multiply(m, k, n, k * n * BYTES[weights], BYTES[act], own, 0.5 if scaling else 1.0)
    return np.asarray(took(of, constants, silicon).seconds())


def _plain(splits: int) -> Callable[[Vector], Products]:
    def record(values: Vector) -> Products:
        start, achieved, hbm, sharpness, waves = map(float, values)
        return Products(start=start, achieved=achieved, hbm=hbm, sharpness=sharpness, waves=waves, splits=splits)

    return record


def _quantised(values: Vector) -> Products:
    start, achieved, hbm, sharpness, tensor, tensors, traffic, block, blocks = map(float, values)
    eight = Eight(
        traffic=traffic,
        tensor=Quantised(start=tensor, achieved=tensors, splits=16),
        block=Quantised(start=block, achieved=blocks, splits=1),
    )
    return Products(start=start, achieved=achieved, hbm=hbm, sharpness=sharpness, waves=0.0, splits=16, eight=eight)


def row(m: float, k: float, n: float, dtype: str, seconds: str, source: str, *, quantised: bool = False) -> Row:
    """A measured product; `quantised` where its operands came in 8 bits."""
    weights, act, _ = FORMATS[dtype]
    words = f"workload=gemm mapping=tensor_parallel mapping.decode.tp=1 workload.shapes=[{m:.0f}x{k:.0f}x{n:.0f}]"
    words += f" mapping.precision.weights={weights} mapping.precision.activations={act}"
    return Row({"m": m, "k": k, "n": n, "quantised": float(quantised)}, dtype, words, float(seconds), source)


def _aic(folder: Path, device: str) -> tuple[Row, ...]:
    return tuple(
        row(float(of["m"]), float(of["k"]), float(of["n"]), of["dtype"], of["seconds"], where)
        for name in ("aic_gemm.csv", "aic_gemm_m_sweep.csv")
        for of, where in table(folder, name)
        if of["device"].startswith(device)
    )


def _layers(folder: Path) -> tuple[Row, ...]:
    return tuple(
        row(float(of["tokens"] or of["sequences"]), *map(float, LLAMA_8B[of["layer"]]), "bfloat16", of["seconds"], where)
        for of, where in table(folder, "rtx4090_llama31_8b_layers.csv")
        if of["layer"] in LLAMA_8B
    )


def _operators(folder: Path) -> tuple[Row, ...]:
    def shape(name: str, tp: int) -> tuple[float, float] | None:
        shapes = {
            "attn_pre_proj": (8192, 10240 / tp),
            "attn_post_proj": (8192 / tp, 8192),
            "mlp_up_proj": (8192, 57344 / tp),
            "mlp_down_proj": (28672 / tp, 8192),
        }
        return shapes.get(name)

    return tuple(
        row(float(of["tokens"]), *sizes, "fp16", of["seconds"], where)
        for of, where in table(folder, "vidur_a100_llama2_70b_ops.csv")
        if (sizes := shape(of["op"], int(of["tp"]))) is not None
    )


def _eager(folder: Path) -> tuple[Row, ...]:
    return tuple(
        row(float(of["m"]), float(of["k"]), float(of["n"]), "fp16", of["seconds"], where)
        for of, where in table(folder, "llmcompass_a100_ops.csv")
        if of["kind"] == "matmul"
    )


def _deepgemm(folder: Path) -> tuple[Row, ...]:
    return tuple(
        row(float(of["m_per_group"]), float(of["k"]), float(of["n"]), of["dtype"], of["seconds"], where, quantised=True)
        for of, where in table(folder, "deepgemm_h800.csv")
        if of["kind"] == "dense"
    )
