"""Designs of one structure at fidelity=steady, all at once: prices broadcast over them, and the pools of each are balanced.

Leaves have the shape (designs,), but for those of `mapping.serving`, on which all designs that come together agree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np

from dse.evaluators.account.metrics import per_area
from dse.evaluators.account.played import peak, steady
from dse.evaluators.account.played.assembled import Group, deployment, groups, guessing, pool
from dse.evaluators.account.played.served import longest, picked
from dse.evaluators.account.services import HERE, several
from dse.evaluators.serving.kvcache import Room
from dse.evaluators.serving.kvcache import picked as number
from dse.evaluators.serving.loop import Pool
from dse.evaluators.serving.measures import Slo
from dse.evaluators.serving.policy import most_prompts
from dse.evaluators.serving.price import Price, Pricing, points
from dse.evaluators.serving.price import several as several_of
from dse.evaluators.serving.priced import interpolated
from dse.evaluators.serving.standing import measured, standing
from dse.space.design import Design
from dse.space.elementwise import Array
from dse.space.fields import leaves
from dse.space.workload import Load

Tables = tuple[Price, ...]
"""Of seconds, and of what else compositions spend."""

MOST_TABLES = 256
TABLES: dict[tuple[Any, ...], Tables] = {}
"""Of designs that came by themselves, by the key of their prices and the points; those used last at the end."""


def alike(design: Design) -> Iterator[tuple[Array, Design]]:
    """Rows of a design that are served in the same way, and the design that these are."""
    columns = {address: np.ravel(value) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    apart = [column for address, column in columns.items() if address.startswith(HERE)]
    size = max((len(column) for column in columns.values()), default=1)
    said = np.array([np.broadcast_to(column, size) for column in apart] or [np.zeros(size)])
    kinds, which = np.unique(said, axis=1, return_inverse=True)
    for kind in range(kinds.shape[1]):
        rows = np.flatnonzero(np.ravel(which) == kind)
        yield rows, picked(design, rows, HERE)


def metrics(service: ModuleType, design: Design, load: Load) -> dict[str, Any]:
    """What designs are worth that keep all limits; numbers, or of shape (designs,)."""
    steady.refuse(load)
    serving, size = design.mapping.serving, max(several(design), 1)
    parts = groups(serving, service.instances(design, load, steady.PRICES))
    tables = [_tables(of, load, size) for of in parts]
    way = service.transfer(design, load) if len(parts) == 2 else None
    deployments, alike_pools = [], dict[tuple[int, float, Room], Pool]()
    for row in range(size):
        pools = []
        for place, (part, table) in enumerate(zip(parts, tables, strict=True)):
            key = (place, number(part.of.free, row), part.of.room.at(row))
            if key not in alike_pools:
                alike_pools[key] = pool(serving, part, load, table[row][0], *key[1:])
            pools.append(replace(alike_pools[key], price=table[row][0]))
        deployments.append(deployment(serving, guessing(pools, load), load, way and (way[0].at(row), number(way[1], row))))
    found = standing(deployments, load.requests, load.ttft)
    worth = _worth(found, load, *service.areas(design))
    made = steady.means(found, load.requests, len(parts))
    done = [[(mean.times, mean.composition) for mean in some] for some in made]
    beside = {"spent": _spent(done, tables)} if parts[0].of.more else {}

    def watts(number: int, made_of: tuple[Any, ...]) -> Any:
        if parts[0].of.more:
            seconds, joules, *_ = _each(tables[number], made_of)
            return (joules / seconds)[None]
        return service.watts(design, load, number, made_of, steady.PRICES)

    fullest = peak.of_means(made, deployments[0].pools, len(load.requests))
    used: dict[str, Any] = service.used(
        design, load, done, found["span"], steady.PRICES, lambda: peak.peak(fullest, watts), **beside
    )
    return worth | used | {"devices": service.devices(design)}


def _tables(group: Group, load: Load, size: int) -> list[Tables]:
    """Design by design, few points of the axes that the loop has."""
    of, most = group.of, longest(load) + 1
    axes = steady.coarse(of.axes)(most_prompts(group.rule, group.batch, most), most, group.batch, most)
    place = (of.key, *(values.tobytes() for values in axes))
    if of.key and place in TABLES:
        TABLES[place] = TABLES.pop(place)
        return [TABLES[place]]
    shape = [len(values) for values in axes]
    if of.more:
        found = np.asarray(of.more(*points(axes)), float)
        values = found.reshape(*found.shape[:5], -1, size)
        values = np.broadcast_to(values, (*shape, *values.shape[5:]))
    else:
        values = _read(of.pricing, axes, size)
    made = [several_of(values[..., what, :], axes, **({"least": 0.0} if what else {})) for what in range(values.shape[-2])]
    tables = list(zip(*made, strict=True))
    if of.key:
        TABLES[place] = tables[0]
        while len(TABLES) > MOST_TABLES:
            TABLES.pop(next(iter(TABLES)))
    return tables


def _read(pricing: Pricing, axes: Sequence[Array], size: int) -> Array:
    """Prices at all points, shape (*points, 1, designs); contexts of nothing are nowhere looked up, and priced but once."""
    shape = [len(of) for of in axes]
    counts = [np.ravel(count) for count in np.broadcast_arrays(*points(axes))]
    places = np.indices(shape).reshape(len(shape), -1)
    for count, context in ((0, 1), (2, 3)):  # the first value of each axis is 0
        places[context][counts[count] == 0] = 0
    stands = np.ravel_multi_index(tuple(places), shape)
    some, which = np.unique(stands, return_inverse=True)
    found = np.asarray(pricing(*(count[some] for count in counts)), float).reshape(len(some), -1)
    return np.broadcast_to(found, (len(some), size))[which].reshape(*shape, 1, size)


def _worth(found: Array, load: Load, die: Any, system: Any) -> dict[str, Array]:
    """Metrics of records of the steady state, shape (designs,)."""
    values: dict[str, Array] = measured(found, load.requests, Slo(load.ttft, load.tpot))
    areas = per_area(values["throughput"], np.nan, die, system)
    return values | {name: area for name, area in areas.items() if not np.isnan(area).all()}


def _spent(done: Sequence[Sequence[tuple[Any, tuple[Any, ...]]]], tables: Sequence[list[Tables]]) -> Array:
    """What iterations spend beside their time, shape (what, designs)."""
    found = np.zeros((len(tables[0][0]) - 1, len(tables[0])))
    for some, of in zip(done, tables, strict=True):
        for times, made_of in some:
            found += np.where(times > 0, times * _each(of, made_of)[1:], 0.0)
    return found


def _each(tables: Sequence[Tables], made_of: tuple[Any, ...]) -> Array:
    """What an iteration of each design takes and spends, shape (what, designs)."""
    size = len(tables)
    at = np.array([np.broadcast_to(np.squeeze(count), size) for count in made_of], float).T.tolist()
    return np.array([[interpolated(price, tuple(here)) for price in of] for of, here in zip(tables, at, strict=True)]).T
