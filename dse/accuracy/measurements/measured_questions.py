"""Rows of a calibration from measured runs, with the load that the client sent."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dse.accuracy.calibrate import MeasuredRow, row_from_cells
from dse.accuracy.measurements.measured_run import MeasuredFigure, MeasuredLoad, MeasuredRun
from dse.accuracy.validate import RowQuestion, compose_question
from dse.evaluators.accounting.metrics import METRICS
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad

ARRIVAL_SETTINGS = ("trace", "arrivals", "rate", "sessions", "users")
"""Settings of a workload that say when requests come: where one is typed, the file's are left out."""
SERVING = "serving"


def build_rows(run: MeasuredRun, typed: Sequence[str], *, check: bool = False) -> tuple[list[MeasuredRow], list[str]]:
    """Rows of one run, and notes of what is not simulated as it was measured.

    Args:
        run: as a file tells it.
        typed: overrides of the command line, which go before what the file says.
        check: whether all rows are checks, which are shown and never fitted.

    Raises:
        DesignError: the load or the design is not known from file and overrides together.
    """
    settings = {word.partition("=")[0].lstrip("+"): word for word in typed}
    of_file = [f"{address}={value}" for address, value in run.settings.items() if not _is_typed(address, settings)]
    load, notes = run.load, list(run.notes)
    if load is not None and settings.get("workload", f"workload={SERVING}") == f"workload={SERVING}":
        of_file += _load_overrides(run.name, load, settings, notes)
        own_load: MeasuredLoad | None = load
    else:
        own_load = None
    words = (*typed, *of_file)
    if all(figure.overrides for figure in run.figures):
        return [_row(run, figure, words) for figure in run.figures], notes
    question = compose_question(words)
    if own_load is not None and not _has_typed_load(settings):
        question = _with_requests(question, own_load, settings)
    rows = []
    for figure in run.figures:
        row = _row(run, figure, words)
        if not figure.overrides:
            row = replace(row, asked=question)
        of_rate = load is not None and not load.is_endless and figure.metric == "throughput"  # the client's rate, no engine's
        rows.append(replace(row, role="check") if (check or of_rate) and row.role == "calibration" else row)
    return rows, notes


def _row(run: MeasuredRun, figure: MeasuredFigure, words: Sequence[str]) -> MeasuredRow:
    low, high = figure.low, figure.high
    cells = {
        "id": f"{run.name}: {figure.source}",
        "where": run.source,
        "overrides": shlex.join(_later_words(words, figure.overrides)),
        "baseline": "",
        "metric": figure.metric,
        "value": f"{low:.9g}" if low == high else f"{low:.9g}..{high:.9g}",
        "unit": METRICS[figure.metric].unit,
        "role": figure.role,
        "note": "",
    }
    return row_from_cells(cells, ())


def _later_words(words: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """Overrides with a figure's own after them, which replace those of the same address."""
    addresses = {word.partition("=")[0] for word in own}
    return (*(word for word in words if word.partition("=")[0] not in addresses), *own)


def _is_typed(address: str, settings: Mapping[str, str]) -> bool:
    """Whether a setting is typed, also by the same setting of one phase."""
    tail = address.rpartition(".")[2]
    names = {address} | (
        {f"mapping.{phase}.{tail}" for phase in ("prefill", "decode", "both")} if ".both." in address else set()
    )
    return bool(names & set(settings))


def _has_typed_load(settings: Mapping[str, str]) -> bool:
    return any(f"workload.{name}" in settings for name in (*ARRIVAL_SETTINGS, "prompt", "output"))


def _load_overrides(name: str, load: MeasuredLoad, settings: Mapping[str, str], notes: list[str]) -> list[str]:
    """Overrides of a serving load: how many requests, how long, and when they come."""
    lengths = {"requests": load.requests, "prompt": max(1, round(load.prompt)), "output": max(1, round(load.output))}
    words = ["workload=serving"] if "workload" not in settings else []
    if "workload.trace" not in settings:
        words += [f"workload.{key}={value}" for key, value in lengths.items() if value and f"workload.{key}" not in settings]
    if not load.requests and not {"workload.requests", "workload.trace"} & set(settings):
        raise DesignError(f"{name}: the file has no number of requests; set workload.requests=N")
    if any(f"workload.{key}" in settings for key in ARRIVAL_SETTINGS):
        return words
    limit = load.limit(load.requests)
    if load.starts is not None or (limit is not None and load.is_endless):
        return [*words, "workload.arrivals=offline"]  # `_with_requests` sets the times, or who waits for whom
    if load.rate is None and limit is None:
        raise DesignError(f"{name}: the file has no rate of arrivals; set concurrency=N, workload.rate or workload.trace")
    if limit is not None:
        notes.append(f"at most {limit:,} requests at once beside a rate: the rate is simulated, without that limit")
    if load.is_endless:
        return [*words, "workload.arrivals=offline"]
    words.append(f"workload.rate={load.rate:.9g} Hz")
    return words if load.cv == 1.0 else [*words, "workload.arrivals=gamma", f"workload.cv={load.cv:.9g}"]


def _with_requests(row_question: RowQuestion, load: MeasuredLoad, settings: Mapping[str, str]) -> RowQuestion:
    """A question with the requests that were sent, each with its own lengths and, where known, its own time."""
    question = row_question.question
    case = question.workload.cases[0]
    if not isinstance(case, ServingLoad):
        return row_question
    if load.prompts is None or load.outputs is None:
        if load.limit(len(case.requests)) is None or not load.is_endless:
            return row_question  # overrides say all that is known
        requests = case.requests
    else:
        pairs = np.stack([load.prompts, load.outputs], axis=1)
        order = np.arange(len(pairs)) if load.starts is None else np.argsort(load.starts, kind="stable")
        if "workload.requests" in settings:
            order = order[: len(case.requests)]
        requests = make_requests(pairs[order], None if load.starts is None else load.starts[order])
    if load.starts is None:
        requests = _arrived(requests, load)
    workload = replace(question.workload, cases=(replace(case, requests=requests),))
    return row_question._replace(question=replace(question, workload=workload))


def _arrived(requests: Requests, load: MeasuredLoad) -> Requests:
    """Requests with the arrivals of a load: of a closed population, all at once, or of a process."""
    count = len(requests)
    limit = load.limit(count)
    if limit is not None and load.is_endless:
        turns = replace(
            requests,
            arrival=np.zeros(count),
            before=np.full(count, -1, np.int64),
            think=np.zeros(count),
            turns=np.zeros(count, np.int32),
        )
        return turns.as_closed_loop(limit)
    if load.rate is None or load.is_endless:
        return replace(requests, arrival=np.zeros(count))
    return requests.with_arrivals("gamma" if load.cv != 1.0 else "poisson", rate=load.rate, cv=load.cv)
