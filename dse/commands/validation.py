"""``dse validate`` without a file: every measured row that ships is simulated again; what fails, and how far off groups are.

A row fails where it is further off than its study's tolerance (`dse.measured.promised`), or where nothing comes out. The
command ends with a status other than 0 where a row of role check fails that is not among the known misses: all others are
said to hold. Calibration rows that fail, reports and known misses are counted and shown.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.config.compose import STUDIES
from dse.evaluators.evaluation import PHYSICS
from dse.measured.promised import miss, tolerance
from dse.measured.residuals import physics
from dse.measured.validate import ROLES, Compared, error_text, rows_of, rows_table, score_rows, simulated
from dse.schemas import stamped
from dse.space.errors import DesignError, nearest
from dse.terminal.drafts import draft
from dse.terminal.json_text import json_text
from dse.terminal.progress import Progress, Terminal, say

SLOWEST = 5
"""Rows that are named for the time that they took."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A row of a study, with what was promised of it.

    Attributes:
        tolerance: how far off it may be, relative.
        known: why it is known not to hold; "" where it is said to hold.
    """

    study: str
    row: Compared
    tolerance: float
    known: str

    @property
    def fails(self) -> bool:
        """Whether it is further off than that, or nothing comes out."""
        return self.row.error is None or abs(self.row.error) > self.tolerance

    @property
    def breaks(self) -> bool:
        """Whether a check that is said to hold does not."""
        return self.row.role == "check" and self.fails and not self.known

    @property
    def place(self) -> tuple[str, str, str]:
        """Study, chip and phase."""
        return self.study, self.row.kind.chip, self.row.kind.phase

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {"study": self.study, **self.row.record(), "tolerance": self.tolerance, "fails": self.fails, "known": self.known}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one study, chip and phase.

    Attributes:
        rows: all of them.
        scored: calibration and check rows that publish a number; errors are theirs, or of the reports where there are none.
        mean, p90, worst: of absolute relative errors; None where there is none.
        held, ranges: published ranges with the simulated value inside, and published ranges, of any role.
        failures: by role, rows that fail and rows.
    """

    study: str
    chip: str
    phase: str
    rows: int
    scored: int
    mean: float | None
    p90: float | None
    worst: float | None
    held: int
    ranges: int
    failures: dict[str, tuple[int, int]]


def places(names: Sequence[str]) -> list[Path]:
    """The files of published rows of some studies that ship, or of all.

    Raises:
        DesignError: a study that has none.
    """
    known = {path.parent.name: path for path in sorted(STUDIES.glob("*/published.csv"))}
    for name in names:
        if name not in known:
            raise DesignError(f"validate: no file {name}, and no study that has published rows; {nearest(name, known)}")
    return [known[name] for name in names] if names else list(known.values())


def rerun(paths: Sequence[Path], *, bar: Progress | None = None) -> list[Checked]:
    """Every row of some files of studies, simulated.

    Args:
        paths: as `places` has them; the study is the folder.
        bar: told after each row.

    Raises:
        DesignError: a file or a row that cannot be understood.
    """
    many = sum(1 for path in paths for _ in rows_of(path))
    found: list[Checked] = []
    for path in paths:
        study = path.parent.name
        for row in simulated(path):
            found.append(Checked(study, row, tolerance(study, row.id), miss(study, row.id) if row.role == "check" else ""))
            if bar is not None:
                bar.update(len(found), many, study)
    return found


def groups(rows: Sequence[Checked]) -> list[Group]:
    """Rows by study, chip and phase, in the order that they come."""
    by: dict[tuple[str, str, str], list[Checked]] = {}
    for one in rows:
        by.setdefault(one.place, []).append(one)
    return [_group(*place, of) for place, of in by.items()]


def failures(rows: Sequence[Checked]) -> dict[str, tuple[int, int]]:
    """By role, how many rows fail, of how many."""
    return {role: (sum(one.fails for one in rows if one.row.role == role), _many(rows, role)) for role in ROLES}


def record(rows: Sequence[Checked]) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "physics": PHYSICS,
        "residuals_physics": physics(),
        "scores": {role: _score(rows, role) for role in ROLES},
        "failures": {role: {"fail": bad, "rows": many} for role, (bad, many) in failures(rows).items()},
        "broken": [f"{one.study}/{one.row.id}" for one in rows if one.breaks],
        "groups": [asdict(group) for group in groups(rows)],
        "slowest": [f"{one.study}/{one.row.id}" for one in slowest(rows)],
        "rows": [one.record() for one in rows],
    }


