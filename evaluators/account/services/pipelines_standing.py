"""Pipelines of groups of tiles at fidelity=steady: designs with the same words all at once, prices broadcast over them."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.metrics import per_area
from dse.evaluators.account.played import peak, served, steady
from dse.evaluators.account.played.served import Mean
from dse.evaluators.account.services import HERE, several
from dse.evaluators.account.services.fleet import Pipelines, all_cores, decode_cores, fleet_of
from dse.evaluators.account.services.pipeline_pools import assembled, moved, paced, priced
from dse.evaluators.account.services.pipeline_work import fullest_core, worked
from dse.evaluators.layouts.kv_transfer import Ways
from dse.evaluators.readers import READERS
from dse.evaluators.serving.policy import most_prompts
from dse.evaluators.serving.price import Price, points, spread
from dse.evaluators.serving.price import several as several_prices
from dse.evaluators.serving.standing import APART
from dse.evaluators.serving.stood import Stood
from dse.evaluators.silicon import area
from dse.space.design import Design
from dse.space.elementwise import Array, distinct_columns
from dse.space.fields import leaves
from dse.space.later import expected
from dse.space.mapping import AUTO
from dse.space.workload import Load

READER = READERS[steady.PRICES]

SHARED = ("mapping.serving.prefill_cores", "mapping.serving.decode_cores", "mapping.serving.arrangement")
"""Leaves that say how pipelines serve, in which designs that come together may differ."""

MESH = ("chip.mesh.",)
"""Leaves in which they may not."""


class Standing(NamedTuple):
    """Designs in the steady state.

    Attributes:
        of: what the load is to each of them.
        between: caches on their way.
        means: iterations of each pool.
        shares: of an iteration's time, of the slowest stage of each pool, shape (designs,).
        instances: of each pool.
    """

    of: Stood
    between: Ways | None
    means: list[list[Mean]]
    shares: list[Array]
    instances: list[Array]


def parts(design: Design) -> Iterator[tuple[Array, Design]]:
    """Rows of a design that are worked out together, and the design that these are.

    Those whose partitions are left open are worked out one by one. Those with cores set apart come first: of limits that are
    exceeded alike the first one binds, and theirs has the order that each has by itself.
    """
    columns = {address: np.ravel(value) for address, value, _ in leaves(design) if isinstance(value, np.ndarray)}
    size = max((len(column) for column in columns.values()), default=1)
    mapping, cores = design.mapping, all_cores(design)
    open_ = AUTO in (mapping.prefill.partition, mapping.decode.partition)
    apart = tuple(address for address in columns if address.startswith((*HERE, *MESH)) and address not in SHARED)
    asked = mapping.serving.prefill_cores
    unlike = [asked <= 0, *(columns[address] for address in apart), np.arange(size) if open_ else 0]
    unlike += [asked > cores - 1, mapping.serving.decode_cores > np.maximum(cores - asked, 1.0)]
    unlike.append(mapping.prefill.chunk > 0)
    said = np.array([np.broadcast_to(np.ravel(value), size) for value in unlike], float)
    first, which = distinct_columns(said)
    for kind in range(len(first)):
        rows = np.flatnonzero(which == kind)
        yield rows, served.picked(design, rows, apart)


def metrics(design: Design, load: Load) -> dict[str, Any]:
    """What designs are worth that keep all limits; numbers, or of shape (designs,)."""
    fleet, apart, requests = fleet_of(design, load), decode_cores(design), load.requests
    stands = standing_of(design, load, fleet)
    values: dict[str, Any] = steady.measured(stands.of, requests)
    areas = per_area(values["throughput"], np.nan, area.die(design.chip, apart), area.total(design.chip, apart))
    values |= {name: value for name, value in areas.items() if not np.isnan(value).all()}
    fullest = peak.of_means(stands.means, [[share] for share in stands.shares], stands.instances, len(requests))
    gone, span = requests.output > 1, stands.of.found["span"]
    used = worked(design, load, fleet, READER, stands.means, fullest, stands.between, gone, span, steady=True)
    beside = {"kv_spilled": steady.far(stands.means), "devices": 1.0, "sram_used": fullest_core(fleet)}
    return values | used | beside


def standing_of(design: Design, load: Load, fleet: tuple[Pipelines, ...]) -> Standing:
    """Designs in the steady state of a load."""
    steady.refuse(load)
    paces = paced(load, fleet, READER)
    between = moved(design, load, fleet, paces, READER)
    prices = [_tables(load, of, between, place) for place, of in enumerate(fleet)]
    each = np.arange(max(several(design), 1))
    kinds = assembled(design, load, fleet, [price for price, _ in prices], paces, between)
    of = Stood(
        kinds, each, [(tables, each) for _, tables in prices], load.requests, load.ttft, load.tpot, asked=expected(APART)
    )
    shares = [np.array([max(some) for some in of.shares]) for of in paces]
    instances = [np.array([kind.pools[place].instances for kind in kinds]) for place in range(len(fleet))]
    return Standing(of, between, steady.means(of.found, load.requests, len(fleet)), shares, instances)


def _tables(load: Load, of: Pipelines, between: Ways | None, place: int) -> tuple[Price, Array]:
    """Prices of a pool's iterations at few points: as many as the largest of the designs needs. Shape (designs, points)."""
    crowding = 1.0 if between is None else (between.prefill, between.decode)[place]
    most, batches = served.longest(load) + 1, np.broadcast_to(of.plan.microbatch, len(of.rules)).astype(int).tolist()
    tokens = max(most_prompts(rule, batch, most) for rule, batch in set(zip(of.rules, batches, strict=True)))
    axes = steady.coarse(partial(spread, spilled=True), load)(tokens, most, max(batches), most)
    if between is not None:  # of iterations that a pool never has, none: no decodes with prompts, and no prompts with decodes
        none = np.zeros(1)
        axes = [*axes[:2], none, axes[3], none] if place == 0 else [none, none, *axes[2:]]
    counts = [count[..., None] for count in points(axes)]
    values = priced(load, of, READER, between, crowding)(*counts)
    shape = (*(len(some) for some in axes), len(of.rules))
    return several_prices(np.broadcast_to(values, shape), axes)
