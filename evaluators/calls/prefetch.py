"""Prefetch during collectives (PRESERVE): bytes read while messages keep the network busy.

They go into a cache or into local memory.

[yuzuguler2025] algorithm 1: from each allreduce, breadth-first through the operators that follow, until the next allreduce
or the end of the graph. Weights of a MatMul and the KV cache of an attention are prefetched as long as their running sum
stays below the budget; the first operator that does not fit ends it ("whole"), or is prefetched in part ("partial", ours).
Experts are prefetched as if the router's choice were known, as algorithm 1 does with any MatMul.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.calls.call import CallBlock
from dse.space.array_math import Array, extremes, maximum, minimum, where
from dse.space.memoize import memoize_by_identity


def prefetched_bytes(block: CallBlock, policy: str, budget: Any) -> list[Any]:
    """Bytes of each call that are in the cache or local memory when its prefetch ends. [B]

    Args:
        block: calls in order of execution, and the breadth-first order from the collective before them.
        policy: an option of `space.mapping.PREFETCH`.
        budget: bytes of L2 that may be used; 0 where there is no collective to hide behind.

    Returns:
        Bytes for each call, in the order of the calls; None for those that the pass leaves alone.
    """
    bytes_in: list[Any] = [None] * len(block.calls)
    if policy == "none":
        return bytes_in
    used: Any = 0.0
    for position in block.order:
        call = block.calls[position]
        if not call.can_be_prefetched:
            continue
        bytes_in[position], used = fit_in_budget(call.fetch, used, policy, budget)
    return bytes_in


def cache_thresholds(blocks: Sequence[CallBlock], policy: str, share: float) -> Array:
    """Sizes of a cache from which a call is prefetched as a whole, or its activations stay. [B]

    Args:
        blocks: of a step.
        policy: an option of `space.mapping.PREFETCH`.
        share: of the cache that is the budget; 0 where there is no collective to hide behind.
    """
    kept = [np.ravel(call.local) for block in blocks for call in block.calls]
    fitting: list[Any] = []
    for block in blocks if policy == "whole" and share > 0 else ():
        used: Any = 0.0
        for position in block.order if block.opener is not None else ():
            if block.calls[position].can_be_prefetched:
                used = used + block.calls[position].fetch
                fitting.append(np.ravel(used))
    sizes = np.unique(np.concatenate(fitting)) / share if fitting else np.zeros(0)
    needed = np.unique(np.concatenate(fitting)) if fitting else sizes
    for _ in range(4):  # a quotient is off by a bit or two, and the budget has to be above what is needed
        sizes = np.where(share * np.nextafter(sizes, 0.0) > needed, np.nextafter(sizes, 0.0), sizes)
        sizes = np.where(share * sizes > needed, sizes, np.nextafter(sizes, np.inf))
    every = np.concatenate([*kept, sizes]).astype(float)
    return np.unique(every[every > 0])


class IdleWindow(NamedTuple):
    """Time in which messages are under way and memory is idle, and the bytes prefetched in it.

    Where calls have their messages at their end, each such call is an opener of algorithm 1, for the calls up to the next one.
    Unlike the paper's, a prefetch ends with the messages: what is not there by then streams, and no call waits for it.

    Attributes:
        seconds: that are left of it.
        used: bytes that were asked for so far, whether they fitted or not. [B]
    """

    seconds: Any
    used: Any = 0.0

    def read(self, need: Any, byte: Any, policy: str, budget: Any) -> tuple[Any, "IdleWindow"]:
        """Bytes of the next call that arrive before the messages [B], and the window after it.

        Args:
            need: of the call, once. [B]
            byte: of reading. [s/B]
            policy, budget: as of `prefetched`.

        >>> first, then = IdleWindow(10.0).read(6.0, 1.0, "partial", 8.0)
        >>> first, then.read(6.0, 1.0, "partial", 8.0)[0], IdleWindow(3.0).read(6.0, 1.0, "whole", 8.0)[0]
        (6.0, 2.0, 3.0)
        """
        room, used = fit_in_budget(need, self.used, policy, budget)
        bytes_in = minimum(room, self.seconds / byte)
        return bytes_in, IdleWindow(maximum(self.seconds - bytes_in * byte, 0.0), used)

    def where_opened(self, opened: Any, before: "IdleWindow") -> "IdleWindow":
        """Window after messages have opened it; the one before where there were no messages."""
        return IdleWindow(where(opened, self.seconds, before.seconds), where(opened, self.used, before.used))

    def after_call(self, idle: Any, byte: Any, budget: Any) -> "IdleWindow":
        """Window after one more call, during which memory was idle for a time.

        Where every call is an opener, what was read for calls behind the next one is there already: as much as the budget has
        room for, since what a call has used makes room again.

        Args:
            idle: beside the call. [s]
            byte, budget: as of `read`.

        >>> IdleWindow(1.0).after_call(3.0, 2.0, 1.5)
        IdleWindow(seconds=3.0, used=0.0)
        """
        return IdleWindow(minimum(maximum(self.seconds + idle, 0.0), budget * byte))


class OverlappedCall(NamedTuple):
    """A call beside whose messages or work memory reads ahead, as a layout hands it over.

    Attributes:
        need: bytes that may be read ahead of it; None for none. [B]
        byte: of reading. [s/B]
        next_window: window after the call, from the one that its own reads leave and the bytes of `need` that are there.
    """

    need: Any
    byte: Any
    next_window: Callable[[Any, Any], Any]


NO_WINDOW = IdleWindow(0.0)
"""Window before the first call: nothing has run yet."""


def read_ahead(
    calls: Iterable[OverlappedCall], window: IdleWindow | None, policy: str, budget: Any
) -> tuple[list[Any], IdleWindow | None]:
    """Bytes of each of consecutive calls that are read ahead of it [B], and the window after the last.

    The one recurrence of timelines whose reads hide behind other calls. A call without `need`, or before the first window,
    has None.

    Args:
        calls: in order of execution.
        window: before the first of them.
        policy, budget: as of `IdleWindow.read`.

    >>> def beside(window, ahead):
    ...     return window.after_call(4.0 - (ahead or 0.0), 1.0, 8.0)
    >>> calls = [OverlappedCall(need, 1.0, beside) for need in (None, 3.0, 6.0)]
    >>> read_ahead(calls, NO_WINDOW, "partial", 8.0)
    ([None, 3.0, 2.0], IdleWindow(seconds=2.0, used=0.0))
    """
    resident: list[Any] = []
    for call in calls:
        bytes_ahead = None
        if call.need is not None and window is not None:
            bytes_ahead, window = window.read(call.need, call.byte, policy, budget)
        resident.append(bytes_ahead)
        window = call.next_window(window, bytes_ahead)
    return resident, window


def open_window(seconds: Any, opened: Any = True, before: IdleWindow | None = None) -> IdleWindow:
    """Window of messages of some time; the one before it where no messages opened it."""
    window = IdleWindow(seconds)
    return window if opened is True or before is None else window.where_opened(opened, before)


def fit_in_budget(need: Any, before: Any, policy: str, budget: Any) -> tuple[Any, Any]:
    """Bytes of a call that fit in the budget, and bytes requested up to it. [B], [B]"""
    # these grow past the budget too, so that nothing after the first misfit is taken
    used = before + need
    if isinstance(budget, np.ndarray) and type(used) is float and used < _least(budget):  # one answer for all designs
        return need, used
    return (whole_if_fits if policy == "whole" else part_that_fits)(need, before, budget), used


def whole_if_fits(need: Any, before: Any, budget: Any) -> Any:
    """Bytes of a call if all of them fit in the budget, else 0. [B]"""
    return need * (before + need < budget)


def part_that_fits(need: Any, before: Any, budget: Any) -> Any:
    """Bytes of a call that fit in the budget. [B]"""
    return where(before + need < budget, need, maximum(budget - before, 0.0))


@memoize_by_identity
def _least(budget: Any) -> float:
    """That any design has. [B]"""
    return extremes(budget)[0]
