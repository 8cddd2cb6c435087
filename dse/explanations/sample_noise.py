"""Margins of designs to constraints, against the noise of a sample of requests.

A served load is a stream of some hundred requests: another stream of as many gives other percentiles and another
attainment. Requests that queue together are correlated, so the standard error is not that of independent requests: it is
found from whole streams (`space.workload.workload_of_stream`), each served from its start. A short stream ends before its
queues have grown, so that it is compared with a longer one as well. Model errors are not in it; error bands are beside it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, isfinite, nan, sqrt
from typing import Any, Final

import numpy as np
import pandas as pd

from dse.documents.front_document import FrontSampleRecord, MarginRecord, NoiseVerdict, OfferedLoadRecord
from dse.evaluators.accounting.metrics import METRICS
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.study import MetricConstraint, Study
from dse.explanations.explanation import study_goal
from dse.explanations.neighbours import StudyGoal, evaluate_points, is_evaluated_alone
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.safe_text import count_text
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad, Workload, is_fixed_rate, workload_of_stream

STREAMS = 8
"""Streams of requests, the study's own among them."""

STUDENT = 2.365
"""95 % of Student's t of `STREAMS` - 1 degrees of freedom lies within plus and minus this."""

LONG, MAX_LONG = 8, 4096
"""Times as many requests as the study's that the longer stream has; and requests at most, within one method of the steady
state."""

CONFIDENCE = "95 %"

OFFERED_LOAD = "offered_load"
"""Metric that says how much of what a design can serve a load uses."""

REQUEST_SHARES = ("slo_attainment",)
"""Metrics that are shares of the requests."""

BUDGET_S = 20.0
"""What the streams of a front may take."""

FIRST_BATCH, GROWTH = 8, 4
"""Designs that are evaluated together first, whatever that takes in the steady state, and times as many next."""

KEPT: Final = "kept"
WITHIN_NOISE: Final = "within noise"
BROKEN: Final = "broken"

MAX_NAMED = 6
"""Designs within noise that are named."""


@dataclass(frozen=True, slots=True)
class BoundMargin:
    """Margin of one design to one constraint, with the standard error of its metric.

    Attributes:
        bound: the constraint.
        value: of its metric, in SI.
        error: standard error of the value, in SI; NaN where unknown.
    """

    bound: MetricConstraint
    value: float
    error: float

    @property
    def sigmas(self) -> float:
        """Standard errors by which the constraint is kept; below 0 where broken, NaN if unknown. [1]

        >>> round(BoundMargin(MetricConstraint("tbt_p99", "<=", 0.22), 0.20, 0.01).sigmas, 6)
        2.0
        """
        left = self.bound.value - self.value if self.bound.relation == "<=" else self.value - self.bound.value
        if self.error == 0:
            return inf if left >= 0 else -inf
        return left / self.error

    @property
    def verdict(self) -> NoiseVerdict:
        """Verdict with 95 % confidence: "kept", "within noise" or "broken".

        By the value alone where the error is unknown.

        >>> margins = [BoundMargin(MetricConstraint("tbt_p99", "<=", 0.22), value, 0.01) for value in (0.15, 0.21, 0.28)]
        >>> [margin.verdict for margin in margins]
        ['kept', 'within noise', 'broken']
        """
        sigmas = self.sigmas
        if abs(sigmas) <= STUDENT:
            return WITHIN_NOISE
        return BROKEN if sigmas < 0 or (sigmas != sigmas and self.bound.excess(self.value) > 0) else KEPT

    def text(self) -> str:
        """The value with half its 95 % interval, the bound and the verdict.

        >>> BoundMargin(MetricConstraint("tbt_p99", "<=", 0.22), 0.219, 0.006).text()
        'tbt_p99 219 ms (+-14.2 ms; bound 220 ms: within noise)'
        """
        unit = METRICS[self.bound.metric].unit
        value, bound = format_quantity(self.value, unit), format_quantity(self.bound.value, unit)
        known = f"+-{format_quantity(STUDENT * self.error, unit, 3)}; " if self.error == self.error else ""
        return f"{self.bound.metric} {value} ({known}bound {bound}: {self.verdict})"

    def record(self) -> MarginRecord:
        """The margin as a record of documents; None for an error or a margin that is unknown or not finite."""
        return MarginRecord(
            constraint=str(self.bound),
            value=self.value,
            interval_95=_finite(STUDENT * self.error),
            sigmas=_finite(self.sigmas),
            verdict=self.verdict,
            text=self.text(),
        )


