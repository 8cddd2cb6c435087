"""Timeline of blocks whose calls read ahead for those after them while memory is idle."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dse.evaluators.calls.call import KernelCall
from dse.evaluators.calls.prefetch import NO_WINDOW, IdleWindow, OverlappedCall, read_ahead
from dse.evaluators.cost_models.call_cost import CallCost, TimedBlock
from dse.evaluators.cost_models.timeline import schedule_segment


class TimedCall(NamedTuple):
    """A call whose time depends on what was read ahead of it.

    Attributes:
        need: bytes that may be read ahead of it; None for none. [B]
        duration: its time with so many of these there, asked only if there is a need. [s]
        idle: time beside it in which memory can read ahead, from its time and those bytes (None without a need). [s]
    """

    need: Any
    duration: Callable[[Any], Any]
    idle: Callable[[Any, Any], Any]


class ReadAhead(NamedTuple):
    """Prefetch policy, room for what is read ahead [B], and time of a byte [s/B]."""

    policy: str
    budget: Any
    byte: Any


def overlapped_timeline(
    blocks: Sequence[TimedBlock], overlap_call: Callable[[KernelCall, CallCost], TimedCall], ahead: ReadAhead
) -> list[TimedBlock]:
    """Every block of a step on the timeline, with the idle window that its predecessor leaves.

    Args:
        blocks: with costs of their calls, and times without reading ahead.
        overlap_call: a call of the layout with its cost, as one that reads ahead.
        ahead: how memory reads ahead.
    """
    timeline: list[TimedBlock] = []
    windows: list[IdleWindow] = []
    for block in blocks:
        after = block.block.after
        calls = list(map(overlap_call, block.block.calls, block.costs))
        timed_block, window = _overlap_block(block, calls, NO_WINDOW if after is None else windows[after], ahead)
        timeline.append(timed_block)
        windows.append(window)
    return timeline


def _overlap_block(
    block: TimedBlock, calls: Sequence[TimedCall], window: IdleWindow, ahead: ReadAhead
) -> tuple[TimedBlock, IdleWindow]:
    """A block of calls that read ahead, and the window that it ends with."""
    durations = list(block.durations)

    def overlap(place: int) -> OverlappedCall:
        def next_window(window: IdleWindow, bytes_ahead: Any) -> IdleWindow:
            if bytes_ahead is not None:
                durations[place] = calls[place].duration(bytes_ahead)
            return window.after_call(calls[place].idle(durations[place], bytes_ahead), ahead.byte, ahead.budget)

        return OverlappedCall(calls[place].need, ahead.byte, next_window)

    resident, last = read_ahead(map(overlap, range(len(calls))), window, ahead.policy, ahead.budget)
    seconds = schedule_segment(0.0, durations, [None] * len(durations), block.block.order)
    return block._replace(resident=resident, durations=durations, seconds=seconds), last or NO_WINDOW
