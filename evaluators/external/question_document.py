"""A design and a case of a workload as a document of names and numbers, for other programs.

Numbers are in SI. Settings have the addresses that overrides have, and absent ones are left out.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dse.space.design import Design, design_key
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves
from dse.space.workload import WorkloadCase

MAX_DEPTH = 12
"""Records within records of a case."""

VERSION = 1
"""Of the document; raised where a key changes its name or meaning."""


def describe_question(design: Design, case: WorkloadCase, closed: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Document of one design and one case, made of dictionaries, lists, texts and numbers.

    Args:
        design: its leaves are numbers.
        case: of a workload; requests are lists by column.
        closed: metrics of the analytical model, in SI; None leaves them out.

    Returns:
        Keys version, design (its content key), settings (value by address), case (kind and fields) and, if given, analytical
        (metric by name).
    """
    settings = {address: _plain(value) for address, value, _ in iterate_leaves(design) if value is not None}
    document = {
        "version": VERSION,
        "design": design_key(design),
        "settings": settings,
        "case": {"kind": type(case).__name__, **_record(case)},
    }
    return document if closed is None else document | {"analytical": {name: _plain(closed[name]) for name in closed}}


def read_metrics(answer: Any) -> dict[str, float]:
    """Metrics that a simulator answers: an object of numbers by metric, or one whose key metrics has them.

    Raises:
        DesignError: another type, or a value that is no number.
    """
    metrics = answer.get("metrics", answer) if isinstance(answer, dict) else answer
    if not isinstance(metrics, dict) or not metrics:
        raise DesignError(f"expected an object of metrics by name, as in {{'latency': 0.5}}, got {str(answer)[:60]!r}")
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DesignError(f"metric {name[:40]}: expected a number, got {str(value)[:40]!r}")
    return {str(name): float(value) for name, value in metrics.items()}


def _record(value: Any, depth: int = 0) -> dict[str, Any]:
    return {
        each.name: _plain(inner, depth + 1)
        for each in fields(value)
        if (inner := getattr(value, each.name)) is not None and not callable(inner)
    }


def _plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON has it; numbers that are not finite become text."""
    if depth > MAX_DEPTH:
        return str(value)[:80]
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value, depth)
    if isinstance(value, np.ndarray):
        return [_plain(each, depth + 1) for each in value.tolist()]
    if isinstance(value, np.generic):
        return _plain(value.item(), depth)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
