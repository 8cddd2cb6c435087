"""Equal prompts that represent an iteration, and table points for their times."""

from collections.abc import Sequence

import numpy as np

from dse.evaluators.serving.iteration_time import prefix_axis
from dse.space.array_math import Array
from dse.space.workload import ServingLoad

MAX_JUMPS = 12
"""Steps of an iteration time that have table points on both sides."""

MAX_DISTINCT_PROMPTS = 8
"""Lengths of prompts that a table of whole tokens has points for."""

TIMES = (1, 2, 3, 4)
"""Counts of concurrent prompts of one or two lengths whose tokens are table points too."""

PER_DOUBLING = 2
"""Of its other points: powers of two, as budgets and batches are, are among them."""

SHORTEST = 16
"""Positions before a prompt's tokens, the first ones of a table."""


def equal_prompts(tokens: Array, context: Array) -> tuple[Array, Array, Array]:
    """Equal prompts for a token sum and mean context: their number, tokens and earlier tokens.

    A whole prompt of n tokens attends to (n + 1) / 2 of its own positions on average. So there are T / (2 c - 1)
    prompts, rounded; context beyond that is cached before them: the past of a chunk.

    Args:
        tokens: of all prompts, 1 at least. Shape (iterations,)
        context: positions that each of these attends to, itself included. Shape (iterations,)

    >>> [found.tolist() for found in equal_prompts(np.array([300.0, 900.0, 100.0]), np.array([150.5, 150.5, 250.5]))]
    [[1.0, 3.0, 1.0], [300.0, 300.0, 100.0], [0.0, 0.0, 200.0]]
    """
    prompts = np.maximum(np.rint(tokens / np.maximum(2 * context - 1, 1.0)), 1.0)
    own = tokens / prompts
    return prompts, own, np.maximum(context - (own + 1) / 2, 0.0)


def fractional_prompts(tokens: Array, context: Array) -> tuple[Array, Array]:
    """Tokens and earlier tokens per prompt when the number of prompts may be fractional.

    Times then have no jumps. Pairs of queries and keys equal tokens times context, unless a window limits them.

    Args:
        tokens, context: as of `equal_prompts`; they broadcast together.

    Returns:
        Tokens of each prompt, and those before it, of which there are some for a prompt alone.

    >>> [
    ...     found.tolist()
    ...     for found in fractional_prompts(np.array([300.0, 900.0, 100.0, 0.0]), np.array([150.5, 150.5, 250.5, 0.0]))
    ... ]
    [[300.0, 300.0, 100.0, 1.0], [0.0, 0.0, 200.0, 0.0]]
    """
    own = np.maximum(np.minimum(tokens, 2 * context - 1), 1.0)
    return own, np.where(tokens > 0, np.maximum(context - (own + 1) / 2, 0.0), 0.0)


def distinct_prompt_lengths(load: ServingLoad, most: int = 2) -> list[float]:
    """Distinct prompt lengths if they are few, else none; tables get these as points. [token]"""
    lengths: list[float] = np.unique(load.requests.prompt).tolist()
    return lengths if len(lengths) <= most else []


def table_points(
    prompt: int,
    prompt_context: int,
    decodes: int,
    context: int,
    *,
    steps: tuple[int, int, int],
    begun: float,
    whole: Sequence[float] = (),
    jumps: int = MAX_JUMPS,
) -> list[Array]:
    """Points of an iteration-time table: even ratios, and both sides of the first padding steps.

    The largest counts move only the last point, so tables of other budgets and batches share the rest.

    Args:
        prompt, prompt_context, decodes, context: the largest counts, in the order of `iteration_time.AXES`.
        steps: tokens of prompts, decodes, and context of decodes, after which a time jumps since tiles are padded.
        begun: positions of a request when it has generated nothing.
        whole: lengths of prompts that are table points.
        jumps: steps with points on both sides.
    """

    def axis(largest: float, step: float, others: Sequence[float]) -> Array:
        ends, most = step * np.arange(1, jumps + 1), max(largest, 2.0)
        even = 2.0 ** (np.arange(PER_DOUBLING * np.log2(most) + 1) / PER_DOUBLING)
        points = np.concatenate([[0.0, most], even, ends, ends + 1, others])
        return np.unique(points[points <= most])

    tokens = axis(prompt, steps[0], [max(prompt, 2), *whole])
    past = prefix_axis(prompt_context, 2.0 ** (1 / PER_DOUBLING), float(SHORTEST), prompts=min(prompt, decodes))
    return [tokens, past, axis(decodes, steps[1], []), axis(context, steps[2], [begun]), np.zeros(1)]


def integer_table_points(load: ServingLoad, prompts: int, batch: int) -> list[Array]:
    """Integer points of an iteration-time table, including the load's prompt lengths if they are few."""
    whole = [
        times * length
        for length in distinct_prompt_lengths(load, MAX_DISTINCT_PROMPTS)
        for times in (TIMES if len(distinct_prompt_lengths(load)) else TIMES[:1])
    ]
    begun = float(np.rint(load.requests.prompt.mean()))
    points = table_points(prompts, load.longest, batch, load.longest, steps=(1, 1, 1), begun=begun, whole=whole, jumps=0)
    return [np.unique(np.where(axis < 0, axis, np.rint(axis))) for axis in points]
