"""Constants of a library's matrix product kernels.

Their meaning for time is in ``evaluators/kernels/library/gemm.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, part_field, quantity_field, ranges, record_class

SPLITS = "parts of the inner dimension that cores share, at most: 1, 2, 4, 8 or 16"


@record_class
class QuantisedGemm:
    """Fitted constants of 8-bit products with one kind of scales."""

    start: Number = quantity_field("s", "start of the quantising kernel, with its wait")
    achieved: Number = quantity_field("1", "share of the engines' peak at 8 bits that products reach", high=1.0, positive=True)
    splits: Number = integer_field(SPLITS)
    waves: Any = quantity_field(
        "1", "share of the last wave of tiles that stays idle; as for 16 bits if absent", high=1.0, absent=True
    )
    padding: Any = quantity_field(
        "s", "core time per inner column and row of the last tile beyond the product's rows; none if absent", absent=True
    )


@record_class
class EightBitGemm:
    """Fitted constants of 8-bit products whose activations come in 16 bits and are quantised first."""

    traffic: Number = quantity_field(
        "1", "share of the memory's bandwidth for reading activations in 16 bits and writing them in 8", positive=True
    )
    tensor: Any = part_field(
        "products with one scale per tensor or channel; if absent, at full tiles' share of 16 bits, quantised before",
        QuantisedGemm,
    )
    block: Any = part_field(
        "products with scales of blocks; if absent, at full tiles' share of 16 bits, quantised before", QuantisedGemm
    )


@record_class
class GemmConstants:
    """Fitted constants of one library's matrix products."""

    start: Number = quantity_field("s", "start and end of a kernel, independent of size")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    sharpness: Number = quantity_field("1", "q of (compute^q + memory^q)^(1/q): 1 for no overlap", low=1.0, high=50.0)
    waves: Number = quantity_field(
        "1", "share of the last wave of tiles over the cores that stays idle: 0 if tiles are cut to fit", high=1.0
    )
    tile: Number = quantity_field("s", "start and end of a tile on a core, besides its operations")
    splits: Number = integer_field(SPLITS)
    join: Any = quantity_field("s", "time to add partial sums if the inner dimension is split; none if absent", absent=True)
    eight: Any = part_field(
        "8-bit products; if absent, at 16-bit shares of the engine's rate, with quantised operands",
        EightBitGemm,
    )
    measured_ranges: Any = ranges()
