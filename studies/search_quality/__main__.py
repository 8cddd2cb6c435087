"""Measures the samplers on seven grids: python -m dse.studies.search_quality [FOLDER]

Evaluates each grid once (kept in FOLDER, by default runs/search_quality), replays the searches, writes ``shares.csv`` and
``shares.svg`` and this study's README.md. What is in FOLDER is not measured again.
"""

import csv
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dse.space.elementwise import Array
from dse.studies.search_quality.figure import drawn
from dse.studies.search_quality.halving import halved
from dse.studies.search_quality.replay import SPACES, Cheap, Grid, closed_front, grid, searched
from dse.studies.write import main as write
from dse.terminal.progress import say

ALONE = ("local", "nsga2", "random", "qmc", "optuna nsga2", "optuna tpe", "tpe", "optuna gp")
PROMOTED, HALVING = "local, promoted", "halving"
"""By two fidelities, where a grid's screen has a lower one."""

SEEDS = range(10)
SHARE, SMALL_SHARE, SMALL = 0.01, 0.02, 10_000
"""Of a grid's designs that a search may evaluate, and of one with fewer designs than the last."""

STEPS = 40
"""Places of a budget at which the share of the hypervolume is noted."""

MOST = {"tpe": 300, "optuna tpe": 300, "optuna gp": 110}
"""Samplers whose own cost grows with every trial, and the largest budget with which each is measured."""

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    """Measures, and writes what came out."""
    lines = []
    for name in SPACES:
        whole = grid(name, folder)
        rows = whole.rows()
        budget = int((SMALL_SHARE if whole.size < SMALL else SHARE) * whole.size)
        two = whole.study.fidelity != whole.study.screening
        closed = closed_front(whole, folder if two else None)
        seeded = np.array([rows[tuple(values.items())] for values in closed])
        lines.append([name, "closed front", 0, whole.size, len(closed), whole.share(seeded)])
        for sampler in (*((PROMOTED, HALVING) if two else ()), *ALONE):
            if budget > MOST.get(sampler, budget) or (sampler == "optuna gp" and not find_spec("torch")):
                continue
            start = time.process_time()
            for seed in SEEDS:
                path = folder / f"{whole.study.question.space.key[:12]}-{sampler.replace(' ', '-')}-{seed}.npy"
                if not path.exists():
                    np.save(path, _found(whole, rows, sampler, seed, budget, folder))
                order = np.load(path)
                for count in np.unique(np.linspace(budget / STEPS, budget, STEPS).astype(int)):
                    lines.append([name, sampler, seed, whole.size, int(count), whole.share(order[:count])])
            last = [line[5] for line in lines if line[:2] == [name, sampler] and line[4] == budget]
            spent = time.process_time() - start
            say(f"{name} {sampler}: {np.mean(last):.4f} at {budget:,}, {spent / len(SEEDS) / budget * 1e3:.2f} ms an ask")
    with (HERE / "shares.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["space", "sampler", "seed", "designs", "evaluations", "share"])
        writer.writerows([*line[:5], f"{line[5]:.5f}"] for line in lines)
    (HERE / "shares.svg").write_text(drawn(HERE / "shares.csv"))
    write(["search_quality"])


def _found(whole: Grid, rows: dict[tuple[object, ...], int], sampler: str, seed: int, budget: int, folder: Path) -> Array:
    """The rows that a search evaluates, in order."""
    if sampler == HALVING:
        return halved(whole, rows, Cheap(whole, folder).each, seed, budget)
    if sampler == PROMOTED:
        return searched(whole, rows, "local", seed, budget, [], Cheap(whole, folder))
    return searched(whole, rows, sampler, seed, budget, [])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/search_quality"))
