"""Pages of one answer, and common parts of all pages: self-contained HTML files."""

import html
from pathlib import Path
from typing import Any

from dse.documents.calibrate_document import CalibrateDocument
from dse.documents.capacity_document import CapacityDocument
from dse.documents.claims_document import ClaimsDocument
from dse.documents.fleet_document import FleetDocument
from dse.documents.validate_documents import ValidationDocument
from dse.report.plotly_library import read_plotly_source
from dse.terminal.json_text import format_json

HERE = Path(__file__).parent


def build_capacity_page(document: CapacityDocument) -> str:
    """Page of a capacity question: speed per user against device, latency against load, deployments.

    Args:
        document: of the answer.
    """
    chips = document.chips
    return _fill_template("capacity", f"{chips[0].model} on {', '.join(side.chip for side in chips)}", document)


def build_fleet_page(document: FleetDocument) -> str:
    """Page of a fleet's day: rate, systems, and load of a system by hour; totals beside a fixed fleet.

    Args:
        document: of the answer.
    """
    models = dict.fromkeys(model.model for fleet in document.fleets for model in fleet.models)
    chips = [fleet.chip for fleet in document.fleets]
    return _fill_template("fleet", f"{', '.join(models)} on {', '.join(chips)}", document)


def build_calibration_page(document: CalibrateDocument) -> str:
    """Page of a calibration: measured against simulated, and constants before and after.

    Args:
        document: of the calibration.
    """
    return _fill_template("calibrated", document.file, document)


def build_validation_page(document: ValidationDocument) -> str:
    """Page of a validation: measured against simulated for all studies, with errors and failures.

    Args:
        document: of the validation.
    """
    return _fill_template("validated", "", document)


def build_claims_page(document: ClaimsDocument) -> str:
    """Page of the claims of papers: verdicts by paper, and each claim with its place and values.

    Mechanisms and commands are on it too.

    Args:
        document: of the claims.
    """
    return _fill_template("claims", "", document)


def embed_json(value: Any) -> str:
    r"""JSON that is safe inside a script element, whatever its strings contain.

    >>> embed_json({"note": "</script><b>"})
    '{"note":"\\u003c/script>\\u003cb>"}'
    """
    return format_json(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")


def _fill_template(template: str, title: str, data: Any) -> str:
    """One HTML file that needs nothing beside it."""
    text = (HERE / f"{template}.html").read_text()
    for name, value in {"title": html.escape(title), "data": embed_json(data), "plotly": read_plotly_source()}.items():
        text = value.join(text.split("{{" + name + "}}", 1))
    return text
