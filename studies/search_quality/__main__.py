"""Measure the samplers on seven grids, and write shares and figure.

    python -m dse.studies.search_quality [FOLDER [GRID:SAMPLER ...]]

The command evaluates each grid once (kept in FOLDER, by default runs/search_quality), replays the searches, and writes
``shares.csv``, ``shares.svg`` and this study's README.md. Results in FOLDER are not measured again. If samplers of
grids are named, as in ``"pipelines:optuna gp"``, only these are measured, and the other rows of ``shares.csv`` stay.
"""

import csv
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dse.space.array_math import Array
from dse.studies.search_quality.figure import draw_figure
from dse.studies.search_quality.halving import halve_rows
from dse.studies.search_quality.replay import SPACES, Cheap, Grid, closed_front, grid, search_rows
from dse.studies.write import main as write
from dse.terminal.progress import say

ALONE = ("local", "nsga2", "random", "qmc", "optuna nsga2", "optuna tpe", "tpe", "optuna gp")
PROMOTED, HALVING = "local, promoted", "halving"
"""By two fidelities, where a grid's screen has a lower one."""

FRONT = "closed front"
EVERY = (FRONT, PROMOTED, HALVING, *ALONE)
"""All samplers with rows; the first is the front of the screen's fidelity alone."""

Lines = dict[tuple[str, str], list[list[str]]]
"""Of ``shares.csv``, by grid and sampler."""

SEEDS = range(10)
SHARE, SMALL_SHARE, SMALL = 0.01, 0.02, 10_000
"""Of a grid's designs that a search may evaluate, and of one with fewer designs than the last."""

STEPS = 40
"""Places of a budget at which the share of the hypervolume is noted."""

MOST = {"tpe": 300, "optuna tpe": 300, "optuna gp": 300}
"""Samplers whose own cost grows with every trial, and the largest budget with which each is measured."""

HERE = Path(__file__).parent


def main(folder: Path, only: Sequence[str] = ()) -> None:
    """Measure the samplers, and write the table and the figure.

    Args:
        folder: of the tables and of the searches.
        only: grids and samplers, as GRID:SAMPLER, that are measured; none for all.
    """
    unknown = [pair for pair in only if pair.partition(":")[0] not in SPACES or pair.partition(":")[2] not in EVERY]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: GRID:SAMPLER with grids {', '.join(SPACES)} and samplers {'; '.join(EVERY)}")
    held = _written() if only else {}
    for name in SPACES:
        wanted = [sampler for sampler in EVERY if not only or f"{name}:{sampler}" in only]
        if wanted:
            _measured(name, wanted, folder, held)
    with (HERE / "shares.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["space", "sampler", "seed", "designs", "evaluations", "share"])
        for name in SPACES:
            writer.writerows(line for (space_name, _), lines in held.items() if space_name == name for line in lines)
    (HERE / "shares.svg").write_text(draw_figure(HERE / "shares.csv"))
    write(["search_quality"])


def _written() -> Lines:
    """Lines of ``shares.csv``."""
    held: Lines = {}
    with (HERE / "shares.csv").open(newline="") as file:
        for line in list(csv.reader(file))[1:]:
            held.setdefault((line[0], line[1]), []).append(line)
    return held


def _measured(name: str, wanted: Sequence[str], folder: Path, held: Lines) -> None:
    """Puts lines of some samplers on a grid in their places."""
    whole = grid(name, folder)
    rows = whole.rows()
    budget = int((SMALL_SHARE if whole.size < SMALL else SHARE) * whole.size)
    two = whole.study.fidelity != whole.study.screen_fidelity

    def line(sampler: str, seed: int, count: int, share: float) -> list[str]:
        return [name, sampler, *map(str, (seed, whole.size, count)), f"{share:.5f}"]

    if FRONT in wanted:
        closed = closed_front(whole, folder if two else None)
        seeded = np.array([rows[tuple(values.items())] for values in closed])
        held[name, FRONT] = [line(FRONT, 0, len(closed), whole.share(seeded))]
    for sampler in (sampler for sampler in wanted if sampler != FRONT and (two or sampler not in (PROMOTED, HALVING))):
        if budget > MOST.get(sampler, budget) or (sampler == "optuna gp" and not find_spec("torch")):
            continue
        start, lines, last = time.process_time(), list[list[str]](), list[float]()
        for seed in SEEDS:
            path = folder / f"{whole.study.question.space.key[:12]}-{sampler.replace(' ', '-')}-{seed}.npy"
            if not path.exists():
                np.save(path, _found(whole, rows, sampler, seed, budget, folder))
            order = np.load(path)
            counts = np.unique(np.linspace(budget / STEPS, budget, STEPS).astype(int)).tolist()
            shares = [whole.share(order[:count]) for count in counts]
            lines += [line(sampler, seed, count, share) for count, share in zip(counts, shares, strict=True)]
            last.append(shares[-1])
        held[name, sampler] = lines
        spent = time.process_time() - start
        say(f"{name} {sampler}: {np.mean(last):.4f} at {budget:,}, {spent / len(SEEDS) / budget * 1e3:.2f} ms an ask")


def _found(whole: Grid, rows: dict[tuple[object, ...], int], sampler: str, seed: int, budget: int, folder: Path) -> Array:
    """The rows that a search evaluates, in order."""
    if sampler == HALVING:
        return halve_rows(whole, rows, Cheap(whole, folder).each, seed, budget)
    if sampler == PROMOTED:
        return search_rows(whole, rows, "local", seed, budget, [], Cheap(whole, folder))
    return search_rows(whole, rows, sampler, seed, budget, [])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/search_quality"), sys.argv[2:])
