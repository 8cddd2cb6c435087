"""Conversations as requests: turns whose prompts are all that was said before and something new, with times to think between.

Times are drawn beforehand, so a turn may come before an overloaded machine has answered the one before; nothing here knows it.
"""

import numpy as np

from dse.space.elementwise import Array
from dse.space.errors import DesignError
from dse.space.requests import Requests


def sessions(
    count: int, turns: float, *, rate: float, think: float, system: int, question: float, answer: float, block: int, seed: int
) -> Requests:
    """Conversations that begin at random, each of some turns; hashes cover prompts and answers in whole blocks.

    A block in which the prompt ends has a hash only if the next is whole, too: else it would read as one of the prompt alone.

    Turns are geometric; a turn comes an exponential time after the one before; questions and answers are geometric, at least
    one token each. A prompt is the system's, alike in all conversations, all questions and answers so far, and a question.

    Args:
        count: conversations.
        turns: of one, in the mean, at least 1. [-]
        rate: at which conversations begin, a Poisson process from 0 on. [1/s]
        think: from a turn to the next of a conversation, in the mean. [s]
        system: tokens before the first question, 0 for none. [token]
        question, answer: in the mean, at least 1. [token]
        block: tokens of a hash. [token]
        seed: of the generator.

    Returns:
        Requests in the order of arrival, the first at 0.

    Raises:
        DesignError: a count, a rate, a time or a length out of its range.

    >>> talk = sessions(1, 3.0, rate=1.0, think=9.0, system=32, question=20.0, answer=40.0, block=16, seed=2)
    >>> bool((talk.prompt[1:] > talk.prompt[:-1] + talk.output[:-1]).all())
    True
    """
    if count < 1 or system < 0 or block < 1:
        raise DesignError(f"sessions: {count} of {system} system tokens in blocks of {block}; at least 1, 0 and 1")
    if not min(turns, question, answer) >= 1 or not (0 < rate < np.inf and 0 < think < np.inf):
        raise DesignError(
            f"sessions: {turns} turns of {question} and {answer} tokens, at {rate} Hz, {think} s to think; "
            "lengths are at least 1, the others above 0"
        )
    rng = np.random.default_rng(seed)
    begins = np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate, count - 1))])
    arrival: list[Array] = []
    lengths: list[Array] = []
    hashes: list[Array] = []
    shared, used = system // block, system // block
    for begin in begins:
        many = int(rng.geometric(1 / turns))
        asked, said = rng.geometric(1 / question, many), rng.geometric(1 / answer, many)
        ends = system + np.cumsum(asked + said)
        gaps = rng.exponential(think, many - 1)
        arrival.append(begin + np.concatenate([[0.0], np.cumsum(gaps)]))
        lengths.append(np.stack([ends - said, said], axis=1))
        own = int(ends[-1]) // block - shared
        blocks = np.concatenate([np.arange(shared), np.arange(used, used + own)])
        for end, asks in zip(ends, ends - said, strict=True):
            hashes.append(blocks[: end // block if end // block > -(-asks // block) else asks // block])
        used += own
    times, pairs = np.concatenate(arrival), np.concatenate(lengths).astype(np.int32)
    order = np.argsort(times, kind="stable")
    sorted_hashes = [hashes[r] for r in order]
    starts = np.concatenate([[0], np.cumsum([len(some) for some in sorted_hashes])]).astype(np.int64)
    flat = np.concatenate(sorted_hashes).astype(np.int32)
    return Requests(times[order], pairs[order, 0].copy(), pairs[order, 1].copy(), starts, flat, block)
