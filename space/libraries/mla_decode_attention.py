"""Constants of a library's MLA decode attention kernel (absorbed weights).

Their meaning for time is in ``evaluators/kernels/library/mla_decode_attention.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import quantity_field, ranges, record_class


@record_class
class MlaDecodeConstants:
    """Fitted constants of one library's decode attention over one latent per position."""

    start: Number = quantity_field("s", "start of a kernel and its end, whatever its size")
    merge: Number = quantity_field("s", "for each part of a request's cache: partial results are merged one after the other")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    ramp: Number = quantity_field("s", "that reads beyond what the cache of the die keeps take longer to start")
    cached: Number = quantity_field(
        "1", "share of the die's cache bandwidth at which partial results are written and read", high=1.0, positive=True
    )
    convert: Number = quantity_field(
        "1", "share of the memory's bandwidth at which queries of 16 bits become 8, both counted", positive=True
    )
    sharpness: Number = quantity_field(
        "1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0
    )
    measured_ranges: Any = ranges()
