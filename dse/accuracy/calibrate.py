"""``dse calibrate``: fit named constants of a chip or a stack to measured rows.

Only rows of role calibration are fitted; rows of role check are shown. Rows are those of `dse.accuracy.validate`. Every vector
of constants is tried on all rows at once: designs of rows with the same workload are stacked. Nothing is written before all
is known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.accuracy.determined_constants import UndeterminedConstant
from dse.accuracy.least_squares import (
    DIFFERENCE_STEP,
    SCREENED,
    ConstantBounds,
    FitResult,
    Vector,
    cross_validation_folds,
    fit_with_statistics,
    log_ratios,
    solve_constants,
    start_vectors,
)
from dse.accuracy.measurements.measured_run import MeasuredRun
from dse.accuracy.validate import (
    ROLES,
    RowQuestion,
    compose_question,
    escape_line,
    overrides_of,
    parse_value_range,
    read_role,
    read_rows,
    unit_of_metric,
)
from dse.config.record_parser import parse_setting
from dse.config.workloads import SEED
from dse.documents.validate_documents import Role
from dse.evaluators import evaluate
from dse.evaluators.accounting.metrics import find_metric
from dse.space.aliases import current_address
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import addresses, field_at, integer_field, leaf_at, replace_leaves
from dse.space.machines import machine_of
from dse.space.units import parse_quantity
from dse.terminal.progress import ProgressBar

FOLDS = integer_field("parts of the rows, each of which is left out once", low=2)

CALIBRATE_OPTIONS = ("fit", "folds", "seed", "name", "check", "interval", "runs", "concurrency")
"""What is said of a calibration itself; all else is an override, put before those of each row."""

EXAMPLE = "fit=[chip.hbm.strided_row_overhead,mapping.stack.operator_launch]"


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Options of a calibration.

    Attributes:
        wanted: constants to fit, each an address or an address with a range; empty to choose them.
        folds: parts of the rows, each of which is held out once.
        seed: of folds and start values.
        held_out: whether a held-out error is worked out, which takes as many fits as folds.
        checks: files whose rows are all checks.
        starts: start vectors that are looked at for each constant.
        step, tolerance, scanned: of descents, as of `ConstantBounds`.
    """

    wanted: tuple[str, ...]
    folds: int
    seed: int
    held_out: bool = True
    checks: tuple[str, ...] = ()
    starts: int = SCREENED
    step: float = DIFFERENCE_STEP
    tolerance: float = 1e-10
    scanned: bool = False


@dataclass(frozen=True)
class FittedConstant:
    """One constant of a chip or a stack that a calibration fits, in SI."""

    address: str
    unit: str
    doc: str
    before: float
    low: float
    high: float


@dataclass(frozen=True)
class MeasuredRow:
    """One measured row: its range in SI and the question that simulates it.

    `base` is the question of the denominator, if the metric is a ratio.
    """

    id: str
    role: Role
    metric: str
    unit: str
    divisor: float
    low: float
    high: float
    asked: RowQuestion
    base: RowQuestion | None
    base_fixed: bool


class _SharedDesign(NamedTuple):
    """A design that rows of several metrics share, and is simulated once: where each row's values go, and its metric."""

    design: Design
    fixed: bool
    cells: list[tuple[Vector, int, str]]


@dataclass(frozen=True)
class Calibration:
    """Result of a calibration: constants before and after, with the rows they were fitted to.

    Attributes:
        before: of each row, simulated in SI with the constants as they were; `after` likewise as they came out.
        held_out: (calibration rows,), logarithms of rows by constants that were fitted without them; None where too few.
        skipped: rows that ask for a peak of a space, and are not of role calibration.
        runs: of engines that rows were made from, with notes; empty for a file of rows.
        undetermined: constants that were looked at and not fitted, as rows do not determine them.
    """

    file: Path
    constants: tuple[FittedConstant, ...]
    rows: tuple[MeasuredRow, ...]
    fitted: FitResult
    before: Vector
    after: Vector
    held_out: Vector | None
    seed: int
    simulations: int
    skipped: int = 0
    overrides: tuple[str, ...] = field(default=())
    runs: tuple[MeasuredRun, ...] = field(default=())
    undetermined: tuple[UndeterminedConstant, ...] = field(default=())

    def errors(self, role: str, simulated: Vector) -> Vector:
        """Relative errors of the rows of one role. [-]"""
        picked = [i for i, row in enumerate(self.rows) if row.role == role]
        return np.expm1(log_errors(self.rows, simulated)[picked])


