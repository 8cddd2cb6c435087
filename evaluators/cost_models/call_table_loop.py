"""Compiled loop that computes the step time of many designs from a table of calls.

It takes a few designs at a time, so that their data stays in the processor's cache.

What a call takes is as `call_cost` has it, and when it runs as `timeline.schedule_segment`. To start an operation of NumPy
takes as long as the operation on a thousand designs; a step has a hundred and more.
"""

from typing import Any

from dse.evaluators.calls import prefetch
from dse.evaluators.cost_models.call_table_columns import (
    AWAITED,
    BUDGET,
    COUNT,
    DESIGNS_PER_BATCH,
    FAR,
    FETCH,
    LOCAL,
    MACS,
    MATRIX,
    NEAR,
    OPERATIONS,
    OVERHEAD,
    SAVED,
    SIZE,
)
from dse.evaluators.machine.compile_cache import compiled_loop, inlined_function
from dse.evaluators.machine.compiled_math import closed_form
from dse.space.array_math import maximum
from dse.space.mapping import PREFETCH

NONE, WHOLE = map(PREFETCH.index, ("none", "whole"))
"""Policies of prefetching, by their places; the other one prefetches in part."""

_whole, _in_part = closed_form(prefetch.whole_if_fits), closed_form(prefetch.part_that_fits)


@inlined_function
def _busy(amounts: Any, rates: Any, elements: Any, own: Any, span: slice, engines: Any, reads: Any) -> None:
    """Writes what a call takes of engines and of memory, nothing being prefetched. [s]"""
    count, macs, operations, local, fetch = amounts[COUNT], amounts[MACS], amounts[OPERATIONS], amounts[LOCAL], amounts[FETCH]
    matrix = rates[MATRIX, span]
    for at in range(len(matrix)):
        engines[at] = maximum(count * (macs * matrix[at]), operations * elements[at])
    near, far, size = rates[NEAR, span], rates[FAR, span], rates[SIZE, span]
    for at in range(len(near)):
        reads[at] = local * (far[at] if local > size[at] else near[at]) + fetch * own[at]


@inlined_function
def _fitting(requests: Any, policy: int, budget: Any, brought: Any) -> None:
    """Writes the bytes of a call that fit in a budget. [B]"""
    need, before = requests[0], requests[1]
    if policy == WHOLE:
        for at in range(len(budget)):
            brought[at] = _whole(need, before, budget[at])
    else:
        for at in range(len(budget)):
            brought[at] = _in_part(need, before, budget[at])


@inlined_function
def _ahead(
    requests: Any,
    policy: int,
    two_budgets: bool,
    rates: Any,
    own: Any,
    apart: bool,
    span: slice,
    reads: Any,
    left: Any,
    brought: Any,
) -> None:
    """Writes what is left of reading for a call, once what is prefetched of it is there, and what of that is awaited. [s]"""
    saved, far = rates[SAVED, span], rates[FAR, span]
    _fitting(requests, policy, rates[BUDGET, span], brought)
    if apart:
        for at in range(len(far)):
            left[at] = reads[at] - brought[at] * (own[at] - far[at] + saved[at])
    else:
        for at in range(len(far)):
            left[at] = reads[at] - brought[at] * saved[at]
    if two_budgets:
        _fitting(requests, policy, rates[AWAITED, span], brought)
    for at in range(len(far)):
        brought[at] *= far[at]


@inlined_function
def _last(engines: Any, reads: Any, overhead: Any, ends: Any) -> None:
    """Writes how long a call takes. [s]"""
    for at in range(len(overhead)):
        ends[at] = maximum(engines[at], reads[at]) + overhead[at]


@inlined_function
def _after(now: Any, took: Any, many: int) -> None:
    """Adds a call that waits for nothing but the one before it."""
    for at in range(many):
        now[at] += took[at]


@inlined_function
def _beside(now: Any, arrivals: Any, took: Any, many: int) -> None:
    """Adds a call that waits for what is prefetched of it too."""
    for at in range(many):
        now[at] = maximum(now[at], arrivals[at]) + took[at]


@compiled_loop
def write_step_seconds(
    calls: Any,
    kinds: Any,
    ahead: Any,
    hidden: Any,
    runs: Any,
    streams: Any,
    blocks: Any,
    times: Any,
    policy: int,
    two_budgets: bool,
    rates: Any,
    ends: Any,
    near: Any,
    seconds: Any,
) -> None:
    """Write the step time of each design to `seconds`. [s]

    Args:
        calls: of each structure what its different calls ask for, shape (structures, calls, ASKED).
        kinds: of calls the rates of operations on elements and of bytes that they read, shape (2, calls).
        ahead: of calls that can be prefetched, how many bytes, and what was asked for before them, by structures. [B],
            shape (structures, hidden, 2)
        hidden: which calls these are, shape (hidden,).
        runs: of calls in the order of their blocks, which it is, and which of `hidden`, -1 for none, shape (runs, 2).
        streams: which of `hidden` are prefetched, in the order of their blocks.
        blocks: ends of `runs` and of `streams`, and the rate with the time of its opener, -1 for none, shape (3, blocks + 1);
            the first column is where they begin.
        times: that each block runs, shape (blocks,).
        policy, two_budgets: of prefetching, and whether what is waited for has a budget of its own.
        rates: those above, and others that blocks and calls name, shape (rates, designs).
        ends: where designs of each structure begin, shape (structures + 1,).
        near: for numbers, shape (3 calls + 4 hidden + 1, TOGETHER).
        seconds: to be written, shape (designs,).
    """
    size, count = calls.shape[1], len(hidden) if policy != NONE else 0
    engines, reads, took = near[:size], near[size : 2 * size], near[2 * size : 3 * size]
    rest, now = near[3 * size :], near[-1]
    left, beside, other_rest, brought = (
        rest[:count],
        rest[count : 2 * count],
        rest[2 * count : 3 * count],
        rest[3 * count : 4 * count],
    )
    for structure in range(len(ends) - 1):
        for first in range(ends[structure], ends[structure + 1], DESIGNS_PER_BATCH):
            last = min(first + DESIGNS_PER_BATCH, ends[structure + 1])
            these, total, many = slice(first, last), seconds[first:last], last - first
            overhead = rates[OVERHEAD, these]
            for call in range(size):
                elements, own = rates[kinds[0, call], these], rates[kinds[1, call], these]
                _busy(calls[structure, call], rates, elements, own, these, engines[call], reads[call])
                _last(engines[call], reads[call], overhead, took[call])
            for place in range(count):
                call, requests = hidden[place], ahead[structure, place]
                own, apart = rates[kinds[1, call], these], kinds[1, call] != FAR
                _ahead(requests, policy, two_budgets, rates, own, apart, these, reads[call], left[place], brought[place])
                _last(engines[call], left[place], overhead, beside[place])
            for at in range(many):
                total[at] = 0.0
            for block in range(len(times)):
                opener = blocks[2, block + 1]
                for at in range(many):
                    now[at] = 0.0
                if opener >= 0:
                    _after(now, rates[opener, these], many)
                for turn in range(blocks[1, block], blocks[1, block + 1] if count else 0):
                    place = streams[turn]
                    for at in range(many):
                        other_rest[place, at] = brought[place, at]
                    if turn > blocks[1, block]:
                        _after(other_rest[place], other_rest[streams[turn - 1]], many)
                for turn in range(blocks[0, block], blocks[0, block + 1]):
                    call, place = runs[turn]
                    if place < 0 or not count:
                        _after(now, took[call], many)
                    else:
                        _beside(now, other_rest[place], beside[place], many)
                for at in range(many):
                    total[at] += now[at] * times[block]
