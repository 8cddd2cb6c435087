"""Many designs and cases, one by one: for readers that play, which take numbers."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dse.space.design import Design
from dse.space.fields import leaves, replaced
from dse.space.later import now

T = TypeVar("T")


def one_by_one(design: Design, cases: Sequence[T], metrics: Callable[[Design, T], dict[str, Any]]) -> dict[str, Any]:
    """Metrics design by design and case by case.

    Args:
        design: leaves may be arrays over designs.
        cases: what is asked.
        metrics: of one design, whose leaves are numbers, and one case.

    Returns:
        By name, shape (cases, designs); floats where there is one of each. Not a number where a design has no such metric.
    """
    wide = [(address, np.ravel(value)) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)]
    count = max((len(values) for _, values in wide), default=1)
    found: dict[str, Any] = {}
    for place in range(count):
        one = replaced(design, {address: values[place if len(values) > 1 else 0].item() for address, values in wide})
        for row, case in enumerate(cases):
            for name, value in now(metrics(one, case)).items():
                found.setdefault(name, np.full((len(cases), count), np.nan))[row, place] = value
    return found if wide or len(cases) > 1 else {name: float(values[0, 0]) for name, values in found.items()}
