"""Published against simulated: every row of a file of published figures, with its error.

A file has the columns ``id, where, overrides, baseline, metric, value, unit, role, note``. Overrides are those of the command
line, and state only what the paper's row states. With a baseline, the metric is the design's over the baseline's; a baseline
is further overrides, or with a chip of its own all of them. A metric is a name, ``peak(NAME)`` over the row's space, or a value
of a knob there: ``at_peak(KNOB, NAME)``, where that peak is; ``plateau(KNOB, NAME)``, the same, which is right where designs
within 1 % of the peak reach the published value; ``reached(KNOB, NAME)``, the lowest value from which on all are within 1 %.
``each(NAME)`` is the mean over a workload's cases of their ratios to the baseline, where a name alone is the ratio of means.
``ratio(OVERRIDE, NAME)`` is a metric over what it is with one more override, so that a row with a baseline compares two gains.
A value may be a range ``a..b``. Roles: calibration (a constant was fitted on it), check, report (compared, not scored).
"""

import csv
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple, get_args

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.accuracy.result_kind import ResultKind, kernel_algorithm, result_kind
from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.config.untrusted_files import check_stored_overrides
from dse.documents.shared_records import KindRecord
from dse.documents.validate_documents import PublishedRowRecord, Role, ValidateDocument
from dse.evaluators import METRICS, Outcomes, evaluate
from dse.evaluators.accounting.metrics import find_metric
from dse.evaluators.serving.trace_parsing import describe_csv_error, find_first_undecodable_row
from dse.space.compatibility import workload_name
from dse.space.design import stack_designs
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import read_metric
from dse.space.units import parse_quantity
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole

COLUMNS = ("id", "where", "overrides", "baseline", "metric", "value", "unit", "role", "note")
ROLES: tuple[Role, ...] = get_args(Role)
ORDER = 1.25
"""Upper over lower end of a published range from which on it says an order, as in 1..100, and no figure."""
MESSAGE = 1000
"""Characters of a message."""

FLAT = 0.01
"""Of a peak, that designs on its plateau may be off."""

METRIC_NAME = re.compile(r"(?<![\w.=])[A-Za-z_]\w*(?![\w.=(])")
"""A name that stands for a metric in a cell: none of a function, of an address or of its value."""

RATIO = re.compile(r"ratio\((?P<override>.+=.+),\s*(?P<name>\w+)\)")
"""A metric of a design over that of the design with one more override."""

NUMBER = r"[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?"


@dataclass(frozen=True, slots=True)
class ValidationRow:
    """One published figure and its simulated value, in the published unit.

    Attributes:
        simulated: None where no design of a space is feasible.
        error: relative; 0 inside a published range, and where a plateau reaches the published value.
        fits: whether every limit holds; else the figure is what it would be if it fitted.
        kind: what it is a figure of; of a comparison, the design that is compared.
        compares: whether it is a design's over a baseline's.
        order: whether the published range is so wide that it says an order, no figure: more than `ORDER` from end to end.
        seconds: that it took to simulate.
    """

    id: str
    where: str
    role: Role
    metric: str
    unit: str
    published: str
    simulated: float | None
    error: float | None
    note: str
    fits: bool
    kind: ResultKind
    compares: bool
    order: bool
    seconds: float = 0.0

    @property
    def is_range(self) -> bool:
        """Whether the published value is a range."""
        return ".." in self.published

    @property
    def in_range(self) -> bool:
        """Whether the published value is a range and the simulated value lies in it."""
        return self.is_range and self.error == 0

    def record(self) -> PublishedRowRecord:
        """The row and its kind as a record of documents."""
        return PublishedRowRecord(
            id=self.id,
            where=self.where,
            role=self.role,
            metric=self.metric,
            unit=self.unit,
            published=self.published,
            simulated=self.simulated,
            error=self.error,
            note=self.note,
            fits=self.fits,
            kind=KindRecord(**self.kind._asdict()),
            compares=self.compares,
            order=self.order,
            seconds=self.seconds,
            is_range=self.is_range,
            in_range=self.in_range,
        )


