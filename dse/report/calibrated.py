"""The page of a calibration: measured against simulated, with the constants as they were and as they came out."""

import html
from typing import Any

from dse.report.data import embedded
from dse.report.page import HERE, plotly_code


def calibrated_page(data: dict[str, Any]) -> str:
    """One HTML file that needs nothing beside it.

    Args:
        data: as `dse.commands.calibrated.record` has it.
    """
    text = (HERE / "calibrated.html").read_text()
    filled = {"{{title}}": html.escape(data["file"]), "{{data}}": embedded(data), "{{plotly}}": plotly_code()}
    for name, value in filled.items():
        text = value.join(text.split(name, 1))
    return text
