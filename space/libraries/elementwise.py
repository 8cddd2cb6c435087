"""Constants of a library's elementwise kernels.

Their meaning for time is in ``evaluators/kernels/library/elementwise.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import part_field, quantity_field, ranges, record_class


@record_class
class ElementwisePass:
    """Fitted constants of one sort of elementwise kernel: start, bandwidth shares and core rate."""

    start: Number = quantity_field("s", "start and end of the kernels")
    share: Number = quantity_field("1", "share of the memory's bandwidth for an operator's reads and writes", positive=True)
    cached: Any = quantity_field(
        "1", "share of the cache at which half of the bytes come from the cache; none do if absent", high=1.0, positive=True,
        absent=True,
    )  # fmt: skip
    core: Any = quantity_field(
        "B/s", "rate of a core over its rows, cache hits included; only the cache's bandwidth limits if "
               "absent",
        positive=True, absent=True,
    )  # fmt: skip


@record_class
class ElementwiseConstants:
    """Fitted constants of one library's elementwise kernels; absent sorts use the flat rates."""

    row: Any = quantity_field(
        "B/s", "rate of the core that works on one row; several cores share a row if absent", positive=True, absent=True
    )
    sharpness: Number = quantity_field(
        "1", "q of (start^q + rest^q)^(1/q): 1 if starts add, more if the host hides the work", low=1.0, high=50.0
    )
    walked: Any = quantity_field(
        "s",
        "time of each of up to 16 rows gathered from a table, one after the other; rows are gathered together if absent",
        absent=True,
    )
    norm: Any = part_field("norms of rows", ElementwisePass)
    gate: Any = part_field("activations, also gated ones", ElementwisePass)
    rotate: Any = part_field("rotations of queries and keys by their positions", ElementwisePass)
    copy: Any = part_field("sums and other elementwise operators", ElementwisePass)
    gather: Any = part_field("gathers of rows from a table, as for embeddings", ElementwisePass)
    softmax: Any = part_field("softmax of rows as a single kernel", ElementwisePass)
    measured_ranges: Any = ranges()
