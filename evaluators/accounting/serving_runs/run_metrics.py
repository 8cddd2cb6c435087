"""Metrics and timelines of serving runs on any kind of chip, one design after another.

The layout module evaluates one design and one load; iteration times come from a table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple, cast

import numpy as np

from dse.evaluators.accounting.breakdown import IDLE, Breakdown, BreakdownRow, RequestFlow, TimelineBar
from dse.evaluators.accounting.metrics import METRICS, CaseOutcomes, area_metrics
from dse.evaluators.accounting.serving_instances import ERROR_SAMPLES
from dse.evaluators.accounting.serving_instances.design_parts import DesignPart, single_rows
from dse.evaluators.serving.iteration_time import (
    IterationTime,
    IterationTimeFunction,
    TableError,
    geometric_axes,
    measure_table_errors,
    tabulate_time,
)
from dse.evaluators.serving.max_rate import MaxRate, search_max_rate
from dse.evaluators.serving.run_statistics import SloTargets, run_statistics
from dse.evaluators.serving.scheduling_policy import SchedulingPolicy, max_prompt_tokens
from dse.evaluators.serving.simulator import Deployment, InstancePool, ServingRun
from dse.evaluators.serving.slo_bounds import MIN_RATE_FACTOR, latency_percentiles, make_slo_bounds
from dse.evaluators.serving.steady_state_max_rate import UNLOADED_FIELDS, fleet_of_demand
from dse.evaluators.serving.sustained_rate import sustained_rate
from dse.evaluators.silicon import manufacturing_limits as silicon
from dse.evaluators.tuning.per_design import select_rows as select_rows
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.lazy_metrics import LazyMetrics, compute_all, make_lazy_metrics
from dse.space.limits import Limit
from dse.space.memoize import BlockState, KeptWithOwner, LastUsed
from dse.space.requests import Requests
from dse.space.workload import ServingLoad, Workload

LOGGED_ITERATIONS = 10_000
"""Iterations that a breakdown keeps, for its trace."""


MAX_TABLES = 256
TABLES: LastUsed[str, tuple[list[Array], IterationTime]] = LastUsed(MAX_TABLES)
"""Tables by key with their points, last used at the end: designs with equal iteration times share the largest."""

ERRORS: LastUsed[tuple[Any, ...], TableError] = LastUsed(MAX_TABLES)
"""Interpolation errors of tables, by key and points."""


_searched: KeptWithOwner[ServingLoad, dict[float, MaxRate]] = KeptWithOwner()
"""Results of searches for the maximum rates of loads, by rate, for later explanations."""


class MeanIteration(NamedTuple):
    """The mean iteration of a pool, over iterations with prompts or over decodes only.

    Attributes:
        prompts: which of them.
        times: how many.
        prompt, prompt_context, decodes, context, spilled: as in `iteration_time.AXES`.

    Numbers, or of shape (designs,).
    """

    prompts: bool
    times: Any
    prompt: Any
    prompt_context: Any
    decodes: Any
    context: Any
    spilled: Any

    @property
    def composition(self) -> tuple[Any, ...]:
        """Composition of the iteration, in the order of `iteration_time.AXES`."""
        return self[2:]

    def design_iteration(self, row: int) -> "MeanIteration":
        """Mean iteration of one design, as numbers."""
        columns = (np.ravel(value) for value in self[1:])
        return MeanIteration(self.prompts, *(float(column[row % len(column)]) for column in columns))


def mean_iterations(served: ServingRun, pool: int) -> list[MeanIteration]:
    """Mean iterations of a pool, with prompts and without, where such iterations exist."""
    return [
        _mean(bool(prompts), {name: float(work[name].sum()) for name in work.dtype.names or ()})
        for prompts, work in _kinds(served, pool)
        if work["iterations"].any()
    ]


def mean_iterations_by_span(served: ServingRun, pool: int) -> list[list[MeanIteration]]:
    """Mean iterations of a pool per half octave of tokens, with prompts and without, shape (2, spans).

    Costs are nearly linear in tokens within half an octave, but not over all iterations: weights are read once for
    any number of tokens, and activations are written to memory where they do not fit.
    """
    return [
        [_mean(bool(prompts), {name: float(span[name]) for name in work.dtype.names or ()}) for span in work]
        for prompts, work in _kinds(served, pool)
    ]


def _kinds(served: ServingRun, pool: int) -> list[tuple[int, Array]]:
    return [(prompts, served.state.work[pool, prompts]) for prompts in (1, 0)]


def _mean(prompts: bool, sums: dict[str, float]) -> MeanIteration:
    count, read = sums["iterations"], sums["positions"] + sums["past"]
    tokens, requests, each = max(sums["prompt"], 1e-9), max(sums["requests"], 1e-9), max(count, 1.0)
    spilled = sums["far"] / read if read else 0.0
    made_of = (sums["prompt"] / each, sums["pairs"] / tokens, sums["requests"] / each, sums["positions"] / requests)
    return MeanIteration(prompts, count, *made_of, spilled)


def evaluate_loads(
    design: Design,
    workload: Workload,
    limits: Callable[[Design, ServingLoad], list[Limit]],
    metrics: Callable[[Design, ServingLoad], dict[str, Any]],
    parts: Callable[[Design], Iterable[DesignPart]] | None = None,
    chosen: Callable[[Design, Array], Design] | None = None,
) -> list[CaseOutcomes]:
    """Metrics and limits for each load and group of rows; leaves of shape (designs,).

    Limits come first: a design that violates one under any load is not simulated, and has no metrics.

    Args:
        design, workload: design and serving loads.
        limits, metrics: of a part, numbers or of shape (rows,); metrics only of those rows that keep all limits.
        parts: parts of a design; None for each row separately.
        chosen: some rows of a part; None for `picked`.
    """
    loads = cast(tuple[ServingLoad, ...], workload.cases)
    known = (BOUNDED.innermost or {}).get(id(design))
    given_design = (
        known[1]
        if known
        else limited_design(design, loads, list((parts or single_rows)(design)), limits, chosen or select_rows)
    )
    size, bounds, played = given_design
    outcomes = []
    for row, load in enumerate(loads):
        pieces: dict[str, list[tuple[Array, Any]]] = {}
        for rows, part in played:
            worth = metrics(part, load)  # runs are not kept for what nobody may ask; what is worked out together has none
            for name, values in (worth if parts else compute_all(worth)).items():
                pieces.setdefault(name, []).append((rows, values))
        columns = {name: _column(name, size, piece) for name, piece in pieces.items()}
        kept = rate_limits(load, *(columns.pop(name, np.nan) for name in UNLOADED_FIELDS))
        outcomes.append(CaseOutcomes((row,), columns, [*bounds[row], *kept]))
    return outcomes


def rate_limits(load: ServingLoad, ttft: Any, tpot: Any, attained: Any) -> list[Limit]:
    """Limits of designs that keep a load's SLO bounds at no arrival rate.

    Requests that never meet break them already.

    Args:
        load: of which the maximum rate is asked.
        ttft, tpot: that the share of the requests keeps where they never meet; NaN where some rate is kept. [s]
        attained: share of the requests that keep both; NaN likewise.
    """
    if not load.largest:
        return []
    bounds = make_slo_bounds(load, load.largest).tightest
    ttft, tpot, missed = np.nan_to_num(ttft), np.nan_to_num(tpot), np.nan_to_num(1 - attained)
    needs = (("workload.ttft", ttft, bounds[0]), ("workload.tpot", tpot, bounds[1]))
    limits = [Limit(address, need, have, "s") for address, need, have in needs if have < inf]
    each = (ttft <= bounds[0]) & (tpot <= bounds[1])  # then some requests break one, and others the other
    return [*limits, Limit("workload.slo_percentile", np.where(each, missed, 0.0), 1 - load.largest, "1")]


class LimitedDesign(NamedTuple):
    """A block of designs with limits of all rows by load, and parts of the rows that keep them."""

    size: int
    bounds: list[list[Limit]]
    parts: list[DesignPart]


BOUNDED: BlockState[dict[int, tuple[Design, LimitedDesign]]] = BlockState()
"""Limits of known designs by id; the designs are kept so that their ids stay unique."""


def limited_design(
    design: Design,
    loads: Sequence[ServingLoad],
    parts: Sequence[DesignPart],
    limits: Callable[[Design, ServingLoad], list[Limit]],
    chosen: Callable[[Design, Array], Design] = select_rows,
) -> LimitedDesign:
    """Limits of a design for all loads, with the groups of rows that keep them."""
    size = sum(len(rows) for rows, _ in parts)
    bounds = [stack_limits(size, [(rows, limits(part, load)) for rows, part in parts]) for load in loads]
    fits = np.full(size, all(load.longest <= load.model.max_position for load in loads))
    for limit in (*(limit for bound in bounds for limit in bound), *silicon.silicon_limits(design.chip)):
        fits &= np.asarray(limit.need <= limit.have)
    left = [(rows, rows[fits[rows]], part) for rows, part in parts if fits[rows].any()]
    kept = [(own, part if len(own) == len(rows) else chosen(part, np.flatnonzero(fits[rows]))) for rows, own, part in left]
    return LimitedDesign(size, bounds, kept)


def _column(name: str, size: int, pieces: Sequence[tuple[Array, Any]]) -> Any:
    """A metric of all designs from that of their parts, computed on demand where a part does so."""

    def whole() -> dict[str, Any]:
        column = np.full(size, np.nan)
        for rows, values in pieces:
            column[rows] = values.metric(name) if isinstance(values, LazyMetrics) else values
        return {name: column}

    return (
        make_lazy_metrics((name,), whole)[name]
        if any(isinstance(values, LazyMetrics) for _, values in pieces)
        else whole()[name]
    )


def load_limits(
    workload: Workload, limits: Callable[[Design, ServingLoad], list[Limit]], parts: Iterable[DesignPart]
) -> list[Limit]:
    """Limits for each load and group of rows, without metrics; leaves of shape (designs,)."""
    selected_parts, loads = list(parts), cast(tuple[ServingLoad, ...], workload.cases)
    size = sum(len(rows) for rows, _ in selected_parts)
    return [
        limit for load in loads for limit in stack_limits(size, [(rows, limits(part, load)) for rows, part in selected_parts])
    ]


def run_load(at: Callable[[Requests], Deployment], load: ServingLoad, log: int) -> ServingRun | None:
    """Simulate a load at its own rate or at its maximum rate; None if no rate keeps the SLOs.

    Args:
        at: function from requests to the deployment.
        load: requests, and what they must keep.
        log: how many iterations to keep.
    """
    requests = load.requests
    if not load.largest:
        return at(requests).serve(requests, log=log)
    rate = search_max_rate(at, load, make_slo_bounds(load, load.largest), _guess(at, load))
    keep_max_rate(load, rate)
    if rate.served is None or not 0 < rate.rate < inf:
        return None
    requests = rate.served.requests
    if load.demand:
        _, (each,) = fleet_of_demand(load.demand, np.array([rate.rate]))
        requests = load.draw(rate.count, rate.seed, float(each)) if load.draw else load.requests_at(float(each))
    run = at(requests).serve(requests, log=log) if log or load.demand else rate.served
    return replace(run, rate=rate.rate)


def unkept_rate(alone: tuple[float, float]) -> dict[str, float]:
    """Metrics of a design that keeps the bounds at no rate, from its unloaded TTFT and TPOT. [s]"""
    return {"max_rate": 0.0} | dict(zip(UNLOADED_FIELDS, (*alone, 0.0), strict=True))


def keep_max_rate(load: ServingLoad, rate: MaxRate) -> None:
    """Keep the result of a search, for later explanations."""
    _searched.find(load, dict)[rate.rate] = replace(rate, served=None)  # runs are large


def known_max_rate(load: ServingLoad, rate: float) -> MaxRate | None:
    """Search result of `run_load` for a load that reached a rate, without its run; None if unknown. [1/s]"""
    return _searched.find(load, dict).get(rate)


def max_rate_metrics(load: ServingLoad, rate: float) -> dict[str, float]:
    """The maximum rate of a load, what limits it, and the systems of a demand, as metrics. [1/s]"""
    if not load.largest:
        return {}
    systems = {"fleet_systems": float(fleet_of_demand(load.demand, np.array([rate]))[0][0])} if load.demand else {}
    known, words = known_max_rate(load, rate), METRICS["max_rate_limit"].words
    binds = known.binds.partition(" ")[0] if known else ""  # without the class
    return {"max_rate": rate} | ({"max_rate_limit": float(words.index(binds))} if binds in words else {}) | systems


def of_run(load: ServingLoad, served: ServingRun) -> ServingLoad:
    """The load with the requests of its run, which differ at the maximum rate."""
    return replace(load, requests=served.requests) if load.largest else load


def _guess(at: Callable[[Requests], Deployment], load: ServingLoad) -> float:
    """Where the largest rate is looked for first. [1/s]"""
    _, tpot = make_slo_bounds(load, load.largest).tightest
    guess = sustained_rate(at(load.requests), load.requests, tpot=tpot)
    return guess.rate or 1 / (guess.ttft + float(load.requests.output.mean()) * tpot)


def unloaded_latency(at: Callable[[Requests], Deployment], load: ServingLoad) -> tuple[float, float]:
    """TTFT and TPOT percentiles at a rate so low that requests never meet. [s]

    Returns:
        Time to first token, and mean time per output token; NaN where no request has a second token. [s]
    """
    scaled = load.requests_at(_guess(at, load) * MIN_RATE_FACTOR)
    return latency_percentiles(at(scaled).serve(scaled), load.largest)


def host_bytes(served: ServingRun, holders: Sequence[Any], bandwidth: float) -> float:
    """Bytes swapped to hosts and back: preempted KV caches and prefixes. [B]

    Args:
        served: a run.
        holders: chips that have a request's cache together, of each pool.
        bandwidth: to a host, of a chip. [B/s]
    """
    instances = served.state.instances
    carried = (float(instances["carried"][instances["pool"] == number].sum()) for number in range(len(served.pools)))
    each = zip(carried, served.pools, holders, strict=False)
    return sum((cells * pool.memory.host * bandwidth * float(chips) for cells, pool, chips in each), 0.0)


def run_metrics(served: ServingRun, load: ServingLoad, die: float, system: float) -> dict[str, float]:
    """Metrics of a run that do not depend on activity."""
    values = run_statistics(served, SloTargets(*load.slo_targets))
    areas = area_metrics(values["throughput"], float("nan"), die, system)
    return values | {name: area for name, area in areas.items() if area == area}


def kv_pool_metrics(pool: InstancePool, load: ServingLoad) -> dict[str, float]:
    """Size of the KV memory of one instance: bytes, and tokens and requests that it holds.

    Each copy of attention has its share, in which a request lies as a whole.
    """
    memory, longest = pool.memory, longest_sequence(load)
    alone = memory if pool.copies == 1 else replace(memory, blocks=max(memory.blocks // pool.copies, 1))
    return {
        "kv_capacity": memory.token_capacity(longest),
        "kv_pool_bytes": memory.nbytes / pool.copies,
        "kv_pool_requests": float(alone.request_capacity(longest) * pool.copies),
        "longest_context": float(min(alone.longest, load.model.max_position)),
    }


def stacked_kv_pool_metrics(pools: Iterable[InstancePool], load: ServingLoad) -> dict[str, Array]:
    """KV memory of an instance of each design, shape (designs,)."""
    each = [kv_pool_metrics(pool, load) for pool in pools]
    return {name: np.array([values[name] for values in each]) for name in each[0]}


class CheckedTable(NamedTuple):
    """An iteration-time table whose interpolation error can be measured.

    Attributes:
        price, pricing, axes: the table, the function that made it, and the requested points; the table may have more.
        checks: compositions at which its error is measured; 0 for none.
        key: equal for equal iteration times; empty string without a key.
    """

    price: IterationTime
    pricing: IterationTimeFunction
    axes: list[Array]
    checks: int
    key: str

    @property
    def place(self) -> tuple[Any, ...]:
        """Cache key of the table's error, equal for tables of equal error."""
        return (self.key or id(self.pricing), self.checks, *(values.tobytes() for values in self.axes))


