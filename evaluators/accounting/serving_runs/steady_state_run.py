"""A served load at fidelity=steady: the closed form of `serving/standing.py` on prices of the closed form, no iteration played.

A design costs some hundred prices, of which a small table is made that designs with equal prices share. What only a run can say
is refused: gaps between single tokens, preemptions, the largest rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.metrics import area_metrics
from dse.evaluators.accounting.serving_instances.prompt_table_points import distinct_prompt_lengths
from dse.evaluators.accounting.serving_runs.run_metrics import MeanIteration
from dse.evaluators.serving.closed_loop import MIN_REQUESTS
from dse.evaluators.serving.iteration_time import FEWER, dealt_request_counts, prefix_axis
from dse.evaluators.serving.run_statistics import LOAD_STATUSES, MIN_DURATION_RATIO, NEAR
from dse.evaluators.serving.simulator import Deployment
from dse.evaluators.serving.steady_state import REPLAYED_FIELDS, request_mix
from dse.evaluators.serving.steady_state_solver import SteadyStateSolver, solve_deployment
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.lazy_metrics import compute_all, expected_metrics, lazy_metrics
from dse.space.requests import Requests
from dse.space.workload import ServingLoad

STEADY = "steady"
"""The fidelity's word."""

FIRST = (
    "ttft", "ttft_p50", "ttft_p90", "ttft_p99", "goodput", "slo_attainment", "latency", "queue_delay", "tpot", "tbt_p99",
)  # fmt: skip
"""Metrics that prompts are played for."""

LOADED = "offered_load", "load_verdict"
"""Metrics that a closed loop is played for."""

ITERATION_FIDELITY = "closed"
"""Whose prices it takes."""

TURNS, FEW_ROWS = (64.0, 1024.0), (1.0, 16.0)
"""Tokens of prompts between which iterations turn from waiting for weights to waiting for engines, and decodes of which engines
take as many rows at a time as they have: there points are closer, and so they are for all tokens of one prompt, whose attention
grows with their square."""

RATIO = 4.0
"""Of a point of a table to the one before it."""

DEALT_POINTS = 2
"""Requests of each copy of attention up to which a table has points where one more gives a copy another."""


def coarse_table_points(axes: Callable[..., list[Array]], load: ServingLoad, copies: int = 1) -> Callable[..., list[Array]]:
    """Points of a table of prices for the steady state of a load, of the largest counts as in `price.spread`.

    Fewer than the loop's, between which prices are multilinear, and of what decodes read the one that they read in the mean;
    no token of a prompt attends to more than the longest one. What the largest counts are moves no point, so that designs which
    differ in them come to the same. A load's own prompts, where these are of a length or two, are points as in the loop's
    table.
    """
    context, most = max(1.0, request_mix(load.requests).context), float(load.requests.prompt.max())
    whole = np.array(distinct_prompt_lengths(load))

    def found(prefill_tokens: int, prefill_context: int, decode_requests: int, decode_context: int) -> list[Array]:
        spilled = axes(prefill_tokens, prefill_context, decode_requests, decode_context)[-1]
        tokens = geometric_points(prefill_tokens, 4.0, between=(TURNS[0], max(most, TURNS[1])))
        decodes = geometric_points(decode_requests, 2.0, between=FEW_ROWS)
        return [
            np.union1d(tokens, whole[whole <= tokens[-1]]),
            prefix_axis(
                min(prefill_context, most), RATIO**3, several=FEWER, prompts=min(prefill_tokens, decode_requests),
                beyond=RATIO, copies=copies, turns=DEALT_POINTS,
            ),
            np.union1d(decodes, dealt_request_counts(copies, decodes[-1], DEALT_POINTS)),
            np.array([context]),
            spilled,
        ]  # fmt: skip

    return found


