"""Evaluation of serving loads, on any chip: metrics, limits and breakdown.

A layout answers for a design (`accounting/serving_instances`): its instances give iteration times and memory, and the
serving simulation or the steady state runs on tables of these times (`accounting/serving_runs`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import cast

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.layout_registry import SERVING_LAYOUTS, load_layout
from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.remedies import Lever
from dse.evaluators.accounting.serving_instances import design_count
from dse.evaluators.accounting.serving_instances.instance_layout import InstanceLayout
from dse.evaluators.accounting.serving_instances.serving_layout import PoolKvMemory as PoolKvMemory
from dse.evaluators.accounting.serving_instances.serving_layout import ServingLayout
from dse.evaluators.accounting.serving_runs import iteration_time_batches as asked_first
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY
from dse.evaluators.accounting.usage import PeakRates
from dse.evaluators.accounting.workload_evaluator import WorkloadEvaluator
from dse.evaluators.serving.kv_memory import paged_memory
from dse.evaluators.serving.run_statistics import ClassResult, TurnResult, class_and_turn_results
from dse.evaluators.serving.scheduling_policy import pool_policies
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.space.design import Design, prefill_mapping
from dse.space.lazy_metrics import compute_all, select_metrics
from dse.space.limits import Infeasibility, Limit, divides_limit
from dse.space.requests import Requests
from dse.space.software import SERVED_DEVICES, UNLIKE_POOL_LAYOUTS, software_of
from dse.space.workload import ServingLoad, Workload, WorkloadCase

MEAN_REQUESTS = 2000
"""Requests of a run at the maximum rate whose mean iterations are wanted."""

PRICE_METRICS = ("system_price", "price_per_mtoken")


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """Fidelities of serving: the steady state, and those of a layout's iteration times."""
    layout = serving_layout(design)
    return layout.FIDELITIES if part else (STEADY, *layout.FIDELITIES)


def evaluate_cases(design: Design, workload: Workload, fidelity: str) -> list[CaseOutcomes]:
    """Metrics and limits for each load and design; leaves of shape (designs,)."""
    layout = serving_layout(design)
    at_rate = not any(load.largest for load in cast(tuple[ServingLoad, ...], workload.cases))
    metrics = partial(layout.metrics, fidelity=fidelity)
    return served.evaluate_loads(design, workload, _limits, metrics, *layout.joint_parts(fidelity, at_rate=at_rate))


def system_and_token_price(design: Design, load: ServingLoad, run: ServingRun, fidelity: str) -> tuple[float, float]:
    """Price of all chips of a design, and price of a million output tokens of a run. [USD]"""
    used = select_metrics(serving_layout(design).run_usage(design, load, run, fidelity), PRICE_METRICS)
    system, token = (float(np.squeeze(compute_all({name: used[name]})[name])) for name in PRICE_METRICS)
    return system, token


def case_limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits without simulation; leaves of shape (designs,)."""
    return served.load_limits(workload, _limits, serving_layout(design).limited_parts(design))


def case_breakdown(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> Breakdown:
    """Breakdown of instances' time by operator and idle, with a timeline of the first iterations."""
    return serving_layout(design).serving_breakdown(design, cast(ServingLoad, case), fidelity)


def case_power_profile(design: Design, case: WorkloadCase, decode_context: str, fidelity: str) -> PowerProfile | None:
    """Power of all chips over the first iterations; None in the steady state, or if no rate keeps SLOs."""
    if fidelity == STEADY:
        return None
    return serving_layout(design).serving_power_profile(design, cast(ServingLoad, case), fidelity)


def peak_rates(design: Design) -> PeakRates:
    """Peak rates of all chips of a design together."""
    return serving_layout(design).system_peak_rates(design)


def levers(worst: Infeasibility, design: Design, workload: Workload) -> Iterable[Lever]:
    """What may be changed so that a violated limit of the layout holds."""
    return serving_layout(design).levers(worst, design, cast(tuple[ServingLoad, ...], workload.cases))


def results_by_class_and_turn(design: Design, load: ServingLoad, fidelity: str) -> tuple[list[ClassResult], list[TurnResult]]:
    """Results of each SLO class and of session turns by position, from a simulated run."""
    run = serving_layout(design).simulate_load(design, load, fidelity)
    return class_and_turn_results(run, load.classes) if run is not None else ([], [])


