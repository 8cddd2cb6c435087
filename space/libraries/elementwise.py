"""Constants of a library's elementwise kernels.

Their meaning for time is in ``evaluators/kernels/library/elementwise.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import part_field, quantity_field, ranges, record_class


@record_class
class ElementwisePass:
    """Fitted constants of one sort of elementwise kernel: start, bandwidth shares and core rate."""

    start: Number = quantity_field("s", "start of the kernels and their end")
    share: Number = quantity_field(
        "1", "share of the memory's bandwidth at which what an operator reads and writes goes by", positive=True
    )
    cached: Any = quantity_field(
        "1", "share of the cache that bytes may be for half of them to come from it; absent: none do", high=1.0, positive=True,
        absent=True,
    )  # fmt: skip
    core: Any = quantity_field(
        "B/s", "rate of a core over the rows that it has in turn, the cache's included; absent: the cache's bandwidth alone",
        positive=True, absent=True,
    )  # fmt: skip


@record_class
class ElementwiseConstants:
    """Fitted constants of one library's elementwise kernels; absent sorts use the flat rates."""

    row: Any = quantity_field(
        "B/s", "rate of the core that works on one row; absent: several share a row out", positive=True, absent=True
    )
    sharpness: Number = quantity_field(
        "1", "q of (start^q + rest^q)^(1/q): 1 where starts add, more where the host hides the work", low=1.0, high=50.0
    )
    walked: Any = quantity_field(
        "s", "of each of up to 16 rows that are picked from a table, one after the other; absent: rows go together", absent=True
    )
    norm: Any = part_field("norms of rows", ElementwisePass)
    gate: Any = part_field("activations, gated ones too", ElementwisePass)
    rotate: Any = part_field("rotations of queries and keys by their positions", ElementwisePass)
    copy: Any = part_field("sums and other operators on single elements", ElementwisePass)
    gather: Any = part_field("rows that are picked from a table, as embeddings are", ElementwisePass)
    softmax: Any = part_field("softmax of rows by itself", ElementwisePass)
    measured_ranges: Any = ranges()