def geometric_points(largest: float, start: float, between: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Nothing, one, and values in equal ratios up to the largest or just beyond it; twice as many in some range.

    >>> (
    ...     geometric_points(100, 64.0).tolist(),
    ...     geometric_points(5, 4.0).tolist(),
    ...     geometric_points(300, 16.0, between=(64.0, 1024.0)).tolist(),
    ... )
    ([0.0, 1.0, 64.0, 256.0], [0.0, 1.0, 4.0, 16.0], [0.0, 1.0, 16.0, 64.0, 128.0, 256.0, 512.0])
    """
    found = [0.0, 1.0, start]
    while found[-1] < largest:
        found.append(found[-1] * (RATIO**0.5 if between[0] <= found[-1] < between[1] else RATIO))
    return np.array(found)


def refuse_unsteady_load(load: ServingLoad) -> None:
    """Raises for what takes runs."""
    if load.largest:
        raise DesignError(
            "workload.rate: max is found by runs, and fidelity=steady makes none; give a rate, or use fidelity=closed"
        )
    if load.classes:
        raise DesignError(
            "workload.slo_classes: who waits for whom is for runs to say, and fidelity=steady makes none; use fidelity=closed"
        )


class SteadyStateRun(NamedTuple):
    """A deployment in the steady state.

    Attributes:
        values: what it is worth, by the names of the loop.
        means: iterations of each pool, those with prompts and those of decodes alone.
        span: from the first arrival to the last token. [s]
    """

    values: dict[str, float]
    means: list[list[MeanIteration]]
    span: float


def solve_steady_run(of: Deployment, load: ServingLoad, die: float, system: float) -> SteadyStateRun:
    """A deployment in the steady state of a load.

    Args:
        of: what is deployed.
        load: requests, and what they must keep.
        die, system: areas. [mm2]

    Raises:
        DesignError: a load without a steady state.
    """
    stands = solve_deployment(of, load.requests, load.ttft, load.tpot)
    values = {name: float(value[0]) for name, value in compute_all(steady_state_columns(stands, load.requests)).items()}
    (found,) = stands.played()
    areas = area_metrics(values["throughput"], float("nan"), die, system)
    values |= {name: area for name, area in areas.items() if area == area}
    made = [
        [MeanIteration(mean.prompts, *map(float, mean[1:])) for mean in pool if mean.times]
        for pool in mean_iterations(found, load.requests, len(of.pools))
    ]
    return SteadyStateRun(values, made, float(found["span"]))


def steady_state_columns(stands: SteadyStateSolver, requests: Requests) -> dict[str, Any]:
    """Metrics as the loop names them, as far as the steady state says them, shape (designs,).

    Those of `FIRST` and `LOADED` are worked out when somebody asks for them.

    Args:
        stands: designs in the steady state.
        requests: what they serve.
    """
    found, many = stands.found, len(requests)
    span = found["span"]
    values = {
        "throughput": float(requests.output.sum()) / span,
        "request_throughput": many / span,
        "prefill_busy": found["prefill_busy"],
        "decode_busy": found["decode_busy"],
    }
    several = (requests.output > 1).any()

    def loaded() -> dict[str, Any]:
        load = requests.rate / stands.closed()
        return {"offered_load": load, "load_verdict": _verdict(load, found, requests)}

    def first(names: Sequence[str]) -> dict[str, Any]:
        these = stands.played(names)
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
        | lazy_metrics(LOADED, loaded)
        | lazy_metrics(rest, partial(first, rest))
        | lazy_metrics(others, partial(first, others))
    )


def _verdict(load: Any, found: Any, requests: Requests) -> Any:
    """Place in `VERDICTS`, as `measures.verdict` has it, but for the growth of queues, which is of a run."""
    quick = found["prefill"] + float(np.quantile(requests.output - 1, 0.1)) * found["period"]
    brief = (load > 0.5) & (requests.arrival[-1] - requests.arrival[0] < MIN_DURATION_RATIO * quick)
    over, short, backlogged, stable = map(LOAD_STATUSES.index, ("overloaded", "too short to say", "backlogged", "stable"))
    known = [(load > 1) & (len(requests) >= MIN_REQUESTS), brief, load > 1, load > NEAR]
    return np.select(known, [over, short, over, backlogged], stable) * 1.0


def spilled_share(means: Sequence[Sequence[MeanIteration]]) -> Any:
    """Share of all positions read that is not in SRAM; numbers, or of shape (designs,)."""
    read = [(mean.times * mean.decodes * mean.context, mean.spilled) for some in means for mean in some]
    whole: Any = sum(positions for positions, _ in read)
    return sum(positions * share for positions, share in read) / np.maximum(whole, 1e-300)


def steady_state_breakdown(
    means: list[list[MeanIteration]], areas: dict[str, Any], operators: Callable[[int, MeanIteration], Sequence[BreakdownRow]]
) -> Breakdown:
    """The time of all instances at work, operator by operator; when each iteration runs is for a run to say.

    Args:
        means: iterations of each pool.
        areas: by block. [mm2]
        operators: of a pool's mean iteration as often as there are such ones.
    """
    rows = []
    for number, some in enumerate(means):
        name = ("prefill" if number == 0 else "decode") + " instances" if len(means) > 1 else "instances"
        for mean in some:
            what = f"{name}, iterations {'with prompts' if mean.prompts else 'of decodes'}"
            rows += [replace(row, phase=what) for row in operators(number, mean)]
    return Breakdown(tuple(rows), sum(row.seconds for row in rows), areas, {})


def mean_iterations(found: Any, requests: Requests, pools: int) -> list[list[MeanIteration]]:
    """Iterations that make all tokens of all requests, of one record of `standing.STANDING` or of several.

    Those with prompts, and those of decodes alone, which there may be none of.
    """
    chunks, tokens = len(requests) * found["chunks"], found["tokens"]
    together, beside, far = found["together"], found["beside"], found["spilled"]
    further = requests.output - 1.0
    left, read = float(further.sum()), float((further * (requests.prompt + requests.output / 2)).sum())
    context = read / left if left else 0.0
    own, many = found["past"] + (tokens + 1) / 2, np.maximum(found["decodes"], 1.0)
    prompts = MeanIteration(True, chunks / together, tokens * together, own, beside, np.where(beside > 0, context, 0.0), far)
    alone = np.maximum(0.0, left - prompts.times * beside)
    decodes = MeanIteration(False, alone / many, 0.0, 0.0, many, context, far)
    return [[prompts, decodes]] if pools == 1 else [[prompts], [decodes]]
