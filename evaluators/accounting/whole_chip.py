"""Models on all tiles of a mesh at once: forward passes, limits and energy."""

from typing import Any

import numpy as np

from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.decode_segments import BatchArrays, arrays_by_case
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.power import EnergyIntervals, power_metrics
from dse.evaluators.accounting.tile_operators import breakdown_rows as breakdown_rows
from dse.evaluators.accounting.tile_operators import (
    hbm_bytes_by_use,
    largest_value,
    local_memory_by_kind,
    memory_and_group_limits,
    sum_blocks,
)
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.calls.submesh import parse_fidelity
from dse.evaluators.cost_models import READERS, cost_model
from dse.evaluators.cost_models.cached_operators import cached_shares
from dse.evaluators.cost_models.call_cost import CostModel, TimedBlock, block_timeline
from dse.evaluators.cost_models.memory_read_ahead import ReadAhead, timeline_with_read_ahead
from dse.evaluators.cost_models.submesh_jobs import MAX_WAVES
from dse.evaluators.graph.step_counts import decode_steps, prefill_step
from dse.evaluators.layouts.tensor_formats import activation_bytes
from dse.evaluators.layouts.whole_chip import has_read_ahead, passes_by_phase, resident_state_shares
from dse.evaluators.machine.machine import HardwareModel, tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import maximum
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.layers import per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import Mapping, WholeChipPlan
from dse.space.parameter_counts import STATE_BYTES, sequence_memory
from dse.space.workload import BatchCase

FIDELITIES = ("analytical", "events")
"""Fidelities of models, whose meshes are too large for cycle-level simulation."""

SUBMESH_FIDELITIES = tuple(READERS)
"""Fidelities of models whose operators each run on a submesh."""

SUBMESH_TEXT = f"each operator on a submesh, at most {MAX_WAVES} waves, which represent all waves; memory channels are scaled"
"""What becomes of a model there, for people."""

WAIT_LABEL = "stages"
"""Where requests that follow one another overlap."""

TOGETHER = arrays_by_case
"""Cases evaluated together: each case separately."""

ALONE = ("events", "cycles")
"""Fidelities that take one design after another."""


