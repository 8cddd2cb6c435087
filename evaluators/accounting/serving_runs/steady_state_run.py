"""Serving load at fidelity=steady_state: closed-form solution on analytical iteration times, no simulation.

A design needs some hundred iteration times in a small table, which designs with equal times share. Quantities that only
a simulation gives are refused: TBT, preemptions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.metrics import area_metrics
from dse.evaluators.accounting.serving_instances.prompt_table_points import distinct_prompt_lengths
from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration, keep_max_rate
from dse.evaluators.serving.closed_loop import MIN_REQUESTS
from dse.evaluators.serving.iteration_time import FEWER, dealt_request_counts, padding_edges, prefix_axis
from dse.evaluators.serving.max_rate import MaxRate
from dse.evaluators.serving.run_statistics import LOAD_STATUSES, MIN_DURATION_RATIO, NEAR
from dse.evaluators.serving.simulator import Deployment
from dse.evaluators.serving.slo_bounds import make_slo_bounds
from dse.evaluators.serving.steady_state import REPLAYED_FIELDS, request_mix
from dse.evaluators.serving.steady_state_max_rate import BINDING, UNLOADED_FIELDS, RateStream, rate_stream
from dse.evaluators.serving.steady_state_solver import SteadyStateSolver, solve_deployment
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.lazy_metrics import compute_all, expected_metrics, make_lazy_metrics
from dse.space.memoize import KeptWithOwner
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

STEADY = "steady_state"
"""Name of the fidelity that solves the steady state without a simulation."""

FIRST = (
    "ttft", "ttft_p50", "ttft_p90", "ttft_p99", "goodput", "slo_attainment", "latency", "queue_delay", "tpot", "tbt_p99",
)  # fmt: skip
"""Metrics for which prompts are replayed."""

LOADED = "offered_load", "load_status"
"""Metrics for which a closed loop is replayed."""

ITERATION_FIDELITY = "analytical"
"""Fidelity of its iteration times."""

TURNS, FEW_ROWS = (64.0, 1024.0), (1.0, 16.0)
"""Tokens of prompts between which iterations turn from waiting for weights to waiting for engines, and decodes of which engines
take as many rows at a time as they have: there points are closer, and so they are for all tokens of one prompt, whose attention
grows with their square."""

RATIO = 4.0
"""Of a point of a table to the one before it."""

DEALT_POINTS = 2
"""Requests of each copy of attention up to which a table has points where one more gives a copy another."""


def coarse_table_points(
    axes: Callable[..., list[Array]], load: ServingLoad, copies: int = 1, graph_sizes: tuple[float, ...] = ()
) -> Callable[..., list[Array]]:
    """Points of a coarse iteration-time table for the steady state of a load.

    The table has fewer points than that of the simulation, with multilinear interpolation; decodes are evaluated at
    the mean context, and no prompt token attends to more than the longest prompt. The largest counts move no point,
    so that designs which differ in them share times. The load's own prompt lengths, if there are one or two, are
    points as in the simulation's table.
    """
    context, most = max(1.0, request_mix(load.requests).context), float(load.requests.prompt.max())
    whole = np.array(distinct_prompt_lengths(load))

    def table_points(prefill_tokens: int, prefill_context: int, decode_requests: int, decode_context: int) -> list[Array]:
        spilled = axes(prefill_tokens, prefill_context, decode_requests, decode_context)[-1]
        tokens = geometric_points(prefill_tokens, 4.0, between=(TURNS[0], max(most, TURNS[1])))
        decodes = geometric_points(decode_requests, 2.0, between=FEW_ROWS)
        return [
            np.union1d(tokens, whole[whole <= tokens[-1]]),
            prefix_axis(
                min(prefill_context, most), RATIO**3, several=FEWER, prompts=min(prefill_tokens, decode_requests),
                beyond=RATIO, copies=copies, turns=DEALT_POINTS,
            ),
            np.union1d(
                decodes,
                dealt_request_counts(copies, decodes[-1], DEALT_POINTS) + padding_edges(graph_sizes, decodes[-1]),
            ),
            np.array([context]),
            spilled,
        ]  # fmt: skip

    return table_points


def geometric_points(largest: float, start: float, between: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Points 0, 1 and a geometric series to the largest value, twice as dense in a given range.

    >>> (
    ...     geometric_points(100, 64.0).tolist(),
    ...     geometric_points(5, 4.0).tolist(),
    ...     geometric_points(300, 16.0, between=(64.0, 1024.0)).tolist(),
    ... )
    ([0.0, 1.0, 64.0, 256.0], [0.0, 1.0, 4.0, 16.0], [0.0, 1.0, 16.0, 64.0, 128.0, 256.0, 512.0])
    """
    points = [0.0, 1.0, start]
    while points[-1] < largest:
        points.append(points[-1] * (RATIO**0.5 if between[0] <= points[-1] < between[1] else RATIO))
    return np.array(points)


