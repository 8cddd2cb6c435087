"""Whole models on parts of 8 x 8 cores by three fidelities, and kernels with broken links."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import dse
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.studies.what_closed_misses.families import STUDY, TILES, WAFER

MODELS = {
    "64 NPU cores, Qwen3-1.7B": ("chip=npu64", "mapping=npu", "space=empty", "model=qwen3_1b7"),
    "64 NPU cores, DeepSeek-V2-Lite": ("chip=npu64", "mapping=npu", "space=empty", "model=deepseek_v2_lite"),
    "8 x 8 tiles, Qwen3-1.7B": (*TILES, "space=empty", "model=qwen3_1b7", "mapping.both.prefetch.policy=none"),
    "8 x 8 of a wafer's cores, Qwen3-1.7B": (*WAFER, "space=empty", "model=qwen3_1b7"),
    "8 x 8 of a wafer's cores, Llama-3-8B": (*WAFER, "space=empty"),
}
"""Machines and models, by their text."""

SUBMESHED = ("tiles", "wafer")
"""Machines whose models are simulated kernel by kernel on a submesh."""

LOAD = ("workload.batch=[4]", "workload.prompt=[128]", "workload.output=[4]")

FIDELITIES = ("analytical", "events", "cycles")

KERNELS = {
    "attention by groups of all tiles": (
        *("workload=attention", "workload.batch=1", "workload.heads=8", "workload.keys=[512]", "workload.qk=128"),
        *("mapping.dataflow=flat_hw", "mapping.rows=8", "mapping.cols=8", "mapping.queries=64", "mapping.keys=64"),
    ),
    "attention, each tile by itself": (
        *("workload=attention", "workload.batch=1", "workload.heads=64", "workload.keys=[256]", "workload.qk=128"),
        *("mapping.dataflow=flash2", "mapping.queries=64", "mapping.keys=64"),
    ),
    "product of 512 x 2048 x 2048": ("workload=gemm", "workload.shapes=[512x2048x2048]"),
}
"""Kernels of tiles, by their text."""

FAULTS = ("none", "27-28", "27-28+35-36", "59-60", "51-59")
"""Broken links: in the middle, two side by side, between memory channels, and of a channel up its column."""


class PartTime(NamedTuple):
    """Times of one model on a part, or of one kernel on a mesh with broken links.

    Attributes:
        machine: machine and model, or kernel and broken links.
        fidelity: of these times.
        ttft, tpot: time to the first token and per output token, or of a kernel alone and NaN. [s]
        cpu: time that the evaluation took. [s]
    """

    machine: str
    fidelity: str
    ttft: float
    tpot: float
    cpu: float


def simulate_parts() -> Iterator[PartTime]:
    """Every model by each fidelity, on the same part."""
    from dse.commands.notebook_api import find_study

    for machine, words in MODELS.items():
        question = find_study(STUDY, *words, *LOAD).question
        design = stack_designs([question.base])
        for fidelity in FIDELITIES:
            word = f"{fidelity}@8" if any(name in machine for name in SUBMESHED) else fidelity
            start = time.process_time()
            columns = evaluate(design, question.workload, fidelity=word, metrics=("ttft", "tpot")).columns
            times = (float(columns[name][0]) for name in ("ttft", "tpot"))
            yield PartTime(machine, word, *times, time.process_time() - start)


def simulate_faults() -> Iterator[PartTime]:
    """Every kernel on 8 x 8 tiles, analytical on the whole mesh, and cycle by cycle with broken links."""
    for kernel, words in KERNELS.items():
        for faults in FAULTS:
            for fidelity in ("analytical", "cycles") if faults == "none" else ("cycles",):
                start = time.process_time()
                answer = dse.evaluate(
                    *("chip=tile32", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", *words),
                    *(f"chip.faults={faults}", f"fidelity={fidelity}"),
                )
                seconds = float(answer.metrics["latency"])
                yield PartTime(f"{kernel}; {faults}", fidelity, seconds, float("nan"), time.process_time() - start)
