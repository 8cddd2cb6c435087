"""Compiled binary heap of events in the order of their times, in arrays.

It is in arrays of a record: `when` and `what`, of each event, and how many there are in the first place of `counts`.
"""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import inlined_function

HEAP = 0
"""Place of `counts` with the number of events."""


@inlined_function
def push_event(floor, time, what):
    """Add an event with its time to the heap."""
    k = floor.counts[HEAP]
    floor.counts[HEAP] = k + 1
    while k > 0:
        above = (k - 1) >> 1
        if floor.when[above] <= time:
            break
        floor.when[k], floor.what[k] = floor.when[above], floor.what[above]
        k = above
    floor.when[k], floor.what[k] = time, what


@inlined_function
def pop_event(floor):
    """Remove the first event from the heap; the caller has read it before."""
    last = floor.counts[HEAP] - 1
    floor.counts[HEAP] = last
    time, what = floor.when[last], floor.what[last]
    k, below = 0, 1
    while below < last:
        if below + 1 < last and floor.when[below + 1] < floor.when[below]:
            below += 1
        if floor.when[below] >= time:
            break
        floor.when[k], floor.what[k] = floor.when[below], floor.what[below]
        k, below = below, 2 * below + 1
    floor.when[k], floor.what[k] = time, what
