"""Instances of a model that serve requests as they come: metrics, limits and the breakdown, whatever the chip.

Instances are whole devices, alike in a pool: one that does both phases, or one that prefills and sends caches to another that
decodes. A layout says what an iteration of them takes and how much they hold (`account/services`); iterations are priced once,
as a table, and played by the loop (`account/played`). Where pools are parts of one chip, its pipelines answer for themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.metrics import Judged
from dse.evaluators.account.played import asked_first, assembled, at_once, balanced, drawn, peak, served, steady
from dse.evaluators.account.played.assembled import deployment, groups, guessing, pool
from dse.evaluators.account.played.steady import STEADY
from dse.evaluators.account.profile import Profile, idle
from dse.evaluators.account.services import Done, several
from dse.evaluators.serving.kvcache import paged
from dse.evaluators.serving.loop import Deployment, Pool, Served
from dse.evaluators.serving.measures import OfClass, OfTurns, grouped
from dse.evaluators.serving.policy import rules
from dse.space.design import Design
from dse.space.later import asked, now
from dse.space.limits import Infeasible, Limit, divides
from dse.space.mapping import Serving
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
from dse.space.workload import Asked, Load, Workload

SERVICES = {
    SERVED_DEVICES: "devices",
    SERVED_REGIONS: "regions",
    SERVED_PIPELINES: "pipelines",
    SERVED_WHOLE_CHIP: "whole_chip",
    SERVED_DIES: "many_dies",
    SERVED_POOLED_DIES: "many_dies",
}
"""Layouts that serve, by the software that runs them: modules of `account/services`, imported when they are asked."""

NAMES = ("instance", "prefill instance", "decode instance")
"""Of the pool that does both phases, and of those that do one."""

MONEY = ("system_price", "price_per_mtoken")

DRAWN = 2_000
"""Iterations whose power is drawn where a layout prices them one by one, in up to 10 ms each."""


class Held(NamedTuple):
    """Memory for caches of an instance.

    Attributes:
        pool: of which it is.
        blocks, room: that are said, and that its devices' memory has room for.
        tokens, room_tokens: for which these are, of requests that keep all positions.
    """

    pool: str
    blocks: int
    room: int
    tokens: int
    room_tokens: int


def fidelities(design: Design, part: bool) -> tuple[str, ...]:
    """The steady state, and readers that price iterations of a layout for the loop."""
    found: tuple[str, ...] = service_of(design).FIDELITIES
    return found if part else (STEADY, *found)


def judged(design: Design, workload: Workload, fidelity: str) -> list[Judged]:
    """Metrics and limits, load by load and design by design; leaves of shape (designs,)."""
    service = service_of(design)
    if fidelity == STEADY and hasattr(service, "TOGETHER"):
        worth, alike = partial(balanced.metrics, service), partial(balanced.alike, together=service.TOGETHER)
        return served.judged(design, workload, _limits, worth, alike)
    worth = partial(getattr(service, "metrics", _metrics), fidelity=fidelity)
    at_a_rate = not any(load.largest for load in cast(tuple[Load, ...], workload.cases))
    parts = (at_once.parts,) if fidelity != STEADY and at_a_rate and getattr(service, "USED_TOGETHER", False) else ()
    return served.judged(design, workload, _limits, worth, *(parts or getattr(service, "TOGETHER_AT", {}).get(fidelity, ())))


def dollars(design: Design, load: Load, run: Served, fidelity: str) -> tuple[float, float]:
    """What all chips of a design cost to make, and a million output tokens of a run of a load's requests. [USD]"""
    service = service_of(design)
    if hasattr(service, "spent"):
        spent = service.spent(design, load, run, fidelity)
    else:
        hosted = served.hosted(run, service.holders(design, load), float(_serving(design).host))
        # the most power has no part in it
        spent = service.used(design, load, _done(run), served.span(run), fidelity, float, hosted=hosted)
    used = asked(spent, MONEY)
    system, token = (float(np.squeeze(now({name: used[name]})[name])) for name in MONEY)
    return system, token


def limits(design: Design, workload: Workload) -> list[Limit]:
    """Limits alone, without a request played; leaves of shape (designs,)."""
    alike = getattr(service_of(design), "TOGETHER", None)
    return served.limited(workload, _limits, served.singles(design) if alike is None else balanced.alike(design, alike))


def explain(design: Design, case: Asked, decode_at: str, fidelity: str) -> Breakdown:
    """The time of instances, by operator and idle; and the first iterations."""
    found: Breakdown = getattr(service_of(design), "explain", _explain)(design, cast(Load, case), fidelity)
    return found


def profile(design: Design, case: Asked, decode_at: str, fidelity: str) -> Profile | None:
    """Power of all chips over the first iterations; None in the steady state, and where no rate keeps the bounds."""
    if fidelity == STEADY:
        return None
    found: Profile | None = getattr(service_of(design), "profile", _profile)(design, cast(Load, case), fidelity)
    return found


