"""Machines that something runs on, by the parts that a chip of one has."""

from dse.space.chip import Cache, Chip, Core, Hbm, MainMemory, Mesh, MeshCore, Network, Noc, Router, Tile, TileNoc
from dse.space.memory import Memory
from dse.space.parts import Parts, Wholes
from dse.space.technology import MeshTechnology, Technology, TileTechnology

POOL, WAFER, TILES, MEMORY, NETWORK = "pool", "wafer", "tiles", "memory", "network"

MACHINES: dict[str, Parts] = {
    POOL: Parts(
        "a die with a cache",
        {
            "cores": None,
            "core": Core,
            "l2": Cache,
            "hbm": Hbm,
            "network": Network,
            "operator_overhead": None,
            "technology": Technology,
        },
        ("power",),
    ),
    WAFER: Parts(
        "a mesh of cores",
        {"mesh": Mesh, "clock": None, "core": MeshCore, "noc": Noc, "power": None, "technology": MeshTechnology},
        ("faults", "hbm"),
    ),
    TILES: Parts(
        "a mesh of tiles",
        {"mesh": Mesh, "clock": None, "tile": Tile, "noc": TileNoc, "hbm": MainMemory, "technology": TileTechnology},
        ("faults", "decode", "l2"),
    ),
    MEMORY: Parts("a memory by itself", {"memory": Memory}),
    NETWORK: Parts("a network by itself", {"mesh": Mesh, "clock": None, "router": Router}, ("faults",)),
}
"""Machines that something runs on: what of a chip they read; nothing reads a part that is in neither list."""

_MACHINES = Wholes(Chip, "chip", MACHINES)


def machine_of(chip: Chip) -> str:
    """The machine that a chip's parts make: a name of `MACHINES`.

    Raises:
        DesignError: a part that is missing from the machine that is nearest, or that nothing reads there.
    """
    return _MACHINES.of(chip)
