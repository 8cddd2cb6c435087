"""Output of ``dse calibrate``: a file of constants that composes, a page, and tables on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from dse.accuracy.calibrate import Calibration
from dse.accuracy.validate import ROLES
from dse.config.record_parser import STACK
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.schemas import stamp_document
from dse.space.units import format_quantity
from dse.terminal.atomic_files import write_atomically
from dse.terminal.json_text import json_text
from dse.terminal.progress import SafeConsole, say
from dse.terminal.signals import defer_signals


def write_calibration(found: Calibration, out: Path, *, as_json: bool) -> None:
    """Write constants to a file and a page beside it, both or none, and print the result."""
    from dse.report.standalone_pages import calibration_page

    data = calibration_record(found)
    texts = {out: constants_yaml(found, out), out.with_suffix(".html"): calibration_page(data)}
    out.parent.mkdir(parents=True, exist_ok=True)
    with defer_signals():
        for path, text in texts.items():
            with write_atomically(path) as place:
                place.write_text(text, encoding="utf-8")
    if as_json:
        print(json_text(data, indent=1))
        return
    console = SafeConsole(150)
    console.print(_constants(found))
    console.print(_errors(found))
    for line in calibration_warnings(found):
        console.print(f"[yellow]note:[/] {escape(line)}")
    if found.skipped:
        console.print(f"{found.skipped} rows about a whole space are skipped; dse validate simulates them")
    for path in texts:
        say(f"wrote   {escape(str(path))}")
    say(f"usage   {escape(usage_example(out))}")


def usage_example(out: Path) -> str:
    """Example command that uses a file of constants."""
    place = out.resolve().parent
    folder = out.parent.parent if out.parent.name else place.parent
    return f"dse evaluate --config-dir {folder} +{place.name}@_global_={out.stem}"


def determination_text(found: Calibration, place: int) -> str:
    """How well the rows determine a constant, as text."""
    fitted, names = found.fitted, [one.address for one in found.constants]
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


def calibration_warnings(found: Calibration) -> list[str]:
    """Warnings to read before the constants are used, one line each."""
    said = [(one.address, determination_text(found, i)) for i, one in enumerate(found.constants)]
    lines = [f"{address}: {text}" for address, text in said if " " in text]
    return lines if found.held_out is not None else [*lines, "too few rows to hold some out: no held-out error"]


def error_summary(found: Calibration) -> dict[str, dict[str, float]]:
    """Median, 90 % and worst absolute relative error, by what is compared. [-]"""
    of = {}
    for role in ROLES:
        for when, values in (("before", found.before), ("after", found.after)):
            of[f"{role}, {when}"] = found.errors(role, values)
        if role == "calibration" and found.held_out is not None:
            of["calibration, held out"] = np.expm1(found.held_out)
    return {name: _spread(np.abs(values)) for name, values in of.items() if np.isfinite(values).any()}


def calibration_record(found: Calibration) -> dict[str, Any]:
    """A calibration as JSON values, in SI and, for rows, in their own unit."""
    fitted = found.fitted
    data = {
        "file": str(found.file),
        "physics": PHYSICS_VERSION,
        "seed": found.seed,
        "simulations": found.simulations,
        "overrides": list(found.overrides),
        "constants": [
            {
                "address": one.address,
                "unit": one.unit,
                "before": one.before,
                "after": float(fitted.values[i]),
                "interval": [float(end) for end in fitted.interval[i]],
                "range": [one.low, one.high],
                "determined": determination_text(found, i),
            }
            for i, one in enumerate(found.constants)
        ],
        "errors": error_summary(found),
        "warnings": calibration_warnings(found),
        "rows": [
            {
                "id": row.id,
                "role": row.role,
                "metric": row.metric,
                "unit": row.unit,
                "measured": [row.low / row.divisor, row.high / row.divisor],
                "before": float(found.before[i] / row.divisor),
                "after": float(found.after[i] / row.divisor),
            }
            for i, row in enumerate(found.rows)
        ],
    }
    return stamp_document("calibrate", data)


def constants_yaml(found: Calibration, out: Path) -> str:
    """YAML text of the fitted constants, in the form of ``conf``.

    Constants that no row determines are left out.
    """
    said = error_summary(found)
    count = sum(row.role == "calibration" for row in found.rows)
    held = said.get("calibration, held out")
    after = said["calibration, after"]
    note = f"on {count} rows of role calibration in {found.file.name}; residuals: "
    note += f"median {after['median']:.1%}, worst {after['worst']:.1%}; "
    note += f"held out: median {held['median']:.1%}, 90 % {held['p90']:.1%}; " if held else ""
    note += f"physics {PHYSICS_VERSION}, seed {found.seed}"
    chips = sorted({row.asked.names["chip"] for row in found.rows if row.role == "calibration"})
    tree: dict[str, Any] = {}
    for i, one in enumerate(found.constants):
        if i in found.fitted.unmoved:
            continue
        *path, last = one.address.split(".")
        group = tree
        for name in path:
            group = group.setdefault(name, {})
        value: Any = float(f"{found.fitted.values[i]:.4g}")
        text = json_text(f"{value!r} {one.unit}") if one.unit != "1" else repr(value)
        low, high = found.fitted.interval[i]
        span = f"; 95 %: {format_quantity(low, one.unit)} to {format_quantity(high, one.unit)}" if np.isfinite(low) else ""
        why = json_text(
            note + span + (f"; {determination_text(found, i)}" if " " in determination_text(found, i) else ""),
            ensure_ascii=False,
        )
        origin = f", fitted_on: [{', '.join(chips)}], meant_for: []" if one.address.startswith(f"{STACK}.") else ""
        group[last] = f'{{value: {text}, source: fitted, page: "", note: {why}{origin}}}'
    head = (
        f"# Constants that were fitted by dse calibrate; use them with\n#   {usage_example(out)} and what "
        f"they were fitted with:\n"
    )
    return head + f"#   {' '.join(found.overrides) or 'the overrides of each row'}\n" + _written(tree)


def _written(tree: Mapping[str, Any], indent: str = "") -> str:
    lines = []
    for name, inner in tree.items():
        lines.append(
            f"{indent}{name}: {inner}\n" if isinstance(inner, str) else f"{indent}{name}:\n" + _written(inner, indent + "  ")
        )
    return "".join(lines)


def _spread(values: Any) -> dict[str, float]:
    return {
        "rows": len(values),
        "median": float(np.median(values)),
        "p90": float(np.quantile(values, 0.9)),
        "worst": float(values.max()),
    }


def _constants(found: Calibration) -> Table:
    table = Table(title=f"constants, by {escape(str(found.file))}", title_justify="left", box=None)
    for name in ("constant", "unit", "before", "after", "95 % interval", "determined"):
        table.add_column(name, justify="right" if name in ("before", "after", "95 % interval") else "left")
    for i, one in enumerate(found.constants):
        low, high = found.fitted.interval[i]
        span = f"{format_quantity(low, one.unit)} .. {format_quantity(high, one.unit)}" if np.isfinite(low) else "-"
        cells = (
            one.address,
            one.unit,
            format_quantity(one.before, one.unit),
            format_quantity(found.fitted.values[i], one.unit),
            span,
        )
        table.add_row(*map(escape, cells), determination_text(found, i).partition(":")[0])
    return table


def _errors(found: Calibration) -> Table:
    table = Table(title="errors, relative", title_justify="left", box=None)
    for name in ("rows", "number", "median", "90 %", "worst"):
        table.add_column(name, justify="left" if name == "rows" else "right")
    for name, of in error_summary(found).items():
        table.add_row(name, str(of["rows"]), f"{of['median']:.1%}", f"{of['p90']:.1%}", f"{of['worst']:.1%}")
    return table
