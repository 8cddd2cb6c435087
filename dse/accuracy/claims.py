"""Claims of papers: read, checked, simulated and decided, each with its place in the paper.

A file ``studies/claims/PAPER.csv`` has the columns of `COLUMNS`. Overrides, baseline, metric, value and unit are those of
`dse.accuracy.validate`, or ``row`` names a published row that has them. A place names one claim. The verdict of a claim is
computed from its simulated values:

- reproduced: within ``tolerance`` (relative) of a number, or inside a range; at all points of a sweep
- contradicted: at no point; ``mechanism`` says why
- undecidable: at some points of the sweep; or there is nothing that could be simulated

A sweep (``ADDRESS={A,B} ADDRESS={C,D}``, all combinations) goes over what the paper leaves out; ``missing`` says that in words.
``baseline:ADDRESS={A,B}`` goes over values of the baseline alone.
``reader`` has overrides of a second model of the same design, such as ``fidelity=events``; its value is printed beside.
"""

import csv
import io
import itertools
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from dse.accuracy.validate import COLUMNS as PUBLISHED_COLUMNS
from dse.accuracy.validate import ValidationRow, compare_row, escape_line, overrides_of, parse_value_range, read_rows
from dse.config.compose import STUDIES
from dse.documents.claims_document import ClaimPointRecord, ClaimRecord, ClaimVerdict, PaperRecord
from dse.space.errors import DesignError, suggest_nearest
from dse.space.units import parse_quantity

COLUMNS = (
    *("id", "where", "claim", "row", "overrides", "baseline", "metric", "value", "unit"),
    *("tolerance", "reader", "missing", "sweep", "mechanism"),
)
TAKEN_FROM_ROW = ("overrides", "baseline", "metric", "value", "unit")
"""Columns that are blank where `row` names a published row."""

REPRODUCED: Final = "reproduced"
CONTRADICTED: Final = "contradicted"
UNDECIDABLE: Final = "undecidable"
VERDICTS = (REPRODUCED, CONTRADICTED, UNDECIDABLE)

TITLES = {"waferllm": "WaferLLM", "npusim": "NpuSim", "flatattention": "FlatAttention", "preserve": "PRESERVE"}
"""Names of the papers by the names of their files; any other file has the name of its paper."""

VERDICT_FILE = "verdicts.csv"
"""In the folder of the claims: the verdicts as `python -m dse.studies.write claims` wrote them."""

VERDICT_COLUMNS = ("paper", "id", "verdict", "simulated", "error", "reader", "holds_at")

BASELINE_ONLY = "baseline:"
"""Before an address of a sweep whose values are those of the baseline alone."""

MAX_POINTS = 24
"""Combinations of one sweep."""


