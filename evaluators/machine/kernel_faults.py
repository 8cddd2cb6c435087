"""Faults of the cores that a kernel runs on."""

from typing import Any

from dse.space.chip import Chip
from dse.space.noc_router import NO_FAULTS, MeshFaults, faults_in_rectangle, parse_faults


def faults_of_kernel(chip: Chip, rows: Any, cols: Any) -> MeshFaults:
    """Faults of the cores that a kernel runs on; a chip with faults is evaluated by itself."""
    if chip.faults == "none":
        return NO_FAULTS
    return faults_in_rectangle(parse_faults(chip), int(chip.mesh.cols), int(rows), int(cols))
