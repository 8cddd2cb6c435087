"""Measurements from files of any known format, which is seen from the content.

Files come from strangers: nothing in them is executed, none is held as a whole, and what is wrong is one line with the file.
"""

import gzip
import io
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dse.accuracy.measurements.benchmark_clients import DETAILS, is_client_result, read_client_result
from dse.accuracy.measurements.json_scanner import JsonScanner
from dse.accuracy.measurements.kernel_profiles import (
    TraceEvents,
    find_nsys_header,
    find_table_header,
    read_key_averages,
    read_nsys_summary,
)
from dse.accuracy.measurements.measured_run import MAX_NUMBER, MeasuredRun
from dse.accuracy.measurements.perf_exports import HEADER, is_perf_export, read_perf_csv, read_perf_export
from dse.accuracy.measurements.prometheus_snapshots import MetricSnapshot, is_prometheus_text, read_interval, read_snapshot
from dse.accuracy.measurements.trtllm_reports import MARK, is_trtllm_report, read_trtllm_report, read_trtllm_text
from dse.space.array_math import Array
from dse.space.errors import DesignError

HEAD_CHARS = 65_536
"""Characters by which a format is seen."""
MAX_TEXT_CHARS = 16_000_000
MAX_LINE_CHARS = 1_000_000
TRACE_EVENTS = "traceEvents"
"""Key of the events in a profiler's JSON trace."""
JSON_START = re.compile(r"\s*(?:\{|\[\s*[{\]])")
"""Beginning of JSON that is an object, or an array of objects; a log may begin with a bracket as well."""
CSV_MARK = ",".join(HEADER)
MAX_RESULTS = 1_000
"""Most results of one file."""
MAX_REQUESTS = 2_000_000
"""Most entries of a list with one a request."""
KNOWN = (
    "JSON of vllm bench serve, sglang.bench_serving, trtllm-bench, GenAI-Perf or AIPerf, /metrics of vLLM or SGLang, a "
    "trace or table of torch.profiler, a CSV of nsys stats, or rows of dse validate"
)
"""What is read, for messages."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What a user knows beside files.

    Attributes:
        interval: between two snapshots of counters, or None. [s]
        runs: how often a profiled workload ran; 0 if that is not known.
    """

    interval: float | None = None
    runs: int = 0


NO_OPTIONS = FileOptions()


def read_measurements(paths: Sequence[Path], options: FileOptions = NO_OPTIONS) -> list[MeasuredRun]:
    """Runs of some files; snapshots of counters give a run from each to the next, after all others.

    Raises:
        DesignError: a file that cannot be read, of no known format, or with a figure that cannot be; with its name.
    """
    runs: list[MeasuredRun] = []
    snapshots: list[tuple[Path, MetricSnapshot]] = []
    for path in paths:
        content = _read_file(path, options)
        if isinstance(content, MetricSnapshot):
            snapshots.append((path, content))
        else:
            runs += content
    if len(snapshots) == 1:
        return [*runs, read_interval(snapshots[0][0], None, snapshots[0][1], options.interval)]
    return [
        *runs,
        *(read_interval(path, before, after, options.interval) for (_, before), (path, after) in pairwise(snapshots)),
    ]


def is_row_file(path: Path) -> bool:
    """Whether a file is a table of rows as of ``dse validate``, by its header."""
    with _open_text(path) as file:
        header = next((line for line in file.read(HEAD_CHARS).splitlines() if line.strip()), "")
    return not header.lstrip().startswith(("{", "[")) and "overrides" in header.split(",")


def _read_file(path: Path, options: FileOptions) -> list[MeasuredRun] | MetricSnapshot:
    """Runs of a file, or its counters if it is a snapshot of these."""
    with _open_text(path) as file:
        head = file.read(HEAD_CHARS)
    if not head.strip():
        raise DesignError(f"{path}: empty; expected {KNOWN}")
    with _open_text(path) as file:
        if JSON_START.match(head):
            return list(_read_json(path, file, options))
        if is_prometheus_text(head):
            return read_snapshot(path, _bounded_lines(path, file))
        if (place := find_nsys_header(head)) >= 0:
            return [read_nsys_summary(path, islice(_bounded_lines(path, file), place, None), options.runs)]
        text = file.read(MAX_TEXT_CHARS + 1)
    if len(text) > MAX_TEXT_CHARS:
        raise DesignError(f"{path}: a text of more than {MAX_TEXT_CHARS / 1e6:g} million characters; keep the report alone")
    if head.lstrip().startswith(CSV_MARK):
        return [read_perf_csv(path, text)]
    if MARK in text:
        return [read_trtllm_text(path, text)]
    if find_table_header(text) >= 0:
        return [read_key_averages(path, text, options.runs)]
    raise DesignError(f"{path}: no known format; expected {KNOWN}")


