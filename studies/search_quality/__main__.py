"""Measures the samplers on three grids: python -m dse.studies.search_quality [FOLDER]

Evaluates each grid once (kept in FOLDER, by default runs/search_quality), replays the searches, writes ``shares.csv`` and
``shares.svg`` and this study's README.md. What is in FOLDER is not measured again.
"""

import csv
import sys
import time
from pathlib import Path

import numpy as np

from dse.progress import say
from dse.studies.search_quality.figure import drawn
from dse.studies.search_quality.replay import SPACES, closed_front, grid, searched
from dse.studies.write import main as write

SAMPLERS = ("local", "nsga2", "random", "qmc", "optuna nsga2", "optuna tpe", "tpe")
SEEDS = range(10)
BUDGET = 0.01
"""Share of a grid's designs that a search may evaluate."""

STEPS = 20
"""Places of a budget at which the share of the hypervolume is noted."""

SLOW, MOST = "tpe", 300
"""A sampler whose own cost grows with every trial, and the largest budget with which it is measured."""

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    """Measures, and writes what came out."""
    lines = []
    for name in SPACES:
        whole = grid(name, folder)
        rows = whole.rows()
        budget = int(BUDGET * whole.size)
        closed = closed_front(whole)
        seeded = np.array([rows[tuple(values.items())] for values in closed])
        lines.append([name, "closed front", 0, whole.size, len(closed), whole.share(seeded)])
        for sampler in SAMPLERS:
            if sampler.endswith(SLOW) and budget > MOST:
                continue
            start = time.process_time()
            for seed in SEEDS:
                path = folder / f"{whole.study.question.space.key[:12]}-{sampler.replace(' ', '-')}-{seed}.npy"
                if not path.exists():
                    np.save(path, searched(whole, rows, sampler, seed, budget, []))
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


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/search_quality"))
