"""A served load at fidelity=steady: the closed form of `serving/standing.py` on prices of the closed form, no iteration played.

A design costs some hundred prices, of which a small table is made that designs with equal prices share. What only a run can say
is refused: gaps between single tokens, preemptions, the largest rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.breakdown import Breakdown, Row
from dse.evaluators.account.metrics import per_area
from dse.evaluators.account.played.served import Mean
from dse.evaluators.account.services.prompts import of_load
from dse.evaluators.serving.closed_loop import FEW
from dse.evaluators.serving.loop import Deployment
from dse.evaluators.serving.measures import NEAR, SHORT, VERDICTS
from dse.evaluators.serving.price import FEWER, before, dealt
from dse.evaluators.serving.standing import APART, mix
from dse.evaluators.serving.stood import Stood, alone
from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.later import expected, later, now
from dse.space.requests import Requests
from dse.space.workload import Load

STEADY = "steady"
"""The fidelity's word."""

FIRST = (
    "ttft", "ttft_p50", "ttft_p90", "ttft_p99", "goodput", "slo_attainment", "latency", "queue_delay", "tpot", "tbt_p99",
)  # fmt: skip
"""Metrics that prompts are played for."""

LOADED = "offered_load", "load_verdict"
"""Metrics that a closed loop is played for."""

PRICES = "closed"
"""Whose prices it takes."""

TURNS, FEW_ROWS = (64.0, 1024.0), (1.0, 16.0)
"""Tokens of prompts between which iterations turn from waiting for weights to waiting for engines, and decodes of which engines
take as many rows at a time as they have: there points are closer, and so they are for all tokens of one prompt, whose attention
grows with their square."""

RATIO = 4.0
"""Of a point of a table to the one before it."""

DEALT = 2
"""Requests of each copy of attention up to which a table has points where one more gives a copy another."""


def coarse(axes: Callable[..., list[Array]], load: Load, copies: int = 1) -> Callable[..., list[Array]]:
    """Points of a table of prices for the steady state of a load, of the largest counts as in `price.spread`.

    Fewer than the loop's, between which prices are multilinear, and of what decodes read the one that they read in the mean;
    no token of a prompt attends to more than the longest one. What the largest counts are moves no point, so that designs which
    differ in them come to the same. A load's own prompts, where these are of a length or two, are points as in the loop's
    table.
    """
    context, most = max(1.0, mix(load.requests).context), float(load.requests.prompt.max())
    whole = np.array(of_load(load))

    def found(prefill_tokens: int, prefill_context: int, decode_requests: int, decode_context: int) -> list[Array]:
        spilled = axes(prefill_tokens, prefill_context, decode_requests, decode_context)[-1]
        tokens = risen(prefill_tokens, 4.0, between=(TURNS[0], max(most, TURNS[1])))
        decodes = risen(decode_requests, 2.0, between=FEW_ROWS)
        return [
            np.union1d(tokens, whole[whole <= tokens[-1]]),
            before(
                min(prefill_context, most), RATIO**3, several=FEWER, prompts=min(prefill_tokens, decode_requests),
                beyond=RATIO, copies=copies, turns=DEALT,
            ),
            np.union1d(decodes, dealt(copies, decodes[-1], DEALT)),
            np.array([context]),
            spilled,
        ]  # fmt: skip

    return found


def risen(largest: float, start: float, between: tuple[float, float] = (0.0, 0.0)) -> Array:
    """Nothing, one, and values in equal ratios up to the largest or just beyond it; twice as many in some range.

    >>> risen(100, 64.0).tolist(), risen(5, 4.0).tolist(), risen(300, 16.0, between=(64.0, 1024.0)).tolist()
    ([0.0, 1.0, 64.0, 256.0], [0.0, 1.0, 4.0, 16.0], [0.0, 1.0, 16.0, 64.0, 128.0, 256.0, 512.0])
    """
    found = [0.0, 1.0, start]
    while found[-1] < largest:
        found.append(found[-1] * (RATIO**0.5 if between[0] <= found[-1] < between[1] else RATIO))
    return np.array(found)


