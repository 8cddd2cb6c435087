"""Models on many dies of tiles: work of one die, local memories and energy."""

from collections.abc import Mapping as Dict
from functools import partial
from typing import Any

from dse.evaluators.accounting import die_batches as shared_dies
from dse.evaluators.accounting import multi_die as many_dies
from dse.evaluators.accounting import multi_die_limits as dies_limits
from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.multi_die import GAP_LABEL as GAP_LABEL
from dse.evaluators.accounting.multi_die import HIDDEN_LABEL as HIDDEN_LABEL
from dse.evaluators.accounting.multi_die import SUBMESH_FIDELITIES as SUBMESH_FIDELITIES
from dse.evaluators.accounting.multi_die import SUBMESH_TEXT as SUBMESH_TEXT
from dse.evaluators.accounting.multi_die import TOGETHER as TOGETHER
from dse.evaluators.accounting.multi_die import WAIT_LABEL as WAIT_LABEL
from dse.evaluators.accounting.multi_die import Alone, DieKind, single_die_work
from dse.evaluators.accounting.multi_die import area_by_block as area_by_block
from dse.evaluators.accounting.multi_die import die_and_system_area as die_and_system_area
from dse.evaluators.accounting.multi_die import die_count as die_count
from dse.evaluators.accounting.multi_die import fullest_die_memory as fullest_die_memory
from dse.evaluators.accounting.multi_die_limits import early_limits as early_limits
from dse.evaluators.accounting.multi_die_limits import layout_limits as layout_limits
from dse.evaluators.accounting.multi_die_limits import single_die_chip
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.power import EnergyIntervals, power_metrics
from dse.evaluators.accounting.tile_operators import (
    Held,
    largest_value,
    local_memory_by_kind,
    memory_and_group_limits,
    sum_blocks,
)
from dse.evaluators.accounting.tile_operators import breakdown_rows as breakdown_rows
from dse.evaluators.cost_models import cost_model
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.kernels.kernel_cost import KernelCost
from dse.evaluators.layouts import whole_chip
from dse.evaluators.layouts.micro_batches import ReplicaWork
from dse.evaluators.layouts.multi_die import DieContext, DieSplit, micro_batch_passes
from dse.evaluators.layouts.tensor_formats import ValueBytes, activation_bytes, combine_bytes, value_bytes
from dse.evaluators.machine.machine import HardwareModel, tile_core_machine
from dse.evaluators.program.activity import Activity
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import FormatPlan, Mapping
from dse.space.memoize import memoize, memoize_by_identity

FIDELITIES = ("analytical", "events")
"""Fidelities of models, whose meshes are too large for cycle-level simulation."""

ALONE = ("events",)
"""Fidelities that take one design after another."""


