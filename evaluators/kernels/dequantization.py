"""Time of a tile to dequantise packed values that its matrix engine cannot multiply."""

from typing import Any

from dse.evaluators.machine.compute_engines import TileEngines
from dse.evaluators.program.kernel_ir import DEQUANTIZE_FUNCTIONS, FUNCTIONS


def dequantize_seconds(values: Any, nbytes: float, operations: float, itemsize: float, engines: TileEngines) -> Any:
    """Time of the sequence of vector instructions that dequantises values on a tile. [s]

    Args:
        values: how many.
        nbytes: of a packed one with its share of scales. [B]
        operations: on each, as of a format.
        itemsize: of a wide one. [B]
        engines: of the tile.
    """
    busy: Any = engines.vector.start / engines.clock
    for place, function in enumerate(DEQUANTIZE_FUNCTIONS[int(operations)]):
        moved = values * (itemsize + (itemsize if place else nbytes))
        busy = busy + engines.instruction(values * FUNCTIONS[function].operations, 0.0, moved)
    return busy
