"""Designs of one structure at fidelity=steady_state, as arrays: iteration times broadcast over them.

Leaves have shape (designs,), except those of `mapping.serving` on which designs evaluated together have to agree.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dse.evaluators.accounting.metrics import area_metrics
from dse.evaluators.accounting.serving_instances import ServingInstance, design_count
from dse.evaluators.accounting.serving_instances.serving_layout import InstanceCosts
from dse.evaluators.accounting.serving_runs import peak_power as peak
from dse.evaluators.accounting.serving_runs import steady_state_run as steady
from dse.evaluators.accounting.serving_runs.deployment_setup import (
    InstanceGroup,
    instance_groups,
    make_deployment,
    make_pool,
    with_speculation,
)
from dse.evaluators.accounting.serving_runs.kv_transfers import KvPath
from dse.evaluators.accounting.serving_runs.run_metrics import longest_sequence, stacked_kv_pool_metrics
from dse.evaluators.serving.iteration_time import IterationTime, IterationTimeFunction, axis_points
from dse.evaluators.serving.iteration_time import build_tables as several_prices
from dse.evaluators.serving.iteration_time_lookup import table_at_composition
from dse.evaluators.serving.kv_memory import value_of_row as number
from dse.evaluators.serving.scheduling_policy import max_prompt_tokens
from dse.evaluators.serving.simulator import Deployment
from dse.evaluators.serving.steady_state import REPLAYED_FIELDS
from dse.evaluators.serving.steady_state_solver import SteadyStateSolver
from dse.space.array_math import Array, distinct_columns
from dse.space.design import Design
from dse.space.fields import iterate_leaves, replace_leaves
from dse.space.lazy_metrics import expected_metrics
from dse.space.memoize import LastUsed
from dse.space.serving_plan import ServingPlan
from dse.space.workload import ServingLoad

Tables = tuple[tuple[IterationTime, ...], Array, Array]
"""Prices of seconds, and of what else compositions spend; their tables, shape (what, tables, points); and which of the tables
each design has."""

MAX_TABLES = 256
_kept_tables: LastUsed[tuple[Any, ...], Tables] = LastUsed(MAX_TABLES)
"""Tables of designs that were evaluated separately, by key and points; last used at the end."""


def request_iteration_times(made: Sequence[ServingInstance], design: Design, load: ServingLoad) -> None:
    """Request the iteration times that `steady_state_metrics` needs of the instances."""
    parts = [instance_groups(serving, made) for serving in _servings(design.mapping.serving, max(design_count(design), 1))[0]]
    for place in range(len(made)):
        groups = [part[place] for part in parts]
        (groups[0].of.more or groups[0].of.pricing)(*axis_points(_axes(groups, load)))


def steady_state_metrics(costs: InstanceCosts, design: Design, load: ServingLoad) -> dict[str, Any]:
    """Steady-state metrics of designs that keep all limits; numbers, or of shape (designs,)."""
    steady.refuse_unsteady_load(load)
    size = max(design_count(design), 1)
    servings, which = _servings(design.mapping.serving, size)
    made = costs.instances(design, load, steady.ITERATION_FIDELITY)
    parts = [instance_groups(serving, made) for serving in servings]
    tables = [_tables([part[place] for part in parts], load, size) for place in range(len(made))]
    path = costs.kv_path(design, load) if len(made) == 2 else None
    kinds, each = _kinds(servings, which, parts, tables, path, load)
    stands = SteadyStateSolver(
        kinds,
        each,
        [(values[0], place) for _, values, place in tables],
        load.requests,
        load.ttft,
        load.tpot,
        wanted_fields=expected_metrics(REPLAYED_FIELDS),
        largest=steady.max_rate_stream(load),
    )
    steady.keep_found_rate(load, stands)
    records, worth = stands.found, _worth(stands, load, *costs.die_and_system_area(design))
    means = steady.mean_iterations(records, load.requests, len(made))
    done = [[(mean.times, mean.composition) for mean in mean] for mean in means]
    beside = {"spent": _spent(done, tables)} if made[0].more else {}

    def watts(number: int, made_of: tuple[Any, ...]) -> Any:
        if made[0].more:
            seconds, joules, *_ = _each(tables[number], made_of)
            return (joules / seconds)[None]
        return costs.iteration_power(design, load, number, made_of, steady.ITERATION_FIDELITY)

    instances = [np.array([kind.pools[number].instances for kind in kinds])[each] for number in range(len(made))]
    fullest = peak.concurrency_of_means(means, [deployment.shares for deployment in made], instances, len(load.requests))
    used: dict[str, Any] = costs.usage_metrics(
        design, load, done, records["span"], steady.ITERATION_FIDELITY, lambda: peak.peak_power(fullest, watts), **beside
    )
    pools = {name: value[each] for name, value in stacked_kv_pool_metrics((kind.pools[-1] for kind in kinds), load).items()}
    return worth | used | {"devices": costs.device_count(design)} | pools


def _servings(serving: ServingPlan, size: int) -> tuple[list[ServingPlan], Array]:
    """Ways to serve that some designs have, each once, and which of them each design has."""
    differ = {address: value for address, value, _ in iterate_leaves(serving) if isinstance(value, np.ndarray)}
    if not differ:
        return [serving], np.zeros(size, int)
    columns = np.array([np.broadcast_to(value, size) for value in differ.values()])
    first, which = distinct_columns(columns)
    return [replace_leaves(serving, dict(zip(differ, row.tolist(), strict=True))) for row in columns.T[first]], which


def _kinds(
    servings: Sequence[ServingPlan], which: Array, parts: Sequence[Sequence[InstanceGroup]], tables: Sequence[Tables],
    path: KvPath | None, load: ServingLoad,
) -> tuple[list[Deployment], Array]:  # fmt: skip
    """Deployments that differ in more than their prices, and which of them each design is.

    Args:
        servings, which: of `_servings`.
        parts: of each of them, the pools.
        tables: of each pool.
        path: of caches between two pools.
        load: that is served.
    """
    apart = [value for part in parts[0] for value in (part.of.free, *part.of.room.nbytes_by_kind)]
    apart += [*path.seconds.nbytes_by_kind, path.latency] if path else []
    columns = np.array([which, *(np.broadcast_to(np.squeeze(value), len(which)) for value in apart)], float)
    first, each = distinct_columns(columns)
    kinds = []
    for row in first:
        serving, part = servings[which[row]], parts[which[row]]
        pools = [
            make_pool(serving, part, load, prices[0], number(part.of.free, row), part.of.room.design_memory(row))
            for part, (prices, _, _) in zip(part, tables, strict=True)
        ]
        kinds.append(make_deployment(serving, with_speculation(pools, load), load, path, row))
    return kinds, each


def _tables(several_of: Sequence[InstanceGroup], load: ServingLoad, size: int) -> Tables:
    """Tables of instances' iteration times at few points, for the largest batch of the groups."""
    instance, axes = several_of[0].of, _axes(several_of, load)
    place = (instance.key, *(values.tobytes() for values in axes))
    if instance.key and (known := _kept_tables.find(place)):
        return known
    shape = [len(values) for values in axes]
    if instance.more:
        work = np.asarray(instance.more(*axis_points(axes)), float)
        values = work.reshape(*work.shape[:5], -1, size)
        values = np.broadcast_to(values, (*shape, *values.shape[5:]))
    else:
        values = _read(instance.pricing, axes, size)
    made = [several_prices(values[..., what, :], axes, **({"least": 0.0} if what else {})) for what in range(values.shape[-2])]
    tables = tuple(table for table, _ in made), np.array([index for _, index in made]), np.arange(size)
    return _kept_tables.keep(place, tables) if instance.key else tables


