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

    start: Number = quantity_field("s", "start and end of a kernel, independent of size")
    achieved: Number = quantity_field(
        "1", "share of the matrix peak that a core reaches within a tile", high=1.0, positive=True
    )
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    unit: Number = quantity_field("s", "core time per tile of queries, for start, end and softmax, however few keys it has")
    tail: Number = quantity_field(
        "1", "share of the longest tile that the last cores work alone, if there are more tiles than cores", high=1.0
    )
    sharpness: Number = quantity_field("1", "q of (compute^q + memory^q)^(1/q): 1 for no overlap", low=1.0, high=50.0)
    idle: Number = quantity_field("s", "core time per tile beyond the queries of a decode among prompts")
    convert: Number = quantity_field(
        "1",
        "share of the memory's bandwidth for reading queries, keys and values in 16 bits and writing them in 8",
        positive=True,
    )
    rows: int = integer_field("queries of a head in a tile")
    launches: str = option_field(
        "launches of an iteration with prompts and decodes: one, or two with one for decodes", MIXED_BATCH_LAUNCHES
    )
    usual: Any = integer_field(
        "columns of a key and value for which `start`, `unit` and `achieved` are; for all heads if absent", absent=True
    )
    other_start: Any = quantity_field(
        "s", "start and end of a kernel for heads of other columns; as usual if absent", absent=True
    )
    other_unit: Any = quantity_field("s", "core time per tile of heads of other columns; as usual if absent", absent=True)
    wide_achieved: Any = quantity_field(
        "1", "share of the matrix peak within a tile of heads of more columns; as usual if absent", high=1.0, positive=True,
        absent=True,
    )  # fmt: skip
    measured_ranges: Any = ranges()
