"""Arrival times of a load's requests: rates of a process, scales of a trace, or the maximum rate.

A trace with times is replayed at these times unless other arrivals or a rate are set. The label of a load names the part of the
trace that it uses, and the source of its times.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.config.session_workloads import list_requests_by_population
from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.space.workload import TraceUse
from dse.space.workload_settings import AUTO, CLOSED, MAX_RATE, TRACE, ServingSettings

USUAL = "poisson"
"""Arrivals of requests that have no times."""

USUAL_RATE = 2.0
"""Of a process, where nobody says one. [1/s]"""

MAX_RATE_OPTION = MAX_RATE
"""The rate of requests, or the scale of a trace's, that is looked for."""


def fill_arrivals(settings: ServingSettings, *, timed: bool) -> ServingSettings:
    """Settings of a load with the default arrivals and rate filled in.

    Args:
        settings: of the load.
        timed: whether requests have times of their own, which are replayed unless a rate is set.

    >>> load = ServingSettings(ttft=1.0, tpot=0.05)
    >>> fill_arrivals(load, timed=True).arrivals, fill_arrivals(replace(load, rate=3.0), timed=True).arrivals
    ('trace', 'poisson')
    """
    replayed = timed and settings.rate is None
    arrivals = (TRACE if replayed else USUAL) if settings.arrivals == AUTO else settings.arrivals
    return replace(settings, arrivals=arrivals, rate=USUAL_RATE if settings.rate is None else settings.rate)


def trace_use(served: Requests, settings: ServingSettings, file: str, *, clipped: bool) -> TraceUse:
    """Part of its trace that a load uses.

    Args:
        served: requests of the file as they are served.
        settings: of the load, with arrivals.
        file: its name.
        clipped: whether some are shorter than the file has them.
    """
    ordered = "some" if settings.shuffle else "the first"
    notes = [
        *(["in another order"] if settings.shuffle else []),
        *(["lengths in shuffled copies, as many as a rate takes"] if settings.resample else []),
        *([f"clipped to {settings.max_length:,} tokens"] if clipped else []),
    ]
    every = "all others" if served.skipped else "all"
    part = f"{ordered if served.truncated else every} of {file}" + (f" ({', '.join(notes)})" if notes else "")
    if settings.arrivals != TRACE:
        return TraceUse(file, part, "drawn", settings.arrivals)
    return TraceUse(file, part, "replayed" if settings.rate_scale == 1.0 else "scaled")


def _of_trace(use: TraceUse | None, served: Requests) -> str:
    """What is said of a trace beside the number of requests; empty string where there is none."""
    if use is None:
        return ""
    why = "the file's times are not used" if served.has_times else "the file has no times"
    how = f"times drawn ({use.process}; {why})" if use.process else "replayed"
    skipped = f" ({count_text(served.skipped, 'row')} skipped)" if served.skipped else ""
    return f"{skipped}, {use.part}, {how}"


def list_requests_by_rate(
    served: Requests, settings: ServingSettings, seed: int, trace: TraceUse | None = None
) -> list[tuple[str, Requests, float]]:
    """Requests at each rate of a process, or at each scale of a trace's times.

    Args:
        served: with times where they are a trace's.
        settings: of the load, with arrivals.
        seed: of the process; at every rate the same draw, faster or slower.
        trace: what these are of a trace; None where they are of none.

    Returns:
        Each in words, with times, and the rate of its process; 0 where times are a trace's. [1/s]
    """
    _refuse_unread(settings)
    beside = _of_trace(trace, served)
    if settings.arrivals == CLOSED:
        return [(f"{label}{beside}", requests, 0.0) for label, requests in list_requests_by_population(served, settings)]
    if settings.users is not None:
        raise DesignError(f"workload.users: needs arrivals={CLOSED}; set that, or remove workload.users")
    of_trace = settings.arrivals == TRACE
    rates = settings.rate_scale if of_trace else settings.rate
    several = isinstance(rates, tuple)
    if of_trace and not served.has_times:
        raise DesignError("workload.arrivals: a trace with times is needed; choose poisson, gamma, constant or offline")
    requests = []
    for rate in rates if isinstance(rates, tuple) else (rates,):
        number = float(rate) if isinstance(rate, float) else 1.0
        selected_requests = (
            served.scale_times(number)
            if of_trace
            else served.with_arrivals(settings.arrivals, rate=number, cv=settings.cv, seed=seed)
        )
        if (several or rate == MAX_RATE_OPTION) and not np.isfinite(selected_requests.rate):
            raise DesignError(
                "workload.rate: requests that arrive at once have no rate; choose poisson, gamma, constant or a trace's times"
            )
        at = f"at {selected_requests.rate:.3g} a second" if np.isfinite(selected_requests.rate) else "at once"
        at = f"at {number:g} times its rate, {at[3:]}" if of_trace and (several or number != 1) else at
        at = _describe_max_rate(settings) if rate == MAX_RATE_OPTION else at
        if several:
            at = at if of_trace else f"at {format_quantity(number, 'Hz')}, drawn {at[3:]}"
        turns = f" in {count_text(len(selected_requests.begins), 'session')}" if len(selected_requests.before) else ""
        many = (
            "requests" if rate == MAX_RATE_OPTION and not of_trace else count_text(len(selected_requests), "request")
        )  # as many as that takes
        requests.append((f"{many}{turns}{beside} {at}", selected_requests, 0.0 if of_trace else number))
    return requests


