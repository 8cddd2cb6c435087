"""A study from its configuration to its report: screen, search, report. The ask/tell loop is here, and visible as one."""

import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dse import version
from dse.compose import folder_of
from dse.frame import search_frame, with_front
from dse.progress import Progress, say
from dse.report import write
from dse.screen import Screened, screen
from dse.search import Ask, Sampler, Told, sampler
from dse.show import front_table
from dse.store import Result, Store
from dse.study import Study, study
from dse.workers import Serial
from evaluators import PHYSICS
from space.design import key
from space.errors import DesignError
from space.fields import leaves


def run(config: Mapping[str, Any]) -> int:
    """Starts a study or goes on with it; ends with the front and the path of the report. Returns the exit status."""
    return run_study(study(config, folder_of(config)))


def run_study(asked: Study) -> int:
    """Runs a study that is built.

    Raises:
        DesignError: there is nothing to do, or the study was run with another space or workload.
    """
    if asked.search["sampler"] == "none" and asked.fidelity != "closed":
        raise DesignError(
            f"search.sampler: none, but only a search evaluates at fidelity={asked.fidelity}; add search=nsga2 or search=random"
        )
    say(f"[bold]{asked.name}[/]  {asked.text}".rstrip())
    space = asked.question.space
    grid = space.combinations
    size = f"{grid:,} combinations" if grid is not None else "not enumerable"
    cases = len(asked.question.workload.cases)
    say(f"  {len(space.knobs)} knobs, {size}; {cases} cases; fidelity {asked.fidelity}; seed {asked.seed}")
    store = open_store(asked)
    identity = asked.identity()
    _same(asked, store.identity(asked.name), identity)
    number = store.begin(asked.name, identity, _facts(asked))
    started = time.process_time()
    try:
        screened = _screen(asked) if asked.screen["run"] else None
        found = _search(asked, store, screened)
    except KeyboardInterrupt:
        store.end(number, "interrupted", {"cpu_seconds": time.process_time() - started})
        say("\n[yellow]stopped[/]: what is finished is stored; the same command goes on from here")
        return 130
    except BaseException as error:
        store.end(number, "failed", {"error": f"{type(error).__name__}: {error}"})
        raise
    frame = with_front(asked, found, screened)
    if not len(frame):
        raise DesignError("nothing to do: screen.run is false and search.sampler is none; turn one of them on")
    store.end(number, "done", {"cpu_seconds": time.process_time() - started, "results": len(found)})
    path = write(asked, frame, screened, store.runs(asked.name))
    front_table(asked, frame)
    say(f"report  {path}")
    say(f"results {asked.store}")
    store.close()
    return 0


def open_store(asked: Study) -> Store:
    """The store of a study; says what is in it that cannot be used."""
    store = Store(asked.store)
    for physics, count in store.of_other_physics(asked.context).items():
        say(f"  {count:,} stored results of physics version {physics} are kept, and not used: this is version {PHYSICS}")
    return store


def search(
    asked: Study, store: Store, source: Sampler, workers: Any, budget: int, seeds: list[dict[str, Any]], progress: Any
) -> dict[int, tuple[Ask, Result]]:
    """The ask/tell loop: a window of asks in flight; results stored when they come, told in the order of asks.

    Returns:
        Every ask so far with its result, by number.
    """
    window = asked.search["window"]
    space, context, base = asked.question.space, asked.context, base_of(asked)
    known = store.results(context)
    asks = store.asks(asked.name, context.physics)[:budget]
    told = max(0, len(asks) - window)
    for ask, design in asks:
        source.restore(ask, _told(asked, known[design]) if ask.number < told else None)
    recorded = len(asks)

    def fill() -> None:
        while len(asks) < min(told + window, budget):
            ask = source.ask(len(asks), seeds[len(asks)] if len(asks) < len(seeds) else None)
            asks.append((ask, space.key_at(ask.values)))

    while told < budget:
        fill()
        wanted = {design: ask.values for ask, design in asks[told:] if design not in known}
        fresh = workers.map([(design, values, space.at(values)) for design, values in wanted.items()]) if wanted else []
        store.append(asked.name, context, base, asks[recorded:], fresh)
        recorded = len(asks)
        known.update((result.key, result) for result in fresh)
        # a design that is known already is told at once; but asks are recorded at least once a window
        while told < len(asks) and asks[told][1] in known and len(asks) - recorded < window:
            ask, design = asks[told]
            source.tell(ask, _told(asked, known[design]))
            told += 1
            fill()
        progress(told, lambda done=told: (known[design] for _, design in asks[:done]))
    return {ask.number: (ask, known[design]) for ask, design in asks[:told]}


def base_of(asked: Study) -> tuple[str, str]:
    """Key and text of the design that a study's values change."""
    import json

    base = asked.question.base
    return key(base), json.dumps({address: value for address, value, _ in leaves(base)})


