"""Findings on kernels across fidelities and simulators, from tables and from rows of outside."""

from pathlib import Path

import pandas as pd

from dse.studies.cross_check.cases import CASES
from dse.studies.cross_check.engines import NEAR, REDMULE_MACS, read_engine_rows, redmule_macs
from dse.studies.cross_check.outside_rows import OutsideRow, read_outside_rows
from dse.studies.markdown_table import table

HERE = Path(__file__).parent
UNITS = {"booksim": "byte-hops", "dramsim3": "bytes", "ramulator": "bytes", "chakra": "sent bytes"}
COUNTED = {"booksim": "packets", "dramsim3": "requests", "ramulator": "requests", "chakra": "nodes"}


def finding() -> str:
    """Tables of kernels by fidelity, of exports, and of reference points replayed from exports."""
    frame = pd.read_csv(HERE / "cases.csv")
    return "\n\n".join(
        (_kernels(frame), _exports(frame), _replays(frame), _outside(frame, read_outside_rows()), _points(), _engines())
    )


def _kernels(frame: pd.DataFrame) -> str:
    """One row per kernel: cycles by closed form, events and cycles."""
    rows = []
    for case in CASES:
        row = frame[frame["case"] == case.name].iloc[0]
        gaps = (f"{row[word] / row['cycles'] - 1:+.1%}" for word in ("analytical", "events"))
        times = (f"{row[word]:,.0f}" for word in ("analytical", "events", "cycles"))
        rows.append([case.name, case.text, *times, *gaps])
    head = ["case", "kernel", "closed form", "events", "cycles", "closed form / cycles", "events / cycles"]
    return "Cycles of the chip's clock:\n\n" + table(head, rows)


def _exports(frame: pd.DataFrame) -> str:
    """One row per export: what it holds, and the command that makes it."""
    rows = [
        [
            row.case, row.simulator, f"{row.count_:,} {COUNTED[row.simulator]}", f"{row.volume:,.0f} {UNITS[row.simulator]}",
            f"`{next(case for case in CASES if case.name == row.case).command(str(row.simulator))}`",
        ]
        for row in frame.rename(columns={"count": "count_"}).itertuples()
    ]  # fmt: skip
    return "What each export holds, and the command that makes it:\n\n" + table(
        ["case", "simulator", "count", "volume", "command"], rows
    )


def _replays(frame: pd.DataFrame) -> str:
    """One row per trace of packets: last arrival in the program, and when the trace is played open loop."""
    rows = [
        [row.case, f"{row.ours:,.0f}", f"{row.replayed:,.0f}", f"{row.replayed / row.ours - 1:+.1%}"]
        for row in frame[frame["simulator"] == "booksim"].itertuples()
    ]
    text = "Cycles until the last packet arrives, with its dependencies and as an exported trace on the exported routers:\n\n"
    return text + table(["case", "program", "trace", "trace / program"], rows)


def _outside(frame: pd.DataFrame, rows: list[OutsideRow]) -> str:
    """Rows that other simulators gave, beside ours; a sentence where there are none."""
    if not rows:
        return "Rows of other simulators for these kernels: none so far (`external/*.csv`; the next section has its columns)."
    ours = {(row.case, row.simulator): row.ours for row in frame.itertuples()}
    cells = [
        [
            row.case, f"{row.simulator} {row.version}".strip(), f"{row.cycles:,.0f}", f"{ours[row.case, row.simulator]:,.0f}",
            f"{ours[row.case, row.simulator] / row.cycles - 1:+.1%}",
        ]
        for row in rows
    ]  # fmt: skip
    return "Cycles until the last packet or request is done:\n\n" + table(
        ["case", "simulator", "its cycles", "fidelity=cycles", "ratio - 1"], cells
    )


def _points() -> str:
    """One row per simulator and metric: how near the replayed points are."""
    frame = pd.read_csv(HERE / "points.csv")
    frame["gap"] = frame["replayed"] / frame["reference"] - 1
    rows = []
    for (simulator, metric), part in frame.groupby(["simulator", "metric"], sort=False):
        worst = part.loc[part["gap"].abs().idxmax()]
        median = part["gap"].abs().median()
        rows.append([simulator, metric, str(len(part)), f"{median:.1%}", f"{worst['gap']:+.1%}", str(worst["point"])])
    head = ["simulator", "metric", "points", "median gap", "largest gap", "at"]
    return "Reference points, simulated from the exported files alone:\n\n" + table(head, rows)


def _engines() -> str:
    """One row per dataflow and way of loading: how near systolic arrays are to SCALE-Sim; and RedMulE's rate."""
    rows = []
    for dataflow in ("weight", "input", "output"):
        for reload in ("tile", "hidden"):
            gaps = sorted((row.gap(reload) for row in read_engine_rows() if row.dataflow == dataflow), key=abs)
            near = sum(abs(gap) <= NEAR for gap in gaps)
            middle = (abs(gaps[len(gaps) // 2 - 1]) + abs(gaps[len(gaps) // 2])) / 2
            rows.append([dataflow, reload, f"{near} of {len(gaps)}", f"{middle:.1%}", f"{gaps[-1]:+.1%}"])
    head = ["what stays", "`reload`", f"within {NEAR:.0%}", "median gap", "largest gap"]
    rate = redmule_macs()
    gap = f"{rate / REDMULE_MACS - 1:+.1%}"
    text = f"RedMulE with 32 elements: {REDMULE_MACS} multiply-adds a cycle published, {rate:.1f} by `ce` ({gap})."
    return "Systolic arrays against SCALE-Sim 3.0.0, 20 products of random sizes:\n\n" + table(head, rows) + "\n\n" + text
