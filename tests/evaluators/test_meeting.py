"""Messages that meet, played link by link, have the same times as the earliest head first, to the bit."""

from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from dse.evaluators.machine import link_contention as meeting
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.space.array_math import Array

PLAIN = MeshFabric(
    hop=1e-9, stage=3e-9, word=1e-9, copy=0.0, post=0.0, ramp=2e-9, launch=0.0, call=0.0, mac=0.0, operation=0.0, special=0.0,
    word_bytes=4,
)  # fmt: skip


def drawn(rng: np.random.Generator) -> tuple[list[Array], Array, list[Array], MeshFabric]:
    """Ends and words of messages, what is kept of a mesh, and its fabric; times are often the same, and often nothing costs."""
    rows, cols, count = (int(side) for side in rng.integers(1, (9, 9, 80)))
    ends = [rng.integers(0, side, count) for side in (rows, cols, rows, cols)]
    pattern = rng.integers(4)
    if pattern == 1:  # along rows
        ends[2] = ends[0].copy()
    elif pattern == 2:  # all to one core
        ends[2][:], ends[3][:] = ends[2][0], ends[3][0]
    elif pattern == 3:  # skewed, as a GEMM begins
        row, col = (axis.ravel() for axis in np.indices((rows, cols)))
        ends = [row, col, row, (row + col) % cols]
    words = rng.integers(0, 5, len(ends[0])) * 1.0
    shapes = (*[(rows, cols)] * 4, (2, rows, cols), (4, rows * cols))
    state = [(rng.integers(0, 5, shape) if rng.random() < 0.5 else 5 * rng.random(shape)) * 1e-8 for shape in shapes]
    free = {"hop": rng.choice([0.0, 7e-10]), "ramp": rng.choice([0.0, 2e-9]), "copy": rng.choice([0.0, 2e-9])}
    return ends, words, state, PLAIN._replace(post=rng.choice([0.0, 5e-9]), **free)


def walked(ends: list[Array], words: Array, state: list[Array], fabric: MeshFabric) -> Array:
    """When targets have messages: each head takes ramps and links of its route in turn, the earliest of all heads first."""
    ready, free, engine, read, ramps, links = state
    rows, cols = ready.shape
    end, heads, routes = np.zeros(len(words)), [], {}
    for i, (row, col, to_row, to_col) in enumerate(zip(*ends, strict=True)):
        if (row, col) == (to_row, to_col):
            end[i] = max(ready[row, col], free[row, col])
            read[row, col] = max(read[row, col], end[i])
            continue
        start = max(ready[row, col], engine[row, col]) + fabric.post
        engine[row, col] = start + words[i] * fabric.copy
        heappush(heads, (max(start, free[to_row, to_col]), i))
        east = [(0, row * cols + at, at) for at in range(col, to_col)]
        west = [(1, row * cols + cols - 1 - at, cols - 1 - at) for at in range(col, to_col, -1)]
        south = [(2, to_col * rows + at, at) for at in range(row, to_row)]
        north = [(3, to_col * rows + rows - 1 - at, rows - 1 - at) for at in range(row, to_row, -1)]
        routes[i] = east + west + south + north
    begun, place = {}, dict.fromkeys(routes, -1)
    while heads:
        time, i = heappop(heads)
        row, col, to_row, to_col = (axis[i] for axis in ends)
        route, busy, stream = routes[i], words[i] * fabric.word, words[i] * max(fabric.word, fabric.copy)
        if place[i] < 0:
            begun[i] = time = max(time, ramps[0, row, col])
            ramps[0, row, col] = time + stream
            read[row, col] = max(read[row, col], time + stream)
            time += fabric.ramp
        elif place[i] < len(route):
            way, link, along = route[place[i]]
            time = max(time, links[way, link] + along * fabric.hop)
            links[way, link] = time - along * fabric.hop + busy
            time += fabric.hop + (fabric.ramp if place[i] + 1 == len(route) else 0.0)
        else:
            time = max(time, ramps[1, to_row, to_col])
            ramps[1, to_row, to_col] = time + busy
            end[i] = max(begun[i] + 2 * fabric.ramp + len(route) * fabric.hop + stream, time + busy) + fabric.stage
            continue
        place[i] += 1
        heappush(heads, (time, i))
    return end


@pytest.mark.parametrize("seed", range(150))
def test_links_one_by_one_are_the_earliest_head_anywhere_to_the_bit(seed: int) -> None:
    ends, words, state, given_engine = drawn(np.random.default_rng(seed))
    other: list[Any] = [times.copy() for times in state]
    ready, free, engine, read, ramps, links = state
    end = np.empty(len(words))
    meeting.carry_contending_messages(
        *ends, words, given_engine.stage, False, ready, free, engine, ramps, links, given_engine, end, read
    )
    assert np.array_equal(end, walked(ends, words, other, given_engine))
    for times, expected in zip(state, other, strict=True):
        assert np.array_equal(times, expected)
