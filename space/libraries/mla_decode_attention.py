"""Constants of a library's MLA decode attention kernel (absorbed weights).

Their meaning for time is in ``evaluators/kernels/library/mla_decode_attention.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import quantity_field, ranges, record_class


@record_class
class MlaDecodeConstants:
    """Fitted constants of one library's decode attention over one latent per position."""

    start: Number = quantity_field("s", "start and end of a kernel, independent of size")
    merge: Number = quantity_field("s", "time per part of a request's KV cache: partial results are merged one after the other")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    ramp: Number = quantity_field("s", "additional start of reads beyond what the die's cache holds")
    cached: Number = quantity_field(
        "1", "share of the die's cache bandwidth for writing and reading partial results", high=1.0, positive=True
    )
    convert: Number = quantity_field(
        "1", "share of the memory's bandwidth for converting 16-bit queries to 8 bits, both counted", positive=True
    )
    sharpness: Number = quantity_field("1", "q of (compute^q + memory^q)^(1/q): 1 for no overlap", low=1.0, high=50.0)
    measured_ranges: Any = ranges()
