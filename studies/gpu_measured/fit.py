"""Fit the parts of stacks for library kernels on measured rows, and write them into conf/library.

    python -m dse.studies.gpu_measured.fit FOLDER [OUT [PAGES]]

FOLDER has the measured tables as csv. OUT is the folder for constants, by default conf/library. PAGES is the folder for
plots of measured against simulated times, one file per kind and stack, by default runs/gpu_measured. Check rows are not
fitted. Silicon is the chip's own. At most ten numbers of a kind and stack are fitted, by robust least squares from
several starts; errors of held-out rows, five times a fifth, are written beside.
"""

import csv
import json
import re
import shlex
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dse.accuracy.least_squares import (
    ConstantBounds,
    FitResult,
    Vector,
    cross_validation_folds,
    fit_with_statistics,
    log_ratios,
    solve_constants,
    start_vectors,
)
from dse.accuracy.validate import COLUMNS
from dse.config.compose import CONF, compose
from dse.config.question import build_question
from dse.config.record_parser import RANGES
from dse.evaluators.evaluation import PHYSICS_VERSION, explain
from dse.evaluators.kernels.library import LIBRARY
from dse.report.standalone_pages import build_calibration_page
from dse.space.aliases import current_choice
from dse.space.errors import DesignError
from dse.space.units import format_quantity
from dse.studies.gpu_measured.measured import RESULTS, SAMPLE, FittedPart, spread
from dse.terminal.json_text import format_json

KINDS = ("products", "experts", "elementwise", "attention", "latent", "collectives", "engines", "dispatch")
"""Modules of this study, each with the parts of one kind."""

HOPPER = ("h100", "h100_ep", "h200", "h200_ep", "gh200", "h800", "h800_ep")
"""Chips of one die beside different memories and links: what one of them takes for a kernel by itself is said of it."""

BETWEEN = {("h100", "moe_all_to_all"): ("h200",), ("h800_ep", "moe_all_to_all"): ("h100_ep", "h200_ep")} | {
    ("h100", kind): ("h200",) for kind in ("ring_collectives", "all_to_all", "one_shot_allreduce")
}
"""Chips with equal links, by the chip and kind of a part for exchanges between dies."""

FOLDS, SEED = 5, 0

MAX_NUMBERS = 14
"""Fitted numbers of a part at most; of a group of kernels with a form of its own, at most three."""

FEW = 6
"""Rows that ship of a kind and stack."""


@dataclass(frozen=True)
class PartFit:
    """A fitted part with the errors of its rows.

    Attributes:
        part: what was fitted.
        fitted: its numbers, with intervals.
        errors: of all rows, logarithms of simulated over measured.
        held_out: of the fitted rows, by numbers that were fitted without them.
    """

    part: FittedPart
    fitted: FitResult
    errors: Vector
    held_out: Vector


def main(arguments: list[str]) -> int:
    """Fit the parts and write them; returns the exit status."""
    if not arguments or not Path(arguments[0]).is_dir():
        print(f"skipped: {arguments[0] if arguments else 'no folder'} is not a folder of measured tables", file=sys.stderr)
        return 1
    out = Path(arguments[1]) if len(arguments) > 1 else CONF / "library"
    pages = Path(arguments[2]) if len(arguments) > 2 else Path("runs/gpu_measured")
    pages.mkdir(parents=True, exist_ok=True)
    fits = []
    for kind in KINDS:
        for part in import_module(f"dse.studies.gpu_measured.{kind}").parts(Path(arguments[0])):
            fit = fit_part(
                part.with_known_parts({(fit.part.kind, fit.part.stack): fit.part.record(shipped_values(fit)) for fit in fits})
            )
            fits.append(fit)
            print(fit_text(fit))
            place = out / part.kind / f"{part.stack}.yaml"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(yaml(fit))
            (pages / f"{part.kind}_{part.stack}.html").write_text(build_calibration_page(record(fit)))
    if out.resolve() == (CONF / "library").resolve():  # what ships says what constants that ship do
        write_results(fits)
        write_sample(fits)
    return 0


