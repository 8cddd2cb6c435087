"""Speculative decoding, compiled: memory for drafted tokens, and the number accepted.

A decoding request has `guesses` rows beside that of its next token. The first `n` drafts are right where `n` numbers in
a row lie below the acceptance; each is a hash of the seed, the request, the tokens it has, and the draft, so that a run
draws the same whatever the order in which its iterations end. A request keeps no draft beyond its last token, and needs
no memory there.

Throughout: q is a request and r its number, pool its pool.

Source:
    [leviathan2023] guesses that are accepted up to the first wrong one; [steele2014] SplitMix64, whose mixer hashes.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import compiled_inlined, inlined_function

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Of SplitMix64: what a state goes on by, and the factors of its mixer."""

UNIT = 2.0**-53


@inlined_function
def _mixed(x):
    """SplitMix64's mixer after one step of its state."""
    x = x + STEP
    x = (x ^ (x >> np.uint64(30))) * FIRST
    x = (x ^ (x >> np.uint64(27))) * SECOND
    return x ^ (x >> np.uint64(31))


@compiled_inlined
def uniform_draw(seed, r, made, guess):
    """Uniform number in [0, 1) from a hash of seed, request, tokens made and draft index."""
    x = _mixed(np.uint64(seed))
    x = _mixed(x ^ np.uint64(r))
    x = _mixed(x ^ np.uint64(made))
    x = _mixed(x ^ np.uint64(guess))
    return np.float64(x >> np.uint64(11)) * UNIT


@inlined_function
def positions_needed(pool, q):
    """Positions that a decoding request needs: up to its next token, and those of drafts. [token]"""
    return q.prompt + q.made + min(pool.guesses, q.output - q.made - 1)


@inlined_function
def accepted_tokens(pool, r, q):
    """Number of accepted drafts of a request's iteration, not beyond its last token.

    `made` is the count before the iteration.
    """
    most, tokens = min(pool.guesses, q.output - q.made - 1), 0
    while tokens < most and uniform_draw(pool.seed, r, q.made, tokens) < pool.acceptance:
        tokens += 1
    return tokens
