"""Comparison of a measured serving run, request by request, with a simulated run of the same requests.

    python -m dse.studies.measured_run RUN.csv chip=rtx4090 model=llama3_8b stack=tuned mapping.serving.kv_blocks=2588 ...

A file has the columns ``arrival_s,prompt,output,first_token_s,last_token_s``, a row a request; others are not read. Nothing is
fitted here: what the engine was told (its budget, batch, blocks, formats) and which stack of libraries it is are the overrides.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.evaluators.evaluation import find_worst_violation
from dse.evaluators.workloads.serving import deploy_load
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad

COLUMNS = ("arrival_s", "prompt", "output", "first_token_s", "last_token_s")


class Run(NamedTuple):
    """Measured or simulated times of requests, each of shape (requests,) in order of arrival.

    Attributes:
        requests: lengths and arrivals.
        first, last: instants of their first and last token. [s]
    """

    requests: Requests
    first: Array
    last: Array

    @property
    def times(self) -> dict[str, Array]:
        """TTFT and latency from arrival, and TPOT of requests with further tokens. [s]"""
        more, arrival = self.requests.output > 1, self.requests.arrival
        tpot = (self.last - self.first)[more] / (self.requests.output[more] - 1)
        return {"ttft": self.first - arrival, "tpot": tpot, "latency": self.last - arrival}


class FigurePair(NamedTuple):
    """One figure of a measured and a simulated run. [s]"""

    name: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Relative error of the simulated figure."""
        return self.simulated / self.measured - 1


def read_run(path: Path) -> Run:
    """Run measured in a file of requests.

    Raises:
        DesignError: no rows, a column that is not there, or what is no number, with file, row and column.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    values = np.empty((len(rows), len(COLUMNS)))
    for number, row in enumerate(rows):
        for place, name in enumerate(COLUMNS):
            try:
                values[number, place] = float(row[name])
            except (KeyError, TypeError, ValueError):
                raise DesignError(f"{path}, row {number + 2}, {name}: {row.get(name)!r} is not a number") from None
    if not rows:
        raise DesignError(f"{path}: no requests; a run has the columns {', '.join(COLUMNS)}")
    arrival, prompt, output, first, last = values[np.argsort(values[:, 0], kind="stable")].T
    return Run(make_requests(np.stack([prompt, output], 1), arrival - arrival[0]), first - arrival[0], last - arrival[0])


def simulate_run(requests: Requests, overrides: Sequence[str]) -> Run:
    """Run simulated on the design that overrides give, at fidelity=analytical.

    Raises:
        DesignError: the design breaks a limit, or does not serve requests.
    """
    config = compose(("workload=serving", "workload.requests=1", *overrides))
    posed = build_question(config, find_study_folder(config))
    design, load = posed.base, posed.workload.cases[0]
    if not isinstance(load, ServingLoad):
        raise DesignError("workload: a measured run needs a serving load; use workload=serving")
    load = replace(load, requests=requests)
    worst = find_worst_violation(design, replace(posed.workload, cases=(load,)))
    if worst is not None and worst.need > worst.have:
        raise DesignError(f"{worst.limit}: needs {worst.need:g}, has {worst.have:g}")
    served_run = deploy_load(design, load, "analytical")[0].serve(requests)
    if served_run.never:
        raise DesignError(served_run.never)
    return Run(requests, served_run["first"], served_run["completed"])


def compare_runs(run: Run, other: Run) -> list[FigurePair]:
    """Means and 90th percentiles of a measured run and of a simulated one."""
    rows = []
    for name, times in run.times.items():
        again = other.times[name]
        rows.append(FigurePair(f"{name} mean", float(times.mean()), float(again.mean())))
        rows.append(FigurePair(f"{name} p90", *(float(np.percentile(values, 90)) for values in (times, again))))
    return rows


def main(words: Sequence[str]) -> None:
    """Print the comparison of a measured file with a design given by overrides."""
    if not words:
        raise SystemExit("python -m dse.studies.measured_run RUN.csv [OVERRIDE ...]")
    run = read_run(Path(words[0]))
    print(f"{'':<14}{'measured':>12}{'simulated':>12}{'error':>9}")
    for row in compare_runs(run, simulate_run(run.requests, words[1:])):
        print(f"{row.name:<14}{row.measured:>10.4g} s{row.simulated:>10.4g} s{row.error:>+9.1%}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DesignError as error:
        raise SystemExit(f"measured_run: {error}") from None
