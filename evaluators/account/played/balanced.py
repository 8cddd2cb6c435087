"""Designs of one structure at fidelity=steady, all at once: prices broadcast over them, and the pools of each are balanced.

Leaves have the shape (designs,), but for those of `mapping.serving` on which all designs that come together have to agree.
"""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from dse.evaluators.account.metrics import per_area
from dse.evaluators.account.played import peak, steady
from dse.evaluators.account.played.assembled import Group, deployment, groups, guessing, pool
from dse.evaluators.account.played.served import longest, picked
from dse.evaluators.account.services import HERE, Instance, several
from dse.evaluators.serving.kvcache import Room
from dse.evaluators.serving.kvcache import picked as number
from dse.evaluators.serving.loop import Deployment
from dse.evaluators.serving.policy import most_prompts
from dse.evaluators.serving.price import Price, Pricing, points
from dse.evaluators.serving.price import several as several_prices
from dse.evaluators.serving.priced import composed
from dse.evaluators.serving.standing import APART
from dse.evaluators.serving.stood import Stood
from dse.space.design import Design
from dse.space.elementwise import Array, distinct_columns
from dse.space.fields import leaves, replaced
from dse.space.later import expected
from dse.space.mapping import Serving
from dse.space.workload import Load

Tables = tuple[tuple[Price, ...], Array, Array]
"""Prices of seconds, and of what else compositions spend; their tables, shape (what, tables, points); and which of the tables
each design has."""

MOST_TABLES = 256
TABLES: dict[tuple[Any, ...], Tables] = {}
"""Of designs that came by themselves, by the key of their prices and the points; those used last at the end."""


