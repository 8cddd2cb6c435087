"""Values that are worked out when somebody asks for them."""

from collections.abc import Callable, Collection, Sequence
from typing import Any


class Later:
    """A metric that is worked out when somebody asks for it.

    Args:
        name: of the metric.
        found: it and others that are worked out together; empty before.
        work: that finds them.
    """

    __slots__ = ("_found", "_name", "_work")

    def __init__(self, name: str, found: dict[str, Any], work: Callable[[], dict[str, Any]]) -> None:
        self._name, self._found, self._work = name, found, work

    def __call__(self) -> Any:
        """The metric."""
        if not self._found:
            self._found.update(self._work())
        value = self._found[self._name]
        return value() if callable(value) else value


def later(names: Sequence[str], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Metrics that are worked out together, once, when somebody asks for one of them.

    Where the work leaves a function in the place of a metric, that is called when somebody asks for this one.

    >>> found = later(("energy", "power"), lambda: {"energy": 6.0, "power": 3.0})
    >>> now(found)
    {'energy': 6.0, 'power': 3.0}
    """
    found: dict[str, Any] = {}
    return {name: Later(name, found, work) for name in names}


def now(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics, all of them worked out."""
    return {name: value() if isinstance(value, Later) else value for name, value in metrics.items()}


def asked(metrics: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Metrics that are there already, and those of the others that somebody asks for."""
    return {name: value for name, value in metrics.items() if name in wanted or not isinstance(value, Later)}
