"""Constants of a library's passes over elements; what they mean for time is in ``evaluators/kernels/library/passes.py``."""

from typing import Any

from dse.space.elementwise import Number
from dse.space.fields import part, quantity, ranges, record


@record
class Pass:
    """Passes of one sort."""

    start: Number = quantity("s", "start of the kernels and their end")
    share: Number = quantity(
        "1", "share of the memory's bandwidth at which what an operator reads and writes goes by", positive=True
    )
    cached: Any = quantity(
        "1", "share of the cache that bytes may be for half of them to come from it; absent: none do", high=1.0, positive=True,
        absent=True,
    )  # fmt: skip
    core: Any = quantity(
        "B/s", "rate of a core over the rows that it has in turn, the cache's included; absent: the cache's bandwidth alone",
        positive=True, absent=True,
    )  # fmt: skip


@record
class Passes:
    """One library's passes over elements; operators of a sort that is absent go at flat rates."""

    row: Any = quantity(
        "B/s", "rate of the core that works on one row; absent: several share a row out", positive=True, absent=True
    )
    sharpness: Number = quantity(
        "1", "q of (start^q + rest^q)^(1/q): 1 where starts add, more where the host hides the work", low=1.0, high=50.0
    )
    walked: Any = quantity(
        "s", "of each of up to 16 rows that are picked from a table, one after the other; absent: rows go together", absent=True
    )
    norm: Any = part("norms of rows", Pass)
    gate: Any = part("activations, gated ones too", Pass)
    rotate: Any = part("rotations of queries and keys by their positions", Pass)
    copy: Any = part("sums and other operators on single elements", Pass)
    gather: Any = part("rows that are picked from a table, as embeddings are", Pass)
    softmax: Any = part("softmax of rows by itself", Pass)
    measured_ranges: Any = ranges()
