"""Compiled binary heap of events in the order of their times, in arrays.

It is in arrays of a record: `when` and `what`, of each event, and how many there are in the first place of `counts`.
"""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import inlined_function

HEAP = 0
"""Place of `counts` with the number of events."""


@inlined_function
def push_event(of, time, what):
    """Add an event with its time to the heap."""
    k = of.counts[HEAP]
    of.counts[HEAP] = k + 1
    while k > 0:
        above = (k - 1) >> 1
        if of.when[above] <= time:
            break
        of.when[k], of.what[k] = of.when[above], of.what[above]
        k = above
    of.when[k], of.what[k] = time, what


@inlined_function
def pop_event(of):
    """Remove the first event from the heap; the caller has read it before."""
    last = of.counts[HEAP] - 1
    of.counts[HEAP] = last
    time, what = of.when[last], of.what[last]
    k, below = 0, 1
    while below < last:
        if below + 1 < last and of.when[below + 1] < of.when[below]:
            below += 1
        if of.when[below] >= time:
            break
        of.when[k], of.what[k] = of.when[below], of.what[below]
        k, below = below, 2 * below + 1
    of.when[k], of.what[k] = time, what