def phases(design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
    """Costs of prefill and decode of a case, forward pass by forward pass.

    Only detailed phases keep their blocks.

    Raises:
        DesignError: formats of other sizes side by side.
    """
    chip, mapping, (case,) = _chip(design), _mapping(design), job.cases
    machine, reader = tile_core_machine(chip), cost_model(fidelity)
    plans = {"prefill": mapping.prefill, "decode": mapping.decode}
    keep = {name: cached_shares(chip, _held(design, job, name), _aside(chip, plan)) for name, plan in plans.items()}
    phases = []
    for name, passes in passes_by_phase(case, chip, mapping, job.decode_context, keep).items():
        scaled = [[block._replace(times=count * block.times) for block in blocks] for count, blocks in passes]
        parts = _timed(scaled, machine, reader, chip, plans[name])
        seconds, activity, flop = sum_blocks(parts)
        full = (_held(design, job, name), _in_tiles(parts, case, chip, plans[name]))
        whole = activity if not parse_fidelity(fidelity)[1] else None  # a part has other shares of memory, and of what is sent
        phases.append(PhaseCost(name, machine, tuple(parts) if detailed else (), None, 1.0, None, seconds, full, whole, flop))
    return tuple(phases)


def is_evaluated_alone(design: Design) -> bool:
    """Whether a design is evaluated alone, since its share of resident states is its own."""
    return any(plan.state_share is not None for plan in (design.mapping.prefill, design.mapping.decode))


def _in_tiles(parts: list[TimedBlock], case: BatchCase, chip: Chip, plan: WholeChipPlan) -> list[tuple[str, Any]]:
    """Local memory of a tile in use by kind of operator, besides resident states."""
    share, stay = resident_state_shares(case, chip, plan)
    if not share:
        return local_memory_by_kind(part.block for part in parts)
    # what updates states has those of its own layer among what is set aside
    own = (
        max(memory.state for memory in sequence_memory(case.model))
        * STATE_BYTES
        * case.batch
        * stay
        / (chip.mesh.rows * chip.mesh.cols)
    )
    aside = share * chip.tile.sram
    return [
        (name, nbytes + aside - (own if name == "rows" else 0.0))
        for name, nbytes in local_memory_by_kind(part.block for part in parts)
    ]


def _aside(chip: Chip, plan: WholeChipPlan) -> Any:
    """Of a cache in front of main memory, what is set aside for what is read ahead. [B]"""
    return plan.prefetch.share * chip.l2.size if has_read_ahead(plan) and chip.l2 is not None else 0.0


def _timed(
    turns: list[list[CallBlock]], machine: HardwareModel, reader: CostModel, chip: Chip, plan: WholeChipPlan
) -> list[TimedBlock]:
    """Timed blocks of consecutive forward passes, with the prefetch in each."""
    parts, prefetch = block_timeline([block for blocks in turns for block in blocks], machine, reader), plan.prefetch
    if not has_read_ahead(plan):
        return parts
    # without a cache, of what the slices of all operators leave of local memories: nothing, where these are full
    free = (
        maximum(chip.tile.sram - largest_value(nbytes for _, nbytes in local_memory_by_kind(part.block for part in parts)), 0.0)
        * chip.mesh.rows
        * chip.mesh.cols
    )
    ahead = ReadAhead(prefetch.policy, prefetch.share * free if chip.l2 is None else _aside(chip, plan))
    return [timed_block for blocks in turns for timed_block in timeline_with_read_ahead(blocks, machine, reader, chip, ahead)]


def die_and_system_area(design: Design) -> tuple[Any, Any]:
    """Area of one die and of all dies. [mm2]"""
    return area.die_area(_chip(design)), area.total_area(_chip(design))


def area_by_block(design: Design) -> dict[str, Any]:
    """Area of the chip by block. [mm2]"""
    return area.area_by_block(_chip(design))


def layout_limits(design: Design, job: BatchArrays) -> list[Limit]:
    """Layout limits of a design; the whole chip has none."""
    return []


def usage_metrics(design: Design, job: BatchArrays, *phases: PhaseCost) -> dict[str, Any]:
    """Metrics of utilisation, memory use and energy; NaN on a submesh."""
    chip, engine = _chip(design), _chip(design).tile.matrix
    latency = phases[0].seconds + phases[1].seconds
    peak = 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock
    activity: Activity | None = Activity()
    for phase in phases:
        activity = None if activity is None or phase.activity is None else activity + phase.activity
    nbytes = np.nan if activity is None else activity.memory_bytes
    return {
        "peak_flops": peak,
        "mfu": sum(phase.flop for phase in phases) / (peak * latency),
        "hbm_bytes": nbytes,
        "hbm_utilisation": nbytes / (latency * main_memory(chip).bandwidth),
        "hbm_used": max(sum(value for _, value in phase.held[0]) for phase in phases) * 1.0,
        "sram_used": largest_value(_filled(design, phase) for phase in phases),
        **power_metrics(chip, lambda: energy_and_time(design, job, *phases), job.output_tokens),
    }


def energy_and_time(design: Design, job: BatchArrays, *phases: PhaseCost) -> EnergyIntervals:
    """Energy and time of each phase; energy is NaN on a submesh. [J], [s]"""
    chip, width = _chip(design), activation_bytes(_mapping(design))
    return [
        (np.nan if phase.activity is None else dynamic_energy(phase.activity, chip, width), phase.seconds) for phase in phases
    ]


def _filled(design: Design, phase: PhaseCost) -> Any:
    """Local memory of a tile in use in a phase, with the part reserved for prefetch."""
    chip, plan = _chip(design), getattr(_mapping(design), phase.name)
    slices = largest_value(nbytes for _, nbytes in phase.held[1])
    if not has_read_ahead(plan) or chip.l2 is not None:
        return slices
    return slices + plan.prefetch.share * maximum(chip.tile.sram - slices, 0.0)


def limits(design: Design, job: BatchArrays, *phases: PhaseCost) -> list[Limit]:
    """Limits of memories in both phases, and of tile groups that divide the mesh."""
    chip, mapping = _chip(design), _mapping(design)
    return memory_and_group_limits(chip, mapping, {phase.name: phase.held for phase in phases})


def remedy_text(worst: Infeasibility, design: Design, arrays: tuple[BatchArrays, ...]) -> str:
    """Remedy text for the most violated limit."""
    return tiles.remedy_text(worst, design)


def _held(design: Design, job: BatchArrays, phase: str) -> tuple[tuple[str, float], ...]:
    (case,) = job.cases
    at = prefill_step(case) if phase == "prefill" else decode_steps(case, "last")[0][1]
    lengths = [(n, prompt + (output if phase == "decode" else 0)) for n, prompt, output in case.requests]
    cached = per_reach(case.model, lambda reach: float(sum(n * reach.kept_positions(length) for n, length in lengths)))
    plan = _mapping(design).decode
    away = 1 - (resident_state_shares(case, _chip(design), plan)[1] if phase == "decode" else 0.0)
    return hbm_bytes_by_use(case.model, at, cached, case.batch * away, _mapping(design).precision)


def _chip(design: Design) -> Chip:
    return design.chip


def _mapping(design: Design) -> Mapping:
    return design.mapping
