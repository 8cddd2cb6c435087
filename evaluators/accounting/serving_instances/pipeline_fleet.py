"""Pipelines of tile groups that serve requests: their number, core memory and iteration times.

An iteration is one micro-batch's forward pass through all stages, prompts and decodes together: products over all
tokens, attention of each kind separately. Leaves are of one design, or of several with equal options, of shape
(designs,).

Residency in local memory has two rules (`mapping.serving.residency`). With `fixed`, cores that do both phases
always reserve room for the activations of a chunk, and for the caches of a full batch. Fewer weights stay than in a static
batch, and iterations of few requests take some per cent longer. `by_phase`: as in a static batch of the same requests.
Cores that only decode reserve no room for prompts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.forward_passes import StagedPass, pass_through_stages
from dse.evaluators.accounting.memory_contents import MemoryContents, request_room
from dse.evaluators.accounting.partition_search import PartitionedPhase, TriedPlan, fastest_plan, plan_with_partition
from dse.evaluators.accounting.pipeline_memory import core_contents
from dse.evaluators.accounting.serving_instances import design_count
from dse.evaluators.accounting.serving_instances.prompt_table_points import fractional_prompts
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.calls.call import CallBlock
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.call_cost import CostModel
from dse.evaluators.graph.operators import Segment
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import segment_order, transformer_segments
from dse.evaluators.kernels.partition.stage_transfer import PipelinePlacement
from dse.evaluators.layouts.kv_transfer import TransferCost
from dse.evaluators.layouts.micro_batches import micro_batch_counts
from dse.evaluators.layouts.operator_partitions import PartitionChoice, is_gather_call, offered_partitions, partitioned_blocks
from dse.evaluators.layouts.pipelines import group_blocks, group_count
from dse.evaluators.layouts.residency import CoreResidency, StageShares, core_cache_bytes, core_residency
from dse.evaluators.layouts.stage_boundaries import OperatorLine, StageCuts, cut_whole_layers, operator_line
from dse.evaluators.machine.machine import tile_core_machine
from dse.evaluators.machine.memory_side_cache import memory_side_cache
from dse.evaluators.program.activity import Activity
from dse.evaluators.serving.kv_memory import RequestMemory, request_memory
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, make_policy
from dse.evaluators.silicon.energy import dynamic_energy
from dse.space.array_math import Array, ceil_div, maximum, minimum, option_index, where
from dse.space.chip import Chip, decode_only_chip
from dse.space.design import Design
from dse.space.layers import AttentionReach, per_reach
from dse.space.mapping import AUTO, BYTES_BY_FORMAT, DIVISIONS, STAGE_CUTS, FormatPlan, Mapping, ServingPipelinePlan
from dse.space.memoize import LastUsed
from dse.space.model import Model
from dse.space.workload import ServingLoad


class PipelinePool(NamedTuple):
    """A pool of equal pipelines for one phase or both.

    Attributes:
        name: of the phase; decode also for both.
        chip: as if all cores were of this kind.
        plan: of the phase.
        rules: how an iteration is formed, of each design.
        groups: groups of cores that fit.
        dp: pipelines.
        batch: requests of one, over all its micro-batches.
        held: memory of the fullest core; of iterations with prompts, where those without have their own.
        decode_held: likewise of iterations without prompts; None where all have the same.
        room: KV memory of one request on a core, over its layers.
        cut: stages of a pipeline, of each design.
        precision: formats.
        words: partitions of operators, where the plan leaves them open.
        holds: the plan, with the partition by which core memory is counted.
    """

    name: str
    chip: Chip
    plan: ServingPipelinePlan
    rules: tuple[SchedulingPolicy, ...]
    groups: Any
    dp: Any
    batch: Any
    held: CoreResidency
    decode_held: CoreResidency | None
    room: RequestMemory
    cut: StageCuts
    precision: FormatPlan
    words: PartitionChoice | None
    holds: ServingPipelinePlan

    @property
    def rule(self) -> SchedulingPolicy:
        """Scheduling policy of one design's pipelines."""
        (rule,) = self.rules
        return rule

    @property
    def stages(self) -> StageCuts:
        """Stages of a pipeline; numbers for one design."""
        return self.cut.plain

    @property
    def width(self) -> float:
        """Bytes of an activation value in products. [B]"""
        return float(BYTES_BY_FORMAT[self.precision.activations])

    @property
    def local_cache_bytes(self) -> Any:
        """Local memory of a core that KV caches occupy, in all iterations. [B]"""
        both = (self.held, self.decode_held or self.held)
        return as_float(minimum(*(held.kv_here * held.kv for held in both)))

    @property
    def sram_used(self) -> Any:
        """Local memory of the fullest core in use, in the iterations that need more. [B]"""
        return maximum(self.held.sram, (self.decode_held or self.held).sram)

    def residency(self, prompt: Any) -> CoreResidency:
        """Residency in iterations by their prompt tokens."""
        if self.decode_held is None:
            return self.held
        return CoreResidency(*(where(prompt > 0, *both) for both in zip(self.held, self.decode_held, strict=True)))

    def contents(self, cached: Any) -> tuple[MemoryContents, MemoryContents]:
        """Contents of a core's share of main memory, with some bytes of caches, and of local memory.

        Local memory in use is that of the iterations that need more.
        """
        main, local = core_contents(self.chip, self.plan, self.held, cached)
        return main, local._replace(resident=self.sram_used - local.need)

    @property
    def free(self) -> Any:
        """Share of main memory per core that weights leave free. [B]"""
        return as_float(request_room(self.contents(0.0)[0]))


