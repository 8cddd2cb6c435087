"""Placement of contents of a device in memory tiers, and its effect on phases and activity."""

from collections.abc import Mapping as Dict
from typing import Any

import numpy as np

from dse.evaluators.accounting.decode_segments import BatchArrays, reduce_per_case, spread_over_entries
from dse.evaluators.accounting.device_pipelines import PhaseBatches
from dse.evaluators.accounting.engine_memory import EngineMemory
from dse.evaluators.accounting.memory_placement import MemoryPlacement, place_contents, refuse_staged_tiers, tiered_reads
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.layouts.tensor_parallel import DeviceMemory
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS, TieredReads
from dse.evaluators.silicon.energy import PooledActivity
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.mapping import Mapping


def place_device(chip: Chip, mapping: Mapping, held: DeviceMemory, beside: EngineMemory, capacity: Any) -> MemoryPlacement:
    """Placement of a device's contents in main memory and memory tiers.

    In main memory they are beside activations and what inference engines reserve.

    Args:
        chip, mapping: with tiers, and with the placement.
        held: bytes of weights, KV caches and experts on the device. [B]
        beside: activations and reserves in main memory. [B]
        capacity: of main memory. [B]
    """
    nbytes = {WEIGHTS: held.weights - held.experts, KV: held.kv, EXPERTS: held.experts}
    return place_contents(chip, mapping, capacity - beside.activations - beside.reserved, nbytes)


def phase_machines(
    design: Design,
    job: BatchArrays,
    batches: Dict[str, PhaseBatches],
    machine: HardwareModel,
    placement: MemoryPlacement | None,
) -> dict[str, HardwareModel]:
    """Machine of each phase: with memory tiers, those of a case's contents at each of its steps.

    Raises:
        DesignError: pipeline stages of devices with memory tiers.
    """
    if placement is None:
        return dict.fromkeys(batches, machine)
    if max(plan.stages for plan in (design.mapping.prefill, design.mapping.decode)) > 1:
        refuse_staged_tiers(design)
    machines = {}
    for name, cases, entries in (
        ("prefill", None, 1),
        ("decode", batches["decode"].schedule.starts, np.size(job.steps)),
    ):
        shares = {
            content: tuple(spread_over_entries(share, cases, entries) if cases is not None else share for share in by_memory)
            for content, by_memory in placement.shares.items()
        }
        machines[name] = machine._replace(tiers=tiered_reads(design.chip, shares, job.model))
    return machines


def tier_activity(blocks: tuple[CallBlock, ...], tiers: TieredReads) -> PooledActivity:
    """Activity that memory tiers add to blocks of calls.

    Main memory moves fewer bytes, which count as negative [B], and tiers take energy [J].
    """
    moved = energy = 0.0
    for block in blocks:
        for call in block.calls:
            shares = tiers.read_shares(call)
            if shares is not None:
                moved = moved + (block.times * call.fetch) * (1.0 - shares[0])
                each = sum(share * joules for share, joules in zip(shares[1:], tiers.energies[1:], strict=True))
                energy = energy + (block.times * call.fetch) * each
    return PooledActivity(memory_bytes=-moved, tier_energy=energy)


def tiered_phase_activity(blocks: tuple[CallBlock, ...], tiers: TieredReads, batches: PhaseBatches) -> PooledActivity:
    """Activity by which a phase of each case differs with memory tiers, as of `tier_activity` for a step."""
    moved = tier_activity(blocks, tiers)
    return PooledActivity(*(reduce_per_case(np.add, batches.runs * value, batches.schedule.starts) for value in moved))
