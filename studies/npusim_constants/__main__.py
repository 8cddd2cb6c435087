"""Recompute NpuSim's figures with each assumed constant of npu64 lowered and raised.

    python -m dse.studies.npusim_constants

Writes ``moves.csv`` and this study's README.md.
"""

import csv
from pathlib import Path

from dse.studies.npusim_constants.moved import move_constants
from dse.studies.write import main as write
from dse.terminal.progress import say

if __name__ == "__main__":
    with (Path(__file__).parent / "moves.csv").open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("row", "role", "low", "high", "constant", "value", "simulated"))
        last = ""
        for one in move_constants():
            lines.writerow((one.row, one.role, *one.published, one.constant, one.value, f"{one.simulated:.5g}"))
            if one.row != last:
                say(f"{one.row}: {one.simulated:.4g}")
            last = one.row
    write(["npusim_constants"])
