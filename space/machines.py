"""Machines by the parts that a chip has: shared-cache die, wafer, tiles, dies and routers."""

from collections.abc import Iterable

from dse.space.chip import (
    Chip,
    DeviceLinks,
    DieGrid,
    DieLinks,
    Mesh,
    MeshCore,
    MeshNoc,
    PooledCore,
    Router,
    SharedCache,
    Tile,
    TileNoc,
)
from dse.space.dram import MemorySystem
from dse.space.main_memory import MEMORY_KINDS, HighBandwidthMemory, TileMemory
from dse.space.required_parts import Parts, WholeKinds
from dse.space.technology import DieBudget, DramDevices, Economics, ProcessNode

POOL, WAFER, TILES, DIES, POOLED, MEMORY, NETWORK = "pool", "wafer", "tiles", "dies", "pooled dies", "memory", "network"

SILICON: dict[str, type | None] = {"technology": ProcessNode, "die": DieBudget, "economics": Economics}
"""Parts of whatever is made."""

_TILES = {"mesh": Mesh, "clock": None, "tile": Tile, "noc": TileNoc, "hbm": TileMemory, **SILICON, "dram": DramDevices}

_POOL = {
    "cores": None,
    "core": PooledCore,
    "l2": SharedCache,
    "hbm": HighBandwidthMemory,
    "clock": None,
    **SILICON,
    "dram": DramDevices,
}

MACHINES: dict[str, Parts] = {
    POOL: Parts("a shared-cache die", _POOL | {"network": DeviceLinks}, ("power", "areas", "base", "tiers", "published")),
    WAFER: Parts(
        "a mesh of cores",
        {"mesh": Mesh, "clock": None, "core": MeshCore, "noc": MeshNoc, "power": None, **SILICON},
        ("faults", "hbm", "dram", "chain", "published"),
    ),
    TILES: Parts("a mesh of tiles", _TILES, ("faults", "decode", "l2", "die_link", "published")),
    DIES: Parts("dies of tiles", _TILES | {"dies": DieGrid, "d2d": DieLinks}, ("faults", "carrier", "nodes", "published")),
    POOLED: Parts(
        "many shared-cache dies", _POOL | {"dies": DieGrid, "d2d": DieLinks}, ("power", "base", "nodes", "tiers", "published")
    ),
    MEMORY: Parts("a memory without cores", {"memory": MemorySystem}, ("dram",)),
    NETWORK: Parts("a network without cores", {"mesh": Mesh, "clock": None, "router": Router}, ("faults", "technology")),
}
"""Machines that something runs on: what of a chip they read; nothing reads a part that is in neither list."""

NODE_HINT = (
    "for stages, experts and replicas put the dies into nodes: +part@chip=node_nvlink4 (node_nvlink3, "
    "node_nvlink5, node_infinity) mapping=expert_parallel"
)
"""What makes one die with a cache many."""

CHAIN_LENGTH = "chip.chain.chips"
"""Address of the number of chips that share the layers of a model."""

CHAIN_PART = "+part@chip=wafers_ethernet"
"""What makes one wafer several that share the layers of a model."""

STAND_INS = {kind.part: kind.stands_for for kind in MEMORY_KINDS.values() if kind.stands_for}
"""Parts of a chip that are in place of others, with these and their kinds."""

_MACHINES = WholeKinds(Chip, "chip", MACHINES, STAND_INS)


def machine_of(chip: Chip) -> str:
    """Machine that a chip's parts form, a name of `MACHINES`.

    Raises:
        DesignError: a part that is missing from the machine that is nearest, or that nothing reads there.
    """
    return _MACHINES.whole_of(chip)


def guess_machine(parts: Iterable[str]) -> str:
    """Machine whose parts match the given part names best.

    >>> guess_machine(["tile", "hbm"]), guess_machine(["cores", "core", "l2", "hbm", "old"]), guess_machine(["core", "mesh"])
    ('tiles', 'pool', 'wafer')
    """
    have = {part for given in parts for part in STAND_INS.get(given, (given,))}

    def count_mismatches(machine: str) -> tuple[int, int]:
        parts = MACHINES[machine]
        return len(have - set(parts.needs) - set(parts.may)), len(set(parts.needs) - have)

    return min(MACHINES, key=count_mismatches)
