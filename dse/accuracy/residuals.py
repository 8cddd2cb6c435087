"""Errors of measured rows that ship, and the error band of the rows nearest in kind to an answer.

Residuals are written by ``python -m dse.studies.write residuals``, with the physics version that rows were simulated at, and
only read here. A band states errors of measured rows; it is no confidence interval of an answer.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dse.accuracy.result_kind import CHIP, MODELS, SERVICES, ResultKind, quantity_of_metric, result_kind
from dse.config.compose import STUDIES
from dse.evaluators.accounting.kernel_basis import EXTRAPOLATED, FLAT
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.space.former_words import current_fidelity, current_metric

if TYPE_CHECKING:
    from dse.accuracy.validate import ValidationRow

FILE = STUDIES / "residuals.csv"
COLUMNS = ("physics", "study", "id", "role", *ResultKind._fields, "compares", "error")

ENOUGH_ROWS = 20
"""Rows from which on a band is from 5 to 95 % of them; of fewer it is all."""

SCORED_ROLES = ("calibration", "check")
"""Roles of rows that a band is of; of rows that are reports only where there are no others, as not all is known of them."""

ASKED = {MODELS: ("ttft", "tpot", "latency"), SERVICES: ("ttft", "tpot", "latency")}
"""Metrics of an answer that have a band or say that they have none; of other questions the first of `ALONE` that there is."""

NEAR = ("chip", "question", "phase", "measure")
"""What rows and an answer have to have in common."""

ALONE = ("latency", "achieved_bandwidth", "packet_latency")


@dataclass(frozen=True, slots=True)
class Residual:
    """One measured row: simulated / measured - 1, and the kind of the row."""

    study: str
    id: str
    role: str
    kind: ResultKind
    compares: bool
    error: float


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """Errors of the measured rows that are nearest in kind to one metric of an answer.

    Attributes:
        metric, value: of the answer, in SI.
        kind: of the answer.
        low, high: simulated over measured less 1, in rows of this kind; None where there are none.
        rows, fitted: how many rows, and on how many of them constants were fitted.
        of: in words, the software of the rows, and what of them is not as in the answer.
        compares: whether the rows compare two designs, by a ratio.
        physics: version that the rows were simulated at.
    """

    metric: str
    value: float
    kind: ResultKind
    low: float | None = None
    high: float | None = None
    rows: int = 0
    fitted: int = 0
    of: str = ""
    compares: bool = False
    physics: int = PHYSICS_VERSION

    @property
    def stale(self) -> bool:
        """Whether rows were simulated at another physics version than the present one."""
        return self.physics != PHYSICS_VERSION

    @property
    def measured_range(self) -> tuple[float, float] | None:
        """Range of the measured value if the answer errs like these rows; None if no row is known.

        >>> ErrorBand("tpot", 1.0, ResultKind("c", "s", "static", "decode", "time", "analytical"), -0.2, 0.25, 3).measured_range
        (0.8, 1.25)
        """
        if self.low is None or self.high is None or self.compares:
            return None
        return self.value / (1 + self.high), self.value / (1 + self.low)

    def __str__(self) -> str:
        return f"measured rows of this kind: {self.text}" if self.rows else self.text

    @property
    def text(self) -> str:
        """The band as text for a terminal or a page."""
        if self.low is None or self.high is None:
            return "no measured row of this kind"
        span = _percent_text(self.low) if self.rows == 1 else f"{_percent_text(self.low)} to {_percent_text(self.high)}"
        span += " in 90 %" if self.rows >= ENOUGH_ROWS else ""
        source_text = ", ".join(part for part in (f"chip={self.kind.chip}", self.kind.phase, self.of) if part)
        kind = "comparison" if self.compares else "row"
        fitted = f", {self.fitted} fitted on" if self.fitted else ""
        stale = f"; simulated at physics version {self.physics}, now {PHYSICS_VERSION}: stale" if self.stale else ""
        return f"{span} ({self.rows} {kind}{'s' * (self.rows > 1)} of {source_text}{fitted}{stale})"


def estimate_error_bands(
    metrics: Mapping[str, float], names: Mapping[str, str], kernel: str, question: str, fidelity: str, *, changed: bool = False
) -> tuple[ErrorBand, ...]:
    """Error bands of an answer: of its times, and of each other metric that has rows.

    Args:
        metrics: of the answer, in SI.
        names: what was chosen by name: chip, mapping, stack.
        kernel, question: as `kind.kernel_of` and `space.kinds.called` have them.
        fidelity: of the answer.
        changed: whether the chip is not as it ships, while rows are of that.
    """
    always = ASKED.get(question) or [name for name in ALONE if name in metrics][:1]
    shown: dict[tuple[str, str], ErrorBand] = {}
    for name in dict.fromkeys((*(name for name in always if name in metrics), *metrics)):
        kind = result_kind(names, kernel, question, name, fidelity)
        if (kind.phase, kind.measure) in shown:
            continue
        band = estimate_error_band(kind, name, float(metrics[name]), changed=changed)
        if name in always or band.rows:
            shown[kind.phase, kind.measure] = band
    return tuple(shown.values())


def estimate_error_band(kind: ResultKind, metric: str, value: float, *, changed: bool = False) -> ErrorBand:
    """Error band of one metric."""
    rows, source_text = find_nearest_rows(kind, read_residuals())
    if not rows:
        return ErrorBand(metric, value, kind)
    source_text = ", ".join(filter(None, (source_text, "the unchanged chip" if changed else "")))
    errors = np.array([row.error for row in rows])
    if quantity_of_metric(metric).sign < 0:
        errors = 1 / (1 + errors) - 1
    ends = (5, 95) if len(rows) >= ENOUGH_ROWS else (0, 100)
    low, high = np.percentile(errors, ends)
    fitted = sum(row.role == "calibration" for row in rows)
    return ErrorBand(
        metric, value, kind, float(low), float(high), len(rows), fitted, source_text, rows[0].compares, read_residuals_version()
    )


def band_beyond_rows(band: ErrorBand, basis: Sequence[str]) -> ErrorBand:
    """Error band of a single kernel that rows do not cover: emptied, or marked "of other sizes".

    Args:
        band: of its chip and software.
        basis: of each kernel, as `evaluators.accounting.kernel_basis` has it.
    """
    if band.kind.phase == CHIP:
        return band
    if FLAT in basis:
        return ErrorBand(band.metric, band.value, band.kind)
    if band.rows and any(text.startswith(EXTRAPOLATED) for text in basis):
        return replace(band, of=", ".join(filter(None, (band.of, "of other sizes"))))
    return band


def find_nearest_rows(kind: ResultKind, rows: Sequence[Residual]) -> tuple[list[Residual], str]:
    """The rows nearest in kind, and text that lists in what they differ from the answer.

    Rows are of the same chip, question, phase and measure, or they are not near. Of these the same software comes first, then
    figures before comparisons of two designs, scored rows before reports, and the same fidelity.
    """
    near = [row for row in rows if all(getattr(row.kind, name) == getattr(kind, name) for name in NEAR)]
    if not near:
        return [], ""

    def rank_by_kind(row: Residual) -> tuple[bool, bool, bool, bool]:
        given_kind = row.kind
        return (
            given_kind.software != kind.software,
            row.compares,
            row.role not in SCORED_ROLES,
            given_kind.fidelity != kind.fidelity,
        )

    least = min(map(rank_by_kind, near))
    far, _, reports, read = least
    unlike = ("other software" if far else kind.software, "reports only" if reports else "", "another reader" if read else "")
    return [row for row in near if rank_by_kind(row) == least], ", ".join(filter(None, unlike))


def format_residuals_csv(rows: Mapping[str, Sequence["ValidationRow"]]) -> str:
    """The file of residuals of some studies: rows with a published number, no ranges and no optima."""
    lines = [",".join(COLUMNS)]
    for study, compared in rows.items():
        for row in compared:
            if row.error is None or row.error <= -1 or ".." in row.published or "(" in row.metric:
                continue
            # of times, whatever the metric
            error = row.error if quantity_of_metric(row.metric.strip()).sign > 0 else 1 / (1 + row.error) - 1
            cells = (PHYSICS_VERSION, study, row.id, row.role, *row.kind, int(row.compares), f"{error:.4f}")
            lines.append(",".join(f'"{cell}"' if "," in str(cell) else str(cell) for cell in cells))
    return "\n".join([*lines, ""])


def read_residuals() -> tuple[Residual, ...]:
    """Every row of the file of residuals that ships; none if there is no file."""
    return _read_residuals_file()[1]


def read_residuals_version() -> int:
    """Physics version at which the file of residuals was written."""
    return _read_residuals_file()[0]


@lru_cache(maxsize=1)
def _read_residuals_file() -> tuple[int, tuple[Residual, ...]]:
    residuals, version = [], PHYSICS_VERSION
    if FILE.exists():
        with FILE.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                version = int(row["physics"])
                kind = ResultKind(*(row[name] for name in ResultKind._fields))
                kind = kind._replace(fidelity=current_fidelity(kind.fidelity), measure=current_metric(kind.measure))
                residual = Residual(row["study"], row["id"], row["role"], kind, row["compares"] == "1", float(row["error"]))
                residuals.append(residual)
    return version, tuple(residuals)


def _percent_text(share: float) -> str:
    return f"{100 * round(share, 3) + 0.0:+.1f} %".replace("-", "\N{MINUS SIGN}")
