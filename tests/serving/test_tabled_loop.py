"""The loop on a table of prices, against a loop of requests that is written down once more for the shipped policies alone."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dse.evaluators.serving.iteration_time import geometric_axes, tabulate_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import POLICIES
from dse.evaluators.serving.simulator import InstancePool, simulate_serving
from dse.space.array_math import Array
from dse.space.requests import Requests, make_requests

LOADS = 12
"""Of each policy."""


def _taken(tokens: Array, attended: Array, decodes: Array, read: Array, spilled: Array) -> Array:
    """Not linear in anything: weights are read once, engines fill up, and caches are read. [s]"""
    rows = tokens + decodes
    return np.asarray(
        1e-3 + 1e-5 * np.maximum(rows, 40.0) + 1e-7 * tokens * attended + 2e-8 * (decodes * read) ** 1.1 + 0 * spilled
    )


def _looked_up(values: Array, axes: list[Array], point: list[float]) -> float:
    """A table between its points, corner by corner."""
    cells = []
    for axis, x in zip(axes, point, strict=True):
        if len(axis) == 1:
            cells.append([(0, 1.0)])
            continue
        low = int(np.clip(np.searchsorted(axis, x, "right") - 1, 0, len(axis) - 2))
        share = (x - axis[low]) / (axis[low + 1] - axis[low])
        cells.append([(low, 1 - share), (low + 1, share)])
    return sum(
        float(np.prod([w for _, w in corner])) * float(values[tuple(at for at, _ in corner)]) for corner in product(*cells)
    )


def _finished(
    requests: Requests, name: str, tokens: int, batch: int, values: Array, axes: list[Array]
) -> list[tuple[float, float]]:
    """When each request has its first token, and its last."""
    many, now = len(requests), 0.0
    done, made = [0] * many, [0] * many  # positions of a prompt, tokens
    first, last = [0.0] * many, [0.0] * many
    waiting, running = list(range(many)), list[int]()
    while waiting or running:
        if not running:
            now = max(now, float(requests.arrival[waiting[0]]))
        decodes = [r for r in running if made[r]]
        plan, budget, chunked = list[tuple[int, int]](), tokens, name == "chunked_prefill"
        if chunked:
            decodes = decodes[:tokens]
            budget -= len(decodes)
        for r in running:
            if not made[r] and budget > 0:  # only chunks leave some of a prompt for later
                plan.append((r, min(int(requests.prompt[r]) - done[r], budget)))
                budget -= plan[-1][1]
        fresh = name != "static" or not running
        while fresh and waiting and requests.arrival[waiting[0]] <= now and len(running) < batch and budget > 0:
            take = int(requests.prompt[waiting[0]])
            if chunked:
                take = min(take, budget)
            elif take > budget and plan:
                break
            running.append(waiting.pop(0))
            plan.append((running[-1], take))
            budget -= take
        if plan and name in ("static", "prefill_first"):
            decodes = []
        prompt, pairs = sum(n for _, n in plan), sum(n * done[r] + n * (n + 1) / 2 for r, n in plan)
        read = sum(int(requests.prompt[r]) + made[r] for r in decodes)
        attended = pairs / prompt if prompt else 0.0
        before = attended - (prompt + 1) / 2 if prompt else 0.0
        if before < 0:
            before = min(1.0, max(2 * attended - 1, 1.0) / prompt) - 1
        now += _looked_up(values, axes, [prompt, before, len(decodes), read / max(len(decodes), 1), 0.0])
        for r, n in plan:
            done[r] += n
        for r in [*decodes, *(r for r, _ in plan if done[r] == requests.prompt[r])]:
            made[r] += 1
            first[r], last[r] = first[r] or now, now
        running = [r for r in running if made[r] < requests.output[r]]
    return list(zip(first, last, strict=True))


@pytest.mark.parametrize("name", ["chunked_prefill", "orca", "prefill_first", "static"])
def test_requests_end_when_a_plain_loop_on_the_same_table_says(name: str) -> None:
    axes = geometric_axes(1 << 14, 1 << 10, 64, 1 << 10)
    price = tabulate_time(_taken, axes)
    values = price.table.reshape([len(axis) for axis in axes])
    rng = np.random.default_rng(11)
    for _ in range(LOADS):
        count, batch = int(rng.integers(1, 60)), int(rng.choice([1, 4, 17, 64]))
        lengths = list(zip(rng.integers(1, 400, count).tolist(), rng.integers(1, 60, count).tolist(), strict=True))
        requests = make_requests(
            lengths, np.cumsum(rng.exponential(10 ** rng.uniform(-4, -1), count) * (rng.random(count) < 0.8))
        )
        tokens = int(rng.choice([16, 100, 512, 4096]))
        rule = POLICIES[name]
        if name in ("chunked_prefill", "prefill_first"):
            rule = replace(rule, tokens=tokens)
        run = simulate_serving(requests, [InstancePool(price, rule, KvMemory(1 << 20, 16), batch=batch)])
        times = _finished(requests, name, rule.tokens, batch, values, axes)
        assert run["first"] == pytest.approx([first for first, _ in times], rel=1e-9)
        assert run["completed"] == pytest.approx([last for _, last in times], rel=1e-9)