def slowest(rows: Sequence[Checked]) -> list[Checked]:
    """The rows that took longest, with what is compiled or built for the first of its kind."""
    return sorted(rows, key=lambda one: -one.row.seconds)[:SLOWEST]


def validation(names: Sequence[str], out: Path, *, as_json: bool) -> int:
    """Reruns studies, or all, writes the page, prints what came out; returns the exit status.

    Args:
        names: of studies; their rows are printed too.
        out: where the page goes.
        as_json: print everything as JSON.
    """
    from dse.report.alone import validated_page

    paths = places(names)
    with Progress("validate") as bar:
        rows = rerun(paths, bar=bar)
    data = record(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    with draft(out) as place:
        place.write_text(validated_page(data), encoding="utf-8")
    status = int(any(one.breaks for one in rows))
    if as_json:
        print(json_text(stamped("validation", data | {"page": str(out)}), indent=1))
        return status
    console = Terminal(150)
    for path in paths if names else ():
        console.print(rows_table(path.parent.name, [one.row for one in rows if one.study == path.parent.name]))
    console.print(_groups_table(groups(rows)))
    _tell(console, rows)
    say(f"page    {escape(str(out))}")
    return status


def _tell(console: Terminal, rows: Sequence[Checked]) -> None:
    bad = ", ".join(f"{some} of {many} of role {role}" for role, (some, many) in failures(rows).items() if many)
    console.print(f"{len(rows):,} rows by physics {PHYSICS}; further off than their study's tolerance: {bad}")
    console.print(f"calibration and check rows: {score_rows(one.row for one in rows if one.row.role != 'report')}")
    for one in rows:
        if one.row.role == "check" and one.fails:
            known = f"known not to hold: {one.known}" if one.known else "[red]said to hold[/]"
            console.print(f"  {_named(one)}: {_error(one.row)}, tolerance {one.tolerance:.0%}; {known}")
        elif one.known:
            console.print(f"  {_named(one)}: {_error(one.row)}: holds, though it is among the known misses")
    if physics() != PHYSICS:
        console.print(f"[yellow]bands of answers are stale[/]: by physics {physics()}; python -m dse.studies.write residuals")
    taken = ", ".join(f"{_named(one)} {one.row.seconds:.1f} s" for one in slowest(rows))
    console.print(f"{sum(one.row.seconds for one in rows):.0f} s; longest took {taken}")


def _group(study: str, chip: str, phase: str, rows: Sequence[Checked]) -> Group:
    everything = score_rows(one.row for one in rows)
    scored = score_rows(one.row for one in rows if one.row.role != "report").errors
    mean, p90, worst = _spread(np.array(scored or everything.errors))
    return Group(
        study, chip, phase, len(rows), len(scored), mean, p90, worst, everything.held, everything.ranges, failures(rows)
    )


def _spread(errors: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Mean, 90 % and worst of absolute errors; None where there are none."""
    return (float(errors.mean()), float(np.quantile(errors, 0.9)), float(errors.max())) if len(errors) else (None, None, None)


def _groups_table(found: Sequence[Group]) -> Table:
    title = "rows that fail, errors of numbers that are scored, and ranges that hold"
    table = Table(title=title, title_justify="left", box=None)
    errors = ("scored", "mean", "90 %", "worst", "ranges hold")
    heads = ("study", "chip", "phase", "rows", *errors, *(f"{role} fails" for role in ROLES))
    for name in heads:
        table.add_column(name, justify="left" if name in ("study", "chip", "phase") else "right")
    before = ""
    for group in found:
        spread = ("" if value is None else f"{value:.1%}" for value in (group.mean, group.p90, group.worst))
        fails = (f"{bad} of {many}" if many else "" for bad, many in group.failures.values())
        name, before = "" if group.study == before else group.study, group.study
        ranges = f"{group.held} of {group.ranges}" if group.ranges else ""
        cells = (name, group.chip, group.phase, str(group.rows), str(group.scored), *spread, ranges, *fails)
        table.add_row(*map(escape, cells))
    return table


def _score(rows: Sequence[Checked], role: str) -> dict[str, Any]:
    errors, held, ranges = score_rows(one.row for one in rows if one.row.role == role)
    spread = (float(np.median(errors)), errors[-1]) if errors else (None, None)
    return {"numbers": len(errors), "median": spread[0], "worst": spread[1], "held": held, "ranges": ranges}


def _many(rows: Sequence[Checked], role: str) -> int:
    return sum(one.row.role == role for one in rows)


def _named(one: Checked) -> str:
    return escape(f"{one.study}/{one.row.id}")


def _error(row: Compared) -> str:
    return error_text(row) or "nothing comes out"
