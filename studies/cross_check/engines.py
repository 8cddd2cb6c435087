"""Cycles of matrix engines by another simulator and by a paper, beside ours.

``engines.csv`` has 20 products of random sizes on random arrays by SCALE-Sim 3.0.0, each with three dataflows.
"""

import csv
from pathlib import Path
from typing import NamedTuple

from dse.evaluators.machine.compute_engines import pipelined_element_cycles, systolic_cycles

FILE = Path(__file__).with_name("engines.csv")

NEAR = 0.05
"""Gap up to which an engine counts as near."""

REDMULE_MACS = 31.6
"""Multiply-adds a cycle of a RedMulE with 32 elements: abstract of Tortorella et al., DATE 2022, arXiv 2204.11192."""

REDMULE_ARRAY = (8, 4, 3)
"""Rows, columns and pipeline registers of that RedMulE."""

CE_FILL = 10
"""Fill of elements with pipelines, as ``chip=tile32`` has it. [cycle]"""

LARGE = 512
"""Side of a product whose start does not count."""


class SystolicArrayRow(NamedTuple):
    """One product on one systolic array by another simulator.

    Attributes:
        dataflow: which operand stays.
        rows, cols: of the array.
        m, k, n: of the product.
        cycles: by the other simulator.
    """

    dataflow: str
    rows: int
    cols: int
    m: int
    k: int
    n: int
    cycles: int

    def own_cycles(self, reload: str) -> int:
        """Cycles by this project's engine, with tiles one after the other or loaded behind one another."""
        sides, streams = {
            "weight": ((self.k, self.n), self.m), "output": ((self.m, self.n), self.k), "input": ((self.k, self.m), self.n)
        }[self.dataflow]  # fmt: skip
        return int(systolic_cycles(sides, streams, self.rows, self.cols, reload))

    def gap(self, reload: str) -> float:
        """Relative excess of this project's cycles."""
        return self.own_cycles(reload) / self.cycles - 1


def read_engine_rows() -> list[SystolicArrayRow]:
    """All rows of the table of systolic arrays."""
    with FILE.open(newline="") as file:
        return [
            SystolicArrayRow(row["dataflow"], *(int(row[name]) for name in SystolicArrayRow._fields[1:]))
            for row in csv.DictReader(file)
        ]


def redmule_macs() -> float:
    """Multiply-adds a cycle of this project's pipelined elements, with RedMulE's sides."""
    rows, cols, depth = REDMULE_ARRAY
    return float(LARGE**3 / pipelined_element_cycles(LARGE, LARGE, LARGE, rows, cols, depth, CE_FILL))
