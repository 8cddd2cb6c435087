"""Findings on each chip: its best mapping per objective, and the shortest time of a token."""

from typing import Any

import numpy as np

from dse.commands.notebook_api import find_study
from dse.evaluators import METRICS, evaluate
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

SHOWN = ("throughput_per_system_mm2", "tpot", "ttft", "energy_per_token")
AT_ONCE = 8192


def finding() -> str:
    """One table for each objective."""
    study = find_study("six_chips")
    space, workload = study.question.space, study.question.workload
    columns = space.grid(0, space.combinations or 0)
    size = len(columns[CHIP_KNOB])
    metrics, feasible = {name: np.full(size, np.nan) for name in SHOWN}, np.zeros(size, dtype=bool)
    for rows in space.parts(columns, AT_ONCE):
        evaluation = evaluate(space.stack({address: column[rows] for address, column in columns.items()}), workload)
        feasible[rows] = evaluation.feasible
        for name in SHOWN:
            metrics[name][rows] = evaluation.columns[name]
    tables = []
    for objective, direction in study.objectives.items():
        lines = []
        for code, chip in enumerate(space.knobs[0].values):  # type: ignore[union-attr]
            rows = np.flatnonzero(feasible & (columns[CHIP_KNOB] == code))
            values = metrics[objective][rows]
            best = int(rows[values.argmax() if direction == "max" else values.argmin()])
            lines.append([str(chip), _mapping(space.row(columns, best)), *(_text(name, metrics[name][best]) for name in SHOWN)])
        head = ["chip", "mapping", *SHOWN]
        tables.append(f"Best {objective} of each chip, {workload.cases[0].label}, {study.chips}:\n\n{table(head, lines)}")
    return "\n\n".join(tables)


def _mapping(values: dict[str, Any]) -> str:
    return ", ".join(f"{address.removeprefix('mapping.')} {value}" for address, value in values.items() if address != CHIP_KNOB)


def _text(name: str, value: float) -> str:
    return format_quantity(float(value), METRICS[name].unit) if value == value else "-"
