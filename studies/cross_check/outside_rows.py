"""Times that other simulators give for the exports, from files that somebody brings."""

import csv
from pathlib import Path
from typing import NamedTuple

from dse.space.errors import DesignError
from dse.studies.cross_check.cases import CASES

FOLDER = Path(__file__).with_name("external")
"""Folder of the files, ``*.csv``; it need not be there."""

COLUMNS = ("case", "simulator", "version", "cycles")
MAX_BYTES = 1_000_000
"""Largest file that is read. [B]"""


class OutsideRow(NamedTuple):
    """Cycles that another simulator needed for an export.

    Attributes:
        case: name of the kernel.
        simulator, version: who ran it.
        cycles: until the last packet arrived, or the last request was done. [cycle]
    """

    case: str
    simulator: str
    version: str
    cycles: float


def read_outside_rows(folder: Path = FOLDER) -> list[OutsideRow]:
    """Rows of all files of a folder; none where it is not there.

    Raises:
        DesignError: a file has other columns, an unknown case or simulator, or cycles that are no number above 0.
    """
    rows = []
    for path in sorted(folder.glob("*.csv")):
        if path.stat().st_size > MAX_BYTES:
            raise DesignError(f"{path}: larger than {MAX_BYTES:,} B; bring one row for each case and simulator")
        try:
            with path.open(newline="", encoding="utf-8") as file:
                lines = csv.DictReader(file)
                if not set(COLUMNS) <= set(lines.fieldnames or ()):
                    raise DesignError(f"{path}: expected the columns {', '.join(COLUMNS)} in its first line")
                rows += [_read_row(path, number, line) for number, line in enumerate(lines, 2)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise DesignError(f"{path}: no CSV file in UTF-8: {error}") from None
    return rows


def _read_row(path: Path, number: int, line: dict[str, str]) -> OutsideRow:
    targets = {case.name: case.targets for case in CASES}
    name, simulator = (line["case"] or "").strip(), (line["simulator"] or "").strip()
    if name not in targets:
        raise DesignError(f"{path}, line {number}: no case {name!r}; choose one of {', '.join(targets)}")
    if simulator not in targets[name]:
        raise DesignError(f"{path}, line {number}: {name} has no export for {simulator!r}; choose {', '.join(targets[name])}")
    try:
        cycles = float(line["cycles"] or "")
    except ValueError:
        cycles = -1.0
    if not 0 < cycles < 1e15:
        raise DesignError(f"{path}, line {number}: cycles must be a number above 0, got {line['cycles']!r}")
    return OutsideRow(name, simulator, (line["version"] or "").strip(), cycles)
