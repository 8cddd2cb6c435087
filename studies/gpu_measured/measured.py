"""Measured kernel rows as published, and the rows that are fitted; independent of kernel formulas.

Tables are read from a folder that the user has; each kernel kind has a module that says which table is of which stack.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.machine.library_die import LibraryDie, library_die
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, replace_leaves

EVERY = 5
"""Of a stack's rows of a kind, in the order of their tables, each fifth is a check that nothing is fitted on."""

EVERY_OF_GROUP = 2
"""Of a group of rows that earlier fits were far from, each second is such a check."""

RESULTS = Path(__file__).with_name("results.csv")
"""Results of the last fit: errors by stack and kind."""

SAMPLE = Path(__file__).with_name("published.csv")
"""Rows that ship, a few of a kind and stack."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class PartRow:
    """One measured kernel: sizes, overrides, time and source.

    Attributes:
        sizes: of its problem, by name.
        sort: distinguishes problems with different formulas: a format, or a sort of elementwise kernel.
        words: overrides for the same problem in `dse evaluate`, without chip and stack.
        seconds: that were measured.
        source: table, and place in it.
        group: kind of kernel that earlier fits were far from; empty string for rows that these were made on.
    """

    sizes: dict[str, float]
    sort: str
    words: str
    seconds: float
    source: str
    group: str = ""


@dataclass(frozen=True)
class FittedPart:
    """A part of a stack that is fitted on measured rows.

    Attributes:
        kind: of kernel, a name of `kernels.library.LIBRARY`.
        stack, chip: names of conf; the silicon is the chip's, and is not fitted.
        rows: measured.
        record: the part's constants, of fitted numbers.
        seconds: of sizes (columns over rows), a sort, constants and silicon.
        names: of the fitted numbers, addresses below the part; several names of one number stand with a comma.
        start, low, high: of the fitted numbers, SI.
        said: reasons for the values of unfitted constants, for the file.
        sources: of the rows, keys of conf/sources.yaml.
        follows: names of numbers that are as of the part of another kind, which is fitted before; by name, that kind.
    """

    kind: str
    stack: str
    chip: str
    rows: tuple[PartRow, ...]
    record: Callable[[Vector], Any]
    seconds: Callable[[dict[str, Vector], str, Any, LibraryDie], Vector]
    names: tuple[str, ...]
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    said: dict[str, str]
    sources: str
    follows: Mapping[str, str] = field(default_factory=dict)

    def with_known_parts(self, known: Mapping[tuple[str, str], Any]) -> "FittedPart":
        """The part with the constants of the parts that it follows.

        Args:
            known: constants of parts that are fitted, by kind and stack.

        Raises:
            DesignError: one that it follows is not among them.
        """
        for kind in self.follows.values():
            if (kind, self.stack) not in known:
                raise DesignError(f"gpu_measured: {self.kind} of {self.stack} follows {kind}, which is not fitted yet")
        same = {name: getattr(known[kind, self.stack], name) for name, kind in self.follows.items()}
        return replace(self, record=lambda values: replace_leaves(self.record(values), same), follows={})

    def checks(self) -> NDArray[np.bool_]:
        """Mask of check rows, on which nothing is fitted, shape (rows,); each group is counted by itself."""
        checks = np.zeros(len(self.rows), dtype=bool)
        for group, places in self.groups().items():
            every = EVERY_OF_GROUP if group else EVERY
            checks[places[every - 1 :: every]] = True
        return checks

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Places of the rows of each group, by its name."""
        names = np.array([row.group for row in self.rows])
        return {str(name): np.flatnonzero(names == name) for name in dict.fromkeys(names)}

    def simulated_seconds(self, values: Vector, places: NDArray[np.intp]) -> Vector:
        """Simulated seconds of some rows with given constants, shape (rows,)."""
        seconds = np.full(len(places), np.nan)
        sorts = np.array([self.rows[place].sort for place in places])
        constants, silicon = self.record(values), die_of(self.chip)
        for sort in dict.fromkeys(sorts):
            indices = np.flatnonzero(sorts == sort)
            given_sizes = [self.rows[places[i]].sizes for i in indices]
            sizes = {name: np.array([size[name] for size in given_sizes]) for name in given_sizes[0]}
            seconds[indices] = self.seconds(sizes, str(sort), constants, silicon)
        return seconds

    def constants(self, values: Vector) -> dict[str, tuple[Any, str]]:
        """Value and unit of each leaf of the part, by address below the part."""
        return {name: (value, spec.metadata["unit"]) for name, value, spec in iterate_leaves(self.record(values))}


def die_of(chip: str) -> LibraryDie:
    """A preset chip as its library kernels see it."""
    if chip not in _DIES:
        _DIES[chip] = library_die(build_question(compose([f"chip={chip}"]), Path()).base.chip)
    return _DIES[chip]


_DIES: dict[str, LibraryDie] = {}


def table(folder: Path, name: str, column: str = "seconds") -> Iterator[tuple[dict[str, str], str]]:
    """Rows of a measured table with their places in it.

    Raises:
        DesignError: the folder has no such table, or a row lacks its time.
    """
    path = folder / name
    if not path.exists():
        raise DesignError(f"gpu_measured: {folder} has no {name}")
    with path.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            if not row.get(column):
                raise DesignError(f"{path}, row {number}, column {column}: {row.get(column)!r} is not a time")
            yield row, f"{name}, row {number}"


def spread(errors: Sequence[float] | Vector) -> tuple[float, float, float]:
    """Median, 90th percentile and worst of absolute relative errors, given as logarithms."""
    size = np.abs(np.expm1(np.asarray(errors)))
    return float(np.median(size)), float(np.quantile(size, 0.9)), float(size.max())