def _describe_max_rate(settings: ServingSettings) -> str:
    """The rate of a system as text: its maximum, or its share of a demand."""
    if settings.demand is None:
        return "at the maximum rate within its SLOs"
    return f"at a system's share of {settings.demand_text}, of as many systems as that takes within their SLOs"


def _refuse_unread(settings: ServingSettings) -> None:
    """Refuse what only other arrivals read."""
    for name, value, reader in (("cv", settings.cv, "gamma"), ("rate_scale", settings.rate_scale, TRACE)):
        if settings.arrivals != reader and value not in (1.0, MAX_RATE):
            raise DesignError(
                f"workload.{name}: arrivals={settings.arrivals} does not use it; set arrivals={reader}, or remove it"
            )


GOES_BEFORE: dict[str, tuple[str, ...]] = {
    "trace": ("prompt", "output"),
    "prompt": ("sequence", "output_share"),
    "lengths": ("sequence", "output_share"),
}
"""Fields of a workload, and the fields that nothing reads where they are said."""

GOES_WITH: dict[str, tuple[str, ...]] = {"lengths": ("requests",), "trace": ("shuffle", "coarse_timestamps")}
"""Files of requests, and the fields that nothing reads where no such file is said."""


def refuse_unread_fields(spec: Mapping[str, Any], words: Sequence[str], written: Mapping[str, Any]) -> None:
    """Refuse fields of a workload that nothing reads, if the user or a study file sets them.

    Unread fields of presets are accepted.

    Args:
        spec: fields of the workload.
        words: overrides.
        written: fields that the file of a study says itself, which give way to those of overrides.

    Raises:
        DesignError: the first of them, and what to leave out.
    """
    pairs = [word.lstrip("+").removeprefix("workload.").partition("=")[::2] for word in words if "workload." in word[:10]]
    typed = dict(pairs)
    names = {name for name, value in {**written, **typed}.items() if value not in (None, "null")}
    for reason, name, why in _unread_fields(spec, names):
        if name in typed or reason not in typed:
            raise DesignError(f"workload.{name}: {why}")


def _unread_fields(spec: Mapping[str, Any], names: set[str]) -> Iterator[tuple[str, str, str]]:
    """Fields that are said and that nothing reads: the field that is the reason, their name, and what to do."""
    for first, others in GOES_BEFORE.items():
        if spec.get(first) is not None:
            for name in (name for name in others if name in names and name in spec):
                yield first, name, f"has no effect with workload.{first}; leave one of them out"
    for file, others in GOES_WITH.items():
        if file in spec and spec[file] is None:
            yield from ((file, name, f"needs a file; set workload.{file}, or remove it") for name in others if name in names)
    if spec.get("arrivals") == TRACE and "rate" in names and spec.get("rate") != MAX_RATE_OPTION:
        yield "arrivals", "rate", "arrivals=trace has the times of its file; set workload.rate_scale, or other arrivals"


def slo_share(settings: ServingSettings) -> float:
    """Share of the requests that must keep each bound at the maximum rate; 0 if no maximum is sought. [-]"""
    if MAX_RATE not in (settings.rate, settings.rate_scale):
        if settings.slo_percentile is not None:
            raise DesignError(
                "workload.slo_percentile: needs the maximum rate; set workload.rate=max or workload.rate_scale=max"
            )
        return 0.0
    wrong = "rate_scale" if settings.rate != MAX_RATE else "rate"
    if (wrong == "rate_scale") != (settings.arrivals == TRACE):
        right = "workload.rate_scale" if settings.arrivals == TRACE else "workload.rate"
        raise DesignError(
            f"workload.{wrong}: {MAX_RATE} is for other arrivals than {settings.arrivals}; set {right}={MAX_RATE}"
        )
    return (90.0 if settings.slo_percentile is None else settings.slo_percentile) / 100
