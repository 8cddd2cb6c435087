"""Values of metrics as text, with their units or the words that they stand for."""

from dse.evaluators import METRICS
from dse.space.units import format_quantity

OF_PART = "part."
"""What begins the names of metrics that are of a part of the mesh: nothing of the whole can be read off them."""


def format_metric(name: str, value: float) -> str:
    """Value of a metric as text: with its unit, or the word that the value stands for."""
    metric = METRICS[name.removeprefix(OF_PART)]
    return metric.words[round(value)] if metric.words else format_quantity(value, metric.unit)
