"""Calibration on files of engines and profilers, of the constants that their figures determine.

Which figures are fitted is fixed before any result is seen (`measured_run.FITTED_METRICS`); all others are checks.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dse.accuracy.calibrate import (
    CALIBRATE_OPTIONS,
    Calibration,
    FittedConstant,
    MeasuredRow,
    constant_bounds,
    fit_rows,
    parse_constant,
    read_options,
    simulate_rows,
)
from dse.accuracy.determined_constants import UndeterminedConstant, choose_determined, elasticities
from dse.accuracy.measurements.measured_questions import build_rows
from dse.accuracy.measurements.measured_run import MeasuredRun
from dse.accuracy.measurements.measurement_files import FileOptions, read_measurements
from dse.config.record_parser import parse_setting
from dse.evaluators.malloc_settings import keep_freed_memory
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import integer_field, iterate_leaves
from dse.space.units import parse_quantity

STACK = "mapping.stack"
COUNT = integer_field("number of requests or runs", low=1)
CANDIDATES = {
    "matrix_efficiency": "",
    "hbm_efficiency": "",
    "attention_efficiency": "",
    "network_efficiency": "",
    "operator_launch": "0..50 us",
    "collective_launch": "0..100 us",
    "inter_node_launch": "0..200 us",
    "inter_node_efficiency": "",
    "iteration.host_time": "0..100 ms",
    "iteration.request_host_time": "0..1 ms",
    "iteration.eager_launch": "0..500 us",
    "moe.row_passes": "0..60",
    "moe.imbalance": "0..4",
}
"""Constants of a stack that are looked at where none is named, each with the range of a fit; empty for the declared one."""

STARTS, STEP, TOLERANCE = 8, 0.02, 1e-4
"""Start vectors for each constant, step and tolerance of a fit on serving loads, which take a tenth of a second each.