def alike(design: Design, together: tuple[str, ...] = ()) -> Iterator[tuple[Array, Design]]:
    """Rows of a design that are served in the same way but for some leaves, and the design that these are."""
    columns = {address: np.ravel(value) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    apart = tuple(address for address in columns if address.startswith(HERE) and address not in together)
    size = max((len(column) for column in columns.values()), default=1)
    said = np.array([np.broadcast_to(columns[address], size) for address in apart] or [np.zeros(size)])
    first, which = distinct_columns(said)
    for kind in range(len(first)):
        rows = np.flatnonzero(which == kind)
        yield rows, picked(design, rows, apart)


def asked_for(made: Sequence[Instance], design: Design, load: Load) -> None:
    """Asks what `metrics` does of prices of instances."""
    parts = [groups(serving, made) for serving in _servings(design.mapping.serving, max(several(design), 1))[0]]
    for place in range(len(made)):
        some = [part[place] for part in parts]
        (some[0].of.more or some[0].of.pricing)(*points(_axes(some, load)))


def metrics(service: ModuleType, design: Design, load: Load) -> dict[str, Any]:
    """What designs are worth that keep all limits; numbers, or of shape (designs,)."""
    steady.refuse(load)
    size = max(several(design), 1)
    servings, which = _servings(design.mapping.serving, size)
    made = service.instances(design, load, steady.PRICES)
    parts = [groups(serving, made) for serving in servings]
    tables = [_tables([part[place] for part in parts], load, size) for place in range(len(made))]
    way = service.transfer(design, load) if len(made) == 2 else None
    kinds, each = _kinds(servings, which, parts, tables, way, load)
    stands = Stood(
        kinds,
        each,
        [(values[0], place) for _, values, place in tables],
        load.requests,
        load.ttft,
        load.tpot,
        asked=expected(APART),
    )
    found, worth = stands.found, _worth(stands, load, *service.areas(design))
    means = steady.means(found, load.requests, len(made))
    done = [[(mean.times, mean.composition) for mean in some] for some in means]
    beside = {"spent": _spent(done, tables)} if made[0].more else {}

    def watts(number: int, made_of: tuple[Any, ...]) -> Any:
        if made[0].more:
            seconds, joules, *_ = _each(tables[number], made_of)
            return (joules / seconds)[None]
        return service.watts(design, load, number, made_of, steady.PRICES)

    instances = [np.array([kind.pools[number].instances for kind in kinds])[each] for number in range(len(made))]
    fullest = peak.of_means(means, [of.shares for of in made], instances, len(load.requests))
    used: dict[str, Any] = service.used(
        design, load, done, found["span"], steady.PRICES, lambda: peak.peak(fullest, watts), **beside
    )
    return worth | used | {"devices": service.devices(design)}


def _servings(serving: Serving, size: int) -> tuple[list[Serving], Array]:
    """Ways to serve that some designs have, each once, and which of them each design has."""
    differ = {address: value for address, value, _ in leaves(serving) if isinstance(value, np.ndarray)}
    if not differ:
        return [serving], np.zeros(size, int)
    said = np.array([np.broadcast_to(value, size) for value in differ.values()])
    first, which = distinct_columns(said)
    return [replaced(serving, dict(zip(differ, row.tolist(), strict=True))) for row in said.T[first]], which


def _kinds(
    servings: Sequence[Serving], which: Array, parts: Sequence[Sequence[Group]], tables: Sequence[Tables],
    way: tuple[Room, Any] | None, load: Load,
) -> tuple[list[Deployment], Array]:  # fmt: skip
    """Deployments that differ in more than their prices, and which of them each design is.

    Args:
        servings, which: of `_servings`.
        parts: of each of them, the pools.
        tables: of each pool.
        way: of caches between two pools.
        load: that is served.
    """
    apart = [value for part in parts[0] for value in (part.of.free, *part.of.room.each)]
    apart += [*way[0].each, way[1]] if way else []
    columns = np.array([which, *(np.broadcast_to(np.squeeze(value), len(which)) for value in apart)], float)
    first, each = distinct_columns(columns)
    found = []
    for row in first:
        serving, here = servings[which[row]], parts[which[row]]
        pools = [
            pool(serving, part, load, prices[0], number(part.of.free, row), part.of.room.at(row))
            for part, (prices, _, _) in zip(here, tables, strict=True)
        ]
        found.append(deployment(serving, guessing(pools, load), load, way and (way[0].at(row), number(way[1], row))))
    return found, each


def _tables(several_of: Sequence[Group], load: Load, size: int) -> Tables:
    """Prices of instances at few points: as many as the largest needs of groups that differ in their batch."""
    of, axes = several_of[0].of, _axes(several_of, load)
    place = (of.key, *(values.tobytes() for values in axes))
    if of.key and place in TABLES:
        TABLES[place] = TABLES.pop(place)
        return TABLES[place]
    shape = [len(values) for values in axes]
    if of.more:
        found = np.asarray(of.more(*points(axes)), float)
        values = found.reshape(*found.shape[:5], -1, size)
        values = np.broadcast_to(values, (*shape, *values.shape[5:]))
    else:
        values = _read(of.pricing, axes, size)
    made = [several_prices(values[..., what, :], axes, **({"least": 0.0} if what else {})) for what in range(values.shape[-2])]
    tables = tuple(one for one, _ in made), np.array([of for _, of in made]), np.arange(size)
    if of.key:
        TABLES[place] = tables
        while len(TABLES) > MOST_TABLES:
            TABLES.pop(next(iter(TABLES)))
    return tables


def _axes(several_of: Sequence[Group], load: Load) -> list[Array]:
    """Points of the prices of instances that differ in their batch."""
    most, batch = longest(load) + 1, max(group.batch for group in several_of)
    tokens = max(most_prompts(group.rule, group.batch, most) for group in several_of)
    return steady.coarse(several_of[0].of.axes, load, several_of[0].of.copies)(tokens, most, batch, most)


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


def _worth(stands: Stood, load: Load, die: Any, system: Any) -> dict[str, Any]:
    """Metrics of designs in the steady state, shape (designs,)."""
    values: dict[str, Any] = steady.measured(stands, load.requests)
    areas = per_area(values["throughput"], np.nan, die, system)
    return values | {name: area for name, area in areas.items() if not np.isnan(area).all()}


def _spent(done: Sequence[Sequence[tuple[Any, tuple[Any, ...]]]], tables: Sequence[Tables]) -> Array:
    """What iterations spend beside their time, shape (what, designs)."""
    found: Any = 0.0
    for some, of in zip(done, tables, strict=True):
        for times, made_of in some:
            found = found + np.where(times > 0, times * _each(of, made_of)[1:], 0.0)
    return np.asarray(found)


def _each(of: Tables, made_of: tuple[Any, ...]) -> Array:
    """What an iteration of each design takes and spends, shape (what, designs)."""
    prices, tables, which = of
    at = np.array([np.broadcast_to(np.squeeze(count), len(which)) for count in made_of], float).T.tolist()
    found = [
        [composed(price._replace(table=rows[row]), *here) for row, here in zip(which, at, strict=True)]
        for price, rows in zip(prices, tables, strict=True)
    ]
    return np.array(found)
