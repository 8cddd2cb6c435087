"""Measured layers of experts, and the stack part fitted on them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dse.evaluators.graph.benchmark_expert_loads import busiest_device_share
from dse.evaluators.kernels.library.grouped_gemm import GroupedGemm, kernel_time
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.libraries.grouped_gemm import GroupedGemmConstants
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table
from dse.studies.gpu_measured.products import FORMATS

NAMES = (
    "start", "achieved", "hbm", "traffic", "sharpness", "tensor", "block", "group", "tile", "tensor_start", "quantised",
)  # fmt: skip


def parts(folder: Path) -> list[FittedPart]:
    """Expert part of the only stack that has measured experts."""
    return [
        FittedPart(
            "grouped_gemm", "trtllm_h100", "h100", _rows(folder), _record, _seconds, NAMES,
            (1e-5, 0.8, 0.85, 0.3, 3.0, 0.7, 0.4, 1e-7, 1e-6, 2e-6, 0.2),
            (0.0, 0.1, 0.3, 0.05, 1.0, 0.1, 0.1, 0.0, 0.0, 0.0, 0.05),
            (4e-5, 1.0, 1.0, 4.0, 20.0, 1.0, 1.0, 2e-6, 1e-5, 1e-5, 4.0),
            {}, "aiconfigurator2025",
        )
    ]  # fmt: skip


def _record(values: Vector) -> GroupedGemmConstants:
    return GroupedGemmConstants(**dict(zip(NAMES, map(float, values), strict=True)))


def _seconds(sizes: dict[str, Vector], sort: str, constants: GroupedGemmConstants, silicon: LibraryDie) -> Vector:
    """A whole layer: two products into experts as one kernel, what is between them, and one out of them."""
    dtype, _, unequal = sort.partition(", ")
    weights, _, scaling = FORMATS[dtype]
    m, touched, held, hidden, inner = (sizes[name] for name in ("m", "touched", "held", "hidden", "inner"))
    common = (scaling, 0.5 if scaling else 1.0, 1.0, sizes["tokens"], unequal == "drawn")
    size = touched * hidden * inner * BYTES_BY_FORMAT[weights]
    kernels = (
        GroupedGemm(m, hidden, 2 * inner, touched, held, 2 * size, 2 * inner, hidden, *common),
        GroupedGemm(m, 0.0, 3 * inner, 0.0, 0.0, 0.0, 3 * inner, 0.0),
        GroupedGemm(m, inner, hidden, touched, held, size, inner, hidden, *common),
    )
    return np.sum([kernel_time(kernel, constants, silicon).seconds() for kernel in kernels], axis=0)


def _rows(folder: Path) -> tuple[PartRow, ...]:
    return tuple(_layers(folder, "aic_moe.csv", given=True)) + tuple(_layers(folder, "extra/moe.csv", given=False))


def _layers(folder: Path, name: str, *, given: bool) -> Iterator[PartRow]:
    for entry, where in table(folder, name):
        tokens, count, top_k, ep, tp = (int(entry[name]) for name in ("tokens", "experts", "topk", "ep", "tp"))
        distribution, _, exponent = (
            entry["distribution"].rpartition("_") if "_" in entry["distribution"] else (entry["distribution"], "", "")
        )
        m, touched = busiest_device_share(tokens, count, top_k, ep, distribution, float(exponent or 0), 0)
        weights, act, _ = FORMATS[entry["dtype"]]
        words = f"workload=experts mapping=tensor_parallel mapping.decode.tp={tp} mapping.precision.weights={weights}"
        words += f" mapping.precision.activations={act} workload.tokens=[{tokens}] workload.hidden={entry['hidden']}"
        words += f" workload.intermediate={entry['inter']} workload.experts={count} workload.top_k={top_k} workload.ep={ep}"
        words += f" workload.distribution={distribution}" + (f" workload.exponent={exponent}" if exponent else "")
        sizes = {
            "m": m,
            "tokens": float(tokens),
            "touched": touched,
            "held": count / ep,
            "hidden": float(entry["hidden"]),
            "inner": float(entry["inter"]) / tp,
        }
        group = "" if given else f"{entry['hidden']} x {entry['inter']}, {entry['dtype']}"
        sort = entry["dtype"] + ("" if distribution == "balanced" else ", drawn")
        yield PartRow(sizes, sort, words, float(entry["seconds"]), where, group)
