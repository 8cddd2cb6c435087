"""Export of the programs of a question to other simulators: files of each target, and a summary."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dse.config.question import Question, build_question
from dse.exports import booksim, chakra, chakra_programs, chakra_steps, dramsim3, memory_requests, ramulator
from dse.exports.export_files import LARGEST_MAX_PACKETS, TraceSchema, write_summary
from dse.exports.kernel_programs import PROGRAM_SOFTWARE, case_programs
from dse.space.errors import DesignError
from dse.space.software import software_of
from dse.space.workload import BatchCase, CollectiveCase, MemoryStreamCase, NocTrafficCase, WorkloadCase

Entries = list[dict[str, Any]]


class ExportTarget(NamedTuple):
    """Simulator that an export writes for.

    Attributes:
        schemas: of its files.
        write: function of (question, case, fidelity, folder, most) that writes files and returns totals.
    """

    schemas: Sequence[TraceSchema]
    write: Callable[[Question, WorkloadCase, str, Path, int], Entries]


def export_question(config: dict[str, Any], to: str, folder: Path, most: int) -> Entries:
    """Write the programs of each case for a simulator, with ``summary.json``; returns totals.

    Args:
        config: composed question.
        to: a word of `TARGETS`.
        folder: of the files; made where it is missing.
        most: packets, requests or nodes of one program at most.

    Raises:
        DesignError: the target does not support the workload, there would be too many packets, or files cannot be written.
    """
    if to in UNSUPPORTED:
        raise DesignError(f"export-program --to: {UNSUPPORTED[to]}")
    if not 1 <= most <= LARGEST_MAX_PACKETS:
        raise DesignError(f"export-program --max-packets: must be from 1 to {LARGEST_MAX_PACKETS:,}, got {most:,}")
    question, target = build_question(config, Path()), TARGETS[to]
    cases, entries = question.workload.cases, []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, case in enumerate(cases):
            place = folder / f"case{number}" if len(cases) > 1 else folder
            place.mkdir(exist_ok=True)
            written = target.write(question, case, config.get("fidelity", "analytical"), place, most)
            entries += [{"case": case.label, "folder": place.name if place != folder else ".", **entry} for entry in written]
        write_summary(folder, target.schemas, entries)
    except DesignError:
        _remove_empty(folder)
        raise
    except OSError as error:
        raise DesignError(f"export-program --out: {error.filename or folder}: {error.strerror}; name another folder") from None
    return entries


def _remove_empty(folder: Path) -> None:
    """Remove a folder, and those of cases in it, where nothing was written."""
    for place in (*folder.glob("case*"), folder):
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _write_booksim(question: Question, case: WorkloadCase, fidelity: str, folder: Path, most: int) -> Entries:
    if isinstance(case, NocTrafficCase):
        return [booksim.write_booksim_traffic(question.base.chip, case, "traffic", folder)]
    return [booksim.write_booksim_program(run, folder, most) for run in case_programs(question.base, case)]


def _request_traces(question: Question, case: WorkloadCase, most: int) -> list[memory_requests.RequestTrace]:
    if isinstance(case, MemoryStreamCase):
        return [memory_requests.stream_trace(question.base, case, most)]
    return [trace for run in case_programs(question.base, case) for trace in memory_requests.program_traces(run, most)]


def _write_dramsim3(question: Question, case: WorkloadCase, fidelity: str, folder: Path, most: int) -> Entries:
    return [dramsim3.write_dramsim3(trace, folder) for trace in _request_traces(question, case, most)]


def _write_ramulator(question: Question, case: WorkloadCase, fidelity: str, folder: Path, most: int) -> Entries:
    return [ramulator.write_ramulator(trace, folder) for trace in _request_traces(question, case, most)]


def _write_chakra(question: Question, case: WorkloadCase, fidelity: str, folder: Path, most: int) -> Entries:
    design = question.base
    if isinstance(case, BatchCase):
        return chakra_steps.write_chakra_steps(design, case, fidelity, folder, most)
    if isinstance(case, CollectiveCase) and software_of(design.mapping) not in PROGRAM_SOFTWARE:
        return [chakra_steps.write_chakra_collective(design, case, fidelity, folder)]
    return [chakra_programs.write_chakra_program(run, folder, most) for run in case_programs(design, case)]


TARGETS = {
    "booksim": ExportTarget(booksim.SCHEMAS, _write_booksim),
    "chakra": ExportTarget(chakra.SCHEMAS, _write_chakra),
    "ramulator": ExportTarget(ramulator.SCHEMAS, _write_ramulator),
    "dramsim3": ExportTarget(dramsim3.SCHEMAS, _write_dramsim3),
}
"""Simulators by the word of ``--to``."""

UNSUPPORTED = {
    "softhier": "SoftHier publishes a C run-time library (github.com/pulp-platform/softhier-sdk at cfddd5c) and no format of "
    "tile programs; use chakra or booksim"
}
"""Simulators that get no files, with the reason."""