def calibrate(path: Path, words: Sequence[str]) -> Calibration:
    """Fit the constants that ``fit=[...]`` names to the rows of a file.

    Args:
        path: of rows.
        words: those of `WORDS`, overrides, and Hydra's flags.

    Raises:
        DesignError: what cannot be fitted or understood, with file, row and column.
    """
    options = read_options(words)
    overrides = tuple(word for word in words if word.partition("=")[0] not in CALIBRATE_OPTIONS)
    if not options.wanted:
        raise DesignError(f"calibrate: name the constants to fit, as in {EXAMPLE}")
    if not path.exists():
        raise DesignError(f"calibrate: no file {path}")
    rows, constants, skipped = _read_rows(path, overrides, options.wanted)
    calibration = fit_rows(path, rows, constants, options)
    return replace(calibration, skipped=skipped, overrides=tuple(map(str, overrides)))


def read_options(words: Sequence[str]) -> CalibrateOptions:
    """Options of a calibration among the words of a command.

    Raises:
        DesignError: one that cannot be understood.
    """
    options = {key: value for key, _, value in (word.partition("=") for word in words) if key in CALIBRATE_OPTIONS}
    wanted = split_list(options.get("fit", ""))
    folds = parse_setting(options.get("folds", 5), FOLDS, "calibrate: folds")
    seed = parse_setting(options.get("seed", 0), SEED, "calibrate: seed")
    return CalibrateOptions(wanted, folds, seed, True, split_list(options.get("check", "")))


def split_list(text: str) -> tuple[str, ...]:
    """Entries of a list as it is typed.

    >>> split_list("[a, 'b']"), split_list("")
    (('a', 'b'), ())
    """
    return tuple(part.strip(" '\"") for part in text.strip("[] ").split(",") if part.strip(" '\""))


def fit_rows(
    path: Path, rows: Sequence[MeasuredRow], constants: tuple[FittedConstant, ...], options: CalibrateOptions
) -> Calibration:
    """Fit constants to measured rows, and simulate all rows with the constants before and after.

    Args:
        path: of the rows, for messages.
        rows: of all roles.
        constants: to fit.
        options: folds, of which none are made if `held_out` is false, and seed.

    Raises:
        DesignError: fewer rows of role calibration than constants, or one without a result.
    """
    fitted_on = [i for i, row in enumerate(rows) if row.role == "calibration"]
    if len(fitted_on) < len(constants):
        raise DesignError(
            f"{path}: {len(fitted_on)} rows of role calibration for {len(constants)} constants; add rows, or fit fewer"
        )
    done = [0, 0]
    folds = cross_validation_folds(len(fitted_on), options.folds, options.seed) if options.held_out else ()
    with ProgressBar("calibrate") as progress:

        def simulate_vectors(vectors: Vector, part: Sequence[int] = fitted_on) -> Vector:
            done[0] += len(vectors) * len(part)
            progress.update(done[1], len(folds) + 1, f"{done[0]:,} simulations")
            return simulate_rows([rows[i] for i in part], [constant.address for constant in constants], vectors)

        low, high = (np.array([getattr(rows[i], end) for i in fitted_on]) for end in ("low", "high"))
        bounds = replace(constant_bounds(constants), step=options.step, tolerance=options.tolerance, scanned=options.scanned)
        present = np.array([constant.before for constant in constants])  # a typed range may leave them out
        before = simulate_vectors(present[None], range(len(rows)))[0]
        _refuse_unknown(path, rows, before)
        begun = start_vectors(simulate_vectors, bounds, options.seed, options.starts)
        result = fit_with_statistics(simulate_vectors, low, high, bounds, begun)
        done[1] += 1
        held_out: Vector | None = np.full(len(fitted_on), np.nan) if folds else None
        for held in folds:
            rest = np.setdiff1d(np.arange(len(fitted_on)), held)
            if len(rest) < len(constants):
                held_out = None
                break
            part = [fitted_on[i] for i in rest]
            values = solve_constants(
                lambda vectors, part=part: simulate_vectors(vectors, part),  # type: ignore[misc]
                low[rest], high[rest], bounds, (begun[0], begun[1][:, rest]),
            )  # fmt: skip
            other_model = simulate_vectors(values[None], [fitted_on[i] for i in held])
            held_out[held] = log_ratios(other_model, low[held], high[held])[0]  # type: ignore[index]
            done[1] += 1
        after = simulate_vectors(result.values[None], range(len(rows)))[0]
    return Calibration(path, constants, tuple(rows), result, before, after, held_out, options.seed, done[0])


