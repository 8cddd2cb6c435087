"""Constants of a library's grouped expert products.

Their meaning for time is in ``evaluators/kernels/library/grouped_gemm.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import quantity_field, ranges, record_class


@record_class
class GroupedGemmConstants:
    """Fitted constants of one library's expert products: all touched experts in one kernel."""

    start: Number = quantity_field("s", "start of one of a layer's products and its end, the routing of its rows included")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles of 16 bits reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that weights and rows reach", high=1.0, positive=True)
    traffic: Number = quantity_field(
        "1", "share of the memory's bandwidth at which rows are gathered for experts, and their results added up", positive=True
    )
    sharpness: Number = quantity_field(
        "1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0
    )
    tensor: Any = quantity_field(
        "1",
        "as achieved, of 8 bits with one scale a tensor or channel; absent: as 16 bits",
        high=1.0,
        positive=True,
        absent=True,
    )
    block: Any = quantity_field(
        "1", "as achieved, of 8 bits with scales of blocks; absent: as 16 bits", high=1.0, positive=True, absent=True
    )
    group: Any = quantity_field(
        "s", "more to start with for each expert on the die, of kernels with scales of blocks; absent: none", absent=True
    )
    measured_ranges: Any = ranges()
