"""Iteration time from its composition: a constant, a linear form, or a table of another model.

A composition is: prompt tokens and the positions that each attends to on average, itself included; decoding requests
and the positions that each reads on average; and the share of all positions read that had been spilled from SRAM. Times
come from elsewhere; this module stores and interpolates them.

A table has another second axis: positions before a prompt's tokens or, below 0, the fraction of the tokens that one of
several prompts has, less 1. A whole single prompt is at 0, however long. Times jump between that point and as many
tokens of several prompts, each of which has a copy of attention or a run of its own, so a single prompt is never
interpolated between both. Between numbers of prompts, the cost of attention is linear in the tokens of each, as is the
load of the fullest of several copies of attention while all are dealt as many prompts.
"""

from collections.abc import Callable, Sequence
from math import ceil, log
from typing import Any, NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError

AXES = ("prefill_tokens", "prefill_context", "decode_requests", "decode_context", "spilled")
"""Of a composition, in order; units token, positions a token, requests, positions a request, share."""

IterationTimeFunction = Callable[[Array, Array, Array, Array, Array], Any]
"""Seconds of many compositions; arguments in the order of `AXES` broadcast together."""


class IterationTime(NamedTuple):
    """Iteration time as the simulation reads it: sum of a linear form and a table. [s]

    Attributes:
        linear: seconds a step, a prompt token, a pair of query and key in prompts, a decoding request, a position that decoding
            requests read, and a position of those that is in HBM while the rest is in SRAM; shape (6,). [s]
        grid: values of each axis of the table, padded: those of a composition, but for the second one; shape (5, longest).
        sizes: of each axis; shape (5,).
        table: seconds at the grid's points, the last axis fastest; empty for none. [s]
        places, weights: work arrays for the corners of a cell, shape (32,).
    """

    linear: Array
    grid: Array
    sizes: Array
    table: Array
    places: Array
    weights: Array


class TableError(NamedTuple):
    """Relative interpolation error of a table at random compositions between its points.

    Attributes:
        mean, worst: of the absolute values.
        compositions: how many.
    """

    mean: float
    worst: float
    compositions: int


def constant_time(seconds: float) -> IterationTime:
    """Iteration time that is the same for every composition. [s]"""
    return linear_time(seconds)


def linear_time(
    step: float,
    prefill_token: float = 0.0,
    pair: float = 0.0,
    decode_request: float = 0.0,
    position: float = 0.0,
    spilled: float = 0.0,
) -> IterationTime:
    """Iteration time as a linear form of counts; coefficients as in `IterationTime.linear`. [s]

    Raises:
        DesignError: a step takes no time, or a coefficient is negative.
    """
    coefficients = np.array([step, prefill_token, pair, decode_request, position, spilled], float)
    if not step > 0 or not (np.isfinite(coefficients).all() and (coefficients >= 0).all()):
        raise DesignError(
            f"iteration time: coefficients {coefficients.tolist()} s; the constant must be above 0 and none may be negative"
        )
    return _price(coefficients, np.zeros((5, 1)), np.ones(5, np.int64), np.zeros(0))


def tabulate_time(pricing: IterationTimeFunction, axes: Sequence[Array]) -> IterationTime:
    """Tabulate an iteration time at all combinations of axis values, with multilinear interpolation.

    Beyond the axes the table is extrapolated.

    Args:
        pricing: function of iteration times, called once with the counts of all points, which broadcast together.
        axes: rising values of each axis; shapes (any,).

    Raises:
        DesignError: an axis that does not rise, or a composition that takes no time.
    """
    return build_table(pricing(*axis_points(axes)), axes)


def axis_points(axes: Sequence[Array]) -> list[Array]:
    """Counts at all combinations of the axes' values, in the order of `AXES`, as broadcastable arrays.

    >>> tokens, context, *_ = axis_points([np.array([0.0, 8.0]), np.array([-0.5, 0.0, 100.0]), *[np.zeros(1)] * 3])
    >>> context[..., 0, 0, 0].tolist()  # of nothing; of two prompts of 4 tokens, one of 8, and 8 tokens after 100
    [[0.0, 0.0, 0.0], [2.5, 4.5, 104.5]]

    Raises:
        DesignError: an axis that does not rise.
    """
    for name, values in zip(AXES, axes, strict=True):
        if len(values) < 1 or (np.diff(values) <= 0).any():
            raise DesignError(f"iteration-time table: the values of {name} must rise, got {np.asarray(values).tolist()}")
    tokens, before, *others = np.meshgrid(*(np.asarray(values, float) for values in axes), indexing="ij", sparse=True)
    own = np.maximum(tokens * (1 + np.minimum(before, 0.0)), 1.0)  # of a prompt
    return [tokens, np.where(tokens > 0, np.maximum(before, 0.0) + (own + 1) / 2, 0.0), *others]


