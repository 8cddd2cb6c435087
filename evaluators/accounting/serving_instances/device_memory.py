"""Memory of devices that serve requests, on the pipeline stage with least free memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.evaluators.accounting.engine_memory import (
    EngineDemand,
    cached_positions,
    device_capacity,
    engine_memory,
    keeps_windows_alone,
)
from dse.evaluators.accounting.memory_placement import ServedPlacement, place_served, prefix_room
from dse.evaluators.accounting.serving_instances.largest_iteration import (
    LargestIteration,
    largest_iteration,
    pool_roles,
    pool_rules,
)
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.evaluators.layouts.device_stages import stage_groups
from dse.evaluators.layouts.tensor_parallel import DeviceMemory, device_memory
from dse.evaluators.machine.tiered_reads import EXPERTS, KV, WEIGHTS
from dse.evaluators.serving.kv_memory import RequestMemory, request_memory
from dse.evaluators.serving.scheduling_policy import CHANGES
from dse.space.array_math import where
from dse.space.design import Design
from dse.space.mapping import FormatPlan, Mapping, TensorParallelPlan
from dse.space.memoize import memoize, memoize_by_identity
from dse.space.memory_tiers import prefix_tier
from dse.space.model import Model
from dse.space.serving_plan import pool_phases
from dse.space.workload import ServingLoad


def pool_plans(mapping: Mapping) -> tuple[TensorParallelPlan, ...]:
    """Of each pool: that which prefills, where there is one, and that which decodes."""
    return tuple(getattr(mapping, phase) for phase in pool_phases(mapping.serving))


def stage_segments(load: ServingLoad, plan: TensorParallelPlan) -> Sequence[tuple[str, ...] | None]:
    """Different pipeline stages of an instance, by the names of their segments; None for one that has all."""
    if plan.stages == 1:
        return (None,)
    return [group.order for group in stage_groups(load.model, load.guesses, plan.stages)]


def largest_iterations(mapping: Mapping, load: ServingLoad) -> list[LargestIteration]:
    """Largest iteration of each pool."""
    serving = mapping.serving
    prefilled = where(serving.prefill_max_batch_size > 0, serving.prefill_max_batch_size, serving.max_batch_size)
    iterations = []
    for phase, rule, role in zip(pool_phases(serving), pool_rules(serving), pool_roles(serving), strict=True):
        if role.decodes:
            batch, own = serving.max_batch_size, tuple(getattr(serving, name) for name in CHANGES)
        else:
            batch, own = prefilled, (serving.prefill_max_batched_tokens, 0, 0)
        role = role._replace(stages=getattr(mapping, phase).stages)
        iterations.append(largest_iteration(rule, load, batch, role, own))
    return iterations


def tightest_stage(
    design: Design, load: ServingLoad, plan: TensorParallelPlan, largest: LargestIteration
) -> tuple[Any, RequestMemory]:
    """Free KV memory of a die of the stage that fewest requests fill, and that of one request. [B]"""
    if design.chip.tiers is not None:
        return pool_placement(design, load, plan, largest).pool.nbytes, stage_request_memory(design, load, plan.tp, None)
    capacity, stages = device_capacity(design.chip, design.mapping), []
    for stage in stage_segments(load, plan):
        held = held_memory(design, load, plan, 0, largest, stage)
        free = capacity - held.weights - held.activations - held.reserved
        stages.append((free, stage_request_memory(design, load, plan.tp, stage)))
    if len(stages) == 1:
        return stages[0]

    def requests(stage: tuple[Any, RequestMemory]) -> float:
        return float(stage[0]) / max(float(stage[1].request_bytes(load.longest)), NEGLIGIBLE_BYTES)

    return min(stages, key=requests)


@memoize_by_identity
def pool_placement(design: Design, load: ServingLoad, plan: TensorParallelPlan, largest: LargestIteration) -> ServedPlacement:
    """Placement of what a die of a pool with memory tiers holds, and its KV memory."""
    held = held_memory(design, load, plan, load.longest - 1, largest, None)
    nbytes = {WEIGHTS: held.weights - held.experts, KV: held.kv, EXPERTS: held.experts}
    room = device_capacity(design.chip, design.mapping) - held.activations - held.reserved
    together = float(min(float(np.max(largest.requests)), len(load.requests.prompt)))
    return place_served(design.chip, design.mapping, room, nbytes, together)


def prefix_memory(
    design: Design, load: ServingLoad, plan: TensorParallelPlan, largest: LargestIteration
) -> tuple[float, float] | None:
    """Room of a die's tier for prefixes, and its bandwidth; None without one. [B], [B/s]"""
    tier = prefix_tier(design)
    if tier is None:
        return None
    return prefix_room(design, pool_placement(design, load, plan, largest)), float(np.max(tier.bandwidth))


NEGLIGIBLE_BYTES = 1e-9
"""Caches of a stage without any. [B]"""


def fullest_stage_request(design: Design, load: ServingLoad, plan: TensorParallelPlan) -> RequestMemory:
    """What a request has on a die of the stage with most of it."""
    memories = [stage_request_memory(design, load, plan.tp, stage) for stage in stage_segments(load, plan)]
    return max(memories, key=lambda memory: float(memory.request_bytes(load.longest))) if len(memories) > 1 else memories[0]


def held_memory(
    design: Design,
    load: ServingLoad,
    plan: TensorParallelPlan,
    positions: int,
    largest: LargestIteration,
    stage: tuple[str, ...] | None,
) -> DeviceMemory:
    """Memory of one die of a stage for one request of some positions, and for the largest iteration."""
    cached = cached_positions(design.mapping, load.model, positions)
    held = _die_footprint(design, load, plan.tp, cached, 1.0, largest.tokens, stage)
    demand = EngineDemand(largest.budget, largest.requests, plan.tp, plan.tp * plan.stages)
    beside = engine_memory(design.chip, design.mapping, load.model, held.weights, held.activations, demand)
    return replace(held, activations=beside.activations, reserved=beside.reserved)


def stage_request_memory(design: Design, load: ServingLoad, tp: Any, stage: tuple[str, ...] | None) -> RequestMemory:
    """What a request has on one of the `tp` dies of a stage; None for one that has all layers."""
    return request_memory(
        load.model,
        lambda cached, sequences: _die_footprint(design, load, tp, cached, sequences, 0.0, stage).kv,
        window_caches=keeps_windows_alone(design.mapping),
    )


def _die_footprint(
    design: Design, load: ServingLoad, tp: Any, cached: Any, sequences: float, tokens: Any, stage: tuple[str, ...] | None
) -> DeviceMemory:
    mapping = design.mapping
    return _on_die(load.model, load.guesses, tp, mapping.precision, mapping.prefill.kv_heads, tokens, cached, sequences, stage)


@memoize
def _on_die(
    model: Model, guesses: int, tp: Any, precision: FormatPlan, heads: str | None, tokens: Any, cached: Any, sequences: float,
    stage: tuple[str, ...] | None,
) -> DeviceMemory:  # fmt: skip
    """The same, of designs that differ in how they are used."""
    parts = transformer_segments(model, StepCounts("decode", 1.0, 1.0, 1.0, 1.0, guesses))
    return device_memory(
        parts, model, tp, precision, cached=cached, sequences=sequences, tokens=tokens, heads=heads, stage=stage
    )
