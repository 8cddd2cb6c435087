"""Our sampler of Optuna beside Optuna's own: python -m tests.speed.optuna_sampler [SEEDS] [TRIALS]

On three problems (six variables; two constraints; conditional parameters of three kinds) it prints the share of a box that
feasible trials dominate, mean and worst over so many seeds (5), and CPU milliseconds of a trial, of so many (80) and at 1,000.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna

from dse.search.optuna_local_sampler import LocalSearchSampler
from tests.dse.test_optuna_local_sampler import PROBLEMS, searched, share

SAMPLERS: dict[str, Callable[..., Any]] = {
    "LocalSearchSampler": LocalSearchSampler,
    "TPESampler": optuna.samplers.TPESampler,
    "NSGAIISampler": optuna.samplers.NSGAIISampler,
    "RandomSampler": optuna.samplers.RandomSampler,
}

LAST = 50
"""Trials at the end of a long study that are timed."""


def main(seeds: int, trials: int) -> None:
    """Print a line a problem and sampler."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for objective, corner, _ in PROBLEMS:
        for name, make in SAMPLERS.items():
            start = time.process_time()
            shares = [share(searched(make(seed=seed), objective, trials), corner) for seed in range(seeds)]
            spent = (time.process_time() - start) / seeds / trials
            print(f"{objective.__name__:10} {name:19} {np.mean(shares):.3f} mean {min(shares):.3f} worst {spent * 1e3:5.1f} ms")
    for objective, _, _ in PROBLEMS:
        for name, make in SAMPLERS.items():
            study = searched(optuna.samplers.RandomSampler(seed=0), objective, 1000)
            study.sampler = make(seed=0)
            study.optimize(objective, n_trials=1)  # what is done once for all trials
            start = time.process_time()
            study.optimize(objective, n_trials=LAST)
            print(f"{objective.__name__:10} {name:19} {(time.process_time() - start) / LAST * 1e3:5.1f} ms at 1,000 trials")


if __name__ == "__main__":
    main(*map(int, (sys.argv[1:] + ["5", "80"][len(sys.argv) - 1 :])))
