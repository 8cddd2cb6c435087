"""Designs and cases evaluated one by one, for simulators that take scalar designs."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dse.space.design import Design
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.lazy_metrics import compute_all

T = TypeVar("T")


def compute_metrics_per_design(
    design: Design, cases: Sequence[T], metrics: Callable[[Design, T], dict[str, Any]]
) -> dict[str, Any]:
    """Metrics computed design by design and case by case.

    Args:
        design: leaves may be arrays over designs.
        cases: cases to evaluate; one of them may stand for several lengths or batches.
        metrics: metrics of one scalar design and one case; shape (lengths, 1) of a case that stands for several.

    Returns:
        By name, shape (cases, designs), or (cases, lengths, designs); floats where there is one of each. Not a number where a
        design has no such metric.
    """
    wide = [(address, np.ravel(value)) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)]
    count = max((len(values) for _, values in wide), default=1)
    found_metrics: dict[str, Any] = {}
    for place in range(count):
        leaves = replace_leaves(design, {address: values[place if len(values) > 1 else 0].item() for address, values in wide})
        for row, case in enumerate(cases):
            for name, value in compute_all(metrics(leaves, case)).items():
                lengths = np.asarray(value)[..., 0] if np.ndim(value) else value
                empty = np.full((len(cases), *np.shape(lengths), count), np.nan)
                found_metrics.setdefault(name, empty)[row, ..., place] = lengths
    if wide or len(cases) > 1:
        return found_metrics
    return {name: float(values[0, 0]) if values.ndim == 2 else values for name, values in found_metrics.items()}


def select_rows(design: Design, rows: Any, apart: tuple[str, ...] = ()) -> Design:
    """Selected rows of a design; a single row, or leaves below `apart`, become scalars."""
    changes: dict[str, Any] = {}
    for address, value, spec in iterate_leaves(design):
        if not isinstance(value, np.ndarray):
            continue
        values = np.ravel(value)[rows % value.size]
        changes[address] = values[0].item() if len(rows) == 1 or address.startswith(apart) else values
        if "options" in spec.metadata and not np.ndim(changes[address]):  # a word, by its place (`tuning/merged_options.py`)
            changes[address] = spec.metadata["options"][changes[address]]
    return replace_leaves(design, changes) if changes else design


def split_group(rows: Any, design: Design, subset: Any) -> list[tuple[Any, Design]]:
    """A group of designs split into single designs and the rest, each with its rows.

    Args:
        rows: of the designs, shape (designs,).
        design: leaves may be arrays over designs.
        subset: which are to be alone, shape (designs,); all where it is of another shape.
    """
    known = np.shape(subset) == np.shape(rows)
    alone = np.flatnonzero(subset if known else np.ones(len(rows), bool))
    others = np.setdiff1d(np.arange(len(rows)), alone)
    parts = [*np.split(alone, len(alone)), *((others,) if len(others) else ())]
    return [(rows[part], select_rows(design, part)) for part in parts]
