"""When the works of a segment run: three streams, scheduled with `maximum`s only, so that one pass serves many designs.

Communication: the collective that opens the segment. Prefetch: starts with it and goes on beside the works, in the order of
the pass. Compute: starts when the collective is done; a work whose bytes are being prefetched waits for them (the event
of [yuzuguler2025] section 3, "synchronized between layers"). Streams of two segments do not overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from space.elementwise import maximum


@dataclass(frozen=True, slots=True)
class Span:
    """One work on the timeline; leaves broadcast over designs.

    Attributes:
        ready: when the stream is free for it.
        start: when its prefetched bytes are there as well.
        end: when it is done.
        fetched: when its own prefetch is done; 0 where it has none.
    """

    ready: Any
    start: Any
    end: Any
    fetched: Any


def schedule(
    collective: Any, durations: Sequence[Any], prefetches: Sequence[Any], order: Sequence[int]
) -> tuple[Any, list[Span]]:
    """The end of a segment and the span of each of its works, from the start of its collective.

    Args:
        collective: time of the opening collective; 0.0 where there is none. [s]
        durations: of each work, once its bytes are there. [s]
        prefetches: time on the prefetch stream; None for works that have nothing to prefetch. [s]
        order: in which the prefetch stream takes the works.
    """
    fetched: list[Any] = [0.0] * len(durations)
    stream: Any = 0.0
    for position in order:
        if prefetches[position] is not None:
            stream = stream + prefetches[position]
            fetched[position] = stream
    now = collective
    spans = []
    for position, duration in enumerate(durations):
        start = now if prefetches[position] is None else maximum(now, fetched[position])
        end = start + duration
        spans.append(Span(now, start, end, fetched[position]))
        now = end
    return now, spans