def iteration_time_table(
    pricing: IterationTimeFunction,
    rule: SchedulingPolicy,
    batch: int,
    longest: int,
    *,
    spread: Callable[..., list[Array]] = geometric_axes,
    checks: int = ERROR_SAMPLES,
    key: str = "",
) -> CheckedTable:
    """Build a table of iteration times, whose error `table_errors_by_design` measures.

    Args:
        pricing: function of iteration times.
        rule: how they are formed.
        batch: requests of an iteration.
        longest: positions of a request.
        spread: points of the table, of the largest counts.
        checks: compositions at which its error is measured; 0 for none.
        key: equal for equal iteration times; empty string for a table that is not shared.
    """
    axes = spread(max_prompt_tokens(rule, batch, longest), longest, batch, longest)
    return CheckedTable(_priced(pricing, axes, key), pricing, axes, checks, key)


def _priced(pricing: IterationTimeFunction, axes: list[Array], key: str) -> IterationTime:
    """A table that has all points of some axes: one that is known may have more."""
    if not key:
        return tabulate_time(pricing, axes)
    known = TABLES.find(key)
    if known is not None and _together(axes, known[0]) is None:
        key += "".join(values.tobytes().hex() for values in axes)  # other points: a table by itself
        known = TABLES.find(key)
    points = (_together(axes, known[0]) if known else None) or axes
    if known is None or [len(values) for values in points] != [len(values) for values in known[0]]:
        known = points, tabulate_time(pricing, points)
    return TABLES.keep(key, known)[1]