@dataclass(frozen=True, slots=True)
class DesignSample:
    """What the requests of a load say of one design beside its metrics.

    Attributes:
        load: offered load, arrivals over what the design can serve; NaN where unknown. [1]
        margins: to each constraint whose metric the design has.
        is_evaluated: whether the errors of the margins were worked out.
    """

    load: float
    margins: tuple[BoundMargin, ...]
    is_evaluated: bool

    @property
    def noisy(self) -> tuple[BoundMargin, ...]:
        """Margins that are within noise."""
        return tuple(margin for margin in self.margins if margin.verdict == WITHIN_NOISE)


@dataclass(frozen=True)
class FrontSample:
    """Load and margins of a study's front.

    Attributes:
        rate: the load that all designs have, as text; empty string for batches and for loads at their maximum rate.
        requests: of a stream; 0 where there are no other streams.
        designs: by id, in the order of the report.
    """

    rate: str
    requests: int
    designs: Mapping[str, DesignSample]

    @property
    def noisy(self) -> dict[str, tuple[BoundMargin, ...]]:
        """Margins within noise, of designs that have some, by id."""
        return {design: sample.noisy for design, sample in self.designs.items() if sample.noisy}

    @property
    def load_range(self) -> tuple[float, float] | None:
        """Least and largest offered load of the front; None where unknown. [1]"""
        loads = [sample.load for sample in self.designs.values() if isfinite(sample.load)]
        return (min(loads), max(loads)) if loads else None

    @property
    def load_text(self) -> str:
        """The rate of all designs and the range of offered loads, as text; empty string without a rate."""
        if not self.rate:
            return ""
        loads = self.load_range
        if loads is None:
            return f"{self.rate}; designs differ in how much of them that uses"
        low, high = (f"{100 * load:.0f}" if load > 0.095 else f"{100 * load:.2g}" for load in loads)
        uses = f"{high} %" if low == high else f"{low} to {high} %"
        return f"{self.rate}; designs differ in how much of them that uses: {uses} on the front"

    @property
    def noise_text(self) -> str:
        """How many designs of the front are within noise of a constraint; empty string where nothing says it."""
        evaluated = sum(sample.is_evaluated for sample in self.designs.values())
        if not self.requests or not evaluated:
            return ""
        share = f"{len(self.noisy):,} of {count_text(evaluated, 'design')} of the front"
        verb = "is" if len(self.noisy) == 1 else "are"
        left = len(self.designs) - evaluated
        more = f"; {left:,} more were not looked at, for lack of time" if left else ""
        how = f"{CONFIDENCE}, {STREAMS} streams of {self.requests:,} requests and one of {long_count(self.requests):,}"
        return f"{share} {verb} within noise of a constraint ({how}){more}"

    def noise_lines(self) -> list[str]:
        """Designs within noise with their margins, one line each, and how to play them with more streams."""
        lines = [f"{name}: {', '.join(margin.text() for margin in margins)}" for name, margins in self.noisy.items()]
        more = [f"and {len(lines) - MAX_NAMED:,} more"] if len(lines) > MAX_NAMED else []
        return [*lines[:MAX_NAMED], *more]

    def record(self) -> FrontSampleRecord:
        """Load and noise of the front as a record of documents, without its designs."""
        loads = self.load_range
        return FrontSampleRecord(
            rate=self.rate or None,
            offered_load=None if loads is None else OfferedLoadRecord(least=loads[0], most=loads[1]),
            load_text=self.load_text or None,
            within_noise=list(self.noisy) if self.noise_text else None,
            noise_text=self.noise_text or None,
        )


