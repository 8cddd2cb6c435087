"""Parts of a stack of designs: rows that a layout evaluates together, and the design of these rows."""

from collections.abc import Iterator

import numpy as np

from dse.evaluators.accounting.serving_instances import SERVING_PREFIXES
from dse.evaluators.tuning.per_design import select_rows
from dse.space.array_math import Array, distinct_columns
from dse.space.design import Design
from dse.space.fields import iterate_leaves

DesignPart = tuple[Array, Design]
"""Rows of a design of several, and the design that these are."""

DEVICE_LEAVES = ("mapping.serving.instances", "mapping.serving.max_batch_size")
"""Serving settings in which designs on plain devices may differ that are evaluated together."""


def single_rows(design: Design) -> Iterator[DesignPart]:
    """Each row of a design as a separate design."""
    size = max((np.size(value) for _, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)), default=1)
    for row in range(size):
        rows = np.array([row])
        yield rows, select_rows(design, rows)


def groups_with_equal_serving(design: Design, together: tuple[str, ...] = ()) -> Iterator[DesignPart]:
    """Rows of a design that agree in all serving settings except some, and the design of these rows."""
    columns = {address: np.ravel(value) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    apart = tuple(address for address in columns if address.startswith(SERVING_PREFIXES) and address not in together)
    size = max((len(column) for column in columns.values()), default=1)
    given_columns = np.array([np.broadcast_to(columns[address], size) for address in apart] or [np.zeros(size)])
    first, which = distinct_columns(given_columns)
    for kind in range(len(first)):
        rows = np.flatnonzero(which == kind)
        yield rows, select_rows(design, rows, apart)