@dataclass(frozen=True)
class Claim:
    """One quantitative claim of a paper.

    Attributes:
        paper: name of its file.
        file: path of the file, for messages.
        line: of the file, on which it begins.
        where: place in the paper.
        claim: in words, with its number.
        row: published row that it is the same as, as STUDY/ID; empty string for none.
        overrides, baseline, metric, value, unit: of the published row, or its own; empty where nothing is simulated.
        tolerance: of the absolute relative error of a number; 0 for a range.
        reader: overrides of a second model.
        missing: what the paper leaves out.
        sweep: by address, the values to try.
        mechanism: why the simulated value differs.
        fitted: whether constants were fitted on the published row.
    """

    paper: str
    file: str
    line: int
    id: str
    where: str
    claim: str
    row: str
    overrides: tuple[str, ...]
    baseline: tuple[str, ...]
    metric: str
    value: str
    unit: str
    tolerance: float
    reader: tuple[str, ...]
    missing: str
    sweep: tuple[tuple[str, tuple[str, ...]], ...]
    mechanism: str
    fitted: bool = False

    @property
    def is_range(self) -> bool:
        """Whether the published value is a range."""
        return ".." in self.value

    @property
    def points(self) -> list[tuple[str, ...]]:
        """Overrides of each combination of the sweep; none if nothing is simulated.

        Without a sweep there is one empty combination.
        """
        if not self.overrides:
            return []
        return list(itertools.product(*([f"{address}={value}" for value in values] for address, values in self.sweep)))

    @property
    def is_quick(self) -> bool:
        """Whether one analytical evaluation of one design, or of two, decides the claim."""
        words = (*self.overrides, *self.baseline)
        slow = ("fidelity=", "space=", "workload=serving")
        return bool(self.overrides) and not self.reader and not self.sweep and not any(word.startswith(slow) for word in words)

    def compare_at(self, words: Sequence[str]) -> ValidationRow:
        """Simulate the claim with further overrides, and compare the result with the published value.

        Raises:
            DesignError: overrides that cannot be understood, with file and line.
        """
        of_both = [word for word in words if not word.startswith(BASELINE_ONLY)]
        overrides = replace_words(self.overrides, of_both)
        own = {address_of(word) for word in self.baseline}
        shared = [word for word in of_both if is_complete(self.baseline) or address_of(word) in own]
        shared += [word.removeprefix(BASELINE_ONLY) for word in words if word.startswith(BASELINE_ONLY)]
        baseline = replace_words(self.baseline, shared) if self.baseline else ()
        row = {name: str(getattr(self, name)) for name in ("id", "where", "metric", "value", "unit")}
        row |= {"overrides": shlex.join(overrides), "baseline": shlex.join(baseline), "role": "check", "note": self.claim}
        try:
            return compare_row(row)
        except DesignError as error:
            at = f" at {' '.join(words)}" if words else ""
            raise DesignError(f"{self.address}{at}: {escape_line(str(error))}") from None

    def holds(self, compared: ValidationRow) -> bool:
        """Whether a simulated value is within the claim's tolerance or published range."""
        return compared.error is not None and abs(compared.error) <= self.tolerance

    @property
    def address(self) -> str:
        """File, line and id, for messages."""
        return f"{self.file}, row {self.line} ({escape_line(self.id[:40])})"


def format_number(value: float) -> str:
    """A number as text: four digits, or all before the point, without an exponent where that is readable.

    >>> format_number(20324.02), format_number(1.23456), format_number(1.2e-6)
    ('20324', '1.235', '1.2e-06')
    """
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


class Point(NamedTuple):
    """One combination of a sweep, its simulated value, and whether the claim holds there."""

    words: tuple[str, ...]
    compared: ValidationRow
    holds: bool


@dataclass(frozen=True)
class Decision:
    """Simulated points of one claim, and its verdict.

    Attributes:
        claim: that is decided.
        points: by combination of the sweep; none where nothing is simulated.
        reader: the second model's comparison at the point nearest to the published value; None without one.
        seconds: that all of it took.
    """

    claim: Claim
    points: tuple[Point, ...]
    reader: ValidationRow | None
    seconds: float

    @cached_property
    def verdict(self) -> ClaimVerdict:
        """Verdict of the claim by its simulated points, one of `VERDICTS`."""
        holding = [point.holds for point in self.points]
        if not holding or (any(holding) and not all(holding)):
            return UNDECIDABLE
        return REPRODUCED if all(holding) else CONTRADICTED

    @property
    def best(self) -> ValidationRow | None:
        """The comparison nearest to the published value; None where nothing is simulated."""
        return find_nearest_point(self.points).compared if self.points else None

    @property
    def span(self) -> tuple[float, float] | None:
        """Least and largest simulated value, in the published unit; None where no point has one."""
        values = [point.compared.simulated for point in self.points if point.compared.simulated is not None]
        return (min(values), max(values)) if values else None

    @property
    def simulated_text(self) -> str:
        """Least and largest simulated value as text, or "infeasible" if there is none.

        One number if both are equal.
        """
        if self.span is None:
            return "infeasible" if self.points else ""
        low, high = map(format_number, self.span)
        unfit = "" if all(point.compared.fits for point in self.points) else " (does not fit)"
        return (low if low == high else f"{low}..{high}") + unfit

    @property
    def reader_value(self) -> str:
        """The second model's value as text; empty string without a second model."""
        if self.reader is None:
            return ""
        return "infeasible" if self.reader.simulated is None else format_number(self.reader.simulated)

    @property
    def holds_at(self) -> str:
        """The combinations of a sweep at which the claim holds, as text; empty string where all do, or none."""
        if self.verdict != UNDECIDABLE:
            return ""
        return "; ".join(" ".join(point.words) for point in self.points if point.holds)

    @property
    def problem(self) -> str:
        """What is wrong with the file of claims given the verdict, and what to do; empty string if nothing."""
        claim = self.claim
        if self.verdict != CONTRADICTED:
            return ""
        if not claim.mechanism:
            return (
                f"{claim.address}: contradicted ({self.simulated_text} for "
                f"{claim.value}); state the reason in the column mechanism"
            )
        if self.reader is not None and claim.holds(self.reader):
            return (
                f"{claim.address}: contradicted, yet {' '.join(claim.reader)} gives {self.reader_value}, which holds; "
                "find out which of the two is right before a mechanism is named"
            )
        return ""

    def record(self) -> ClaimRecord:
        """The claim and its verdict as a record of documents."""
        claim = self.claim
        return ClaimRecord(
            paper=claim.paper,
            id=claim.id,
            where=claim.where,
            claim=claim.claim,
            row=claim.row,
            overrides=claim.overrides,
            baseline=claim.baseline,
            metric=claim.metric,
            value=claim.value,
            unit=claim.unit,
            reader=claim.reader,
            missing=claim.missing,
            mechanism=claim.mechanism,
            fitted=claim.fitted,
            sweep=dict(claim.sweep),
            tolerance=None if claim.is_range or not claim.value else claim.tolerance,
            is_range=claim.is_range,
            command=f"dse validate --claims {claim.paper}/{claim.id}",
            verdict=self.verdict,
            simulated=self.simulated_text,
            span=self.span,
            error=None if self.best is None else self.best.error,
            reader_value=None if self.reader is None else self.reader.simulated,
            points=[
                ClaimPointRecord(overrides=words, simulated=compared.simulated, fits=compared.fits, holds=holds)
                for words, compared, holds in self.points
            ],
            problem=self.problem,
            seconds=self.seconds,
        )