PHASES = ("prefill", "decode")

MAX_FLEETS = 8
"""That are kept."""

_fleets: LastUsed[tuple[int, int], tuple[Design, ServingLoad, tuple[PipelinePool, ...]]] = LastUsed(MAX_FLEETS)
"""Pipelines by design and load, which are kept with them: limits and metrics of a design need them one after the other."""


def pipeline_pools(design: Design, load: ServingLoad) -> tuple[PipelinePool, ...]:
    """Pools of pipelines: those that only prefill, if any, and those that decode."""
    known = _fleets.find((id(design), id(load)))
    return known[2] if known else _keep_fleet(design, load, _make_fleet(design, load))


def pipeline_path(design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...], between: TransferCost) -> KvPath:
    """Path of KV caches over links of the mesh; local memories spare main memory their positions.

    Args:
        design, load, fleet: as they are.
        between: costs of messages of caches.
    """
    room, prompt = pipeline_request_memory(design, load, fleet[-1].holds), float(load.requests.prompt.mean())
    away = sum(1 - pool.held.kv_here for pool in fleet)
    byte = Activity(sent_bytes=1.0, hop_bytes=between.hops, memory_bytes=away)
    return KvPath(
        # a token of the mean prompt takes as long as messages of its share of that prompt's bytes
        room.times(between.per_token * prompt / as_float(room.request_bytes(prompt))),
        between.latency,
        room.times(fleet[-1].holds.tp),
        away,
        dynamic_energy(byte, design.chip),
        between.hops,
        between.together,
        between.blocks,
    )


def select_rows(design: Design, rows: Array) -> Design:
    """Selected rows of a design, keeping the pipelines already known for them."""
    found_rows = served.select_rows(design, rows)
    for single_design, load, fleet in _fleets.results():
        if single_design is design and len(rows) > 1:
            chips = (found_rows.chip, decode_only_chip(found_rows.chip))[: len(fleet)]
            _keep_fleet(
                found_rows,
                load,
                tuple(_pick_rows_of(pool, chip, found_rows.mapping, rows) for pool, chip in zip(fleet, chips, strict=True)),
            )
    return found_rows


def _keep_fleet(design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...]) -> tuple[PipelinePool, ...]:
    return _fleets.keep((id(design), id(load)), (design, load, fleet))[2]


