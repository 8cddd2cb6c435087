"""Models on tensor-parallel devices: phases, device memory, limits, energy and power."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import fields, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dse.evaluators.accounting import breakdown
from dse.evaluators.accounting.batch_account import batch_limits
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.decode_segments import BatchArrays, reduce_per_case
from dse.evaluators.accounting.device_pipelines import (
    STAGE_LIMITS,
    PhaseBatches,
    ReplicaMemory,
    StagedSeconds,
    batch_memory,
    equal_stage_limits,
    fewest_stages_levers,
    message_bytes,
    message_hop_bytes,
    phase_batches,
    replica_memory,
    stage_levers,
    stage_limits,
    staged_seconds,
)
from dse.evaluators.accounting.device_placement import phase_machines, place_device, tiered_phase_activity
from dse.evaluators.accounting.device_rates import device_peak_rates, usual_pace
from dse.evaluators.accounting.engine_memory import EngineDemand, device_capacity, engine_limits, engine_memory
from dse.evaluators.accounting.layout import STAGE_WAITS, Layout
from dse.evaluators.accounting.memory_contents import CACHE, MemoryContents, fuller_parts, main_memory_contents
from dse.evaluators.accounting.memory_placement import (
    MemoryPlacement,
    memories_contents,
)
from dse.evaluators.accounting.phase import PhaseCost, phase_seconds, useful_operations
from dse.evaluators.accounting.remedies import Lever, limits_of_changes
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.calls.call import ONCE, CallBlock
from dse.evaluators.calls.prefetch import cache_thresholds
from dse.evaluators.cost_models import READERS, call_table
from dse.evaluators.cost_models.analytical_collectives import LinkEnergyInputs, allreduce_hop_bytes, link_energy_inputs
from dse.evaluators.cost_models.call_cost import NO_PREFETCH, CostModel, PrefetchSettings, TimedBlock, block_timeline
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.collective import KTREE, ports_needed
from dse.evaluators.layouts.device_stages import stage_groups, stage_orders
from dse.evaluators.layouts.engine_overheads import (
    NO_TERMS,
    OverheadTimes,
    StepTerms,
    overhead_times,
    padded_step,
    step_terms,
)
from dse.evaluators.layouts.startable_degrees import plans_of
from dse.evaluators.layouts.tensor_parallel import DeviceMemory, device_blocks, device_memory
from dse.evaluators.machine.device_links import split_into_nodes
from dse.evaluators.machine.machine import HardwareModel, shared_cache_machine
from dse.evaluators.machine.shared_cache_die import DieCache
from dse.evaluators.silicon.energy import PooledActivity, pooled_dynamic_energy
from dse.space.aliases import PHASES
from dse.space.array_math import Array, distinct_values, extremes, maximum, minimum, where
from dse.space.chip import Chip, with_cache_range
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.layers import layers
from dse.space.limits import IncompatibleOptionsError, Infeasibility, Limit
from dse.space.main_memory import CAPACITY_LIMITS, main_memory
from dse.space.mapping import BYTES_BY_FORMAT, UNEVEN_KV_HEADS, FormatPlan, Mapping, TensorParallelPlan
from dse.space.memoize import memoize, memoize_by_identity
from dse.space.model import Model
from dse.space.number_formats import FormatRates

MAX_TP = 4096
"""The largest tensor parallelism that is tried where a design does not fit."""

MOST_PHASES = MAX_TP.bit_length() - 1
"""Of a K-tree: of as many, its groups have two members."""


class TensorParallelLayout(Layout):
    """A model on stages of tensor-parallel devices, which divide every layer of a stage among them."""

    FIDELITIES = tuple(READERS)
    SINGLE_DESIGN_FIDELITIES = FIDELITIES[1:]
    GAP_LABEL = STAGE_WAITS

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs of prefill and decode; the prompts of a case are one iteration."""
        chip, mapping = design.chip, design.mapping
        machine, reader = shared_cache_machine(chip, mapping), READERS[fidelity]
        refuse_kv_head_option(job.model, mapping.prefill, mapping.decode)
        batches = {name: phase_batches(job, name, getattr(mapping, name)) for name in ("prefill", "decode")}
        held, placement = _memories(design, job, batches)
        machines = phase_machines(design, job, batches, machine, placement)
        terms, iteration = step_terms(mapping.stack), mapping.stack.iteration

        def phase(name: str, plan: TensorParallelPlan) -> PhaseCost:
            micro = batches[name].job
            inputs = micro, name, plan, mapping.precision, chip.core.rates
            blocks: tuple[TimedBlock, ...] = ()
            padded: tuple[TimedBlock, ...] = ()
            machine = machines[name]
            if detailed:
                blocks = timed_step(_laid(*inputs, terms.without_padding), chip, plan, machine, reader)
                padded = timed_step(_laid(*inputs, terms), chip, plan, machine, reader) if terms.pads(name) else ()
            staged = (
                StagedSeconds(blocks_seconds(padded or blocks))
                if detailed and plan.stages == 1
                else _staged_step(micro, name, plan, design, machine, reader, terms)
            )
            overheads = overhead_times(iteration, job.model, getattr(micro, name), staged.kernels)
            return PhaseCost(
                name=name,
                machine=machine,
                seconds=phase_seconds(staged.pass_seconds(overheads), staged.slowest(overheads), batches[name].schedule),
                work=partial(_die_work, design, batches[name], name, machine),
                workers=plan.tp * plan.replicas,
                flop=partial(_phase_flop, design, job, name),
                memory=held if name == "decode" else (),
                timed=blocks,
                runs=batches[name].runs,
                between=staged.transfers,
                dies=plan.tp,
                useful_share=batches[name].useful_share,
                padded=padded,
                overheads=overheads,
                stages=plan.stages,
            )

        return (phase("prefill", mapping.prefill), phase("decode", mapping.decode))

    def least_phases(self, fastest: Design, smallest: Design, job: BatchArrays) -> tuple[PhaseCost, ...]:
        """Costs of phases of which no design of a box takes less, with a range of caches."""
        return self.phases(replace(fastest, chip=with_cache_range(fastest.chip, smallest.chip.l2.size)), job, "analytical")

    def size_thresholds(self, design: Design, job: BatchArrays) -> dict[str, Array]:
        """Sizes of the cache from which an operand is prefetched as a whole, or activations stay. [B]"""
        mapping, terms, sizes = design.mapping, step_terms(design.mapping.stack), list[Array]()
        for name, plan in (("prefill", mapping.prefill), ("decode", mapping.decode)):
            micro = phase_batches(job, name, plan).job
            blocks = _laid(micro, name, plan, mapping.precision, design.chip.core.rates, terms)
            sizes.append(cache_thresholds(blocks, plan.prefetch, plan.prefetch_share if plan.tp > 1 else 0.0))
        return {"chip.l2.size": np.unique(np.concatenate(sizes))}

    def layout_limits(self, design: Design, job: BatchArrays) -> list[Limit]:
        """Limits of stages without layers."""
        return stage_limits(design.mapping, job.model)

    def structural_limits(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> list[Limit]:
        """Limits of ports and parallelism; both phases have the same, since one pool of devices serves both."""
        chip, mapping = design.chip, design.mapping
        prefill, decode = mapping.prefill.tp, mapping.decode.tp
        return [
            port_limit(chip, mapping.prefill, mapping.decode),
            Limit("mapping.decode.tp", maximum(prefill, decode), minimum(prefill, decode), "1"),
            *equal_stage_limits(mapping),
            *idle_die_limits(job.model, mapping),
            *engine_limits(mapping, job.model, job.decode.guesses),
        ]

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one of the devices."""
        return device_peak_rates(design)

    def phase_energy(self, design: Design, job: BatchArrays, phase: PhaseCost) -> Any:
        """Dynamic energy of a phase on all devices. [J]"""
        assert isinstance(phase.activity, PooledActivity)
        return pooled_dynamic_energy(phase.activity, design.chip) * phase.workers

    def own_metrics(self, design: Design, job: BatchArrays, phases: Sequence[PhaseCost]) -> dict[str, Any]:
        """Bytes of the layers of one device."""
        held = _held(batch_memory(job), design.mapping.prefill, design.mapping.precision)
        return {"attention_layer_bytes": held.attention_layer, "ffn_layer_bytes": held.ffn_layer}

    def die_count(self, design: Design) -> Any:
        """Number of devices that serve a batch."""
        return reduce(maximum, (plan.tp * (plan.stages * plan.replicas) for plan in plans_of(design.mapping)))

    def simulation_obstacle(self, design: Design) -> str:
        """Why memory reads cannot be simulated, and the setting to change; empty string if they can."""
        return simulation_obstacle(design)

    def breakdown_rows(self, phase: PhaseCost, fidelity: str) -> list[BreakdownRow]:
        """Breakdown rows of one phase: calls, transfers between stages, and engine overheads.

        Seconds are those of the mean stage; operations and bytes are those of all devices.
        """
        steps = (phase.timed, phase.padded)
        rows = iteration_rows(
            phase.name, phase.runs, steps, phase.overheads, phase.machine, dies=phase.dies, useful_times=phase.useful_share
        )
        if phase.between is not None:
            rows += breakdown.stage_transfer_rows(phase.name, phase.runs, phase.between)
        replicas = float(np.max(phase.workers / phase.dies))
        if phase.stages == replicas == 1:
            return rows
        return [breakdown.scale_row(breakdown.scale_time(row, 1.0 / (phase.stages * replicas)), replicas) for row in rows]

    def levers(self, worst: Infeasibility, design: Design, arrays: Sequence[BatchArrays]) -> Iterable[Lever]:
        """The smallest power-of-two TP of both phases, else the fewest stages.

        If dies would be idle, the largest such TP; if ports are too few for a K-tree, a deeper K-tree of as many dies.
        """
        model = arrays[0].model
        if worst.limit in STAGE_LIMITS:
            yield from stage_levers(worst, design, model)
            return
        limits = limits_of_changes(design, lambda trial: batch_limits(self, trial, arrays))
        trees = [phase for phase in PHASES if getattr(design.mapping, phase).allreduce == KTREE]
        if worst.limit == "chip.network.ports" and trees:
            both = "both" if len(trees) > 1 else trees[0]
            yield Lever(
                lambda count: f"use a K-tree of {count} phases: mapping.{both}.ktree_k={count}",
                range(1, MOST_PHASES + 1),
                lambda count: {f"mapping.{phase}.ktree_k": count for phase in trees},
                limits,
            )
        powers = [1 << power for power in range(MAX_TP.bit_length())]
        most = max(divisible_units(job.model) for job in arrays)
        yield Lever(
            lambda tp: f"use TP {tp}: mapping.both.tp={tp}",
            powers[::-1] if worst.limit == "mapping.prefill.tp" and worst.have >= most else powers,
            lambda tp: {f"mapping.{phase}.tp": tp for phase in PHASES},
            limits,
            failed=f"no TP up to {MAX_TP} fits",
        )
        if worst.limit in CAPACITY_LIMITS:
            yield from fewest_stages_levers(design, model, limits)


def iteration_rows(
    phase: str,
    weights: Any,
    steps: tuple[Sequence[TimedBlock], Sequence[TimedBlock]],
    overheads: OverheadTimes,
    machine: HardwareModel,
    *,
    dies: Any,
    useful_times: Any = 1.0,
) -> list[BreakdownRow]:
    """Breakdown rows of the iterations of a phase: one per call, then padding, launches and host.

    Args:
        phase, weights, machine, dies, useful_times: as of `breakdown.breakdown_rows`.
        steps: timed blocks of an iteration without padding, and with it; the latter empty where nothing is padded.
        overheads: time of an iteration beyond its kernels.
    """
    plain, padded = (
        breakdown.breakdown_rows(phase, weights, timed, machine, dies=dies, useful_times=useful_times) for timed in steps
    )
    padding = [breakdown.padding_row(phase, plain, padded)] if padded else []
    return [*plain, *padding, *breakdown.overhead_rows(phase, weights, overheads)]


def _phase_flop(design: Design, job: BatchArrays, name: str) -> Any:
    """Useful operations of a phase of each case; those in other formats count by the time that they take. [op]"""
    mapping = design.mapping
    heads = getattr(mapping, name).kv_heads
    return _paced_flop(job, name, mapping.precision, design.chip.core.rates, heads) / usual_pace(design)


@memoize
def _paced_flop(job: BatchArrays, name: str, precision: FormatPlan, rates: FormatRates | None, heads: str | None) -> Any:
    """Useful operations of a phase of each case, each times its pace, which no division over devices changes. [op]"""
    blocks = _blocks(job, name, 1, precision, "ring", rates, heads)
    runs, starts = (ONCE, None) if name == "prefill" else (job.steps, job.step_starts)
    return useful_operations(blocks, runs, starts)


def _die_work(design: Design, batches: PhaseBatches, name: str, machine: HardwareModel) -> PooledActivity:
    """Activity of a phase of each case on one device of each stage of a replica."""
    chip, mapping = design.chip, design.mapping
    plan = getattr(mapping, name)
    terms, passes = step_terms(mapping.stack), mapping.stack.attention_passes
    layout = _laid(batches.job, name, plan, mapping.precision, chip.core.rates, terms)
    room, energy_inputs = _room(layout, machine.cache), link_energy_inputs(chip.network)
    work = _done(
        batches.job, name, plan, mapping.precision, passes, room, chip.core.rates, energy_inputs, terms,
        batches.runs, batches.schedule.starts,
    )  # fmt: skip
    if machine.tiers is not None:
        work = work.plus(tiered_phase_activity(layout, machine.tiers, batches))
    if plan.stages == 1:
        return work
    sent = _message_bytes(batches.job, name, plan, mapping.precision, terms) * batches.runs
    crossed = message_hop_bytes(sent, plan.stages, plan.tp, chip.network)
    return work.plus(PooledActivity(linked_bytes=reduce_per_case(np.add, crossed, batches.schedule.starts)))


def simulation_obstacle(design: Design) -> str:
    """Why memory reads cannot be simulated, and the setting to change; empty string if they can."""
    memory = main_memory(design.chip)
    if design.chip.tiers is not None:
        return "chip.tiers, whose reads have a rate only; remove it"
    if memory.banks is not None:
        return ""
    banks = f"chip.{memory.banks_part}"
    return f"chip.{memory.part}, whose banks are not set; add +memory@{banks}=hbm3 and {banks}.stacks, as in its data sheet"


def refuse_kv_head_option(model: Model, *plans: TensorParallelPlan) -> None:
    """Refuse an option on KV heads where there are none to divide, or where the phases differ.

    Raises:
        DesignError: likewise, with the address; a ClashError of phases.
    """
    kv_heads = {plan.kv_heads or UNEVEN_KV_HEADS[0] for plan in plans}
    if len(kv_heads) > 1:
        why = "prefill and decode share one KV cache; set the same for both"
        raise IncompatibleOptionsError(f"mapping.decode.kv_heads: {why}", "kv_heads")
    if plans[0].kv_heads is None:
        return
    kinds = [layer.of for layer in layers(model).mixings if layer.of.recurrence is None]
    if not any(kind.kv_heads > 1 and kind.latent is None for kind in kinds):
        raise DesignError(f"mapping.prefill.kv_heads: {model.name} has no KV heads that could be divided otherwise; remove it")


def timed_step(
    blocks: tuple[CallBlock, ...], chip: Chip, plan: TensorParallelPlan, machine: HardwareModel, reader: CostModel
) -> tuple[TimedBlock, ...]:
    """Timed blocks of a step under a plan, with its prefetch."""
    return tuple(block_timeline(blocks, machine, reader, prefetch=_prefetch(chip, plan)))


def step_seconds(
    job: BatchArrays,
    name: str,
    plan: TensorParallelPlan,
    precision: FormatPlan,
    rates: FormatRates | None,
    chip: Chip,
    machine: HardwareModel,
    reader: CostModel,
    terms: StepTerms = NO_TERMS,
    stage: tuple[str, ...] | None = None,
) -> Any:
    """Time of a step of a phase: all its blocks, or those of the segments of one pipeline stage. [s]"""
    degrees, which = _degrees(plan.tp)
    table_seconds = None
    if degrees:
        laid = _structures(job, name, degrees, precision, plan.allreduce, rates, plan.kv_heads, plan.ktree_k, terms, stage)
        peers = None if which is None else plan.tp
        table_seconds = call_table.table_seconds(laid, machine, reader, _prefetch(chip, plan), which, peers)
    return (
        blocks_seconds(timed_step(_laid(job, name, plan, precision, rates, terms, stage), chip, plan, machine, reader))
        if table_seconds is None
        else table_seconds
    )


def _degrees(tp: Any) -> tuple[tuple[Any, ...], Any]:
    """Degrees of tensor parallelism, and which of them each design has, None of one; no degrees where they are not few."""
    if not isinstance(tp, np.ndarray):
        return (tp,), None
    distinct = distinct_values(tp.astype(float, copy=False))
    return ((), None) if distinct is None else (tuple(distinct[0].tolist()), distinct[1])


def _laid(
    job: BatchArrays,
    name: str,
    plan: TensorParallelPlan,
    precision: FormatPlan,
    rates: FormatRates | None,
    terms: StepTerms = NO_TERMS,
    stage: tuple[str, ...] | None = None,
) -> tuple[CallBlock, ...]:
    """Blocks of a step of a phase on all pipeline stages, or on one."""
    stages = (stage,) if stage else plan_stages(job.model, job.decode.guesses, plan)
    return _blocks(job, name, plan.tp, precision, plan.allreduce, rates, plan.kv_heads, plan.ktree_k, terms, stages)


def plan_stages(model: Model, guesses: int, plan: TensorParallelPlan) -> tuple[tuple[str, ...], ...] | None:
    """Names of the segments of each pipeline stage of a plan; None with one stage, which has all."""
    return None if plan.stages == 1 else stage_orders(model, guesses, plan.stages)


def _staged_step(
    job: BatchArrays,
    name: str,
    plan: TensorParallelPlan,
    design: Design,
    machine: HardwareModel,
    reader: CostModel,
    terms: StepTerms,
) -> StagedSeconds:
    """Times of the stages of a forward pass of a micro-batch."""
    chip, precision = design.chip, design.mapping.precision
    inputs = job, name, plan, precision, chip.core.rates, chip, machine, reader, terms
    if plan.stages == 1:
        return StagedSeconds(step_seconds(*inputs))
    groups = stage_groups(job.model, job.decode.guesses, plan.stages)
    seconds = [step_seconds(*inputs, group.order) for group in groups]
    return staged_seconds(groups, seconds, _message_bytes(job, name, plan, precision, terms), plan.tp, machine)


def _message_bytes(job: BatchArrays, name: str, plan: TensorParallelPlan, precision: FormatPlan, terms: StepTerms) -> Any:
    """Bytes that a device sends to its peer of the next stage, of a micro-batch. [B]"""
    tokens = padded_step(getattr(job, name), terms.sizes).tokens
    return message_bytes(job.model, tokens, float(BYTES_BY_FORMAT[precision.activations]), plan.tp)


def _held(
    memory: ReplicaMemory, plan: TensorParallelPlan, precision: FormatPlan, stage: tuple[str, ...] | None = None
) -> DeviceMemory:
    """Memory of a device of a stage, computed once for each degree of tensor parallelism if these are few."""
    degrees, which = _degrees(plan.tp)
    if which is None:
        return _footprint(memory, plan.tp, precision, plan.kv_heads, stage)
    footprint = _footprint_of_each(memory, degrees, precision, plan.kv_heads, stage)
    leaves = (getattr(footprint, spec.name) for spec in fields(footprint))
    return DeviceMemory(
        *(leaf.take(which, axis=-1) if isinstance(leaf, np.ndarray) and leaf.shape[-1] > 1 else leaf for leaf in leaves)
    )


def _memories(
    design: Design, job: BatchArrays, batches: Dict[str, PhaseBatches]
) -> tuple[tuple[MemoryContents, ...], MemoryPlacement | None]:
    """Contents of the memories of a device of the fullest stage, and where they are; None without tiers."""
    chip, mapping, plan = design.chip, design.mapping, design.mapping.prefill
    memory = replica_memory(job, batches["prefill"], batches["decode"], plan.stages, plan.replicas)
    demand = EngineDemand(memory.tokens, memory.job.sequences, plan.tp, plan.tp * plan.stages)
    orders = (None,) if plan.stages == 1 else [g.order for g in stage_groups(job.model, job.decode.guesses, plan.stages)]
    fullest: tuple[tuple[str, Any], ...] = ()
    capacity = device_capacity(chip, mapping)
    for order in orders:
        held = _held(memory, plan, mapping.precision, order)
        beside = engine_memory(chip, mapping, job.model, held.weights, held.activations, demand)
        if chip.tiers is not None:
            placement = place_device(chip, mapping, held, beside, capacity)
            return memories_contents(chip, placement, beside.parts(mapping), capacity), placement
        parts = (("weights", held.weights), (CACHE, held.kv), *beside.parts(mapping))
        fullest = fuller_parts(fullest, parts) if fullest else parts
    return (main_memory_contents(chip, fullest, capacity=capacity),), None


def _prefetch(chip: Chip, plan: TensorParallelPlan) -> PrefetchSettings:
    if plan.prefetch == "none":
        return NO_PREFETCH
    sizes = chip.l2.size, chip.l2.least_size
    budget, awaited = (None if size is None else where(plan.tp > 1, plan.prefetch_share * size, 0.0) for size in sizes)
    return PrefetchSettings(plan.prefetch, budget, awaited_budget=awaited)


def blocks_seconds(blocks: tuple[TimedBlock, ...]) -> Any:
    """Time of the blocks of a step. [s]"""
    total: Any = 0.0
    for block in blocks:
        total = total + block.seconds * block.block.times
    return total


def idle_die_limits(model: Model, mapping: Mapping) -> list[Limit]:
    """Limit that each die has a whole head or column of some layer; empty if no design exceeds it.

    Dies beyond the heads wait during attention, and still have columns of FFNs.
    """
    have = divisible_units(model)
    plans = {phase: getattr(mapping, phase).tp for phase in ("prefill", "decode")}
    excess = [(phase, tp) for phase, tp in plans.items() if extremes(tp)[1] > have]
    return [Limit(f"mapping.{phase}.tp", tp * 1.0, have * 1.0, "1") for phase, tp in excess]


@memoize_by_identity
def divisible_units(model: Model) -> int:
    """Largest number of heads or FFN columns in a layer: the most dies that each get a share."""
    found_layers = layers(model)
    heads = [
        kind.heads if kind.recurrence is None else kind.recurrence.heads
        for kind in (layer.of for layer in found_layers.mixings)
    ]
    experts = [layer.of.experts for layer in found_layers.ffns if layer.of.experts is not None]
    columns = [layer.of.ffn_intermediate for layer in found_layers.ffns if layer.of.experts is None]
    columns += [
        width
        for expert in experts
        for width in (expert.intermediate, expert.shared * (expert.shared_intermediate or expert.intermediate))
    ]
    return max(1, *heads, *columns)


def port_limit(chip: Chip, *plans: TensorParallelPlan) -> Limit:
    """Limit on the ports that the plans' allreduces need between dies of a node."""
    nodes, needs = chip.network.nodes, []
    for plan in plans:
        boxes, peers = (1.0, plan.tp) if nodes is None else split_into_nodes(plan.tp, nodes.size)
        needs.append(ports_needed(plan.allreduce, peers, boxes, plan.ktree_k))
    return Limit("chip.network.ports", reduce(maximum, needs), chip.network.ports, "1")


@memoize
def _blocks(
    job: BatchArrays, phase: str, tp: Any, precision: FormatPlan, algorithm: str, rates: FormatRates | None, heads: str | None,
    phases: Any = None, terms: StepTerms = NO_TERMS, stages: tuple[tuple[str, ...], ...] | None = None,
) -> tuple[CallBlock, ...]:  # fmt: skip
    at: StepCounts = padded_step(getattr(job, phase), terms.sizes)
    # decode steps launch the same kernels on the same shapes and are recorded once; prompts differ in length [sglang2025]
    operators, orders = transformer_segments(job.model, at), stages or (segment_order(job.model, at),)
    recorded = phase == "decode"
    return device_blocks(
        operators, orders, tp, precision, algorithm, rates=rates, recorded=recorded, heads=heads, phases=phases, terms=terms
    )


@memoize
def _structures(
    job: BatchArrays,
    phase: str,
    degrees: tuple[Any, ...],
    precision: FormatPlan,
    algorithm: str,
    rates: FormatRates | None,
    heads: str | None,
    phases: Any = None,
    terms: StepTerms = NO_TERMS,
    stage: tuple[str, ...] | None = None,
) -> call_table.Structures:
    """Blocks for each degree of tensor parallelism, on all of the model or on one pipeline stage."""
    stages = (stage,) if stage else None
    return tuple(_blocks(job, phase, tp, precision, algorithm, rates, heads, phases, terms, stages) for tp in degrees)


@memoize
def _footprint_of_each(
    memory: ReplicaMemory, degrees: tuple[Any, ...], precision: FormatPlan, heads: str | None, stage: tuple[str, ...] | None
) -> DeviceMemory:
    """For each degree of tensor parallelism; leaves have the shape (degrees,), or (cases, degrees)."""
    return _footprint(memory, np.array(degrees), precision, heads, stage)


@memoize
def _footprint(
    memory: ReplicaMemory, tp: Any, precision: FormatPlan, heads: str | None, stage: tuple[str, ...] | None
) -> DeviceMemory:
    job = memory.job
    parts = transformer_segments(job.model, job.decode)
    return device_memory(
        parts, job.model, tp, precision, cached=job.cached, sequences=job.sequences, tokens=memory.tokens, heads=heads,
        stage=stage, together=memory.together,
    )  # fmt: skip


@memoize
def _done(
    job: BatchArrays,
    phase: str,
    plan: TensorParallelPlan,
    precision: FormatPlan,
    passes: Any,
    cache: DieCache | None,
    rates: FormatRates | None,
    inputs: LinkEnergyInputs,
    terms: StepTerms,
    runs: Any,
    starts: Any,
) -> PooledActivity:
    """What one device of each stage does in a phase of each case."""
    laid = _laid(job, phase, plan, precision, rates, terms)
    activity = device_activity(laid, passes, cache, inputs)
    return PooledActivity(*(reduce_per_case(np.add, runs * value, starts) for value in activity))


def _room(blocks: tuple[CallBlock, ...], cache: DieCache | None) -> DieCache | None:
    """Smallest cache that leads to the same placement of activations; unchanged for many designs."""
    sizes = _activations(blocks)
    if cache is None or sizes is None or not isinstance(cache.size, int | float):
        return cache
    held = bisect_right(sizes, cache.size)
    size = sizes[held - 1] if held else 0.0
    return DieCache(0.0, size, size, size)


@partial(memoize_by_identity, few=256)
def _activations(blocks: tuple[CallBlock, ...]) -> list[float] | None:
    """Bytes of activations of all calls, ascending; None where they are of many designs. [B]"""
    sizes = [call.local for block in blocks for call in block.calls]
    return sorted(map(float, sizes)) if all(isinstance(size, int | float) for size in sizes) else None


def device_activity(
    blocks: tuple[CallBlock, ...], passes: Any, cache: DieCache | None, inputs: LinkEnergyInputs | None = None
) -> PooledActivity:
    """Activity of one device in some blocks.

    Args:
        blocks: blocks, whose leaves broadcast over steps and designs.
        passes: vector passes over each element of K and V in attention.
        cache: beyond which activations are in main memory.
        inputs: links that allreduces cross; None where blocks have none.
    """
    macs = operands = elements = memory = shared = linked = 0.0
    for block in blocks:
        done = wide = operations = fetch = read = near = 0.0
        for call in block.calls:
            done, fetch, read, near = done + call.macs, fetch + call.fetch, read + call.fetch, near + call.local
            wide = wide + call.macs * call.width
            if call.operations is not None:
                operations = operations + call.operations + call.specials
            operations = operations + call.streamed * passes
            fetch = fetch + (call.local * cache.is_exceeded(call.local) if cache else 0.0)
        macs, operands = macs + block.times * done, operands + block.times * wide
        elements = elements + block.times * operations
        memory, shared = memory + block.times * fetch, shared + block.times * (read + near)
        if block.opener is not None and inputs is not None:
            linked = linked + block.times * allreduce_hop_bytes(block.opener, inputs)
    return PooledActivity(macs, operands, elements, memory, shared, linked)
