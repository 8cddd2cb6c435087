"""Metrics that are computed when they are first read."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_ASKED: ContextVar[Collection[str] | None] = ContextVar("asked", default=None)
"""Metrics that callers will read; None for all."""


class LazyMetrics:
    """Metrics that are computed together when one of them is first read.

    Args:
        work: that finds them.
    """

    __slots__ = ("_found", "_work")

    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        self._found, self._work = dict[str, Any](), work

    def metric(self, name: str) -> Any:
        """Value of one metric, computing the whole set at the first read."""
        metrics = self._found
        if not metrics:
            metrics.update(self._work())
        value = metrics[name]
        return value() if callable(value) else value


def make_lazy_metrics(names: Sequence[str], work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Lazy metrics by name: one computation, at the first read, gives all of them.

    Where the computation returns a function in place of a metric, the function is called when that metric is read.

    >>> found = make_lazy_metrics(("energy", "power"), lambda: {"energy": 6.0, "power": 3.0})
    >>> compute_all(found)
    {'energy': 6.0, 'power': 3.0}
    """
    return dict.fromkeys(names, LazyMetrics(work))


def compute_all(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics with every lazy value computed."""
    return {name: value.metric(name) if type(value) is LazyMetrics else value for name, value in metrics.items()}


def select_metrics(metrics: dict[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Metrics that are computed already, and lazy ones that are wanted."""
    return {name: value for name, value in metrics.items() if name in wanted or not isinstance(value, LazyMetrics)}


@contextmanager
def requested_metrics(wanted: Collection[str] | None) -> Iterator[None]:
    """Set, for the duration of a with block, which metrics callers will read; None for all.

    Other metrics may be left out of joint computations, and are computed separately if they are read.
    """
    before = _ASKED.set(wanted)
    try:
        yield
    finally:
        _ASKED.reset(before)


def expected_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the named metrics that the enclosing `requested_metrics` block may read.

    >>> with requested_metrics({"energy"}):
    ...     expected_metrics(("power", "energy"))
    ('energy',)
    >>> expected_metrics(("power", "energy"))
    ('power', 'energy')
    """
    wanted = _ASKED.get()
    return tuple(name for name in names if wanted is None or name in wanted)