class Tally(NamedTuple):
    """Verdicts of one paper, and errors of its decided claims, numbers and ranges apart.

    Attributes:
        paper: name of its file.
        counts: claims by verdict.
        fitted: reproduced claims on whose published row constants were fitted.
        errors: absolute relative errors of decided claims of numbers, ascending.
        held, ranges: decided claims of ranges that are reproduced, and decided claims of ranges.
    """

    paper: str
    counts: dict[str, int]
    fitted: int
    errors: tuple[float, ...]
    held: int
    ranges: int

    @property
    def claims(self) -> int:
        """Number of claims of the paper, decided or not."""
        return sum(self.counts.values())

    @property
    def decided_claims(self) -> int:
        """Claims that are reproduced or contradicted."""
        return self.counts[REPRODUCED] + self.counts[CONTRADICTED]

    @property
    def title(self) -> str:
        """Name of the paper as it is written in titles."""
        return TITLES.get(self.paper, self.paper)

    def __str__(self) -> str:
        fitted = f"constants were fitted on {self.fitted} of these" if self.fitted else ""
        numbers = f"median error of numbers {median(self.errors):.1%}" if self.errors else ""
        ranges = f"{self.held} of {self.ranges} ranges hold" if self.ranges else ""
        notes = "; ".join(filter(None, (fitted, numbers, ranges)))
        decided = f"{self.decided_claims} of {self.claims} claims decided, {self.counts[REPRODUCED]} reproduced"
        return f"{self.title}: {decided}" + f" ({notes})" * bool(notes)

    def record(self) -> PaperRecord:
        """The tally of one paper as a record of documents."""
        return PaperRecord(
            paper=self.paper,
            title=self.title,
            claims=self.claims,
            decided=self.decided_claims,
            reproduced=self.counts[REPRODUCED],
            contradicted=self.counts[CONTRADICTED],
            undecidable=self.counts[UNDECIDABLE],
            fitted=self.fitted,
            numbers=len(self.errors),
            median=median(self.errors) if self.errors else None,
            worst=self.errors[-1] if self.errors else None,
            held=self.held,
            ranges=self.ranges,
        )


class Verdict(NamedTuple):
    """One row of `VERDICT_FILE`: text of each column."""

    paper: str
    id: str
    verdict: str
    simulated: str
    error: str
    reader: str
    holds_at: str


def folder() -> Path:
    """Folder of the files of claims."""
    return STUDIES / "claims"


