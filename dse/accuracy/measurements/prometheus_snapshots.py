"""Snapshots of vLLM's and SGLang's metrics as measured runs: a difference, or all since the start.

Names are those of vllm/v1/metrics/loggers.py at commit 005a810 and later ones, and of SGLang's collector of metrics, whose
counters of tokens and requests grow as requests end (read in public copies, the commit is not known). Percentiles are known by
the buckets of histograms only, so that such a figure is a range.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dse.accuracy.measurements.measured_run import FigureList, MeasuredFigure, MeasuredLoad, MeasuredRun, name_metric, name_run
from dse.space.errors import DesignError

SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SERVERS = {"vllm:": ("vLLM", "vllm_v1"), "sglang:": ("SGLang", "sglang")}
"""Servers by what the names of their metrics begin with: a title, and the inference engine."""
HISTOGRAMS = {
    "time_to_first_token_seconds": "ttft",
    "request_time_per_output_token_seconds": "tpot",
    "inter_token_latency_seconds": "tbt",
    "time_per_output_token_seconds": "tbt",
    "e2e_request_latency_seconds": "latency",
}
"""Histograms of times by name, with ours. The last but one is the former name of the one before it."""
FAILED_REASONS = ("abort", "error")
MAX_LINES = 200_000
MIN_HIT_SHARE = 0.01
"""Share of prompt tokens from the prefix cache from which on it is said."""


@dataclass
class MetricSnapshot:
    """Counters of one snapshot, summed over engines.

    Attributes:
        values: by name, of counters and of the sums and counts of histograms.
        buckets: of histograms, cumulative counts by upper end.
        finished: requests by the reason for which they ended.
        models: names of models.
        prefix: what the names begin with, of `SERVERS`.
    """

    values: dict[str, float] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    prefix: str = ""


def is_prometheus_text(head: str) -> bool:
    """Whether a text begins as one of Prometheus does."""
    line = next((line for line in head.splitlines() if line.strip()), "")
    return line.startswith(("# HELP ", "# TYPE ")) or (line.startswith(tuple(SERVERS)) and SAMPLE.fullmatch(line) is not None)


def read_snapshot(path: Path, lines: Iterable[str]) -> MetricSnapshot:
    """Counters of a server in one snapshot of its metrics.

    Raises:
        DesignError: a line that is no sample, no metric of a known server, or several servers or models.
    """
    snapshot = MetricSnapshot()
    for number, line in enumerate(lines, start=1):
        if number > MAX_LINES:
            raise DesignError(f"{path}: more than {MAX_LINES:,} lines; a snapshot of /metrics has some thousands")
        if line.startswith("#") or not line.strip():
            continue
        match = SAMPLE.fullmatch(line.rstrip("\r\n"))
        if match is None:
            raise DesignError(f"{path}: line {number}: {line.strip()[:60]!r} is no sample of Prometheus' text format")
        start, colon, name = match[1].partition(":")
        if (prefix := start + colon) in SERVERS:
            if snapshot.prefix not in ("", prefix):
                raise DesignError(f"{path}: metrics of vLLM and of SGLang; take a snapshot of one server")
            snapshot.prefix = prefix
            _add_sample(snapshot, f"{path}: line {number}", name, match[2] or "", match[3])
    if not snapshot.values:
        raise DesignError(f"{path}: no metric of vLLM or SGLang, whose names begin with {' or '.join(SERVERS)}")
    if len(snapshot.models) > 1:
        raise DesignError(f"{path}: metrics of {len(snapshot.models)} models; take a snapshot of one server")
    return snapshot


def read_interval(path: Path, before: MetricSnapshot | None, after: MetricSnapshot, seconds: float | None) -> MeasuredRun:
    """Run between two snapshots of a server.

    Args:
        path: of the later one.
        before: earlier snapshot; None for the start of the server.
        after: later snapshot.
        seconds: between them, or None. [s]

    Raises:
        DesignError: a counter that falls, or no request between them.
    """
    figures = FigureList(str(path))
    change = _difference(path, before or MetricSnapshot(), after)
    if before is None:
        figures.notes.append("one snapshot: all since the server's start, warm-up included; give two for what lies between")
    for name, kind in HISTOGRAMS.items():
        count = change.values.get(f"{name}_count", 0.0)
        if count > 0:
            figures.add(f"{name} mean (s)", change.values.get(f"{name}_sum", math.nan) / count, kind)
            figures.figures += _percentile_ranges(figures, name, kind, change.buckets.get(name, {}), count)
    title, engine = SERVERS[after.prefix]
    failed = sum(change.finished.get(reason, 0.0) for reason in FAILED_REASONS)
    failed += change.values.get("num_aborted_requests_total", 0.0)
    requests = sum(change.finished.values()) or change.values.get("e2e_request_latency_seconds_count", 0.0)
    if not requests:
        raise DesignError(f"{path}: no request ended in this time; nothing was measured")
    figures.refuse_failures(int(failed), int(requests))
    prompt, output = (_mean_length(change, kind, requests) for kind in ("prompt", "generation"))
    if prompt is None or output is None:
        raise DesignError(f"{path}: no {_length_names(after.prefix)}, which the load needs")
    figures.notes.append("lengths of single requests are not in snapshots: all requests have the mean lengths")
    cached = ("cached_tokens", "prompt_tokens") if after.prefix == "sglang:" else ("prefix_cache_hits", "prefix_cache_queries")
    hits, queries = (change.values.get(f"{name}_total", 0.0) for name in cached)
    if queries and hits / queries > MIN_HIT_SHARE:
        figures.notes.append(
            f"{hits / queries:.0%} of prompt tokens came from the prefix cache; the simulated load has no prefixes"
        )
    if seconds is None:
        figures.notes.append("no time between snapshots: set interval='60 s' for rates, or workload.rate, or concurrency=N")
    else:
        figures.add("generation_tokens (token/s)", change.values.get("generation_tokens_total", 0.0) / seconds, "throughput")
    load = MeasuredLoad(int(requests), prompt or 1.0, output or 1.0, requests / seconds if seconds else None)
    model = next(iter(after.models), "")
    return MeasuredRun(
        f"{title} /metrics",
        name_run(path, 1),
        figures.finish(),
        load,
        {"inference_engine": engine},
        model[:80],
        tuple(figures.notes),
    )


def _add_sample(snapshot: MetricSnapshot, where: str, name: str, labels: str, text: str) -> None:
    try:
        value = float(text)
    except ValueError:
        raise DesignError(f"{where}: {text[:30]!r} is no number") from None
    by_label = dict(LABEL.findall(labels))
    if "model_name" in by_label:
        snapshot.models.add(by_label["model_name"])
    if name.endswith("_bucket"):
        try:
            end = float(by_label.get("le", ""))
        except ValueError:
            raise DesignError(f"{where}: a bucket without its upper end le") from None
        ends = snapshot.buckets.setdefault(name.removesuffix("_bucket"), {})
        ends[end] = ends.get(end, 0.0) + value
        return
    if name == "request_success_total":
        reason = by_label.get("finished_reason", "")
        snapshot.finished[reason] = snapshot.finished.get(reason, 0.0) + value
    snapshot.values[name] = snapshot.values.get(name, 0.0) + value


def _difference(path: Path, before: MetricSnapshot, after: MetricSnapshot) -> MetricSnapshot:
    """What counters grew by.

    Raises:
        DesignError: one that falls, or is no number, or snapshots of two servers.
    """
    if before.prefix not in ("", after.prefix):
        raise DesignError(f"{path}: a snapshot of {SERVERS[after.prefix][0]} after one of another server")
    counters = {
        name: value - before.values.get(name, 0.0)
        for name, value in after.values.items()
        if name.endswith(("_sum", "_count", "_total"))
    }
    buckets = {
        name: {end: count - before.buckets.get(name, {}).get(end, 0.0) for end, count in ends.items()}
        for name, ends in after.buckets.items()
    }
    finished = {reason: value - before.finished.get(reason, 0.0) for reason, value in after.finished.items()}
    fallen = next((name for name, value in counters.items() if not value >= 0 or value == math.inf), "")
    fallen = fallen or next((name for name, ends in buckets.items() if not all(value >= 0 for value in ends.values())), "")
    if fallen:
        raise DesignError(
            f"{path}: {after.prefix}{fallen} falls from one snapshot to the next: give the earlier first, of one start of the "
            "server"
        )
    return MetricSnapshot(counters, buckets, finished, after.models, after.prefix)


def _percentile_ranges(
    figures: FigureList, name: str, kind: str, ends: Mapping[float, float], count: float
) -> list[MeasuredFigure]:
    """Ranges in which percentiles lie: the bucket where the cumulative count passes each."""
    ranges = []
    for percentile in (50, 90, 99):
        metric = name_metric(kind, f"p{percentile}")
        low = 0.0
        for end in sorted(ends):
            if ends[end] >= percentile / 100 * count:
                if metric and math.isfinite(end):
                    ranges.append(MeasuredFigure(metric, low, end, f"{name} p{percentile} (s)", "check"))
                elif metric:
                    figures.notes.append(f"{name}: p{percentile} is above the last bucket of {low:g} s: not compared")
                break
            low = end
    return ranges


def _mean_length(change: MetricSnapshot, kind: str, requests: float) -> float | None:
    """Mean tokens of a request: vLLM's histogram, or SGLang's counter over requests that ended; None without these."""
    if change.prefix == "sglang:":
        tokens = change.values.get(f"{kind}_tokens_total")
        return None if tokens is None else tokens / requests
    count = change.values.get(f"request_{kind}_tokens_count", 0.0)
    return change.values.get(f"request_{kind}_tokens_sum", 0.0) / count if count else None


def _length_names(prefix: str) -> str:
    """Names of what tells lengths, for messages."""
    if prefix == "sglang:":
        return "counter prompt_tokens_total or generation_tokens_total"
    return "histogram request_prompt_tokens or request_generation_tokens"
