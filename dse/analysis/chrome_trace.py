"""Chrome trace of a design's first steps, for Perfetto: streams as tracks, phases as processes.

Of a load, the first iterations: cores, links and memory as tracks, requests as flows. Beside them the power of all chips, as a
counter: over all of a batch, whose bars are those of first steps; over the iterations of a load.
"""

from pathlib import Path
from typing import Any

from dse.evaluators.accounting.breakdown import Breakdown
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.space.errors import DesignError
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json
from dse.terminal.signals import defer_signals

TRACKS = ("compute", "communication", "prefetch")


POWER = "power"
"""The counter of all chips. [W]"""


def write_trace(parts: Breakdown, profile: PowerProfile | None, path: Path) -> None:
    """Write the first step of each phase, every layer kind once, and power if it is known.

    Raises:
        DesignError: the file cannot be written.
    """
    events = trace_events(parts) + ([] if profile is None else power_counters(profile, len(parts.segments)))
    try:
        with defer_signals(), write_atomically(path) as place:
            place.write_text(format_json({"traceEvents": events, "displayTimeUnit": "ms"}))
    except OSError as error:
        raise DesignError(
            f"--trace {path}: {error.strerror}; name a file that can be written, as in --trace step.json"
        ) from None


def power_counters(profile: PowerProfile, process: int) -> list[dict[str, Any]]:
    """Power over time in a process of its own, with the phases as a track. [W]"""
    counters: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": process, "args": {"name": "all chips"}}]
    ends = zip(profile.instants[:-1].tolist(), profile.instants[1:].tolist(), strict=True)
    if profile.names:
        counters.append({"ph": "M", "name": "thread_name", "pid": process, "tid": 0, "args": {"name": "phases"}})
    for name, (start, end) in zip(profile.names, ends, strict=False):
        counters.append({"ph": "X", "name": name, "ts": start * 1e6, "dur": (end - start) * 1e6, "pid": process, "tid": 0})
    for instant, watts in zip(profile.instants.tolist(), [*profile.watts.tolist(), *profile.watts[-1:].tolist()], strict=True):
        counters.append({"ph": "C", "name": POWER, "ts": instant * 1e6, "pid": process, "args": {"W": watts}})
    return counters


def trace_events(parts: Breakdown) -> list[dict[str, Any]]:
    """Names of the tracks, then complete events. [us]"""
    events: list[dict[str, Any]] = []
    for process, (phase, segments) in enumerate(parts.segments.items()):
        events.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": phase}})
        bars_of = [bar for bars in segments.values() for bar in bars]
        tracks = list(dict.fromkeys((*TRACKS, *(stream for stream, *_ in bars_of))))
        if not any(stream in TRACKS for stream, *_ in bars_of):
            tracks = tracks[len(TRACKS) :]
        for track, stream in enumerate(tracks):
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": stream}})
        origin = 0.0
        for segment, bars in segments.items():
            for stream, name, start, end in bars:
                place = {"pid": process, "tid": tracks.index(stream), "cat": segment}
                events.append({"ph": "X", "name": name, "ts": (origin + start) * 1e6, "dur": (end - start) * 1e6, **place})
            origin += max((end for _, _, _, end in bars), default=0.0)
        for number, (name, points) in enumerate(parts.flows.get(phase, ())):
            for at, (stream, instant) in enumerate(points):
                kind = "s" if at == 0 else "f" if at == len(points) - 1 else "t"
                flow = {"ph": kind, "name": name, "cat": "request", "id": number, "pid": process, "tid": tracks.index(stream)}
                events.append({**flow, "ts": instant * 1e6, **({"bp": "e"} if kind == "f" else {})})
    return events
