"""Models on many dies of tiles: work of one die, local memories and energy."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dse.evaluators.accounting import die_batches as shared_dies
from dse.evaluators.accounting import multi_die as many_dies
from dse.evaluators.accounting import multi_die_limits as dies_limits
from dse.evaluators.accounting import tile_operators as tiles
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.memory_contents import MemoryContents, main_memory_contents
from dse.evaluators.accounting.multi_die import Alone, DieKind, MemoryItems, MultiDieLayout, single_die_work
from dse.evaluators.accounting.multi_die_limits import single_die_chip
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.tile_operators import breakdown_rows as breakdown_rows
from dse.evaluators.accounting.tile_operators import (
    local_memory_by_kind,
    local_memory_contents,
    sum_blocks,
)
from dse.evaluators.accounting.usage import PeakRates, tile_peak_rates
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


def activity_energy(design: Design, activity: Activity) -> Any:
    """Dynamic energy of an activity on dies of tiles. [J]"""
    return dynamic_energy(activity, design.chip, activation_bytes(design.mapping))


def die_peak_rates(design: Design) -> PeakRates:
    """Peak rates of all tiles, channels and links of one die."""
    return tile_peak_rates(design.chip)


def memory_capacity(design: Design) -> Any:
    """Main-memory capacity of one die. [B]"""
    return main_memory(design.chip).capacity


def die_contents(design: Design, phase: str, items: MemoryItems, slices: Any) -> list[MemoryContents]:
    """Contents of main memory, and of a tile's local memory while each kind of operator runs."""
    return [main_memory_contents(design.chip, items), *local_memory_contents(design.chip, phase, slices)]


def group_limits(design: Design) -> list[Limit]:
    """Limits of tile groups, which divide the mesh of a die."""
    return tiles.group_limits(design.chip, design.mapping)


class TileDiesLayout(MultiDieLayout):
    """A model on many dies of tiles."""

    kind = DIE_KIND

    def die_contents(self, design: Design, phase: str, items: MemoryItems, slices: Any) -> list[MemoryContents]:
        """Contents of main memory, and of a tile's local memory while each kind of operator runs."""
        return die_contents(design, phase, items, slices)

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of tile groups, and those of many dies of any kind."""
        return [*group_limits(design), *super().structural_limits(design, job, phases)]

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of all tiles and channels of one die."""
        return die_peak_rates(design)

    def activity_energy(self, design: Design, activity: Activity) -> Any:
        """Dynamic energy of an activity of all dies. [J]"""
        return activity_energy(design, activity)

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase by operator."""
        return breakdown_rows(phase, fidelity)

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
        """What to change where the division over dies, or a tile, violates a limit."""
        return tile_die_levers(worst, design, arrays)


def tile_die_levers(worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
    """What to change where the division over dies, or a tile, violates a limit."""
    return dies_limits.die_levers(worst, design, arrays) or tiles.tile_levers(worst, design)
