"""Conversations: what a turn's prompt has, and what of it a pool that forgets nothing reuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.serving.kvcache import Memory
from dse.evaluators.serving.loop import Pool, serve
from dse.evaluators.serving.policy import policy
from dse.evaluators.serving.price import constant
from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.sessions import sessions


@st.composite
def talks(draw: st.DrawFn) -> Requests:
    return sessions(
        draw(st.integers(1, 6)), draw(st.sampled_from([1.0, 2.5, 6.0])), rate=draw(st.sampled_from([1e-6, 0.1])), think=1e6,
        system=draw(st.integers(0, 60)), question=draw(st.sampled_from([1.0, 20.0])), answer=draw(st.sampled_from([1.0, 50.0])),
        block=16, seed=draw(st.integers(0, 1000)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(talks())
def test_hashes_are_of_whole_blocks_of_prompt_and_answer(many: Requests) -> None:
    assert many.arrival[0] == 0
    assert (np.diff(many.arrival) >= 0).all()
    assert (many.spans == np.diff(many.starts) * 16).all()
    assert (many.spans <= many.total).all()
    assert (many.spans > many.prompt - 16).all()


@settings(max_examples=60, deadline=None)
@given(talks())
def test_answers_are_reused_by_the_next_turn(many: Requests) -> None:
    """One instance with room for all, and time to think: leading blocks that were computed before, never all of a prompt."""
    spaced = replace(many, arrival=np.arange(len(many)) * 1e4)
    pool = Pool(constant(1e-3), policy("chunked", tokens=4096), Memory(1 << 20, 4, spare=0.0), pooled=True)
    found = serve(spaced, [pool])
    before: set[int] = set()
    for r in range(len(many)):
        mine = many.hashes[many.starts[r] : many.starts[r + 1]].tolist()
        known = next((place for place, block in enumerate(mine) if block not in before), len(mine))
        assert found["hit"][r] == min(known, (many.prompt[r] - 1) // 16) * 16
        # the last token of an answer is never computed
        before |= set(mine[: (many.total[r] - 1) // 16])


def test_conversations_that_cannot_be_are_refused() -> None:
    with pytest.raises(DesignError, match="sessions: 0 of 8 system tokens"):
        sessions(0, 2.0, rate=1.0, think=1.0, system=8, question=2.0, answer=2.0, block=16, seed=0)
    with pytest.raises(DesignError, match=r"0\.5 turns"):
        sessions(1, 0.5, rate=1.0, think=1.0, system=8, question=2.0, answer=2.0, block=16, seed=0)
