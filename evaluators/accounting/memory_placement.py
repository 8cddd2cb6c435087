"""Placement of a model's contents in main memory and memory tiers: the rule, room and reads.

The rule places what an iteration reads most often per byte in the fastest memory: weights and KV caches, which each decode step
reads whole, before routed experts, of which it reads those that tokens go to. Memories are taken in the order of the chip, so
that only what main memory has no room for is in a tier. A mapping may set the memory of a content instead
(`space.memory_tiers.PlacementPlan`). Of experts, the most popular ones are in the first memory that has a share of them.
"""

from collections.abc import Mapping as Dict
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.memory_contents import CACHE, MemoryContents, main_memory_contents
from dse.evaluators.graph.expert_loads import expert_read_shares
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS, Shares, TieredReads
from dse.space.array_math import divisor, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.main_memory import main_memory, memory_devices
from dse.space.mapping import Mapping
from dse.space.memory_tiers import (
    AUTO_PLACEMENT,
    CONTENTS,
    MAIN,
    TIERS,
    check_places,
    placement_plan,
    tier_address,
    tier_energy_per_byte,
    tiers_of,
)
from dse.space.model import Model

FULL = 1 - 1e-12
"""Share of a memory that the rule fills, so that sums of shares, rounded, still fit. [1]"""

NAMES = {WEIGHTS: "weights", KV: CACHE, EXPERTS: "routed experts"}
"""Contents as limits list them."""


class MemoryPlacement(NamedTuple):
    """Shares of contents in each memory of a device; leaves broadcast over designs.

    Attributes:
        nbytes: of each content on the device. [B]
        shares: of each content in each memory, main memory first. [1]
        rooms: of each memory for contents, before any is there. [B]
    """

    nbytes: dict[str, Any]
    shares: dict[str, Shares]
    rooms: Shares

    def bytes_in(self, content: str, memory: int) -> Any:
        """Bytes of a content in one memory. [B]"""
        return self.nbytes[content] * self.shares[content][memory]

    def rooms_left(self, *without: str) -> list[Any]:
        """Room of each memory beside all contents but some; negative where these exceed it. [B]"""
        contents = [content for content in CONTENTS if content not in without]
        return [
            reduce(lambda left, content: left - self.bytes_in(content, memory), contents, room)
            for memory, room in enumerate(self.rooms)
        ]


def place_contents(chip: Chip, mapping: Mapping, main_room: Any, nbytes: Dict[str, Any]) -> MemoryPlacement:
    """Shares of contents in the memories of a device.

    Contents with a memory of their own are placed first. What no memory has room for is in the last one, whose limit says so.

    Args:
        chip, mapping: with tiers, and with the placement.
        main_room: bytes of main memory for contents. [B]
        nbytes: bytes of each content. [B]
    """
    plan, tiers = placement_plan(mapping), tiers_of(chip)
    check_places(chip, plan)
    rooms = (main_room, *(tier.capacity for _, tier in tiers))
    left, shares = [room * FULL for room in rooms], dict[str, Shares]()
    for content in CONTENTS:
        place = getattr(plan, content)
        if place == AUTO_PLACEMENT:
            continue
        own = set_shares(place, getattr(plan, f"{content}_main_share"), len(rooms))
        shares[content] = own
        left = [room - share * nbytes[content] for room, share in zip(left, own, strict=True)]
    for content in CONTENTS:
        if content in shares:
            continue
        rest, taken = nbytes[content] * 1.0, list[Any]()
        for memory, room in enumerate(left):
            taken_bytes = rest if memory == len(left) - 1 else minimum(rest, maximum(room, 0.0))
            taken.append(taken_bytes)
            left[memory], rest = room - taken_bytes, rest - taken_bytes
        is_there = nbytes[content] > 0
        whole = divisor(nbytes[content])
        shares[content] = tuple(
            where(is_there, taken_bytes / whole, float(memory == 0)) for memory, taken_bytes in enumerate(taken)
        )
    return MemoryPlacement(dict(nbytes), shares, rooms)


def set_shares(place: str, main_share: Any, memories: int) -> Shares:
    """Shares by memory of a content whose memory is set, with the share that stays in main memory.

    >>> set_shares("second", 0.25, 3), set_shares("main", 0.0, 2)
    ((0.25, 0.75, 0.0), (1.0, 0.0))
    """
    stays = 1.0 if place == MAIN else main_share
    return (stays, *(1.0 - stays if name == place else 0.0 for name in TIERS[: memories - 1]))


def memories_contents(
    chip: Chip, placement: MemoryPlacement, beside: tuple[tuple[str, Any], ...], capacity: Any
) -> tuple[MemoryContents, ...]:
    """Contents of main memory and of each tier of a device.

    Args:
        chip: with tiers.
        placement: shares of contents in its memories.
        beside: bytes of what else is in main memory, by name. [B]
        capacity: of main memory. [B]
    """

    def parts(memory: int) -> tuple[tuple[str, Any], ...]:
        return tuple((NAMES[content], placement.bytes_in(content, memory)) for content in CONTENTS)

    main = main_memory_contents(chip, (*parts(0), *beside), capacity=capacity)
    tiers = (
        MemoryContents(tier_address(name, "capacity"), tier.capacity, parts(memory))
        for memory, (name, tier) in enumerate(tiers_of(chip), 1)
    )
    return (main, *tiers)


