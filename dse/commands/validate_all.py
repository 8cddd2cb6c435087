"""``dse validate`` without a file: simulate every measured row that ships; count failures and errors.

A row fails if its error exceeds its study's tolerance (`dse.accuracy.tolerances`), or if it is infeasible. The command ends
with a status other than 0 if a row of role check fails that is no known miss: all others are expected to hold. Calibration
rows that fail, reports and known misses are counted and shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.accuracy.residuals import read_residuals_version
from dse.accuracy.tolerances import find_known_miss, row_tolerance
from dse.accuracy.validate import ROLES, ValidationRow, build_rows_table, compare_rows, format_row_error, read_rows, score_rows
from dse.config.compose import STUDIES
from dse.documents.records import record_values
from dse.documents.validate_documents import (
    CheckedRowRecord,
    ErrorGroupRecord,
    FailureCountRecord,
    ScoreRecord,
    ValidationDocument,
)
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, SafeConsole, say

SLOWEST = 5
"""Rows that are named for the time that they took."""


@dataclass(frozen=True, slots=True)
class ValidatedRow:
    """One row of a study with its tolerance and known miss.

    Attributes:
        tolerance: how far off it may be, relative.
        known: reason of a known miss; empty string if it is expected to hold.
    """

    study: str
    row: ValidationRow
    tolerance: float
    known: str

    @property
    def fails(self) -> bool:
        """Whether the error exceeds the tolerance, or nothing was simulated."""
        return self.row.error is None or abs(self.row.error) > self.tolerance

    @property
    def breaks(self) -> bool:
        """Whether a check fails that is expected to hold."""
        return self.row.role == "check" and self.fails and not self.known

    @property
    def place(self) -> tuple[str, str, str]:
        """Study, chip and phase of the row."""
        return self.study, self.row.kind.chip, self.row.kind.phase

    def record(self) -> CheckedRowRecord:
        """The row with its tolerance and known miss as a record of documents."""
        row = record_values(self.row.record())
        return CheckedRowRecord(study=self.study, **row, tolerance=self.tolerance, fails=self.fails, known=self.known)


def list_published_files(names: Sequence[str]) -> list[Path]:
    """Files of published rows of some studies that ship, or of all.

    Raises:
        DesignError: a study that has none.
    """
    known = {path.parent.name: path for path in sorted(STUDIES.glob("*/published.csv"))}
    for name in names:
        if name not in known:
            raise DesignError(f"validate: no file {name}, and no study that has published rows; {suggest_nearest(name, known)}")
    return [known[name] for name in names] if names else list(known.values())


def simulate_rows(paths: Sequence[Path], *, bar: ProgressBar | None = None) -> list[ValidatedRow]:
    """Simulate every row of some files of studies.

    Args:
        paths: as `places` has them; the study is the folder.
        bar: told after each row.

    Raises:
        DesignError: a file or a row that cannot be understood.
    """
    many = sum(1 for path in paths for _ in read_rows(path))
    rows: list[ValidatedRow] = []
    for path in paths:
        study = path.parent.name
        for row in compare_rows(path):
            rows.append(
                ValidatedRow(
                    study, row, row_tolerance(study, row.id), find_known_miss(study, row.id) if row.role == "check" else ""
                )
            )
            if bar is not None:
                bar.update(len(rows), many, study)
    return rows


def group_errors(rows: Sequence[ValidatedRow]) -> list[ErrorGroupRecord]:
    """Errors of rows by study, chip and phase, in the order of the rows."""
    by: dict[tuple[str, str, str], list[ValidatedRow]] = {}
    for row in rows:
        by.setdefault(row.place, []).append(row)
    return [_error_group(*place, group) for place, group in by.items()]


def count_failures(rows: Sequence[ValidatedRow]) -> dict[str, tuple[int, int]]:
    """Number of rows that fail and number of rows, by role."""
    return {role: (sum(row.fails for row in rows if row.row.role == role), _role_count(rows, role)) for role in ROLES}


def validation_record(rows: Sequence[ValidatedRow], page: Path | None = None) -> ValidationDocument:
    """The document of rows, with groups and failure counts; `page` is None where no page is written."""
    return ValidationDocument(
        physics=PHYSICS_VERSION,
        residuals_physics=read_residuals_version(),
        scores={role: _role_score(rows, role) for role in ROLES},
        failures={role: FailureCountRecord(fail=bad, rows=many) for role, (bad, many) in count_failures(rows).items()},
        broken=[f"{row.study}/{row.row.id}" for row in rows if row.breaks],
        groups=group_errors(rows),
        slowest=[f"{slowest_row.study}/{slowest_row.row.id}" for slowest_row in find_slowest_rows(rows)],
        rows=[row.record() for row in rows],
        page=str(page or ""),
    )


def find_slowest_rows(rows: Sequence[ValidatedRow]) -> list[ValidatedRow]:
    """The rows that took longest, compilation and table building included."""
    return sorted(rows, key=lambda row: -row.row.seconds)[:SLOWEST]


def validate_studies(names: Sequence[str], out: Path, *, as_json: bool) -> int:
    """Simulate the rows of studies, write the page, print the result; returns the exit status.

    Args:
        names: of studies; their rows are printed too.
        out: where the page goes.
        as_json: print everything as JSON.
    """
    from dse.report.standalone_pages import build_validation_page, write_answer_page

    paths = list_published_files(names)
    with ProgressBar("validate") as bar:
        rows = simulate_rows(paths, bar=bar)
    document = validation_record(rows, out)
    write_answer_page(build_validation_page(document), out)
    status = int(any(row.breaks for row in rows))
    if as_json:
        print(format_json(document, indent=1))
        return status
    console = SafeConsole(150)
    for path in paths if names else ():
        console.print(build_rows_table(path.parent.name, [row.row for row in rows if row.study == path.parent.name]))
    console.print(_groups_table(group_errors(rows)))
    _print_summary(console, rows)
    say(f"page    {escape(str(out))}")
    return status


def _print_summary(console: SafeConsole, rows: Sequence[ValidatedRow]) -> None:
    bad = ", ".join(f"{failures} of {many} of role {role}" for role, (failures, many) in count_failures(rows).items() if many)
    console.print(f"{len(rows):,} rows at physics version {PHYSICS_VERSION}; error above the study's tolerance: {bad}")
    console.print(f"calibration and check rows: {score_rows(row.row for row in rows if row.row.role != 'report')}")
    for row in rows:
        if row.row.role == "check" and row.fails:
            known = f"known not to hold: {row.known}" if row.known else "[red]expected to hold[/]"
            console.print(f"  {_row_name(row)}: {_row_error_text(row.row)}, tolerance {row.tolerance:.0%}; {known}")
        elif row.known:
            console.print(f"  {_row_name(row)}: {_row_error_text(row.row)}: holds, though it is among the known misses")
    if read_residuals_version() != PHYSICS_VERSION:
        console.print(
            f"[yellow]error bands are stale[/]: of physics version {read_residuals_version()}; "
            "python -m dse.studies.write residuals"
        )
    taken = ", ".join(f"{_row_name(slowest_row)} {slowest_row.row.seconds:.1f} s" for slowest_row in find_slowest_rows(rows))
    console.print(f"{sum(row.row.seconds for row in rows):.0f} s; slowest: {taken}")


def _error_group(study: str, chip: str, phase: str, rows: Sequence[ValidatedRow]) -> ErrorGroupRecord:
    everything = score_rows(row.row for row in rows)
    scored = score_rows(row.row for row in rows if row.row.role != "report").errors
    mean, p90, worst = _error_spread(np.array(scored or everything.errors))
    return ErrorGroupRecord(
        study=study,
        chip=chip,
        phase=phase,
        rows=len(rows),
        scored=len(scored),
        mean=mean,
        p90=p90,
        worst=worst,
        held=everything.held,
        ranges=everything.ranges,
        failures=count_failures(rows),
    )


def _error_spread(errors: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Mean, 90 % and worst of absolute errors; None where there are none."""
    return (float(errors.mean()), float(np.quantile(errors, 0.9)), float(errors.max())) if len(errors) else (None, None, None)


