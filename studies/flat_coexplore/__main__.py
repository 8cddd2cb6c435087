"""Evaluate the whole grid and write the study's designs: python -m dse.studies.flat_coexplore."""

import numpy as np
import pandas as pd

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.search.pareto import front_mask
from dse.studies.flat_coexplore.finding import PATH
from dse.studies.write import main as write

BLOCK = 16384
PAPER = {"chip.mesh": 32, "chip.tile.matrix.rows": 32, "chip.tile.matrix.cols": 16, "chip.tile.sram": 384 * 1024}
PAPER |= {"chip.noc.word_bytes": 128, "chip.hbm.channels": 64}
"""[zhang2026] table I with two stacks; groups and slices as suits the shape."""


def evaluate_designs() -> pd.DataFrame:
    """All fitting designs of one peak rate: knobs and objectives."""
    study = find_study("flat_coexplore")
    space, frames = study.question.space, []
    for start in range(0, space.combinations or 0, BLOCK):
        columns = space.grid(start, min(start + BLOCK, space.combinations or 0))
        outcomes = evaluate(space.stack(columns), study.question.workload)
        good = outcomes.feasible.copy()
        for bound in study.bounds:
            good &= bound.excess(outcomes.columns[bound.metric]) <= 0
        kept = {name: np.asarray(values)[good] for name, values in columns.items()}
        frames.append(pd.DataFrame(kept | {name: outcomes.columns[name][good] for name in study.objectives}))
    return pd.concat(frames, ignore_index=True)


def choose_designs(frame: pd.DataFrame) -> pd.DataFrame:
    """Designs on the front, the best of each mesh, and the paper's chip."""
    study = find_study("flat_coexplore")
    first, *_ = study.objectives
    best = frame[front_mask(frame[list(study.objectives)].to_numpy(), study.directions)].sort_values(first, ascending=False)
    sides = ["chip.mesh.rows", "chip.mesh.cols"]
    each = frame.loc[frame.groupby(sides)[first].idxmax()]
    knobs = [knob.address for knob in study.question.space.knobs]
    like = {name: PAPER.get(name, PAPER["chip.mesh"] if name in sides else 0) for name in knobs}
    paper = frame[np.logical_and.reduce([np.isclose(frame[name], value) for name, value in like.items()])]
    parts = {"front": best, "best": each, "paper": paper}
    return pd.concat([part[knobs].assign(kind=kind) for kind, part in parts.items()])


if __name__ == "__main__":
    frame = evaluate_designs()
    print(f"{len(frame):,} designs of one peak fit")
    choose_designs(frame).to_csv(PATH, index=False, float_format="%.10g")
    write(["flat_coexplore"])
