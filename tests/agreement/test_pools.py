"""Caches that change cores, summed link by link and played: alone, and beside what pipelines send from stage to stage."""

import numpy as np
import pytest

from evaluators.events import play
from evaluators.graph.pools import Fleet, _flows, laid, ways
from evaluators.machine.engine import engines
from evaluators.machine.fabric import tile_fabric
from evaluators.rounds import Cores, Program, Round, Send, Slot
from space.chip import ROUTINGS, TileChip
from space.elementwise import Array
from space.mapping import ARRANGEMENTS
from tests.samples import asked

TOKENS, POSITION, ACTIVATIONS = 16, 2048.0, 5120.0


def sends(slot: str, pairs: list[tuple[Array, Array]], nbytes: float) -> tuple[Slot, Send]:
    """Messages of so many bytes between pairs of cores, all at once."""
    rows = int(nbytes // 2)
    source, target = (np.array([pair[end] for pair in pairs]) for end in (0, 1))
    start, stop = np.zeros(len(pairs)), np.full(len(pairs), rows)
    cores = (Cores(ends[:, 0], ends[:, 1]) for ends in (source, target))
    return Slot(slot, (rows, 1), "float16", depth=2), Send(slot, *cores, start, stop)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("tp", "pp"), [(1, 4), (2, 4), (4, 8), (2, 16)])
def test_a_cache_takes_as_long_as_its_busiest_link(routing: str, arrangement: str, tp: int, pp: int) -> None:
    chip = asked("chip=npu64", f"chip.noc.routing={routing}", "model=qwen3_4b").base.chip
    assert isinstance(chip, TileChip)
    fabric, fleet = tile_fabric(chip), Fleet(tp, pp, 1, tuple(range(pp)), POSITION, ACTIVATIONS)
    sources, targets = laid(8, 8, arrangement, fleet, fleet)
    caches = [(start, end) for start, end, _ in _flows(sources[0], targets[0], fleet, fleet)]
    slot, moved = sends("kv", caches, TOKENS * POSITION)
    alone = play(Program(8, 8, (slot,), ((Round((moved,)),),)), fabric, engines=engines(chip)).seconds
    summed = ways(8, 8, arrangement, fleet, fleet, fabric, TOKENS, 0.0, 1.0)
    assert alone == pytest.approx(TOKENS * summed.per_token, rel=0.005)

    pipes = [
        pair for of in (sources[0], targets[0]) for pair in zip(of[:-1].reshape(-1, 2), of[1:].reshape(-1, 2), strict=True)
    ]
    other, passed = sends("x", pipes, TOKENS * ACTIVATIONS / tp)
    both = play(Program(8, 8, (slot, other), ((Round((moved, passed)),),)), fabric, engines=engines(chip)).seconds
    together = TOKENS * ways(8, 8, arrangement, fleet, fleet, fabric, TOKENS, 1e30, 1.0).per_token
    # nobody is faster than the sum; messages that hold links while they wait for others make it up to three times as long
    assert together * (1 - 1e-9) <= both <= 3.3 * together