class Score(NamedTuple):
    """Errors of numeric rows, and how many ranges hold; a range that holds has no error.

    Attributes:
        errors: absolute relative errors of the rows that publish a number and have a simulated value, ascending.
        held: published ranges with the simulated value inside.
        ranges: published ranges.
    """

    errors: tuple[float, ...]
    held: int
    ranges: int

    @property
    def error_text(self) -> str:
        """Median and worst error; empty string where no row publishes a number."""
        return f"{median(self.errors):.1%}, {self.errors[-1]:.1%}" if self.errors else ""

    @property
    def range_text(self) -> str:
        """Ranges that hold, of how many; empty string where no row publishes a range."""
        return f"{self.held} of {self.ranges}" if self.ranges else ""

    def __str__(self) -> str:
        errors = f"median error {median(self.errors):.1%}, worst {self.errors[-1]:.1%}" if self.errors else ""
        ranges = f"{self.range_text} ranges hold" if self.ranges else ""
        return "; ".join(filter(None, (errors, ranges)))


def score_rows(rows: Iterable[ValidationRow]) -> Score:
    """Errors of the numeric rows among some rows, and how many of their ranges hold."""
    rows = list(rows)
    errors = sorted(abs(row.error) for row in rows if row.error is not None and not row.is_range)
    return Score(tuple(errors), sum(row.in_range for row in rows), sum(row.is_range for row in rows))


class RowQuestion(NamedTuple):
    """Design and workload of a row, with its fidelity and the names of chip, mapping and stack."""

    question: Question
    fidelity: str
    names: dict[str, str]
    called: str


def validate_files(files: Sequence[Path], *, as_json: bool) -> int:
    """Print every row of some files and a summary of each; returns the exit status."""
    report: dict[str, list[ValidationRow]] = {str(path): compare_file(path) for path in files}
    if as_json:
        document = ValidateDocument(files={path: [row.record() for row in rows] for path, rows in report.items()})
        print(format_json(document, indent=1))
        return 0
    console = SafeConsole(150)
    for path, rows in report.items():
        console.print(build_rows_table(path, rows))
        console.print(f"  {error_summary(rows)}\n")
    return 0


def build_rows_table(title: str, rows: Sequence[ValidationRow]) -> Table:
    """Table of rows for the terminal: published, simulated and error of each."""
    table = Table(title=escape(title), title_justify="left", box=None)
    for column in ("id", "where", "metric", "published", "simulated", "unit", "error", "role"):
        table.add_column(column, justify="right" if column in ("published", "simulated", "error") else "left")
    for row in rows:
        shown = (row.id, row.where, row.metric, row.published, _number_text(row), row.unit, format_row_error(row), row.role)
        table.add_row(*(escape(text) for text in shown))
    return table


def compare_file(path: Path) -> list[ValidationRow]:
    """Every row of a file, simulated.

    Raises:
        DesignError: the file is missing, lacks a column, or a row cannot be understood; with file and row.
    """
    if not path.exists():
        raise DesignError(f"validate: no file {path}")
    return list(_compare_file(path, path.stat().st_mtime_ns))


@lru_cache(maxsize=64)
def _compare_file(path: Path, changed: int) -> tuple[ValidationRow, ...]:
    """Once for each state of a file: findings and READMEs come back to the same figures."""
    return tuple(compare_rows(path))


def compare_rows(path: Path) -> Iterator[ValidationRow]:
    """Rows of a file, simulated one by one.

    Raises:
        DesignError: as `compare` does.
    """
    for number, row in read_rows(path):
        begun = time.perf_counter()
        try:
            found_row = compare_row(row)
        except DesignError as error:
            raise DesignError(f"{path}, row {number} ({escape_line(row['id'][:40])}): {escape_line(str(error))}") from None
        yield replace(found_row, seconds=time.perf_counter() - begun)


