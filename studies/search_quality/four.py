"""Searches with four objectives, where crowding no longer spreads a front.

    python -m dse.studies.search_quality.four [FOLDER]

Grids of this study with an objective or two more: the mean share of the exact front's hypervolume that each sampler
holds, over five seeds, after a budget that is small for its grid and one that is not.
"""

import sys
from pathlib import Path

import numpy as np

from dse.studies.search_quality.replay import grid, search_rows

MORE = {
    "PRESERVE": ("+objectives.energy_per_token=min", "+objectives.price_per_mtoken=min"),
    "pipelines": ("+objectives.ttft=min",),
    "dies": ("+objectives.energy_per_token=min",),
    "serving": ("+objectives.system_price=min",),
}
"""Additional objectives, by grid."""

BUDGETS = {"PRESERVE": (950, 1901), "pipelines": (104, 518), "dies": (106, 529), "serving": (104, 518)}
"""Different designs: 2 % and 10 % of the grid; 0.5 % and 1 % of PRESERVE's."""

SAMPLERS = ("local", "nsga3", "random")
SEEDS = range(5)


def main(folder: Path) -> None:
    """Print one line per grid and budget."""
    print("| grid | designs | budget | " + " | ".join(SAMPLERS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(SAMPLERS))
    for name, more in MORE.items():
        given_grid = grid(name, folder, *more)
        rows = given_grid.rows()
        for budget in BUDGETS[name]:
            shares = []
            for sampler in SAMPLERS:
                orders = [search_rows(given_grid, rows, sampler, seed, budget, []) for seed in SEEDS]
                shares.append(f"{np.mean([given_grid.share(order[:budget]) for order in orders]):.1%}")
            print(f"| {name} | {given_grid.size:,} | {budget:,} | " + " | ".join(shares) + " |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs/search_quality"))
