"""The same from a notebook: `dse.evaluate(...)`, `dse.run(...)`, `dse.load(study).frame()`.

>>> import dse
>>> dse.evaluate("model=llama3_8b", "mapping.prefill.tp=8").metrics["tpot"] < 0.01
True
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dse.build import question
from dse.compose import compose, folder_of, studies
from dse.database import exists
from dse.frame import search_frame, with_front
from dse.loop import run_study
from dse.records import Source
from dse.samplers import Ask
from dse.screen import Screened, stored
from dse.store import Result, Store
from dse.study import Study, stored_at, study
from dse.verify import Verified, verified
from evaluators import METRICS, PHYSICS, explain
from evaluators import evaluate as evaluate_designs
from evaluators.breakdown import Breakdown
from evaluators.evaluation import infeasible
from space.design import Design, stacked
from space.errors import DesignError
from space.limits import Infeasible
from space.workload import Workload

if TYPE_CHECKING:
    from dse.report import Part


@dataclass(frozen=True)
class Evaluation:
    """One design under one workload.

    Attributes:
        metrics: by name, in SI; `evaluators.METRICS` has units and definitions.
        infeasible: what binds, None where every limit holds.
        fidelity: the reader that it was evaluated by.
    """

    design: Design
    workload: Workload
    metrics: dict[str, float]
    infeasible: Infeasible | None
    sources: tuple[Source, ...]
    fidelity: str

    @cached_property
    def breakdown(self) -> Breakdown:
        """Time by operator, of the first case."""
        return explain(self.design, self.workload.cases[0], decode_at=self.workload.decode_at, fidelity=self.fidelity)

    def frame(self) -> pd.DataFrame:
        """The operators as a table."""
        return pd.DataFrame([row.record() for row in self.breakdown.rows])


@dataclass(frozen=True)
class Loaded:
    """A study with what is stored of it."""

    study: Study

    def frame(self) -> pd.DataFrame:
        """Every design that was searched or screened: knobs and metrics in SI, ``feasible``, ``front``, ``stage``."""
        searched, screened = self._stages()
        return with_front(self.study, searched, screened)

    def front(self) -> pd.DataFrame:
        """The designs that no other beats."""
        frame = self.frame()
        return frame[frame["front"]].reset_index(drop=True)

    def verified(self) -> Verified | None:
        """The best designs at both fidelities, where the study verifies them; None where nothing of it is stored."""
        return self._verified(self.frame())

    def report(self) -> Path:
        """Writes the report again, from what is stored; returns its path.

        Raises:
            DesignError: there are no results here.
        """
        return compare([self])

    def part(self) -> "Part":
        """What a report shows of it.

        Raises:
            DesignError: there are no results here.
        """
        from dse.report import Part

        asked = self.study
        searched, screened = self._stages()
        frame = with_front(asked, searched, screened)
        if not len(frame):
            raise DesignError(
                f"study {asked.name!r} has no results in {asked.run_dir}; run it first: dse run study={asked.name}"
            )
        return Part(asked, frame, screened, self.runs(), self._verified(frame))

    def runs(self) -> list[dict[str, Any]]:
        """When, with what and how far it was run here."""
        if not exists(self.study.store):
            return []
        with closing(Store(self.study.store, create=False)) as store:
            return store.runs(self.study.name)

    def _verified(self, frame: pd.DataFrame) -> Verified | None:
        if not exists(self.study.store):
            return None
        with closing(Store(self.study.store, create=False)) as store:
            return verified(self.study, store, frame)

    def _stages(self) -> tuple[pd.DataFrame, Screened | None]:
        asked = self.study
        found: dict[int, tuple[Ask, Result]] = {}
        if exists(asked.store):
            with closing(Store(asked.store, create=False)) as store:
                known = store.results(asked.context)
                asks = store.asks(asked.name, PHYSICS)
            found = {ask.number: (ask, known[design]) for ask, design in asks if design in known}
        screened = stored(asked) if asked.screen["run"] else None
        return search_frame(asked, found), screened

    @property
    def units(self) -> dict[str, str]:
        """Unit of every metric column."""
        return {name: metric.unit for name, metric in METRICS.items()}


def evaluate(*overrides: str) -> Evaluation:
    """One design, by Hydra overrides as on the command line."""
    config = compose(overrides)
    asked = question(config, folder_of(config))
    outcomes = evaluate_designs(stacked([asked.base]), asked.workload, fidelity=config["fidelity"])
    metrics = {name: float(column[0]) for name, column in outcomes.columns.items()}
    why = infeasible(asked.base, asked.workload)
    return Evaluation(asked.base, asked.workload, metrics, why, asked.sources, config["fidelity"])


def run(name: str, *overrides: str) -> Loaded:
    """Starts a study or goes on with it."""
    asked = study_of(name, *overrides)
    run_study(asked)
    return Loaded(asked)


def load(name: str, *overrides: str) -> Loaded:
    """A study with what is stored of it here."""
    return Loaded(study_of(name, *overrides))


def compare(loaded: Sequence[Loaded], out: str = "") -> Path:
    """Writes one report on one study or several, from what is stored, into `out` or the first one's run folder.

    Raises:
        DesignError: one of them has no results here.
    """
    from dse.report import place, write_page

    path = Path(out) if out else place([one.study for one in loaded])
    return write_page([one.part() for one in loaded], path)


def study_of(name: str, *overrides: str) -> Study:
    """A study by name: one that ships or is in the working folder, or one that ran here, as it was run."""
    known = studies()
    place = None if overrides else stored_at(Path("runs") / name)
    if name not in known and place is None:
        compose([f"study={name}"])  # raises with the nearest name
    config = compose([f"study={name}", *overrides] if place is None else _as_run(name, place))
    if place is not None:
        config["store"] = place  # overrides are kept without passwords
    return study(config, known[name].parent if name in known else folder_of(config))


def _as_run(name: str, place: str) -> list[str]:
    """The overrides of a study's last run."""
    with closing(Store(place, create=False)) as store:
        runs = store.runs(name)
    if not runs:
        raise DesignError(f"no run of study {name!r} in {store.place}")
    overrides: Any = runs[-1]["facts"]["overrides"]
    return list(overrides)
