"""Statistics of iterations in a serving run, compiled: busiest ones, concurrency and sums.

Power rises with the tokens of an iteration, until engines are full, and then with what attention reads beside them.
With a full budget of tokens it is greatest for some share of decodes, which depends on the chip. So an iteration is
kept for each octave of decoding requests, with prompts and without: the one of most tokens, and among these the one of
most positions.

Costs of iterations are not linear in their tokens: weights are read once, and activations may not fit. So iterations
are summed separately by their tokens, in half octaves.
"""

# mypy: disable-error-code="no-untyped-def"

import math

import numpy as np

from dse.evaluators.machine.compile_cache import inlined_function
from dse.evaluators.serving.simulator_state import SPANS

OCTAVES = np.array([math.frexp(requests)[1] for requests in range(1024)], dtype=np.uint8)
"""Of so many requests; `frexp` in each iteration is what the loop would notice."""

HALVES, FIRST = 51, 2 * 1023
"""Bits of a number behind its exponent and the first of its mantissa; the place of 1."""


@inlined_function
def keep_busiest(kept, f):
    """Keep an iteration if it is the busiest of its octave, by tokens and positions.

    `kept` has the shape (2, octaves): without prompts, with prompts.
    """
    requests = int(f.requests)
    octave = OCTAVES[requests] if requests < len(OCTAVES) else math.frexp(f.requests)[1]
    most = kept[1 if f.prompt > 0 else 0, min(octave, kept.shape[1] - 1)]
    more = f.prompt + f.requests - most.prompt - most.requests
    if more > 0 or (more == 0 and f.pairs + f.positions > most.pairs + most.positions):
        most.prompt, most.pairs, most.requests = f.prompt, f.pairs, f.requests
        most.positions, most.past, most.far = f.positions, f.past, f.far


@inlined_function
def span_index(f):
    """Index of the half octave of an iteration's prompt tokens, or of its decodes if it has no prompts."""
    tokens = f.prompt if f.prompt > 0 else f.requests
    place = (np.float64(tokens).view(np.int64) >> HALVES) - FIRST  # exponents come before mantissas
    return min(max(place, 0), SPANS - 1)


@inlined_function
def count_start(at, lane, prompts):
    """Count an iteration that begins in a lane."""
    lane.prompts = prompts
    if prompts:
        at.prompts += 1
    else:
        at.decodes += 1
    at.most_prompts = max(at.most_prompts, at.prompts)
    at.most_decodes = max(at.most_decodes, at.decodes)
    at.most = max(at.most, at.prompts + at.decodes)


@inlined_function
def count_end(at, lane):
    """Count an iteration that ends in a lane."""
    if lane.prompts:
        at.prompts -= 1
    else:
        at.decodes -= 1