def _pick_rows_of(pool: PipelinePool, chip: Chip, mapping: Mapping, rows: Array) -> PipelinePool:
    """Some rows of several designs, with a chip and a mapping of these rows."""

    def pick_rows(value: Any) -> Any:
        return value[rows] if np.size(value) > 1 else value

    room = RequestMemory(
        pick_rows(pool.room.growing),
        pick_rows(pool.room.fixed),
        tuple((most, pick_rows(nbytes)) for most, nbytes in pool.room.windows),
    )
    plan = getattr(mapping, pool.name)
    return pool._replace(
        chip=chip, plan=plan, rules=tuple(pool.rules[row] for row in rows.tolist()), groups=pick_rows(pool.groups),
        dp=pick_rows(pool.dp),
        batch=pick_rows(pool.batch), held=CoreResidency(*map(pick_rows, pool.held)),
        decode_held=pool.decode_held and CoreResidency(*map(pick_rows, pool.decode_held)), room=room,
        cut=pool.cut.design_cuts(rows), holds=plan,
    )  # fmt: skip


def _make_fleet(design: Design, load: ServingLoad) -> tuple[PipelinePool, ...]:
    chip, mapping, size = design.chip, design.mapping, max(design_count(design), 1)
    apart, others = prefill_and_decode_cores(design)
    # a request has a buffer for all of it before its first chunk
    both = _each_rule(mapping.decode.max_chunk_tokens, size, lambda chunk: _decode_policy(mapping, chunk))
    if not np.any(apart):
        return (_make_pipelines("decode", chip, mapping.decode, both, others, mapping, load, _prompt_token_counts(both, load)),)
    alone = _each_rule(mapping.prefill.max_chunk_tokens, size, _prefill_policy)
    return (
        _make_pipelines("prefill", chip, mapping.prefill, alone, apart, mapping, load, _prompt_token_counts(alone, load)),
        _make_pipelines("decode", decode_only_chip(chip), mapping.decode, both, others, mapping, load, 0.0),
    )


def _decode_policy(mapping: Mapping, chunk: int) -> SchedulingPolicy:
    """How pipelines that decode form an iteration."""
    return make_policy(mapping.serving.policy, by_chunk=False, **_policy_changes(mapping, chunk))


def _prefill_policy(chunk: int) -> SchedulingPolicy:
    """How those that only prefill do."""
    return make_policy("chunked_prefill", tokens=chunk, by_chunk=False) if chunk else make_policy("prefill_first")


def _each_rule(chunks: Any, size: int, rule: Callable[[int], SchedulingPolicy]) -> tuple[SchedulingPolicy, ...]:
    """Of each of some designs, by the longest chunk of a prompt."""
    each = np.broadcast_to(chunks, size).astype(int).tolist()
    known = {chunk: rule(chunk) for chunk in set(each)}
    return tuple(known[chunk] for chunk in each)