def find_claims(names: Sequence[str]) -> list[Claim]:
    """Claims of papers, of files or by PAPER/ID; of all papers that ship if none is named.

    A name that ends in .csv is a file.

    Raises:
        DesignError: an unknown paper or claim; a file that cannot be understood.
    """
    known = {path.stem: path for path in sorted(folder().glob("*.csv")) if path.name != VERDICT_FILE}
    found_claims: dict[tuple[str, str], Claim] = {}
    for name in names or known:
        paper, _, single_name = name.partition("/")
        if name.endswith(".csv"):
            claims = read_claims(Path(name))
        elif paper in known:
            claims = read_claims(known[paper])
        else:
            raise DesignError(f"validate --claims: no paper {escape_line(paper[:40])!r}; {suggest_nearest(paper, known)}")
        if single_name and not name.endswith(".csv"):
            ids = [claim.id for claim in claims]
            if single_name not in ids:
                raise DesignError(
                    f"validate --claims: {paper} has no claim {escape_line(single_name[:40])!r}; "
                    f"{suggest_nearest(single_name, ids)}"
                )
            claims = [claim for claim in claims if claim.id == single_name]
        found_claims.update({(claim.paper, claim.id): claim for claim in claims})
    return list(found_claims.values())


def read_claims(path: Path) -> list[Claim]:
    """Read and check the claims of one file.

    Raises:
        DesignError: no such file, or what is no table of claims, with file and row.
    """
    if not path.exists():
        raise DesignError(f"validate --claims: no file {path}")
    refuse_columns(path)
    claims: list[Claim] = []
    seen: dict[tuple[str, str], int] = {}
    for line, cells in read_rows(path, COLUMNS, "claims"):
        try:
            claims.append(build_claim(path, line, {name: cells[name].strip() for name in COLUMNS}))
            for column in ("id", "where"):
                text = cells[column].strip()
                if before := seen.get((column, text.casefold())):
                    advice = (
                        "a place names one claim: name its sentence, row or cell"
                        if column == "where"
                        else "give one of them another"
                    )
                    raise DesignError(f"column {column}: {text[:80]!r} is in row {before} too; {advice}")
                seen[column, text.casefold()] = line
        except DesignError as error:
            raise DesignError(f"{path}, row {line} ({escape_line(cells['id'][:40])}): {escape_line(str(error))}") from None
    return claims