One or two constants are also scanned, since a schedule of requests has steps, at which descents end too early.
"""


def calibrate_measurements(paths: Sequence[Path], words: Sequence[str]) -> Calibration:
    """Fit constants of a stack to files of measurements.

    Args:
        paths: of files with measurements, whose figures are fitted.
        words: options, overrides and Hydra's flags; ``check=[FILE,...]`` names files whose figures are checks only.

    Raises:
        DesignError: a file, a load or a design that cannot be understood, or figures that determine no constant.
    """
    keep_freed_memory()  # each simulated load takes and returns some hundred megabytes
    options, known = read_options(words), read_file_options(words)
    typed = tuple(word for word in words if word.partition("=")[0] not in CALIBRATE_OPTIONS)
    checks = [Path(name) for name in options.checks]
    measured = [
        (run, is_check) for files, is_check in ((paths, False), (checks, True)) for run in read_measurements(files, known)
    ]
    limit = read_concurrency(words)
    measured = [(_with_concurrency(run, limit), is_check) for run, is_check in measured]
    _refuse_guesses([run for run, _ in measured], typed)
    rows: list[MeasuredRow] = []
    runs: list[MeasuredRun] = []
    for run, check in measured:
        of_run, notes = build_rows(run, typed, check=check)
        rows += of_run
        runs.append(replace(run, notes=tuple(notes)))
    fitted = [row for row in rows if row.role == "calibration"]
    if not fitted:
        raise DesignError(f"{paths[0]}: no figure that is fitted; ttft, tpot and throughput are, or the times of kernels")
    names = ", ".join(map(str, paths))
    with_design = fitted[0].asked.question.base
    undetermined: tuple[UndeterminedConstant, ...] = ()
    if options.wanted:
        constants = tuple(parse_constant(text, with_design) for text in options.wanted)
    else:
        constants, undetermined = choose_constants(Path(names), fitted, with_design)
    quick = replace(
        options,
        starts=STARTS,
        step=STEP,
        tolerance=TOLERANCE,
        scanned=True,
        held_out=any(word.startswith("folds=") for word in words),
    )
    calibration = fit_rows(Path(names), rows, constants, quick)
    return replace(calibration, overrides=typed, runs=tuple(runs), undetermined=undetermined)


def read_file_options(words: Sequence[str]) -> FileOptions:
    """What a user knows beside files: time between snapshots, and number of profiled runs.

    Raises:
        DesignError: no time above 0, or no whole number of 1 or more.
    """
    given = _given_options(words)
    interval = parse_quantity(given["interval"], "s") if "interval" in given else None
    if interval is not None and not interval > 0:
        raise DesignError(f"interval: expected a time above 0, as in interval='60 s', got {given['interval']}")
    return FileOptions(interval, parse_setting(given["runs"], COUNT, "calibrate: runs") if "runs" in given else 0)


def read_concurrency(words: Sequence[str]) -> int | None:
    """Most requests at once that a client sent, where files do not say it; None if it is not typed."""
    given = _given_options(words)
    return parse_setting(given["concurrency"], COUNT, "calibrate: concurrency") if "concurrency" in given else None


def _given_options(words: Sequence[str]) -> dict[str, str]:
    return {key: value.strip("'\"") for key, _, value in (word.partition("=") for word in words) if key in CALIBRATE_OPTIONS}


def _with_concurrency(run: MeasuredRun, limit: int | None) -> MeasuredRun:
    """A run whose client had a limit of requests at once that its file does not state."""
    if limit is None or run.load is None or run.load.concurrency is not None:
        return run
    return replace(run, load=replace(run.load, concurrency=limit))


def choose_constants(
    path: Path, rows: Sequence[MeasuredRow], design: Design
) -> tuple[tuple[FittedConstant, ...], tuple[UndeterminedConstant, ...]]:
    """Constants of a design's stack that some rows determine, and those that they do not.

    Raises:
        DesignError: they determine none, with the reason for each.
    """
    candidates = list_candidates(design)
    bounds = constant_bounds(candidates)
    addresses = [constant.address for constant in candidates]
    slopes = elasticities(
        lambda vectors: simulate_rows(rows, addresses, vectors), bounds.start, bounds.scale, bounds.low, bounds.high
    )
    chosen, others = choose_determined(slopes, addresses)
    if not chosen:
        reasons = "; ".join(f"{each.address}: {each.reason}" for each in others)
        raise DesignError(f"{path}: the figures determine no constant of the stack: {reasons}")
    return tuple(constant for constant in candidates if constant.address in chosen), others


def list_candidates(design: Design) -> tuple[FittedConstant, ...]:
    """Constants of a design's stack that could be fitted: those that are there.

    Raises:
        DesignError: the chip has no stack.
    """
    if design.mapping.stack is None:
        raise DesignError(
            "calibrate: this chip has no software stack; name the constants to fit, as in fit=[chip.hbm.bandwidth]"
        )
    known = {address for address, value, _ in iterate_leaves(design) if value is not None}
    candidates = {f"{STACK}.{name}": interval for name, interval in CANDIDATES.items()}
    return tuple(
        parse_constant(f"{address}={interval}" if interval else address, design)
        for address, interval in candidates.items()
        if address in known
    )


def _refuse_guesses(runs: Sequence[MeasuredRun], typed: Sequence[str]) -> None:
    """Refuse to take a chip or a model that nobody named.

    Raises:
        DesignError: the one that is missing, with the name that the file has.
    """
    named = {word.partition("=")[0] for word in typed}
    model = next((run.model for run in runs if run.model), "")
    if "chip" not in named:
        raise DesignError("calibrate: no file states the chip; name the one that was measured, as in chip=h100")
    if "model" not in named and any(run.load is not None for run in runs):
        name_text = f"the file names {model!r}; " if model else ""
        raise DesignError(f"calibrate: {name_text}name the model that was measured, as in model=llama3_8b (dse list models)")
