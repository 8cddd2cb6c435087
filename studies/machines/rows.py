"""Measured speeds of machines that exist, each with its role by a rule, beside simulated ones.

    python -m dse.studies.machines.rows VENDOR > rows.csv

`measured.csv` has what pages state that `dse.studies.engines` does not have already. The command prints the rows of a vendor
with their roles, in the columns of `dse validate` and `dse calibrate`.

Roles were decided before any result was seen:

- report: chips and pages of which too little is stated (`UNFIT_CHIPS`, `UNFIT_PLACES`), and systems of more chips than a model
  has heads, which are pipelines that are asked here as if they were not;
- check: every third deployment of a chip in the order of the file, and all of a chip on which its vendor's stack is not fitted;
- calibration: the others, and all rows of `dse.studies.engines`, on which stacks were fitted before.

A deployment is a chip with a model, formats, lengths, division and batch: its first token, its token time and its rate are
rows.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dse.accuracy.validate import COLUMNS
from dse.studies.engines.rows import EngineRow, measured_rows, model_of

MEASURED = Path(__file__).resolve().parent / "measured.csv"

VENDORS = {
    "a100": "nvidia",
    "b200": "nvidia",
    "gaudi2": "intel",
    "gaudi3": "intel",
    "groq": "groq",
    "h100": "nvidia",
    "h200": "nvidia",
    "inferentia2": "aws",
    "mi300x": "amd",
    "n150": "tenstorrent",
    "p100": "tenstorrent",
    "sn40l": "sambanova",
    "t3k": "tenstorrent",
    "tpu_v5e": "google",
    "tpu_v6e": "google",
    "tpu_v7x": "google",
    "trainium1": "aws",
    "wormhole": "tenstorrent",
    "wormhole_galaxy": "tenstorrent",
    "wse3": "cerebras",
}
"""Vendor of each chip with measured rows; other chips of the file have no preset."""

FITTED = ("trainium1", "tpu_v6e")
"""Chips on whose calibration rows this study fits a stack."""

UNFIT_CHIPS = ("inferentia2", "sn40l")
"""Chips of which rows are compared only: caches of static shape, and pages that state neither chips nor formats."""

UNFIT_PLACES = ("optimum-neuron",)
"""Beginnings of pages whose engine pads each batch to the compiled one, so that a row's batch is not what ran."""

EVERY = 3
"""One deployment of so many is a check."""


class MachineRow(NamedTuple):
    """A measured row with its role and its vendor.

    Attributes:
        role: calibration, check or report.
    """

    row: EngineRow
    role: str
    vendor: str

    @property
    def is_simulated(self) -> bool:
        """Whether the page states enough to simulate the row on a chip that has a preset."""
        return self.row.bench != "unstated" and bool(self.vendor)

    @property
    def deployment(self) -> tuple[str, ...]:
        """What is the same in the rows of one run: chip, model, formats, lengths, division and batch."""
        return deployment_of(self.row)


def deployment_of(row: EngineRow) -> tuple[str, ...]:
    """What is the same in the rows of one run: chip, model, formats, lengths, division and batch."""
    sizes = (row.prompt, row.output, row.tp, row.ep, row.requests)
    return (row.version, row.chip, row.model, row.weights, row.kv, *map(str, sizes))


@cache
def own_rows() -> tuple[MachineRow, ...]:
    """Rows of this study's file with their roles."""
    rows = measured_rows(MEASURED)
    places: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        if _is_fit(row) and deployment_of(row) not in places.setdefault(row.chip, []):
            places[row.chip].append(deployment_of(row))
    return tuple(MachineRow(row, _role(row, places.get(row.chip, [])), VENDORS.get(row.chip, "")) for row in rows)


@cache
def all_rows() -> tuple[MachineRow, ...]:
    """Rows of this study and of `dse.studies.engines`, whose roles are calibration."""
    return (*(MachineRow(row, _earlier_role(row), VENDORS[row.chip]) for row in measured_rows()), *own_rows())


def _earlier_role(row: EngineRow) -> str:
    return "report" if row.tp > model_of(row.model).heads else "calibration"


def _is_fit(row: EngineRow) -> bool:
    return row.bench != "unstated" and row.chip not in UNFIT_CHIPS and not row.place.startswith(UNFIT_PLACES)


def _role(row: EngineRow, deployments: Sequence[tuple[str, ...]]) -> str:
    if not _is_fit(row):
        return "report"
    checked = row.chip not in FITTED or deployments.index(deployment_of(row)) % EVERY == EVERY - 1
    return "check" if checked else "calibration"


def of_vendor(vendor: str, rows: Iterable[MachineRow] = ()) -> list[MachineRow]:
    """Rows of a vendor that can be simulated, of all rows where none are given."""
    return [row for row in rows or all_rows() if row.vendor == vendor and row.is_simulated]


def calibration_lines(vendor: str) -> list[list[str]]:
    """Rows of a vendor in the columns of `dse calibrate`, without the stack."""
    lines: list[list[str]] = []
    for row, role, _ in of_vendor(vendor):
        name = f"{row.id}-b{row.requests}"
        words = (f"'{word}'" if " " in word else word for word in row.overrides())
        lines.append(
            [name, f"{row.place} {row.version}", " ".join(words), "", row.metric, f"{row.value:g}", row.unit, role, ""]
        )
    return lines


if __name__ == "__main__":
    known = sorted({vendor for _, _, vendor in all_rows() if vendor})
    if len(sys.argv) != 2 or sys.argv[1] not in known:
        raise SystemExit(f"python -m dse.studies.machines.rows VENDOR, one of {', '.join(known)}")
    csv.writer(sys.stdout, lineterminator="\n").writerows([COLUMNS, *calibration_lines(sys.argv[1])])