def _bounded_lines(path: Path, file: TextIO) -> Iterator[str]:
    """Lines of a file, each of at most `MAX_LINE_CHARS`."""
    while line := file.readline(MAX_LINE_CHARS + 1):
        if len(line) > MAX_LINE_CHARS:
            raise DesignError(f"{path}: a line of more than {MAX_LINE_CHARS:,} characters")
        yield line


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    """A file as text, unpacked if it is packed by gzip.

    Raises:
        DesignError: no file, no UTF-8, or a damaged packing.
    """
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as opened:
            yield io.TextIOWrapper(opened, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError:
        raise DesignError(f"{path}: no text in UTF-8; expected {KNOWN}") from None
    except (OSError, EOFError) as error:
        raise DesignError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read_json(path: Path, file: TextIO, options: FileOptions) -> Iterator[MeasuredRun]:
    scanner, number = JsonScanner(path, file), 0
    while scanner.has_more():
        number += 1
        if number > MAX_RESULTS:
            raise DesignError(f"{path}: more than {MAX_RESULTS:,} results; keep those that are to be fitted")
        events = TraceEvents(path)
        if scanner.next_character() == "[":
            for event in scanner.iterate_elements():
                events.add(event)
            if not events.count:
                raise DesignError(f"{path}: an array without kernels of a trace; expected {KNOWN}")
            yield events.finish(number, options.runs)
            continue
        values, details, traced = _read_object(scanner, events)
        yield events.finish(number, options.runs) if traced else _read_result(path, number, values, details)


def _read_object(scanner: JsonScanner, events: TraceEvents) -> tuple[dict[str, Any], dict[str, Array], bool]:
    """Small values of the next object by key, its lists of `DETAILS`, and whether it is a trace; all else is passed over."""
    values: dict[str, Any] = {}
    details: dict[str, Array] = {}
    traced = False
    known: set[str] = set()
    for key in scanner.iterate_members():
        if key in known:
            raise DesignError(f"{scanner.path}: {key[:40]} stands twice in an object; keep one of them")
        known.add(key)
        first = scanner.next_character()
        if key == TRACE_EVENTS and first == "[":
            traced = True
            for event in scanner.iterate_elements():
                events.add(event)
        elif key in DETAILS and first == "[":
            details[key] = _read_numbers(scanner, key)
        elif first == "[":
            scanner.skip_value()
        else:
            values[key] = scanner.read_value()
    return values, details, traced


def _read_numbers(scanner: JsonScanner, key: str) -> Array:
    numbers = array("d")
    for element in scanner.iterate_elements():
        if isinstance(element, bool) or not isinstance(element, int | float) or abs(element) > MAX_NUMBER:
            raise DesignError(f"{scanner.path}: {key}: entry {len(numbers) + 1:,}: {str(element)[:40]!r} is no number")
        numbers.append(element)
        if len(numbers) > MAX_REQUESTS:
            raise DesignError(f"{scanner.path}: {key}: more than {MAX_REQUESTS:,} requests")
    return np.frombuffer(numbers, float)


def _read_result(path: Path, number: int, values: dict[str, Any], details: dict[str, Array]) -> MeasuredRun:
    """Run from one JSON object, by the keys that it has."""
    if is_client_result(values):
        return read_client_result(path, number, values, details)
    if is_trtllm_report(values):
        return read_trtllm_report(path, number, values)
    if is_perf_export(values):
        return read_perf_export(path, number, values)
    if "usage" in values or "custom_id" in values:
        raise DesignError(
            f"{path}: a log of requests has lengths and times of arrival, no measured times: use workload.trace=FILE"
        )
    raise DesignError(f"{path}: result {number} has no keys of a known format; expected {KNOWN}")
