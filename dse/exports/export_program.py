"""Export of the programs of a question to other simulators: files of each target, and a summary."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.config.question import Question, build_question
from dse.documents.export_document import ExportDocument
from dse.evaluators.accounting.die_crossings import with_divided_mesh
from dse.evaluators.cost_models.program_trace import ProgramRun
from dse.evaluators.evaluation import explain_infeasibility
from dse.exports import booksim, chakra, chakra_programs, chakra_steps, dramsim3, memory_requests, ramulator
from dse.exports.export_files import TraceSchema, make_document, write_summary
from dse.exports.kernel_programs import PROGRAM_SOFTWARE, case_programs
from dse.space.errors import DesignError
from dse.space.software import software_of
from dse.space.workload import BatchCase, CollectiveCase, MemoryStreamCase, NocTrafficCase, WorkloadCase

Entries = list[dict[str, Any]]


def export_question(config: dict[str, Any], to: str, folder: Path, most: int) -> ExportDocument:
    """Write the programs of each case for a simulator, with ``summary.json``; returns the same.

    Args:
        config: composed question.
        to: a word of `SCHEMAS`.
        folder: of the files; made where it is missing.
        most: packets, requests or nodes of one program at most.

    Raises:
        DesignError: the design violates a limit, the target does not support the workload, there would be too many packets,
            or files cannot be written.
    """
    if to in UNSUPPORTED:
        raise DesignError(f"export-program --to: {UNSUPPORTED[to]}")
    question = build_question(config, Path())
    why = explain_infeasibility(question.base, question.workload)
    if why is not None:
        raise DesignError(f"export-program: the design violates a limit: {why}")
    question = replace(question, base=with_divided_mesh(question.base))
    cases, entries = question.workload.cases, []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(cases):
            place = folder / f"case{number}" if len(cases) > 1 else folder
            place.mkdir(exist_ok=True)
            written = _write_case(question, case, to, config.get("fidelity", "analytical"), place, most)
            entries += [{"case": case.label, "folder": place.name if place != folder else ".", **entry} for entry in written]
        document = make_document(to, folder, SCHEMAS[to], entries)
        write_summary(folder, document)
    except DesignError:
        _remove_empty(folder)
        raise
    except OSError as error:
        raise DesignError(f"export-program --out: {error.filename or folder}: {error.strerror}; name another folder") from None
    return document


def _remove_empty(folder: Path) -> None:
    """Remove a folder, and those of cases in it, where nothing was written."""
    for place in (*folder.glob("case*"), folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def write_runs(runs: Sequence[ProgramRun], to: str, folder: Path, most: int) -> Entries:
    """Write programs for a simulator into a folder that exists; returns totals.

    Raises:
        DesignError: the simulator does not support them, or there would be too many packets.
    """
    if to == "booksim":
        return [booksim.write_booksim_program(run, folder, most) for run in runs]
    if to == "chakra":
        return [chakra_programs.write_chakra_program(run, folder, most) for run in runs]
    traces = (trace for run in runs for trace in memory_requests.program_traces(run, most))
    return [MEMORY_WRITERS[to](trace, folder) for trace in traces]


def _write_case(question: Question, case: WorkloadCase, to: str, fidelity: str, folder: Path, most: int) -> Entries:
    """Write one case of a question for a simulator; returns totals."""
    design = question.base
    if to == "booksim" and isinstance(case, NocTrafficCase):
        return [booksim.write_booksim_traffic(design.chip, case, "traffic", folder)]
    if to == "chakra" and isinstance(case, BatchCase):
        return chakra_steps.write_chakra_steps(design, case, fidelity, folder, most)
    if to == "chakra" and isinstance(case, CollectiveCase) and software_of(design.mapping) not in PROGRAM_SOFTWARE:
        return [chakra_steps.write_chakra_collective(design, case, fidelity, folder)]
    if to in MEMORY_WRITERS and isinstance(case, MemoryStreamCase):
        return [MEMORY_WRITERS[to](memory_requests.stream_trace(design, case, most), folder)]
    return write_runs(case_programs(design, case), to, folder, most)


MEMORY_WRITERS = {"dramsim3": dramsim3.write_dramsim3, "ramulator": ramulator.write_ramulator}
"""Writers of a trace of memory requests by simulator."""

SCHEMAS: dict[str, Sequence[TraceSchema]] = {
    "booksim": booksim.SCHEMAS,
    "chakra": chakra.SCHEMAS,
    "ramulator": ramulator.SCHEMAS,
    "dramsim3": dramsim3.SCHEMAS,
}
"""Schemas of the files by simulator, the words of ``--to``."""

UNSUPPORTED = {
    "softhier": "SoftHier publishes a C run-time library (github.com/pulp-platform/softhier-sdk at cfddd5c) and no format of "
    "tile programs; use chakra or booksim"
}
"""Simulators that get no files, with the reason."""