def _prompt_token_counts(rules: tuple[SchedulingPolicy, ...], load: ServingLoad) -> Any:
    """The most prompt tokens of an iteration, or those of a prompt that goes whole: others go by blocks after it."""
    whole = float(load.requests.prompt.max())

    def prompt_tokens(rule: SchedulingPolicy) -> float:
        if rule.unit:
            return float(rule.tokens // rule.unit * rule.chunk)
        return min(whole, float(rule.tokens)) if rule.chunked else whole

    return prompt_tokens(rules[0]) if len(rules) == 1 else np.array([prompt_tokens(rule) for rule in rules])


def _policy_changes(mapping: Mapping, chunk: int) -> dict[str, int]:
    given = {"tokens": mapping.serving.max_batched_tokens, "unit": mapping.serving.chunk_budget_units, "chunk": chunk}
    return {name: int(value) for name, value in given.items() if value}


def _make_pipelines(
    name: str,
    chip: Chip,
    plan: ServingPipelinePlan,
    rules: tuple[SchedulingPolicy, ...],
    cores: Any,
    mapping: Mapping,
    load: ServingLoad,
    prompts: Any,
) -> PipelinePool:
    groups = as_count(group_count(chip, plan) * cores // (chip.mesh.rows * chip.mesh.cols))
    dp = as_count(where(plan.dp > 0, plan.dp, maximum(1, groups // as_count(plan.pp))))
    batch, longest = as_count(plan.microbatch_size * plan.pp), served.longest_sequence(load)
    by_phase, together = mapping.serving.residency == "by_phase", plan.microbatch_size * 1.0
    kept, decodes = batch * 1.0, together if name == "decode" else 0.0
    if by_phase:  # no more than come, of which one has the prompt
        kept = minimum(kept, ceil_div(len(load.requests), dp))
        together = micro_batch_counts(kept, plan.pp)[1]
        decodes = minimum(decodes, kept - 1.0)
    tokens = prompts + decodes
    parts, alone = (transformer_segments(load.model, StepCounts(phase, tokens, 1.0, tokens, 0.0)) for phase in PHASES)
    alike, near = replace(mapping, prefill=plan, decode=plan, serving=None), memory_side_cache(chip)

    def with_share(
        share: StageShares | None, plan: ServingPipelinePlan, everywhere: Any
    ) -> tuple[CoreResidency, CoreResidency | None, RequestMemory]:
        def residency_of(parts: tuple[Segment, ...], tokens: Any, cached: Any, sequences: Any) -> CoreResidency:
            return core_residency(
                parts, load.model, plan, alike, chip.tile.sram, tokens=tokens, cached=cached, sequences=sequences, share=share,
                near=near and near.size, everywhere=everywhere,
            )  # fmt: skip

        cached = per_reach(load.model, lambda reach: kept * reach.kept_positions(longest))
        whole, both = residency_of(parts, tokens, cached, kept), by_phase and np.any(prompts)
        room = request_memory(load.model, lambda cached, sequences: residency_of(parts, tokens, cached, sequences).kv)
        return whole, residency_of(alone, together, cached, kept) if both else None, room

    line, stages = operator_line(load.model, _one_token(load, "prefill"), mapping.precision), _whole_counts(plan.pp, len(rules))
    none, first = np.zeros(len(rules)), plan
    layers = cut_whole_layers(line._replace(seconds=np.zeros((len(rules), len(line.weights)))), stages, none, none > 0)
    if plan.partition == AUTO:  # which what a core holds decides on
        first = plan_with_partition(plan, "k")

    def held_by(plan: ServingPipelinePlan, everywhere: Any = 0.0) -> PipelinePool:
        holds = with_share(None, plan, everywhere)
        return PipelinePool(name, chip, plan, rules, groups, dp, batch, *holds, layers, mapping.precision, None, plan)

    whole, everywhere = held_by(first), 0.0
    if plan.partition == AUTO:
        whole, everywhere = _with_words(whole, load, plan, mapping, prompts, held_by)
    inside = np.broadcast_to(option_index(plan.stages, STAGE_CUTS) == STAGE_CUTS.index("operators"), len(rules))
    if not inside.any():
        return whole
    # cut as if all came from HBM: what stays in local memory depends on where the stages end
    away = whole.held._replace(kv_here=0.0, weights_here=0.0)
    typical = _typical_line(load, whole._replace(held=away, decode_held=None), READERS["analytical"])
    parted = whole._replace(cut=cut_whole_layers(typical[0], stages, typical[1], inside))
    memory = with_share(parted.stages.share, parted.holds, everywhere)
    if not inside.all():
        memory = _select_fields(inside, memory, (whole.held, whole.decode_held, whole.room))
    return parted._replace(held=memory[0], decode_held=memory[1], room=memory[2])


def _select_fields(which: Array, chosen_value: Any, other: Any) -> Any:
    """Values of the first design group where the mask is set, else of the second, for any nested container."""
    if isinstance(chosen_value, tuple):
        fields = (_select_fields(which, *both) for both in zip(chosen_value, other, strict=True))
        return type(chosen_value)(*fields) if hasattr(chosen_value, "_fields") else tuple(fields)
    alike = not (np.ndim(chosen_value) or np.ndim(other)) and chosen_value == other
    return chosen_value if alike else np.where(which, chosen_value, other)


def _whole_counts(count: Any, size: int) -> Array:
    """Whole things of each of some designs."""
    found_count: Array = np.broadcast_to(np.ravel(count), size).astype(np.int64)
    return found_count


def _one_token(load: ServingLoad, phase: str) -> tuple[Segment, ...]:
    """Segments of a step for one token, for weights and values per token."""
    return transformer_segments(load.model, StepCounts(phase, 1.0, 1.0, 1.0, 1.0))


def _with_words(
    pool: PipelinePool,
    load: ServingLoad,
    plan: ServingPipelinePlan,
    mapping: Mapping,
    prompts: float,
    held_by: Callable[..., PipelinePool],
) -> tuple[PipelinePool, Any]:
    """Pipelines with the partition of each operator, and of weights those of which each core has all. [B]"""
    pools: dict[int, PipelinePool] = {}

    def held(plan: ServingPipelinePlan, everywhere: Any) -> CoreResidency:
        pool = held_by(plan, float(np.squeeze(everywhere)))
        pools[id(pool.held)] = pool
        return pool.held

    def fits(plan: ServingPipelinePlan, residency: CoreResidency) -> bool:
        single_pool = pools[id(residency)]
        return longest_request_bytes(single_pool, load, mapping) <= single_pool.free and float(
            residency.activations + residency.slices
        ) <= float(pool.chip.tile.sram)

    at, attending, runs = _mean_iterations_of(pool, load, prompts)
    crossing = at.tokens * pool.stages.carried * pool.width

    def forward_pass(laid: tuple[CallBlock, ...], residency: CoreResidency) -> StagedPass:
        way = PipelinePlacement(plan.placement, plan.tp, plan.pp, pool.dp, pool.chip.mesh.rows)
        return pass_through_stages(
            load.model, laid, crossing, tile_core_machine(pool.chip), way, plan, residency, READERS["analytical"]
        )

    def lay(word: str) -> tuple[CallBlock, ...]:
        return group_blocks(load.model, at, plan_with_partition(plan, word), pool.precision, attending, apart=True)

    work, closed = MeanRequestWork(at, attending, runs), READERS["analytical"]
    best, holds = partition_options(load.model, pool.chip, plan, pool.precision, work, closed, lay, held, forward_pass, fits)
    everywhere = float(np.squeeze(best.everywhere))
    return held_by(holds, everywhere)._replace(plan=plan, words=best.of), everywhere


def iteration_calls(
    pool: PipelinePool, load: ServingLoad, at: StepCounts, attending: tuple[StepCounts, ...]
) -> tuple[CallBlock, ...]:
    """Calls of an iteration, with the plan's partition or one partition per operator."""
    model, plan, words = load.model, pool.plan, pool.words
    if words is None:
        return group_blocks(model, at, plan, pool.precision, attending)
    used = {DIVISIONS[int(word)] for word in words.words.values()} | {"k"}
    by_word = {
        word: group_blocks(model, at, plan_with_partition(plan, word), pool.precision, attending, apart=True)
        for word in offered_partitions(plan)
        if word in used
    }
    return partitioned_blocks(transformer_segments(model, at), by_word, words, plan, pool.width)


def pool_contents(pool: PipelinePool, load: ServingLoad, mapping: Mapping) -> tuple[MemoryContents, MemoryContents]:
    """Contents of the memories of a pool's fullest core with a longest request."""
    return pool.contents(longest_request_bytes(pool, load, mapping))


def longest_request_bytes(pool: PipelinePool, load: ServingLoad, mapping: Mapping) -> Any:
    """Main memory per core that the longest request takes alone. [B]"""
    whole = as_float(pool.room.request_bytes(served.longest_sequence(load)))
    return whole if mapping.serving.kv_overflow == "ring" else maximum(0.0, whole - pool.local_cache_bytes)


def _mean_iterations_of(
    pool: PipelinePool, load: ServingLoad, prompts: float
) -> tuple[StepCounts, tuple[StepCounts, ...], Array]:
    """Iterations that a mean request needs, and their numbers, shape (iterations, 1)."""
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    batch, turn = float(pool.plan.microbatch_size), min(prompt, prompts or prompt)
    rows = []
    if pool.name == "prefill" or prompts:
        rows.append((prompt / turn, (turn, prompt / 2, 0.0, 0.0)))
    if pool.name == "decode":
        rows.append((output / batch, (0.0, 0.0, batch, prompt + output / 2)))
    runs, counts = np.array([[times] for times, _ in rows]), np.array([composition for _, composition in rows]).T[..., None]
    return *_iteration_steps(load.model, "prefill" if prompts or pool.name == "prefill" else "decode", *counts), runs


def iteration_pass(
    load: ServingLoad, pool: PipelinePool, reader: CostModel, phase: str, prompt: Any, prompt_context: Any, decodes: Any,
    context: Any, spilled: Any, crowding: float = 1.0,
) -> StagedPass:  # fmt: skip
    """Forward pass of an iteration with counts as in `iteration_time.AXES`; leaves broadcast."""
    at, attending = _iteration_steps(load.model, phase, prompt, prompt_context, decodes, context)
    laid = iteration_calls(pool, load, at, attending)
    crossing = (prompt + decodes) * pool.stages.carried * pool.width
    held = pool.residency(prompt)._replace(kv_here=1 - spilled)
    way = PipelinePlacement(pool.plan.placement, pool.plan.tp, pool.plan.pp, pool.dp, pool.chip.mesh.rows)
    return pass_through_stages(load.model, laid, crossing, tile_core_machine(pool.chip), way, pool.plan, held, reader, crowding)


def _iteration_steps(
    model: Model, phase: str, prompt: Any, prompt_context: Any, decodes: Any, context: Any
) -> tuple[StepCounts, tuple[StepCounts, ...]]:
    """An iteration, and the steps that share it: prompts and decodes."""

    def looked(reach: AttentionReach) -> tuple[Any, Any, Any]:
        """Pairs of prompts, positions that they attend to before themselves, which are read once a chunk, and decodes' own."""
        return (
            prompt / each * reach.remaining_positions(before, each),
            reach.seen_positions(before),
            decodes * reach.seen_positions(context),
        )

    each, before = fractional_prompts(prompt, prompt_context)
    pairs, past, own = (per_reach(model, lambda reach, n=n: looked(reach)[n]) for n in range(3))  # type: ignore[misc]
    prompts = StepCounts("prefill", prompt, (prompt > 0) * 1.0, pairs, past)
    generating = StepCounts("decode", decodes, decodes, own, own)
    tokens, requests = prompt + decodes, decodes + prompts.requests
    resumed = decodes + (prompt_context > (prompt + 1) / 2)  # further chunks of a prompt have a past
    at = StepCounts(phase, tokens, requests, prompts.pairs + generating.pairs, past + generating.positions, resumed=resumed)
    if phase == "prefill":
        at = replace(at, decodes=decodes, decoded=own, scored=own)
    return at, (prompts, generating)


def stage_shares_and_rate(load: ServingLoad, pool: PipelinePool, reader: CostModel) -> tuple[list[tuple[float, ...]], Any]:
    """Stage shares of an iteration's time, and token rate of all pipelines, for each design. [1/s]

    They go at the pace of the slowest stage.
    """
    seconds = pool.cut.seconds(*_typical_line(load, pool, reader))
    tokens = float(load.requests.prompt.mean()) if pool.name == "prefill" else pool.plan.microbatch_size
    slowest, shares = seconds.max(axis=1), (seconds / seconds.sum(axis=1, keepdims=True)).tolist()
    rate = pool.dp * tokens / (float(slowest[0]) if len(slowest) == 1 else slowest)
    return [tuple(share[:count]) for share, count in zip(shares, pool.cut.counts.tolist(), strict=True)], rate


def _typical_line(load: ServingLoad, pool: PipelinePool, reader: CostModel) -> tuple[OperatorLine, Array]:
    """Operators of a full micro-batch of decodes, or of a prompt where pipelines only prefill; and to send on a value of it.

    Of each design.
    """
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    size = len(pool.rules)
    if pool.name == "prefill":
        tokens: Any = prompt
        at = iteration_pass(load, pool, reader, "prefill", prompt, prompt / 2, 0.0, 0.0, 0.0)
    else:
        tokens = pool.plan.microbatch_size * 1.0
        at = iteration_pass(load, pool, reader, "decode", 0.0, 0.0, tokens, prompt + output / 2, 0.0)
    seconds: dict[tuple[str, str], Any] = {}
    for of_part in at.timed:
        for call, taken in zip(of_part.block.calls, of_part.durations, strict=True):
            name = call.needs[0] if is_gather_call(call) else call.name
            seconds[call.part, name] = seconds.get((call.part, name), 0.0) + np.ravel(taken)
    line = operator_line(load.model, _one_token(load, pool.name), pool.precision, seconds, size)
    hop, carried = np.broadcast_to(np.ravel(at.hop.mean), size), pool.cut.carried
    return line, np.divide(hop, carried, out=np.zeros(size), where=carried != 0)


def pipeline_request_memory(design: Design, load: ServingLoad, plan: ServingPipelinePlan) -> RequestMemory:
    """KV memory of one request on a core, over all its layers. [B]"""
    precision = design.mapping.precision

    def nbytes(cached: Any, sequences: float) -> Any:
        return sum(core_cache_bytes(load.model, plan, cached, sequences, precision))

    return request_memory(load.model, nbytes)


def prefill_and_decode_cores(design: Design) -> tuple[Any, Any]:
    """Numbers of cores that only prefill, and that decode."""
    plan, cores = design.mapping.serving, core_count(design)
    apart = minimum(plan.prefill_cores * 1.0, cores)
    return apart, minimum(where(plan.decode_cores > 0, plan.decode_cores, cores) * 1.0, cores - apart)


def decode_only_cores(design: Design) -> Any:
    """Number of cores that only decode."""
    apart, others = prefill_and_decode_cores(design)
    return where(apart > 0, others, 0.0)


def core_count(design: Design) -> Any:
    """Number of cores of the chip."""
    mesh = design.chip.mesh
    return mesh.rows * mesh.cols * 1.0


def as_float(value: Any) -> Any:
    """Value as a float for one design; an array is returned unchanged."""
    return value if np.size(value) > 1 else float(np.squeeze(value))


def as_count(value: Any) -> Any:
    """Whole count, rounded down; an integer for one design."""
    return np.floor(value) if isinstance(value, np.ndarray) else int(value)


class MeanRequestWork(NamedTuple):
    """Iterations that a mean request needs, shape (iterations, 1).

    Attributes:
        at, attending: steps, and those that share them.
        runs: how often each is done.
    """

    at: StepCounts
    attending: tuple[StepCounts, ...]
    runs: Any


def partition_options(
    model: Model,
    chip: Chip,
    plan: ServingPipelinePlan,
    precision: FormatPlan,
    work: MeanRequestWork,
    closed: CostModel,
    lay: Callable[[str], tuple[CallBlock, ...]],
    held: Callable[[ServingPipelinePlan, Any], CoreResidency],
    passed: Callable[[tuple[CallBlock, ...], CoreResidency], StagedPass],
    fits: Callable[[ServingPipelinePlan, CoreResidency], bool],
) -> tuple[TriedPlan, ServingPipelinePlan]:
    """Partitions of pipelines, and the plan by which core memory is counted.

    Args:
        model, chip, plan, precision: what is divided, and where.
        work: that is typical.
        closed: the analytical cost model.
        lay: calls of that work by one partition, but for what goes to all.
        held: core memory by a plan, and from weights copied to each core [B].
        passed: a forward pass of blocks of that work.
        fits: whether that core memory fits.
    """

    def through(laid: tuple[CallBlock, ...], residency: CoreResidency) -> tuple[StagedPass, Any]:
        staged = passed(laid, residency)
        return staged, np.sum(staged.seconds * work.runs, axis=0, keepdims=True)

    phase = PartitionedPhase(
        model, plan, precision, transformer_segments(model, work.at), segment_order(model, work.at),
        {word: lay(word) for word in offered_partitions(plan)},
        lambda word, everywhere: held(plan_with_partition(plan, word), everywhere), through,
        lambda word, residency: fits(plan_with_partition(plan, word), residency),
        work.runs, np.array([0]), len(work.runs), tile_core_machine(chip), closed,
    )  # fmt: skip
    best = fastest_plan(phase)
    return best, plan_with_partition(plan, best.counted)


def operator_set_count(model: Model) -> int:
    """Number of different operator sets in the phases of a model."""

    def names(phase: str) -> list[tuple[str, str]]:
        parts: tuple[Segment, ...] = transformer_segments(model, StepCounts(phase, 1.0, 1.0, 1.0, 1.0))
        return [(part.name, operator.name) for part in parts for operator in part.operators]

    return 1 if names("prefill") == names("decode") else 2
