"""Measure the samplers on eight grids, and write shares, curves and figure.

    python -m dse.studies.search_quality [FOLDER] [seeds=N] [GRID:SAMPLER ...]

The command evaluates each grid once (kept in FOLDER, by default runs/search_quality), replays N searches by each sampler (40),
and writes ``shares.csv`` (a line for each search), ``curves.csv`` (means over seeds), ``shares.svg`` and this study's
README.md. Results in FOLDER are not measured again. If samplers of grids are named, as in ``"pipelines:optuna gp"`` or
``"*:local"`` for all grids, only these are measured, and the other lines stay.
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
from dse.studies.search_quality.finding import TARGET
from dse.studies.search_quality.halving import halve_rows
from dse.studies.search_quality.replay import SPACES, Cheap, Grid, closed_front, file_name, grid, search_rows
from dse.studies.write import main as write
from dse.terminal.progress import say

ALONE = ("local", "nsga2", "random", "qmc", "optuna nsga2", "optuna tpe", "tpe", "optuna gp")
PROMOTED, HALVING = "local, promoted", "halving"
"""By two fidelities, where a grid's screen has a lower one."""

FRONT = "closed front"
EVERY = (FRONT, PROMOTED, HALVING, *ALONE)
"""All samplers with lines; the first is the front of the screen's fidelity alone."""

Lines = dict[tuple[str, str], list[list[str]]]
"""Lines of a file, by grid and sampler."""

FIRST_SEED, SEEDS = 700, 40
"""The first seed, and how many by default. No setting was chosen on these seeds."""

SHARE, SMALL_SHARE, SMALL = 0.01, 0.02, 10_000
"""Of a grid's designs that a search may evaluate, and of one with fewer designs than the last."""

STEPS = 40
"""Places of a budget at which a curve has the share of the hypervolume."""

MOST = {"tpe": 300, "optuna tpe": 300, "optuna gp": 300}
"""Samplers whose own cost grows with every trial, and the largest budget with which each is measured."""

HERE = Path(__file__).parent

FILES = {
    "shares.csv": ["space", "sampler", "seed", "designs", "front", "budget", "found", "share", "coverage"],
    "curves.csv": ["space", "sampler", "evaluations", "share"],
}
"""Columns of what is written: `found` is the evaluations to 99 % of the hypervolume, empty where a search has less; `coverage`
the share of the front's designs that a search has to one per cent."""


def main(folder: Path, only: Sequence[str] = (), seeds: int = SEEDS) -> None:
    """Measure the samplers, and write the tables and the figure.

    Args:
        folder: of the grids and of the searches.
        only: grids and samplers, as GRID:SAMPLER, that are measured; none for all.
        seeds: how many searches of each.
    """
    pairs = [pair.partition(":")[::2] for pair in only]
    unknown = [f"{name}:{sampler}" for name, sampler in pairs if name not in (*SPACES, "*") or sampler not in EVERY]
    if unknown:
        raise SystemExit(
            f"{', '.join(unknown)}: GRID:SAMPLER with grids {', '.join(SPACES)}, * and samplers {'; '.join(EVERY)}"
        )
    held = {file: _written(file) if only else {} for file in FILES}
    for name in SPACES:
        wanted = [sampler for sampler in EVERY if not only or (name, sampler) in pairs or ("*", sampler) in pairs]
        if wanted:
            _measured(name, wanted, folder, range(FIRST_SEED, FIRST_SEED + seeds), held)
    for file, columns in FILES.items():
        with (HERE / file).open("w", newline="") as opened:
            writer = csv.writer(opened, lineterminator="\n")
            writer.writerow(columns)
            for name in SPACES:
                writer.writerows(line for (space_name, _), lines in held[file].items() if space_name == name for line in lines)
    (HERE / "shares.svg").write_text(draw_figure(HERE / "curves.csv"))
    write(["search_quality"])


def _written(file: str) -> Lines:
    """Lines of a file of this study."""
    held: Lines = {}
    with (HERE / file).open(newline="") as opened:
        for line in list(csv.reader(opened))[1:]:
            held.setdefault((line[0], line[1]), []).append(line)
    return held


def _measured(name: str, wanted: Sequence[str], folder: Path, seeds: Sequence[int], held: dict[str, Lines]) -> None:
    """Puts lines of some samplers on a grid in their places."""
    whole = grid(name, folder)
    rows = whole.rows()
    budget = int((SMALL_SHARE if whole.size < SMALL else SHARE) * whole.size)
    two = whole.study.fidelity != whole.study.screen_fidelity

    def line(sampler: str, seed: int, order: Array, most: int) -> list[str]:
        shares = whole.share(order), whole.front_coverage(order)
        numbers = (seed, whole.size, len(whole.front), most, whole.count_evaluations(TARGET, order) or "")
        return [name, sampler, *map(str, numbers), *(f"{share:.5f}" for share in shares)]

    if FRONT in wanted:
        closed = closed_front(whole, folder if two else None)
        seeded = np.array([rows[tuple(values.items())] for values in closed])
        held["shares.csv"][name, FRONT] = [line(FRONT, 0, seeded, len(closed))]
    for sampler in (sampler for sampler in wanted if sampler != FRONT and (two or sampler not in (PROMOTED, HALVING))):
        if budget > MOST.get(sampler, budget) or (sampler == "optuna gp" and not find_spec("torch")):
            continue
        start, orders = time.process_time(), list[Array]()
        for seed in seeds:
            path = folder / f"{file_name(whole.study, whole.study.fidelity)}-{sampler.replace(' ', '-')}-{seed}.npy"
            if not path.exists():
                np.save(path, _found(whole, rows, sampler, seed, budget, folder))
            orders.append(np.load(path))
        spent = time.process_time() - start
        held["shares.csv"][name, sampler] = [
            line(sampler, seed, order, budget) for seed, order in zip(seeds, orders, strict=True)
        ]
        counts = np.unique(np.linspace(budget / STEPS, budget, STEPS).astype(int)).tolist()
        means = [float(np.mean([whole.share(order[:count]) for order in orders])) for count in counts]
        held["curves.csv"][name, sampler] = [
            [name, sampler, str(count), f"{mean:.5f}"] for count, mean in zip(counts, means, strict=True)
        ]
        say(f"{name} {sampler}: {means[-1]:.4f} at {budget:,}, {spent / len(seeds) / budget * 1e3:.2f} ms an ask")


def _found(whole: Grid, rows: dict[tuple[object, ...], int], sampler: str, seed: int, budget: int, folder: Path) -> Array:
    """The rows that a search evaluates, in order."""
    if sampler == HALVING:
        return halve_rows(whole, rows, Cheap(whole, folder).each, seed, budget)
    if sampler == PROMOTED:
        return search_rows(whole, rows, "local", seed, budget, [], Cheap(whole, folder))
    return search_rows(whole, rows, sampler, seed, budget, [])


if __name__ == "__main__":
    words = sys.argv[1:]
    given = [word for word in words if word.startswith("seeds=")]
    if any(not word.removeprefix("seeds=").isdecimal() or int(word.removeprefix("seeds=")) < 1 for word in given):
        raise SystemExit(f"{given[-1]}: seeds=N with a whole number from 1, such as seeds=10")
    folders = [word for word in words if word not in given and ":" not in word]
    main(
        Path(folders[0]) if folders else Path("runs/search_quality"),
        [word for word in words if ":" in word],
        int(given[-1].removeprefix("seeds=")) if given else SEEDS,
    )
