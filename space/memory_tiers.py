"""Memory tiers: memories behind a chip's main memory, in order, and the placement of contents in them.

What tiers mean for time is in ``evaluators/machine/tiered_reads.py``, and for room in
``evaluators/accounting/memory_placement.py``.
"""

from typing import Any

from dse.space.array_math import Number
from dse.space.errors import DesignError
from dse.space.fields import integer_field, option_field, part_field, quantity_field, record_class
from dse.space.limits import IncompatibleOptionsError
from dse.space.technology import DramDevices

TIERS = ("second", "third", "fourth")
"""Memory tiers by place: main memory is the first memory of a chip."""

MAIN, AUTO_PLACEMENT = "main", "auto"
PLACES = (AUTO_PLACEMENT, MAIN, *TIERS)
"""Where a content is: by the rule, in main memory, or in a tier."""

ATTACHMENTS = ("die", "lanes", "host")
"""Interfaces of a tier: at an edge of the die as that of main memory; over lanes of PCIe or CXL of its own; or over the lanes
to the host that the die has."""

NEVER_SPLIT = (AUTO_PLACEMENT, MAIN)
"""Places of a content with which no share of it is set."""


@record_class
class MemoryTier:
    """One memory behind main memory: its capacity, bandwidth, latency, interface and devices."""

    capacity: Number = quantity_field("B", "capacity", positive=True)
    bandwidth: Number = quantity_field("B/s", "bandwidth of long reads, after the protocol of its link", positive=True)
    latency: Number = quantity_field("s", "time by which its first word comes later than main memory's", default=0.0)
    attachment: str = option_field("interface: die, lanes or host", ATTACHMENTS, default="die")
    lanes: Number = integer_field(
        "lanes of PCIe or CXL on the die, beside chip.die.pcie_lanes", low=0, default=0, unread={"attachment": ("die", "host")}
    )
    link_energy_per_byte: Number = quantity_field(
        "J/B", "energy of a byte on the link to the devices, beside theirs", default=0.0, unread={"attachment": ("die",)}
    )
    devices: Any = part_field("memory devices as they are bought", DramDevices)


@record_class
class MemoryTiers:
    """Memory tiers of a chip in order, from the one that is used first."""

    second: Any = part_field("the memory behind main memory", MemoryTier)
    third: Any = part_field("the memory behind the second one", MemoryTier)
    fourth: Any = part_field("the memory behind the third one", MemoryTier)


def _main_share(content: str) -> Any:
    return quantity_field(
        "1", f"share of {content} that stays in main memory, where a tier is set", high=1.0, default=0.0,
        unread={content: NEVER_SPLIT},
    )  # fmt: skip


@record_class
class PlacementPlan:
    """Memory of each content on a chip with tiers: main, second, third, fourth, or auto."""

    weights: str = option_field("memory of weights besides those of routed experts", PLACES, default=AUTO_PLACEMENT)
    weights_main_share: Number = _main_share("weights")
    kv: str = option_field("memory of KV caches and states", PLACES, default=AUTO_PLACEMENT)
    kv_main_share: Number = _main_share("kv")
    experts: str = option_field("memory of routed experts' weights", PLACES, default=AUTO_PLACEMENT)
    experts_main_share: Number = _main_share("experts")
    prefixes: str = option_field(
        "memory of prefixes that leave the KV pool: a tier; auto for the host's, as serving settings say", PLACES,
        default=AUTO_PLACEMENT,
    )  # fmt: skip


CONTENTS = ("weights", "kv", "experts")
"""Contents that iterations read, in the order in which the rule places them."""

AUTOMATIC = PlacementPlan()
"""All contents by the rule."""


def tiers_of(chip: Any) -> tuple[tuple[str, MemoryTier], ...]:
    """Memory tiers of a chip with their names, in order; empty if it has none."""
    tiers = chip.tiers
    if tiers is None:
        return ()
    return tuple((name, tier) for name in TIERS if (tier := getattr(tiers, name)) is not None)


def tier_device_count(tier: MemoryTier) -> Any:
    """Number of devices that the bandwidth of a tier needs. [1]"""
    return tier.bandwidth / tier.devices.device_bandwidth


def tier_energy_per_byte(tier: MemoryTier) -> Any:
    """Energy of a byte of a tier, with its link where its interface is not at the die. [J/B]"""
    return tier.devices.energy_per_byte + (0.0 if tier.attachment == "die" else tier.link_energy_per_byte)


def placement_plan(mapping: Any) -> PlacementPlan:
    """Placement of a mapping; all by the rule where it has none."""
    return AUTOMATIC if mapping.memory_placement is None else mapping.memory_placement


