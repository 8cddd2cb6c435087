"""Peak rates of a chip's matrix engines by number format, as data sheets state them."""

from typing import Any

from dse.space.chip import Chip
from dse.space.number_formats import FORMATS, relative_rate
from dse.space.units import format_quantity

SHOWN = ("fp32", "fp16", "fp8", "int8", "mxfp8", "mxfp4", "nvfp4")
"""Formats that data sheets state peaks of; bf16 is multiplied as fp16 is."""

ALIKE = ("fp16", "fp8", "int8")
"""Formats without scales that arrays of a tile multiply at one rate."""


def peaks(chip: Chip) -> dict[str, Any]:
    """Peak rates of all cores of a chip by number format, two operations per multiply-add. [op/s]

    Empty for a chip without matrix engines. Cores of a wafer mesh multiply 16 bits only.
    """
    if chip.tile is not None:
        elements = chip.mesh.rows * chip.mesh.cols * chip.tile.matrix.rows * chip.tile.matrix.cols
        return dict.fromkeys(ALIKE, 2.0 * elements * chip.clock)
    if chip.core is None:
        return {}
    if chip.mesh is not None:
        return {"fp16": 2.0 * chip.mesh.rows * chip.mesh.cols / chip.core.mac * chip.clock}
    wide = chip.cores * chip.core.matrix / 2
    rates = {name: relative_rate(name, chip.core.rates) for name in SHOWN}
    return {name: wide * value for name, value in rates.items() if value is not None}


def format_peaks(chip: Chip) -> str:
    """Peak rates of one chip as text; empty string for a chip without matrix engines.

    >>> format_peaks(Chip())
    ''
    """
    return ", ".join(f"{name} {_shown(name, float(value))}" for name, value in peaks(chip).items())


def _shown(name: str, value: float) -> str:
    text = format_quantity(value, "op/s")
    return text if FORMATS[name].engine.startswith("int") else text.replace("op/s", "flop/s")
