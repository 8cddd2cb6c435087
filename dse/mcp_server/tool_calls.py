"""Execution of tool calls: arguments of an assistant in, a published document out.

What an assistant says is data, as that of any stranger: no flags, no code (`dse.config.untrusted_files`), no file outside of
the folder, as a message may quote a line of it, and no other place of results than ./runs.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dse.config.untrusted_files import SHIPPED_CONF, TRUST_HINT, check_stored_overrides
from dse.documents.capacity_document import CapacityDocument
from dse.documents.compare_document import CompareDocument
from dse.documents.evaluate_document import EvaluateDocument
from dse.documents.explain_document import ExplainDocument
from dse.documents.front_document import FrontDocument, RunDocument
from dse.documents.list_document import ListDocument
from dse.documents.records import Document
from dse.documents.reference_document import ReferenceDocument
from dse.documents.sweep_document import SweepDocument
from dse.documents.validate_documents import ValidationDocument
from dse.documents.whynot_document import WhynotDocument
from dse.mcp_server import check_arguments
from dse.space.errors import DesignError
from dse.terminal.progress import ProgressCallback

GROUPS = ("chip", "model", "mapping", "workload", "stack", "inference_engine", "part", "space", "search", "verify", "workers")
"""Groups of options that overrides choose from."""

MOST_COMBINATIONS = 256
"""Combinations of a sweep at most, some 2 kB of its document each: an assistant reads all of it."""

PLACES = ("store", "run_dir")
"""Fields that say where results are."""

OUTSIDE = re.compile(r"""(^|[\s\[{(,:=|'"])(/+\w|~|(\.\./*)+(\w|$))|/\.\.(/|$)""")
"""In a value: a path from the root, a URL, or a path that goes up."""


def call_tool(name: str, arguments: Mapping[str, Any], report_progress: ProgressCallback) -> Document:
    """Answer of a tool: the document that `dse.mcp_server.TOOLS` names.

    Args:
        name: of the tool.
        arguments: as the assistant gave them.
        report_progress: takes how far it is.

    Raises:
        DesignError: an argument, or what it asks for, is wrong.
    """
    given = check_arguments(name, arguments)
    words = _safe_words(name, given.get("overrides", []))
    study, design = given.get("study", ""), given.get("design", "")
    if study and (Path(study).name != study or study.startswith(".")):
        raise DesignError(f"{name}: study: {study!r} is no name of a study; the tool list says which there are")
    if name == "run":
        return _run_tool(study, words, report_progress)
    does: dict[str, Callable[[], Document]] = {
        "list": _list_studies,
        "reference": lambda: _reference_tool(given["kind"], given.get("word", "")),
        "compare": lambda: _compare_tool(words, given.get("objective", "")),
        "capacity": lambda: _capacity_tool(words),
        "sweep": lambda: _sweep_tool(words, given.get("objective", "")),
        "validate": lambda: _validate_tool(given["studies"]),
        "evaluate": lambda: _evaluate_tool(study, design, words),
        "front": lambda: _front_tool(study),
        "why": lambda: _why_tool(study, design, words),
        "whynot": lambda: _whynot_tool(study, design, words),
    }
    return does[name]()


def list_options() -> dict[str, Any]:
    """Presets that overrides can choose, by group, fidelities, and metrics with their definitions."""
    from dse.evaluators import FIDELITIES, METRICS

    chosen = {
        group: sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml") if path.stem != "usual") for group in GROUPS
    }
    metrics = {
        name: {"unit": metric.unit, "better": metric.better, "definition": metric.definition}
        for name, metric in METRICS.items()
    }
    return {**chosen, "fidelity": list(FIDELITIES), "metrics": metrics}


def _safe_words(name: str, overrides: list[str]) -> list[str]:
    """Overrides as data, none of which says where results are, whose machines work, or a file that is not in the folder."""
    try:
        words = check_stored_overrides(overrides, name)
    except DesignError as error:
        raise DesignError(f"{str(error).removesuffix(TRUST_HINT)}; refused from an assistant") from None
    for word in words:
        root = word.lstrip("+~").partition("=")[0].partition(".")[0].strip()
        if root in PLACES:
            raise DesignError(
                f"{name}: {word!r}: results are in ./runs of the folder of the server; name=NEW puts them beside others"
            )
        if root == "ray":
            raise DesignError(f"{name}: {word!r}: only users may choose a cluster; remove it, and Ray starts on this machine")
        value = word.partition("=")[2]
        if any(OUTSIDE.search(read) or _leads_outside(read) for read in (value, value.replace("\\", ""))):
            raise DesignError(f"{name}: {word!r}: names a place outside of the folder of the server; bring the file there")
    return words


def _leads_outside(value: str) -> bool:
    """Whether a path in a value is, or is below, a link to a place outside of the folder of the server or of a study in it."""
    current_path = Path.cwd().resolve()
    folders = [Path(), *(path.parent for path in Path("studies").glob("*/study.yaml"))]
    names = filter(None, re.split(r"[\[\]{},:'\"\s]+", value))
    paths = [folder / name for name in {value, *names} for folder in folders]
    return any(os.path.lexists(path) and not path.resolve().is_relative_to(current_path) for path in paths)


def _list_studies() -> ListDocument:
    from dse.commands.study_output import studies_record
    from dse.config.overrides import find_study_paths

    return studies_record(find_study_paths())


def _evaluate_tool(study: str, design: str, words: list[str]) -> EvaluateDocument:
    from dse.commands.evaluate_output import evaluation_record
    from dse.commands.notebook_api import load
    from dse.commands.python_questions import evaluate

    if not study and not design:
        return evaluation_record(evaluate(words))
    if not study or not design or words:
        raise DesignError("evaluate: expected study and design (an id of the study), or overrides alone")
    return evaluation_record(load(study).evaluate(design))


def _reference_tool(kind: str, word: str) -> ReferenceDocument:
    from dse.commands.reference_output import reference_record
    from dse.reference.catalogue import list_entries

    return reference_record(kind, list_entries(kind, word))


def _compare_tool(words: list[str], objective: str) -> CompareDocument:
    from dse.analysis.compare import DEFAULT_OBJECTIVE
    from dse.commands.answer_documents import document
    from dse.commands.python_questions import compare

    return document(compare(words, objective=objective or DEFAULT_OBJECTIVE))


def _capacity_tool(words: list[str]) -> CapacityDocument:
    from dse.commands.answer_documents import document
    from dse.commands.python_questions import capacity

    return document(capacity(words))


def _sweep_tool(words: list[str], objective: str) -> SweepDocument:
    from dse.analysis.sweep import sweep
    from dse.commands.sweep_output import sweep_document

    return sweep_document(sweep(words, objective, most=MOST_COMBINATIONS))


def _validate_tool(studies: list[str]) -> ValidationDocument:
    """Rows of studies, without a page: this server writes nothing."""
    from dse.commands.validate_all import list_published_files, simulate_rows, validation_record

    if not studies:
        raise DesignError("validate: name one or more studies, as in waferllm_gemv; all take minutes")
    return validation_record(simulate_rows(list_published_files(studies)))


def _front_tool(study: str) -> FrontDocument:
    from dse.commands.explain import study_front_record

    return study_front_record(study)


def _why_tool(study: str, design: str, words: list[str]) -> ExplainDocument:
    from dse.commands.explain import explain_overrides, explain_study_design
    from dse.commands.explain_output import explanation_record

    if design and not study:
        raise DesignError(f"why: {design!r} is a design of a study; set study")
    if study and not design and not words:
        raise DesignError("why: name a design of the study, by design or by overrides; the tool front lists its front")
    return explanation_record(explain_study_design(study, design, words) if study else explain_overrides(words))


def _whynot_tool(study: str, design: str, words: list[str]) -> WhynotDocument:
    from dse.commands.explain import explain_dominance
    from dse.commands.whynot_output import dominance_record

    return dominance_record(explain_dominance(study, words, design=design))


def _run_tool(study: str, words: list[str], report_progress: ProgressCallback) -> RunDocument:
    """Runs a study as ``dse run`` does, in ./runs of this folder; then reads its front as ``dse explain`` does."""
    from dse.commands.notebook_api import load
    from dse.commands.run_study import run_study
    from dse.config.compose import compose, find_study_folder
    from dse.execution.study import build_study as built
    from dse.report.study_page import report_path
    from dse.space.safe_text import mask_passwords

    config = compose([f"study={study}", *words])
    wanted_built = built(config, find_study_folder(config))
    if wanted_built.run_dir.parent != Path("runs").resolve():
        raise DesignError(
            f"run: {wanted_built.name!r} would write to {wanted_built.run_dir}, outside of ./runs; choose a plain name=NEW"
        )
    if run_study(wanted_built, report_progress):
        raise DesignError("run: stopped; what is finished is stored, and the same call goes on from there")
    (*_, last) = load(wanted_built.name).runs()
    return RunDocument(
        name=wanted_built.name,
        state=last["state"],
        results=mask_passwords(wanted_built.store),
        report=str(report_path([wanted_built])),
        front=_front_tool(wanted_built.name),
    )
