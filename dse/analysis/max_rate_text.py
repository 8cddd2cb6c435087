"""A maximum rate as text and as JSON values, for ``dse capacity`` and ``workload.rate=max``."""

from typing import TYPE_CHECKING

from dse.documents.evaluate_document import MaxRateRecord
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad

if TYPE_CHECKING:
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.slo_bounds import SloBounds  # which compiles loops


def format_range(max_rate: "MaxRate") -> str:
    """Range of a maximum rate over seeds, as "110 to 112 of 5 seeds, 20,000 requests each"."""
    from dse.evaluators.serving.max_rate import SEEDS

    if max_rate.range is None:
        return f"{max_rate.count:,} requests"
    low, high = max_rate.range
    same = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    return f"{same} of {SEEDS} seeds, {max_rate.count:,} requests each"


def describe_failures_beyond(bounds: str) -> str:
    """What fails a little above the maximum rate: missed SLOs, or saturation."""
    from dse.evaluators.serving.slo_bounds import BREAKING_FACTOR

    if bounds == "saturation":
        return f"at {BREAKING_FACTOR} times that rate more requests arrive than are served"
    return f"at {BREAKING_FACTOR} times that rate {bounds} {'are' if ' and ' in bounds else 'is'} missed"


def describe_caveat(max_rate: "MaxRate", load: ServingLoad, bounds: "SloBounds") -> str:
    """Why a maximum rate may not last: replayed or too few requests; empty string if it lasts."""
    from dse.evaluators.serving.max_rate import decisive, enough_requests, longest_allowed_time

    if load.draw is None:
        window = format_quantity(float(load.requests_at(max_rate.rate).begins[-1]), "s") if max_rate.rate else "no time"
        return (
            f"the largest rate at which these {max_rate.count:,} requests, "
            f"replayed once in {window}, keep the SLOs; queues may "
            "keep growing; workload.arrivals=poisson has a rate that lasts"
        )
    if max_rate.lasts:
        return ""
    needs = decisive(load, bounds, max_rate.rate, enough_requests(load, bounds, max_rate.rate))
    least = f"; remove workload.requests, or set {needs:,} or more" if load.most and load.trace is None else ""
    least = f"; use a trace of {needs:,} or more" if load.trace is not None else least
    takes = format_quantity(longest_allowed_time(load, bounds), "s")
    return (
        f"{max_rate.count:,} requests are too few to show whether this rate lasts: a request may take {takes}, and "
        f"queues grow for "
        f"longer than these arrive{least}"
    )


def format_max_rate(max_rate: "MaxRate", load: ServingLoad) -> str:
    """Maximum rate with its range, number of requests, what fails beyond, and whether it lasts."""
    from dse.evaluators.serving.slo_bounds import make_slo_bounds

    caveat = describe_caveat(max_rate, load, make_slo_bounds(load, load.largest))
    confirmed = f"; seed {max_rate.seed} confirms it" if load.draw is not None else ""
    text = f"{max_rate.rate:.4g} requests/s ({format_range(max_rate)}{confirmed}); {describe_failures_beyond(max_rate.binds)}"
    return f"{text}; {caveat}" if caveat else text


def max_rate_record(max_rate: "MaxRate", load: ServingLoad) -> MaxRateRecord:
    """Maximum rate as a record of documents, with the keys of the answer of ``dse capacity``."""
    from dse.evaluators.serving.slo_bounds import make_slo_bounds

    return MaxRateRecord(
        max_rate_hz=max_rate.rate,
        max_rate_range_hz=max_rate.range or None,
        requests=max_rate.count,
        seed=max_rate.seed,
        lasts=max_rate.lasts,
        breaks_beyond=max_rate.binds,
        note=describe_caveat(max_rate, load, make_slo_bounds(load, load.largest)) or None,
    )
