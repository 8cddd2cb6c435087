"""Models on pipelines of core groups: instances, core memory, phases, limits and energy.

The chip is divided into instances of the model, each a pipeline of groups; requests are shared evenly between them.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dse.evaluators.accounting import breakdown
from dse.evaluators.accounting.breakdown import AlgorithmNamer, BreakdownRow, stage_transfer_rows
from dse.evaluators.accounting.decode_segments import (
    BatchArrays,
    reduce_per_case,
    spread_over_entries,
    sum_per_case,
)
from dse.evaluators.accounting.forward_passes import StagedPass, pass_through_stages
from dse.evaluators.accounting.layout import Layout
from dse.evaluators.accounting.memory_contents import (
    memory_limits,
)
from dse.evaluators.accounting.partition_search import (
    ChosenPartitions,
    choose_partitions,
    partitioned_phase,
    plan_with_partition,
    remember_products,
)
from dse.evaluators.accounting.partition_search import PartitionedPhase as Partitions
from dse.evaluators.accounting.phase import IterationSchedule, PhaseCost, mesh_work, phase_seconds, useful_operations
from dse.evaluators.accounting.pipeline_memory import core_contents
from dse.evaluators.accounting.remedies import Lever, advise, limits_of_changes
from dse.evaluators.accounting.settled_partitions import settle_partitions
from dse.evaluators.accounting.usage import PeakRates, tile_peak_rates
from dse.evaluators.calls.algorithm_candidates import select_values
from dse.evaluators.calls.call import CallBlock, KernelCall
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import jobs as jobs_of_tiles
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.cost_models.fastest_algorithm import partition_choice_text
from dse.evaluators.graph.operators import Segment
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.partition.group_placement import group_sides_by_design
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement
from dse.evaluators.layouts import group_attention as on_groups
from dse.evaluators.layouts.group_attention import GroupChip, group_chip
from dse.evaluators.layouts.micro_batches import micro_batch_counts
from dse.evaluators.layouts.operator_partitions import offered_partitions
from dse.evaluators.layouts.pipelines import group_blocks, group_count
from dse.evaluators.layouts.residency import CoreResidency, core_residency
from dse.evaluators.machine.machine import HardwareModel, tile_core_machine
from dse.evaluators.machine.memory_side_cache import memory_side_cache
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.aliases import PHASES
from dse.space.array_math import ceil_div, maximum, minimum
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.layers import per_reach
from dse.space.limits import IncompatibleOptionsError, Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import AUTO, BYTES_BY_FORMAT, DIVISIONS, FormatPlan, Mapping, PipelinePlan
from dse.space.memoize import memoize, memoize_by_identity
from dse.space.model import Model


class PipelineLayout(Layout):
    """A model on pipelines of core groups, which are instances that share requests evenly."""

    FIDELITIES = SUBMESH_FIDELITIES = tuple(READERS)

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill, prompt by prompt through each instance, and of decode by micro-batches."""
        reader, mapping = READERS[fidelity], design.mapping
        blocks_and_memory = _lay_phases(design, job)

        def phase(name: str, runs: Any, useful_share: Any) -> PhaseCost:
            blocks, held = blocks_and_memory[name]
            staged_pass, seconds = _pass_phase(design, job, name, blocks, held, reader)
            plan, starts, _ = _phase_entries(design, job, name)

            def useful() -> Any:
                return useful_operations([part.block for part in staged_pass.timed], runs * useful_share, starts)

            return PhaseCost(
                name=name,
                machine=tile_core_machine(design.chip),
                seconds=seconds,
                work=lambda: sum_per_case(staged_pass.activity * runs, starts),
                flop=useful,
                memory=core_contents(design.chip, plan, held, held.cached_share),
                timed=staged_pass.timed if detailed else (),
                away=staged_pass.away,
                runs=runs,
                between=staged_pass.transfer_seconds,
                useful_share=useful_share,
            )

        _, together = _decode_batches(_pipeline_instances(design.chip, mapping.decode), mapping.decode, job)
        passes = ceil_div(job.requests, together)
        decode = phase("decode", job.steps * passes, job.requests / (passes * together))
        return phase("prefill", job.copies, 1.0), decode

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of parallelism of both phases."""
        return _batch_parallelism_limits(design, job)

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of all tiles and channels of the chip; idle tiles have theirs."""
        return tile_peak_rates(design.chip)

    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase. [J]"""
        width = float(BYTES_BY_FORMAT[design.mapping.precision.activations])
        return dynamic_energy(mesh_work(phase), design.chip, width)

    def is_evaluated_alone(self, design: Design) -> bool:
        """Whether a design is evaluated alone, since attention on groups is computed job by job."""
        return any(plan.attention is not None for plan in (design.mapping.prefill, design.mapping.decode))

    def settle_open_choices(self, design: Design, job: BatchArrays) -> None:
        """Choose partitions that designs leave open; each keeps them (`settled_partitions`)."""
        if AUTO in (design.mapping.prefill.partition, design.mapping.decode.partition):
            _lay_phases(design, job)

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase: one per call, and one for transfers between stages."""
        rows = breakdown.breakdown_rows(
            phase.name, phase.runs, phase.timed, phase.machine, phase.away, partial(jobs_of_tiles.time_by_resource, fidelity),
            useful_times=phase.useful_share, chosen=_chosen_reductions(phase.machine),
        )  # fmt: skip
        return rows + stage_transfer_rows(phase.name, phase.runs, phase.between)

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> tuple[Lever, ...]:
        """Group sides that divide the mesh, or the smallest parallelism that fits."""
        if sides := on_groups.side_advice_text(worst.limit, {name: getattr(design.mapping, name) for name in PHASES}):
            return advise(sides)

        def limits(trial: Design) -> list[Limit]:
            limits = [limit for job in arrays for limit in _batch_parallelism_limits(trial, job)]
            for job, name in product(arrays, PHASES):
                held = _held_memory(trial, job, name)
                limits += memory_limits(core_contents(trial.chip, getattr(trial.mapping, name), held, held.cached_share))
            return limits

        return (parallelism_lever(design, limits),)


