"""Conversations as requests: turns whose prompts are all that was said before and something new, with times to think between.

A turn comes when the one before has been answered and its user has thought: when that is, a run says. Times here are the
earliest that can be.
"""

import numpy as np

from dse.space.elementwise import Array
from dse.space.errors import DesignError, nearest
from dse.space.requests import Requests

SPREADS = ("geometric", "equal")
"""Of turns, questions and answers: geometric, from 1 on; or all as long as the mean."""

MOST_TURNS = 10_000
"""Of a session, in the mean."""


def sessions(
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
    """Conversations that begin at random, each of some turns; hashes cover prompts and answers in whole blocks.

    A block in which the prompt ends has a hash only if the next is whole, too: else it would read as one of the prompt alone.

    A turn comes when the one before has been answered and some time to think has passed, of a gamma distribution.
    A prompt is the system's, alike in all conversations, all questions and answers so far, and a question.

    Args:
        count: conversations; the most where `requests` says how many turns there are.
        turns: of one, in the mean, at least 1. [-]
        rate: at which conversations begin, a Poisson process from 0 on. [1/s]
        think: from an answer to the next turn of a conversation, in the mean. [s]
        system: tokens before the first question, 0 for none. [token]
        question, answer: in the mean, at least 1. [token]
        block: tokens of a hash. [token]
        seed: of the generator.
        cv: standard deviation over mean of times to think; 1 for exponential ones, 0 for all alike. [-]
        spread: a word of `SPREADS`.
        requests: turns of all conversations; the last one is cut. 0 for those of `count` whole ones.

    Returns:
        Requests with turns, the first at 0.

    Raises:
        DesignError: a count, a rate, a time or a length out of its range.

    >>> talk = sessions(1, 3.0, rate=1.0, think=9.0, system=32, question=20.0, answer=40.0, block=16, seed=2)
    >>> bool((talk.prompt[1:] > talk.prompt[:-1] + talk.output[:-1]).all())
    True
    """
    if count < 1 or system < 0 or block < 1:
        raise DesignError(f"sessions: {count} of {system} system tokens in blocks of {block}; at least 1, 0 and 1")
    if spread not in SPREADS:
        raise DesignError(f"sessions: no spread {spread!r}; {nearest(spread, SPREADS)}")
    if not (min(turns, question, answer) >= 1 and turns <= MOST_TURNS and 0 <= cv < np.inf) or not (
        0 < rate < np.inf and 0 <= think < np.inf
    ):
        raise DesignError(
            f"sessions: {turns} turns of {question} and {answer} tokens, at {rate} Hz, {think} s to think (cv {cv}); "
            f"lengths are at least 1, turns at most {MOST_TURNS:,}, times and cv not below 0"
        )
    rng = np.random.default_rng(seed)
    begins = np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, count - 1))])
    lengths, hashes, thinks, befores, places = list[Array](), list[Array](), list[Array](), list[Array](), list[Array]()
    shared, used, made = system // block, system // block, 0
    for _ in range(count):
        many = _whole(rng, turns, 1, spread)[0]
        many = min(many, requests - made) if requests else many
        asked, said = _whole(rng, question, many, spread), _whole(rng, answer, many, spread)
        ends = system + np.cumsum(asked + said)
        thinks.append(rng.gamma(1 / cv**2, think * cv**2, many) if cv and think else np.full(many, think))
        befores.append(made + np.arange(-1, many - 1))
        befores[-1][0] = -1
        places.append(np.arange(many, dtype=np.int32))
        lengths.append(np.stack([ends - said, said], axis=1))
        own = int(ends[-1]) // block - shared
        blocks = np.concatenate([np.arange(shared), np.arange(used, used + own)])
        for end, asks in zip(ends, ends - said, strict=True):
            hashes.append(blocks[: end // block if end // block > -(-asks // block) else asks // block])
        used += own
        made += many
        if requests and made >= requests:
            break
    pairs = np.concatenate(lengths).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum([len(some) for some in hashes])]).astype(np.int64)
    flat = np.concatenate(hashes).astype(np.int32)
    found = Requests(
        np.zeros(made), pairs[:, 0].copy(), pairs[:, 1].copy(), starts, flat, block,
        before=np.concatenate(befores), think=np.concatenate(thinks), turns=np.concatenate(places),
    )  # fmt: skip
    return found.begun(begins[: len(lengths)])


def _whole(rng: np.random.Generator, mean: float, count: int, spread: str) -> Array:
    """Numbers of at least 1 with a mean."""
    drawn = rng.geometric(1 / mean, count) if spread == "geometric" else np.full(count, round(mean))
    return drawn.astype(np.int64)
