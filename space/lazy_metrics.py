"""Values that are worked out when somebody asks for them."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ASKED: ContextVar[Collection[str] | None] = ContextVar("asked", default=None)
"""Metrics that somebody is known to ask for; None for all."""


class LazyMetrics:
    """Metrics that are worked out together when somebody asks for one of them.

    Args:
        work: that finds them.
    """

    __slots__ = ("_found", "_work")

    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        self._found, self._work = dict[str, Any](), work

    def of(self, name: str) -> Any:
        """One of them."""
        found = self._found
        if not found:
            found.update(self._work())
        value = found[name]
        return value() if callable(value) else value


def lazy_metrics(names: Sequence[str], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Metrics that are worked out together, once, when somebody asks for one of them.

    Where the work leaves a function in the place of a metric, that is called when somebody asks for this one.

    >>> found = lazy_metrics(("energy", "power"), lambda: {"energy": 6.0, "power": 3.0})
    >>> compute_all(found)
    {'energy': 6.0, 'power': 3.0}
    """
    return dict.fromkeys(names, LazyMetrics(work))


def compute_all(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics, all of them worked out."""
    return {name: value.of(name) if type(value) is LazyMetrics else value for name, value in metrics.items()}


def select_metrics(metrics: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Metrics that are there already, and those of the others that somebody asks for."""
    return {name: value for name, value in metrics.items() if name in wanted or not isinstance(value, LazyMetrics)}


@contextmanager
def requested_metrics(wanted: Collection[str] | None) -> Iterator[None]:
    """While it is open, it is known which metrics somebody asks for; None for all.

    Others may be left out of what is worked out together, and are worked out by themselves if somebody asks after all.
    """
    before = _ASKED.set(wanted)
    try:
        yield
    finally:
        _ASKED.reset(before)


def expected_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Those of some metrics that somebody may be going to ask for.

    >>> with requested_metrics({"energy"}):
    ...     expected_metrics(("power", "energy"))
    ('energy',)
    >>> expected_metrics(("power", "energy"))
    ('power', 'energy')
    """
    wanted = _ASKED.get()
    return tuple(name for name in names if wanted is None or name in wanted)