def simulate_rows(rows: Sequence[MeasuredRow], names: Sequence[str], vectors: Vector) -> Vector:
    """Simulated values of rows for vectors of constants, shape (vectors, rows), in SI.

    Constants have shape (vectors, constants). Rows with the same workload and fidelity are simulated together.
    """
    simulated, base = np.empty((len(vectors), len(rows))), np.ones((len(vectors), len(rows)))
    groups: dict[tuple[Any, ...], dict[tuple[int, bool], _SharedDesign]] = {}
    for place, row in enumerate(rows):
        for into, asked_row, fixed in ((simulated, row.asked, False), (base, row.base, row.base_fixed)):
            if asked_row is not None:
                design = asked_row.question.base
                group = groups.setdefault((asked_row.question.workload, asked_row.fidelity), {})
                shared = group.setdefault((id(design), fixed), _SharedDesign(design, fixed, []))
                shared.cells.append((into, place, row.metric))
    changes = [dict(zip(names, map(float, vector), strict=True)) for vector in vectors]
    for (workload, fidelity), group in groups.items():
        designs = [
            each.design if each.fixed else replace_leaves(each.design, change) for each in group.values() for change in changes
        ]
        columns = evaluate(stack_designs(designs), workload, fidelity=fidelity).require_compatible().columns
        for start, each in enumerate(group.values()):
            for into, place, name in each.cells:
                into[:, place] = columns[name][start * len(vectors) : (start + 1) * len(vectors)]
    return simulated / base


def _read_rows(
    path: Path, overrides: Sequence[str], wanted: Sequence[str]
) -> tuple[list[MeasuredRow], tuple[FittedConstant, ...], int]:
    """Rows of a file, the constants as the first of role calibration has them, and how many rows are left out."""
    rows: list[MeasuredRow] = []
    constants: tuple[FittedConstant, ...] = ()
    skipped = 0
    for number, cells in read_rows(path):
        where = f"{path}, row {number} ({escape_line(cells['id'][:40])})"
        try:
            if cells["role"] in ROLES and cells["role"] != "calibration" and "(" in cells["metric"]:
                skipped += 1
                continue
            row = row_from_cells(cells, overrides)
        except DesignError as error:
            raise DesignError(f"{where}: {escape_line(str(error))}") from None
        design = row.asked.question.base
        if not constants:
            constants = tuple(parse_constant(text, design) for text in wanted)
            if len({constant.address for constant in constants}) < len(constants):
                raise DesignError("fit: a constant is named twice; name each once")
        if row.role == "calibration":
            for constant in constants:
                try:
                    addresses(design, constant.address)
                except DesignError as error:
                    raise DesignError(f"{where}: column overrides: {error}; its chip has none to fit") from None
        rows.append(row)
    if not rows:
        raise DesignError(f"{path}: no rows to fit")
    return rows, constants, skipped


def row_from_cells(cells: Mapping[str, str], overrides: Sequence[str]) -> MeasuredRow:
    """A measured row from its cells by column, with overrides that stand before its own.

    Raises:
        DesignError: a cell that cannot be understood, with its column.
    """
    role = read_role(cells)
    low, high = parse_value_range(cells["value"])
    name = cells["metric"].strip()
    if "(" in name:
        raise DesignError(
            f"column metric: {name[:40]} is of a space; constants are fitted on metrics of one design, as latency"
        )
    try:
        find_metric(name)
    except DesignError as error:
        raise DesignError(f"column metric: {error}") from None
    own, beside = (overrides_of(dict(cells), column) for column in ("overrides", "baseline"))
    addresses = {word.partition("=")[0] for word in own}
    words = (*(word for word in overrides if word.partition("=")[0] not in addresses), *own)
    try:
        question = compose_question(words)
        alone = any(word.startswith("chip=") for word in beside)
        base = compose_question(beside if alone else (*words, *beside)) if beside else None
    except DesignError as error:
        raise DesignError(f"column overrides: {error}") from None
    divisor = 1.0
    if not beside and cells["unit"] not in ("ratio", ""):
        try:
            divisor = parse_quantity(f"1 {cells['unit']}", unit_of_metric(words, name))
        except DesignError as error:
            raise DesignError(f"column unit: {error}") from None
    row = MeasuredRow(cells["id"], role, name, cells["unit"], divisor, low * divisor, high * divisor, question, base, alone)
    return row if row.low else replace(row, low=row.high * 1e-9)


