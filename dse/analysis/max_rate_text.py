"""A maximum rate as text and as JSON values, for ``dse capacity`` and ``workload.rate=max``."""

from typing import TYPE_CHECKING, Any

from dse.space.units import format_quantity
from dse.space.workload import ServingLoad

if TYPE_CHECKING:
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.slo_bounds import SloBounds  # which compiles loops


def range_text(found: "MaxRate") -> str:
    """Range of a maximum rate over seeds, as "110 to 112 of 5 seeds, 20,000 requests each"."""
    from dse.evaluators.serving.max_rate import SEEDS

    if found.range is None:
        return f"{found.count:,} requests"
    low, high = found.range
    same = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    return f"{same} of {SEEDS} seeds, {found.count:,} requests each"


def beyond_text(bounds: str) -> str:
    """What fails a little above the maximum rate: missed SLOs, or saturation."""
    from dse.evaluators.serving.slo_bounds import BREAKING_FACTOR

    if bounds == "saturation":
        return f"at {BREAKING_FACTOR} times that rate more requests arrive than are served"
    return f"at {BREAKING_FACTOR} times that rate {bounds} {'are' if ' and ' in bounds else 'is'} missed"


def caveat_text(found: "MaxRate", load: ServingLoad, bounds: "SloBounds") -> str:
    """Why a maximum rate may not last: replayed or too few requests; empty string if it lasts."""
    from dse.evaluators.serving.max_rate import decisive, enough_requests, longest_allowed_time

    if load.draw is None:
        window = format_quantity(float(load.at(found.rate).begins[-1]), "s") if found.rate else "no time"
        return (
            f"the largest rate at which these {found.count:,} requests, replayed once in {window}, keep the SLOs; queues may "
            "keep growing; workload.arrivals=poisson has a rate that lasts"
        )
    if found.lasts:
        return ""
    needs = decisive(load, bounds, found.rate, enough_requests(load, bounds, found.rate))
    least = f"; remove workload.requests, or set {needs:,} or more" if load.most and load.trace is None else ""
    least = f"; use a trace of {needs:,} or more" if load.trace is not None else least
    takes = format_quantity(longest_allowed_time(load, bounds), "s")
    return (
        f"{found.count:,} requests are too few to show whether this rate lasts: a request may take {takes}, and "
        f"queues grow for "
        f"longer than these arrive{least}"
    )


def max_rate_text(found: "MaxRate", load: ServingLoad) -> str:
    """Maximum rate with its range, number of requests, what fails beyond, and whether it lasts."""
    from dse.evaluators.serving.slo_bounds import slo_bounds

    caveat = caveat_text(found, load, slo_bounds(load, load.largest))
    confirmed = f"; seed {found.seed} confirms it" if load.draw is not None else ""
    text = f"{found.rate:.4g} requests/s ({range_text(found)}{confirmed}); {beyond_text(found.binds)}"
    return f"{text}; {caveat}" if caveat else text


def max_rate_record(found: "MaxRate", load: ServingLoad) -> dict[str, Any]:
    """Maximum rate as JSON values, named as in the answer of ``dse capacity``."""
    from dse.evaluators.serving.slo_bounds import slo_bounds

    return {
        "max_rate_hz": found.rate,
        "max_rate_range_hz": list(found.range) if found.range else None,
        "requests": found.count,
        "seed": found.seed,
        "lasts": found.lasts,
        "breaks_beyond": found.binds,
        "note": caveat_text(found, load, slo_bounds(load, load.largest)) or None,
    }