def refuse_unsteady_load(load: ServingLoad) -> None:
    """Refuse loads with settings that the steady state cannot evaluate."""
    if load.largest and (load.requests.users or len(load.requests.before)):
        raise DesignError(
            "workload.rate: fidelity=steady_state has no sessions, of which the maximum number of users is that of a "
            "simulation; set workload.sessions=null, or use fidelity=analytical"
        )
    if load.classes:
        raise DesignError(
            "workload.slo_classes: fidelity=steady_state runs no simulation, which priorities need; use fidelity=analytical"
        )


class SteadyStateRun(NamedTuple):
    """Steady state of one deployment: metrics, mean iterations and duration.

    Attributes:
        values: metrics, by the names of the simulation.
        means: iterations of each pool, those with prompts and those of decodes alone.
        span: from the first arrival to the last token. [s]
    """

    values: dict[str, float]
    means: list[list[MeanIteration]]
    span: float


def solve_steady_run(deployment: Deployment, load: ServingLoad, die: float, system: float) -> SteadyStateRun:
    """Solve the steady state of a deployment under a load.

    Args:
        deployment: what is deployed.
        load: requests, and what they must keep.
        die, system: areas. [mm2]

    Raises:
        DesignError: a load without a steady state.
    """
    stands = solve_deployment(deployment, load.requests, load.ttft, load.tpot, largest=max_rate_stream(load))
    values = {name: float(value[0]) for name, value in compute_all(steady_state_columns(stands, load.requests)).items()}
    keep_found_rate(load, stands)
    (record,) = stands.replayed_records()
    areas = area_metrics(values["throughput"], float("nan"), die, system)
    values |= {name: area for name, area in areas.items() if area == area}
    made = [
        [MeanIteration(mean.prompts, *map(float, mean[1:])) for mean in pool if mean.times]
        for pool in mean_iterations(record, load.requests, len(deployment.pools))
    ]
    return SteadyStateRun(values, made, float(record["span"]))


def steady_state_columns(stands: SteadyStateSolver, requests: Requests) -> dict[str, Any]:
    """Steady-state metrics with the names of the simulation's, shape (designs,).

    Metrics of `FIRST` and `LOADED` are computed when read.

    Args:
        stands: designs in the steady state.
        requests: what they serve.
    """
    record, many = stands.found, len(requests)
    span = record["span"]
    values: dict[str, Any] = {
        "throughput": float(requests.output.sum()) / span,
        "request_throughput": many / span,
        "prefill_busy_share": record["prefill_busy_share"],
        "decode_busy_share": record["decode_busy_share"],
    }
    several = (requests.output > 1).any()
    if (largest := stands.max_rates) is not None:
        values |= {"max_rate": largest["rate"], "max_rate_limit": largest["binds"]}
        values |= {name: largest[name] for name in UNLOADED_FIELDS}
        values |= {} if stands.systems is None else {"fleet_systems": stands.systems}

    def loaded() -> dict[str, Any]:
        load = stands.rates / stands.saturation_rates()
        return {"offered_load": load, "load_status": _verdict(load, record, requests, lasts=stands.max_rates is not None)}

    def first(names: Sequence[str]) -> dict[str, Any]:
        these = stands.replayed_records(names)
        good = these["within"]
        gaps = {name: these[name] if several else np.nan + 0 * span for name in ("tpot", "tbt_p99")}
        worth = {name: these[name] for name in FIRST[:4]} | {
            "goodput": good * many / span,
            "slo_attainment": good,
            "latency": these["latency"],
            "queue_delay": these["wait"],
            **gaps,
        }
        return {name: worth[name] for name in names}

    # what nobody is known to ask for is not worked out with the others
    others = tuple(name for name in REPLAYED_FIELDS if name not in expected_metrics(REPLAYED_FIELDS))
    rest = tuple(name for name in FIRST if name not in others)
    return (
        values
        | make_lazy_metrics(LOADED, loaded)
        | make_lazy_metrics(rest, partial(first, rest))
        | make_lazy_metrics(others, partial(first, others))
    )