def fixed_rate_text(workload: Workload) -> str:
    """The rate that all designs have, as text; empty string without a fixed rate."""
    loads = [case for case in workload.cases if isinstance(case, ServingLoad) and is_fixed_rate(case)]
    if not loads or len(loads) < len(workload.cases):
        return ""
    users = bool(loads[0].requests.users)
    rates = list(dict.fromkeys(load.requests.users if users else float(f"{load.rate:.3g}") for load in loads))
    unit = "user" if users else "request/s"
    plural = "users" if users else "requests/s"
    texts = [f"{rate:g}" for rate in rates]
    several = f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]
    return f"at {several} {unit if rates == [1] else plural} on one system each"


def long_count(requests: int) -> int:
    """Requests of the longer stream.

    >>> long_count(150), long_count(3000), long_count(10_000)
    (1200, 4096, 10000)
    """
    return max(min(LONG * requests, MAX_LONG), requests)


def is_sampled(workload: Workload) -> bool:
    """Whether a workload is streams of requests, at a rate that is not searched."""
    return all(isinstance(case, ServingLoad) and not case.largest for case in workload.cases)


def list_streams(workload: Workload) -> list[Workload]:
    """Other streams of a workload's requests, the last one longer; empty if there are none."""
    streams = [workload_of_stream(workload, number) for number in range(1, STREAMS)]
    streams.append(workload_of_stream(workload, STREAMS, LONG, MAX_LONG))
    return [stream for stream in streams if stream is not None]


def standard_error(metric: str, values: Array, requests: int, long: float = nan) -> float:
    """Standard error of a metric from its values over streams; NaN if one is missing.

    The standard deviation s over streams, and their bias b against a longer stream, which also has the queues that
    short ones end before: sqrt(s^2 + b^2). A share of n requests has at least the error of n independent ones,
    sqrt(p (1 - p) / n) with p = (k + 1) / (n + 2): streams that all keep a bound do not prove that others do.

    Args:
        metric: by name.
        values: of each stream, the first of the study's own; in SI, shape (streams,).
        requests: of a stream.
        long: value of the longer stream; NaN for none.

    >>> round(standard_error("tpot", np.array([1.0, 2.0, 3.0]), 100), 6)
    1.0
    >>> round(standard_error("tpot", np.array([1.0, 2.0, 3.0]), 100, long=4.0), 6)
    2.236068
    >>> round(standard_error("slo_attainment", np.array([1.0, 1.0, 1.0]), 98), 6)
    0.010051
    """
    if not np.isfinite(values).all() or len(values) < 2:
        return nan
    least = 0.0
    if metric in REQUEST_SHARES:
        share = (float(values[0]) * requests + 1) / (requests + 2)
        least = sqrt(share * (1 - share) / requests)
    bias = float(values.mean()) - long if isfinite(long) else 0.0
    return max(hypot(float(values.std(ddof=1)), bias), least)


SampleRecord = dict[str, Any]
"""Offered load and standard errors of one design, as JSON values; null for unknown."""


def sample_front(
    study: Study,
    frame: pd.DataFrame,
    find: Callable[[str], SampleRecord | None] = lambda key: None,
    keep: Callable[[str, SampleRecord], Any] = lambda key, record: None,
    *,
    seconds: float = BUDGET_S,
) -> FrontSample:
    """Load and margins of a study's front, from what is known of its designs and else from more streams.

    Args:
        study: the study.
        frame: its designs, as `dse.execution.result_frame.combine_with_front` has them.
        find, keep: what was worked out of designs, by their keys.
        seconds: what streams may take; designs that are nearest to a constraint come first.
    """
    space, workload = study.question.space, study.question.workload
    rate, streams = fixed_rate_text(workload), list_streams(workload) if study.bounds else []
    if not len(frame) or not (rate or streams):
        return FrontSample(rate, 0, {})
    ordered = report_order(study, frame)
    rows = ordered[ordered["front"]].to_dict("records")
    points = [knob_values(study, row) for row in rows]
    keys, designs = [space.key_at(point) for point in points], [space.design_at(point) for point in points]
    known = {key: record for key in keys if (record := find(key)) is not None}
    left = [place for place, key in enumerate(keys) if key not in known]
    fresh = _sample_records(study, streams, [designs[place] for place in left], [rows[place] for place in left], seconds)
    records = known | {keys[place]: record for place, record in zip(left, fresh, strict=True)}
    for key, record in records.items():
        if record["errors"] is not None or not streams:
            keep(key, record)
    samples = {str(row[DESIGN]): _design_sample(study, row, records[key]) for row, key in zip(rows, keys, strict=True)}
    requests = min((len(case.requests) for case in workload.cases if isinstance(case, ServingLoad)), default=0)
    return FrontSample(rate, requests if streams else 0, samples)