def _together(axes: list[Array], others: list[Array]) -> list[Array] | None:
    """Axes that have the points of both, where each axis goes on from where the other ends, or begins before it."""
    merged_axes = [np.union1d(*both) for both in zip(axes, others, strict=True)]
    fits = all(_in_turn(few, most) for axes in (axes, others) for few, most in zip(axes, merged_axes, strict=True))
    return merged_axes if fits else None


def _in_turn(few: Array, most: Array) -> bool:
    """Whether some points are all of an axis from the first of them to the last."""
    first = int(np.searchsorted(most, few[0]))
    return bool((most[first : first + len(few)] == few).all())


def table_errors_by_design(many: Sequence[Sequence[CheckedTable]]) -> list[TableError]:
    """Largest interpolation error of each design's tables; equal tables are measured once.

    The error of a table uses only the points requested for it, so it does not depend on earlier tables.
    """
    every = {table.place: table for tables in many for table in tables if table.checks}
    known = {place: error for place in every if (error := ERRORS.find(place)) is not None}
    new: dict[tuple[Any, ...], list[CheckedTable]] = {}
    for place, table in every.items():
        if place not in known:
            new.setdefault(place[:2], []).append(table)
    for alike in new.values():
        errors = measure_table_errors(
            [(table.price, table.axes) for table in alike], alike[0].pricing, compositions=alike[0].checks
        )
        known |= {table.place: error for table, error in zip(alike, errors, strict=True)}
    for place, table in every.items():
        if table.key:
            ERRORS.keep(place, known[place])
    none = TableError(0.0, 0.0, 0)
    return [max((known[table.place] if table.checks else none for table in tables), default=none) for tables in many]