def refuse_columns(path: Path) -> None:
    """Refuse unknown columns of a file of claims, among them a verdict, which is computed."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return  # `rows_of` says what is wrong
    for column in header:
        if column.strip().lower() in ("verdict", *VERDICTS):
            raise DesignError(
                f"{path}, row 1: column {column.strip()!r}: a verdict is computed, never typed; remove the column"
            )
        if column not in COLUMNS:
            text = f"no column {escape_line(column[:40])!r} in a file of claims"
            raise DesignError(f"{path}, row 1: {text}; {suggest_nearest(column, COLUMNS)}")


def build_claim(path: Path, line: int, cells: Mapping[str, str]) -> Claim:
    """Claim from the cells of one row.

    Raises:
        DesignError: a cell that is blank and may not be, or cannot be understood, with its column.
    """
    for column in ("id", "where", "claim"):
        if not cells[column]:
            raise DesignError(f"column {column}: is blank; a claim has an id, a place in the paper and a sentence")
    cells = {"role": "", **cells}
    if cells["row"]:
        if typed := [column for column in TAKEN_FROM_ROW if cells[column]]:
            raise DesignError(f"column {typed[0]}: comes from the row {cells['row']}; leave it blank, or leave row blank")
        cells |= read_published_row(cells["row"])
    sweep = parse_sweep(cells["sweep"])
    overrides, baseline, reader = (overrides_of(cells, column) for column in ("overrides", "baseline", "reader"))
    if not overrides:
        if not cells["missing"]:
            raise DesignError(
                "column missing: a claim without overrides or row cannot be simulated; list there what is missing"
            )
        if typed := [name for name in ("baseline", "metric", "tolerance", "reader", "sweep") if cells[name]]:
            raise DesignError(f"column {typed[0]}: without overrides nothing is simulated; leave it blank")
    elif not cells["metric"]:
        raise DesignError("column metric: is blank; name the metric to compare, as in tpot")
    elif sweep and not cells["missing"]:
        raise DesignError("column missing: a sweep covers what the paper leaves out; name that there")
    elif not baseline and any(address.startswith(BASELINE_ONLY) for address, _ in sweep):
        raise DesignError(
            f"column sweep: {BASELINE_ONLY} needs a baseline; set the column baseline, or leave out {BASELINE_ONLY}"
        )
    if overrides:
        parse_value_range(cells["value"])
    return Claim(
        path.stem,
        f"studies/claims/{path.name}" if path.parent == folder() else str(path),
        line,
        **{name: cells[name] for name in ("id", "where", "claim", "row", "metric", "value", "unit", "missing", "mechanism")},
        overrides=overrides,
        baseline=baseline,
        reader=reader,
        sweep=sweep,
        tolerance=parse_tolerance(cells) if overrides else 0.0,
        fitted=cells["role"] == "calibration",
    )


def parse_tolerance(cells: Mapping[str, str]) -> float:
    """Tolerance of a row: above 0 and at most 1 for a number, 0 for a range, whose column is blank. [-]"""
    text = cells["tolerance"]
    if ".." in cells["value"]:
        if text:
            raise DesignError(
                f"column tolerance: {text[:40]!r}, but {cells['value']} is a range, which holds or does not; leave it blank"
            )
        return 0.0
    if not text:
        raise DesignError("column tolerance: is blank; set the largest relative error of the number, as in 0.1")
    try:
        share = parse_quantity(text, "1")
    except DesignError as error:
        raise DesignError(f"column tolerance: {error}") from None
    if not 0 < share <= 1:
        raise DesignError(f"column tolerance: {text[:40]!r} is not above 0 and at most 1; 0.1 is 10 %")
    return share


def parse_sweep(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Values that a sweep tries, by address.

    Raises:
        DesignError: what is no sweep, or one of too many combinations.

    >>> parse_sweep("workload.prompt={128,512} workload.batch={[1],[2,4]}")
    (('workload.prompt', ('128', '512')), ('workload.batch', ('[1]', '[2,4]')))
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise DesignError(f"column sweep: {text[:80]!r}: {str(error).lower()}; close the quotes") from None
    swept = []
    for word in words:
        sweep_match = re.fullmatch(r"([^={}]+)=\{(.*)\}", word)
        values = split_values(sweep_match[2]) if sweep_match else ()
        if not sweep_match or len(values) < 2 or not all(values):
            raise DesignError(f"column sweep: {word[:80]!r} is no ADDRESS={{VALUE,VALUE}} of two values or more; write it so")
        swept.append((sweep_match[1], values))
    if len({address for address, _ in swept}) < len(swept):
        raise DesignError(f"column sweep: an address is twice in {text[:80]!r}; give all its values in one word")
    points = 1
    for _, values in swept:
        points *= len(values)
    if points > MAX_POINTS:
        raise DesignError(f"column sweep: {points} combinations, at most {MAX_POINTS} are simulated; leave out values")
    return tuple(swept)


def split_values(text: str) -> tuple[str, ...]:
    """Values between commas, of which those within brackets do not count.

    >>> split_values("[1,2],(3,4),a")
    ('[1,2]', '(3,4)', 'a')
    """
    values, depth = [""], 0
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and not depth:
            values.append("")
        else:
            values[-1] += letter
    return tuple(value.strip() for value in values)


def read_published_row(name: str) -> dict[str, str]:
    """Columns that a claim takes from a published row, named STUDY/ID, and the role of the row.

    Raises:
        DesignError: no such study or row, with the nearest name.
    """
    study, _, field = name.partition("/")
    files = {path.parent.name: path for path in STUDIES.glob("*/published.csv")}
    if study not in files:
        raise DesignError(f"column row: no study {study[:40]!r} with published rows; {suggest_nearest(study, files)}")
    rows = read_published_rows(files[study], files[study].stat().st_mtime_ns)
    if field not in rows:
        raise DesignError(f"column row: {study} has no published row {field[:40]!r}; {suggest_nearest(field, rows)}")
    return {column: rows[field][column] for column in (*TAKEN_FROM_ROW, "role")}


@lru_cache(maxsize=64)
def read_published_rows(path: Path, changed: int) -> dict[str, dict[str, str]]:
    """Rows of a file of published figures by id, read again when the file changes."""
    return {row["id"]: row for _, row in read_rows(path, PUBLISHED_COLUMNS)}


def replace_words(overrides: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Overrides with further ones; a further one replaces the override of the same address.

    >>> replace_words(("chip=wse2", "mapping.rows=360"), ("mapping.rows=720",))
    ('chip=wse2', 'mapping.rows=720')
    """
    replaced = {address_of(word) for word in words}
    return (*(word for word in overrides if address_of(word) not in replaced), *words)


