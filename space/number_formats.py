"""Number formats: bits of values and scales, the tensors that may use them, and dequantisation work."""

from typing import Any, NamedTuple

from dse.space.fields import quantity_field, record_class

TENSORS = ("weights", "activations", "kv", "index", "combine")
"""What a format may be of: weights, what meets them, keys and values, keys of an indexer, what experts send back."""

CACHED_TENSORS = ("kv", "index")


class NumberFormat(NamedTuple):
    """A number format: bits per value and scale, scale blocks, engine format and dequantisation work.

    Attributes:
        bits: of a value.
        scale: bits of scales (and zero points) for each block of values; 0 where a tensor or a channel has one.
        block: values that share them, along the inner dimension of a product, or along a head.
        across: vectors of these that share them too.
        engine: the format whose rate a chip gives for it; empty string if no engine multiplies it.
        expand: operations of a vector engine to make a value of 16 bits or more of it: unpack it, convert it, scale it.
        holds: tensors that may have the format, of `TENSORS`.
    """

    bits: int
    scale: int = 0
    block: int = 1
    engine: str = ""
    expand: float = 0.0
    holds: tuple[str, ...] = TENSORS
    across: int = 1

    @property
    def nbytes(self) -> float:
        """Bytes of a value with its share of scales. [B]"""
        return (self.bits + self.scale / (self.block * self.across)) / 8


CONVERT, SCALE, UNPACK = 1.0, 1.0, 1.0
"""Operations of a vector engine on a value (assumed: an instruction each, as kernels that keep weights in four bits have them
[frantar2024]: a mask or a byte select, a subtraction or a conversion, a product with the scale)."""

FORMATS: dict[str, NumberFormat] = {
    "int8": NumberFormat(8, engine="int8", expand=CONVERT),
    "fp8": NumberFormat(8, engine="fp8", expand=CONVERT),
    "bf16": NumberFormat(16, engine="bf16"),
    "fp16": NumberFormat(16, engine="bf16"),
    "fp32": NumberFormat(32, engine="fp32"),
    # E4M3 or E2M1 with E8M0 for each 32 [ocp2023]
    "mxfp8": NumberFormat(8, 8, 32, "mxfp8", CONVERT + SCALE),
    "mxfp4": NumberFormat(4, 8, 32, "mxfp4", UNPACK + CONVERT + SCALE, ("weights", "activations", *CACHED_TENSORS)),
    # E2M1 with E4M3 for each 16, and one of 32 bits a tensor [nvidiafp2025]
    "nvfp4": NumberFormat(4, 8, 16, "nvfp4", UNPACK + CONVERT + SCALE, ("weights", "activations", *CACHED_TENSORS)),
    # E4M3 with scales of 32 bits for each 128 values of a token, or 128 x 128 of weights [deepseek2024]: those of sums
    "fp8_1x128": NumberFormat(8, 32, 128, "fp8", CONVERT + SCALE, ("activations", "combine", *CACHED_TENSORS)),
    "fp8_128x128": NumberFormat(8, 32, 128, "fp8", CONVERT + SCALE, ("weights",), 128),
    # symmetric, a scale of 16 bits for each 128 or 32 values of a column
    "int4_g128": NumberFormat(4, 16, 128, "", UNPACK + CONVERT + SCALE, ("weights",)),
    "int4_g32": NumberFormat(4, 16, 32, "", UNPACK + CONVERT + SCALE, ("weights",)),
    # a scale and a zero point of 16 bits for a head's values of a token, taken as 128
    "int4_head": NumberFormat(4, 32, 128, "", UNPACK + CONVERT + SCALE, CACHED_TENSORS),
}
"""Formats by name. A name without a block has one scale per tensor or channel; the others name their block."""

BYTES_BY_FORMAT = {name: number_format.nbytes for name, number_format in FORMATS.items()}
"""Size of a value with its scales. [B]"""