def longest_sequence(load: ServingLoad) -> int:
    """Positions in the longest request's KV cache. [token]"""
    return load.longest - 1


def run_duration(served: ServingRun) -> float:
    """Time from the first arrival to the last token. [s]"""
    return float(np.nanmax(served["completed"])) - float(served.requests.arrival[0])


def run_breakdown(
    served: ServingRun,
    areas: dict[str, Any],
    operators: Callable[[int, MeanIteration], Sequence[BreakdownRow]],
    *,
    names: Sequence[str],
    beside: dict[str, Array] | None = None,
) -> Breakdown:
    """Breakdown of all instances' time by operator and idle, with a timeline of the first iterations.

    Args:
        served: a run that has kept its first iterations.
        areas: by block. [mm2]
        operators: breakdown rows of a pool's mean iteration, multiplied; their sum is scaled to the iterations' time.
        names: of an instance of each pool.
        beside: busy time of each kept iteration by kind of resource, equal in all stages. [s]
    """
    bars, rows, rest, whole = (
        _bars(served, names, beside or {}),
        list[BreakdownRow](),
        list[BreakdownRow](),
        run_duration(served),
    )
    for number, name in enumerate(names):
        instances = served.state.instances[served.state.instances["pool"] == number]
        busy, instances_text = (
            float((instances["busy"] / instances["stages"]).sum()),
            f"{name}s" if len(instances) > 1 else name,
        )
        found_rows = []
        for mean in mean_iterations(served, number):
            what = f"{instances_text}, iterations {'with prompts' if mean.prompts else 'of decodes'}"
            found_rows += [replace(row, phase=what) for row in operators(number, mean)]
        longer = busy / sum(row.seconds for row in found_rows) if found_rows else 1.0
        for row in found_rows:
            parts = {part: seconds * longer for part, seconds in row.parts.items()}
            rows.append(replace(row, seconds=row.seconds * longer, parts=parts))
        idle = max(0.0, whole * len(instances) - busy)
        rest.append(BreakdownRow("idle", instances_text, "", "", 0.0, 0.0, 0.0, IDLE, idle, {IDLE: idle}))
    rows += rest
    flows = {"serving": _flows(served, names)}
    return Breakdown(
        tuple(rows), sum(row.seconds for row in rows), areas, {"serving": {"iterations": [*bars, *_caches(served)]}}, flows
    )


