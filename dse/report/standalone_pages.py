"""Pages of one answer, and common parts of all pages: self-contained HTML files."""

import html
from pathlib import Path
from typing import Any

from dse.report.plotly_library import read_plotly_source
from dse.terminal.json_text import format_json

HERE = Path(__file__).parent


def build_capacity_page(data: dict[str, Any]) -> str:
    """Page of a capacity question: speed per user against device, latency against load, deployments.

    Args:
        data: as `dse.commands.capacity_output.capacity_record` has it.
    """
    return _fill_template(
        "capacity", f"{data['chips'][0]['model']} on {', '.join(side['chip'] for side in data['chips'])}", data
    )


def build_fleet_page(data: dict[str, Any]) -> str:
    """Page of a fleet's day: rate, systems, and load of a system by hour; totals beside a fixed fleet.

    Args:
        data: as `dse.commands.fleet_output.fleet_record` has it.
    """
    models = dict.fromkeys(model["model"] for fleet in data["fleets"] for model in fleet["models"])
    return _fill_template("fleet", f"{', '.join(models)} on {', '.join(fleet['chip'] for fleet in data['fleets'])}", data)


def build_calibration_page(data: dict[str, Any]) -> str:
    """Page of a calibration: measured against simulated, and constants before and after.

    Args:
        data: as `dse.commands.calibrate_output.calibration_record` has it.
    """
    return _fill_template("calibrated", data["file"], data)


def build_validation_page(data: dict[str, Any]) -> str:
    """Page of a validation: measured against simulated for all studies, with errors and failures.

    Args:
        data: as `dse.commands.validate_all.validation_record` has it.
    """
    return _fill_template("validated", "", data)


def build_claims_page(data: dict[str, Any]) -> str:
    """Page of the claims of papers: verdicts by paper, and each claim with its place and values.

    Mechanisms and commands are on it too.

    Args:
        data: as `dse.commands.claim_output.record` has it.
    """
    return _fill_template("claims", "", data)


def embed_json(value: Any) -> str:
    r"""JSON that is safe inside a script element, whatever its strings contain.

    >>> embed_json({"note": "</script><b>"})
    '{"note":"\\u003c/script>\\u003cb>"}'
    """
    return format_json(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")


def _fill_template(template: str, title: str, data: dict[str, Any]) -> str:
    """One HTML file that needs nothing beside it."""
    text = (HERE / f"{template}.html").read_text()
    for name, value in {"title": html.escape(title), "data": embed_json(data), "plotly": read_plotly_source()}.items():
        text = value.join(text.split("{{" + name + "}}", 1))
    return text
