"""The page of a validation: measured against simulated, all studies in one picture, with errors and what fails."""

from typing import Any

from dse.report.data import embedded
from dse.report.page import HERE, plotly_code


def validated_page(data: dict[str, Any]) -> str:
    """One HTML file that needs nothing beside it.

    Args:
        data: as `dse.commands.validation.record` has it.
    """
    text = (HERE / "validated.html").read_text()
    for name, value in {"{{data}}": embedded(data), "{{plotly}}": plotly_code()}.items():
        text = value.join(text.split(name, 1))
    return text
