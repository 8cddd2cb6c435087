"""Metrics of one design as a row of numbers, whose names all designs with the same metrics share.

A search holds the results of tens of thousands of designs with dozens of metrics each: dictionaries take ten times the memory.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

_PLACES: dict[tuple[str, ...], dict[str, int]] = {}
"""Places in a row by name, of each sequence of names."""


class MetricRow(Mapping[str, float]):
    """Metrics by name, in order; equal to a dictionary of the same.

    >>> row = pack_metrics({"tpot": 0.25, "latency": 1.0})
    >>> row["tpot"], list(row), row == {"tpot": 0.25, "latency": 1.0}
    (0.25, ['tpot', 'latency'], True)
    """

    __slots__ = ("_numbers", "_places")

    def __init__(self, places: Mapping[str, int], numbers: "array[float]") -> None:
        self._places, self._numbers = places, numbers

    def __getitem__(self, name: str) -> float:
        return self._numbers[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return pack_metrics, (dict(self),)


def pack_metrics(metrics: Mapping[str, float]) -> Mapping[str, float]:
    """The same metrics as a row; as they are if there are none, or if one is no float."""
    if isinstance(metrics, MetricRow) or not metrics or not all(type(value) is float for value in metrics.values()):
        return metrics
    names = tuple(metrics)
    places = _PLACES.get(names)
    if places is None:
        places = _PLACES[names] = {name: place for place, name in enumerate(names)}
    return MetricRow(places, array("d", metrics.values()))
