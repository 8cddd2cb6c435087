"""Shared-cache dies that serve requests: an instance is the dies of all pipeline stages of a model.

Dies of a stage share its layers. Each iteration is a micro-batch's pass through all stages, and as many are in flight.

An iteration is one step of the graph, prompts and decodes together: products over all tokens, attention over all pairs. It runs
by the plan of prefill where it has prompts, else by that of decode.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow, stage_transfer_rows
from dse.evaluators.accounting.device_pipelines import (
    STAGE_LIMITS,
    StagedSeconds,
    equal_stage_limits,
    fewest_stages_levers,
    message_bytes,
    message_hop_bytes,
    stage_levers,
    stage_limits,
    staged_seconds,
)
from dse.evaluators.accounting.device_placement import tier_activity
from dse.evaluators.accounting.device_rates import device_peak_rates, fastest_speedup, usual_pace
from dse.evaluators.accounting.engine_memory import (
    EngineMemory,
    device_capacity,
    engine_limits,
)
from dse.evaluators.accounting.memory_contents import MemoryContents, fuller_parts, main_memory_contents
from dse.evaluators.accounting.memory_placement import memories_contents, refuse_staged_tiers, tiered_reads
from dse.evaluators.accounting.remedies import Lever, advise, limits_of_changes
from dse.evaluators.accounting.serving_instances import (
    SERVING_PREFIXES,
    Composition,
    IterationCounts,
    ServingInstance,
    design_count,
    iteration_time_key,
)
from dse.evaluators.accounting.serving_instances.design_parts import DEVICE_LEAVES, DesignPart, single_rows
from dse.evaluators.accounting.serving_instances.device_memory import (
    fullest_stage_request,
    held_memory,
    largest_iterations,
    pool_placement,
    pool_plans,
    prefix_memory,
    stage_request_memory,
    stage_segments,
    tightest_stage,
)
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout, instance_advice_text
from dse.evaluators.accounting.serving_instances.largest_iteration import LargestIteration
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds, prefill_flop_per_token, weight_bytes_read
from dse.evaluators.accounting.serving_instances.prompt_table_points import (
    distinct_prompt_lengths,
    fractional_prompts,
)
from dse.evaluators.accounting.serving_instances.served_work import ServedWork
from dse.evaluators.accounting.serving_instances.serving_layout import JointParts
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.tensor_parallel import (
    blocks_seconds,
    device_activity,
    idle_die_limits,
    iteration_rows,
    plan_stages,
    port_limit,
    refuse_kv_head_option,
    timed_step,
)
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.cost_models.analytical import ANALYTICAL
from dse.evaluators.cost_models.analytical_collectives import INTER_NODE_HOPS, link_energy_inputs, refuse_library_allreduce
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.device_stages import stage_groups
from dse.evaluators.layouts.engine_overheads import (
    OverheadTimes,
    lone_request_host_seconds,
    overhead_times,
    padded_step,
    step_terms,
)
from dse.evaluators.layouts.tensor_parallel import device_blocks
from dse.evaluators.machine.device_links import split_into_nodes
from dse.evaluators.machine.machine import HardwareModel, inter_node_bandwidth, shared_cache_machine
from dse.evaluators.machine.shared_cache_die import power_limited_seconds, shared_cache_parts
from dse.evaluators.serving.iteration_time import geometric_axes as points
from dse.evaluators.serving.kv_memory import fullest_request
from dse.evaluators.serving.scheduling_policy import pool_policies
from dse.evaluators.silicon.energy import PooledActivity, pooled_dynamic_energy
from dse.space.array_math import Array, ceil_div, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import replace_leaves
from dse.space.layers import AttentionReach, per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import CAPACITY_LIMITS, main_memory
from dse.space.mapping import BYTES_BY_FORMAT, Mapping, TensorParallelPlan
from dse.space.serving_plan import is_disaggregated, pool_phases
from dse.space.workload import ServingLoad


class TensorParallelServing(InstanceLayout):
    """Instances of shared-cache dies with tensor parallelism in each of their pipeline stages.

    Designs with several stages are evaluated one by one: stages have shares of an iteration's time of their own.
    """

    MERGEABLE_LEAVES = DEVICE_LEAVES
    USAGE_IN_BATCH = True

    def layout_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Exceeded limits of stages and replicas; empty if none are."""
        chip, mapping = _chip_and_mapping(design)
        refuse_kv_head_option(load.model, mapping.prefill, mapping.decode)
        if (violated := self.untimed_limits(design, load)) or chip.network is None:
            return violated
        for plan in (mapping.prefill, mapping.decode):
            refuse_library_allreduce(plan.allreduce, plan.tp, shared_cache_machine(chip, mapping))
        return []

    def memory_contents(self, design: Design, load: ServingLoad) -> list[MemoryContents]:
        """Contents of a die's memories with a request alone, which must fit: beside more of them, others wait."""
        chip, mapping = _chip_and_mapping(design)
        fullest: tuple[tuple[str, Any], ...] = ()
        capacity = device_capacity(chip, mapping)
        tiered: list[MemoryContents] = []
        for plan, largest in zip(pool_plans(mapping), largest_iterations(mapping, load), strict=True):
            for stage in stage_segments(load, plan):
                held = held_memory(design, load, plan, load.longest - 1, largest, stage)
                beside = EngineMemory(held.activations, held.reserved)
                if chip.tiers is not None:
                    placement = pool_placement(design, load, plan, largest).placement
                    tiered += memories_contents(chip, placement, beside.parts(mapping), capacity)
                    continue
                parts = (("weights", held.weights), ("KV cache", held.kv), *beside.parts(mapping))
                fullest = fuller_parts(fullest, parts) if fullest else parts
        return tiered or [main_memory_contents(chip, fullest, capacity=capacity)]

    def structural_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of ports and of an inference engine, and equal parallelism where dies do both phases."""
        chip, mapping = _chip_and_mapping(design)
        tp = (mapping.prefill.tp, mapping.decode.tp)
        shared = tp if not is_disaggregated(mapping.serving) else tp[:1] * 2
        return [
            port_limit(chip, mapping.prefill, mapping.decode),
            Limit("mapping.decode.tp", maximum(*shared), minimum(*shared), "1"),
            *(() if is_disaggregated(mapping.serving) else equal_stage_limits(mapping)),
            *idle_die_limits(load.model, mapping),
            *engine_limits(mapping, load.model, load.guesses),
        ]

    def untimed_limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Exceeded limits of stages and replicas, which need no iteration times; empty if none are."""
        mapping = design.mapping
        limits = stage_limits(mapping, load.model)
        for phase in ("prefill", "decode"):
            plan = getattr(mapping, phase)
            if plan.replicas > 1:
                limits.append(Limit(f"mapping.{phase}.dp", float(plan.replicas), 1.0, "1"))
            if plan.microbatches:
                limits.append(Limit(f"mapping.{phase}.microbatches", float(plan.microbatches), 0.0, "1"))
        if is_staged(mapping):
            refuse_staged_tiers(design)
            for plan, rule in zip(pool_plans(mapping), pool_policies(mapping.serving), strict=True):
                if plan.stages > 1 and rule.by_chunk:
                    limits.append(Limit("mapping.serving.admission", 2.0, 1.0, "layout"))
        return limits

    def joint_parts(self, fidelity: str, *, at_rate: bool) -> JointParts:
        """Rows that are evaluated together; those with several stages one by one."""
        parts = super().joint_parts(fidelity, at_rate=at_rate)
        if not parts:
            return parts
        together = parts[0]
        return (lambda design: single_rows(design) if _is_single(design) else together(design),)

    def bound_parts(self, design: Design) -> list[DesignPart]:
        """Rows whose bounds are evaluated together; those with several stages one by one."""
        return list(single_rows(design)) if _is_single(design) else super().bound_parts(design)

    def limited_parts(self, design: Design) -> Iterable[DesignPart]:
        """Rows whose limits are evaluated together; those with several stages one by one."""
        return single_rows(design) if _is_single(design) else super().limited_parts(design)

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool, with the KV memory of one of its dies on the tightest stage."""
        chip, mapping = _chip_and_mapping(design)
        sizes = step_terms(mapping.stack).sizes

        def instance(place: int, plan: TensorParallelPlan, largest: LargestIteration) -> ServingInstance:
            def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
                seconds = _iteration_seconds(design, load, plan, prompt, prompt_context, decodes, context)
                return seconds if design_count(design) else seconds[..., 0]

            without = (*SERVING_PREFIXES, "mapping.prefill.tp", "mapping.decode.tp")
            key = ""
            if not design_count(design):
                own = _instance_key(plan)
                if chip.tiers is not None:
                    own = (*own, pool_placement(design, load, plan, largest).shares)
                key = iteration_time_key(design, load, *own, without=without)
            axes = partial(points, whole=distinct_prompt_lengths(load), graph_sizes=sizes)
            free, room = tightest_stage(design, load, plan, largest)
            shares = _stage_shares(design, load, place, plan)
            prefixes = prefix_memory(design, load, plan, largest)
            return ServingInstance(pricing, free, room, axes, key=key, shares=shares, graph_sizes=sizes, prefixes=prefixes)

        pools = zip(pool_plans(mapping), largest_iterations(mapping, load), strict=True)
        return tuple(instance(place, plan, largest) for place, (plan, largest) in enumerate(pools))

    def work_lower_bounds(self, design: Design, load: ServingLoad) -> WorkLowerBounds:
        """Lower bounds of dies: times of an instance's memories and engines."""
        chip, mapping = _chip_and_mapping(design)
        precision, last = mapping.precision, mapping.decode.tp
        first = where(mapping.serving.prefill_instances > 0, mapping.prefill.tp, last)
        each = shared_cache_parts(chip, mapping)[0].matrix * mapping.stack.matrix_efficiency
        operation = each * usual_pace(design) / fastest_speedup(design)
        limited = power_limited_seconds(chip, mapping.stack)
        if limited is not None and mapping.stack.gemm is None and mapping.stack.grouped_gemm is None:
            operation = operation + limited
        host = lone_request_host_seconds(mapping.stack.iteration)
        return WorkLowerBounds(
            self.device_count(design),
            decode=weight_bytes_read(load.model, precision) / (main_memory(chip).bandwidth * last) + host,
            prompt=prefill_flop_per_token(load.model) * operation / first,
        )

    def kv_path(self, design: Design, load: ServingLoad) -> KvPath:
        """Path of KV caches over each die's port or the scale-out network, each die its part.

        Instances fill nodes one after the other. If one node has the dies of all, caches stay in the node. Otherwise
        any cache may have to leave its node, and all are charged as if they did. A die then has its part of the node's
        bandwidth, which is shared by the dies that send at the same time, as `closed_collective` shares it among those
        of a ring; at most its port's bandwidth.
        """
        chip, mapping = _chip_and_mapping(design)
        network, nodes, pools = chip.network, chip.network.nodes, pool_plans(mapping)
        dies = [plan.tp * plan.stages for plan in pools]
        taken, paces, latency = fullest_stage_request(design, load, pools[1]), [network.bandwidth] * 2, network.latency
        if nodes is not None:
            across = self.device_count(design) > nodes.size
            paces = [where(across, minimum(network.bandwidth, _bandwidth_share(design, n)), network.bandwidth) for n in dies]
            latency = where(across, nodes.latency, latency)
        sent = taken.times(dies[1] / dies[0]), taken  # by a die of those that have it, and to one
        each = [room.times(1 / (pace * mapping.stack.network_efficiency)) for room, pace in zip(sent, paces, strict=True)]
        links, tp = PooledActivity(memory_bytes=2.0, linked_bytes=_hops(design, self.device_count(design))), mapping.decode.tp
        return KvPath(
            fullest_request(each, load.longest),
            latency,
            stage_request_memory(design, load, tp, None).times(tp),
            links.memory_bytes,
            pooled_dynamic_energy(links, chip),
        )

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[Any, ...]:
        """Dies that share a request's KV cache: those of an instance."""
        return tuple(plan.tp * plan.stages for plan in pool_plans(design.mapping))

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one die; activations stay in the cache."""
        return device_peak_rates(design)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations; operations count at the pace of their formats."""
        chip, mapping = _chip_and_mapping(design)
        work, paced, designs = PooledActivity(), 0.0, design_count(design)
        for plan, pool in zip(pool_plans(mapping), done, strict=True):
            for count, made_of in pool:
                iteration = _served_iteration(design, load, plan, made_of)
                work = work.plus(_over_designs(_stage_activity(design, load, plan, iteration).times(count * plan.tp), designs))
                operations = sum(
                    timed.block.times * call.flop * call.pace for timed in iteration.plain for call in timed.block.calls
                )
                paced = paced + _each_design(count * operations, designs)
        flop = paced / usual_pace(design)
        return ServedWork(flop, work.memory_bytes, 0.0, lambda: pooled_dynamic_energy(work, chip))

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time of iterations, and energy on all dies of an instance."""
        chip, mapping = _chip_and_mapping(design)
        plan = pool_plans(mapping)[pool]
        iteration = _served_iteration(design, load, plan, made_of)
        return [(iteration.seconds, pooled_dynamic_energy(_stage_activity(design, load, plan, iteration), chip) * plan.tp)]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration: calls, transfers between stages, and engine overheads."""
        _, mapping = _chip_and_mapping(design)
        plan = pool_plans(mapping)[pool]
        machine = _instance_machine(design, load, plan.tp)
        iteration = _served_iteration(design, load, plan, made_of)
        rows = iteration_rows("", times, (iteration.plain, iteration.padded), iteration.overheads, machine, dies=plan.tp)
        return rows if iteration.transfers is None else [*rows, *stage_transfer_rows("", times, iteration.transfers)]

    def levers(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> Iterable[Lever]:
        """What to change where stages, replicas or memory violate a limit; nothing for others."""
        model = loads[0].model
        if text := instance_advice_text(worst.limit):
            return advise(text)
        if worst.limit in STAGE_LIMITS:
            return stage_levers(worst, design, model)
        if worst.limit not in CAPACITY_LIMITS:
            return ()

        def limits(trial: Design) -> list[Limit]:
            return [limit for load in loads for limit in self.limits(trial, load)]

        return fewest_stages_levers(design, model, limits_of_changes(design, limits))

    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""
        serving = design.mapping.serving
        counts = {"prefill": serving.prefill_instances, "decode": serving.instances}
        plans = zip(pool_phases(serving), pool_plans(design.mapping), strict=True)
        return sum(counts[phase] * plan.tp * plan.stages for phase, plan in plans)


def _hops(design: Design, dies: Any) -> Any:
    """Links that a cache crosses from one of so many dies to another. [1]"""
    network = design.chip.network
    return network.hops if network.nodes is None else where(dies > network.nodes.size, INTER_NODE_HOPS, network.hops)


def _bandwidth_share(design: Design, dies: Any) -> Any:
    """Of a node's bandwidth, what one of the dies of an instance has while as many caches as can are on their way. [B/s]"""
    chip, mapping = _chip_and_mapping(design)
    nodes, serving = chip.network.nodes, mapping.serving
    _, members = split_into_nodes(dies, nodes.size)
    beside = minimum(minimum(serving.instances, serving.prefill_instances), maximum(1, nodes.size // members))
    return inter_node_bandwidth(nodes, mapping.stack) / (members * beside)


def is_staged(mapping: Mapping) -> bool:
    """Whether some instances have several pipeline stages."""
    return bool(mapping.prefill.stages > 1 or mapping.decode.stages > 1)


def _is_single(design: Design) -> bool:
    """Whether each of several designs is evaluated by itself: stages, and shares of memory tiers, are of one design."""
    return is_staged(design.mapping) or design.chip.tiers is not None


def _instance_key(plan: TensorParallelPlan) -> tuple[Any, ...]:
    """What tells iteration times of an instance apart beside the leaves of a design."""
    return (float(plan.tp),) if plan.stages == 1 else (float(plan.tp), plan.stages)


def _stage_shares(design: Design, load: ServingLoad, place: int, plan: TensorParallelPlan) -> tuple[float, ...]:
    """Shares of a typical iteration's time by stage, each with its message: full of decodes, or a prompt where none decode."""
    if plan.stages == 1:
        return (1.0,)
    mapping = design.mapping
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    if pool_phases(mapping.serving)[place] == "prefill":
        name, made_of = "prefill", (prompt, (prompt + 1) / 2, 0.0, 0.0)
    else:
        most = min(float(np.max(mapping.serving.max_batch_size)), float(len(load.requests)))
        name, made_of = "decode", (0.0, 0.0, ceil_div(most, plan.stages), prompt + output / 2)
    step = _step_counts(load, name, *(np.atleast_2d(count) for count in made_of))
    staged, beside = _staged_iteration(design, load, plan, step), 0.0
    beside = float(np.sum(overhead_times(mapping.stack.iteration, load.model, step, staged.kernels).iteration_seconds(0.0)))
    paces = np.zeros(plan.stages)
    for group, own, message in staged.groups:
        for stage in group.places:
            paces[stage] = float(np.sum(own)) + (stage < plan.stages - 1) * float(np.sum(message)) + beside / plan.stages
    return tuple((paces / paces.sum()).tolist())


def _iteration_seconds(
    design: Design, load: ServingLoad, plan: TensorParallelPlan, prompt: Array, prompt_context: Array, decodes: Array,
    context: Array,
) -> Array:  # fmt: skip
    """Seconds of iterations, in the shape that their counts broadcast to and designs; NaN for those of nothing."""
    counts = np.broadcast_arrays(prompt, prompt_context, decodes, context)
    prompt, prompt_context, decodes, context = (np.ravel(count) for count in counts)
    seconds = np.full((len(prompt), max(design_count(design), 1)), np.nan)
    # those with decodes beside prompts by themselves: operators of theirs are not there else
    both, alone = (prompt > 0) & (decodes > 0), (prompt > 0) & (decodes == 0)
    for name, mask in (("prefill", both), ("prefill", alone), ("decode", (prompt == 0) & (decodes > 0))):
        if mask.any():
            columns = [column[mask][:, None] for column in (prompt, prompt_context, decodes, context)]
            step = _step_counts(load, name, *columns)
            staged = _staged_iteration(design, load, plan, step)
            beside = overhead_times(design.mapping.stack.iteration, load.model, step, staged.kernels)
            seconds[mask] = staged.pass_seconds(beside)
    return seconds.reshape(*counts[0].shape, -1)


def _staged_iteration(design: Design, load: ServingLoad, plan: TensorParallelPlan, step: StepCounts) -> StagedSeconds:
    """Times of the stages of iterations, padded as recorded graphs run them."""
    if plan.stages == 1:
        return StagedSeconds(blocks_seconds(_timed_iteration(design, load, plan, step)))
    groups = stage_groups(load.model, load.guesses, plan.stages)
    seconds = [blocks_seconds(_timed_iteration(design, load, plan, step, stages=(group.order,))) for group in groups]
    machine = shared_cache_machine(*_chip_and_mapping(design))
    return staged_seconds(groups, seconds, _message_bytes(design, load, plan, step), plan.tp, machine)


def _message_bytes(design: Design, load: ServingLoad, plan: TensorParallelPlan, step: StepCounts) -> Any:
    """Bytes that a die sends to its peer of the next stage in an iteration. [B]"""
    tokens = padded_step(step, step_terms(design.mapping.stack).sizes).tokens
    return message_bytes(load.model, tokens, float(BYTES_BY_FORMAT[design.mapping.precision.activations]), plan.tp)


class ServedIteration(NamedTuple):
    """One iteration of an instance: timed blocks of all stages, and time beyond their kernels.

    Attributes:
        plain: blocks of what was asked for.
        padded: blocks as a recorded graph runs them; empty where nothing is padded.
        overheads: time beyond kernels.
        transfers: time of messages between stages; None with one stage. [s]
        sent: bytes that a die sends to its peer of the next stage; None likewise. [B]
    """

    plain: tuple[TimedBlock, ...]
    padded: tuple[TimedBlock, ...]
    overheads: OverheadTimes
    transfers: Any = None
    sent: Any = None

    @property
    def run_blocks(self) -> tuple[TimedBlock, ...]:
        """Blocks that the instance runs."""
        return self.padded or self.plain

    @property
    def seconds(self) -> Any:
        """Time of the iteration. [s]"""
        kernels = blocks_seconds(self.run_blocks)
        return self.overheads.iteration_seconds(kernels if self.transfers is None else kernels + self.transfers)


def _served_iteration(design: Design, load: ServingLoad, plan: TensorParallelPlan, made_of: Composition) -> ServedIteration:
    phase, stack = "prefill" if np.any(made_of[0]) else "decode", design.mapping.stack
    step = _step_counts(load, phase, *(np.atleast_2d(count) for count in made_of[:4]))
    stages = plan_stages(load.model, load.guesses, plan)
    plain = _timed_iteration(design, load, plan, step, pads=False, stages=stages)
    padded = _timed_iteration(design, load, plan, step, stages=stages) if step_terms(stack).pads(phase) else ()
    overheads = overhead_times(stack.iteration, load.model, step, blocks_seconds(padded or plain))
    if stages is None:
        return ServedIteration(plain, padded, overheads)
    transfers = _staged_iteration(design, load, plan, step).transfers
    return ServedIteration(plain, padded, overheads, transfers, _message_bytes(design, load, plan, step))


def _stage_activity(design: Design, load: ServingLoad, plan: TensorParallelPlan, iteration: ServedIteration) -> PooledActivity:
    """By one die of each stage in an iteration, with its messages to the next stage."""
    blocks = tuple(timed_block.block for timed_block in iteration.run_blocks)
    work = _die_activity(design, blocks)
    if design.chip.tiers is not None:
        tiers = _instance_machine(design, load, plan.tp).tiers
        work = work if tiers is None else work.plus(tier_activity(blocks, tiers))
    if iteration.sent is None:
        return work
    return work.plus(PooledActivity(linked_bytes=message_hop_bytes(iteration.sent, plan.stages, plan.tp, design.chip.network)))


def _die_activity(design: Design, blocks: tuple[CallBlock, ...]) -> PooledActivity:
    """By one die in an iteration."""
    chip, mapping = _chip_and_mapping(design)
    _, cache, _ = shared_cache_parts(chip, mapping)
    return device_activity(blocks, mapping.stack.attention_passes, cache, link_energy_inputs(chip.network))


def _over_designs(work: PooledActivity, designs: int) -> PooledActivity:
    """Of one iteration, numbers or arrays of shape (designs,)."""
    return PooledActivity(*(_each_design(value, designs) for value in work))


def _each_design(value: Any, designs: int) -> Any:
    """Of each of some designs, or of the one that there is."""
    return np.broadcast_to(np.squeeze(value), designs) if designs else float(np.sum(value))


def _step_counts(load: ServingLoad, phase: str, *made_of: Array) -> StepCounts:
    """Counts of iterations, of shape (iterations, 1)."""
    prompt, prompt_context, decodes, _ = made_of
    guesses = load.guesses
    pairs, positions = (per_reach(load.model, lambda reach, n=n: _attended_pairs(reach, guesses, *made_of)[n]) for n in (0, 1))  # type: ignore[misc]
    resumed = decodes + (prompt_context > (prompt + 1) / 2)  # further chunks of a prompt have a past
    rows = decodes * (1 + guesses)
    at = StepCounts(phase, prompt + rows, rows + (prompt > 0), pairs, positions, guesses, resumed=resumed)
    if phase == "prefill":
        decoded = per_reach(load.model, lambda reach: decodes * reach.seen_positions(made_of[3] + guesses))
        scored = per_reach(load.model, lambda reach: decodes * _scored_positions(reach, guesses, made_of[3]))
        at = replace(at, decodes=decodes, decoded=decoded, scored=scored)
    return at


def _timed_iteration(
    design: Design,
    load: ServingLoad,
    plan: TensorParallelPlan,
    step: StepCounts,
    *,
    pads: bool = True,
    stages: tuple[tuple[str, ...], ...] | None = None,
) -> tuple[TimedBlock, ...]:
    """Timed blocks of iterations on some stages, or on one that has all layers; padded as recorded graphs do if `pads`."""
    chip, mapping = _chip_and_mapping(design)
    plan = replace_leaves(getattr(mapping, step.phase), {"tp": plan.tp})
    terms = step_terms(mapping.stack)
    at = padded_step(step, terms.sizes) if pads else step
    operators, orders = transformer_segments(load.model, at), stages or (segment_order(load.model, at),)
    rates, recorded = chip.core.rates, at.phase == "decode"
    cut = device_blocks(
        operators, orders, plan.tp, mapping.precision, plan.allreduce, rates=rates, recorded=recorded, heads=plan.kv_heads,
        phases=plan.ktree_k, terms=terms,
    )  # fmt: skip
    return timed_step(cut, chip, plan, _instance_machine(design, load, plan.tp), ANALYTICAL)


def _instance_machine(design: Design, load: ServingLoad, tp: Any) -> HardwareModel:
    """Machine of a die of an instance: with memory tiers, those of its contents."""
    machine = shared_cache_machine(*_chip_and_mapping(design))
    if design.chip.tiers is None:
        return machine
    pools = zip(pool_plans(design.mapping), largest_iterations(design.mapping, load), strict=True)
    plan, largest = next((plan, largest) for plan, largest in pools if float(plan.tp) == float(tp))
    return machine._replace(tiers=tiered_reads(design.chip, pool_placement(design, load, plan, largest).shares, load.model))


def _scored_positions(reach: AttentionReach, guesses: int, context: Array) -> Any:
    """Positions that a request's next token sees and those guessed after it see, together."""
    return sum(reach.seen_positions(context + ahead) for ahead in range(1 + guesses))


def _attended_pairs(
    reach: AttentionReach, guesses: int, prompt: Array, prompt_context: Array, decodes: Array, context: Array
) -> tuple[Any, Any]:
    """Pairs of an iteration, and positions that are read: what decodes see, and what prompts see before themselves."""
    own, past = fractional_prompts(prompt, prompt_context)
    pairs = prompt / own * reach.remaining_positions(past, own) + decodes * _scored_positions(reach, guesses, context)
    # what prompts attend to before themselves is read once a chunk
    return pairs, decodes * reach.seen_positions(context + guesses) + reach.seen_positions(past)


def _chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
