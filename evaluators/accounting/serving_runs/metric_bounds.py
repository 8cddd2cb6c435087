"""Bounds on steady-state metrics of designs under a serving load, from lower bounds on their work.

The last request to end has arrived by then and makes its tokens one iteration after the other, so that the time from
the first arrival to the last token is at least

    T = max over requests of arrival + further tokens x least iteration

and longer by the wait of the last one where requests arrive too fast (`wait_bounds.py`). Loads of few requests are
simulated, and take at least the time in which all instances do all their work.

Areas, chips and static power do not depend on time, so rates are at most, and energy and price at least, those of this
time. The least iteration is that of weights which pass memories at their peak and, on request, the time of one
request's next token. Prompts take the time of engines that never wait, or a share of a tabulated time.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from dse.evaluators.accounting.die_batches import collect_die_work
from dse.evaluators.accounting.power import NOTHING, power_metrics
from dse.evaluators.accounting.serving_instances import design_count
from dse.evaluators.accounting.serving_instances.lower_bounds import WorkLowerBounds
from dse.evaluators.accounting.serving_instances.shared_part_times import collect_requests
from dse.evaluators.accounting.serving_runs import iteration_time_batches as asked_first
from dse.evaluators.accounting.serving_runs import run_metrics as served
from dse.evaluators.accounting.serving_runs import steady_state_designs as balanced
from dse.evaluators.accounting.serving_runs.wait_bounds import overload_delay, token_gap_bound
from dse.evaluators.serving.prefill_replay import MAX_REQUESTS
from dse.evaluators.serving.steady_state import request_mix
from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.silicon.chip_batches import batch_chips
from dse.space.array_math import Array, maximum, where
from dse.space.design import Design, Designs
from dse.space.lazy_metrics import LazyMetrics, make_lazy_metrics
from dse.space.limits import IncompatibleOptionsError
from dse.space.requests import Requests
from dse.space.workload import ServingLoad, Workload

RATED_METRICS = ("tdp", "power_density", "wall_power", "system_price")
"""Metrics of power and money that do not depend on what is done."""

COST_METRICS = ("energy", "energy_per_token", "price_per_mtoken", "capital_per_mtoken", "electricity_per_mtoken")
"""Metrics that rise with the time of a load."""

EXACT_METRICS = (*RATED_METRICS, "die_mm2", "system_mm2")
LOWER_BOUNDED = (*EXACT_METRICS, *COST_METRICS, "peak_power", "ttft", "tpot", "tbt_p99", "latency")
RATE_METRICS = ("throughput", "request_throughput", "goodput", "throughput_per_die_mm2", "throughput_per_system_mm2")
UPPER_BOUNDED = (*EXACT_METRICS, *RATE_METRICS, "slo_attainment")
"""Metrics that are known exactly, those that are known at least, and those at most."""

MetricArrays = dict[str, Array]


class MetricBounds(NamedTuple):
    """Bounds on the metrics of designs, before the designs are evaluated.

    Attributes:
        broken: whether a limit that needs no iteration time is violated, shape (designs,).
        low, high: requested metrics of `LOWER_BOUNDED` and `UPPER_BOUNDED`, as bounds; shape (designs,).
    """

    broken: Array
    low: MetricArrays
    high: MetricArrays


def metric_bounds(
    service_of: Callable[[Design], ModuleType],
    designs: Designs,
    workload: Workload,
    metrics: Collection[str],
    *,
    priced: bool,
) -> MetricBounds:
    """Bounds on steady-state metrics of designs, loosest over all loads.

    Args:
        service_of: the layout of a design.
        designs, workload: designs and serving loads.
        metrics: requested metrics.
        priced: whether the least iteration time is computed where a layout has one (`decode_step_seconds`).
    """
    designs, size, loads = (
        asked_first.merge_equal_groups(service_of, designs),
        len(designs),
        cast(tuple[ServingLoad, ...], workload.cases),
    )
    broken = np.zeros(size, bool)
    low = {name: np.full(size, np.inf) for name in LOWER_BOUNDED if name in metrics}
    high = {name: np.full(size, -np.inf) for name in UPPER_BOUNDED if name in metrics}
    with batch_chips(designs.groups):
        for load in loads:
            prices = _priced(service_of, designs, load) if priced else {}
            for rows, design in designs.groups:
                service = service_of(design)
                if not priced:
                    broken[rows] |= _broken_designs(service, design, load)
                lower_bounds = service.work_lower_bounds(design, load)
                decode, prompt = prices.get(id(design), (0.0, 0.0))
                lower_bounds = lower_bounds._replace(
                    decode=maximum(lower_bounds.decode, decode),
                    prompt=maximum(lower_bounds.prompt, prompt),
                    room=_request_room(service, design, load),
                )
                for columns, bounds, looser in zip(
                    (low, high), _of_load(design, load, lower_bounds), (np.fmin, np.fmax), strict=True
                ):
                    for name, column in columns.items():
                        value = bounds[name].metric(name) if isinstance(bounds[name], LazyMetrics) else bounds[name]
                        column[rows] = looser(column[rows], value)
    return MetricBounds(broken, low, high)


def _of_load(design: Design, load: ServingLoad, bounds: WorkLowerBounds) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bounds on metrics of designs of one structure, some computed on demand; leaves broadcast over designs."""
    chip, requests = design.chip, load.requests
    mixed, tokens = request_mix(requests), float(requests.output.sum())
    span: Any = 0.0
    for arrival, further in zip(mixed.arrival.tolist(), mixed.left.tolist(), strict=True):
        span = maximum(span, arrival + further * bounds.decode)
    behind = overload_delay(load, design.mapping.serving, bounds)
    few = len(requests) <= MAX_REQUESTS  # who are played, so that most may come before any has to wait
    work = where(behind > 0, behind + mixed.requests / mixed.rate, 0.0)
    span = maximum(span, work) if few else span + behind
    die, system = area.die_area(chip, bounds.decode_cores), area.total_area(chip, bounds.decode_cores) * bounds.chips
    spent = power_metrics(chip, lambda: [(bounds.joules, span)], tokens, chips=bounds.chips, decode_cores=bounds.decode_cores)
    has_decodes = bool((requests.output > 1).any())
    exact = {name: spent[name] for name in RATED_METRICS} | {"die_mm2": die, "system_mm2": system}
    low = {name: spent[name] for name in COST_METRICS} | exact
    low |= make_lazy_metrics(
        ("peak_power",), lambda: {"peak_power": bounds.chips * energy.static_power(chip, bounds.decode_cores)}
    )
    low["ttft"] = float(requests.prompt.mean()) * bounds.prompt + (0.0 if few else behind / 2)
    low |= (
        {"tpot": bounds.decode, "tbt_p99": token_gap_bound(load, design.mapping.serving, bounds)}
        if has_decodes
        else {"tpot": np.nan, "tbt_p99": np.nan}
    )
    low["latency"] = low["ttft"] + float(requests.output.mean() - 1) * bounds.decode
    within: Any = np.searchsorted(_sorted_prompts(requests), load.ttft / maximum(bounds.prompt, NOTHING), side="right") / len(
        requests
    )
    if not few:
        queued: Any = 0.0
        for length, weight in zip(mixed.prompts.tolist(), mixed.weights.tolist(), strict=True):
            left = load.ttft - length * bounds.prompt
            # those that come too fast wait evenly, taken as exponential
            queued = queued + weight * where(left >= 0, 1 - np.exp(-maximum(left, 0.0) / maximum(behind / 2, NOTHING)), 0.0)
        within = maximum(queued, where(behind > 0, 0.0, within))
    good = within * where(bounds.decode <= load.tpot, 1.0, 0.0) if has_decodes else within
    throughput, rate = tokens / span, len(requests) / span
    high = exact | {"throughput": throughput, "request_throughput": rate, "goodput": good * rate, "slo_attainment": good}
    high |= {"throughput_per_die_mm2": throughput / die, "throughput_per_system_mm2": throughput / system}
    return low, high