def refuse(load: Load) -> None:
    """Raises for what takes runs."""
    if load.largest:
        raise DesignError(
            "workload.rate: largest is found by runs, and fidelity=steady makes none; give a rate, or use fidelity=closed"
        )
    if load.classes:
        raise DesignError(
            "workload.classes: who waits for whom is for runs to say, and fidelity=steady makes none; use fidelity=closed"
        )


class Steady(NamedTuple):
    """A deployment in the steady state.

    Attributes:
        values: what it is worth, by the names of the loop.
        means: iterations of each pool, those with prompts and those of decodes alone.
        span: from the first arrival to the last token. [s]
    """

    values: dict[str, float]
    means: list[list[Mean]]
    span: float


def solved(of: Deployment, load: Load, die: float, system: float) -> Steady:
    """A deployment in the steady state of a load.

    Args:
        of: what is deployed.
        load: requests, and what they must keep.
        die, system: areas. [mm2]

    Raises:
        DesignError: a load without a steady state.
    """
    stands = alone(of, load.requests, load.ttft, load.tpot)
    values = {name: float(value[0]) for name, value in now(measured(stands, load.requests)).items()}
    (found,) = stands.played()
    areas = per_area(values["throughput"], float("nan"), die, system)
    values |= {name: area for name, area in areas.items() if area == area}
    made = [
        [Mean(mean.prompts, *map(float, mean[1:])) for mean in pool if mean.times]
        for pool in means(found, load.requests, len(of.pools))
    ]
    return Steady(values, made, float(found["span"]))


def measured(stands: Stood, requests: Requests) -> dict[str, Any]:
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
    others = tuple(name for name in APART if name not in expected(APART))
    rest = tuple(name for name in FIRST if name not in others)
    return values | later(LOADED, loaded) | later(rest, partial(first, rest)) | later(others, partial(first, others))


def _verdict(load: Any, found: Any, requests: Requests) -> Any:
    """Place in `VERDICTS`, as `measures.verdict` has it, but for the growth of queues, which is of a run."""
    quick = found["prefill"] + float(np.quantile(requests.output - 1, 0.1)) * found["period"]
    brief = (load > 0.5) & (requests.arrival[-1] - requests.arrival[0] < SHORT * quick)
    over, short, backlogged, stable = map(VERDICTS.index, ("overloaded", "too short to say", "backlogged", "stable"))
    known = [(load > 1) & (len(requests) >= FEW), brief, load > 1, load > NEAR]
    return np.select(known, [over, short, over, backlogged], stable) * 1.0


def far(means: Sequence[Sequence[Mean]]) -> Any:
    """Share of all positions read that is not in SRAM; numbers, or of shape (designs,)."""
    read = [(mean.times * mean.decodes * mean.context, mean.spilled) for some in means for mean in some]
    whole: Any = sum(positions for positions, _ in read)
    return sum(positions * share for positions, share in read) / np.maximum(whole, 1e-300)


def explained(means: list[list[Mean]], areas: dict[str, Any], operators: Callable[[int, Mean], Sequence[Row]]) -> Breakdown:
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


def means(found: Any, requests: Requests, pools: int) -> list[list[Mean]]:
    """Iterations that make all tokens of all requests, of one record of `standing.STANDING` or of several.

    Those with prompts, and those of decodes alone, which there may be none of.
    """
    chunks, tokens = len(requests) * found["chunks"], found["tokens"]
    together, beside, far = found["together"], found["beside"], found["spilled"]
    further = requests.output - 1.0
    left, read = float(further.sum()), float((further * (requests.prompt + requests.output / 2)).sum())
    context = read / left if left else 0.0
    own, many = found["past"] + (tokens + 1) / 2, np.maximum(found["decodes"], 1.0)
    prompts = Mean(True, chunks / together, tokens * together, own, beside, np.where(beside > 0, context, 0.0), far)
    alone = np.maximum(0.0, left - prompts.times * beside)
    decodes = Mean(False, alone / many, 0.0, 0.0, many, context, far)
    return [[prompts, decodes]] if pools == 1 else [[prompts], [decodes]]