def _pass_phase(
    design: Design, job: BatchArrays, phase: str, laid: tuple[CallBlock, ...], held: CoreResidency, reader: CostModel
) -> tuple[StagedPass, Any]:
    """Forward pass through all stages, and seconds of the phase of each case."""
    chip, mapping = _chip_and_mapping(design)
    plan, starts, entries = _phase_entries(design, job, phase)
    instances = _pipeline_instances(chip, plan)
    turns, tokens = (1.0, job.prompts) if phase == "prefill" else _decode_batches(instances, plan, job)
    crossing = tokens * job.model.hidden * BYTES_BY_FORMAT[mapping.precision.activations]
    residency = CoreResidency(*(spread_over_entries(value, starts, entries) for value in held))
    staged_pass = pass_through_stages(
        job.model, laid, crossing, tile_core_machine(chip), _pipeline_placement(chip, plan), plan, residency, reader
    )
    if phase == "decode":
        schedule = IterationSchedule(turns, job.steps, starts)
    else:
        schedule = IterationSchedule(ceil_div(job.copies, instances), starts=starts, is_ring=False)
    return staged_pass, phase_seconds(staged_pass.seconds, staged_pass.stage, schedule)


def _phase_entries(design: Design, job: BatchArrays, phase: str) -> tuple[PipelinePlan, Any, int]:
    """The plan of a phase, where cases begin, and how many entries they have."""
    prefill = phase == "prefill"
    starts, entries = (job.prompt_starts, job.prompts) if prefill else (job.step_starts, job.steps)
    return design.mapping.prefill if prefill else design.mapping.decode, starts, np.size(entries)


def _lay_phases(design: Design, job: BatchArrays) -> dict[str, tuple[tuple[CallBlock, ...], CoreResidency]]:
    """Calls of the steps and core memory of each phase; open partitions are chosen."""
    laid_phases, open_ = {}, []
    for phase in ("prefill", "decode"):
        plan = getattr(design.mapping, phase)
        if plan.partition == AUTO:
            open_.append(phase)
            continue
        tokens = _batch_tokens(job, phase, plan, _pipeline_instances(design.chip, plan))
        laid = _pass_blocks(job, phase, plan, design.mapping.precision, tokens, _group_chip(design, plan))
        laid_phases[phase] = laid, _held_memory(design, job, phase)
    phases: dict[str, Partitions] = {}

    def choose() -> tuple[ChosenPartitions, ...]:
        phases.update((phase, _left_open(design, job, phase)) for phase in open_)
        return tuple(choose_partitions(list(phases.values())))

    chosen = settle_partitions(design, job, choose) if open_ else ()
    for phase, partitions in zip(open_, chosen, strict=True):
        if phase not in phases:  # remembered, so that other partitions need no blocks
            phases[phase] = _left_open(design, job, phase, partitions.needed_words())
        laid_phases[phase] = partitioned_phase(phases[phase], partitions)
    return laid_phases