def build_table(values: Array, axes: Sequence[Array], *, least: float = np.finfo(float).tiny) -> IterationTime:
    """Table of iteration times from values at all points of some axes.

    Args:
        values: at `points(axes)`, in a shape that broadcasts to theirs.
        axes: rising values of each of `AXES`.
        least: smallest allowed value of a composition with tokens; other costs than time may be 0.

    Raises:
        DesignError: a composition below it.
    """
    table, _ = build_tables(np.asarray(values, float)[..., None], axes, least=least)
    return table


def build_tables(values: Array, axes: Sequence[Array], *, least: float = np.finfo(float).tiny) -> tuple[IterationTime, Array]:
    """Tables of several iteration times with equal axes, the last dimension: first table, and all arrays."""
    sizes = np.array([len(axis) for axis in axes])
    if len(axes[-1]) > 1 and axes[-1][0] != 0:
        raise DesignError(
            f"iteration-time table: the values of {AXES[-1]} must begin with 0, got {np.asarray(axes[-1]).tolist()}"
        )
    idle = np.zeros(sizes, bool)
    idle[np.asarray(axes[0]) == 0, :, np.asarray(axes[2]) == 0] = True
    many = values.shape[-1]
    whole = np.broadcast_to(values, (*sizes, many)).reshape(-1, many)
    idle, tables = idle.ravel(), np.ascontiguousarray(whole.T)
    tables = tables.copy() if np.shares_memory(tables, values) else tables
    # an iteration of nothing is never asked for, but stands at a corner of cells that are
    tables[:, idle] = np.where(np.isfinite(tables[:, idle]), tables[:, idle], 0.0)
    wrong = ~np.isfinite(tables) | ((tables < least) & ~idle)
    if wrong.any():
        table = tables[int(np.argmax(wrong.any(axis=1)))]
        bad = int(np.argmax(~np.isfinite(table) | ((table < least) & ~idle)))
        place = np.unravel_index(bad, sizes)
        where = ", ".join(f"{name} {axis[at]:g}" for name, axis, at in zip(AXES, axes, place, strict=True))
        raise DesignError(f"iteration-time table: {table[bad]!r} s for {where}; every iteration must take time")
    grid = np.zeros((len(AXES), sizes.max()))
    for row, axis in zip(grid, axes, strict=True):
        row[: len(axis)] = axis
    return _price(np.zeros(6), grid, sizes, tables[0]), tables


COUNTS, CONTEXTS = 2**0.5, 2.0
"""Of a point of a table to the one before it: of tokens and requests, and of the positions that they attend to."""

SEVERAL, FEWER = (64, 32, 16, 8, 6, 4, 3, 2), (64, 16, 4, 2)
"""Table points of several prompts per iteration, and those of a small table; beyond them, in the ratio of counts."""


MAX_DEALS = 8
"""Requests of each of several copies of attention up to which a table has points where one more gives a copy another."""


def dealt_request_counts(copies: float, most: float, turns: int = MAX_DEALS) -> list[float]:
    """Request counts around full deals to copies of attention: multiples of `copies`, and one more.

    >>> dealt_request_counts(8, 20), dealt_request_counts(1, 20)
    ([8.0, 9.0, 16.0, 17.0], [])
    """
    additions = [turn * copies + more for turn in range(1, turns + 1) for more in (0.0, 1.0)] if copies > 1 else []
    return [number for number in additions if number <= most]


def padding_edges(sizes: Sequence[float], most: float) -> list[float]:
    """Request counts on both sides of each step that padding makes: a recorded batch, and one more.

    Between two of them a padded iteration is linear in its requests, as a table takes it to be.

    >>> padding_edges((1.0, 2.0, 4.0, 8.0), 6)
    [1.0, 2.0, 2.0, 3.0, 4.0, 5.0]
    """
    return [number for size in sizes for number in (size, size + 1.0) if number <= most]


def prefix_axis(
    longest: float,
    ratio: float = CONTEXTS,
    start: float = 64.0,
    several: Sequence[int] = SEVERAL,
    prompts: float = 0.0,
    beyond: float = COUNTS,
    copies: float = 1.0,
    turns: int = MAX_DEALS,
) -> Array:
    """Points of a table's second axis: several prompts, a single prompt, and positions before a prompt.

    Args:
        longest: positions before a prompt at most.
        ratio: of one of their points to the one before it.
        start: the first of them.
        several: prompts of an iteration.
        prompts: of an iteration at most; a table has points up to there, or just beyond it.
        beyond: of one of these points to the one before it, beyond `several`.
        copies: of attention, to which prompts are dealt.
        turns: as of `dealt_request_counts`.

    >>> prefix_axis(100, several=(8, 4, 2)).tolist()
    [-0.875, -0.75, -0.5, 0.0, 64.0, 128.0]
    >>> prefix_axis(100, several=(8, 4, 2), prompts=16, copies=3).round(3).tolist()[:6]
    [-0.938, -0.933, -0.923, -0.917, -0.909, -0.9]
    """
    steps = ceil(max(log(max(longest, start) / start) / log(ratio), 1.0) - 1e-9)
    more = ceil(log(max(prompts / several[0], 1.0)) / log(beyond) - 1e-9)
    many = np.rint(several[0] * beyond ** np.arange(1, more + 1))
    numbers = np.unique([*many, *several, *dealt_request_counts(copies, max(many, default=several[0]), turns)])
    numbers = numbers[numbers > 1]
    return np.concatenate([1.0 / numbers[::-1] - 1.0, [0.0], np.rint(start * ratio ** np.arange(steps + 1))])


