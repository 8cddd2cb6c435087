"""How a metric is composed of the parts of an evaluation, as a declaration that searches can use."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricComposition:
    """Composition of a metric: a sum of parts, or its inverse, times metrics that need no evaluation.

        m = c * (sum of parts) ** power * product of (factor ** its power)

    where c is a constant of the workload, such as a number of tokens. Where there are no parts, c may depend on the design,
    such as the throughput of a serving load, which is divided by an area.

    Attributes:
        parts: beginnings of the names of the parts in the sum, as in ``"decode: "``; empty where there is no sum.
        power: 1 for the sum, -1 for its inverse.
        factors: metrics that are known without an evaluation, such as areas, each with its power.
    """

    parts: tuple[str, ...] = ()
    power: int = 1
    factors: tuple[tuple[str, int], ...] = ()

    def select_names(self, names: Iterable[str]) -> list[str]:
        """Names of the parts in the sum, of those that an evaluation has.

        >>> MetricComposition(parts=("decode: ",)).select_names(["prefill: hbm", "decode: hbm", "decode: matrix"])
        ['decode: hbm', 'decode: matrix']
        """
        return [name for name in names if name.startswith(self.parts)] if self.parts else []