def tiered_reads(chip: Chip, shares: Dict[str, Shares], model: Model) -> TieredReads:
    """Reads of contents on a device whose memories have shares of them.

    Args:
        chip: with tiers.
        shares: of each content by memory; leaves broadcast over steps and designs.
        model: whose experts tokens choose.
    """
    main, tiers = main_memory(chip), [tier for _, tier in tiers_of(chip)]
    experts = model.experts
    return TieredReads(
        (1.0, *(main.bandwidth / tier.bandwidth for tier in tiers)),
        (0.0, *(tier.latency for tier in tiers)),
        (memory_devices(chip).energy_per_byte, *map(tier_energy_per_byte, tiers)),
        tuple(shares.items()),
        None if experts is None else partial(expert_read_shares, experts),
    )


class KvPool(NamedTuple):
    """KV memory of a device that serves requests, over all memories that have some of it.

    Attributes:
        nbytes: for KV caches. [B]
        shares: of each memory, in which blocks of all requests are alike. [1]
    """

    nbytes: Any
    shares: Shares


def kv_pool(mapping: Mapping, placement: MemoryPlacement) -> KvPool:
    """KV memory beside weights and experts.

    Where the mapping sets memories of KV caches, the pool grows until the first of these is full. By the rule it is what main
    memory has left, if one longest request fits there. Else it is what is left in all memories, in proportion.

    Args:
        mapping: with the placement.
        placement: of weights, experts, and the KV cache of one longest request. [B]
    """
    plan, rooms = placement_plan(mapping), placement.rooms_left(KV)
    if plan.kv != AUTO_PLACEMENT:
        shares = placement.shares[KV]
        bounds = [where(share > 0, room / divisor(share), float("inf")) for room, share in zip(rooms, shares, strict=True)]
        return KvPool(reduce(minimum, bounds), shares)
    free = [rooms[0], *(maximum(room, 0.0) for room in rooms[1:])]
    fits = free[0] >= placement.nbytes[KV]
    whole = reduce(lambda total, room: total + room, [maximum(free[0], 0.0), *free[1:]])
    spread = [maximum(room, 0.0) / divisor(whole) for room in free]
    shares = tuple(where(fits, float(memory == 0), share) for memory, share in enumerate(spread))
    return KvPool(where(fits, free[0], whole), shares)


class ServedPlacement(NamedTuple):
    """Placement of what a device holds that serves requests, and its KV memory.

    Attributes:
        placement: with the KV cache of one longest request.
        pool: KV memory, over all memories that have some of it.
    """

    placement: MemoryPlacement
    pool: KvPool

    @property
    def shares(self) -> dict[str, Shares]:
        """Shares of contents in each memory, KV caches as the pool has them. [1]"""
        return self.placement.shares | {KV: self.pool.shares}


def place_served(chip: Chip, mapping: Mapping, main_room: Any, nbytes: Dict[str, Any], requests: float) -> ServedPlacement:
    """Placement on a device that serves requests.

    Where main memory has no room for all weights and experts beside one longest request, the rule keeps room there for the KV
    caches of as many as run at once. Experts take what is left.

    Args:
        chip, mapping, main_room, nbytes: as of `place_contents`, with the KV cache of one longest request.
        requests: that run at once, at most. [1]
    """
    placement = place_contents(chip, mapping, main_room, nbytes)
    if float(np.min(placement.shares[EXPERTS][0])) < 1.0:
        together = place_contents(chip, mapping, main_room, {**nbytes, KV: nbytes[KV] * requests})
        placement = placement._replace(shares=placement.shares | {EXPERTS: together.shares[EXPERTS]})
    return ServedPlacement(placement, kv_pool(mapping, placement))


def prefix_room(design: Design, served: ServedPlacement) -> float:
    """Room for prefixes in the tier that keeps them, beside all that is placed there. [B]

    Raises:
        DesignError: nothing is left.
    """
    place = placement_plan(design.mapping).prefixes
    memory = 1 + TIERS.index(place)
    left = float(np.max(served.placement.rooms_left(KV)[memory] - served.pool.nbytes * served.pool.shares[memory]))
    if left <= 0:
        raise DesignError(
            f"mapping.memory_placement.prefixes: other contents take all room of the {place} memory; raise "
            f"{tier_address(place, 'capacity')}, or set another memory"
        )
    return left


def refuse_staged_tiers(design: Design) -> None:
    """Refuse memory tiers of devices that have only some of a model's layers or operators.

    Raises:
        DesignError: the chip has memory tiers; the message says what to set.
    """
    if design.chip.tiers is not None:
        raise DesignError(
            "chip.tiers: pipeline stages, and attention and FFNs on dies of their own, read main memory only; set "
            "mapping.both.pp=1, or ~chip.tiers"
        )
