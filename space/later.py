"""Values that are worked out when somebody asks for them."""

from collections.abc import Callable, Collection, Sequence
from typing import Any


class Later:
    """A metric that is worked out when somebody asks for it.

    Args:
        name: of the metric.
        all_of: it and others that are worked out together.
    """

    __slots__ = ("_all", "_name")

    def __init__(self, name: str, all_of: Callable[[], dict[str, Any]]) -> None:
        self._name, self._all = name, all_of

    def __call__(self) -> Any:
        """The metric."""
        found = self._all()[self._name]
        return found() if callable(found) else found


def later(names: Sequence[str], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Metrics that are worked out together, once, when somebody asks for one of them.

    Where the work leaves a function in the place of a metric, that is called when somebody asks for this one.

    >>> found = later(("energy", "power"), lambda: {"energy": 6.0, "power": 3.0})
    >>> now(found)
    {'energy': 6.0, 'power': 3.0}
    """
    found: dict[str, Any] = {}

    def all_of() -> dict[str, Any]:
        if not found:
            found.update(work())
        return found

    return {name: Later(name, all_of) for name in names}


def now(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics, all of them worked out."""
    return {name: value() if isinstance(value, Later) else value for name, value in metrics.items()}


def asked(metrics: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Metrics that are there already, and those of the others that somebody asks for."""
    return {name: value for name, value in metrics.items() if name in wanted or not isinstance(value, Later)}
