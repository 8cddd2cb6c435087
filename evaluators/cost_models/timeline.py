"""Schedule of the calls of a segment on three streams.

It uses only maxima, so that one evaluation serves many designs.

Communication: the collective that opens the segment. Prefetch: starts with it and goes on beside the works, in the order of
the pass. Compute: starts when the collective is done; a work whose bytes are being prefetched waits for them (the event
of [yuzuguler2025] section 3, "synchronized between layers"). Streams of two segments do not overlap.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.space.array_math import maximum


class WorkSpan(NamedTuple):
    """Start and end of one call on the timeline; leaves broadcast over designs. [s]

    Attributes:
        ready: when the stream is free for it.
        start: when its prefetched bytes are there as well.
        end: when it is done.
        fetched: when its own prefetch is done; None where it has none.
    """

    ready: Any
    start: Any
    end: Any
    fetched: Any


def schedule_segment(
    collective: Any,
    durations: Sequence[Any],
    prefetches: Sequence[Any],
    order: Sequence[int],
    spans: list[WorkSpan] | None = None,
) -> Any:
    """End of a segment, from the start of its collective. [s]

    Args:
        collective: time of the opening collective; 0.0 where there is none. [s]
        durations: of each work, once its bytes are there. [s]
        prefetches: time on the prefetch stream; None for works that have nothing to prefetch. [s]
        order: in which the prefetch stream takes the works.
        spans: if given, gets the span of each work.
    """
    fetched: list[Any] = [None] * len(durations)
    stream: Any = 0.0
    for position in order:
        own = prefetches[position]
        if own is not None:
            fetched[position] = stream = stream + own
    now = collective
    for duration, arrival in zip(durations, fetched, strict=True):
        start = now if arrival is None else maximum(now, arrival)
        ready, now = now, start + duration
        if spans is not None:
            spans.append(WorkSpan(ready, start, now, arrival))
    return now


def sequential_end(collective: Any, durations: Sequence[Any]) -> Any:
    """End of a segment without prefetch, with one call after the other. [s]"""
    now = collective
    for duration in durations:
        now = now + duration
    return now
