"""Constants of a library's matrix product kernels.

Their meaning for time is in ``evaluators/kernels/library/gemm.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.fields import integer_field, part_field, quantity_field, ranges, record_class

SPLITS = "parts of the inner dimension, at most, that cores share out: 1, 2, 4, 8 or 16"


@record_class
class QuantisedGemm:
    """Fitted constants of 8-bit products with one kind of scales."""

    start: Number = quantity_field("s", "start of the quantising kernel, and of what it waits for")
    achieved: Number = quantity_field("1", "share of the engines' peak at 8 bits that products reach", high=1.0, positive=True)
    splits: Number = integer_field(SPLITS)


@record_class
class EightBitGemm:
    """Fitted constants of 8-bit products whose activations come in 16 bits and are quantised first."""

    traffic: Number = quantity_field(
        "1", "share of the memory's bandwidth at which activations are read in 16 bits and written in 8", positive=True
    )
    tensor: Any = part_field(
        "with one scale a tensor or channel; absent: at full tiles' share of 16 bits, and quantised before", QuantisedGemm
    )
    block: Any = part_field(
        "with scales of blocks; absent: at full tiles' share of 16 bits, and quantised before", QuantisedGemm
    )


@record_class
class GemmConstants:
    """Fitted constants of one library's matrix products."""

    start: Number = quantity_field("s", "start of a kernel and its end, whatever its size")
    achieved: Number = quantity_field("1", "share of the matrix peak that full tiles reach", high=1.0, positive=True)
    hbm: Number = quantity_field("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    sharpness: Number = quantity_field(
        "1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0
    )
    waves: Number = quantity_field(
        "1", "share of the last wave of tiles over the cores that nothing fills: 0 where tiles are cut to fit", high=1.0
    )
    tile: Number = quantity_field("s", "start and end of a tile on a core, beside its operations")
    splits: Number = integer_field(SPLITS)
    eight: Any = part_field(
        "products of 8 bits; absent: they reach what those of 16 do at the engine's rate, and operands come quantised",
        EightBitGemm,
    )
    measured_ranges: Any = ranges()
