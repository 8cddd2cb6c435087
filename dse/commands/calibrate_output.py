"""Output of ``dse calibrate``: a file of constants that composes, a page, and tables on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.accuracy.calibrate import Calibration, log_errors
from dse.accuracy.validate import ROLES, escape_line
from dse.config.record_parser import STACK
from dse.documents.calibrate_document import (
    CalibrateDocument,
    ConstantRecord,
    ErrorSpreadRecord,
    MeasuredRowRecord,
    MeasuredRunRecord,
)
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.space.units import format_quantity
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole, say
from dse.terminal.signals import defer_signals


def write_calibration(calibration: Calibration, out: Path, *, as_json: bool) -> None:
    """Write constants to a file and a page beside it, both or none, and print the result."""
    from dse.report.standalone_pages import build_calibration_page

    data = calibration_record(calibration)
    texts = {out: format_constants_yaml(calibration, out), out.with_suffix(".html"): build_calibration_page(data)}
    out.parent.mkdir(parents=True, exist_ok=True)
    with defer_signals():
        for path, text in texts.items():
            with write_atomically(path) as place:
                place.write_text(text, encoding="utf-8")
    if as_json:
        print(format_json(data, indent=1))
        return
    console = SafeConsole(150)
    for run in calibration.runs:
        console.print(f"[bold]{escape(run.name)}[/]  {escape(run.source)}: {len(run.figures)} figures", highlight=False)
        for line in run.notes:
            console.print(f"  {escape(escape_line(line))}", highlight=False)
    console.print(_constants_table(calibration))
    if calibration.undetermined:
        console.print(_undetermined_table(calibration))
    if calibration.runs:
        console.print(_rows_table(calibration))
    console.print(_errors_table(calibration))
    for line in list_calibration_warnings(calibration):
        console.print(f"[yellow]note:[/] {escape(line)}")
    if calibration.skipped:
        console.print(f"{calibration.skipped} rows about a whole space are skipped; dse validate simulates them")
    for path in texts:
        say(f"wrote   {escape(str(path))}")
    say(f"usage   {escape(format_usage_example(out))}")


def format_usage_example(out: Path) -> str:
    """Example command that uses a file of constants."""
    place = out.resolve().parent
    folder = out.parent.parent if out.parent.name else place.parent
    return f"dse evaluate --config-dir {folder} +{place.name}@_global_={out.stem}"


def describe_determination(calibration: Calibration, place: int) -> str:
    """How well the rows determine a constant, as text."""
    fitted, names = calibration.fitted, [constant.address for constant in calibration.constants]
    if place in fitted.unmoved:
        return "not identifiable: no row depends on it; unchanged"
    if place in fitted.alike:
        return (
            f"not identifiable separately from {', '.join(names[i] for i in fitted.alike[place])}: rows do not distinguish them"
        )
    if place in fitted.at_bound:
        return f"ends at the {'lower' if fitted.at_bound[place] < 0 else 'upper'} end of its range"
    low, high = fitted.interval[place]
    if not np.isfinite(low):
        return "as many rows as constants: no interval"
    half = (high - low) / 2 / max(abs(fitted.values[place]), 1e-300)
    return "well" if half < 0.1 else "roughly" if half < 0.5 else "weakly"


def list_calibration_warnings(calibration: Calibration) -> list[str]:
    """Warnings to read before the constants are used, one line each."""
    texts = [(constant.address, describe_determination(calibration, i)) for i, constant in enumerate(calibration.constants)]
    lines = [f"{address}: {text}" for address, text in texts if " " in text]
    for constant in calibration.constants:
        others = [each.address for each in calibration.undetermined if constant.address in each.alike]
        if others:
            lines.append(f"{constant.address}: its value stands for {', '.join(others)} as well: rows do not tell them apart")
    if calibration.held_out is not None:
        return lines
    return [
        *lines,
        "no held-out error: set folds=5" if calibration.runs else "too few rows to hold some out: no held-out error",
    ]


def error_summary(calibration: Calibration) -> dict[str, ErrorSpreadRecord]:
    """Median, 90 % and worst absolute relative error, by what is compared. [-]"""
    errors = {}
    for role in ROLES:
        for when, values in (("before", calibration.before), ("after", calibration.after)):
            errors[f"{role}, {when}"] = calibration.errors(role, values)
        if role == "calibration" and calibration.held_out is not None:
            errors["calibration, held out"] = np.expm1(calibration.held_out)
    return {name: _error_spread(np.abs(values)) for name, values in errors.items() if np.isfinite(values).any()}


def calibration_record(calibration: Calibration) -> CalibrateDocument:
    """The document of a calibration, in SI and, for rows, in their own unit."""
    fitted = calibration.fitted
    return CalibrateDocument(
        file=str(calibration.file),
        physics=PHYSICS_VERSION,
        seed=calibration.seed,
        simulations=calibration.simulations,
        overrides=calibration.overrides,
        constants=[
            ConstantRecord(
                address=constant.address,
                unit=constant.unit,
                before=constant.before,
                after=float(fitted.values[i]),
                interval=(float(fitted.interval[i][0]), float(fitted.interval[i][1])),
                range=(constant.low, constant.high),
                determined=describe_determination(calibration, i),
            )
            for i, constant in enumerate(calibration.constants)
        ],
        errors=error_summary(calibration),
        warnings=list_calibration_warnings(calibration),
        rows=[
            MeasuredRowRecord(
                id=row.id,
                role=row.role,
                metric=row.metric,
                unit=row.unit,
                measured=(row.low / row.divisor, row.high / row.divisor),
                before=float(calibration.before[i] / row.divisor),
                after=float(calibration.after[i] / row.divisor),
            )
            for i, row in enumerate(calibration.rows)
        ],
        runs=[
            MeasuredRunRecord(name=run.name, source=run.source, model=run.model, notes=list(run.notes))
            for run in calibration.runs
        ],
        undetermined={constant.address: constant.reason for constant in calibration.undetermined},
    )


def format_constants_yaml(calibration: Calibration, out: Path) -> str:
    """YAML text of the fitted constants, in the form of ``conf``.

    Constants that no row determines are left out.
    """
    summary = error_summary(calibration)
    count = sum(row.role == "calibration" for row in calibration.rows)
    held = summary.get("calibration, held out")
    after = summary["calibration, after"]
    origin_text = ", ".join(f"{run.name} ({run.source})" for run in calibration.runs) or calibration.file.name
    note = f"on {count} rows of role calibration in {origin_text}; residuals: "
    note += f"median {after.median:.1%}, worst {after.worst:.1%}; "
    note += f"held out: median {held.median:.1%}, 90 % {held.p90:.1%}; " if held else ""
    note += f"physics {PHYSICS_VERSION}, seed {calibration.seed}"
    chips = sorted({row.asked.names["chip"] for row in calibration.rows if row.role == "calibration"})
    tree: dict[str, Any] = {}
    for i, constant in enumerate(calibration.constants):
        if i in calibration.fitted.unmoved:
            continue
        *path, last = constant.address.split(".")
        group = tree
        for name in path:
            group = group.setdefault(name, {})
        value: Any = float(f"{calibration.fitted.values[i]:.4g}")
        text = format_json(f"{value!r} {constant.unit}") if constant.unit != "1" else repr(value)
        low, high = calibration.fitted.interval[i]
        span = (
            f"; 95 %: {format_quantity(low, constant.unit)} to {format_quantity(high, constant.unit)}"
            if np.isfinite(low)
            else ""
        )
        why = format_json(
            note
            + span
            + (f"; {describe_determination(calibration, i)}" if " " in describe_determination(calibration, i) else ""),
            ensure_ascii=False,
        )
        origin = f", fitted_on: [{', '.join(chips)}], meant_for: []" if constant.address.startswith(f"{STACK}.") else ""
        group[last] = f'{{value: {text}, source: fitted, page: "", note: {why}{origin}}}'
    head = (
        f"# Constants that were fitted by dse calibrate; use them with\n#   {format_usage_example(out)} and what "
        f"they were fitted with:\n"
    )
    return head + f"#   {' '.join(calibration.overrides) or 'the overrides of each row'}\n" + _yaml_text(tree)


def _yaml_text(tree: Mapping[str, Any], indent: str = "") -> str:
    lines = []
    for name, inner in tree.items():
        lines.append(
            f"{indent}{name}: {inner}\n" if isinstance(inner, str) else f"{indent}{name}:\n" + _yaml_text(inner, indent + "  ")
        )
    return "".join(lines)


def _error_spread(values: Any) -> ErrorSpreadRecord:
    return ErrorSpreadRecord(
        rows=len(values),
        median=float(np.median(values)),
        p90=float(np.quantile(values, 0.9)),
        worst=float(values.max()),
    )


def _constants_table(calibration: Calibration) -> Table:
    table = Table(title=f"constants, by {escape(str(calibration.file))}", title_justify="left", box=None)
    for name in ("constant", "unit", "before", "after", "95 % interval", "determined"):
        table.add_column(name, justify="right" if name in ("before", "after", "95 % interval") else "left")
    for i, constant in enumerate(calibration.constants):
        low, high = calibration.fitted.interval[i]
        span = f"{format_quantity(low, constant.unit)} .. {format_quantity(high, constant.unit)}" if np.isfinite(low) else "-"
        cells = (
            constant.address,
            constant.unit,
            format_quantity(constant.before, constant.unit),
            format_quantity(calibration.fitted.values[i], constant.unit),
            span,
        )
        table.add_row(*map(escape, cells), describe_determination(calibration, i).partition(":")[0])
    return table


def _undetermined_table(calibration: Calibration) -> Table:
    table = Table(title="constants that these figures do not determine", title_justify="left", box=None)
    for name in ("constant", "reason"):
        table.add_column(name)
    for constant in calibration.undetermined:
        table.add_row(escape(constant.address), escape(constant.reason))
    return table


def _rows_table(calibration: Calibration) -> Table:
    """Measured figures beside simulated ones, with the constants before and after."""
    table = Table(title="measured and simulated", title_justify="left", box=None)
    columns = ("figure", "metric", "unit", "measured", "before", "error", "after", "error", "role")
    for name in columns:
        table.add_column(name, justify="left" if name in ("figure", "metric", "unit", "role") else "right")
    errors = [np.expm1(log_errors(calibration.rows, values)) for values in (calibration.before, calibration.after)]
    for i, row in enumerate(calibration.rows):
        low, high = row.low / row.divisor, row.high / row.divisor
        measured = f"{low:.4g}" if low == high else f"{low:.4g} .. {high:.4g}"
        values = [
            text
            for simulated, error in zip((calibration.before, calibration.after), errors, strict=True)
            for text in (f"{simulated[i] / row.divisor:.4g}", f"{error[i]:+.1%}" if np.isfinite(simulated[i]) else "none")
        ]
        table.add_row(*map(escape, (row.id, row.metric, row.unit, measured, *values, row.role)))
    return table


def _errors_table(calibration: Calibration) -> Table:
    table = Table(title="errors, relative", title_justify="left", box=None)
    for name in ("rows", "number", "median", "90 %", "worst"):
        table.add_column(name, justify="left" if name == "rows" else "right")
    for name, errors in error_summary(calibration).items():
        table.add_row(name, str(errors.rows), f"{errors.median:.1%}", f"{errors.p90:.1%}", f"{errors.worst:.1%}")
    return table
