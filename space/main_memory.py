"""Kinds of main memory, and the properties of a chip's main memory that all other modules read.

No other module knows which part of a chip states main memory, and how. What main memory means for time is in
``evaluators/machine``, and for area, energy and price in ``evaluators/silicon``.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dse.space.array_math import Number
from dse.space.dram import MemorySystem, capacity_bytes, peak_bandwidth
from dse.space.fields import integer_field, option_field, quantity_field, record_class
from dse.space.memoize import memoize_by_identity
from dse.space.technology import DramDevices


@record_class
class HighBandwidthMemory:
    """Main memory of one shared-cache die; `banks` is the memory that higher fidelities simulate."""

    capacity: Number = quantity_field("B", "capacity", positive=True)
    usable_ratio: Any = quantity_field(
        "1", "bytes that the driver offers to an inference engine, over capacity; 1 if absent", absent=True, positive=True
    )
    bandwidth: Number = quantity_field("B/s", "bandwidth of a contiguous stream", positive=True)
    strided_row_overhead: Number = quantity_field(
        "s", "time lost on each row of a strided read; 0 for strides without loss", former="gap"
    )
    strided_overfetch: Number = quantity_field(
        "1", "share of the bytes skipped by a strided read that is still fetched", high=1.0, former="waste"
    )
    random_access_overhead: Any = quantity_field(
        "B",
        "bytes that could be read while a row opens for a random access; for models with indexers",
        absent=True,
        former="scatter",
    )
    banks: MemorySystem | None = None


CHANNEL_SIDES = ("south", "north", "west", "east", "core")
"""Where memory channels are: along an edge of the mesh, evenly spread, or one at each core."""


@record_class
class TileMemory:
    """Main memory of a mesh of tiles; `banks` is the memory that higher fidelities simulate."""

    capacity: Number = quantity_field("B", "capacity of all channels; per core, if channels are at cores", positive=True)
    channels: Number = integer_field("independent memory channels; as many as cores, if channels are at cores")
    channel_bandwidth: Number = quantity_field("B/s", "of one channel", positive=True)
    stream_efficiency: Number = quantity_field(
        "1",
        "share of the bandwidth that long blocks reach after refresh and bus turnarounds",
        high=1.0,
        positive=True,
        former="achieved",
    )
    latency: Number = quantity_field("s", "time from a request at the channel to its first word")
    contended_efficiency: Number = quantity_field(
        "1",
        "further share of the bandwidth for blocks that wait for each other, where bursts are not simulated",
        high=1.0,
        positive=True,
        default=1.0,
        former="crowded",
    )
    channel_side: str = option_field("where the channels are: at the edge or at cores", CHANNEL_SIDES, former="place")
    banks: MemorySystem | None = None


class MainMemory(NamedTuple):
    """Main memory of one chip, whatever its kind; leaves broadcast over designs.

    Without a mesh, all channels are read as one.

    Attributes:
        part: part of the chip that states it.
        stated_capacity: of all channels, or of one if each core has its own. [B]
        channel_bandwidth: of one channel. [B/s]
        stated_channels: channels that the record states; `banks` are behind these together.
        cores: cores of the mesh; None without a mesh.
        channel_side: where channels of a mesh are, an option of `CHANNEL_SIDES`; empty string without a mesh.
        latency: from a request at a channel to its first word. [s]
        stream_efficiency: share of the bandwidth that long blocks reach. [1]
        contended_efficiency: further share for blocks that wait for each other. [1]
        strided_row_overhead, strided_overfetch: losses of strided reads: per row [s], and of the bytes skipped [1].
        random_access_overhead: bytes that could be read while a row opens; None if unknown. [B]
        banks: channels of banks that higher fidelities simulate; None if unknown.
        banks_part: part of the chip that states them, or could.
        devices: bandwidth, interface area, die edge, energy, idle power and price of the devices; None if unknown.
        devices_part: part of the chip that states them.
        usable_ratio: bytes that the driver offers to an inference engine, over capacity. [1]
    """

    part: str
    stated_capacity: Any
    channel_bandwidth: Any
    stated_channels: Any = 1
    cores: Any = None
    channel_side: str = ""
    latency: Any = 0.0
    stream_efficiency: Any = 1.0
    contended_efficiency: Any = 1.0
    strided_row_overhead: Any = 0.0
    strided_overfetch: Any = 0.0
    random_access_overhead: Any = None
    banks: MemorySystem | None = None
    banks_part: str = ""
    devices: DramDevices | None = None
    devices_part: str = "dram"
    usable_ratio: Any = 1.0

    @property
    def usable_capacity(self) -> Any:
        """Bytes that the driver offers to an inference engine. [B]"""
        return self.capacity * self.usable_ratio

    @property
    def capacity(self) -> Any:
        """Capacity of the whole chip. [B]"""
        return self.stated_capacity * self.cores if self.channel_side == "core" else self.stated_capacity

    @property
    def capacity_per_core(self) -> Any:
        """Capacity for each core of a mesh: what is behind its own channel, or an even share. [B]"""
        return self.stated_capacity if self.channel_side == "core" else self.stated_capacity / self.cores

    @property
    def channels(self) -> Any:
        """Number of channels of the whole chip. [1]"""
        return self.cores if self.channel_side == "core" else self.stated_channels

    @property
    def bandwidth(self) -> Any:
        """Bandwidth of all channels together. [B/s]"""
        return self.channels * self.channel_bandwidth if self.channel_side else self.channel_bandwidth

    def leaf(self, name: str) -> str:
        """Address of a setting in its chip, such as ``hbm.channels``."""
        return f"{self.part}.{name}"

    def address(self, name: str) -> str:
        """Address of a setting as users write it, such as ``chip.hbm.capacity``."""
        return f"chip.{self.part}.{name}"


class MemoryKind(NamedTuple):
    """One kind of main memory: the part of a chip that states it, and how the record is read.

    Attributes:
        part: field of `Chip`.
        memory: main memory of a record and its chip.
        stands_for: parts that machines need or may have, with their kinds, in whose place this part is.

    A record that can be on a mesh of tiles names its leaves `channels`, `channel_bandwidth` and `contended_efficiency` as
    `TileMemory` does, since submeshes, caches and tuning change these. Only capacities follow from a leaf `capacity`.
    """

    part: str
    memory: Callable[[Any, Any], MainMemory]
    stands_for: Mapping[str, type] = MappingProxyType({})


def die_memory(record: HighBandwidthMemory, chip: Any) -> MainMemory:
    """Main memory of a shared-cache die."""
    return MainMemory(
        "hbm",
        record.capacity,
        record.bandwidth,
        strided_row_overhead=record.strided_row_overhead,
        strided_overfetch=record.strided_overfetch,
        random_access_overhead=record.random_access_overhead,
        banks=record.banks,
        banks_part="hbm.banks",
        devices=chip.dram,
        usable_ratio=1.0 if record.usable_ratio is None else record.usable_ratio,
    )


def mesh_memory(record: TileMemory, chip: Any, part: str = "hbm") -> MainMemory:
    """Main memory of a mesh, with channels at an edge or one at each core."""
    return MainMemory(
        part,
        record.capacity,
        record.channel_bandwidth,
        record.channels,
        chip.mesh.rows * chip.mesh.cols,
        record.channel_side,
        record.latency,
        record.stream_efficiency,
        record.contended_efficiency,
        banks=record.banks,
        banks_part=f"{part}.banks",
        devices=chip.dram,
    )


def separate_memory(record: MemorySystem, chip: Any) -> MainMemory:
    """Main memory of a chip without cores: all stacks of its banks."""
    bandwidth = peak_bandwidth(record)
    return MainMemory("memory", capacity_bytes(record), bandwidth, banks=record, banks_part="memory", devices=chip.dram)


MEMORY_KINDS: dict[type, MemoryKind] = {
    HighBandwidthMemory: MemoryKind("hbm", die_memory),
    TileMemory: MemoryKind("hbm", mesh_memory),
    MemorySystem: MemoryKind("memory", separate_memory),
}
"""Kinds of main memory by the record that states one."""

MEMORY_PARTS = tuple(dict.fromkeys(kind.part for kind in MEMORY_KINDS.values()))
"""Parts of a chip that state main memory; a chip has one of them at most."""


def memory_leaves(*names: str) -> tuple[str, ...]:
    """Leaves or parts of chips that have one of some names in a kind of main memory beside a die.

    >>> memory_leaves("capacity", "channels", "stacks")
    ('hbm.capacity', 'hbm.channels')
    """
    kinds = [(record, kind.part) for record, kind in MEMORY_KINDS.items() if record is not MemorySystem]
    return tuple(dict.fromkeys(f"{part}.{name}" for name in names for record, part in kinds if hasattr(record, name)))


CAPACITY_LEAVES = memory_leaves("capacity")
"""Leaves of a chip on which capacities of main memory alone depend."""

CAPACITY_LIMITS = tuple(f"chip.{leaf}" for leaf in CAPACITY_LEAVES)
"""Limits of main memory, by the address of its capacity."""


@memoize_by_identity
def has_main_memory(chip: Any) -> bool:
    """Whether a chip has main memory."""
    return any(getattr(chip, part) is not None for part in MEMORY_PARTS)


@memoize_by_identity
def main_memory(chip: Any) -> MainMemory:
    """Main memory of a chip, by the kind of its record.

    Raises:
        ValueError: the chip has none, which `has_main_memory` says.
    """
    for part in MEMORY_PARTS:
        record = getattr(chip, part)
        if record is not None:
            return MEMORY_KINDS[type(record)].memory(record, chip)
    raise ValueError("the chip has no main memory")


@memoize_by_identity
def memory_devices(chip: Any) -> Any:
    """Main memory devices of a chip, a record `DramDevices`; None if there are none, or unknown."""
    return main_memory(chip).devices if has_main_memory(chip) else None
