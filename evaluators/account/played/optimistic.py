"""What designs that serve a load cannot do better than in the steady state, by what they do at least.

The last request to end has come by then and makes its tokens one iteration after the other, so that the time from the first
arrival to the last token is at least

    T = max over requests of arrival + further tokens x least iteration

and longer by what the last one waits where requests come too fast (`delays.py`); of few, who are played, it is at least that in
which instances do all their work.

Areas, chips and what stands whatever is done are what they are, so that rates are at most, and energy and money at least, those
of this time. The least iteration is that of weights which pass memories at their peak, and, where it is asked for, the price of
one request's next token; prompts take what engines that never wait do, or a share of a price.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from dse.evaluators.account.played import asked_first, balanced, served
from dse.evaluators.account.played.delays import gap, late
from dse.evaluators.account.power import NOTHING, of_phases
from dse.evaluators.account.services import several
from dse.evaluators.account.services.least import Least
from dse.evaluators.account.services.shared_prices import said_first
from dse.evaluators.account.shared_dies import kept
from dse.evaluators.serving.arrivals import MOST
from dse.evaluators.serving.standing import mix
from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon import limits as silicon
from dse.evaluators.silicon.whole import together
from dse.space.design import Design, Designs
from dse.space.elementwise import Array, maximum, where
from dse.space.later import Later, later
from dse.space.limits import ClashError
from dse.space.requests import Requests
from dse.space.workload import Load, Workload

RATED = ("tdp", "power_density", "plug_power", "system_price")
"""Metrics of power and money that do not depend on what is done."""

SPENT = ("energy", "energy_per_token", "price_per_mtoken", "chips_per_mtoken", "electricity_per_mtoken")
"""Those that rise with the time that a load takes."""

EXACT = (*RATED, "die_mm2", "system_mm2")
LOW = (*EXACT, *SPENT, "peak_power", "ttft", "tpot", "tbt_p99", "latency")
RATES = ("throughput", "request_throughput", "goodput", "throughput_per_die_mm2", "throughput_per_system_mm2")
HIGH = (*EXACT, *RATES, "slo_attainment")
"""Metrics that are known exactly, those that are known at least, and those at most."""

Columns = dict[str, Array]


class Bounds(NamedTuple):
    """Designs before they are evaluated.

    Attributes:
        broken: whether a limit is broken that needs no price, shape (designs,).
        low, high: metrics of `LOW` and of `HIGH` that are asked for, at least and at most; shape (designs,).
    """

    broken: Array
    low: Columns
    high: Columns


def bounds(
    service_of: Callable[[Design], ModuleType],
    designs: Designs,
    workload: Workload,
    metrics: Collection[str],
    *,
    priced: bool,
) -> Bounds:
    """Bounds of designs in the steady state of loads, the loosest of all of them.

    Args:
        service_of: the layout of a design.
        designs, workload: what is asked.
        metrics: that somebody asks for.
        priced: whether the least iteration is priced where a layout has one (`decoded`); of designs whose `broken` is known.
    """
    designs, size, loads = asked_first.alike(service_of, designs), len(designs), cast(tuple[Load, ...], workload.cases)
    broken = np.zeros(size, bool)
    low = {name: np.full(size, np.inf) for name in LOW if name in metrics}
    high = {name: np.full(size, -np.inf) for name in HIGH if name in metrics}
    with together(designs.groups):
        for load in loads:
            prices = _priced(service_of, designs, load) if priced else {}
            for rows, design in designs.groups:
                service = service_of(design)
                if not priced:
                    broken[rows] |= _broken(service, design, load)
                of = service.at_least(design, load)
                decode, prompt = prices.get(id(design), (0.0, 0.0))
                of = of._replace(
                    decode=maximum(of.decode, decode), prompt=maximum(of.prompt, prompt), room=_room(service, design, load)
                )
                for columns, some, looser in zip((low, high), _of_load(design, load, of), (np.fmin, np.fmax), strict=True):
                    for name, column in columns.items():
                        value = some[name].of(name) if isinstance(some[name], Later) else some[name]
                        column[rows] = looser(column[rows], value)
    return Bounds(broken, low, high)


def _of_load(design: Design, load: Load, of: Least) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metrics of designs of one structure at least and at most, some when they are asked for; leaves broadcast over designs."""
    chip, requests = design.chip, load.requests
    mixed, tokens = mix(requests), float(requests.output.sum())
    span: Any = 0.0
    for arrival, further in zip(mixed.arrival.tolist(), mixed.left.tolist(), strict=True):
        span = maximum(span, arrival + further * of.decode)
    behind = late(load, design.mapping.serving, of)
    few = len(requests) <= MOST  # who are played, so that most may come before any has to wait
    work = where(behind > 0, behind + mixed.requests / mixed.rate, 0.0)
    span = maximum(span, work) if few else span + behind
    die, system = area.die(chip, of.decode_cores), area.total(chip, of.decode_cores) * of.chips
    spent = of_phases(chip, lambda: [(of.joules, span)], tokens, chips=of.chips, decode_cores=of.decode_cores)
    some = bool((requests.output > 1).any())
    exact = {name: spent[name] for name in RATED} | {"die_mm2": die, "system_mm2": system}
    low = {name: spent[name] for name in SPENT} | exact
    low |= later(("peak_power",), lambda: {"peak_power": of.chips * energy.static(chip, of.decode_cores)})
    low["ttft"] = float(requests.prompt.mean()) * of.prompt + (0.0 if few else behind / 2)
    low |= (
        {"tpot": of.decode, "tbt_p99": gap(load, design.mapping.serving, of)} if some else {"tpot": np.nan, "tbt_p99": np.nan}
    )
    low["latency"] = low["ttft"] + float(requests.output.mean() - 1) * of.decode
    within: Any = np.searchsorted(_prompts(requests), load.ttft / maximum(of.prompt, NOTHING), side="right") / len(requests)
    if not few:
        queued: Any = 0.0
        for length, weight in zip(mixed.prompts.tolist(), mixed.weights.tolist(), strict=True):
            left = load.ttft - length * of.prompt
            # those that come too fast wait evenly, taken as exponential
            queued = queued + weight * where(left >= 0, 1 - np.exp(-maximum(left, 0.0) / maximum(behind / 2, NOTHING)), 0.0)
        within = maximum(queued, where(behind > 0, 0.0, within))
    good = within * where(of.decode <= load.tpot, 1.0, 0.0) if some else within
    throughput, rate = tokens / span, len(requests) / span
    high = exact | {"throughput": throughput, "request_throughput": rate, "goodput": good * rate, "slo_attainment": good}
    high |= {"throughput_per_die_mm2": throughput / die, "throughput_per_system_mm2": throughput / system}
    return low, high