def _left_open(design: Design, job: BatchArrays, phase: str, words: Collection[str] = DIVISIONS) -> Partitions:
    """A phase as it depends on partitions of its operators, with blocks of those partitions that are in `words`."""
    plan, starts, entries = _phase_entries(design, job, phase)
    chip, precision = design.chip, design.mapping.precision
    tokens = _batch_tokens(job, phase, plan, _pipeline_instances(chip, plan))
    at, group = _pass_counts(job, tokens), _group_chip(design, plan)
    runs = job.copies if phase == "prefill" else job.steps
    closed = remember_products(READERS["analytical"])
    return Partitions(
        job.model,
        plan,
        precision,
        transformer_segments(job.model, at),
        segment_order(job.model, at),
        {
            word: _pass_blocks(job, phase, plan_with_partition(plan, word), precision, tokens, group, True)
            for word in offered_partitions(plan)
            if word in words
        },
        lambda word, everywhere: _held_memory(design, job, phase, plan_with_partition(plan, word), everywhere),
        lambda laid, held: _pass_phase(design, job, phase, laid, held, closed),
        lambda _, held: _has_room(chip, held),
        runs,
        starts,
        entries,
        tile_core_machine(chip),
        closed,
    )


def _has_room(chip: Chip, held: CoreResidency) -> Any:
    """Whether a core's memory fits in local and main memory."""
    return (held.hbm <= main_memory(chip).capacity_per_core) & (held.activations + held.slices <= chip.tile.sram)


def pass_rows(phase: str, staged_pass: StagedPass, weights: Any, machine: HardwareModel) -> list[BreakdownRow]:
    """Breakdown rows of a forward pass through all stages, times `weights`; they add up to its time."""
    return [
        *breakdown.breakdown_rows(
            phase, weights, staged_pass.timed, machine, staged_pass.away, chosen=_chosen_reductions(machine)
        ),
        *stage_transfer_rows(phase, weights, staged_pass.transfer_seconds),
    ]


def _chosen_reductions(machine: HardwareModel) -> AlgorithmNamer:
    """Function that names the reduction algorithm that each product chose."""

    def words(call: KernelCall) -> str:
        if call.group is None:
            return ""
        return partition_choice_text(call.group, call.products[0], machine, call.width, READERS["analytical"].product)

    return words


def parallelism_lever(design: Design, limits: Callable[[Design], list[Limit]]) -> Lever:
    """The smallest TP x PP of both phases.

    Args:
        design: as it is.
        limits: of a changed design.
    """
    mesh = design.chip.mesh
    cores = int(mesh.rows * mesh.cols)
    sizes = [
        (1 << power, count >> power)
        for count in range(1, cores + 1)
        for power in range(count.bit_length())
        if count % (1 << power) == 0
    ]
    return Lever(
        lambda size: "set TP {0} x PP {1}: mapping.both.tp={0} mapping.both.pp={1}".format(*size),
        sizes,
        lambda size: {
            f"mapping.{phase}.{knob}": value for phase in PHASES for knob, value in zip(("tp", "pp"), size, strict=True)
        },
        limits_of_changes(design, limits),
        failed=f"no TP x PP on {cores} cores fits",
    )


def parallelism_limits(chip: Chip, name: str, plan: PipelinePlan, stages: float, groups: Any) -> list[Limit]:
    """Limits of parallelism of one phase.

    Args:
        chip, name, plan: of the phase.
        stages: into which a model can be divided.
        groups: groups that fit on the chip.
    """
    rows, cols = group_sides_by_design(plan.placement, plan.tp)
    return [
        Limit(f"mapping.{name}.tp", maximum(rows / chip.mesh.rows, cols / chip.mesh.cols) * plan.tp, plan.tp, "1"),
        Limit(f"mapping.{name}.pp", plan.pp, minimum(maximum(groups, 1.0), stages * 1.0), "1"),
    ]


def _batch_parallelism_limits(design: Design, job: BatchArrays) -> list[Limit]:
    limits = []
    for name in ("prefill", "decode"):
        plan = getattr(design.mapping, name)
        limits += parallelism_limits(design.chip, name, plan, job.model.layers, group_count(design.chip, plan))
        limits += on_groups.group_side_limits(name, plan)
    return limits


