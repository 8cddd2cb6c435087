"""Exports of GenAI-Perf and AIPerf, JSON and CSV, as measured runs.

Both write a table of statistics by metric, with the unit of each; units are taken from there. Keys are those of
genai_perf/export_data at commit 09628cd and of aiperf/common/models/export_models.py at 26240f9, whose schema is version 1.0.
"""

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.accuracy.measurements.measured_run import FigureList, MeasuredLoad, MeasuredRun, name_metric, name_run
from dse.space.errors import DesignError

GENAI_PERF, AIPERF = "GenAI-Perf", "AIPerf"
SCHEMA_VERSIONS = ("1.0",)
"""Versions of AIPerf's schema that were read; its files name theirs."""
KINDS = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "latency"}
"""Times by metric of an export. The latency between tokens is a request's mean, as TPOT is."""
SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "ns": 1e-9}
RATES = {"output_token_throughput": "throughput", "request_throughput": "request_throughput"}
PER_SECOND = ("tokens/sec", "requests/sec", "per sec", "tokens/s", "requests/s")
STATISTICS = ("avg", "p50", "p90", "p95", "p99")
HEADER = ("Metric", "avg")
"""Beginning of the header of a CSV export."""
MAX_CSV_CHARS = 4_000_000
MAX_DEPTH = 5
"""Levels of an export's configuration in which a concurrency is looked for."""


def is_perf_export(values: Mapping[str, Any]) -> bool:
    """Whether a JSON object is such an export: a metric is an object with its unit."""
    return any(isinstance(part := values.get(key), Mapping) and "unit" in part for key in (*KINDS, *RATES))


def read_perf_export(path: Path, number: int, values: Mapping[str, Any]) -> MeasuredRun:
    """Measured run from a JSON export of either program.

    Raises:
        DesignError: a schema that is not known, a run that was cancelled, or what is no number.
    """
    where = f"{path}, result {number}"
    version = values.get("schema_version")
    if version is not None and str(version) not in SCHEMA_VERSIONS:
        raise DesignError(
            f"{where}: schema_version: {str(version)[:20]!r} is not known; known: {', '.join(SCHEMA_VERSIONS)}; "
            "write the figures as rows of dse validate"
        )
    if values.get("was_cancelled"):
        raise DesignError(f"{where}: was_cancelled: the run was cancelled; run it again")
    stated = values.get("aiperf_version")
    source = GENAI_PERF if version is None and stated is None else f"{AIPERF} {str(stated or '')[:20]}".strip()
    config = values.get("input_config")
    model = _find_value(config, ("model_names", "model_name", "model")) if isinstance(config, Mapping) else None
    return _run(path, number, values, source, config if isinstance(config, Mapping) else {}, model)


def read_perf_csv(path: Path, text: str) -> MeasuredRun:
    """Run from a CSV export, which has no configuration.

    Raises:
        DesignError: no table of statistics, or what is no number.
    """
    tables: dict[str, dict[str, Any]] = {}
    header: list[str] = []
    try:
        for line, row in enumerate(csv.reader(io.StringIO(text), strict=True), start=1):
            if row and row[0] == "Metric":
                header = row
            elif row and row[0] == "Endpoint":
                break  # what follows is of devices
            elif row and header:
                name, unit = _split_name(row[0])
                cells = dict(zip(header[1:], row[1:], strict=False))
                tables[name] = {"unit": unit} | {
                    key if key != "Value" else "avg": _cell_number(f"{path}, row {line}", key, cell)
                    for key, cell in cells.items()
                }
    except csv.Error as error:
        raise DesignError(f"{path}: not a line of CSV: {error}") from None
    return _run(path, 1, tables, f"{GENAI_PERF} or {AIPERF} (CSV)", {}, None)


def _run(path: Path, number: int, values: Mapping[str, Any], source: str, config: Mapping[str, Any], model: Any) -> MeasuredRun:
    where = f"{path}, result {number}"
    figures = FigureList(where)
    for key, kind in KINDS.items():
        if isinstance(table := values.get(key), Mapping):
            unit = str(table.get("unit", ""))
            if unit not in SECONDS:
                raise DesignError(f"{where}: {key}: unit {unit[:20]!r} is no time; known: {', '.join(SECONDS)}")
            for statistic in STATISTICS:
                figures.add(f"{key} {statistic} ({unit})", table.get(statistic), name_metric(kind, statistic), SECONDS[unit])
    for key, metric in RATES.items():
        if isinstance(table := values.get(key), Mapping):
            unit = str(table.get("unit", ""))
            if unit not in PER_SECOND:
                raise DesignError(f"{where}: {key}: unit {unit[:20]!r} is no rate; known: {', '.join(PER_SECOND)}")
            figures.add(f"{key} ({unit})", table.get("avg"), metric)
    requests, failed = (_average(figures, values, key) for key in ("request_count", "error_request_count"))
    if failed:
        figures.refuse_failures(int(failed), int(requests + failed))
    prompt, output = (_average(figures, values, key) for key in ("input_sequence_length", "output_sequence_length"))
    if not prompt or not output:
        raise DesignError(f"{where}: input_sequence_length, output_sequence_length: needed for the load, but not in the file")
    figures.notes.append("lengths of single requests are not in the file: all requests have the mean lengths")
    rate, limit = (_average_setting(figures, config, key) for key in ("request_rate", "concurrency"))
    load = MeasuredLoad(
        int(requests + failed), prompt, output, rate or (math.inf if limit else None), 1.0, int(limit) if limit else None
    )
    name = model[0] if isinstance(model, list) and model else model
    return MeasuredRun(source, name_run(path, number), figures.finish(), load, {}, str(name or "")[:80], tuple(figures.notes))


def _average(figures: FigureList, values: Mapping[str, Any], key: str) -> float:
    """Mean of a metric of an export; 0 where it has none."""
    table = values.get(key)
    return (figures.number(key, table.get("avg")) or 0.0) if isinstance(table, Mapping) else 0.0


def _average_setting(figures: FigureList, config: Mapping[str, Any], key: str) -> float:
    """A number of an export's configuration, on any of its levels; 0 where it has none."""
    value = _find_value(config, (key,))
    return (figures.number(key, value) or 0.0) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _find_value(config: Any, keys: tuple[str, ...], depth: int = 0) -> Any:
    """First value of some keys in nested dictionaries; None where none has it."""
    if not isinstance(config, Mapping) or depth > MAX_DEPTH:
        return None
    value = next((config[key] for key in keys if config.get(key) is not None and not isinstance(config[key], Mapping)), None)
    if value is not None:
        return value
    inner_values = (_find_value(inner, keys, depth + 1) for inner in config.values())
    return next((inner for inner in inner_values if inner is not None), None)


def _split_name(text: str) -> tuple[str, str]:
    """Key and unit of a metric of a CSV export.

    >>> _split_name("Time to First Token (ms)"), _split_name("Request Count")
    (('time_to_first_token', 'ms'), ('request_count', ''))
    """
    name, mark, unit = text.strip().removesuffix(")").rpartition(" (")
    return (name if mark else unit).lower().replace(" ", "_"), unit if mark else ""


def _cell_number(where: str, column: str, cell: str) -> float | None:
    if not cell.strip() or cell.strip() == "N/A":
        return None
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        raise DesignError(f"{where}: column {column}: {cell[:40]!r} is no number") from None
