"""Shared-cache dies that serve requests: an instance is the dies that share the model's layers.

An iteration is one step of the graph, prompts and decodes together: products over all tokens, attention over all pairs. It runs
by the plan of prefill where it has prompts, else by that of decode.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.engine_memory import (
    EngineDemand,
    EngineMemory,
    device_capacity,
    engine_limits,
    engine_memory,
)
from dse.evaluators.accounting.memory_contents import main_memory_contents, memory_limits
from dse.evaluators.accounting.serving_instances import (
    SERVING_PREFIXES,
    Composition,
    IterationCounts,
    ServingInstance,
    design_count,
    iteration_time_key,
)
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds, prefill_flop_per_token, weight_bytes_read
from dse.evaluators.accounting.serving_instances.prompt_table_points import (
    distinct_prompt_lengths,
    fractional_prompts,
    transferred_prompts,
)
from dse.evaluators.accounting.serving_instances.serving_layout import ServedWork, TransferWork
from dse.evaluators.accounting.tensor_parallel import (
    blocks_seconds,
    device_activity,
    device_peak_rates,
    fastest_speedup,
    idle_die_limits,
    iteration_rows,
    port_limit,
    refuse_kv_head_option,
    timed_step,
    usual_pace,
)
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.cost_models.analytical import ANALYTICAL
from dse.evaluators.cost_models.analytical_collectives import INTER_NODE_HOPS, link_energy_inputs, refuse_library_allreduce
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.layouts.engine_overheads import (
    OverheadTimes,
    iteration_seconds,
    lone_request_host_seconds,
    overhead_times,
    padded_step,
    step_terms,
)
from dse.evaluators.layouts.tensor_parallel import DeviceMemory, device_blocks, device_memory
from dse.evaluators.machine.device_links import split_into_nodes
from dse.evaluators.machine.machine import inter_node_bandwidth, shared_cache_machine
from dse.evaluators.machine.shared_cache_die import power_limited_seconds, shared_cache_parts
from dse.evaluators.serving.iteration_time import geometric_axes as points
from dse.evaluators.serving.kv_memory import RequestMemory, fullest_request, request_memory
from dse.evaluators.serving.scheduling_policy import BUDGETS, pool_policies
from dse.evaluators.silicon.energy import PooledActivity, host_transfer_energy, pooled_dynamic_energy
from dse.space.array_math import Array, maximum, minimum, where
from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.fields import replace_leaves
from dse.space.layers import AttentionReach, per_reach
from dse.space.limits import Infeasibility, Limit
from dse.space.main_memory import main_memory
from dse.space.mapping import FormatPlan, Mapping, TensorParallelPlan, is_disaggregated, pool_phases
from dse.space.memoize import memoize
from dse.space.model import Model
from dse.space.workload import ServingLoad


class TensorParallelServing(InstanceLayout):
    """Instances of shared-cache dies that share the layers of a model by tensor parallelism."""

    MERGEABLE_LEAVES = ("mapping.serving.instances", "mapping.serving.max_batch_size")
    USAGE_IN_BATCH = True

    def limits(self, design: Design, load: ServingLoad) -> list[Limit]:
        """Limits of memory for a single request, ports, and equal parallelism where dies do both phases."""
        chip, mapping = _chip_and_mapping(design)
        refuse_kv_head_option(load.model, mapping.prefill, mapping.decode)
        if chip.network is not None:
            for plan in (mapping.prefill, mapping.decode):
                refuse_library_allreduce(plan.allreduce, plan.tp, shared_cache_machine(chip, mapping))
        pools = zip(_pool_plans(mapping), _largest_iterations(mapping, load), strict=True)
        held = reduce(
            _fuller_memory, (_held_memory(design, load, plan.tp, load.longest - 1, largest) for plan, largest in pools)
        )
        # a request alone must fit: beside more of them, requests wait
        beside = EngineMemory(held.activations, held.reserved)
        parts = (("weights", held.weights), ("KV cache", held.kv), *beside.parts(mapping))
        tp = (mapping.prefill.tp, mapping.decode.tp)
        shared = tp if not is_disaggregated(mapping.serving) else tp[:1] * 2
        return [
            *memory_limits([main_memory_contents(chip, parts, capacity=device_capacity(chip, mapping))]),
            port_limit(chip, mapping.prefill, mapping.decode),
            Limit("mapping.decode.tp", maximum(*shared), minimum(*shared), "1"),
            *idle_die_limits(load.model, mapping),
            *engine_limits(mapping, load.model, load.guesses),
        ]

    def instances(self, design: Design, load: ServingLoad, fidelity: str) -> tuple[ServingInstance, ...]:
        """Serving instance of each pool, with the KV memory of one of its dies."""
        chip, mapping = _chip_and_mapping(design)
        sizes = step_terms(mapping.stack).sizes

        def instance(tp: Any, largest: LargestIteration) -> ServingInstance:
            def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
                seconds = _iteration_seconds(design, load, tp, prompt, prompt_context, decodes, context)
                return seconds if design_count(design) else seconds[..., 0]

            held = _held_memory(design, load, tp, 0, largest)
            free = device_capacity(chip, mapping) - held.weights - held.activations - held.reserved
            without = (*SERVING_PREFIXES, "mapping.prefill.tp", "mapping.decode.tp")
            key = "" if design_count(design) else iteration_time_key(design, load, float(tp), without=without)
            axes = partial(points, whole=distinct_prompt_lengths(load), graph_sizes=sizes)
            return ServingInstance(pricing, free, _request_memory(design, load, tp), axes, key=key, graph_sizes=sizes)

        return tuple(
            instance(plan.tp, largest)
            for plan, largest in zip(_pool_plans(mapping), _largest_iterations(mapping, load), strict=True)
        )

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

    def kv_transfer(self, design: Design, load: ServingLoad) -> tuple[RequestMemory, Any]:
        """KV transfer over each die's port or the scale-out network: time per request, and latency [s].

        Instances fill nodes one after the other. If one node has the dies of all, caches stay in the node. Otherwise
        any cache may have to leave its node, and all are charged as if they did. A die then has its part of the node's
        bandwidth, which is shared by the dies that send at the same time, as `closed_collective` shares it among those
        of a ring; at most its port's bandwidth.
        """
        chip, mapping = _chip_and_mapping(design)
        network, nodes, tps = chip.network, chip.network.nodes, [plan.tp for plan in _pool_plans(mapping)]
        taken, paces, latency = _request_memory(design, load, tps[1]), [network.bandwidth] * len(tps), network.latency
        if nodes is not None:
            across = self.device_count(design) > nodes.size
            paces = [where(across, minimum(network.bandwidth, _bandwidth_share(design, tp)), network.bandwidth) for tp in tps]
            latency = where(across, nodes.latency, latency)
        sent = taken.times(tps[1] / tps[0]), taken  # by a die of those that have it, and to one
        each = [room.times(1 / (pace * mapping.stack.network_efficiency)) for room, pace in zip(sent, paces, strict=True)]
        return fullest_request(each, load.longest), latency

    def devices_per_cache(self, design: Design, load: ServingLoad) -> tuple[Any, ...]:
        """Dies that share a request's KV cache: those of an instance."""
        return tuple(plan.tp for plan in _pool_plans(design.mapping))

    def peak_rates(self, design: Design) -> PeakRates:
        """Peak rates of one die; activations stay in the cache."""
        return device_peak_rates(design)

    def work_of_iterations(self, design: Design, load: ServingLoad, done: IterationCounts, fidelity: str) -> ServedWork:
        """Work of iterations; operations count at the pace of their formats."""
        chip, mapping = _chip_and_mapping(design)
        work, paced, designs = PooledActivity(), 0.0, design_count(design)
        for plan, pool in zip(_pool_plans(mapping), done, strict=True):
            for count, made_of in pool:
                iteration = _served_iteration(design, load, plan.tp, made_of)
                work = work.plus(_over_designs(_die_activity(design, iteration.run_blocks).times(count * plan.tp), designs))
                operations = sum(
                    timed.block.times * call.flop * call.pace for timed in iteration.plain for call in timed.block.calls
                )
                paced = paced + _each_design(count * operations, designs)
        flop = paced / usual_pace(design)
        return ServedWork(flop, work.memory_bytes, 0.0, lambda: pooled_dynamic_energy(work, chip))

    def transfer_work(self, design: Design, load: ServingLoad, hosted: Any) -> TransferWork:
        """Work of KV transfers over links from die to die, and to hosts."""
        chip, mapping = _chip_and_mapping(design)
        moved = TransferWork(hosted, host_transfer_energy(hosted, chip))
        if len(pool_phases(mapping.serving)) == 1:
            return moved
        sent = _moved_activity(design, load, self.device_count(design))
        return TransferWork(moved.memory_bytes + sent.memory_bytes, moved.energy + pooled_dynamic_energy(sent, chip))

    def iteration_energies(
        self, design: Design, load: ServingLoad, pool: int, made_of: Composition, fidelity: str
    ) -> list[tuple[Any, Any]]:
        """Time of iterations, and energy on all dies of an instance."""
        chip, mapping = _chip_and_mapping(design)
        tp = _pool_plans(mapping)[pool].tp
        iteration = _served_iteration(design, load, tp, made_of)
        return [(iteration.seconds, pooled_dynamic_energy(_die_activity(design, iteration.run_blocks), chip) * tp)]

    def iteration_rows(
        self, design: Design, load: ServingLoad, pool: int, times: float, made_of: Composition, fidelity: str
    ) -> Sequence[BreakdownRow]:
        """Breakdown rows of an iteration: one per call, and one for each overhead of the inference engine."""
        chip, mapping = _chip_and_mapping(design)
        tp, machine = _pool_plans(mapping)[pool].tp, shared_cache_machine(chip, mapping)
        plain, padded, overheads = _served_iteration(design, load, tp, made_of)
        return iteration_rows("", times, (plain, padded), overheads, machine, dies=tp)

    def remedy_text(self, worst: Infeasibility, design: Design, loads: tuple[ServingLoad, ...]) -> str:
        """Remedy text of a violated limit; always the empty string, since none is known."""
        return ""

    def device_count(self, design: Design) -> Any:
        """Number of chips of all instances."""
        serving = design.mapping.serving
        counts = {"prefill": serving.prefill_instances, "decode": serving.instances}
        plans = zip(pool_phases(serving), _pool_plans(design.mapping), strict=True)
        return sum(counts[phase] * plan.tp for phase, plan in plans)


