"""Kernels that this study compares, with the exports of each and what they hold."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators.calls.call import MeshKernel
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.program_trace import ProgramRun, ProgramTrace, trace_program
from dse.evaluators.cost_models.simulated_kernels import build_kernel_program
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.machine.machine import mesh_program_machine
from dse.evaluators.machine.task_kinds import BLOCK, PACKET
from dse.evaluators.workloads.kernels import evaluate_cases
from dse.exports.export_files import make_document, write_summary
from dse.exports.export_program import SCHEMAS, export_question, write_runs
from dse.exports.kernel_programs import case_programs

ROUTER = ("chip.noc.hop_cycles='5 cycle'", "chip.noc.ramp_cycles='3 cycle'")
"""A hop and ways in and out of the router of the reference curves: four stages and a link, and 7 cycles more for one flit."""

TILES = ("chip=tile32", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", *ROUTER)
WAFER = ("chip=wse2", *ROUTER, "chip.core.word_copy='1 cycle'")
"""A wafer whose cores send a word a cycle, as sources of BookSim do."""

MOST = 200_000
"""Packets, requests or nodes of an export."""


class CrossCheck(NamedTuple):
    """One kernel of the study, with its exports.

    Attributes:
        name: of the kernel, in file names and rows.
        text: what it is, in words.
        words: overrides of the question; empty of a kernel that only models have.
        targets: simulators that get an export.
        kernel: of one that only models have: kind, algorithm and sizes m, k, n on the wafer's cores.
        side: cores on a side of such a kernel.
    """

    name: str
    text: str
    words: tuple[str, ...]
    targets: tuple[str, ...]
    kernel: tuple[str, str, int, int, int] | None = None
    side: int = 8

    def command(self, target: str) -> str:
        """Command that makes the export for a simulator."""
        if self.kernel is not None:
            return f"python -m dse.studies.cross_check export FOLDER {self.name}"
        return f"dse export-program {' '.join(map(quote_word, self.words))} --to {target}"


def quote_word(word: str) -> str:
    """Override as it is typed in a shell."""
    return f'"{word}"' if " " in word or "[" in word else word


CASES = (
    CrossCheck(
        "meshgemm",
        "MeshGEMM of 256 x 256 x 256 on 8 x 8 wafer cores",
        (*WAFER, "workload=gemm", "workload.shapes=[256x256x256]", "mapping.rows=8", "mapping.gemm=meshgemm"),
        ("booksim", "chakra"),
    ),
    CrossCheck(
        "ktree",
        "vector-matrix product of 1024 x 1024 with a K-tree of 2 phases on 8 x 8 wafer cores",
        (*WAFER, "workload=gemv", "workload.shapes=[1x1024x1024]", "mapping.rows=8", "mapping.gemv=ktree", "mapping.ktree_k=2"),
        ("booksim", "chakra"),
    ),
    CrossCheck(
        "summa",
        "SUMMA of 512 x 512 x 512 from memory on 8 x 8 tiles",
        (*TILES, "workload=gemm", "workload.shapes=[512x512x512]"),
        ("booksim", "dramsim3", "chakra"),
    ),
    CrossCheck(
        "flat_attention",
        "FlatAttention with hardware collectives in groups of 8 x 8 tiles, 2 heads of 512 x 512 x 128",
        (
            *TILES, "workload=attention", "workload.batch=1", "workload.heads=2", "workload.keys=[512]",
            "mapping.dataflow=flat_hw", "mapping.rows=8", "mapping.cols=8",
        ),
        ("booksim", "dramsim3", "chakra"),
    ),
    CrossCheck(
        "all_to_all",
        "direct all-to-all of 64 KiB a tile among 8 x 8 tiles",
        (
            *TILES, "workload=collective", "workload.pattern=all_to_all", "mapping.collective=direct", "workload.group=mesh",
            "workload.group_axis=rectangle", "workload.root=0", "workload.bytes=['64 KiB']",
        ),
        ("booksim", "chakra"),
    ),
    CrossCheck(
        "ep_exchange",
        "dispatch of 64 tokens of 2048 values to experts on 8 x 8 wafer cores",
        (),
        ("booksim", "chakra"),
        ("move", "dispatch", 64, 2048, 64),
    ),
    CrossCheck(
        "kv_stream",
        "KV cache that decode attention of 8 heads with 1,024 keys reads from memory, on 8 x 8 tiles",
        (*TILES, "workload=attention", "workload.batch=1", "workload.heads=8", "workload.queries=1", "workload.keys=[1024]"),
        ("dramsim3", "ramulator", "booksim"),
    ),
)  # fmt: skip


def find_case(name: str) -> CrossCheck:
    """Case of the study that has a name."""
    return next(case for case in CASES if case.name == name)


@cache
def question_of(case: CrossCheck) -> Question:
    """Question of a case; the wafer's of a kernel that only models have."""
    return build_question(compose_words(case), Path())