def mean_iterations(design: Design, load: ServingLoad) -> list[list[served.MeanIteration]]:
    """Mean iterations of each pool in a run on analytical iteration times; empty if no rate keeps SLOs.

    Where the maximum rate is asked, the run is at that of the steady state.
    """
    if load.largest and load.draw is not None and not load.requests.users:
        rate = float(np.ravel(compute_all(serving_layout(design).metrics(design, load, STEADY))["max_rate"])[0])
        if not rate > 0:
            return []
        load = replace(load, largest=0.0, demand=0.0, requests=load.draw(MEAN_REQUESTS, load.seed, rate))
    run = serving_layout(design).simulate_load(design, load, "analytical")
    return [] if run is None else [served.mean_iterations(run, number) for number in range(len(run.pools))]


def kv_memory_by_pool(design: Design, load: ServingLoad) -> tuple[PoolKvMemory, ...]:
    """KV memory of one instance in each pool, if the block count is set; else empty."""
    return serving_layout(design).kv_memory_by_pool(design, load)


def serving_layout(design: Design) -> ServingLayout:
    """Layout that serves by a design's mapping, or by those of its two pools on chips of other kinds."""
    if design.pools is not None:
        mappings = (design.mapping, prefill_mapping(design))
        return unlike_pools_layout(
            all(software_of(mapping) == SERVED_DEVICES for mapping in mappings)
            and mappings[0].decode.stages == mappings[1].prefill.stages == 1
        )
    return serving_layout_of_software(software_of(design.mapping))


@cache
def unlike_pools_layout(joint: bool) -> ServingLayout:
    """Layout of pools on unlike chips, that takes designs together or one by one."""
    return load_layout(UNLIKE_POOL_LAYOUTS[joint], ServingLayout)  # type: ignore[type-abstract]


@cache
def serving_layout_of_software(software: str) -> ServingLayout:
    """Layout that serves with some software.

    Raises:
        TypeError: its class lacks methods that every layout has.
    """
    return load_layout(SERVING_LAYOUTS[software], ServingLayout)  # type: ignore[type-abstract]


def deploy_load(design: Design, load: ServingLoad, fidelity: str) -> tuple[Deployment, list[served.CheckedTable]]:
    """Deployment for a load, with its iteration-time tables, of a layout with fixed pools."""
    return instance_layout(design).deploy_load(design, load, fidelity)


def make_pools(design: Design, load: ServingLoad, fidelity: str) -> tuple[list[InstancePool], list[served.CheckedTable]]:
    """Pools of a design, with their iteration-time tables, of a layout with fixed pools."""
    return instance_layout(design).make_pools(design, load, fidelity)


def deployment_factory(design: Design, load: ServingLoad, pools: Sequence[InstancePool]) -> Callable[[Requests], Deployment]:
    """Function that gives the deployment at any rate: fixed pools, or pipelines that depend on the rate."""
    return serving_layout(design).deployment_factory(design, load, pools)


def instance_layout(design: Design) -> InstanceLayout:
    """Layout with fixed pools that serves by a design's mapping; pools of pipelines depend on the rate."""
    layout = serving_layout(design)
    assert isinstance(layout, InstanceLayout)
    return layout


def _limits(design: Design, load: ServingLoad) -> list[Limit]:
    """Limits of the layout, of memory that the engine reserves, and of block counts that are set."""
    limits = serving_layout(design).limits(design, load)
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
    for pool in instance_layout(design).instances(design, load, "analytical"):
        left = pool.free / pool.copies - float(pool.room.request_bytes(longest))
        limits.append(Limit("mapping.serving.reserved_memory", reserved, left, "B"))
        if wanted_blocks and reserved <= left:
            memory = paged_memory(pool.free - pool.copies * reserved, pool.room, block=int(serving.block_size), longest=longest)
            limits.append(Limit("mapping.serving.kv_blocks", float(wanted_blocks), float(memory.blocks), "1"))
            limits.append(Limit("mapping.serving.kv_blocks", float(memory.blocks_needed(longest)), float(wanted_blocks), "1"))
    return limits


batch_iteration_times = partial(asked_first.batch_iteration_times, serving_layout, _limits)
"""Context in which iteration times of designs of several structures are computed together."""


EVALUATOR = WorkloadEvaluator(
    fidelities=fidelities,
    evaluate_cases=evaluate_cases,
    known_limits=case_limits,
    case_breakdown=case_breakdown,
    levers=levers,
    simulates=True,
    power_profile=case_power_profile,
    peak_rates=peak_rates,
)