@lru_cache(maxsize=8)
def _sorted_prompts(requests: Requests) -> Array:
    """Lengths of prompts, the shortest first. [token]"""
    return np.sort(requests.prompt).astype(float)


def _request_room(service: ModuleType, design: Design, load: ServingLoad) -> Any:
    """Lower bound on the requests that fit in an instance, where the layout has one."""
    if not hasattr(service, "request_capacity"):
        return 0.0
    room = np.zeros(_size(design))
    for rows, part in _parts(service, design):
        room[rows] = service.request_capacity(part, load)
    return room


def _broken_designs(service: ModuleType, design: Design, load: ServingLoad) -> Any:
    """Mask of designs of one structure that violate a limit without iteration times."""
    violations: Any = load.longest > load.model.max_position
    for limit in silicon.exceeded_limits(design.chip):
        violations = violations | (limit.need > limit.have)
    if hasattr(service, "untimed_limits"):
        sure = np.zeros(_size(design), bool)
        for rows, part in _parts(service, design):
            try:
                for limit in service.untimed_limits(part, load):
                    sure[rows] |= limit.need > limit.have
            except IncompatibleOptionsError:  # which is answered where it is judged
                continue
        violations = violations | sure
    return violations


def _priced(service_of: Callable[[Design], ModuleType], designs: Designs, load: ServingLoad) -> dict[int, tuple[Any, Any]]:
    """By design of several, prices of one request's next token and of a token of a prompt; all say first what they ask. [s]

    Of those whose layout has them, 0 of others.
    """
    context, seconds_by_design = max(1.0, request_mix(load.requests).context), dict[int, tuple[Any, Any]]()
    services = [(service_of(design), design) for _, design in designs.groups]
    parts = [
        (service, design, _parts(service, design)) for service, design in services if hasattr(service, "decode_step_seconds")
    ]
    with collect_die_work():
        for service, _, pieces in parts:
            for _, part in pieces:
                with suppress(IncompatibleOptionsError), collect_requests():
                    getattr(service, "request_decode_times", service.decode_step_seconds)(part, load, context)
                    _prompted(service, part, load)
        for service, design, pieces in parts:
            size = _size(design)
            seconds_by_design[id(design)] = np.zeros(size), np.zeros(size)
            for rows, part in pieces:
                with suppress(IncompatibleOptionsError):
                    seconds_by_design[id(design)][0][rows] = service.decode_step_seconds(part, load, context)
                    seconds_by_design[id(design)][1][rows] = _prompted(service, part, load)
    return seconds_by_design


def _prompted(service: ModuleType, part: Design, load: ServingLoad) -> Any:
    """Least time per prompt token, where the layout has one. [s]"""
    return service.prefill_token_seconds(part, load) if hasattr(service, "prefill_token_seconds") else 0.0


def _size(design: Design) -> int:
    """Rows of a design."""
    return max(design_count(design), 1)


def _parts(service: ModuleType, design: Design) -> list[served.DesignPart]:
    """Parts of a design as its layout takes them: all rows, rows with equal serving settings, or single rows."""
    if getattr(service, "BOUNDS_TOGETHER", False):
        return [(np.arange(_size(design)), design)]
    return list(
        balanced.groups_with_equal_serving(design, service.MERGEABLE_LEAVES)
        if hasattr(service, "MERGEABLE_LEAVES")
        else served.single_rows(design)
    )
