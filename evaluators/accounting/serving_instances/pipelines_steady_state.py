"""Pipelines at fidelity=steady_state: designs with equal options at once, iteration times broadcast."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.metrics import area_metrics
from dse.evaluators.accounting.serving_instances import SERVING_PREFIXES, design_count
from dse.evaluators.accounting.serving_instances.pipeline_fleet import (
    PipelinePool,
    core_count,
    decode_only_cores,
    pipeline_pools,
)
from dse.evaluators.accounting.serving_instances.pipeline_pools import (
    iteration_time_function,
    make_deployments,
    pipeline_message_cost,
    pipeline_paces,
)
from dse.evaluators.accounting.serving_instances.pipeline_usage import fixed_metrics, usage_metrics
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration
from dse.evaluators.cost_models import READERS
from dse.evaluators.layouts.kv_transfer import TransferCost
from dse.evaluators.serving.iteration_time import IterationTime, axis_points, geometric_axes
from dse.evaluators.serving.iteration_time import build_tables as several_prices
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens
from dse.evaluators.serving.steady_state import REPLAYED_FIELDS
from dse.evaluators.serving.steady_state_solver import SteadyStateSolver
from dse.evaluators.silicon import area
from dse.space.array_math import Array, distinct_columns
from dse.space.design import Design
from dse.space.fields import iterate_leaves
from dse.space.lazy_metrics import expected_metrics
from dse.space.mapping import AUTO
from dse.space.workload import ServingLoad

READER = READERS[steady.ITERATION_FIDELITY]

SHARED_LEAVES = ("mapping.serving.prefill_cores", "mapping.serving.decode_cores", "mapping.serving.arrangement")
"""Serving leaves in which designs that are evaluated together may differ."""

MESH = ("chip.mesh.",)
"""Leaves in which they may not."""


class PipelineSteadyState(NamedTuple):
    """Steady state of designs with pipelines, shape (designs,).

    Attributes:
        of: what the load is to each of them.
        between: caches on their way.
        means: iterations of each pool.
        shares: of an iteration's time, of the slowest stage of each pool, shape (designs,).
        instances: of each pool.
        kv_pool: metrics of the KV memory of a pipeline that decodes, shape (designs,).
    """

    of: SteadyStateSolver
    between: TransferCost | None
    means: list[list[MeanIteration]]
    shares: list[Array]
    instances: list[Array]
    kv_pool: dict[str, Array]


def groups_solved_together(design: Design) -> Iterator[tuple[Array, Design]]:
    """Rows of a design that are solved together, and the design of these rows.

    Designs with open partitions are evaluated separately. Designs with cores set apart come first: of equally violated
    limits the first one counts, and theirs has the order of a separate evaluation.
    """
    columns = {address: np.ravel(value) for address, value, _ in iterate_leaves(design) if isinstance(value, np.ndarray)}
    size = max((len(column) for column in columns.values()), default=1)
    mapping, cores = design.mapping, core_count(design)
    open_ = AUTO in (mapping.prefill.partition, mapping.decode.partition)
    apart = tuple(
        address for address in columns if address.startswith((*SERVING_PREFIXES, *MESH)) and address not in SHARED_LEAVES
    )
    prefill_cores = mapping.serving.prefill_cores
    unlike = [prefill_cores <= 0, *(columns[address] for address in apart), np.arange(size) if open_ else 0]
    unlike += [prefill_cores > cores - 1, mapping.serving.decode_cores > np.maximum(cores - prefill_cores, 1.0)]
    unlike.append(mapping.prefill.max_chunk_tokens > 0)
    given_columns = np.array([np.broadcast_to(np.ravel(value), size) for value in unlike], float)
    first, which = distinct_columns(given_columns)
    for kind in range(len(first)):
        rows = np.flatnonzero(which == kind)
        yield rows, served.select_rows(design, rows, apart)


def steady_state_metrics(design: Design, load: ServingLoad) -> dict[str, Any]:
    """Steady-state metrics of designs that keep all limits; numbers, or of shape (designs,)."""
    fleet, apart, requests = pipeline_pools(design, load), decode_only_cores(design), load.requests
    stands = pipeline_steady_state(design, load, fleet)
    values: dict[str, Any] = steady.steady_state_columns(stands.of, requests)
    areas = area_metrics(values["throughput"], np.nan, area.die_area(design.chip, apart), area.total_area(design.chip, apart))
    values |= {name: value for name, value in areas.items() if not np.isnan(value).all()}
    fullest = peak.concurrency_of_means(stands.means, [[share] for share in stands.shares], stands.instances, len(requests))
    gone, span = requests.output > 1, stands.of.found["span"]
    used = usage_metrics(design, load, fleet, READER, stands.means, fullest, stands.between, gone, span, steady=True)
    beside = {"kv_spilled_share": steady.spilled_share(stands.means)} | stands.kv_pool
    return values | used | fixed_metrics(fleet, load, design.mapping) | beside


def pipeline_steady_state(design: Design, load: ServingLoad, fleet: tuple[PipelinePool, ...]) -> PipelineSteadyState:
    """Steady state of a load on designs with pipelines.

    At the maximum rate, links between separate pools carry what the pools make at most.
    """
    steady.refuse_unsteady_load(load)
    paces = pipeline_paces(load, fleet, READER)
    between = pipeline_message_cost(design, steady.with_busiest_links(load), fleet, paces, READER)
    prices = [_pool_tables(load, pool, between, place) for place, pool in enumerate(fleet)]
    each = np.arange(max(design_count(design), 1))
    kinds = make_deployments(design, load, fleet, [price for price, _ in prices], paces, between)
    solver = SteadyStateSolver(
        kinds,
        each,
        [(tables, each) for _, tables in prices],
        load.requests,
        load.ttft,
        load.tpot,
        wanted_fields=expected_metrics(REPLAYED_FIELDS),
        largest=steady.max_rate_stream(load),
    )
    steady.keep_found_rate(load, solver)
    shares = [np.array([max(share) for share in pace.shares]) for pace in paces]
    instances = [np.array([kind.pools[place].instances for kind in kinds]) for place in range(len(fleet))]
    kv_pool = served.stacked_kv_pool_metrics((kind.pools[-1] for kind in kinds), load)
    means = steady.mean_iterations(solver.found, load.requests, len(fleet))
    return PipelineSteadyState(solver, between, means, shares, instances, kv_pool)


def _pool_tables(
    load: ServingLoad, pool: PipelinePool, between: TransferCost | None, place: int
) -> tuple[IterationTime, Array]:
    """Tables of a pool's iteration times at few points, enough for the largest design; shape (designs, points)."""
    crowding = 1.0 if between is None else (between.prefill, between.decode)[place]
    most, batches = (
        served.longest_sequence(load) + 1,
        np.broadcast_to(pool.plan.microbatch_size, len(pool.rules)).astype(int).tolist(),
    )
    tokens = max(max_prompt_tokens(rule, batch, most) for rule, batch in set(zip(pool.rules, batches, strict=True)))
    axes = steady.coarse_table_points(partial(geometric_axes, spilled=True), load)(tokens, most, max(batches), most)
    if between is not None:  # of iterations that a pool never has, none: no decodes with prompts, and no prompts with decodes
        none = np.zeros(1)
        axes = [*axes[:2], none, axes[3], none] if place == 0 else [none, none, *axes[2:]]
    counts = [count[..., None] for count in axis_points(axes)]
    values = iteration_time_function(load, pool, READER, between, crowding)(*counts)
    shape = (*(len(axis) for axis in axes), len(pool.rules))
    return several_prices(np.broadcast_to(values, shape), axes)
