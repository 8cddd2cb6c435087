"""The page of a question of capacity: a user's tokens against a device's, latency against load, and deployments."""

import html
from typing import Any

from dse.report.data import embedded
from dse.report.page import HERE, plotly_code


def capacity_page(data: dict[str, Any]) -> str:
    """One HTML file that needs nothing beside it.

    Args:
        data: as `dse.commands.capacities.record` has it.
    """
    text = (HERE / "capacity.html").read_text()
    title = f"{data['chips'][0]['model']} on {', '.join(side['chip'] for side in data['chips'])}"
    filled = {"{{title}}": html.escape(title), "{{data}}": embedded(data), "{{plotly}}": plotly_code()}
    for name, value in filled.items():
        text = value.join(text.split(name, 1))
    return text
