"""Machines that something runs on, by the parts that a chip of one has."""

from dataclasses import MISSING, fields
from operator import attrgetter
from types import NoneType
from typing import NamedTuple

from dse.space.chip import Cache, Chip, Core, Hbm, MainMemory, Mesh, MeshCore, Network, Noc, Router, Tile, TileNoc
from dse.space.errors import DesignError
from dse.space.memory import Memory
from dse.space.technology import MeshTechnology, Technology, TileTechnology


class Parts(NamedTuple):
    """What a machine is made of: parts that it needs, by field, with their kind (None for a leaf), and those it may have."""

    name: str
    needs: dict[str, type | None]
    may: tuple[str, ...] = ()


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
        ("faults",),
    ),
    TILES: Parts(
        "a mesh of tiles",
        {"mesh": Mesh, "clock": None, "tile": Tile, "noc": TileNoc, "hbm": MainMemory, "technology": TileTechnology},
        ("faults", "decode"),
    ),
    MEMORY: Parts("a memory by itself", {"memory": Memory}),
    NETWORK: Parts("a network by itself", {"mesh": Mesh, "clock": None, "router": Router}, ("faults",)),
}
"""Machines that something runs on: what of a chip they read; nothing reads a part that is in neither list."""

_SPECS = {spec.name: spec for spec in fields(Chip)}
_PARTS = attrgetter(*_SPECS)
_KNOWN: dict[tuple[type, ...], str] = {}


def machine_of(chip: Chip) -> str:
    """The machine that a chip's parts make: a name of `MACHINES`.

    Raises:
        DesignError: a part that is missing from the machine that is nearest, or that nothing reads there.
    """
    have = tuple(map(type, _PARTS(chip)))
    if have not in _KNOWN:
        # numbers and arrays of them are leaves alike
        _KNOWN[have] = _machine({name: kind for name, kind in zip(_SPECS, have, strict=True) if kind is not NoneType})
    return _KNOWN[have]


def _machine(have: dict[str, type]) -> str:
    def shared(machine: Parts) -> int:
        return sum(name in have and kind in (None, have[name]) for name, kind in machine.needs.items())

    name, near = max(MACHINES.items(), key=lambda entry: (shared(entry[1]), -len(entry[1].needs)))
    for part, kind in near.needs.items():
        if part not in have:
            raise DesignError(f"chip.{part}: missing; {near.name} needs {_said(part)}")
        if kind not in (None, have[part]):
            raise DesignError(f"chip.{part}: of another kind than {near.name} needs; it has {_fields(kind)}")
    for part in have:
        if part not in near.needs and part not in near.may:
            raise DesignError(f"chip.{part}: nothing reads it on {near.name}, which has {', '.join((*near.needs, *near.may))}")
    return name


def _said(part: str) -> str:
    about = _SPECS[part].metadata
    unit = about.get("unit", "")
    return str(about["doc"]) + (f" [{unit}]" if unit not in ("", "1") else "")


def _fields(kind: type | None) -> str:
    return ", ".join(spec.name for spec in fields(kind) if spec.default is MISSING) if kind else ""