def address_of(word: str) -> str:
    """Address of an override, without the plus sign that adds it."""
    return word.partition("=")[0].lstrip("+")


def is_complete(baseline: Sequence[str]) -> bool:
    """Whether a baseline has a chip of its own: then it is a whole design, not a change to the row's."""
    return any(word.startswith("chip=") for word in baseline)


def find_nearest_point(points: Sequence[Point]) -> Point:
    """The point whose simulated value is nearest to the published value; the first where none has a value."""
    return min(points, key=lambda point: float("inf") if point.compared.error is None else abs(point.compared.error))


def decide_claim(claim: Claim) -> Decision:
    """Simulate all points of a claim, and its second model at the nearest point.

    Raises:
        DesignError: overrides that cannot be understood, with file and row.
    """
    begun = time.perf_counter()
    compared = [(words, claim.compare_at(words)) for words in claim.points]
    points = tuple(Point(words, value, claim.holds(value)) for words, value in compared)
    reader = claim.compare_at((*find_nearest_point(points).words, *claim.reader)) if claim.reader else None
    return Decision(claim, points, reader, time.perf_counter() - begun)


def decide_claims(claims: Iterable[Claim]) -> Iterator[Decision]:
    """Decide claims one by one; a design that several claims share is simulated once."""
    return map(decide_claim, claims)


def tally_papers(decisions: Iterable[Decision]) -> list[Tally]:
    """Verdicts and errors by paper, in the order in which papers come."""
    return tally_verdicts((decision.claim, decision_row(decision)) for decision in decisions)


def tally_verdicts(verdicts: Iterable[tuple[Claim, Verdict]]) -> list[Tally]:
    """Verdicts and errors by paper, from rows of `VERDICT_FILE` and their claims."""
    papers: dict[str, list[tuple[Claim, Verdict]]] = {}
    for claim, verdict in verdicts:
        papers.setdefault(claim.paper, []).append((claim, verdict))
    return [_tally_claims(paper, rows) for paper, rows in papers.items()]


def _tally_claims(paper: str, rows: Sequence[tuple[Claim, Verdict]]) -> Tally:
    decided = [(claim, verdict) for claim, verdict in rows if verdict.verdict != UNDECIDABLE]
    errors = sorted(abs(float(verdict.error)) for claim, verdict in decided if verdict.error and not claim.is_range)
    ranges = [verdict.verdict == REPRODUCED for claim, verdict in decided if claim.is_range]
    counts = {name: sum(verdict.verdict == name for _, verdict in rows) for name in VERDICTS}
    fitted = sum(claim.fitted and verdict.verdict == REPRODUCED for claim, verdict in rows)
    return Tally(paper, counts, fitted, tuple(errors), sum(ranges), len(ranges))


def decision_row(decision: Decision) -> Verdict:
    """The row of `VERDICT_FILE` for a decision."""
    error = None if decision.best is None else decision.best.error
    return Verdict(
        decision.claim.paper,
        decision.claim.id,
        decision.verdict,
        decision.simulated_text,
        "" if error is None else f"{error + 0.0:.4f}",
        decision.reader_value,
        decision.holds_at,
    )


def format_verdict_file(decisions: Iterable[Decision]) -> str:
    """The text of `VERDICT_FILE`."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([VERDICT_COLUMNS, *map(decision_row, decisions)])
    return text.getvalue()


def read_verdicts() -> dict[tuple[str, str], Verdict]:
    """Rows of `VERDICT_FILE` by paper and id; none where there is no such file."""
    path = folder() / VERDICT_FILE
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Verdict(*(row[name] for name in VERDICT_COLUMNS)) for row in csv.DictReader(file)]
    return {(row.paper, row.id): row for row in rows}
