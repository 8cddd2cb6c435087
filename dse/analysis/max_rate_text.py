"""A maximum rate in words, as ``dse capacity`` and ``dse evaluate workload.rate=max`` say it, and as plain values."""

from typing import TYPE_CHECKING, Any

from dse.space.units import format_quantity
from dse.space.workload import ServingLoad

if TYPE_CHECKING:
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.slo_bounds import SloBounds  # which compiles loops


def range_text(found: "MaxRate") -> str:
    """Which requests a maximum rate is of, and its range over their seeds, as "110 to 112 of 5 seeds, 20,000 requests each"."""
    from dse.evaluators.serving.max_rate import SEEDS

    if found.range is None:
        return f"{found.count:,} requests"
    low, high = found.range
    same = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    return f"{same} of {SEEDS} seeds, {found.count:,} requests each"


def beyond_text(bounds: str) -> str:
    """What happens a little beyond the maximum rate: which bounds are broken, or that more come than are served."""
    from dse.evaluators.serving.slo_bounds import BREAKING_FACTOR

    if bounds == "saturation":
        return f"at {BREAKING_FACTOR} times that more come than are served"
    return f"at {BREAKING_FACTOR} times that {bounds} {'are' if ' and ' in bounds else 'is'} broken"


def caveat_text(found: "MaxRate", load: ServingLoad, bounds: "SloBounds") -> str:
    """Why a maximum rate need not last: its requests are replayed, or too few; the empty string of one that lasts."""
    from dse.evaluators.serving.max_rate import decisive, enough_requests, longest_allowed_time

    if load.draw is None:
        window = format_quantity(float(load.at(found.rate).begins[-1]), "s") if found.rate else "no time"
        return (
            f"the largest rate at which these {found.count:,} requests, replayed once in {window}, keep bounds; queues may "
            "grow all the time; workload.arrivals=poisson has a rate that lasts"
        )
    if found.lasts:
        return ""
    needs = decisive(load, bounds, found.rate, enough_requests(load, bounds, found.rate))
    least = f"; leave workload.requests out, or say {needs:,} or more" if load.most and load.trace is None else ""
    least = f"; a trace of {needs:,} or more tells" if load.trace is not None else least
    takes = format_quantity(longest_allowed_time(load, bounds), "s")
    return (
        f"{found.count:,} requests are too few to tell whether this lasts: one may take {takes}, and queues grow for "
        f"longer than these come{least}"
    )


def max_rate_text(found: "MaxRate", load: ServingLoad) -> str:
    """A maximum rate with its range over seeds, its number of requests, what is broken beyond, and whether it lasts."""
    from dse.evaluators.serving.slo_bounds import slo_bounds

    caveat = caveat_text(found, load, slo_bounds(load, load.largest))
    confirmed = f"; seed {found.seed} confirms it" if load.draw is not None else ""
    text = f"{found.rate:.4g} requests/s ({range_text(found)}{confirmed}); {beyond_text(found.binds)}"
    return f"{text}; {caveat}" if caveat else text


def max_rate_record(found: "MaxRate", load: ServingLoad) -> dict[str, Any]:
    """The same as plain values, named as in the answer of ``dse capacity``."""
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
