"""Times at which instances have to be looked at next, compiled: a tree of least times.

An instance wakes when the first of its lanes ends, or when its first stage is free if it has something to start. Whatever
happens to it before, as a request that comes, wakes it at once. Instances that sleep are as they were: a look at them would
change nothing.

The tree is an array: the least of places 2 k and 2 k + 1 is at k, and instances are its second half. s is the
`simulator_state.ServingState`, i the number of an instance, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dse.evaluators.machine.compile_cache import called_part, inlined_function


@inlined_function
def earliest_wake(s):
    """The earliest time at which an instance wakes; infinite for none. [s]"""
    return s.wakes[1]


@called_part
def earliest_before(s, i):
    """The earliest time at which an instance wakes whose number is below `i`; infinite for none. [s]"""
    tree, place = s.wakes, len(s.wakes) // 2 + i
    if 2 * i == len(tree):
        return tree[1]
    t = np.inf
    while place > 1:
        if place % 2 == 1:
            t = min(t, tree[place - 1])
        place //= 2
    return t


@called_part
def set_wake_time(s, i, t):
    """Set the time at which an instance wakes; minus infinity is at the present instant. [s]"""
    tree, place = s.wakes, len(s.wakes) // 2 + i
    tree[place] = t
    while place > 1:
        place //= 2
        least = min(tree[2 * place], tree[2 * place + 1])
        if tree[place] == least:
            return
        tree[place] = least


@called_part
def next_awake(s, i, t):
    """First instance from number `i` on that is awake at an instant; the number of leaves for none."""
    tree, leaves = s.wakes, len(s.wakes) // 2
    if i >= leaves or tree[1] > t:
        return leaves
    place = leaves + i
    while tree[place] > t:
        while place % 2 == 1:  # the last of its branch, up to the root
            place //= 2
        if place == 0:
            return leaves
        place += 1
    while place < leaves:
        place *= 2
        if tree[place] > t:
            place += 1
    return place - leaves
