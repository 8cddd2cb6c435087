"""What is broken of the cores that a kernel is on."""

from typing import Any

from dse.space.chip import Chip
from dse.space.network import NO_FAULTS, Faults, faults, within


def broken_of(chip: Chip, rows: Any, cols: Any) -> Faults:
    """What is broken of the cores that a kernel is on; a chip with faults is evaluated by itself."""
    if chip.faults == "none":
        return NO_FAULTS
    return within(faults(chip), int(chip.mesh.cols), int(rows), int(cols))
