"""A small study that tests run, kill and resume."""

from contextlib import closing
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dse.commands.notebook_api import StoredStudy
from dse.config.compose import compose
from dse.execution.ask_tell import run_search
from dse.execution.result_frame import report_order
from dse.execution.study import Study, build_study
from dse.execution.workers import SerialWorkers, make_evaluator
from dse.search.optuna_samplers import make_sampler
from dse.store.store import Store

OVERRIDES = (
    "name=toy",
    "space=quickstart",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+constraints.ttft='<= 4 s'",
    "workload.sequence=[2048]",
    "search=nsga2",
    "search.budget=240",
    "search.window=16",
    "search.population=20",
    "screen.run=false",
)


def toy(folder: Path, *overrides: str) -> Study:
    """The study, with results in a folder."""
    return build_study(deepcopy(_composed(overrides)) | {"run_dir": str(folder)}, folder)


@cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    return compose([*OVERRIDES, *overrides])


def by(name: str) -> tuple[str, ...]:
    """Overrides for a sampler: the exhaustive one needs a grid, Gaussian processes need PyTorch and their time."""
    if name in ("gp", "botorch"):
        pytest.importorskip("torch" if name == "gp" else "botorch")
    more = {
        "exhaustive": ("space=l2_prefetch",),
        "gp": ("search.budget=28",),
        "tpe": ("search.budget=120",),
        "botorch": ("search.budget=12", "search.window=2"),
    }
    return (f"search={name}", *more.get(name, ()))


def design_ids(ran: StoredStudy) -> list[str]:
    """Ids of the designs of a study, in the order of its report."""
    return list(map(str, report_order(ran.study, ran.frame())["design"]))


def searched(
    study: Study, *, budget: int | None = None, workers: Any = None, source: Any = None, **options: Any
) -> tuple[Any, ...]:
    """Runs the ask/tell loop; returns the asks and, of each, the key and the objectives."""
    source = source or make_sampler(
        study.search.sampler,
        study.question.space,
        study.directions,
        seed=study.seed,
        population=study.search.population,
    )
    workers = workers or SerialWorkers(make_evaluator(study.question.workload, study.fidelity))
    limit = min(budget or study.search.budget, source.designs or 10**9)
    with closing(Store(study.store)) as store:
        store.begin(study.name, study.identity(), {"overrides": list(study.overrides)})
        search = run_search(study, store, source, workers, limit, [], lambda done, results: None, **options)
    return tuple(
        (number, tuple(ask.values.items()), result.key, tuple(result.metrics.get(name) for name in study.objectives))
        for number, (ask, result) in sorted(search.items())
    )
