"""Pages of one answer, and what all pages have: one HTML file each that needs nothing beside it."""

import html
from pathlib import Path
from typing import Any

import plotly.offline

from dse.terminal.json_text import json_text

HERE = Path(__file__).parent


def capacity_page(data: dict[str, Any]) -> str:
    """Of a question of capacity: a user's tokens against a device's, latency against load, and deployments.

    Args:
        data: as `dse.commands.capacity_output.record` has it.
    """
    return _filled("capacity", f"{data['chips'][0]['model']} on {', '.join(side['chip'] for side in data['chips'])}", data)


def calibration_page(data: dict[str, Any]) -> str:
    """Of a calibration: measured against simulated, with the constants as they were and as they came out.

    Args:
        data: as `dse.commands.calibrate_output.record` has it.
    """
    return _filled("calibrated", data["file"], data)


def validation_page(data: dict[str, Any]) -> str:
    """Of a validation: measured against simulated, all studies in one picture, with errors and what fails.

    Args:
        data: as `dse.commands.validate_all.record` has it.
    """
    return _filled("validated", "", data)


def claims_page(data: dict[str, Any]) -> str:
    """Page of the claims of papers: verdicts by paper, and each claim with its place, values, mechanism and command.

    Args:
        data: as `dse.commands.claim_output.record` has it.
    """
    return _filled("claims", "", data)


def plotly_source() -> str:
    """The library that draws, as text for a page."""
    return str(plotly.offline.get_plotlyjs())


def embed_json(value: Any) -> str:
    r"""JSON that can stand inside a script element, whatever its strings say.

    >>> embed_json({"note": "</script><b>"})
    '{"note":"\\u003c/script>\\u003cb>"}'
    """
    return json_text(value, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")


def _filled(template: str, title: str, data: dict[str, Any]) -> str:
    """One HTML file that needs nothing beside it."""
    text = (HERE / f"{template}.html").read_text()
    for name, value in {"title": html.escape(title), "data": embed_json(data), "plotly": plotly_source()}.items():
        text = value.join(text.split("{{" + name + "}}", 1))
    return text