def phases(design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
    """Costs of prefill and decode of a case."""
    return many_dies.phases(DIE_KIND, design, job, fidelity, detailed=detailed)


def _of_design(design: Design, work: ReplicaWork, die_split: DieSplit, fidelity: str) -> Alone:
    die, plan = _die(design, work.plan)
    how = design.mapping.precision, fidelity
    die_work: Alone | None = shared_dies.find_die_work(_several, work, die_split, die, plan, *how)
    return _own(work, die_split, die, plan, *how) if die_work is None else die_work


def request_die_work(design: Design, work: ReplicaWork, die_split: DieSplit, fidelity: str) -> None:
    """Request a design's die work for a batch, so that equal work is computed together."""
    shared_dies.request_die_work(work, die_split.single_die, *_die(design, work.plan), design.mapping.precision, fidelity)


@memoize_by_identity
def _die(design: Design, plan: str) -> tuple[Chip, whole_chip.KernelPlan]:
    """A die, and its plan's kernel settings."""
    activation_bytes(design.mapping)  # refuses what tiles do not take
    mapping_plan = getattr(design.mapping, plan)
    return single_die_chip(design.chip), whole_chip.KernelPlan(mapping_plan.attention, mapping_plan.gemm)


@memoize
def _own(
    work: ReplicaWork, die_split: DieSplit, die: Chip, plan: whole_chip.KernelPlan, precision: FormatPlan, fidelity: str
) -> Alone:
    """Work of single dies, and local memory of a tile in use, by kind of operator."""
    return _worked(work, die_split, whole_chip.ChipContext(work.model, die, plan, precision, {}), cost_model(fidelity))


def _several(
    work: ReplicaWork, die_split: DieSplit, batch: shared_dies.DieBatch, precision: FormatPlan, fidelity: str
) -> Alone:
    """Work of several dies; products are timed once, whatever they attend to."""
    reader, context = cost_model(fidelity), whole_chip.ChipContext(work.model, batch.die, batch.said, precision, batch.known)

    def price(job: Any) -> KernelCost:
        if id(job) not in batch.priced:
            batch.priced[id(job)] = job, reader.job(job)  # which is kept, so that nothing else takes its place
        price: KernelCost = batch.priced[id(job)][1]
        return price

    return _worked(work, die_split, context, reader._replace(job=price))


def _worked(work: ReplicaWork, die_split: DieSplit, context: whole_chip.ChipContext, reader: CostModel) -> Alone:
    calls = DieContext(
        work.model, partial(whole_chip.segment_calls, context=context), context.itemsize, combine_bytes(context.precision)
    )
    found_work, parts = single_die_work(
        micro_batch_passes(work, die_split, calls), tile_core_machine(context.chip), reader, sum_blocks
    )
    return found_work, local_memory_by_kind(part.block for part in parts)


def _machine(design: Design, phase: str) -> HardwareModel:
    """Machine of a die; jobs split their time themselves."""
    return many_dies.EMPTY_MACHINE


def _sizes(mapping: Mapping) -> ValueBytes:
    activation_bytes(mapping)  # refuses what tiles do not take
    return value_bytes(mapping.precision)


def _reached(mapping: Mapping) -> float:
    return 1.0


DIE_KIND = DieKind(_of_design, _machine, _sizes, _reached)


def usage_metrics(design: Design, job: BatchArrays, *phases: PhaseCost) -> dict[str, Any]:
    """Metrics of engine and channel utilisation, memory use of the fullest die, and energy."""
    chip = design.chip
    latency, dies = phases[0].seconds + phases[1].seconds, die_count(design)
    peak = dies * engine_peak(design)
    activity = Activity()
    for phase in phases:
        assert phase.activity is not None
        activity = activity + phase.activity
    return {
        "peak_flops": peak,
        "mfu": sum(phase.flop for phase in phases) / (peak * latency),
        "hbm_bytes": activity.memory_bytes,
        "hbm_utilisation": activity.memory_bytes / (latency * dies * memory_bandwidth(design)),
        "decode_throughput_per_chip": job.output_tokens / phases[1].seconds / dies,
        "hbm_used": largest_value(sum(value for _, value in phase.held[0]) for phase in phases) * 1.0,
        "sram_used": largest_value(largest_value(nbytes for _, nbytes in phase.held[1]) for phase in phases),
        **power_metrics(chip, lambda: energy_and_time(design, job, *phases), job.output_tokens, chips=dies),
    }


def energy_and_time(design: Design, job: BatchArrays, *phases: PhaseCost) -> EnergyIntervals:
    """Energy and time of each phase. [J], [s]"""
    return [(activity_energy(design, phase.activity or Activity()), phase.seconds) for phase in phases]


def activity_energy(design: Design, activity: Activity) -> Any:
    """Dynamic energy of an activity on dies of tiles. [J]"""
    return dynamic_energy(activity, design.chip, activation_bytes(design.mapping))


def engine_peak(design: Design) -> Any:
    """Peak rate of one die's matrix engines. [FLOP/s]"""
    chip, engine = design.chip, design.chip.tile.matrix
    return 2.0 * chip.mesh.rows * chip.mesh.cols * engine.rows * engine.cols * chip.clock


def memory_bandwidth(design: Design) -> Any:
    """Main-memory bandwidth of one die. [B/s]"""
    return main_memory(design.chip).bandwidth


def memory_capacity(design: Design) -> Any:
    """Main-memory capacity of one die. [B]"""
    return main_memory(design.chip).capacity


def memory_limits(design: Design, held: Dict[str, Held]) -> list[Limit]:
    """Limits of memories in both phases, and of tile groups."""
    return memory_and_group_limits(design.chip, design.mapping, held)


def limits(design: Design, job: BatchArrays, *phases: PhaseCost) -> list[Limit]:
    """Limits of memories and tile groups, and those of many dies of any kind."""
    return [*memory_limits(design, {phase.name: phase.held for phase in phases}), *dies_limits.limits(design, job)]


def remedy_text(worst: Infeasibility, design: Design, arrays: tuple[BatchArrays, ...]) -> str:
    """Remedy text for the most violated limit."""
    return dies_limits.remedy_text(worst, design, arrays) or tiles.remedy_text(worst, design)