def _axes(several_of: Sequence[InstanceGroup], load: ServingLoad) -> list[Array]:
    """Axes of the iteration times of instances that differ in their batch."""
    most, batch = longest_sequence(load) + 1, max(group.batch for group in several_of)
    tokens = max(max_prompt_tokens(group.rule, group.batch, most) for group in several_of)
    instance = several_of[0].of
    return steady.coarse_table_points(instance.axes, load, instance.copies, instance.graph_sizes)(tokens, most, batch, most)


def _read(pricing: IterationTimeFunction, axes: Sequence[Array], size: int) -> Array:
    """Iteration times at all points, shape (*points, 1, designs); context of empty iterations is evaluated once."""
    shape = [len(axis) for axis in axes]
    counts = [np.ravel(count) for count in np.broadcast_arrays(*axis_points(axes))]
    places = np.indices(shape).reshape(len(shape), -1)
    for count, context in ((0, 1), (2, 3)):  # the first value of each axis is 0
        places[context][counts[count] == 0] = 0
    stands = np.ravel_multi_index(tuple(places), shape)
    states, which = np.unique(stands, return_inverse=True)
    found_pricing = np.asarray(pricing(*(count[states] for count in counts)), float).reshape(len(states), -1)
    return np.broadcast_to(found_pricing, (len(states), size))[which].reshape(*shape, 1, size)


def _worth(stands: SteadyStateSolver, load: ServingLoad, die: Any, system: Any) -> dict[str, Any]:
    """Metrics of designs in the steady state, shape (designs,)."""
    values: dict[str, Any] = steady.steady_state_columns(stands, load.requests)
    areas = area_metrics(values["throughput"], np.nan, die, system)
    return values | {name: area for name, area in areas.items() if not np.isnan(area).all()}


def _spent(done: Sequence[Sequence[tuple[Any, tuple[Any, ...]]]], tables: Sequence[Tables]) -> Array:
    """Costs of iterations except time, shape (what, designs)."""
    totals: Any = 0.0
    for iterations, table in zip(done, tables, strict=True):
        for times, made_of in iterations:
            totals = totals + np.where(times > 0, times * _each(table, made_of)[1:], 0.0)
    return np.asarray(totals)


def _each(given_tables: Tables, made_of: tuple[Any, ...]) -> Array:
    """Time and other costs of an iteration of each design, shape (what, designs)."""
    prices, tables, which = given_tables
    at = np.array([np.broadcast_to(np.squeeze(count), len(which)) for count in made_of], float).T.tolist()
    found_tables = [
        [table_at_composition(price._replace(table=rows[row]), *point) for row, point in zip(which, at, strict=True)]
        for price, rows in zip(prices, tables, strict=True)
    ]
    return np.array(found_tables)
