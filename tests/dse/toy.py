"""A small study that tests run, kill and resume."""

from pathlib import Path
from typing import Any

from dse.compose import compose
from dse.loop import search
from dse.search import sampler
from dse.store import Store
from dse.study import Study, study
from dse.workers import Serial

OVERRIDES = (
    "name=toy",
    "space=quickstart",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+constraints.ttft='<= 4 s'",
    "workload.sequence=[2048]",
    "search.budget=240",
    "search.window=16",
    "search.population=20",
    "screen.run=false",
)


def toy(folder: Path, *overrides: str) -> Study:
    """The study, with results in a folder."""
    return study(compose([*OVERRIDES, f"run_dir={folder}", *overrides]), folder)


def searched(asked: Study, *, budget: int | None = None, workers: Any = None, source: Any = None) -> tuple[Any, ...]:
    """Runs the ask/tell loop; returns the asks and, of each, the key and the objectives."""
    store = Store(asked.store)
    store.begin(asked.name, asked.identity(), {"overrides": list(asked.overrides)})
    source = source or sampler(
        asked.search["sampler"],
        asked.question.space,
        asked.directions,
        seed=asked.seed,
        population=asked.search["population"],
    )
    workers = workers or Serial(asked.question.workload, asked.fidelity)
    found = search(asked, store, source, workers, budget or asked.search["budget"], [], lambda told, results: None)
    store.close()
    return tuple(
        (number, tuple(ask.values.items()), result.key, tuple(result.metrics.get(name) for name in asked.objectives))
        for number, (ask, result) in sorted(found.items())
    )
