"""Die area from what is on the die."""

from typing import Any

from space.chip import Chip, MeshChip


def parts(chip: Chip) -> dict[str, Any]:
    """Area of each kind of block. [mm2], broadcasts over designs."""
    tech, network = chip.technology, chip.network
    return {
        "cores": chip.cores * chip.core.matrix * tech.core,
        "l2": chip.l2.size * tech.l2,
        "hbm_phy": chip.hbm.bandwidth * tech.hbm_phy,
        "link_phy": network.ports * network.bandwidth * tech.link_phy,
    }


def die(chip: Chip) -> Any:
    """Area of one die, the sum of its parts. [mm2], broadcasts over designs."""
    return sum(parts(chip).values())


def mesh_parts(chip: MeshChip) -> dict[str, Any]:
    """Area of each kind of block of a mesh of cores. [mm2], broadcasts over designs."""
    cores, tech = chip.mesh.rows * chip.mesh.cols, chip.technology
    return {"cores": cores * tech.core, "sram": cores * chip.core.sram * tech.sram}


def mesh_die(chip: MeshChip) -> Any:
    """Area of a mesh of cores, the sum of its parts. [mm2], broadcasts over designs."""
    return sum(mesh_parts(chip).values())
