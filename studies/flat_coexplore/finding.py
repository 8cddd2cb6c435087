"""Findings on the designs of `designs.csv`: front, best of each mesh, and the paper's chip."""

from pathlib import Path

import pandas as pd

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.fields import leaf_at
from dse.space.units import format_quantity
from dse.studies.markdown_table import table

PATH = Path(__file__).with_name("designs.csv")
NAMES = ("mfu_per_system_mm2", "hbm_bytes", "energy_per_token", "mfu", "system_mm2")
HEAD = ["tiles", "elements", "L1", "link", "channels", "group", "slice", "mm2", "used", "used per mm2", "HBM", "a token"]


def finding() -> str:
    """One row per design by the analytical model; those of the front by events as well."""
    question = find_study("flat_coexplore").question
    frame = pd.read_csv(PATH)
    knobs = [knob.address for knob in question.space.knobs]
    tables = {}
    for kind, current_rows in frame.groupby("kind", sort=False):
        rows = []
        for _, row in current_rows.iterrows():
            design = question.space.design_at({address: float(row[address]) for address in knobs})
            designs = question.space.stack(
                {address: current_rows.loc[[row.name], address].to_numpy(float) for address in knobs}
            )
            columns = evaluate(designs, question.workload).columns
            events = evaluate(designs, question.workload, fidelity="events").columns if kind != "best" else columns
            leaves = {address: leaf_at(design, address) for address in knobs}
            sides = (f"chip.{part}.{side}" for part in ("mesh", "tile.matrix") for side in ("rows", "cols"))
            own = [f"{leaves[side]:.0f}" for side in sides]
            group, cut = (
                [_said(leaves[f"mapping.{name}"]) for name in pair] for pair in (("rows", "cols"), ("queries", "keys"))
            )
            played = "" if kind == "best" else f" ({events['mfu'][0]:.0%})"
            per = "" if kind == "best" else f" ({events[NAMES[0]][0] * 1e3:.2f})"
            rows.append(
                [
                    f"{own[0]} x {own[1]}",
                    f"{own[2]} x {own[3]}",
                    f"{leaves['chip.tile.sram'] / 1024:.0f} KiB",
                    format_quantity(leaves["chip.noc.word_bytes"], "B"),
                    f"{leaves['chip.hbm.channels']:.0f}",
                    " x ".join(group),
                    " x ".join(cut),
                    f"{columns['system_mm2'][0]:.0f}",
                    f"{columns['mfu'][0]:.0%}{played}",
                    f"{columns[NAMES[0]][0] * 1e3:.2f}{per}",
                    format_quantity(columns["hbm_bytes"][0], "B"),
                    f"{columns['energy_per_token'][0] * 1e6:.0f} uJ",
                ]
            )
        tables[kind] = table(HEAD, rows)
    titles = {"front": "The front:", "best": "The best of each mesh for its area:", "paper": "The paper's chip:"}
    note = "Used: share of the engines' peak, the mean of both layers, and that per mm2 in thousandths; in brackets by events."
    note += " * is what suits the shape."
    return "\n\n".join([*(f"{titles[str(kind)]}\n\n{text}" for kind, text in tables.items()), note])


def _said(value: float) -> str:
    return f"{value:.0f}" if value else "*"
