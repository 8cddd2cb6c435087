"""Conversations as requests: each prompt repeats the conversation so far and adds something new.

A turn arrives when the turn before has been answered and its user has thought; a serving run computes that time. Times
here are the earliest possible.
"""

from typing import NamedTuple

import numpy as np

from dse.space.array_math import Array
from dse.space.errors import DesignError, suggest_nearest
from dse.space.requests import Requests

TURN_DISTRIBUTIONS = ("geometric", "equal")
"""Distributions of turns, questions and answers: geometric, from 1 on; or all equal to the mean."""

MAX_TURNS = 10_000
"""Of a session, in the mean."""


def make_sessions(
    count: int,
    turns: float,
    *,
    rate: float,
    think: float,
    system: int,
    question: float,
    answer: float,
    block: int,
    seed: int,
    cv: float = 1.0,
    spread: str = "geometric",
    requests: int = 0,
) -> Requests:
    """Draw random conversations of several turns; hashes cover prompts and answers in whole blocks.

    A block in which the prompt ends has a hash only if the next is whole, too: else it would read as one of the prompt alone.

    A turn arrives when the one before has been answered and a gamma-distributed think time has passed.
    A prompt is the system prompt, equal in all conversations, all questions and answers so far, and a question.

    Args:
        count: number of conversations; an upper bound if `requests` gives the number of turns.
        turns: mean number of turns of a conversation, at least 1. [-]
        rate: at which conversations begin, a Poisson process from 0 on. [1/s]
        think: mean time from an answer to the next turn. [s]
        system: tokens before the first question, 0 for none. [token]
        question, answer: in the mean, at least 1. [token]
        block: tokens of a hash. [token]
        seed: of the generator.
        cv: standard deviation over mean of think times; 1 for exponential, 0 for constant ones. [-]
        spread: distribution of turns and lengths, of `TURN_DISTRIBUTIONS`.
        requests: total number of turns, the last conversation being cut; 0 for all turns of `count` conversations.

    Returns:
        Requests of session turns, the first at time 0.

    Raises:
        DesignError: a count, a rate, a time or a length out of its range.

    >>> talk = make_sessions(1, 3.0, rate=1.0, think=9.0, system=32, question=20.0, answer=40.0, block=16, seed=2)
    >>> bool((talk.prompt[1:] > talk.prompt[:-1] + talk.output[:-1]).all())
    True
    """
    if count < 1 or system < 0 or block < 1:
        raise DesignError(
            f"sessions: {count} sessions, {system} system tokens, blocks of {block}; expected at least 1, 0 and 1"
        )
    if spread not in TURN_DISTRIBUTIONS:
        raise DesignError(f"sessions: no spread {spread!r}; {suggest_nearest(spread, TURN_DISTRIBUTIONS)}")
    _check(turns, question, answer, rate, think, cv)
    rng = np.random.default_rng(seed)
    begins = np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, count - 1))])
    talks, hashes = list[_Talk](), list[Array]()
    used, made = system // block, 0
    for _ in range(count):
        many = _whole(rng, turns, 1, spread)[0]
        many = min(many, requests - made) if requests else many
        questions, answers = _whole(rng, question, many, spread), _whole(rng, answer, many, spread)
        ends = system + np.cumsum(questions + answers)
        pauses = rng.gamma(1 / cv**2, think * cv**2, many) if cv and think else np.full(many, think)
        before, place = made + np.arange(-1, many - 1), np.arange(many, dtype=np.int32)
        before[0] = -1
        talks.append(_Talk(ends - answers, answers, before, pauses, place))
        hashes += _blocks(ends, answers, system // block, used, block)
        used += int(ends[-1]) // block - system // block
        made += many
        if requests and made >= requests:
            break
    prompts, outputs, befores, thinks, places = map(np.concatenate, zip(*talks, strict=True))
    starts = np.concatenate([[0], np.cumsum([len(digest) for digest in hashes])]).astype(np.int64)
    flat = np.concatenate(hashes).astype(np.int32)
    found_requests = Requests(
        np.zeros(made), prompts.astype(np.int32), outputs.astype(np.int32), starts, flat, block,
        before=befores, think=thinks, turns=places,
    )  # fmt: skip
    return found_requests.with_session_starts(begins[: len(talks)])


class _Talk(NamedTuple):
    """Turns of a conversation, shape (turns,): tokens asked and answered, request before or -1, think times, positions."""

    prompt: Array
    output: Array
    before: Array
    think: Array
    place: Array


def _check(turns: float, question: float, answer: float, rate: float, think: float, cv: float) -> None:
    """Refuses means that are out of their range; arguments of `sessions`."""
    lengths = min(turns, question, answer) >= 1 and turns <= MAX_TURNS
    if not (lengths and 0 <= cv < np.inf and 0 < rate < np.inf and 0 <= think < np.inf):
        raise DesignError(
            f"sessions: {turns} turns of {question} and {answer} tokens, at {rate} Hz, {think} s think "
            f"time (cv {cv}); lengths must be at least 1, turns at most {MAX_TURNS:,}, times and cv at "
            "least 0"
        )


def _blocks(ends: Array, answers: Array, shared: int, used: int, block: int) -> list[Array]:
    """Hashes of each turn of a conversation: of the `shared` blocks of a system's prompt, then its own from `used` on.

    Args:
        ends: tokens after each turn's answer.
        answers: tokens of the last answer in these.
        shared, used, block: blocks of the system's prompt, all hashes so far, tokens of one.
    """
    blocks = np.concatenate([np.arange(shared), np.arange(used, used + int(ends[-1]) // block - shared)])
    return [
        blocks[: end // block if end // block > -(-asks // block) else asks // block]
        for end, asks in zip(ends, ends - answers, strict=True)
    ]


def _whole(rng: np.random.Generator, mean: float, count: int, spread: str) -> Array:
    """Numbers of at least 1 with a mean."""
    drawn = rng.geometric(1 / mean, count) if spread == "geometric" else np.full(count, round(mean))
    return drawn.astype(np.int64)