def _pipeline_instances(chip: Chip, plan: PipelinePlan) -> Any:
    """Number of pipelines of groups that fit on the chip."""
    return maximum(group_count(chip, plan) // plan.pp, 1.0)


def _pipeline_placement(chip: Chip, plan: PipelinePlan) -> PipelinePlacement:
    return PipelinePlacement(plan.placement, plan.tp, plan.pp, _pipeline_instances(chip, plan), chip.mesh.rows)


@memoize_by_identity
def _decode_batches(instances: Any, plan: PipelinePlan, job: BatchArrays) -> tuple[Any, Any]:
    """Micro-batches of an instance in flight, as many as stages at most, and requests of each."""
    return micro_batch_counts(ceil_div(job.requests, instances), plan.pp)


def _held_memory(
    design: Design, job: BatchArrays, phase: str, plan: PipelinePlan | None = None, everywhere: Any = 0.0
) -> CoreResidency:
    """Core memory; with open partitions, by the single partition that fits, if any does."""
    chip, mapping = _chip_and_mapping(design)
    plan = plan or (mapping.prefill if phase == "prefill" else mapping.decode)
    if plan.partition == AUTO:
        residencies = [_held_memory(design, job, phase, plan_with_partition(plan, word)) for word in offered_partitions(plan)]
        residency: CoreResidency = select_values(
            residencies,
            np.stack(np.broadcast_arrays(*(_has_room(chip, residency) for residency in residencies))).argmax(axis=0),
        )
        return residency
    instances = _pipeline_instances(chip, plan)
    if phase == "prefill":
        tokens = reduce_per_case(np.maximum, job.prompts, job.prompt_starts)
    else:
        tokens = reduce_per_case(np.maximum, _decode_batches(instances, plan, job)[1], job.step_starts)
    sequences = ceil_div(job.sequences, instances)  # of the fullest instance, which has caches of whole requests
    cached = ceil_div(job.cached * sequences, job.sequences)
    slices = _attention_slices(design, job, phase, plan, instances)
    near = memory_side_cache(chip)
    return core_residency(
        _weight_parts(job.model, phase), job.model, plan, mapping, chip.tile.sram, tokens=tokens, cached=cached,
        sequences=sequences, slices=slices,
        near=near and near.size, everywhere=everywhere,
    )  # fmt: skip


def _group_chip(design: Design, plan: PipelinePlan) -> GroupChip | None:
    """The cores of a group, where attention is of all of them at a time.

    Raises:
        ClashError: formats of other sizes side by side, or a cache that would stay in local memory.
    """
    if plan.attention is None:
        return None
    if design.mapping.sram_kv_share:
        raise IncompatibleOptionsError(
            f"mapping.sram_kv_share: attention on groups ({plan.attention.dataflow}) reads keys and values from HBM; set 0",
            "sram_kv_share",
        )
    return group_chip(design.chip, plan, design.mapping.precision)


def _attention_slices(design: Design, job: BatchArrays, phase: str, plan: PipelinePlan, instances: Any) -> Any:
    """Local memory of a core for attention on its group. [B]"""
    if plan.attention is None:
        return 0.0
    laid = _pass_blocks(
        job, phase, plan, design.mapping.precision, _batch_tokens(job, phase, plan, instances), _group_chip(design, plan)
    )
    return max(on_groups.slice_bytes(call.job) for block in laid for call in block.calls if call.job is not None)


@memoize
def _weight_parts(model: Model, phase: str) -> tuple[Segment, ...]:
    """A model's parts, for the sizes of its weights."""
    return transformer_segments(model, StepCounts(phase, 1.0, 1.0, 1.0, 1.0))


@memoize
def _pass_blocks(
    job: BatchArrays, phase: str, plan: PipelinePlan, precision: FormatPlan, tokens: Any, chip: GroupChip | None = None,
    apart: bool = False,
) -> tuple[CallBlock, ...]:  # fmt: skip
    """Calls of a forward pass: for each distinct prompt, or a micro-batch of each segment; `tokens` as of `_batch_tokens`."""
    return group_blocks(job.model, _pass_counts(job, tokens), plan, precision, chip=chip, apart=apart)


def _batch_tokens(job: BatchArrays, phase: str, plan: PipelinePlan, instances: Any) -> Any:
    """Requests of a micro-batch; None in prefill, whose prompts do not depend on the instances."""
    return None if phase == "prefill" else _decode_batches(instances, plan, job)[1]


def _pass_counts(job: BatchArrays, tokens: Any) -> StepCounts:
    """Step counts of a forward pass."""
    if tokens is None:
        pairs = per_reach(job.model, lambda reach: reach.count_pairs(job.prompts))
        return StepCounts("prefill", job.prompts, 1.0 + 0.0 * job.prompts, pairs, 0.0 * job.prompts)
    return StepCounts("decode", tokens, tokens, tokens * job.context, tokens * job.context)


def _chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
