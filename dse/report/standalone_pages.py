"""Pages of one answer: self-contained HTML files."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dse.documents.calibrate_document import CalibrateDocument
from dse.documents.capacity_document import CapacityDocument
from dse.documents.claims_document import ClaimsDocument
from dse.documents.compare_document import CompareDocument
from dse.documents.fleet_document import FleetDocument
from dse.documents.validate_documents import ValidationDocument
from dse.evaluators import METRICS
from dse.report.figure_style import RESOURCE_COLOURS, FigureSpec, compose_panels
from dse.report.page_parts import fill_page, pack_bundle
from dse.space.errors import DesignError
from dse.space.units import PREFIXED_UNITS, PREFIXES
from dse.terminal.atomic_files import write_atomically
from dse.terminal.plain_names import PART_NAMES, plain_name, setting_name
from dse.terminal.signals import defer_signals

LIBRARY = ("text.js", "plot.js", "theme.js", "answer.js")
"""Code of all pages of answers, before their own."""


@dataclass(frozen=True)
class PageTable:
    """A table of a page as text.

    Attributes:
        title: above it.
        head: names of the columns; the first column is of words.
        rows: cells of each row, as many as columns.
        words: further columns of words, by name.
        note: a sentence below it; empty string for none.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()
    note: str = ""


def build_described_page(
    title: str,
    verdict: str,
    question: Sequence[str],
    figures: Sequence[FigureSpec],
    tables: Sequence[PageTable],
    notes: Sequence[str],
) -> str:
    """Page that shows figures and tables as they are given, without code of its own.

    Args:
        title: of the page.
        verdict: the answer in one sentence.
        question: sentences on what was asked and what was done.
        figures: each with one panel.
        tables: in order; of long ones the page shows the first rows, and more on demand.
        notes: sentences at the end; none for no such part.
    """
    data = {
        "verdict": verdict,
        "question": list(question),
        "figures": [figure.record() for figure in figures],
        "tables": [{spec.name: getattr(table, spec.name) for spec in fields(table)} for table in tables],
        "notes": list(notes),
    }
    return _answer_page("described", title, data)


def write_answer_page(content: str, page: Path) -> None:
    """Write a page to its file, in a folder that is made if it is absent.

    Args:
        content: HTML.
        page: path of the file.

    Raises:
        DesignError: the path is a folder.
    """
    if page.is_dir():
        raise DesignError(f"{page} is a folder; name a file for the page, as in {page / 'page.html'}")
    page.parent.mkdir(parents=True, exist_ok=True)
    with defer_signals(), write_atomically(page) as place:
        place.write_text(content, encoding="utf-8")


def build_capacity_page(document: CapacityDocument) -> str:
    """Page of a capacity question: speed per user against device, latency against load, deployments.

    Args:
        document: of the answer.
    """
    chips = document.chips
    return _answer_page("capacity", f"Capacity: {chips[0].model} on {', '.join(side.chip for side in chips)}", document)


def build_comparison_page(document: CompareDocument, best: str, shown: Sequence[str]) -> str:
    """Page of chips side by side: a bar a chip for each main metric, shares of time, and all metrics.

    Args:
        document: of the answer.
        best: which chip is best in the objective, in words.
        shown: metrics that have bars.
    """
    known = [name for side in document.chips for name in side.metrics]
    data = {
        "answer": document,
        "best": best,
        "shown": list(shown),
        "names": {name: plain_name(name) for name in dict.fromkeys((*shown, *known))},
        "better": {name: METRICS[name].better for name in shown},
        "colours": RESOURCE_COLOURS,
        "parts": PART_NAMES,
        "settings": {address: setting_name(address) for side in document.chips for address in side.knobs},
        **_unit_prefixes(),
    }
    return _answer_page("compared", f"Comparison: {', '.join(side.chip for side in document.chips)}", data)


def build_fleet_page(document: FleetDocument) -> str:
    """Page of a fleet's day: rate, systems, and load of a system by hour; totals beside a fixed fleet.

    Args:
        document: of the answer.
    """
    models = dict.fromkeys(model.model for fleet in document.fleets for model in fleet.models)
    chips = [fleet.chip for fleet in document.fleets]
    return _answer_page("fleet", f"Fleet: {', '.join(models)} on {', '.join(chips)}", document)


def build_calibration_page(document: CalibrateDocument) -> str:
    """Page of a calibration: measured against simulated, and constants before and after.

    Args:
        document: of the calibration.
    """
    data = {
        "answer": document,
        "names": {row.metric: plain_name(row.metric) for row in document.rows},
        "settings": {address: setting_name(address) for address in _constant_addresses(document)},
        **_unit_prefixes(),
    }
    return _answer_page("calibrated", f"Calibration on {document.file}", data)


def _constant_addresses(document: CalibrateDocument) -> list[str]:
    """Addresses of the constants that a calibration fitted or could not determine."""
    return [*(constant.address for constant in document.constants), *document.undetermined]


def _unit_prefixes() -> dict[str, Any]:
    """What a page needs to write quantities with the prefixes of the terminal."""
    return {"prefixes": [list(pair) for pair in PREFIXES], "scaled": sorted(PREFIXED_UNITS)}


def build_validation_page(document: ValidationDocument) -> str:
    """Page of a validation: measured against simulated for all studies, with errors and failures.

    Args:
        document: of the validation.
    """
    return _answer_page("validated", "Measured against simulated", document)


def build_claims_page(document: ClaimsDocument) -> str:
    """Page of the claims of papers: verdicts by paper, and each claim with its place and values.

    Mechanisms and commands are on it too.

    Args:
        document: of the claims.
    """
    return _answer_page("claims", "Claims of the papers", document)


def build_figure_page(spec: FigureSpec) -> str:
    """Page of one figure that a browser draws, with nothing beside it.

    Args:
        spec: the figure.
    """
    return fill_page("figure.html", spec.title, ("figure_page.js",), compose_panels(spec), plotly=pack_bundle("basic"))


def _answer_page(name: str, title: str, document: Any) -> str:
    """Page of one document, drawn by the code of that name; claims have no plot."""
    plotly = pack_bundle("" if name == "claims" else "basic")
    return fill_page("answer.html", title, (*LIBRARY, f"{name}.js"), document, heading=html.escape(title), plotly=plotly)
