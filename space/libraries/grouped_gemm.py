"""Constants of a library's grouped expert products.

Their meaning for time is in ``evaluators/kernels/library/grouped_gemm.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import quantity_field, ranges, record_class


@record_class
class GroupedGemmConstants:
    """Fitted constants of one library's expert products: all touched experts in one kernel."""

    start: Number = quantity_field("s", "start and end of one of a layer's products, with the routing of its rows")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles of 16 bits reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that weights and rows reach", high=1.0, positive=True)
    traffic: Number = quantity_field(
        "1", "share of the memory's bandwidth for gathering rows for experts and adding up their results", positive=True
    )
    sharpness: Number = quantity_field("1", "q of (compute^q + memory^q)^(1/q): 1 for no overlap", low=1.0, high=50.0)
    tensor: Any = quantity_field(
        "1",
        "share of the peak for 8 bits with one scale per tensor or channel; as 16 bits if absent",
        high=1.0,
        positive=True,
        absent=True,
    )
    block: Any = quantity_field(
        "1", "share of the peak for 8 bits with scales of blocks; as 16 bits if absent", high=1.0, positive=True, absent=True
    )
    group: Any = quantity_field(
        "s", "additional start per expert on the die, for kernels with scales of blocks; none if absent", absent=True
    )
    tile: Any = quantity_field("s", "start and end of a tile on a core, besides its operations; none if absent", absent=True)
    tensor_start: Any = quantity_field(
        "s", "additional start of a product of 8 bits with one scale per tensor or channel; none if absent", absent=True
    )
    quantised: Any = quantity_field(
        "1",
        "share of the memory's bandwidth for rows read in 16 bits and written in 8 with scales of blocks; none if absent",
        positive=True,
        absent=True,
    )
    measured_ranges: Any = ranges()