def iteration_intervals(served: ServingRun) -> Iterator[tuple[int, int, int, float, float]]:
    """Index, instance, stage, start and end of each kept iteration on each stage. [s]"""
    free = np.zeros_like(served.state.stage_free)
    for place, entry in enumerate(served.log):
        instance, end = int(entry["instance"]), float(entry["start"])
        for stage, share in enumerate(served.pools[int(served.state.instances[instance]["pool"])].shares):
            start = max(end, float(free[instance, stage]))
            free[instance, stage] = end = start + float(entry["step"]) * share
            if end > start:
                yield place, instance, stage, start, end


def _name(served: ServingRun, names: Sequence[str], instance: int, stage: int) -> str:
    """Of an instance, and of its stage where there are several; -1 for all of it."""
    given_instance = served.state.instances[instance]
    pool = int(given_instance["pool"])
    first = int(served.state.pools[pool]["first"])
    return f"{names[pool]} {instance - first}" + (f", stage {stage}" if given_instance["stages"] > 1 and stage >= 0 else "")


def _bars(served: ServingRun, names: Sequence[str], beside: dict[str, Array]) -> list[TimelineBar]:
    """Timeline bars of each iteration on each stage, as simulated, and of other busy resources."""
    bars = list[TimelineBar]()
    for place, instance, stage, start, end in iteration_intervals(served):
        entry = served.log[place]
        counts = ((entry["prompt"], "prompt tokens"), (entry["requests"], "decodes"))
        what = " + ".join(f"{count} {text}" for count, text in counts if count)
        share = served.pools[int(served.state.instances[instance]["pool"])].shares[stage]
        track = _name(served, names, instance, stage)
        bars.append((track, what, start, end))
        for kind, seconds in beside.items():
            if seconds[place] > 0:
                bars.append((f"{track}: {kind}", what, start, start + min(float(seconds[place]) * share, end - start)))
    return bars