def compose_words(case: CrossCheck) -> dict[str, Any]:
    """Composed configuration of a case."""
    words = case.words or (*WAFER, "workload=gemm")
    return compose([word.replace("'", "") if "=[" not in word else word for word in words])


def mesh_kernel(case: CrossCheck) -> MeshKernel:
    """Kernel of a case that only models have."""
    assert case.kernel is not None
    kind, algorithm, *sizes = case.kernel
    return MeshKernel("moe", algorithm, kind, algorithm, GemmShape(*sizes), CoreMesh(case.side, case.side), {})


def runs_of(case: CrossCheck) -> tuple[ProgramRun, ...]:
    """Programs of a case, with their machine."""
    question = question_of(case)
    if case.kernel is None:
        return case_programs(question.base, question.workload.cases[0])
    fabric = mesh_program_machine(question.base.chip).fabric
    assert fabric is not None
    return (ProgramRun(case.name, build_kernel_program(mesh_kernel(case)), fabric),)


def seconds_by_fidelity(case: CrossCheck) -> dict[str, float]:
    """Time of a case by closed form, events and cycles. [s]"""
    question = question_of(case)
    if case.kernel is not None:
        machine = mesh_program_machine(question.base.chip)
        return {word: float(reader.kernel(mesh_kernel(case), machine).seconds) for word, reader in READERS.items()}
    outcomes = {word: evaluate_cases(question.base, question.workload, word) for word in READERS}
    return {word: float(np.ravel(outcome.metrics["latency"])[0]) for word, (outcome,) in outcomes.items()}


def last_moments(run: ProgramRun) -> tuple[float, float]:
    """When the last packet of a program arrives, and its last memory block is served. [cycle]"""
    trace = trace_program(run)
    return _last(trace, PACKET, trace.ready), _last(trace, BLOCK, trace.done)


def _last(trace: ProgramTrace, kind: int, moments: Any) -> float:
    if kind == PACKET:
        of_packets = trace.kind[trace.before] == PACKET
        return float(moments[trace.after[of_packets]].max(initial=0.0))
    return float(moments[trace.kind == kind].max(initial=0.0))


def write_exports(folder: Path, names: tuple[str, ...] = ()) -> Iterator[tuple[CrossCheck, str, list[dict[str, Any]]]]:
    """Write all exports of the study, each into FOLDER/CASE/SIMULATOR; yields totals."""
    for case in CASES:
        if names and case.name not in names:
            continue
        for target in case.targets:
            place = folder / case.name / target
            if case.kernel is None:
                document = export_question(compose_words(case), target, place, MOST)
                yield case, target, [dict(entry.totals) for entry in document.entries]
                continue
            place.mkdir(parents=True, exist_ok=True)
            entries = [{"case": case.text, "folder": ".", **entry} for entry in write_runs(runs_of(case), target, place, MOST)]
            write_summary(place, make_document(target, place, SCHEMAS[target], entries))
            yield case, target, entries