def _design_sample(study: Study, row: Mapping[Any, Any], record: SampleRecord) -> DesignSample:
    load, errors = record["load"], record["errors"]
    margins = [
        BoundMargin(bound, float(row[bound.metric]), nan if error is None else float(error))
        for bound in study.bounds
        if row[bound.metric] == row[bound.metric]
        for error in [(errors or {}).get(bound.metric)]
    ]
    return DesignSample(nan if load is None else float(load), tuple(margins), errors is not None)


def _sample_records(
    study: Study, streams: Sequence[Workload], designs: Sequence[Design], rows: Sequence[Mapping[Any, Any]], seconds: float
) -> list[SampleRecord]:
    """Offered load and standard errors of designs; those nearest to a constraint first, as long as there is time."""
    end = time.monotonic() + seconds
    names = list(dict.fromkeys(bound.metric for bound in study.bounds))
    loads = _offered_loads(study, designs, rows, seconds)
    records: list[SampleRecord] = [{"load": load, "errors": None} for load in loads]
    distance = [min((abs(float(bound.excess(row[bound.metric]))) for bound in study.bounds), default=inf) for row in rows]
    order = np.argsort(distance, kind="stable").tolist()
    goal = replace(study_goal(study), metrics=tuple(names))
    alone = bool(designs) and is_evaluated_alone(designs[0], goal)
    size, growth, start = 1 if alone else FIRST_BATCH, 1 if alone else GROWTH, 0
    requests = min((len(case.requests) for case in study.question.workload.cases if isinstance(case, ServingLoad)), default=0)
    while streams and seconds > 0 and start < len(order) and (time.monotonic() < end or (not start and not alone)):
        places = order[start : start + size]
        last = inf if not start and not alone else end
        values = _stream_values(streams, [designs[place] for place in places], goal, names, last)
        if values is None:
            break
        longer = values[-1]
        for column, place in enumerate(places):
            own = np.array([float(rows[place][name]) for name in names])
            every = np.vstack([own, values[:-1, column]])
            records[place]["errors"] = {
                name: _finite(standard_error(name, every[:, at], requests, longer[column, at])) for at, name in enumerate(names)
            }
        start, size = start + size, size * growth
    return records


def _stream_values(
    streams: Sequence[Workload], designs: Sequence[Design], goal: StudyGoal, names: Sequence[str], end: float
) -> Array | None:
    """Metrics of designs in each stream, shape (streams, designs, metrics); NaN where there are none, None for lack of time."""
    values = np.full((len(streams), len(designs), len(names)), nan)
    for number, workload in enumerate(streams):
        if time.monotonic() > end:
            return None
        points = evaluate_points(designs, replace(goal, workload=workload))
        values[number] = [[point.metrics.get(name, nan) if point else nan for name in names] for point in points]
    return values


def _offered_loads(
    study: Study, designs: Sequence[Design], rows: Sequence[Mapping[Any, Any]], seconds: float
) -> list[float | None]:
    """Offered load of each design, from the study's results or else computed together; None where unknown."""
    if not fixed_rate_text(study.question.workload):
        return [None] * len(designs)
    loads = [_finite(float(row.get(OFFERED_LOAD, nan))) for row in rows]
    left = [place for place, load in enumerate(loads) if load is None]
    goal = replace(study_goal(study), metrics=(OFFERED_LOAD,), bounds=())
    for place, point in zip(left, evaluate_points([designs[place] for place in left], goal, seconds=seconds), strict=True):
        loads[place] = _finite(point.metrics.get(OFFERED_LOAD, nan)) if point else None
    return loads


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None
