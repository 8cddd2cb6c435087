"""Records of a measured run: figures in SI by metric, the load, and settings that a file states."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dse.documents.validate_documents import Role
from dse.space.array_math import Array
from dse.space.errors import DesignError

FITTED_METRICS = ("ttft", "tpot", "throughput")
"""Metrics whose figures are fitted; figures of all others are checks. Known before any result is seen."""
PERCENTILES = ("50", "90", "99")
"""Percentiles that metrics have."""
MAX_FAILED_SHARE = 0.05
"""Share of failed requests from which on a run is refused, since the others had the machine to themselves."""
MAX_NUMBER = 1e15
"""Largest number that is a measurement."""
MILLI = 1e-3


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """One figure of a run, as a range in SI that is a point where the file has a number.

    Attributes:
        metric: name of the metric that it measures.
        low, high: ends of the range, in SI.
        source: name that the file gives it, with its unit.
        role: calibration for those that are fitted, else check.
        overrides: settings of this figure alone, such as the shape of a kernel.
    """

    metric: str
    low: float
    high: float
    source: str
    role: Role
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """Load that a benchmark client sent to an engine.

    Attributes:
        requests: completed and failed ones.
        prompt, output: mean lengths. [token]
        rate: of arrivals; infinite where all are sent at once, None where the file has none. [Hz]
        cv: coefficient of variation of the times between arrivals.
        concurrency: most requests at once; None where nothing limits them.
        prompts, outputs: length of each request, or None. Shape (requests,). [token]
        starts: time at which each was sent, or None. Shape (requests,). [s]
    """

    requests: int
    prompt: float
    output: float
    rate: float | None = None
    cv: float = 1.0
    concurrency: int | None = None
    prompts: Array | None = None
    outputs: Array | None = None
    starts: Array | None = None

    @property
    def is_endless(self) -> bool:
        """Whether no clock delays requests: all are sent at once, or as many as the concurrency allows."""
        return self.rate is None or math.isinf(self.rate)

    def limit(self, requests: int) -> int | None:
        """Most of some requests at once; None where nothing limits them."""
        return self.concurrency if self.concurrency is not None and self.concurrency < requests else None


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run of an engine as a file tells it.

    Attributes:
        source: program that wrote the file, with the version that the file states.
        name: of the run, by its file and its place there.
        figures: in SI, by metric.
        load: that was sent; None for kernels, and where the user names the workload.
        settings: of the deployment that the file states, by address.
        model: name that the file gives the model; empty string if it has none.
        notes: what was left out, and why; one line each.
    """

    source: str
    name: str
    figures: tuple[MeasuredFigure, ...]
    load: MeasuredLoad | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    notes: tuple[str, ...] = ()


class FigureList:
    """Growing list of the figures of one run, with notes of those that cannot be used."""

    def __init__(self, where: str) -> None:
        self.where, self.figures, self.notes = where, list[MeasuredFigure](), list[str]()

    def add(self, source: str, value: Any, metric: str, scale: float = 1.0) -> None:
        """Add a figure if it is one: absent ones are passed over, zeros and what is no number are noted.

        Args:
            source: name in the file, with its unit.
            value: as the file has it.
            metric: that it measures; empty string for none, which is noted.
            scale: SI units of one of the file's.

        Raises:
            DesignError: negative, or of another type than a number.
        """
        number = self.number(source, value)
        if number is None:
            return
        if number == 0:
            self.notes.append(f"{source} is 0, as where nothing was measured: not used")
        elif not metric:
            self.notes.append(f"{source}: no metric of a simulation is the same: not compared")
        else:
            role: Role = "calibration" if metric in FITTED_METRICS else "check"
            self.figures.append(MeasuredFigure(metric, number * scale, number * scale, source, role))

    def number(self, source: str, value: Any) -> float | None:
        """A number of 0 or more; None where it is absent, or is no number, which is noted.

        Raises:
            DesignError: negative, or of another type.
        """
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DesignError(f"{self.where}: {source}: expected a number, got {str(value)[:40]!r}")
        if abs(value) > MAX_NUMBER or math.isnan(value):
            self.notes.append(f"{source} is {str(value)[:20]}: not used")
            return None
        if value < 0:
            raise DesignError(f"{self.where}: {source}: expected 0 or more, got {value:g}")
        return float(value)

    def count(self, source: str, value: Any, *, low: int = 0) -> int:
        """A whole number, at least `low`.

        Raises:
            DesignError: absent, fractional, or lower.
        """
        number = self.number(source, value)
        if number is None or number != int(number) or number < low:
            got = "nothing" if value is None else str(value)[:40]
            raise DesignError(f"{self.where}: {source}: expected a whole number of {low} or more, got {got}")
        return int(number)

    def finish(self) -> tuple[MeasuredFigure, ...]:
        """The figures; where TPOT is missing the mean time between tokens is fitted, else the mean latency.

        Raises:
            DesignError: there are none.
        """
        if not self.figures:
            raise DesignError(f"{self.where}: no figure that a simulation has; {'; '.join(self.notes) or 'the file has none'}")
        known = {figure.metric for figure in self.figures}
        fitted = {"tbt"} if "tpot" not in known else set[str]()
        fitted |= {"latency"} if not known & {"ttft", "tpot", "tbt"} else set[str]()
        return tuple(replace(each, role="calibration") if each.metric in fitted else each for each in self.figures)

    def refuse_failures(self, failed: int, requests: int) -> None:
        """Note failed requests, or refuse a run in which many failed.

        Raises:
            DesignError: more than `MAX_FAILED_SHARE` of them.
        """
        if failed > MAX_FAILED_SHARE * requests:
            raise DesignError(
                f"{self.where}: {failed:,} of {requests:,} requests failed; a run with more than {MAX_FAILED_SHARE:.0%} "
                "is no measurement of the load; run it again"
            )
        if failed:
            self.notes.append(f"{failed:,} of {requests:,} requests failed; figures are of the others")


def name_metric(kind: str, statistic: str) -> str:
    """Metric of a mean or percentile of a client's time, empty string where no metric is the same.

    Args:
        kind: ttft, tpot, tbt or latency.
        statistic: mean, median, or a percentile as p99.

    >>> name_metric("ttft", "mean"), name_metric("tbt", "p99"), name_metric("tpot", "median"), name_metric("ttft", "p95")
    ('ttft', 'tbt_p99', '', '')
    """
    if statistic in ("mean", "avg"):
        return kind
    percentile = "50" if statistic == "median" else statistic.removeprefix("p")
    return f"{kind}_p{percentile}" if percentile in PERCENTILES and kind != "tpot" else ""


def name_run(path: Path, number: int) -> str:
    """Name of a run by its file, and its place if that has several."""
    name = name_file(path)[:60]
    return name if number == 1 else f"{name}-{number}"


def name_file(path: Path) -> str:
    """Name of a file without its ending, and without that of gzip behind it.

    >>> name_file(Path("a/serve.json.gz")), name_file(Path("b.v2.json"))
    ('serve', 'b.v2')
    """
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).stem