def tier_address(name: str, leaf: str) -> str:
    """Address of a setting of a tier as users write it.

    >>> tier_address("second", "capacity")
    'chip.tiers.second.capacity'
    """
    return f"chip.tiers.{name}.{leaf}"


TIER_LIMITS = tuple(tier_address(name, "capacity") for name in TIERS)
"""Limits of memory tiers, by the address of the capacity."""


def prefix_tier(design: Any) -> MemoryTier | None:
    """Tier of prefixes that leave the KV pool; None where they go to the host, as serving settings say."""
    place = placement_plan(design.mapping).prefixes
    return next((tier for name, tier in tiers_of(design.chip) if name == place), None)


def prefix_bandwidth(design: Any) -> Any:
    """Bandwidth of a device to the memory of prefixes and swapped KV caches: a tier, or the host's. [B/s]"""
    tier = prefix_tier(design)
    return design.mapping.serving.host_bandwidth if tier is None else tier.bandwidth


def check_tiers(chip: Any) -> None:
    """Refuse tiers that are out of order, have no devices, or have no lanes.

    Raises:
        DesignError: the first, with its address and what would do.
    """
    if chip.tiers is None:
        return
    have = tiers_of(chip)
    if not have:
        raise DesignError("chip.tiers: has no memory; add one: +part@chip.tiers=tier_lpddr5x, or remove it")
    if chip.areas is not None:
        raise DesignError("chip.tiers: areas of a paper (chip.areas) have no interfaces of tiers; remove one of both")
    for place, (name, tier) in enumerate(have):
        if name != TIERS[place]:
            raise DesignError(f"chip.tiers.{name}: comes after chip.tiers.{TIERS[place]}, which is missing; call it that")
        if tier.devices is None:
            raise DesignError(
                f"{tier_address(name, 'devices')}: missing; choose a preset: +dram@{tier_address(name, 'devices')}=lpddr5x"
            )
        if tier.attachment == "lanes" and not (tier.lanes > 0 if isinstance(tier.lanes, int | float) else tier.lanes.all()):
            raise DesignError(f"{tier_address(name, 'lanes')}: must be above 0 with attachment=lanes; a CXL port has 8 or 16")


def check_places(chip: Any, plan: PlacementPlan) -> None:
    """Refuse a content in a memory that the chip does not have.

    Raises:
        IncompatibleOptionsError: the first, with its address and the memories that there are.
    """
    names = [name for name, _ in tiers_of(chip)]
    for content in (*CONTENTS, "prefixes"):
        place = getattr(plan, content)
        if place in TIERS and place not in names:
            raise IncompatibleOptionsError(
                f"mapping.memory_placement.{content}: the chip has no {place} memory; it has main, {', '.join(names)} "
                f"(chip.tiers.{place} would add one)",
                content,
            )


def check_placement(chip: Any, mapping: Any, *, serves: bool, is_model: bool = True) -> None:
    """Refuse a placement that a chip or a workload does not have.

    Raises:
        DesignError: the first, with its address and what would do.
    """
    plan = mapping.memory_placement
    if plan is None:
        return
    if not tiers_of(chip):
        raise DesignError(
            "mapping.memory_placement: has no effect, since the chip has main memory only; add a tier: "
            "+part@chip.tiers=tier_lpddr5x"
        )
    if not is_model:
        raise DesignError(
            "mapping.memory_placement: has no effect, since a single kernel reads main memory only; leave it out, or use "
            "workload=static"
        )
    check_places(chip, plan)
    why = "" if plan.prefixes == AUTO_PLACEMENT else _unplaced_prefixes(plan, mapping.serving if serves else None)
    if why:
        raise DesignError(f"mapping.memory_placement.prefixes: {why}")


def _unplaced_prefixes(plan: PlacementPlan, serving: Any) -> str:
    """Why prefixes are not in the memory that a plan says, and what would do; empty string if they are."""
    if serving is None:
        return "has no effect on static batches; leave it out, or use workload=serving"
    if plan.prefixes == MAIN:
        return "main memory keeps prefixes by mapping.serving.prefix_cache; set a tier, or leave it out"
    if serving.prefix_cache != "shared":
        return "has no effect with mapping.serving.prefix_cache=reserved; set shared, or leave it out"
    if serving.host_kv_capacity:
        return f"{plan.prefixes} takes the place of mapping.serving.host_kv_capacity, which is set too; remove one"
    if plan.prefixes == plan.kv:
        return f"KV caches take all room of the {plan.kv} memory; set another one for one of both"
    return ""