def _groups_table(groups: Sequence[ErrorGroupRecord]) -> Table:
    title = "rows that fail, errors of numbers that are scored, and ranges that hold"
    table = Table(title=title, title_justify="left", box=None)
    errors = ("scored", "mean", "90 %", "worst", "ranges hold")
    heads = ("study", "chip", "phase", "rows", *errors, *(f"{role} fails" for role in ROLES))
    for name in heads:
        table.add_column(name, justify="left" if name in ("study", "chip", "phase") else "right")
    before = ""
    for group in groups:
        spread = ("" if value is None else f"{value:.1%}" for value in (group.mean, group.p90, group.worst))
        fails = (f"{bad} of {many}" if many else "" for bad, many in group.failures.values())
        name, before = "" if group.study == before else group.study, group.study
        ranges = f"{group.held} of {group.ranges}" if group.ranges else ""
        cells = (name, group.chip, group.phase, str(group.rows), str(group.scored), *spread, ranges, *fails)
        table.add_row(*map(escape, cells))
    return table


def _role_score(rows: Sequence[ValidatedRow], role: str) -> ScoreRecord:
    errors, held, ranges = score_rows(row.row for row in rows if row.row.role == role)
    spread = (float(np.median(errors)), errors[-1]) if errors else (None, None)
    return ScoreRecord(numbers=len(errors), median=spread[0], worst=spread[1], held=held, ranges=ranges)


def _role_count(rows: Sequence[ValidatedRow], role: str) -> int:
    return sum(row.row.role == role for row in rows)


def _row_name(row: ValidatedRow) -> str:
    return escape(f"{row.study}/{row.row.id}")


def _row_error_text(row: ValidationRow) -> str:
    return format_row_error(row) or "no result"