def _caches(served: ServingRun) -> list[TimelineBar]:
    """Caches on their way between pools, each on the first channel that is free."""
    sent = np.flatnonzero(~np.isnan(served["ready"]))
    last = float(served.log["end"].max(initial=0.0))
    free, caches = list[float](), list[TimelineBar]()
    for r in sent[np.argsort(served["ready"][sent], kind="stable")]:
        end = float(served["ready"][r])
        start = end - float(served.transfer.latency) - float(served["sending"][r])
        if end > last:
            break
        channel = next((place for place, until in enumerate(free) if until <= start + 1e-12), len(free))
        free[channel : channel + 1] = [end]
        caches.append((f"links: KV cache {channel}", f"request {r}", start, end))
    return caches


def _flows(served: ServingRun, names: Sequence[str]) -> list[RequestFlow]:
    """Requests that are completed within the iterations kept: where each began, had its first token, and had its last."""
    last, flows = float(served.log["end"].max(initial=0.0)), list[RequestFlow]()
    apart = len(served.pools) == 2
    for r in np.flatnonzero(served["completed"] <= last):
        decode_instance = int(served["instance"][r])
        first = int(served["source"][r]) if apart and served.requests.output[r] > 1 else decode_instance
        ends = [int(served.state.instances[number]["stages"]) - 1 for number in (first, decode_instance)]
        points = [(_name(served, names, first, 0), float(served["scheduled"][r]))]
        points.append((_name(served, names, first, ends[0]), float(served["first"][r])))
        if served.requests.output[r] > 1:
            points.append((_name(served, names, decode_instance, ends[1]), float(served["completed"][r])))
        flows.append((f"request {r}", tuple(points)))
    return flows


def stack_limits(size: int, limits: Sequence[tuple[Array, Sequence[Limit]]]) -> list[Limit]:
    """Limits of parts of a design as arrays over its rows; rows without a limit never violate it.

    Args:
        size: rows of the design.
        limits: rows of a part, and its limits, numbers or of shape (rows,).
    """
    places: dict[tuple[str, int], list[tuple[Array, Limit]]] = {}
    for rows, group_limits in limits:
        seen: dict[str, int] = {}
        for limit in group_limits:
            seen[limit.address] = seen.get(limit.address, 0) + 1
            places.setdefault((limit.address, seen[limit.address]), []).append((rows, limit))

    def column(place: list[tuple[Array, Limit]], value: Callable[[Limit], Any], otherwise: float) -> Array:
        column = np.full(size, otherwise)
        for rows, limit in place:
            column[rows] = value(limit)
        return column

    found_limits = []
    for (address, _), place in places.items():
        any_one = place[0][1]
        parts = tuple(
            (name, column(place, lambda limit, at=at: limit.parts[at][1], 0.0))  # type: ignore[misc]
            for at, (name, _) in enumerate(any_one.parts)
        )
        need, have = column(place, lambda limit: limit.need, 0.0), column(place, lambda limit: limit.have, 1.0)
        found_limits.append(Limit(address, need, have, any_one.unit, parts))
    return found_limits