def read_rows(
    path: Path, columns: Sequence[str] = COLUMNS, content: str = "published figures"
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a file with the lines that they begin on, each with all columns.

    Args:
        path: of the file.
        columns: that the file must have.
        content: of the file, for messages.

    Raises:
        DesignError: what is no table of that content, with the row.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table, start = csv.reader(file, strict=True), 1
            header = next(table, [])
            for column in columns:
                if header.count(column) != 1:
                    times = f"stands {header.count(column)} times" if column in header else "is missing"
                    raise DesignError(
                        f"{path}, row 1: column {column!r} {times}; a file of {content} has once each {', '.join(columns)}"
                    )
            count = 0
            while True:
                start = table.line_num + 1
                values = next(table, None)
                if values is None and not count:
                    raise DesignError(f"{path}: no rows below its header")
                if values is None:
                    return
                if values and len(values) != len(header):
                    raise DesignError(f"{path}, row {start}: {len(values)} columns where the header has {len(header)}")
                if values:
                    count += 1
                    row = dict(zip(header, values, strict=True))
                    yield start, {**row, "metric": present_metrics(row["metric"])} if "metric" in row else row
    except OSError as error:
        raise DesignError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DesignError(
            f"{path}, row {find_first_undecodable_row(path)}: not text in UTF-8; write the file as UTF-8"
        ) from None
    except csv.Error as error:
        raise DesignError(f"{path}, row {start}: {describe_csv_error(error)}") from None


def present_metrics(cell: str) -> str:
    """A cell of a column ``metric`` by present names of metrics.

    Functions of metrics and overrides stay as they are.

    >>> present_metrics("peak(tpot)"), present_metrics("ratio(mapping.prefill.prefetch=none, tpot)"), present_metrics("mfu")
    ('peak(tpot)', 'ratio(mapping.prefill.prefetch=none, tpot)', 'mfu')
    """
    return METRIC_NAME.sub(lambda match: read_metric(match[0]), cell)


def escape_line(text: str) -> str:
    """A message with unprintable characters escaped, cut after its first characters."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text[:MESSAGE]) + " ..." * (
        len(text) > MESSAGE
    )


def error_summary(rows: Sequence[ValidationRow]) -> str:
    """Errors of the numeric rows that are scored, and how many of their ranges hold."""
    scored = [row for row in rows if row.role != "report" and row.error is not None]
    if not scored:
        return f"{len(rows)} rows, none scored"
    return f"{len(rows)} rows, {len(scored)} scored: {score_rows(scored)}"


def read_role(row: Mapping[str, str]) -> Role:
    """Role of a row of a file of published figures.

    Raises:
        DesignError: no role has that name.
    """
    for role in ROLES:
        if row["role"] == role:
            return role
    raise DesignError(f"column role: no role {row['role'][:40]!r}; {suggest_nearest(row['role'], ROLES)}")


def compare_row(row: dict[str, str]) -> ValidationRow:
    """Simulate one row of a file, by column, and compare the result with its published value.

    Raises:
        DesignError: a cell that cannot be understood, with its column.
    """
    role = read_role(row)
    overrides, baseline = (overrides_of(row, column) for column in ("overrides", "baseline"))
    low, high = parse_value_range(row["value"])
    each = re.fullmatch(r"each\((\w+)\)", row["metric"].strip())
    if each:
        value, fits = _mean_ratios(overrides, baseline, each[1])
    else:
        value, fits = simulate_metric(overrides, row["metric"]), True
    if value is None and not each:
        value, fits = simulate_metric(overrides, row["metric"], strict=False), False
    if baseline and value is not None and not each:
        alone = any(override.startswith("chip=") for override in baseline)
        # where another chip is the baseline, both are judged alike: by what they would do if they fitted
        base = simulate_metric(baseline if alone else (*overrides, *baseline), row["metric"], strict=not alone)
        value = value / base if base else None
    nearest_ = value
    if not baseline and value is not None and row["unit"] not in ("ratio", ""):
        unit = parse_quantity(f"1 {row['unit']}", unit_of_metric(overrides, row["metric"]))
        value /= unit
        nearest_ = value
        if row["metric"].strip().startswith("plateau"):
            first, last = (end / unit for end in find_optimum_range(overrides, row["metric"]))
            nearest_ = min(max(first, low), last)
    error = None
    if value is not None and nearest_ is not None:
        error = min(0.0, nearest_ / low - 1 if low else 0.0) + max(0.0, nearest_ / high - 1)
    question = compose_question(overrides)
    return ValidationRow(
        row["id"],
        row["where"],
        role,
        row["metric"],
        row["unit"],
        row["value"],
        value,
        error,
        row["note"],
        fits,
        result_kind(
            question.names,
            kernel_algorithm(question.question.base, question.called),
            question.called,
            row["metric"].strip(),
            question.fidelity,
        ),
        bool(baseline),
        high > ORDER * low,
    )


def overrides_of(row: dict[str, str], column: str) -> tuple[str, ...]:
    """Overrides in one column of a row, as on the command line."""
    try:
        return tuple(check_stored_overrides(shlex.split(row[column]), column))
    except ValueError as error:
        text = f"{row[column][:80]!r}: {str(error).lower()}"
        raise DesignError(f"column {column}: {text}; expected overrides, as on the command line") from None


def parse_value_range(text: str) -> tuple[float, float]:
    """Low and high end of a published value; equal for a number."""
    range_match = re.fullmatch(rf"\s*({NUMBER})(?:\s*\.\.\s*({NUMBER}))?\s*", text)
    low, high = (float(range_match[1]), float(range_match[2] or range_match[1])) if range_match else (0.0, 0.0)
    if not 0 <= low <= high < float("inf") or not high:
        raise DesignError(f"column value: {text[:40]!r} is not a number above 0, or two from low to high, as in 0.9..1.1")
    return low, high


@lru_cache(maxsize=256)
def compose_question(overrides: tuple[str, ...]) -> RowQuestion:
    """Design, workload and fidelity that some overrides select."""
    config = compose(overrides)
    names = {group: str(config["choices"].get(group, "")) for group in ("chip", "mapping", "stack")}
    return RowQuestion(
        build_question(config, find_study_folder(config)), str(config["fidelity"]), names, workload_name(config["workload"])
    )


@lru_cache(maxsize=1024)
def _evaluate_overrides(overrides: tuple[str, ...]) -> Outcomes:
    """One design, of which rows ask several metrics."""
    question, fidelity, *_ = compose_question(overrides)
    return evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).require_compatible()


def _mean_ratios(overrides: tuple[str, ...], baseline: tuple[str, ...], name: str) -> tuple[float | None, bool]:
    """Mean over cases of a metric over that of the baseline, None where there is none; and whether the design fits.

    As of a single ratio: a design that does not fit counts as if it did, and so does a baseline that has a chip of its own.
    """
    find_metric(name)
    if not baseline:
        raise DesignError(f"metric: each({name}) is a ratio; set the column baseline")
    alone = any(override.startswith("chip=") for override in baseline)
    metric_arrays, fits = [], []
    for words in (overrides, baseline if alone else (*overrides, *baseline)):
        question, fidelity, *_ = compose_question(words)
        outcomes = evaluate(
            stack_designs([question.base]), question.workload, fidelity=fidelity, cases=True
        ).require_compatible()
        fits.append(bool(outcomes.feasible[0]))
        metric_arrays.append(np.asarray(outcomes.cases[name])[:, 0])
    if not (fits[1] or alone) or np.isnan(np.concatenate(metric_arrays)).any():
        return None, fits[0]
    if len(metric_arrays[0]) != len(metric_arrays[1]):
        raise DesignError(f"metric: each({name}): {len(metric_arrays[0])} cases, and {len(metric_arrays[1])} of the baseline")
    return float(np.mean(metric_arrays[0] / metric_arrays[1])), fits[0]


@lru_cache(maxsize=4096)
def simulate_metric(overrides: tuple[str, ...], what: str, strict: bool = True) -> float | None:
    """Metric of one design, or of the best of a space, in SI; None if it is infeasible.

    With ``strict=False``, metrics of designs that violate a limit count too.
    """
    what = present_metrics(what)
    metric_match = re.fullmatch(r"(peak|at_peak|plateau|reached)\((?:([^,]+),\s*)?(\w+)\)", what.strip())
    if gain := RATIO.fullmatch(what.strip()):
        name, further = gain["name"], tuple(check_stored_overrides([gain["override"].strip()], "metric"))
        own, other = (simulate_metric(words, name, strict) for words in (overrides, (*overrides, *further)))
        return own / other if own is not None and other else None
    if metric_match is None:
        find_metric(what)
        outcomes = _evaluate_overrides(overrides)
        value = float(outcomes.columns[what][0])
        if outcomes.feasible[0] and np.isnan(value):
            raise DesignError(f"metric: this kind of chip or workload has no {what}")
        return None if np.isnan(value) or (strict and not outcomes.feasible[0]) else value
    kind, knob, name = metric_match.groups()
    if (kind == "peak") != (knob is None):
        raise DesignError(
            f"metric: {what!r}; expected peak(NAME), at_peak(KNOB, NAME), plateau(KNOB, NAME) or reached(KNOB, NAME)"
        )
    columns, losses = _evaluate_grid(overrides, what, name)
    best = int(losses.argmin())
    if not np.isfinite(losses[best]):
        return None
    if kind == "peak":
        return float(losses[best] if find_metric(name).better == "min" else -losses[best])
    if kind == "reached":
        settled = _plateau_bounds(columns[knob], losses, knob)[1]
        if np.isnan(settled):
            raise DesignError(f"metric: {name} is not within 1 % of its best at the last value of {knob}: no plateau")
        return settled
    return float(columns[knob][best])


def find_optimum_range(overrides: tuple[str, ...], what: str) -> tuple[float, float]:
    """Range of a knob around its best value in which the metric is within 1 % of its peak, in SI."""
    optimum_match = re.fullmatch(r"plateau\(([^,]+),\s*(\w+)\)", what.strip())
    assert optimum_match is not None  # `measured` has read it
    columns, losses = _evaluate_grid(overrides, what, optimum_match[2])
    first, _, last = _plateau_bounds(columns[optimum_match[1]], losses, optimum_match[1])
    return first, last


def _plateau_bounds(values: np.ndarray, losses: np.ndarray, knob: str) -> tuple[float, float, float]:
    """Where the plateau around the peak begins, from where on all is within 1 % of the peak (NaN for nowhere), and its end."""
    if values.dtype.kind not in "if":
        raise DesignError(f"metric: {knob} has no numbers, so that there is no order of its values")
    steps = np.unique(values)
    least = np.array([losses[values == step].min() for step in steps])
    high = least > least.min() + FLAT * abs(least.min())
    at = int(least.argmin())
    before, after = np.flatnonzero(high[:at]), np.flatnonzero(high[at:])
    first = before[-1] + 1 if before.size else 0
    last = at + after[0] - 1 if after.size else len(steps) - 1
    above = np.flatnonzero(high)
    settled = above[-1] + 1 if above.size else 0
    return float(steps[first]), float(steps[settled]) if settled < len(steps) else np.nan, float(steps[last])


def _evaluate_grid(overrides: tuple[str, ...], what: str, name: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Knobs of every design of a row's space, and its metric so that less is better; infinite where it is infeasible."""
    question, fidelity, *_ = compose_question(overrides)
    size = question.space.combinations
    if not question.space.knobs or size is None:
        raise DesignError(f"metric: {what} needs a space that can be enumerated; add space=NAME to the overrides")
    columns = question.space.grid(0, size)
    if ratio_match := re.match(r"\w+\(([^,]+),", what.strip()):
        question.space.knob(ratio_match[1])
    outcomes = evaluate(question.space.stack(columns), question.workload, fidelity=fidelity)
    sign = 1.0 if find_metric(name).better == "min" else -1.0
    losses = np.where(outcomes.feasible, sign * outcomes.columns[name], np.inf)
    if np.isnan(losses).any():
        raise DesignError(f"metric: this kind of chip or workload has no {name}")
    return columns, losses


def unit_of_metric(overrides: tuple[str, ...], what: str) -> str:
    """SI unit of a metric, or of the knob whose value is sought; "1" of a ratio."""
    if RATIO.fullmatch(what.strip()):
        return "1"
    unit_match = re.fullmatch(r"(?:at_peak|plateau|reached)\(([^,]+),\s*(\w+)\)", what.strip())
    if unit_match is None:
        return METRICS[re.sub(r"peak\((\w+)\)", r"\1", what.strip())].unit
    question = compose_question(overrides).question
    unit = question.space.spec(unit_match[1]).metadata["unit"]
    return str(unit)


def _number_text(row: ValidationRow) -> str:
    number = "infeasible" if row.simulated is None else f"{row.simulated:.4g}"
    return number if row.fits or row.simulated is None else f"{number} (does not fit)"


def format_row_error(row: ValidationRow) -> str:
    """Error of a row as text; "holds" for a range that holds, empty string if nothing was simulated."""
    if row.error is None:
        return ""
    return "holds" if row.in_range else f"{row.error:+.1%}"