def fit_part(part: FittedPart) -> PartFit:
    """Fitted numbers of a part, without its check rows."""
    if len(part.names) > MAX_NUMBERS:
        raise DesignError(
            f"gpu_measured: {part.stack} {part.kind}: {len(part.names)} numbers; at most {MAX_NUMBERS} are fitted"
        )
    if part.follows:
        raise DesignError(f"gpu_measured: {part.stack} {part.kind} follows {', '.join(part.follows.values())}: fit that before")
    seconds = np.array([row.seconds for row in part.rows])
    used = np.flatnonzero(~part.checks())
    bounds = ConstantBounds(*(np.array(ends, float) for ends in (part.start, part.low, part.high)), np.array(part.start, float))

    def model(places: np.ndarray):  # type: ignore[no-untyped-def]
        return lambda vectors: np.stack([part.simulated_seconds(values, places) for values in vectors])

    begun = start_vectors(model(used), bounds, SEED)
    result = fit_with_statistics(model(used), seconds[used], seconds[used], bounds, begun)
    held_out = np.full(len(used), np.nan)
    for held in cross_validation_folds(len(used), FOLDS, SEED):
        rest = np.setdiff1d(np.arange(len(used)), held)
        known = seconds[used[rest]]
        values = solve_constants(model(used[rest]), known, known, bounds, (begun[0], begun[1][:, rest]))
        other_model = model(used[held])(values[None])
        held_out[held] = log_ratios(other_model, seconds[used[held]], seconds[used[held]])[0]
    every = part.simulated_seconds(result.values, np.arange(len(seconds)))
    return PartFit(part, result, log_ratios(every, seconds, seconds), held_out)


def fit_text(fit: PartFit) -> str:
    """Text of one fitted part: errors, and constants with their intervals."""
    part = fit.part
    lines = [f"{part.kind} of {part.stack} on {part.chip}: {len(part.rows)} rows, {len(part.names)} numbers"]
    for name, errors in sets(fit).items():
        lines.append(f"  {name:8} {len(errors):4} rows: median {{:.1%}}, 90 % {{:.1%}}, worst {{:.1%}}".format(*spread(errors)))
    worst = sorted(range(len(part.rows)), key=lambda i: -abs(fit.errors[i]))[:5]
    lines += [f"  {np.expm1(fit.errors[i]):+.0%} {part.rows[i].source} {part.rows[i].sizes} {part.rows[i].sort}" for i in worst]
    return "\n".join(lines)


def yaml(fit: PartFit) -> str:
    """A part as a constants file in conf's format."""
    part, checks = fit.part, fit.part.checks()
    note = f"on {int((~checks).sum())} rows by studies/gpu_measured/fit.py; errors: median {{:.1%}}, 90 % {{:.1%}}; "
    note = note.format(*spread(fit.errors[~checks])[:2])
    note += "held out: median {:.1%}, 90 % {:.1%}".format(*spread(fit.held_out)[:2])
    text = f"# {part.kind.capitalize()} of {part.stack}: {len(part.names)} numbers fitted on rows of {part.sources}.\n"
    text += f"fitted_on: [{part.chip}]\n"
    if others := meant_for(part.chip, part.kind):
        text += f"meant_for: [{', '.join(others)}]\n"
    text += f"measured_rows: {int((~checks).sum())}\nmeasured_by: {part.sources}\n"
    if ranges := measured_ranges(part):
        text += f"{RANGES}: {{{', '.join(f'{name}: [{low:.6g}, {high:.6g}]' for name, (low, high) in ranges.items())}}}\n"
    open_: tuple[str, ...] = ()
    for name, (value, unit) in part.constants(shipped_values(fit)).items():
        *path, last = name.split(".")
        for depth, group in enumerate(path):
            if open_[: depth + 1] != tuple(path[: depth + 1]):
                text += f"{'  ' * depth}{group}:\n"
        open_ = tuple(path)
        why = format_json(_why(fit, name, note, unit), ensure_ascii=False)
        source = "fitted" if name in part.names else "assumed"
        if cited := re.match(r"\[(\w+)\] ([^:]+): (.*)", json.loads(why)):
            source, where, why = cited[1], f', page: "{cited[2]}"', format_json(cited[3], ensure_ascii=False)
        else:
            where = ""
        if isinstance(value, str):
            shown = value
        else:
            number = int(value) if isinstance(value, int) else float(f"{value:.4g}")
            shown = f'"{number!r} {unit}"' if unit != "1" else repr(number)
        text += f"{'  ' * len(path)}{last}: {{value: {shown}, source: {source}{where}, note: {why}}}\n"
    return text


def measured_ranges(part: FittedPart) -> dict[str, tuple[float, float]]:
    """Range of each kernel size in the measured rows of a part, by name.

    Empty for kernels between dies, whose formulas have no sizes.
    """
    if part.kind not in LIBRARY:
        return {}
    ranges: dict[str, tuple[float, float]] = {}
    for words in dict.fromkeys(row.words for row in part.rows if row.words):
        question = build_question(compose([f"chip={part.chip}", f"stack={part.stack}", *shlex.split(words)]), Path())
        rows = explain(question.base, question.workload.cases[0]).rows
        for name, (low, high) in (size for row in rows if row.basis.kernel == part.kind for size in row.basis.sizes.items()):
            least, most = ranges.get(name, (low, high))
            ranges[name] = min(least, low), max(most, high)
    return ranges