def max_rate_stream(load: ServingLoad) -> RateStream | None:
    """The stream by which the maximum rate of a load is found; None for a load with a rate."""
    if not load.largest:
        return None
    largest = load.largest
    return _streams.find(load, lambda: rate_stream(load, make_slo_bounds(load, largest)))


def with_busiest_links(load: ServingLoad) -> ServingLoad:
    """A load with its requests at once if the maximum rate is asked, so that links are busiest."""
    return replace(load, requests=load.requests.at_once()) if load.largest else load


def keep_found_rate(load: ServingLoad, solver: SteadyStateSolver) -> None:
    """Keep the maximum rate of the only design of a solver, for later explanations."""
    if solver.max_rates is not None and len(solver.max_rates) == 1:
        (record,) = solver.max_rates
        binds, count = BINDING[int(record["binds"])], int(np.nan_to_num(record["count"]))
        rate, attained, tried = float(record["rate"]), float(record["attained"]), int(record["tried"])
        stream = max_rate_stream(load)
        lasts = stream is not None and (not load.most or stream.needed_requests(rate) <= load.most)
        keep_max_rate(load, MaxRate(rate, None, binds, count, load.seed, None, lasts, attained, tried, 1, rate))


_streams: KeptWithOwner[ServingLoad, RateStream] = KeptWithOwner()
"""Streams of loads, as long ones take a while to draw."""


def _verdict(load: Any, record: Any, requests: Requests, *, lasts: bool) -> Any:
    """Place in `VERDICTS`, as `run_statistics.load_status` has it, but for the growth of queues, which is of a run."""
    quick = record["prefill"] + float(np.quantile(requests.output - 1, 0.1)) * record["period"]
    brief = (load > 0.5) & (requests.arrival[-1] - requests.arrival[0] < MIN_DURATION_RATIO * quick)
    over, short, backlogged, stable = map(LOAD_STATUSES.index, ("overloaded", "too short to say", "backlogged", "stable"))
    brief = brief & (not lasts)  # streams of maximum rates are as long as queues take
    known = [(load > 1) & (len(requests) >= MIN_REQUESTS), brief, load > 1, load > NEAR]
    return np.select(known, [over, short, over, backlogged], stable) * 1.0


def spilled_share(means: Sequence[Sequence[MeanIteration]]) -> Any:
    """Share of the positions read that are not in SRAM; numbers, or of shape (designs,)."""
    read = [(mean.times * mean.decodes * mean.context, mean.spilled) for selected_mean in means for mean in selected_mean]
    whole: Any = sum(positions for positions, _ in read)
    return sum(positions * share for positions, share in read) / np.maximum(whole, 1e-300)


def steady_state_breakdown(
    means: list[list[MeanIteration]], areas: dict[str, Any], operators: Callable[[int, MeanIteration], Sequence[BreakdownRow]]
) -> Breakdown:
    """Breakdown of all instances' busy time by operator; the steady state has no timeline.

    Args:
        means: iterations of each pool.
        areas: by block. [mm2]
        operators: of a pool's mean iteration as often as there are such ones.
    """
    rows = []
    for number, selected_mean in enumerate(means):
        name = ("prefill" if number == 0 else "decode") + " instances" if len(means) > 1 else "instances"
        for mean in selected_mean:
            what = f"{name}, iterations {'with prompts' if mean.prompts else 'of decodes'}"
            rows += [replace(row, phase=what) for row in operators(number, mean)]
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), areas, {})


def mean_iterations(record: Any, requests: Requests, pools: int) -> list[list[MeanIteration]]:
    """Mean iterations that make all tokens of all requests, for records of `STEADY_STATE_RECORD`.

    Each pool has iterations with prompts and iterations of decodes only, of which there may be none.
    """
    chunks, tokens = len(requests) * record["chunks"], record["tokens"]
    together, beside, far = record["together"], record["beside"], record["spilled"]
    further = requests.output - 1.0
    left, read = float(further.sum()), float((further * (requests.prompt + requests.output / 2)).sum())
    context = read / left if left else 0.0
    own, many = record["past"] + (tokens + 1) / 2, np.maximum(record["decodes"], 1.0)
    prompts = MeanIteration(True, chunks / together, tokens * together, own, beside, np.where(beside > 0, context, 0.0), far)
    alone = np.maximum(0.0, left - prompts.times * beside)
    decodes = MeanIteration(False, alone / many, 0.0, 0.0, many, context, far)
    return [[prompts, decodes]] if pools == 1 else [[prompts], [decodes]]
