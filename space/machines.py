"""Machines that something runs on, by the parts that a chip of one has."""

from collections.abc import Iterable

from dse.space.chip import Cache, Chip, Core, D2d, Dies, Hbm, MainMemory, Mesh, MeshCore, Network, Noc, Router, Tile, TileNoc
from dse.space.memory import Memory
from dse.space.parts import Parts, Wholes
from dse.space.technology import Die, Dram, Economics, Node

POOL, WAFER, TILES, DIES, POOLED, MEMORY, NETWORK = "pool", "wafer", "tiles", "dies", "pooled dies", "memory", "network"

SILICON: dict[str, type | None] = {"technology": Node, "die": Die, "economics": Economics}
"""Parts of whatever is made."""

_TILES = {"mesh": Mesh, "clock": None, "tile": Tile, "noc": TileNoc, "hbm": MainMemory, **SILICON, "dram": Dram}

_POOL = {"cores": None, "core": Core, "l2": Cache, "hbm": Hbm, "clock": None, **SILICON, "dram": Dram}

MACHINES: dict[str, Parts] = {
    POOL: Parts("a die with a cache", _POOL | {"network": Network}, ("power", "areas", "base", "published")),
    WAFER: Parts(
        "a mesh of cores",
        {"mesh": Mesh, "clock": None, "core": MeshCore, "noc": Noc, "power": None, **SILICON},
        ("faults", "hbm", "dram", "published"),
    ),
    TILES: Parts("a mesh of tiles", _TILES, ("faults", "decode", "l2", "published")),
    DIES: Parts("dies of tiles", _TILES | {"dies": Dies, "d2d": D2d}, ("faults", "carrier", "boxes", "published")),
    POOLED: Parts("many dies with a cache", _POOL | {"dies": Dies, "d2d": D2d}, ("power", "base", "boxes", "published")),
    MEMORY: Parts("a memory by itself", {"memory": Memory}, ("dram",)),
    NETWORK: Parts("a network by itself", {"mesh": Mesh, "clock": None, "router": Router}, ("faults", "technology")),
}
"""Machines that something runs on: what of a chip they read; nothing reads a part that is in neither list."""

BOXES = (
    "put such dies in boxes to divide a model by stages, experts and copies too: +part@chip=box_nvlink4 (box_nvlink3, "
    "box_nvlink5, box_infinity) mapping=expert_parallel"
)
"""What makes one die with a cache many."""

_MACHINES = Wholes(Chip, "chip", MACHINES)


def machine_of(chip: Chip) -> str:
    """The machine that a chip's parts make: a name of `MACHINES`.

    Raises:
        DesignError: a part that is missing from the machine that is nearest, or that nothing reads there.
    """
    return _MACHINES.of(chip)


def machine_named(parts: Iterable[str]) -> str:
    """The machine that has parts of some names, or most of them, as a file or a stored design says them.

    >>> machine_named(["tile", "hbm"]), machine_named(["cores", "core", "l2", "hbm", "old"]), machine_named(["core", "mesh"])
    ('tiles', 'pool', 'wafer')
    """
    have = set(parts)

    def unlike(machine: str) -> tuple[int, int]:
        of = MACHINES[machine]
        return len(have - set(of.needs) - set(of.may)), len(set(of.needs) - have)

    return min(MACHINES, key=unlike)
