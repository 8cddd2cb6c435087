"""A run that was measured on an engine, request by request, against the loop's run of the same requests.

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

from dse.config.compose import compose, study_folder
from dse.config.question import build_question
from dse.evaluators.evaluation import worst_violation
from dse.evaluators.workloads.serving import deploy_load
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.requests import Requests, make_requests
from dse.space.workload import ServingLoad

COLUMNS = ("arrival_s", "prompt", "output", "first_token_s", "last_token_s")


class Run(NamedTuple):
    """What came of requests, each of shape (requests,) in the order of arrival.

    Attributes:
        requests: lengths and arrivals.
        first, last: instants of their first and last token. [s]
    """

    requests: Requests
    first: Array
    last: Array

    @property
    def times(self) -> dict[str, Array]:
        """To first token and end to end from arrival, and the mean of further tokens where a request has such. [s]"""
        more, arrival = self.requests.output > 1, self.requests.arrival
        tpot = (self.last - self.first)[more] / (self.requests.output[more] - 1)
        return {"ttft": self.first - arrival, "tpot": tpot, "latency": self.last - arrival}


class Compared(NamedTuple):
    """One figure of two runs. [s]"""

    name: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.simulated / self.measured - 1


def measured(path: Path) -> Run:
    """A file's run.

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
                raise DesignError(f"{path}, row {number + 2}, {name}: {row.get(name)!r} is no number") from None
    if not rows:
        raise DesignError(f"{path}: no requests; a run has the columns {', '.join(COLUMNS)}")
    arrival, prompt, output, first, last = values[np.argsort(values[:, 0], kind="stable")].T
    return Run(make_requests(np.stack([prompt, output], 1), arrival - arrival[0]), first - arrival[0], last - arrival[0])


def simulated(asked: Requests, overrides: Sequence[str]) -> Run:
    """The loop's run of requests on the design that overrides say, by the closed reader.

    Raises:
        DesignError: the design breaks a limit, or does not serve requests.
    """
    config = compose(("workload=serving", "workload.requests=1", *overrides))
    posed = build_question(config, study_folder(config))
    design, load = posed.base, posed.workload.cases[0]
    if not isinstance(load, ServingLoad):
        raise DesignError("workload: a measured run is of requests that are served as they come; give workload=serving")
    load = replace(load, requests=asked)
    worst = worst_violation(design, replace(posed.workload, cases=(load,)))
    if worst is not None and worst.need > worst.have:
        raise DesignError(f"{worst.limit}: needs {worst.need:g}, has {worst.have:g}")
    found = deploy_load(design, load, "closed")[0].serve(asked)
    if found.never:
        raise DesignError(found.never)
    return Run(asked, found["first"], found["completed"])


def compared(one: Run, other: Run) -> list[Compared]:
    """Means and 90th percentiles of a measured run and of a simulated one."""
    found = []
    for name, times in one.times.items():
        again = other.times[name]
        found.append(Compared(f"{name} mean", float(times.mean()), float(again.mean())))
        found.append(Compared(f"{name} p90", *(float(np.percentile(values, 90)) for values in (times, again))))
    return found


def main(words: Sequence[str]) -> None:
    """Prints the table of a file and overrides."""
    if not words:
        raise SystemExit("python -m dse.studies.measured_run RUN.csv [OVERRIDE ...]")
    run = measured(Path(words[0]))
    print(f"{'':<14}{'measured':>12}{'simulated':>12}{'error':>9}")
    for row in compared(run, simulated(run.requests, words[1:])):
        print(f"{row.name:<14}{row.measured:>10.4g} s{row.simulated:>10.4g} s{row.error:>+9.1%}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except DesignError as error:
        raise SystemExit(f"measured_run: {error}") from None
