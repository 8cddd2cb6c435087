"""Die area from what is on the die."""

from typing import Any

import numpy as np

from dse.space.chip import Chip, decoding, memory_channels


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


def mesh_parts(chip: Chip) -> dict[str, Any]:
    """Area of each kind of block of a mesh of cores. [mm2], broadcasts over designs."""
    cores, tech = chip.mesh.rows * chip.mesh.cols, chip.technology
    return {"cores": cores * tech.core, "sram": cores * chip.core.sram * tech.sram}


def mesh_die(chip: Chip) -> Any:
    """Area of a mesh of cores, the sum of its parts. [mm2], broadcasts over designs."""
    return sum(mesh_parts(chip).values())


def tile_parts(chip: Chip, decode_cores: Any = 0) -> dict[str, Any]:
    """Area of each kind of block of a mesh of tiles with HBM. [mm2], broadcasts over designs; some cores may only decode."""
    if not isinstance(decode_cores, np.ndarray) and decode_cores == 0:
        return _of_cores(chip, chip.mesh.rows * chip.mesh.cols)
    own = _of_cores(decoding(chip), decode_cores)
    return {name: value + own[name] for name, value in _of_cores(chip, chip.mesh.rows * chip.mesh.cols - decode_cores).items()}


def tile_die(chip: Chip, decode_cores: Any = 0) -> Any:
    """Area of a mesh of tiles, the sum of its parts. [mm2], broadcasts over designs."""
    return sum(tile_parts(chip, decode_cores).values())


def _of_cores(chip: Chip, cores: Any) -> dict[str, Any]:
    tile, tech = chip.tile, chip.technology
    share = cores / (chip.mesh.rows * chip.mesh.cols)
    channels = memory_channels(chip) * share
    found = {
        "matrix engines": cores * tile.matrix.rows * tile.matrix.cols * tech.multiplier,
        "vector engines": cores * tile.vector.lanes * tech.lane,
        "sram": cores * tile.sram * tech.sram,
        "routers": cores * chip.noc.word_bytes * tech.router,
        "control": cores * tech.control,
        "hbm_phy": channels * chip.hbm.bandwidth * tech.hbm_phy,
    }
    return found if chip.l2 is None else found | {"l2": chip.l2.size * share * tech.sram}
