"""Pages of one answer: self-contained HTML files."""

import html
from collections.abc import Sequence
from typing import Any

from dse.documents.calibrate_document import CalibrateDocument
from dse.documents.capacity_document import CapacityDocument
from dse.documents.claims_document import ClaimsDocument
from dse.documents.compare_document import CompareDocument
from dse.documents.fleet_document import FleetDocument
from dse.documents.validate_documents import ValidationDocument
from dse.evaluators import METRICS
from dse.report.figure_style import RESOURCE_COLOURS, FigureSpec, compose_panels
from dse.report.metric_names import plain_name
from dse.report.page_parts import fill_page, pack_bundle
from dse.space.units import PREFIXED_UNITS, PREFIXES
from dse.terminal.part_names import PART_NAMES

LIBRARY = ("text.js", "plot.js", "theme.js", "answer.js")
"""Code of all pages of answers, before their own."""


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
    data = {
        "answer": document,
        "best": best,
        "shown": list(shown),
        "names": {name: plain_name(name) for name in shown},
        "better": {name: METRICS[name].better for name in shown},
        "colours": RESOURCE_COLOURS,
        "parts": PART_NAMES,
        "prefixes": [list(pair) for pair in PREFIXES],
        "scaled": sorted(PREFIXED_UNITS),
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
    return _answer_page("calibrated", f"Calibration on {document.file}", document)


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