def _moved_activity(design: Design, load: ServingLoad, dies: Any) -> PooledActivity:
    """Activity of KV transfers to decode instances: from memory to memory, each die its part."""
    network, tp = design.chip.network, design.mapping.decode.tp
    hops = network.hops if network.nodes is None else where(dies > network.nodes.size, INTER_NODE_HOPS, network.hops)
    nbytes = _request_memory(design, load, tp).sum_bytes(transferred_prompts(load)) * tp
    return PooledActivity(memory_bytes=2 * nbytes, linked_bytes=nbytes * hops)


def _bandwidth_share(design: Design, tp: Any) -> Any:
    """Of a node's bandwidth, what one of `tp` dies of an instance has while as many caches as can are on their way. [B/s]"""
    chip, mapping = _chip_and_mapping(design)
    nodes, serving = chip.network.nodes, mapping.serving
    _, members = split_into_nodes(tp, nodes.size)
    beside = minimum(minimum(serving.instances, serving.prefill_instances), maximum(1, nodes.size // members))
    return inter_node_bandwidth(nodes, mapping.stack) / (members * beside)


def _pool_plans(mapping: Mapping) -> tuple[TensorParallelPlan, ...]:
    """Of each pool: that which prefills, where there is one, and that which decodes."""
    return tuple(getattr(mapping, phase) for phase in pool_phases(mapping.serving))


def _iteration_seconds(
    design: Design, load: ServingLoad, tp: Any, prompt: Array, prompt_context: Array, decodes: Array, context: Array
) -> Array:
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
            kernels = blocks_seconds(_timed_iteration(design, load, tp, step))
            seconds[mask] = iteration_seconds(design.mapping.stack.iteration, load.model, step, kernels)
    return seconds.reshape(*counts[0].shape, -1)


class ServedIteration(NamedTuple):
    """One iteration of an instance: timed blocks, and time beyond its kernels.

    Attributes:
        plain: blocks of what was asked for.
        padded: blocks as a recorded graph runs them; empty where nothing is padded.
        overheads: time beyond kernels.
    """

    plain: tuple[TimedBlock, ...]
    padded: tuple[TimedBlock, ...]
    overheads: OverheadTimes

    @property
    def run_blocks(self) -> tuple[TimedBlock, ...]:
        """Blocks that the instance runs."""
        return self.padded or self.plain

    @property
    def seconds(self) -> Any:
        """Time of the iteration. [s]"""
        return self.overheads.iteration_seconds(blocks_seconds(self.run_blocks))


def _served_iteration(design: Design, load: ServingLoad, tp: Any, made_of: Composition) -> ServedIteration:
    phase, stack = "prefill" if np.any(made_of[0]) else "decode", design.mapping.stack
    step = _step_counts(load, phase, *(np.atleast_2d(count) for count in made_of[:4]))
    plain = _timed_iteration(design, load, tp, step, pads=False)
    padded = _timed_iteration(design, load, tp, step) if step_terms(stack).pads(phase) else ()
    return ServedIteration(plain, padded, overhead_times(stack.iteration, load.model, step, blocks_seconds(padded or plain)))


def _die_activity(design: Design, timed: tuple[TimedBlock, ...]) -> PooledActivity:
    """By one die in an iteration."""
    chip, mapping = _chip_and_mapping(design)
    _, cache, _ = shared_cache_parts(chip, mapping)
    return device_activity(
        tuple(timed_block.block for timed_block in timed),
        mapping.stack.attention_passes,
        cache,
        link_energy_inputs(chip.network),
    )


def _over_designs(work: PooledActivity, designs: int) -> PooledActivity:
    """Of one iteration, numbers or arrays of shape (designs,)."""
    return PooledActivity(*(_each_design(value, designs) for value in work))


def _each_design(value: Any, designs: int) -> Any:
    """Of each of some designs, or of the one that there is."""
    return np.broadcast_to(np.squeeze(value), designs) if designs else float(np.sum(value))


def _fuller_memory(memory: DeviceMemory, other: DeviceMemory) -> DeviceMemory:
    """The larger device memory, design by design."""
    more, names = other.total > memory.total, [field.name for field in fields(DeviceMemory)]
    return DeviceMemory(**{name: where(more, getattr(other, name), getattr(memory, name)) for name in names})


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
    design: Design, load: ServingLoad, tp: Any, step: StepCounts, *, pads: bool = True
) -> tuple[TimedBlock, ...]:
    """Timed blocks of iterations, padded as recorded graphs run them if `pads`."""
    chip, mapping = _chip_and_mapping(design)
    plan: TensorParallelPlan = replace_leaves(getattr(mapping, step.phase), {"tp": tp})
    terms = step_terms(mapping.stack)
    at = padded_step(step, terms.sizes) if pads else step
    operators, order = transformer_segments(load.model, at), segment_order(load.model, at)
    rates, recorded = chip.core.rates, at.phase == "decode"
    cut = device_blocks(
        operators, order, plan.tp, mapping.precision, plan.allreduce, rates=rates, recorded=recorded, heads=plan.kv_heads,
        phases=plan.ktree_k, terms=terms,
    )  # fmt: skip
    return timed_step(cut, chip, plan, shared_cache_machine(chip, mapping), ANALYTICAL)


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


class LargestIteration(NamedTuple):
    """Largest iteration of a pool: with the load's requests, and in an inference engine's first run.

    Attributes:
        tokens: that go through the layers at a time, in an iteration of prompts or of decodes. [token]
        budget: token budget, or the longest request where prompts are whole. [token]
        requests: that run at once, at most. [1]
    """

    tokens: Any
    budget: Any
    requests: Any


def _largest_iterations(mapping: Mapping, load: ServingLoad) -> list[LargestIteration]:
    """Largest iteration of each pool.

    Where requests that memory has no room for are computed again, a prompt is as long as what one has by then; a pool that else
    decodes alone computes them one at a time.
    """
    serving, prompt, whole = mapping.serving, float(load.requests.prompt.max()), float(load.longest - 1)
    plan = replace(serving, **dict.fromkeys(BUDGETS, 0))  # which designs differ in
    pools, iterations, all_of = pool_policies(plan), list[LargestIteration](), len(load.requests.prompt)
    prefilled = where(serving.prefill_max_batch_size > 0, serving.prefill_max_batch_size, serving.max_batch_size)
    for phase, rule in zip(pool_phases(serving), pools, strict=True):
        first, last = phase == "prefill" or not is_disaggregated(serving), phase == "decode"
        most = serving.max_batch_size if last else prefilled
        batch = minimum(most, all_of) * 1.0
        again = last and not rule.lifetime and not rule.swap
        longest, together = (whole if again else prompt, batch) if first else (whole * again, 1.0)
        own = (
            (serving.max_batched_tokens, serving.chunk_budget_units, serving.max_chunk_tokens)
            if last
            else (serving.prefill_max_batched_tokens, 0, 0)
        )
        tokens, unit, chunk = (
            where(value > 0, value, getattr(rule, name))
            for name, value in zip(("tokens", "unit", "chunk"), own, strict=True)
        )  # fmt: skip
        budget = where(unit > 0, tokens // maximum(unit, 1) * chunk, tokens)
        alone = 0.0 if rule.chunked else longest
        prompts = maximum(alone, minimum(budget if rule.chunked else tokens, longest * together))
        whole_budget = maximum(minimum(tokens, load.longest * most), load.longest)
        iterations.append(
            LargestIteration(
                maximum(prompts, batch * (1 + load.guesses) * last), budget if rule.chunked else whole_budget, most
            )
        )
    return iterations


def _held_memory(design: Design, load: ServingLoad, tp: Any, positions: int, largest: LargestIteration) -> DeviceMemory:
    """Memory of one of `tp` dies for one request of some positions, and for the largest iteration."""
    cached = per_reach(load.model, lambda reach: float(reach.kept_positions(positions)))
    held = _die_footprint(design, load, tp, cached, 1.0, largest.tokens)
    demand = EngineDemand(largest.budget, largest.requests, tp, tp)
    beside = engine_memory(design.chip, design.mapping, load.model, held.weights, held.activations, demand)
    return replace(held, activations=beside.activations, reserved=beside.reserved)


def _request_memory(design: Design, load: ServingLoad, tp: Any) -> RequestMemory:
    """What a request has on one of `tp` dies."""
    return request_memory(load.model, lambda cached, sequences: _die_footprint(design, load, tp, cached, sequences, 0.0).kv)


def _die_footprint(design: Design, load: ServingLoad, tp: Any, cached: Any, sequences: float, tokens: Any) -> DeviceMemory:
    mapping = _chip_and_mapping(design)[1]
    return _on_die(load.model, load.guesses, tp, mapping.precision, mapping.prefill.kv_heads, tokens, cached, sequences)


@memoize
def _on_die(
    model: Model, guesses: int, tp: Any, precision: FormatPlan, heads: str | None, tokens: Any, cached: Any, sequences: float
) -> DeviceMemory:
    """The same, of designs that differ in how they are used."""
    parts = transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0, guesses))
    return device_memory(parts, model, tp, precision, cached=cached, sequences=sequences, tokens=tokens, heads=heads)


def _chip_and_mapping(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping
