"""Evaluation of serving loads, on any chip: metrics, limits and breakdown.

Instances are whole devices, equal in a pool: one pool for both phases, or a prefill pool and a decode pool. A layout gives
iteration times and memory (`accounting/serving_instances`); the times are tabulated once and used by the serving simulation
(`accounting/serving_runs`). Where pools are parts of one chip, the pipelines' module evaluates them itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.power_profile import PowerProfile, idle_power
from dse.evaluators.accounting.serving_instances import IterationCounts, design_count
from dse.evaluators.accounting.serving_runs import deployment_setup as assembled
from dse.evaluators.accounting.serving_runs import iteration_time_batches as asked_first
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import power_timeline as drawn
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import simulated_designs as at_once
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.deployment_setup import (
    instance_groups,
    make_deployment,
    make_pool,
    with_speculation,
)
from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY
from dse.evaluators.accounting.workload_evaluator import WorkloadEvaluator
from dse.evaluators.serving.kv_memory import paged_memory
from dse.evaluators.serving.run_statistics import ClassResult, TurnResult, class_and_turn_results
from dse.evaluators.serving.scheduling_policy import pool_policies
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.space.design import Design
from dse.space.lazy_metrics import compute_all, select_metrics
from dse.space.limits import Infeasibility, Limit, divides_limit
from dse.space.mapping import ServingPlan
from dse.space.requests import Requests
from dse.space.software import (
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    software_of,
)
from dse.space.workload import ServingLoad, Workload, WorkloadCase

INSTANCE_MODULES = {
    SERVED_DEVICES: "tensor_parallel",
    SERVED_REGIONS: "regions",
    SERVED_PIPELINES: "pipelines",
    SERVED_WHOLE_CHIP: "whole_chip",
    SERVED_DIES: "multi_die",
    SERVED_POOLED_DIES: "multi_die",
}
"""Layouts that serve, by the software that runs them: modules of `accounting/serving_instances`, imported when they are
asked.
"""

POOL_NAMES = ("instance", "prefill instance", "decode instance")
"""Of the pool that does both phases, and of those that do one."""

PRICE_METRICS = ("system_price", "price_per_mtoken")

TIMELINE_ITERATIONS = 2_000
"""Iterations with power in a timeline where a layout computes them one by one, in up to 10 ms each."""


class PoolKvMemory(NamedTuple):
    """KV memory of one instance of a pool: blocks set, and blocks that fit.

    Attributes:
        pool: of which it is.
        blocks, room: blocks that are set, and blocks that fit in its devices' memory.
        tokens, room_tokens: for which these are, of requests that keep all positions.
    """

    pool: str
    blocks: int
    room: int
    tokens: int
    room_tokens: int


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Fidelities of serving: the steady state, and those of a layout's iteration times."""
    fidelities: tuple[str, ...] = instance_module(design).FIDELITIES
    return fidelities if part else (STEADY, *fidelities)


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits for each load and design; leaves of shape (designs,)."""
    service = instance_module(design)
    if fidelity == STEADY and hasattr(service, "MERGEABLE_LEAVES"):
        worth, alike = (
            partial(balanced.steady_state_metrics, service),
            partial(balanced.groups_with_equal_serving, together=service.MERGEABLE_LEAVES),
        )
        return served.evaluate_loads(design, workload, _limits, worth, alike)
    worth = partial(getattr(service, "metrics", _metrics), fidelity=fidelity)
    at_a_rate = not any(load.largest for load in cast(tuple[ServingLoad, ...], workload.cases))
    parts = (at_once.rows_by_serving,) if fidelity != STEADY and at_a_rate and getattr(service, "USAGE_IN_BATCH", False) else ()
    return served.evaluate_loads(
        design, workload, _limits, worth, *(parts or getattr(service, "TOGETHER_AT", {}).get(fidelity, ()))
    )


def system_and_token_price(design: Design, load: ServingLoad, run: ServingRun, fidelity: str) -> tuple[float, float]:
    """Price of all chips of a design, and price of a million output tokens of a run. [USD]"""
    service = instance_module(design)
    if hasattr(service, "run_usage"):
        spent = service.run_usage(design, load, run, fidelity)
    else:
        hosted = served.host_bytes(run, service.devices_per_cache(design, load), float(_serving(design).host_bandwidth))
        # the most power has no part in it
        spent = service.usage_metrics(design, load, _done(run), served.run_duration(run), fidelity, float, hosted=hosted)
    used = select_metrics(spent, PRICE_METRICS)
    system, token = (float(np.squeeze(compute_all({name: used[name]})[name])) for name in PRICE_METRICS)
    return system, token


def case_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits without simulation; leaves of shape (designs,)."""
    alike = getattr(instance_module(design), "MERGEABLE_LEAVES", None)
    return served.load_limits(
        workload, _limits, served.single_rows(design) if alike is None else balanced.groups_with_equal_serving(design, alike)
    )


def case_breakdown(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of instances' time by operator and idle, with a timeline of the first iterations."""
    breakdown: Breakdown = getattr(instance_module(design), "serving_breakdown", _explain)(
        design, cast(ServingLoad, case), fidelity
    )
    return breakdown


def case_power_profile(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> PowerProfile | None:
    """Power of all chips over the first iterations; None in the steady state, or if no rate keeps SLOs."""
    if fidelity == STEADY:
        return None
    power_profile: PowerProfile | None = getattr(instance_module(design), "serving_power_profile", _profile)(
        design, cast(ServingLoad, case), fidelity
    )
    return power_profile


def with_remedy(worst: Infeasibility, design: Design, workload: Workload) -> Infeasibility:
    """The violated limit with the layout's remedy, if there is one."""
    return replace(
        worst, remedy=instance_module(design).remedy_text(worst, design, cast(tuple[ServingLoad, ...], workload.cases))
    )


def unloaded_latency(design: Design, load: ServingLoad, fidelity: str) -> tuple[float, float]:
    """TTFT and TPOT of requests on an idle deployment, for the share that the maximum rate names. [s]"""
    service = instance_module(design)
    if hasattr(service, "unloaded_latency"):
        latency: tuple[float, float] = service.unloaded_latency(design, load, fidelity)
        return latency
    made, _ = deploy_load(design, load, fidelity)
    return served.unloaded_latency(lambda requests: made, load)


def results_by_class_and_turn(design: Design, load: ServingLoad, fidelity: str) -> tuple[list[ClassResult], list[TurnResult]]:
    """Results of each SLO class and of session turns by position, from a simulated run."""
    played = getattr(instance_module(design), "simulate_load", _played)
    run: ServingRun | None = played(design, load, fidelity)
    return class_and_turn_results(run, load.classes) if run is not None else ([], [])


def kv_memory_by_pool(design: Design, load: ServingLoad) -> tuple[PoolKvMemory, ...]:
    """KV memory of one instance in each pool, if the block count is set; else empty."""
    serving = _serving(design)
    if not getattr(serving, "kv_blocks", 0):
        return ()
    names, kv_memory = POOL_NAMES[-2:] if serving.prefill_instances else POOL_NAMES[:1], list[PoolKvMemory]()
    for name, instance in zip(names, instance_module(design).instances(design, load, "analytical"), strict=True):
        memory = assembled.make_kv_memory(serving, load, float(instance.free), instance.room.design_memory(0), instance.copies)
        each = max(memory.each, 1)  # a request's states alone have no tokens
        tokens = [blocks // each * memory.block for blocks in (int(serving.kv_blocks), memory.blocks)]
        kv_memory.append(PoolKvMemory(name, int(serving.kv_blocks), memory.blocks, *tokens))
    return tuple(kv_memory)


def instance_module(design: Design) -> ModuleType:
    """Module that evaluates the layout of a mapping for serving."""
    return instance_module_of_software(software_of(design.mapping))


def instance_module_of_software(software: str) -> ModuleType:
    """Module that evaluates some software for serving."""
    return import_module(f"dse.evaluators.accounting.serving_instances.{INSTANCE_MODULES[software]}")


def _metrics(design: Design, load: ServingLoad, fidelity: str) -> dict[str, Any]:
    service = instance_module(design)
    if fidelity == STEADY:
        deployment, state = _steady(design, load)
        devices = {"devices": float(service.device_count(design))}
        made: IterationCounts = [[(mean.times, mean.composition) for mean in pool] for pool in state.means]
        fullest = peak.concurrency_of_pools(state.means, deployment.pools, len(load.requests))
        most = partial(_peak, service, design, load, steady.ITERATION_FIDELITY, fullest)
        spent: dict[str, float] = service.usage_metrics(design, load, made, state.span, steady.ITERATION_FIDELITY, most)
        return state.values | spent | devices
    return at_once.simulated_metrics(service, design, load, fidelity, lambda design: _served(design, load, fidelity, 0))


def _explain(design: Design, load: ServingLoad, fidelity: str) -> Breakdown:
    service, by = instance_module(design), steady.ITERATION_FIDELITY if fidelity == STEADY else fidelity

    def list_operators(pool: int, mean: served.MeanIteration) -> Sequence[BreakdownRow]:
        rows: Sequence[BreakdownRow] = service.iteration_rows(design, load, pool, mean.times, mean.composition, by)
        return rows

    if fidelity == STEADY:
        return steady.steady_state_breakdown(_steady(design, load)[1].means, service.area_by_block(design), list_operators)
    run = _served(design, load, fidelity, served.LOGGED_ITERATIONS)[0]
    if run is None:
        return Breakdown((), 0.0, service.area_by_block(design), {})
    names = POOL_NAMES[-2:] if len(run.pools) == 2 else POOL_NAMES[:1]
    return served.run_breakdown(run, service.area_by_block(design), list_operators, names=names)


def mean_iterations(design: Design, load: ServingLoad) -> list[list[served.MeanIteration]]:
    """Mean iterations of each pool in a run on analytical iteration times; empty if no rate keeps SLOs."""
    run = getattr(instance_module(design), "simulate_load", _played)(design, load, "analytical")
    return [] if run is None else [served.mean_iterations(run, number) for number in range(len(run.pools))]


def _profile(design: Design, load: ServingLoad, fidelity: str) -> PowerProfile | None:
    service = instance_module(design)
    run = _served(
        design, load, fidelity, TIMELINE_ITERATIONS if getattr(service, "ONE_BY_ONE", False) else served.LOGGED_ITERATIONS
    )[0]
    if run is None:
        return None
    watts = getattr(service, "mean_iteration_power", service.iteration_power)
    return drawn.run_power_profile(
        run,
        lambda pool, made_of: watts(design, load, pool, made_of, fidelity),
        idle_power(design.chip, service.device_count(design)),
    )


def _peak(
    service: ModuleType, design: Design, load: ServingLoad, fidelity: str, pools: Sequence[peak.PoolConcurrency]
) -> float:
    """The most power of what one design does. [W]"""
    return float(
        np.squeeze(peak.peak_power(pools, lambda pool, made_of: service.iteration_power(design, load, pool, made_of, fidelity)))
    )


def _steady(design: Design, load: ServingLoad) -> tuple[Deployment, steady.SteadyStateRun]:
    steady.refuse_unsteady_load(load)
    deployment = deploy_load(design, load, STEADY)[0]
    return deployment, steady.solve_steady_run(deployment, load, *instance_module(design).die_and_system_area(design))


def _done(run: ServingRun) -> IterationCounts:
    return [
        [(mean.times, mean.composition) for kind in served.mean_iterations_by_span(run, pool) for mean in kind if mean.times]
        for pool in range(len(run.pools))
    ]


def deploy_load(design: Design, load: ServingLoad, fidelity: str) -> tuple[Deployment, list[served.CheckedTable]]:
    """Deployment for a load, with its iteration-time tables; its memory must fit the longest request."""
    pools, tables = make_pools(design, load, fidelity)
    return join_pools(design, load, pools), tables


def make_pools(design: Design, load: ServingLoad, fidelity: str) -> tuple[list[InstancePool], list[served.CheckedTable]]:
    """Instance pools of a design for a load, with their iteration-time tables."""
    service, serving = instance_module(design), _serving(design)
    instances = service.instances(design, load, steady.ITERATION_FIDELITY if fidelity == STEADY else fidelity)
    pools, tables = list[InstancePool](), list[served.CheckedTable]()
    for group in instance_groups(serving, instances):
        instance, rule, batch, _ = group
        table = served.iteration_time_table(
            instance.pricing,
            rule,
            batch,
            served.longest_sequence(load) + 1,
            spread=steady.coarse_table_points(instance.axes, load, instance.copies) if fidelity == STEADY else instance.axes,
            checks=instance.checks,
            key=instance.key,
        )
        tables.append(table)
        pools.append(make_pool(serving, group, load, table.price, float(instance.free), instance.room.design_memory(0)))
    return with_speculation(pools, load), tables


def deployment_factory(design: Design, load: ServingLoad, pools: Sequence[InstancePool]) -> Callable[[Requests], Deployment]:
    """Function that gives the deployment at any rate: fixed pools, or pipelines that depend on the rate."""
    service = instance_module(design)
    if hasattr(service, "deployment_factory"):
        factory: Callable[[Requests], Deployment] = service.deployment_factory(design, load, "analytical")
        return factory
    made = join_pools(design, load, pools)
    return lambda requests: made


def join_pools(design: Design, load: ServingLoad, pools: Sequence[InstancePool]) -> Deployment:
    """Deployment of a design's pools, with the KV transfer between them."""
    service = instance_module(design)
    way = service.kv_transfer(design, load) if len(pools) == 2 else None
    setup = make_deployment(_serving(design), pools, load, way and (way[0].design_memory(0), float(way[1])))
    if setup.transfer is not None and hasattr(service, "parallel_transfers"):
        setup = setup._replace(transfer=setup.transfer._replace(channels=service.parallel_transfers(design, load)))
    return setup


def _limits(design: Design, load: ServingLoad) -> list[Limit]:
    """Limits of the layout, of memory that the engine reserves, and of block counts that are set."""
    limits: list[Limit] = instance_module(design).limits(design, load)
    serving, longest = design.mapping.serving, served.longest_sequence(load)
    if getattr(serving, "prefix_cache", "reserved") == "shared":
        limits = [*limits, Limit("mapping.serving.prefix_cache_share", float(serving.prefix_cache_share), 0.0, "1")]
        if len(load.requests.hashes):
            limits.append(divides_limit("mapping.serving.block_size", float(serving.block_size), float(load.requests.block)))
    if load.guesses and (rule := pool_policies(serving)[-1]).chunked:
        limits = [*limits, Limit("mapping.serving.max_batched_tokens", 1.0 + load.guesses, float(rule.tokens), "1")]
    # pipelines of tiles have neither; what breaks a limit already has no instances
    wanted_blocks, reserved = int(getattr(serving, "kv_blocks", 0)), float(getattr(serving, "reserved_memory", 0.0))
    if not (wanted_blocks or reserved) or any(np.any(limit.need > limit.have) for limit in limits):
        return limits
    if design_count(design):
        rows = [np.array([row]) for row in range(design_count(design))]
        return served.stack_limits(len(rows), [(row, _limits(served.select_rows(design, row), load)) for row in rows])
    for pool in instance_module(design).instances(design, load, "analytical"):
        left = pool.free / pool.copies - float(pool.room.request_bytes(longest))
        limits.append(Limit("mapping.serving.reserved_memory", reserved, left, "B"))
        if wanted_blocks and reserved <= left:
            memory = paged_memory(pool.free - pool.copies * reserved, pool.room, block=int(serving.block_size), longest=longest)
            limits.append(Limit("mapping.serving.kv_blocks", float(wanted_blocks), float(memory.blocks), "1"))
            limits.append(Limit("mapping.serving.kv_blocks", float(memory.blocks_needed(longest)), float(wanted_blocks), "1"))
    return limits


def _served(design: Design, load: ServingLoad, fidelity: str, log: int) -> tuple[ServingRun | None, list[served.CheckedTable]]:
    deployment, tables = deploy_load(design, load, fidelity)
    return served.run_load(lambda requests: deployment, load, log), tables


def _played(design: Design, load: ServingLoad, fidelity: str) -> ServingRun | None:
    return _served(design, load, fidelity, 0)[0]


def _serving(design: Design) -> ServingPlan:
    plan: ServingPlan = design.mapping.serving
    return plan


batch_iteration_times = partial(asked_first.batch_iteration_times, instance_module, _limits)
"""Context in which iteration times of designs of several structures are computed together."""


EVALUATOR = WorkloadEvaluator(
    fidelities=fidelities,
    evaluate_cases=evaluate_cases,
    known_limits=case_limits,
    case_breakdown=case_breakdown,
    with_remedy=with_remedy,
    simulates=True,
    power_profile=case_power_profile,
)