def geometric_axes(
    prefill_tokens: int,
    prefill_context: int,
    decode_requests: int,
    decode_context: int,
    *,
    finer: float = 1.0,
    spilled: bool = False,
    whole: Sequence[float] = (),
    copies: float = 1.0,
    graph_sizes: Sequence[float] = (),
) -> list[Array]:
    """Axes of a table from 0 to the largest counts, in equal ratios: dense where counts are small.

    The largest values move no point: a longer request adds points, and leaves the others. Points are whole numbers,
    since a core that computes parts of rows rounds them up; powers of two, as budgets and batches often are, are
    among them.

    Args:
        prefill_tokens, prefill_context, decode_requests, decode_context: the largest of each. [1]
        finer: times as many points, in equal ratios.
        spilled: whether what is read may be in a second memory.
        whole: prompt lengths that are table points.
        copies: of attention, to which requests are dealt.
        graph_sizes: decode batches that an instance pads to.
    """

    def build_axis(largest: int, smallest: int, ratio: float, beside: Sequence[float] = ()) -> Array:
        steps = max(1, ceil(finer * log(max(largest, smallest) / smallest) / log(ratio) - 1e-9))
        points = np.rint(smallest * ratio ** (np.arange(steps + 1) / finer))
        # with 1, no iteration of something lies in a cell with that of nothing, which has no price
        return np.unique(np.concatenate([[0.0, 1.0], points, [point for point in beside if point <= points[-1]]]))

    shares = np.array([0.0, 0.5, 1.0]) if spilled else np.zeros(1)
    return [
        build_axis(prefill_tokens, 1, COUNTS, whole),
        prefix_axis(
            prefill_context, CONTEXTS ** (1 / finer), several=SEVERAL if finer >= 1 else FEWER,
            prompts=min(prefill_tokens, decode_requests), copies=copies,
        ),
        build_axis(decode_requests, 1, COUNTS, dealt_request_counts(copies, np.inf) + padding_edges(graph_sizes, np.inf)),
        build_axis(decode_context, 64, CONTEXTS), shares,
    ]  # fmt: skip


def measure_table_errors(
    tables: Sequence[tuple[IterationTime, Sequence[Array]]],
    pricing: IterationTimeFunction,
    *,
    compositions: int = 2000,
    seed: int = 0,
) -> list[TableError]:
    """Interpolation errors of tables of one iteration time at random compositions, computed in one call.

    Compositions are log-uniform between the ends of a table's axes. Those without prompts and without decodes are drawn
    too, and impossible ones are left out: a prompt's tokens attend to at least half of themselves.
    """
    from dse.evaluators.serving.iteration_time_lookup import table_at_composition

    every = [_drawn(axes, compositions, seed) for _, axes in tables]
    true = np.asarray(pricing(*map(np.concatenate, zip(*every, strict=True))), float).reshape(len(tables), -1)
    errors = list[TableError]()
    for (price, _), drawn, wanted in zip(tables, every, true, strict=True):
        off = np.abs(
            np.array([table_at_composition(price, *composition) for composition in zip(*drawn, strict=True)]) / wanted - 1
        )
        errors.append(TableError(float(off.mean()), float(off.max()), compositions))
    return errors


def _drawn(axes: Sequence[Array], compositions: int, seed: int) -> list[Array]:
    """Counts of compositions, in the order of `AXES`."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number, values in enumerate(axes):
        low, high = (1.0 if number == 1 else values[1], values[-1]) if len(values) > 1 else (0.0, 0.0)
        drawn.append(np.exp(rng.uniform(np.log(low), np.log(high), compositions)) if high > 0 else np.zeros(compositions))
    drawn[0], drawn[2] = np.round(drawn[0]), np.round(drawn[2])
    kind = rng.integers(0, 3, compositions)
    drawn[0][kind == 1] = 0.0
    drawn[2][kind == 2] = 0.0
    drawn[1] = np.maximum(drawn[1], (drawn[0] + 1) / 2)
    return drawn


def _price(coefficients: Array, grid: Array, sizes: Array, table: Array) -> IterationTime:
    return IterationTime(coefficients, grid, sizes, table, np.zeros(32, np.int64), np.zeros(32))