def remedied(worst: Infeasible, design: Design, workload: Workload) -> Infeasible:
    """The verdict, with what would do where the layout knows it."""
    return replace(worst, remedy=service_of(design).remedy(worst, design, cast(tuple[Load, ...], workload.cases)))


def unloaded(design: Design, load: Load, fidelity: str) -> tuple[float, float]:
    """What requests take that meet no other, of those that the largest rate is for: to the first token, and a token. [s]"""
    service = service_of(design)
    if hasattr(service, "unloaded"):
        found: tuple[float, float] = service.unloaded(design, load, fidelity)
        return found
    made, _ = deployed(design, load, fidelity)
    return served.unloaded(lambda requests: made, load)


def by_group(design: Design, load: Load, fidelity: str) -> tuple[list[OfClass], list[OfTurns]]:
    """What requests of each class got, and turns by their places in sessions, of a load that has some."""
    played = getattr(service_of(design), "played", _played)
    run: Served | None = played(design, load, fidelity)
    return grouped(run, load.classes) if run is not None else ([], [])


def held(design: Design, load: Load) -> tuple[Held, ...]:
    """Memory for caches of an instance of each pool, where its blocks are said; nothing where they are not."""
    serving = _serving(design)
    if not getattr(serving, "blocks", 0):
        return ()
    names, found = NAMES[-2:] if serving.prefill_instances else NAMES[:1], list[Held]()
    for name, of in zip(names, service_of(design).instances(design, load, "closed"), strict=True):
        memory = assembled.held(serving, load, float(of.free), of.room.at(0), of.copies)
        each = max(memory.each, 1)  # a request's states alone have no tokens
        tokens = [blocks // each * memory.block for blocks in (int(serving.blocks), memory.blocks)]
        found.append(Held(name, int(serving.blocks), memory.blocks, *tokens))
    return tuple(found)


def service_of(design: Design) -> ModuleType:
    """Who answers for the layout that a mapping is for."""
    return service_for(software_of(design.mapping))


def service_for(software: str) -> ModuleType:
    """Who answers for some software."""
    return import_module(f"dse.evaluators.account.services.{SERVICES[software]}")


def _metrics(design: Design, load: Load, fidelity: str) -> dict[str, Any]:
    service = service_of(design)
    if fidelity == STEADY:
        of, state = _steady(design, load)
        devices = {"devices": float(service.devices(design))}
        made: Done = [[(mean.times, mean.composition) for mean in pool] for pool in state.means]
        fullest = peak.of_pools(state.means, of.pools, len(load.requests))
        most = partial(_peak, service, design, load, steady.PRICES, fullest)
        spent: dict[str, float] = service.used(design, load, made, state.span, steady.PRICES, most)
        return state.values | spent | devices
    return at_once.metrics(service, design, load, fidelity, lambda one: _served(one, load, fidelity, 0))


def _explain(design: Design, load: Load, fidelity: str) -> Breakdown:
    service, by = service_of(design), steady.PRICES if fidelity == STEADY else fidelity

    def operators(pool: int, mean: served.Mean) -> Sequence[Row]:
        found: Sequence[Row] = service.operators(design, load, pool, mean.times, mean.composition, by)
        return found

    if fidelity == STEADY:
        return steady.explained(_steady(design, load)[1].means, service.area_parts(design), operators)
    run = _served(design, load, fidelity, served.KEPT)[0]
    if run is None:
        return Breakdown((), 0.0, service.area_parts(design), {})
    names = NAMES[-2:] if len(run.pools) == 2 else NAMES[:1]
    return served.explained(run, service.area_parts(design), operators, names=names)


def mean_iterations(design: Design, load: Load) -> list[list[served.Mean]]:
    """Of each pool, those of a run on prices of the closed form; none where no rate keeps the bounds."""
    run = getattr(service_of(design), "played", _played)(design, load, "closed")
    return [] if run is None else [served.means(run, number) for number in range(len(run.pools))]


def _profile(design: Design, load: Load, fidelity: str) -> Profile | None:
    service = service_of(design)
    run = _served(design, load, fidelity, DRAWN if getattr(service, "ONE_BY_ONE", False) else served.KEPT)[0]
    if run is None:
        return None
    watts = getattr(service, "mean_watts", service.watts)
    return drawn.profile(
        run, lambda pool, made_of: watts(design, load, pool, made_of, fidelity), idle(design.chip, service.devices(design))
    )


def _peak(service: ModuleType, design: Design, load: Load, fidelity: str, pools: Sequence[peak.Fullest]) -> float:
    """The most power of what one design does. [W]"""
    return float(np.squeeze(peak.peak(pools, lambda pool, made_of: service.watts(design, load, pool, made_of, fidelity))))


def _steady(design: Design, load: Load) -> tuple[Deployment, steady.Steady]:
    steady.refuse(load)
    of = deployed(design, load, STEADY)[0]
    return of, steady.solved(of, load, *service_of(design).areas(design))


def _done(run: Served) -> Done:
    return [
        [(mean.times, mean.composition) for kind in served.by_span(run, pool) for mean in kind if mean.times]
        for pool in range(len(run.pools))
    ]


def deployed(design: Design, load: Load, fidelity: str) -> tuple[Deployment, list[served.Checked]]:
    """What serves a load, with its prices; with room for the longest request, which is a limit."""
    pools, tables = pools_of(design, load, fidelity)
    return joined(design, load, pools), tables


def pools_of(design: Design, load: Load, fidelity: str) -> tuple[list[Pool], list[served.Checked]]:
    """Pools of instances, as `deployed` has them; what it takes."""
    service, serving = service_of(design), _serving(design)
    instances = service.instances(design, load, steady.PRICES if fidelity == STEADY else fidelity)
    pools, tables = list[Pool](), list[served.Checked]()
    for group in groups(serving, instances):
        of, rule, batch, _ = group
        table = served.table(
            of.pricing,
            rule,
            batch,
            served.longest(load) + 1,
            spread=steady.coarse(of.axes, load, of.copies) if fidelity == STEADY else of.axes,
            checks=of.checks,
            key=of.key,
        )
        tables.append(table)
        pools.append(pool(serving, group, load, table.price, float(of.free), of.room.at(0)))
    return guessing(pools, load), tables


def deployer(design: Design, load: Load, pools: Sequence[Pool]) -> Callable[[Requests], Deployment]:
    """What serves a load's requests at any rate, by the closed form: these pools, or pipelines that depend on it."""
    service = service_of(design)
    if hasattr(service, "deployer"):
        found: Callable[[Requests], Deployment] = service.deployer(design, load, "closed")
        return found
    made = joined(design, load, pools)
    return lambda requests: made


def joined(design: Design, load: Load, pools: Sequence[Pool]) -> Deployment:
    """Pools of a design, and the way of caches between them."""
    service = service_of(design)
    way = service.transfer(design, load) if len(pools) == 2 else None
    found = deployment(_serving(design), pools, load, way and (way[0].at(0), float(way[1])))
    if found.transfer is not None and hasattr(service, "channels"):
        found = found._replace(transfer=found.transfer._replace(channels=service.channels(design, load)))
    return found


def _limits(design: Design, load: Load) -> list[Limit]:
    """Those of the layout; that what the engine keeps leaves room; and that blocks, if they are given, are there and do."""
    found: list[Limit] = service_of(design).limits(design, load)
    serving, longest = design.mapping.serving, served.longest(load)
    if getattr(serving, "reuse", "part") == "pool":
        found = [*found, Limit("mapping.serving.prefix", float(serving.prefix), 0.0, "1")]
        if len(load.requests.hashes):
            found.append(divides("mapping.serving.block", float(serving.block), float(load.requests.block)))
    if load.guesses and (rule := rules(serving)[-1]).chunked:
        found = [*found, Limit("mapping.serving.tokens", 1.0 + load.guesses, float(rule.tokens), "1")]
    # pipelines of tiles have neither; what breaks a limit already has no instances
    asked, reserved = int(getattr(serving, "blocks", 0)), float(getattr(serving, "reserved", 0.0))
    if not (asked or reserved) or any(np.any(limit.need > limit.have) for limit in found):
        return found
    if several(design):
        rows = [np.array([row]) for row in range(several(design))]
        return served.stacked(len(rows), [(row, _limits(served.picked(design, row), load)) for row in rows])
    for of in service_of(design).instances(design, load, "closed"):
        left = of.free / of.copies - float(of.room.of(longest))
        found.append(Limit("mapping.serving.reserved", reserved, left, "B"))
        if asked and reserved <= left:
            memory = paged(of.free - of.copies * reserved, of.room, block=int(serving.block), longest=longest)
            found.append(Limit("mapping.serving.blocks", float(asked), float(memory.blocks), "1"))
            found.append(Limit("mapping.serving.blocks", float(memory.needed(longest)), float(asked), "1"))
    return found


def _served(design: Design, load: Load, fidelity: str, log: int) -> tuple[Served | None, list[served.Checked]]:
    found, tables = deployed(design, load, fidelity)
    return served.run(lambda requests: found, load, log), tables


def _played(design: Design, load: Load, fidelity: str) -> Served | None:
    return _served(design, load, fidelity, 0)[0]


def _serving(design: Design) -> Serving:
    found: Serving = design.mapping.serving
    return found


together = partial(asked_first.together, service_of, _limits)
"""While it is open, prices that designs of several structures ask for are worked out at once."""
