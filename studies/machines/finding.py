"""Findings on machines that exist: measured against simulated speeds, and order between them."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from dse.config.compose import compose
from dse.space.array_math import Array
from dse.studies.engines.dry_run import EVERY, LeftOut
from dse.studies.engines.fit import FittedNumber, describe, fit_on, rate_surface, scores, simulate_logs
from dse.studies.engines.rows import simulate_rows
from dse.studies.machines.pairs import Pair, find_pairs, read_pairs, score_pairs
from dse.studies.machines.rows import MachineRow, all_rows, own_rows
from dse.studies.markdown_table import table

HEAD = [
    "rows",
    "bias",
    "median abs. error",
    "within 20 %",
    "measured / simulated, 10th..90th percentile",
    "in the printed band",
]

STACK = "unfitted"
"""Stack of a chip of which nothing is measured."""

BLIND = (FittedNumber("matrix_efficiency", 0.48, 0.02, 1.0),)
"""Fitted number of that stack: the share of the matrix peak that products reach."""

LEFT_OUT = ("aws", "google", "intel", "amd", "tenstorrent", "nvidia")
"""Vendors with rows of several loads, each left out in turn."""


def finding() -> str:
    """Tables of the study's findings, in Markdown."""
    return "\n\n".join(
        [
            "Each vendor on its own stack, by role; NVIDIA's rows are in `studies/engines`.",
            table(["vendor, role", *HEAD], [_line(name, rows) for name, rows in _by_role(vendor_rows())]),
            "The same rows on `stack=unfitted`, what a chip gets of which nothing is measured; NVIDIA by one row in twelve.",
            table(["vendor", *HEAD], _unfitted()),
            "Each vendor left out: that stack's number fitted on the others' calibration rows, vendors of equal weight.",
            table(["left out", *HEAD], _left_out()),
            "Order between unlike machines on one model and nearly one load, each on its vendor's stack.",
            _order_table(read_pairs()),
            "The same pairs, all on `stack=unfitted`: as if nothing had been measured of either.",
            _order_table(find_pairs(STACK)),
            "Rows that are not simulated, and what they lack.",
            table(["chip", "rows", "why"], _unsimulated()),
        ]
    )


@cache
def vendor_rows() -> tuple[MachineRow, ...]:
    """Rows of vendors other than NVIDIA that can be simulated."""
    return tuple(row for row in all_rows() if row.is_simulated and row.vendor != "nvidia")


@cache
def blind_rows() -> tuple[MachineRow, ...]:
    """Rows that score a stack of no vendor: all but reports, and few of NVIDIA's."""
    nvidia = tuple(row for row in all_rows() if row.vendor == "nvidia" and row.is_simulated)[::EVERY]
    # a wafer's mesh reads no stack
    return (*(row for row in vendor_rows() if row.role != "report" and row.row.stack), *nvidia)


@cache
def logs_of(rows: tuple[MachineRow, ...], stack: str = "") -> Array:
    """Log of simulated over measured speed of each row, shape (rows,)."""
    return np.log(simulate_rows((row.row for row in rows), stack=stack))


@cache
def printed_band(stack: str) -> tuple[float, float]:
    """Range of measured over simulated rates that an answer on a stack prints; NaN if it has none."""
    accuracy = compose(["chip=h100", f"stack={stack}"])["mapping"]["stack"].get("accuracy") if stack else None
    if not accuracy or accuracy["stack"] != stack:  # of another, from which it inherits
        return np.nan, np.nan
    return tuple(float(accuracy[name]["value"]) for name in ("low", "high"))  # type: ignore[return-value]


def share_in_band(logs: Array, bands: Sequence[tuple[float, float]]) -> str:
    """Share of rows measured inside the band that their answer prints; empty if none has one."""
    low, high = np.transpose(bands)
    stated = ~np.isnan(low)
    measured = np.exp(-logs)
    return f"{np.mean(((measured >= low) & (measured <= high))[stated]):.0%}" if stated.any() else ""


def _line(name: str, rows: tuple[MachineRow, ...], stack: str = "") -> list[str]:
    logs = logs_of(rows, stack)
    return [
        name,
        f"{len(rows)}",
        *describe(scores(logs)),
        share_in_band(logs, [printed_band(stack or row.row.stack) for row in rows]),
    ]


def _group(rows: Sequence[MachineRow], name: Callable[[MachineRow], str]) -> list[tuple[str, tuple[MachineRow, ...]]]:
    names = sorted({name(row) for row in rows})
    return [(each, tuple(row for row in rows if name(row) == each)) for each in names]


def _by_role(rows: Sequence[MachineRow]) -> list[tuple[str, tuple[MachineRow, ...]]]:
    groups = _group(rows, lambda row: f"{row.vendor}, {row.role}")
    scored = tuple(row for row in rows if row.role != "report")
    return [*groups, ("all but reports", scored)]


def _unfitted() -> list[list[str]]:
    rows = blind_rows()
    return [_line(name, group, STACK) for name, group in (*_group(rows, lambda row: row.vendor), ("all", rows))]


def leave_vendors_out() -> list[LeftOut]:
    """Rows of each vendor on the blind stack, fitted on calibration rows of the others."""
    rows = tuple(row for row in blind_rows() if row.vendor in LEFT_OUT)
    surface = rate_surface([row.row for row in rows], BLIND, [number.start for number in BLIND], STACK)
    left = []
    for vendor in LEFT_OUT:
        places = _even_places([row.vendor if row.role == "calibration" and row.vendor != vendor else "" for row in rows])
        values = fit_on(surface, BLIND, places, reach=1.6)
        own = [row.row for row in rows if row.vendor == vendor]
        left.append(LeftOut(vendor, values, simulate_logs(own, BLIND, values, STACK)))
    return [*left, LeftOut("all, each left out", np.array([]), np.concatenate([group.logs for group in left]))]


def _left_out() -> list[list[str]]:
    """Lines of vendors left out, each with the share of its rows in the band that the blind stack prints."""
    band = printed_band(STACK)
    return [[*group.line, share_in_band(group.logs, [band] * len(group.logs))] for group in leave_vendors_out()]


def _even_places(groups: Sequence[str]) -> Array:
    """Places of rows, of small groups several times, so that groups count alike; none without group."""
    members = [np.flatnonzero([each == name for each in groups]) for name in sorted(set(groups) - {""})]
    most = max(map(len, members))
    return np.concatenate([np.resize(places, most) for places in members])


def _order_table(pairs: Sequence[Pair]) -> str:
    """Pairs whose order is right, by how much faster the faster machine was measured, and all."""
    bounds = [(1.0, 1.5), (1.5, 3.0), (3.0, np.inf)]
    groups = [(f"{low:g} to {high:g} x", [pair for pair in pairs if low <= pair.measured < high]) for low, high in bounds]
    lines = []
    for name, group in (*groups, ("all", list(pairs))):
        if group:
            right, off = score_pairs(group)
            lines.append([name, f"{len(group)}", f"{right}", f"{right / len(group):.0%}", f"x{off:.2f}"])
    return table(["measured faster by", "pairs", "in the right order", "share", "ratio off by, median"], lines)


def _unsimulated() -> list[list[str]]:
    out = [row for row in own_rows() if not row.is_simulated]
    lines = []
    for chip in sorted({row.row.chip for row in out}):
        rows = [row for row in out if row.row.chip == chip]
        unstated = "the page does not state load, format or layout, or the model has no preset"
        why = unstated if rows[0].vendor else "no preset of the chip"
        lines.append([chip, f"{len(rows)}", why])
    return lines
