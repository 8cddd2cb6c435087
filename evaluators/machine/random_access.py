"""Slowdown of random accesses to main memory, as a formula.

Few bytes are read of each row that a bank opens.

`evaluators.machine.memory_system.random_access_slowdown` simulates the same.
"""

from math import frexp
from typing import Any

import numpy as np

from dse.space.array_math import ceil_div, extremes, maximum, minimum, where
from dse.space.dram import ORDERS, MemorySystem
from dse.space.memoize import memoize_by_identity

OVERLAP_POWER = 4
"""Of data and rows a channel is busy with both: the root of the sum of powers, which is near the larger where they differ."""


def random_piece_slowdown(memory: MemorySystem | None, piece: Any) -> Any:
    """Time of pieces at random places over that of one long block of as many bytes; at least 1. [-]

        pace = whole requests / bytes x (1 + (rows x activate / data) ^ 4) ^ (1/4)

    Data of a piece keep the bus for `burst` clocks a request. It opens a row in as many banks as its requests are spread over,
    and rows are opened no faster than four in a window (tFAW), one after another (tRRD), or each bank's again (tRAS + tRP).

    Args:
        memory: memory with the channels.
        piece: contiguous bytes, 0 for a long block; broadcasts over designs. [B]

    Returns:
        At least 1; 1 if the banks are unknown.

    Source:
        Ours; within 13 % of our channel model for pieces of HBM2 to HBM4 whose bits are in the order that all stacks have in
        `conf/memory` (`tests/evaluators/test_hbm.py`). Orders that go to all banks first are up to a third cheaper when
        simulated.
    """
    if memory is None:
        return 1.0
    requests = ceil_div(maximum(piece, 1), memory.access)
    data = requests * memory.timing.burst
    whole = requests * memory.access / maximum(piece, 1)
    slower = (1 + (rows_touched(memory, requests) * activate_interval(memory) / data) ** OVERLAP_POWER) ** (1 / OVERLAP_POWER)
    return where(piece > 0, whole * slower, 1.0)


def rows_touched(memory: MemorySystem, requests: Any) -> Any:
    """Rows that a number of consecutive requests of one channel lie in. [-]

    Where sizes of parts are powers of two, it makes no difference how many of them requests are divided by at once.
    """
    banks: Any = 1.0
    within: Any = None  # of what is below a part, all of it
    ends, exact = extremes(requests), _powers_of_two(memory)
    for part, size in address_fields(memory):
        if part != "column":
            fewest, most = ends if within is None else (ends[0] / extremes(within)[1], ends[1] / extremes(within)[0])
            low, high = extremes(size)
            if fewest >= high if within is None else fewest > high - 1:  # requests of all designs are in each
                banks = banks * size
            else:
                current_requests = requests if within is None else ceil_div(requests, within)
                banks = banks * (current_requests if most <= low else minimum(current_requests, size))
        if exact:
            within = size if within is None else within * size
        else:
            requests = ceil_div(requests, size)
            ends = extremes(requests)
    return banks


@memoize_by_identity
def _powers_of_two(memory: MemorySystem) -> bool:
    """Whether sizes of all parts are, of one memory for all designs."""
    sizes = [size for _, size in address_fields(memory)]
    return not any(isinstance(size, np.ndarray) for size in sizes) and all(
        size >= 1 and frexp(size)[0] == 0.5 for size in sizes
    )


@memoize_by_identity
def address_fields(memory: MemorySystem) -> tuple[tuple[str, Any], ...]:
    """Fields of an address within a channel, low to high, with their sizes.

    A size counts requests, or values of the fields below.
    """
    sizes = {"column": memory.row / memory.access, "group": memory.groups, "bank": memory.banks, "row": memory.rows}
    return tuple((name, sizes[name]) for name in reversed(ORDERS[memory.order]))


@memoize_by_identity
def activate_interval(memory: MemorySystem) -> Any:
    """Time between two rows that a channel opens. [clock]"""
    t = memory.timing
    return maximum(maximum(t.faw / 4, t.rrd_s), (t.ras + t.rp) / (memory.groups * memory.banks))
