"""Attention around a ring: rows get what NumPy says, and the way of keys and values takes what is priced for it."""

from dataclasses import replace

import numpy as np
import pytest

from dse.evaluators.kernels.partition import ring, ring_attention
from dse.evaluators.program.counts import activity
from dse.evaluators.program.rounds import Loop, Program, Round, Send
from dse.evaluators.readers.events import play
from dse.evaluators.readers.numeric import play as by_numbers
from dse.space.mapping import PLACEMENTS
from tests.evaluators.test_partition import ENGINES, LOCKED, WORMHOLE


def drawn(seed: int) -> tuple[str, int, int, int, int]:
    rng = np.random.default_rng(seed)
    sizes = (int(rng.integers(1, 9)) for _ in range(3))
    return (str(rng.choice(PLACEMENTS)), int(rng.choice([1, 2, 3, 4, 6, 8, 9, 16])), *sizes)


def right(at: tuple[str, int, int, int, int], program: Program) -> bool:
    """Whether a program is attention of all rows to all keys."""
    placement, cores, rows, qk_dim, v_dim = at
    rng = np.random.default_rng(rows)
    q, k, v = (3 * rng.normal(size=(cores * rows, dim)).astype(np.float32) for dim in (qk_dim, qk_dim, v_dim))
    tiles = by_numbers(program, ring_attention.place(q, k, v, placement, cores))
    scores = q.astype(float) @ k.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    wanted = shares @ v / shares.sum(axis=1, keepdims=True)
    return bool(np.allclose(ring_attention.result(tiles, placement, cores), wanted, atol=1e-3))


def sends(turn: Round | Loop) -> bool:
    return isinstance(turn, Round) and isinstance(turn.steps[0], Send)


@pytest.mark.parametrize("seed", range(16))
def test_rows_attend_to_all_keys(seed: int) -> None:
    at = drawn(seed)
    assert right(at, ring_attention.steps(*at))


def test_a_wrong_destination_is_noticed() -> None:
    at = ("ring", 8, 4, 5, 3)
    program = ring_attention.steps(*at)
    turns = list(program.strands[0])
    first = next(place for place, turn in enumerate(turns) if sends(turn))
    turn = turns[first]
    assert isinstance(turn, Round)
    keys, values = turn.steps
    assert isinstance(keys, Send)
    turns[first] = Round((replace(keys, target=keys.source), values))
    assert not right(at, replace(program, strands=(tuple(turns),)))


@pytest.mark.parametrize("routing", ["locked", "wormhole"])
def test_blocks_take_the_way_that_is_priced_and_go_on_beside_work(routing: str) -> None:
    fabric, rng, gaps = {"locked": LOCKED, "wormhole": WORMHOLE}[routing], np.random.default_rng(1), list[float]()
    for _ in range(30):
        placement, cores = str(rng.choice(PLACEMENTS)), int(rng.choice([2, 3, 4, 6, 8, 16]))
        rows, dim = int(rng.integers(8, 65)), int(rng.choice([32, 64, 128]))
        program = ring_attention.steps(placement, cores, rows, dim, dim, "float16")
        way, whole = play(ring_attention.messages(program), fabric), play(program, fabric, engines=ENGINES)
        priced = ring.cost(placement, cores, 2.0 * rows * 2 * dim, fabric)
        assert activity(program).sent_bytes == (cores - 1) * cores * rows * 2 * dim * 2
        gaps.append(abs(priced / way.seconds - 1))
        work = play(
            replace(program, strands=(tuple(turn for turn in program.strands[0] if not sends(turn)),)), fabric, engines=ENGINES
        )
        assert max(work.seconds, way.seconds) <= whole.seconds * (1 + 1e-9)
        assert whole.seconds < work.seconds + way.seconds
    assert np.median(gaps) < 0.05
    assert np.quantile(gaps, 0.9) < 0.15
