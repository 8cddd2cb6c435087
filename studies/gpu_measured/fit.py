"""Fits the parts of stacks for library kernels on measured rows, and writes them into conf/library.

    python -m dse.studies.gpu_measured.fit FOLDER [OUT]

FOLDER has the tables, as csv; OUT is where files go, conf/library where it is not said. Rows that are checks are not fitted.
Silicon is the chip's own; at most ten numbers of a kind and stack are fitted, by robust least squares from several starts, and
errors of rows that were held out, five times a fifth, stand beside.
"""

import csv
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from dse.compose import CONF
from dse.fit import Bounds, Fitted, Vector, fit, folds, logarithms, solve, starts
from dse.json_text import json_text
from dse.space.errors import DesignError
from dse.space.units import show
from dse.studies.gpu_measured.measured import Part, spread

KINDS = ("products", "experts", "elementwise")
"""Modules of this study, each with the parts of one kind."""

FOLDS, SEED = 5, 0

RESULTS = Path(__file__).with_name("results.csv")
"""What the last fit said: errors by stack and kind, and every row of the pictures."""


@dataclass(frozen=True)
class Found:
    """A part that was fitted.

    Attributes:
        part: what was fitted.
        fitted: its numbers, with intervals.
        errors: of all rows, logarithms of simulated over measured.
        held_out: of the fitted rows, by numbers that were fitted without them.
    """

    part: Part
    fitted: Fitted
    errors: Vector
    held_out: Vector


def main(arguments: list[str]) -> int:
    """Fits and writes; returns the exit status."""
    if not arguments or not Path(arguments[0]).is_dir():
        print(f"skipped: {arguments[0] if arguments else 'no folder'} is not a folder of measured tables", file=sys.stderr)
        return 1
    out = Path(arguments[1]) if len(arguments) > 1 else CONF / "library"
    found = []
    for kind in KINDS:
        for part in import_module(f"dse.studies.gpu_measured.{kind}").parts(Path(arguments[0])):
            one = fitted(part)
            found.append(one)
            print(said(one))
            place = out / part.kind / f"{part.stack}.yaml"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(yaml(one))
    write_results(found)
    return 0


def fitted(part: Part) -> Found:
    """The numbers of a part, by the rows that are no checks."""
    if len(part.names) > 10:
        raise DesignError(f"gpu_measured: {part.stack} {part.kind}: {len(part.names)} numbers; ten are enough")
    seconds = np.array([row.seconds for row in part.rows])
    used = np.flatnonzero(~part.checks())
    bounds = Bounds(*(np.array(ends, float) for ends in (part.start, part.low, part.high)), np.array(part.start, float))

    def model(places: np.ndarray):  # type: ignore[no-untyped-def]
        return lambda vectors: np.stack([part.simulated(values, places) for values in vectors])

    begun = starts(model(used), bounds, SEED)
    found = fit(model(used), seconds[used], seconds[used], bounds, begun)
    held_out = np.full(len(used), np.nan)
    for held in folds(len(used), FOLDS, SEED):
        rest = np.setdiff1d(np.arange(len(used)), held)
        known = seconds[used[rest]]
        values = solve(model(used[rest]), known, known, bounds, (begun[0], begun[1][:, rest]))
        there = model(used[held])(values[None])
        held_out[held] = logarithms(there, seconds[used[held]], seconds[used[held]])[0]
    every = part.simulated(found.values, np.arange(len(seconds)))
    return Found(part, found, logarithms(every, seconds, seconds), held_out)


def said(found: Found) -> str:
    """One part in lines: errors, and constants with their intervals."""
    part, checks = found.part, found.part.checks()
    lines = [f"{part.kind} of {part.stack} on {part.chip}: {len(part.rows)} rows, {len(part.names)} numbers"]
    for name, errors in (("fitted", found.errors[~checks]), ("held out", found.held_out), ("checks", found.errors[checks])):
        lines.append(f"  {name:8} {len(errors):4} rows: median {{:.1%}}, 90 % {{:.1%}}, worst {{:.1%}}".format(*spread(errors)))
    worst = sorted(range(len(part.rows)), key=lambda i: -abs(found.errors[i]))[:5]
    lines += [
        f"  {np.expm1(found.errors[i]):+.0%} {part.rows[i].source} {part.rows[i].sizes} {part.rows[i].sort}" for i in worst
    ]
    return "\n".join(lines)


def yaml(found: Found) -> str:
    """A part as a file of constants, in the form of conf."""
    part, checks = found.part, found.part.checks()
    note = f"on {int((~checks).sum())} rows by studies/gpu_measured/fit.py; errors: median {{:.1%}}, 90 % {{:.1%}}; "
    note = note.format(*spread(found.errors[~checks])[:2])
    note += "held out: median {:.1%}, 90 % {:.1%}".format(*spread(found.held_out)[:2])
    text = f"# {part.kind.capitalize()} of {part.stack}: {len(part.names)} numbers fitted on rows of {part.sources}.\n"
    open_: tuple[str, ...] = ()
    values = np.where([found.fitted.at_bound.get(i) == -1 for i in range(len(part.names))], part.low, found.fitted.values)
    for name, (value, unit) in part.constants(values).items():
        *path, last = name.split(".")
        for depth, group in enumerate(path):
            if open_[: depth + 1] != tuple(path[: depth + 1]):
                text += f"{'  ' * depth}{group}:\n"
        open_ = tuple(path)
        why = json_text(_why(found, name, note, unit), ensure_ascii=False)
        source = "fitted" if name in part.names else "assumed"
        number = int(value) if isinstance(value, int) else float(f"{value:.4g}")
        shown = f'"{number!r} {unit}"' if unit != "1" else repr(number)
        text += f"{'  ' * len(path)}{last}: {{value: {shown}, source: {source}, note: {why}}}\n"
    return text


def _why(found: Found, name: str, note: str, unit: str) -> str:
    if name not in found.part.names:
        return found.part.said[name]
    place = found.part.names.index(name)
    if place in found.fitted.unmoved:
        return f"{note}; no row depends on it: as it was"
    low, high = found.fitted.interval[place]
    if place in found.fitted.at_bound:
        return f"{note}; ends at the {'lower' if found.fitted.at_bound[place] < 0 else 'upper'} end of its range"
    return note + (f"; 95 %: {show(low, unit)} to {show(high, unit)}" if np.isfinite(low) else "")


def write_results(found: list[Found]) -> None:
    """Errors by stack, kind and what was done with rows."""
    with RESULTS.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("kind", "stack", "chip", "numbers", "rows", "of", "median", "p90", "worst"))
        for one in found:
            part, checks = one.part, one.part.checks()
            sets = {"fitted": one.errors[~checks], "held out": one.held_out, "checks": one.errors[checks]}
            for name, errors in sets.items():
                numbers = (f"{value:.4f}" for value in spread(errors))
                table.writerow((part.kind, part.stack, part.chip, len(part.names), len(errors), name, *numbers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