def meant_for(chip: str, kind: str) -> tuple[str, ...]:
    """Other chips for which a part is used, besides the chip on which it was fitted.

    >>> meant_for("h100", "ring_collectives"), meant_for("a100", "gemm")
    (('h200',), ())
    """
    if (chip, kind) in BETWEEN:
        return BETWEEN[chip, kind]
    return tuple(other for other in HOPPER if other != chip) if chip in HOPPER else ()


def shipped_values(fit: PartFit) -> Vector:
    """Numbers of a part as shipped; a number at the lower end of its range is set to that end."""
    at_low = [fit.fitted.at_bound.get(i) == -1 for i in range(len(fit.part.names))]
    return np.where(at_low, fit.part.low, fit.fitted.values)


def _why(fit: PartFit, name: str, note: str, unit: str) -> str:
    if name not in fit.part.names:
        return fit.part.said[name]
    place = fit.part.names.index(name)
    if place in fit.fitted.unmoved:
        return f"{note}; no row depends on it: as it was"
    low, high = fit.fitted.interval[place]
    if place in fit.fitted.at_bound:
        return f"{note}; ends at the {'lower' if fit.fitted.at_bound[place] < 0 else 'upper'} end of its range"
    return note + (f"; 95 %: {format_quantity(low, unit)} to {format_quantity(high, unit)}" if np.isfinite(low) else "")


def record(fit: PartFit) -> dict[str, Any]:
    """Fitted part as a calibration page needs it; `before` is the start of the fit."""
    part, checks, fitted = fit.part, fit.part.checks(), fit.fitted
    before, after = (
        part.simulated_seconds(np.array(values), np.arange(len(part.rows))) for values in (part.start, fitted.values)
    )
    units = part.constants(fitted.values)
    return {
        "file": f"{part.kind} of {part.stack}",
        "physics": PHYSICS_VERSION,
        "seed": SEED,
        "warnings": [f"silicon of chip={part.chip}, not fitted"],
        "constants": [
            {
                "address": f"mapping.stack.{part.kind}.{name}",
                "unit": units[name][1],
                "before": part.start[i],
                "after": float(fitted.values[i]),
                "interval": [float(end) if np.isfinite(end) else None for end in fitted.interval[i]],
                "determined": "at an end of its range" if i in fitted.at_bound else "",
            }
            for i, name in enumerate(part.names)
        ],
        "errors": {
            name: dict(zip(("rows", "median", "p90", "worst"), (len(errors), *spread(errors)), strict=True))
            for name, errors in sets(fit).items()
        },
        "rows": [
            {
                "id": f"{row.source}: {row.sort} {', '.join(f'{name} {value:g}' for name, value in row.sizes.items())}",
                "role": "check" if checks[i] else "calibration",
                "metric": "latency",
                "unit": "s",
                "measured": [row.seconds, row.seconds],
                "before": float(before[i]),
                "after": float(after[i]),
            }
            for i, row in enumerate(part.rows)
        ],
    }


def sets(fit: PartFit) -> dict[str, Vector]:
    """Errors by the role of rows: fitted, held out and checks."""
    checks = fit.part.checks()
    return {"fitted": fit.errors[~checks], "held out": fit.held_out, "checks": fit.errors[checks]}


def write_results(fits: list[PartFit]) -> None:
    """Write errors by stack, kind and role of rows to the results file."""
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("kind", "stack", "chip", "numbers", "rows", "of", "median", "p90", "worst"))
        for fit in fits:
            part = fit.part
            for name, errors in sets(fit).items():
                numbers = (f"{value:.4f}" for value in spread(errors))
                table.writerow((part.kind, part.stack, part.chip, len(part.names), len(errors), name, *numbers))


def write_sample(fits: list[PartFit]) -> None:
    """Write a few spread-out rows of each part as a sample, with their roles, for users without tables."""
    with SAMPLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for fit in fits:
            part, checks = fit.part, fit.part.checks()
            for i in dict.fromkeys(np.linspace(0, len(part.rows) - 1, FEW).astype(int).tolist()):
                row, role = part.rows[i], "check" if checks[i] else "calibration"
                if not row.words:
                    continue
                words = f"chip={part.chip} stack={current_choice('stack', part.stack)} {row.words}"
                sizes = ", ".join(f"{name} {value:g}" for name, value in row.sizes.items())
                name = f"g-{part.kind}-{part.stack}-{i}".replace("_", "-")
                cells = (
                    name,
                    row.source,
                    words,
                    "",
                    "latency",
                    f"{row.seconds:.6g}",
                    "s",
                    role,
                    f"{row.sort}{': ' if row.sort else ''}{sizes}; {part.sources}",
                )
                table.writerow(cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