UNSCALED_FORMATS = tuple(name for name, number_format in FORMATS.items() if not number_format.scale)
"""Formats without scales of blocks."""

BLOCK_SCALED_FORMATS = {
    "int4": ("int4_g128", "int4_g32", "int4_head"),
    "fp4": ("mxfp4", "nvfp4"),
    "mx": ("mxfp8", "mxfp4"),
    "fp8_block": ("fp8_1x128", "fp8_128x128"),
}
"""Formats by what they are called without the block that shares a scale."""


def formats_of_tensor(tensor: str) -> tuple[str, ...]:
    """Number formats that a tensor may have.

    >>> formats_of_tensor("combine")
    ('int8', 'fp8', 'bf16', 'fp16', 'fp32', 'mxfp8', 'fp8_1x128')
    """
    return tuple(name for name, number_format in FORMATS.items() if tensor in number_format.holds)


def explain_unfit(tensor: str) -> dict[str, str]:
    """Why a tensor cannot have a format, by format name, with the formats to use instead.

    >>> explain_unfit("activations")["int4_g128"]
    'int4_g128 is a format of weights only; for activations use: int8, fp8, bf16, fp16, fp32, mxfp8, mxfp4, nvfp4, fp8_1x128'
    >>> explain_unfit("weights")["int4"]
    'int4 does not say which values share a scale; use int4_g128 or int4_g32'
    """
    fit = formats_of_tensor(tensor)
    reason = {
        name: f"{name} is a format of {' and '.join(_PEOPLE[held] for held in number_format.holds)} only; for "
        f"{_PEOPLE[tensor]} use: " + ", ".join(fit)
        for name, number_format in FORMATS.items()
        if name not in fit
    }
    for name, blocks in BLOCK_SCALED_FORMATS.items():
        right = [block for block in blocks if block in fit]
        reason[name] = f"{name} does not say which values share a scale; use {' or '.join(right or fit)}"
    return reason


_PEOPLE = {
    "weights": "weights",
    "activations": "activations",
    "kv": "the KV cache",
    "index": "keys of an indexer",
    "combine": "what experts send back",
}


@record_class
class FormatRates:
    """Formats that a matrix engine multiplies besides 16 bits, each as a rate relative to 16 bits.

    Formats without a rate are not multiplied, except fp32.
    """

    int8: Any = quantity_field("1", "rate of int8 relative to 16 bits", positive=True, absent=True)
    fp8: Any = quantity_field("1", "rate of fp8 relative to 16 bits, whatever its scales", positive=True, absent=True)
    mxfp8: Any = quantity_field("1", "rate of mxfp8 relative to 16 bits", positive=True, absent=True)
    mxfp4: Any = quantity_field("1", "rate of mxfp4 relative to 16 bits", positive=True, absent=True)
    nvfp4: Any = quantity_field("1", "rate of nvfp4 relative to 16 bits", positive=True, absent=True)
    fp32: Any = quantity_field("1", "rate of fp32 relative to 16 bits; half if absent", positive=True, absent=True)


HALF_RATE = 0.5
"""Rate of 32 bits relative to 16 bits, if the chip gives no other."""


def relative_rate(name: str, rates: FormatRates | None) -> Any:
    """Rate of a format relative to 16 bits; None if engines do not multiply it.

    Without stated rates, 8-bit formats are twice as fast.

    >>> (
    ...     relative_rate("fp8_128x128", None),
    ...     relative_rate("mxfp4", None),
    ...     relative_rate("int8", FormatRates(fp8=2.0)),
    ...     relative_rate("nvfp4", FormatRates(nvfp4=4.0)),
    ... )
    (2.0, None, None, 4.0)
    """
    engine = FORMATS[name].engine
    if engine == "bf16":
        return 1.0
    if engine == "fp32":
        return HALF_RATE if rates is None or rates.fp32 is None else rates.fp32
    if rates is None:
        return 2.0 if engine in ("int8", "fp8") else None
    return getattr(rates, engine) if engine else None
