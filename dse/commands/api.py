"""The same from a notebook: `dse.evaluate(...)`, `dse.run(...)`, `dse.load(study).frame()`.

>>> import dse
>>> dse.evaluate("model=llama3_8b", "mapping.prefill.tp=8").metrics["tpot"] < 0.01
True
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dse.answers.answer import Evaluation, answered, evaluation
from dse.answers.compare import OBJECTIVE, Side, compared
from dse.commands.loop import run_study
from dse.config.build import question
from dse.config.compose import compose, folder_of
from dse.config.overrides import studies
from dse.config.strangers import as_data
from dse.evaluators import METRICS
from dse.running.ask_tell import searched
from dse.running.frame import ordered, search_frame, with_front
from dse.running.screen import Screened, stored
from dse.running.study import Study, stored_at, study
from dse.running.verify import Verified, verified
from dse.search.samplers import Ask
from dse.space.chips import CHIP
from dse.space.errors import DesignError
from dse.store.database import exists
from dse.store.store import Result, Store

if TYPE_CHECKING:
    from dse.report.data import Part
    from dse.why.why import Why
    from dse.why.whynot import WhyNot


@dataclass(frozen=True)
class Loaded:
    """A study with what is stored of it."""

    study: Study

    def frame(self) -> pd.DataFrame:
        """Every design that was searched or screened: its id, knobs and metrics in SI, ``feasible``, ``front``, ``stage``."""
        searched, screened = self._stages()
        return with_front(self.study, searched, screened)

    def front(self) -> pd.DataFrame:
        """The designs that no other beats, best first objective first; none where nothing of this version is stored."""
        frame = self.frame()
        if not len(frame):
            return frame
        rows = ordered(self.study, frame)
        return rows[rows["front"]].drop(columns="place").reset_index(drop=True)

    def verified(self) -> Verified | None:
        """The best designs at both fidelities, where the study verifies them; None where nothing of it is stored."""
        return self._verified(self.frame())

    def explain(self, design: str) -> "Why":
        """Why one of its designs is as it is, at the study's fidelity.

        Args:
            design: its id, as ``frame()`` has it.

        Raises:
            DesignError: no such design, or no results here.
        """
        from dse.why.stored_design import stored_design
        from dse.why.why import of_stored

        part = self.part()
        found = stored_design(self.study, part.frame, part.screened, design)
        return of_stored(self.study, part.frame, found, part.screened)

    why = explain

    def evaluate(self, design: str) -> Evaluation:
        """One of its designs as `dse.evaluate` answers: metrics, the time of every operator and what binds.

        Args:
            design: its id, as ``frame()`` has it.

        Raises:
            DesignError: no such design, or no results here.
        """
        return evaluated_design(self, design)[0]

    def whynot(self, *overrides: str | Sequence[str]) -> "WhyNot":
        """Where a design stands that overrides name over what the study starts from, and how it would get better.

        Raises:
            DesignError: it is asked something else than the study asks, or there are no results here.
        """
        from dse.why.typed_design import not_in

        return not_in(self.study, self.part().frame, words(overrides))

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
        from dse.report.data import Part

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

    def check_rows(self) -> None:
        """Tell the user of damaged rows among the stored results."""
        if exists(self.study.store):
            with closing(Store(self.study.store, create=False)) as store:
                store.check_rows()

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
                found = searched(asked, store)
        screened = stored(asked) if asked.screen["run"] else None
        return search_frame(asked, found), screened

    @property
    def units(self) -> dict[str, str]:
        """Unit of every metric column."""
        return {name: metric.unit for name, metric in METRICS.items()}


def evaluated_design(loaded: Loaded, design: str, *, trust: bool = False) -> tuple[Evaluation, dict[str, Any]]:
    """A design of a study, evaluated at the study's fidelity, and the configuration that it is of.

    Args:
        loaded: the study.
        design: its id.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: no such design, or no results here.
    """
    from dse.why.stored_design import stored_design

    part = loaded.part()
    asked, found = part.study, stored_design(part.study, part.frame, part.screened, design)
    chips = [f"chips=[{found.values[CHIP]}]"] if CHIP in found.values else []
    config = compose([*asked.overrides, *chips], trust=trust)
    own = question(config, folder_of(config), fewer=bool(chips))
    return evaluation(asked.question.space.at(found.values), own, config), config


def evaluate(*overrides: str | Sequence[str], trust: bool = False) -> Evaluation:
    """One design, by Hydra overrides as on the command line, or by a list of them.

    Args:
        overrides: as they are typed.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: naming the override that is wrong.
    """
    return answered(compose(words(overrides), trust=trust))


def compare_chips(*overrides: str | Sequence[str], objective: str = OBJECTIVE, trust: bool = False) -> list[Side]:
    """Chips side by side on one question, each with the best mapping that a short search finds.

    Args:
        overrides: as of `evaluate`, with ``chip=[NAME, NAME]``.
        objective: the metric that the best mapping is best in.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: an override that is wrong for all chips, no such metric, or formats that differ.
    """
    return compared(words(overrides), objective, trust=trust)


def words(overrides: Iterable[str | Sequence[str]]) -> list[str]:
    """Overrides, those in lists among them.

    Raises:
        DesignError: something is neither text nor a list of texts.

    >>> words(["chip=a100", ["model=qwen3_8b", "workload.batch=[4]"]])
    ['chip=a100', 'model=qwen3_8b', 'workload.batch=[4]']
    """
    found: list[str] = []
    for override in overrides:
        some = [override] if isinstance(override, str) else override
        if not isinstance(some, list | tuple) or not all(isinstance(word, str) for word in some):
            raise DesignError(f"overrides: {override!r} is none; write them as on the command line: 'chip=a100', 'seed=1'")
        found += some
    return found


def run(name: str, *overrides: str | Sequence[str], trust: bool = False) -> Loaded:
    """Starts a study or goes on with it."""
    asked = study_of(name, *overrides, trust=trust)
    run_study(asked)
    return Loaded(asked)


def load(name: str, *overrides: str | Sequence[str], trust: bool = False) -> Loaded:
    """A study with what is stored of it here; what its files and its store say runs no code unless trusted."""
    return Loaded(study_of(name, *overrides, trust=trust))


def compare(loaded: Sequence[Loaded], out: str = "") -> Path:
    """Writes one report on one study or several, from what is stored, into `out` or the first one's run folder.

    Raises:
        DesignError: one of them has no results here.
    """
    from dse.report.page import place, write_page

    path = Path(out) if out else place([one.study for one in loaded])
    return write_page([one.part() for one in loaded], path)


def study_of(name: str, *given: str | Sequence[str], trust: bool = False) -> Study:
    """A study by name: one that ships or is in the working folder, or one that ran here or into a store, as it was run.

    Raises:
        DesignError: no such study, or overrides of one that is read as it was run.
    """
    known, overrides, run_dir = studies(), words(given), Path("runs") / name
    place = None if overrides else stored_at(run_dir)
    if name not in known and place is None:
        said = dict(word.split("=", 1) for word in overrides if word.startswith(("store=", "run_dir=")))
        if more := [word for word in overrides if not word.startswith(("store=", "run_dir="))]:
            if said or stored_at(run_dir) is not None:
                raise DesignError(f"study {name!r} is read as it was run; leave out {' '.join(more)}")
        elif said:
            run_dir = Path(said.get("run_dir", run_dir))
            place = said.get("store") or stored_at(run_dir)
    if name not in known and place is None:
        compose([f"study={name}"])  # raises with the nearest name
    line = [f"study={name}", *overrides] if place is None else _as_run(name, place, trust=trust)
    config = compose(line, trust=trust)
    if place is not None:
        config |= {"store": place, "run_dir": str(run_dir)}  # overrides are kept without passwords, and are somebody's
    return study(config, known[name].parent if name in known else folder_of(config))


def _as_run(name: str, place: str, *, trust: bool) -> list[str]:
    """The overrides of a study's last run; as data, unless they are trusted."""
    with closing(Store(place, create=False)) as store:
        runs = store.runs(name)
    if not runs:
        raise DesignError(f"no run of study {name!r} in {store.place}")
    facts = runs[-1]["facts"]
    overrides: Any = facts.get("overrides") if isinstance(facts, dict) else None
    if not isinstance(overrides, list):
        raise DesignError(f"{store.place}: the last run of study {name!r} says no overrides; give them: study={name} ...")
    return overrides if trust else as_data(overrides, store.place)