RANGE = re.compile(r"(?P<address>[\w.]+)\s*(?:=\s*(?P<low>.+?)\s*\.\.\s*(?P<high>.+))?")


def parse_constant(text: str, design: Design) -> FittedConstant:
    """Constant by its address, or by its address and a range.

    A range stands after the address, as in ``chip.hbm.strided_row_overhead=0..20 ns``.
    """
    interval = RANGE.fullmatch(text)
    if interval is None:
        raise DesignError(
            f"fit: {text[:80]!r} is no address, or address and range, as in chip.hbm.strided_row_overhead=0..20 ns"
        )
    address = current_address(interval["address"], machine_of(design.chip))
    if not address.startswith(("chip.", "mapping.stack.")):
        raise DesignError(f"fit: {address}: constants are those of a chip or a stack, as in {EXAMPLE}")
    try:
        (address,) = addresses(design, address)
    except DesignError as error:
        raise DesignError(f"fit: {error}") from None
    limits, before = field_at(design, address).metadata, leaf_at(design, address)
    if not limits.get("unit") or "whole" in limits:
        kind = "a whole number of things" if "whole" in limits else "a word"
        raise DesignError(f"fit: {address}: {before} is {kind}; only quantities are fitted")
    unit, least, most = str(limits["unit"]), float(limits["low"]), float(limits.get("high", np.inf))
    low, high = least, most
    if interval["low"]:
        given_unit = re.sub(r"^[0-9.eE+-]+", "", interval["high"]).strip()
        given = (
            interval["low"]
            if not given_unit or re.search(r"[A-Za-z]", interval["low"].lstrip("0123456789.eE+- "))
            else f"{interval['low']} {given_unit}"
        )
        try:
            low, high = parse_quantity(given, unit), parse_quantity(interval["high"], unit)
        except DesignError as error:
            raise DesignError(f"fit: {address}: {error}; a range is LOW..HIGH UNIT, as in 0..20 ns") from None
        if not least <= low < high <= most:
            of_unit = "" if unit == "1" else f" {unit}"
            raise DesignError(
                f"fit: {address}: {low:g}..{high:g}{of_unit} is not a range, low end first, within {least:g}..{most:g}{of_unit}"
            )
    if limits.get("positive") and not low:
        low = 1e-3 * (high if np.isfinite(high) else before)
    if not before and not np.isfinite(high):
        raise DesignError(f"fit: {address}: value is 0 and has no upper end; give a range, as in {address}=0..20 {unit}")
    return FittedConstant(address, unit, str(limits["doc"]), float(before), low, high)


def constant_bounds(constants: Sequence[FittedConstant]) -> ConstantBounds:
    """Where constants begin; a scale is what they are, or an eighth of their range where they are 0."""
    low, high = (np.array([getattr(constant, end) for constant in constants]) for end in ("low", "high"))
    start = np.clip(np.array([constant.before for constant in constants]), low, high)
    scale = np.where(start > low, start, np.where(np.isfinite(high), (high - low) / 8, 1.0))
    return ConstantBounds(start, low, high, scale)


def _refuse_unknown(path: Path, rows: Sequence[MeasuredRow], before: Vector) -> None:
    for row, value in zip(rows, before, strict=True):
        if row.role == "calibration" and not (np.isfinite(value) and value > 0):
            raise DesignError(
                f"{path} ({escape_line(row.id[:40])}): column metric: no result for {row.metric}; "
                f"this kind of "
                "chip or workload lacks the metric, or the design is infeasible; dse evaluate shows which"
            )


def log_errors(rows: Sequence[MeasuredRow], values: Vector) -> Vector:
    """Logarithms of simulated values over the measured ranges of rows, shape (..., rows). [-]"""
    return log_ratios(values, np.array([row.low for row in rows]), np.array([row.high for row in rows]))