@lru_cache(maxsize=8)
def _prompts(requests: Requests) -> Array:
    """Lengths of prompts, the shortest first. [token]"""
    return np.sort(requests.prompt).astype(float)


def _room(service: ModuleType, design: Design, load: Load) -> Any:
    """Requests of an instance that there is room for at least, where the layout says it."""
    if not hasattr(service, "capacity"):
        return 0.0
    found = np.zeros(_size(design))
    for rows, part in _parts(service, design):
        found[rows] = service.capacity(part, load)
    return found


def _broken(service: ModuleType, design: Design, load: Load) -> Any:
    """Designs of one structure that break a limit which needs no price."""
    found: Any = load.longest > load.model.max_position
    for limit in silicon.exceeded(design.chip):
        found = found | (limit.need > limit.have)
    if hasattr(service, "sure"):
        sure = np.zeros(_size(design), bool)
        for rows, part in _parts(service, design):
            try:
                for limit in service.sure(part, load):
                    sure[rows] |= limit.need > limit.have
            except ClashError:  # which is answered where it is judged
                continue
        found = found | sure
    return found


def _priced(service_of: Callable[[Design], ModuleType], designs: Designs, load: Load) -> dict[int, tuple[Any, Any]]:
    """By design of several, prices of one request's next token and of a token of a prompt; all say first what they ask. [s]

    Of those whose layout has them, 0 of others.
    """
    context, found = max(1.0, mix(load.requests).context), dict[int, tuple[Any, Any]]()
    some = [(service_of(design), design) for _, design in designs.groups]
    parts = [(service, design, _parts(service, design)) for service, design in some if hasattr(service, "decoded")]
    with kept():
        for service, _, pieces in parts:
            for _, part in pieces:
                with suppress(ClashError), said_first():
                    getattr(service, "decoding", service.decoded)(part, load, context)
                    _prompted(service, part, load)
        for service, design, pieces in parts:
            size = _size(design)
            found[id(design)] = np.zeros(size), np.zeros(size)
            for rows, part in pieces:
                with suppress(ClashError):
                    found[id(design)][0][rows] = service.decoded(part, load, context)
                    found[id(design)][1][rows] = _prompted(service, part, load)
    return found


def _prompted(service: ModuleType, part: Design, load: Load) -> Any:
    """The price of a token of a prompt, where the layout has one."""
    return service.prompted(part, load) if hasattr(service, "prompted") else 0.0


def _size(design: Design) -> int:
    """Rows of a design."""
    return max(several(design), 1)


def _parts(service: ModuleType, design: Design) -> list[served.Part]:
    """Parts of a design as its layout takes them: all, those that are served alike, or each row by itself."""
    if getattr(service, "BOUNDS_TOGETHER", False):
        return [(np.arange(_size(design)), design)]
    return list(balanced.alike(design, service.TOGETHER) if hasattr(service, "TOGETHER") else served.singles(design))