def chosen(asked: Study, screened: Screened | None) -> tuple[str, str]:
    """The sampler of a study, and why."""
    wanted = asked.search["sampler"]
    if wanted != "auto":
        return wanted, "as configured"
    if screened is not None and screened.exact and asked.fidelity == "closed":
        return "none", "the screen looked at every design at this fidelity, so its front is exact"
    return "nsga2", "several knobs and a budget of hundreds: a population fits"


def _screen(asked: Study) -> Screened:
    with Progress("screen") as bar:
        found = screen(asked, lambda done, total, size: bar.update(done, total, f"front {size}"))
    kind = "exact" if found.exact else "of a quasi-random sample"
    reused = found.rows - found.evaluated
    note = f", {reused:,} of them stored before" if reused else ""
    say(f"  screen: {found.rows:,} designs{note}, {found.feasible:,} feasible; front of {len(found.front):,}, {kind}")
    return found


def _search(asked: Study, store: Store, screened: Screened | None) -> pd.DataFrame:
    name, why = chosen(asked, screened)
    say(f"  search: {name} ({why})")
    if name == "none":
        return search_frame(asked, {})
    source = sampler(name, asked.question.space, asked.directions, seed=asked.seed, population=asked.search["population"])
    workers = Serial(asked.question.workload, asked.fidelity)
    before = len(store.asks(asked.name, PHYSICS))
    budget = max(asked.search["budget"], 0)
    if before:
        say(f"  going on from {before:,} asked designs")
    with Progress("search") as bar:
        best = _Best(asked)
        found = search(
            asked,
            store,
            source,
            workers,
            budget,
            _seeds(asked, screened),
            lambda told, results: bar.update(told, budget, best(results)),
        )
    failed = sum(1 for _, result in found.values() if result.error)
    say(
        f"  search: {len(found):,} designs asked, {len({r.key for _, r in found.values()}):,} different"
        + (f", {failed} failed" if failed else "")
    )
    return search_frame(asked, found)


class _Best:
    """The front's size for the progress line, at most twice a second."""

    def __init__(self, asked: Study) -> None:
        self._asked = asked
        self._time = 0.0
        self._text = ""

    def __call__(self, results: Callable[[], Iterable[Result]]) -> str:
        if time.monotonic() - self._time > 0.5:
            from dse.pareto import front

            rows = [
                [result.metrics[name] for name in self._asked.objectives]
                for result in results()
                if result.metrics
                and not result.limit
                and all(b.excess(result.metrics[b.metric]) <= 0 for b in self._asked.bounds)
            ]
            self._text = f"front {int(front(np.array(rows), self._asked.directions).sum())}" if rows else "front 0"
            self._time = time.monotonic()
        return self._text


def _seeds(asked: Study, screened: Screened | None) -> list[dict[str, Any]]:
    """The screened front as first asks, thinned evenly along the first objective."""
    if screened is None or not len(screened.front):
        return []
    space = asked.question.space
    ordered = screened.front.sort_values(list(asked.objectives), kind="stable")
    keep = min(asked.screen["keep"], len(ordered))
    rows = ordered.iloc[np.unique(np.linspace(0, len(ordered) - 1, keep).round().astype(int))] if keep else ordered.iloc[:0]
    seeds = []
    for _, row in rows.iterrows():
        values = {}
        for knob in space.knobs:
            entry = row[knob.address]
            if entry is None or (isinstance(entry, float) and np.isnan(entry)):
                continue
            values[knob.address] = entry if isinstance(entry, str) else space.number(knob, float(entry))
        seeds.append(space.canonical(values))
    return seeds


def _told(asked: Study, result: Result) -> Told:
    if result.error:
        return Told(None)
    constraints = {"limit": result.need / result.have - 1 if result.limit and result.have else (1.0 if result.limit else 0.0)}
    constraints |= {bound.metric: float(bound.excess(result.metrics[bound.metric])) for bound in asked.bounds}
    return Told(tuple(result.metrics[name] for name in asked.objectives), constraints)


def _same(asked: Study, before: dict[str, Any] | None, now: dict[str, Any]) -> None:
    if before is None or before == now:
        return
    changed = [k for k in sorted(before.keys() | now.keys()) if before.get(k) != now.get(k)]
    first = changed[0]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    raise DesignError(
        f"study {asked.name!r} was run with {first}={before.get(first, '(nothing)')}, now {now.get(first, '(nothing)')}{more}; "
        f"give it another name (name=NEW) or go on with what it was; its results are in {asked.store}"
    )


def _facts(asked: Study) -> dict[str, Any]:
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "version": version(),
        "physics": PHYSICS,
        "git": git,
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "overrides": list(asked.overrides),
        "seed": asked.seed,
        "command": " ".join(sys.argv),
    }
