"""Constants of a library's prefill attention kernel, with decodes in the same launch.

Their meaning for time is in ``evaluators/kernels/library/prefill_attention.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, quantity_field, ranges, record_class

MIXED_BATCH_LAUNCHES = ("one", "two")
"""One launch of prompts and decodes, in which caches are not split over cores; or one of each."""


@record_class
class PrefillAttentionConstants:
    """Fitted constants of one library's prefill attention: tiles of queries that iterate over keys."""

    start: Number = quantity_field("s", "start of a kernel and its end, whatever its size")
    achieved: Number = quantity_field(
        "1", "share of the matrix peak that a core reaches within a tile", high=1.0, positive=True
    )
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    unit: Number = quantity_field(
        "s", "of a core for a tile of queries, however few keys it has: its start, its end and its softmax"
    )
    tail: Number = quantity_field(
        "1", "share of the longest tile that the last cores work alone, where tiles are more than cores", high=1.0
    )
    sharpness: Number = quantity_field(
        "1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0
    )
    idle: Number = quantity_field("s", "of a core for a tile that a decode beside prompts has no queries for")
    convert: Number = quantity_field(
        "1",
        "share of the memory's bandwidth at which queries, keys and values are read in 16 bits and written in 8",
        positive=True,
    )
    rows: int = integer_field("queries of a head that a tile has")
    launches: str = option_field(
        "of an iteration of prompts and decodes: one for both, or two, of which one is for decodes", MIXED_BATCH_LAUNCHES
    )
    measured_ranges: Any = ranges()
