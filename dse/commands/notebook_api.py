"""Studies in Python, with results, figures and explanations: `dse.run(name)` and `dse.load(name)`."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dse.analysis.evaluation import Evaluation, evaluate_design
from dse.commands.command_record import list_run_names
from dse.commands.python_answers import DominanceAnswer, EvaluationAnswer, ExplanationAnswer
from dse.commands.run_study import run_study
from dse.config.compose import compose, find_study_folder
from dse.config.keyword_settings import Override, Setting, read_settings
from dse.config.override_syntax import suggest_assignment
from dse.config.overrides import find_study_paths
from dse.config.question import build_question
from dse.config.untrusted_files import check_stored_overrides
from dse.evaluators import METRICS
from dse.execution.ask_tell import read_stored_asks
from dse.execution.result_frame import DESIGN, MetricFrame, combine_with_front, report_order, search_frame
from dse.execution.screen import ScreenResult, load_stored_screen
from dse.execution.study import Study, build_study, stored_location
from dse.execution.verify import Verification, load_stored_verification
from dse.search.samplers import Ask
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import read_former_attribute
from dse.space.multi_chip_space import CHIP_KNOB
from dse.store.database import store_exists
from dse.store.store import DesignResult, Store

if TYPE_CHECKING:
    from dse.explanations.sample_noise import FrontSample
    from dse.report.reported_study import ReportedStudy


@dataclass(frozen=True, repr=False)
class StoredStudy:
    """One study with its stored results, as `dse.load` and `dse.run` give it.

    Attributes:
        study: its definition: space, workload, objectives and constraints.
    """

    study: Study

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return read_former_attribute(self, name, {"verified": "verification"})

    def frame(self) -> pd.DataFrame:
        """Every searched or screened design: id, knobs, metrics in SI, ``feasible``, ``front``, ``stage``.

        ``attrs["units"]`` has the units of knobs and metrics. Knobs that count something are whole numbers.
        """
        searched, screened = self._search_and_screen()
        return self._describe_columns(MetricFrame(combine_with_front(self.study, searched, screened)))

    def front(self) -> pd.DataFrame:
        """Designs of the Pareto front, sorted by the first objective; empty if nothing is stored.

        Results of other physics versions do not count.
        """
        frame = self.frame()
        if not len(frame):
            return frame
        rows = report_order(self.study, frame)
        return self._describe_columns(rows[rows["front"]].drop(columns="place").reset_index(drop=True))

    def verification(self) -> Verification | None:
        """The best designs at both fidelities; None if the study verifies nothing or nothing is stored."""
        return self.verification_of(self.frame())

    def explain(self, design: str) -> ExplanationAnswer:
        """Explain one of its designs, at the study's fidelity.

        Args:
            design: its id, as ``frame()`` has it.

        Raises:
            DesignError: no such design, or no results here.
        """
        from dse.explanations.explanation import explain_stored_design
        from dse.explanations.stored_design import find_stored_design

        frame, screened = self.designs()
        found_design = find_stored_design(self.study, frame, screened, design)
        return ExplanationAnswer.from_explanation(explain_stored_design(self.study, frame, found_design, screened))

    why = explain

    def evaluate(self, design: str) -> EvaluationAnswer:
        """Evaluate one of its designs as `dse.evaluate` does.

        Args:
            design: its id, as ``frame()`` has it.

        Raises:
            DesignError: no such design, or no results here.
        """
        return EvaluationAnswer.from_evaluation(evaluated_design(self, design)[0])

    def whynot(self, *overrides: Override, **settings: Setting) -> DominanceAnswer:
        """Position of a design that settings name among those of the study, and ways to improve it.

        Args:
            overrides, settings: as of `dse.evaluate`, over what the study starts from.

        Raises:
            DesignError: its workload differs from the study's, or there are no results here.
        """
        from dse.explanations.design_from_overrides import explain_dominance_of

        words = read_settings(overrides, settings, base=self.study.overrides)
        return DominanceAnswer.from_dominance(explain_dominance_of(self.study, self.designs()[0], words))

    def report(self) -> Path:
        """Write the report again from stored results; returns its path.

        Raises:
            DesignError: there are no results here.
        """
        return write_comparison_report([self])

    def figure(self, name: str = "pareto", **options: str) -> Any:
        """A figure of the study, as a `plotly.graph_objects.Figure` in SI units with prefixes.

        Args:
            name: pareto, throughput_per_user, load, roofline or cost.
            options: of the figure: ``x`` and ``y`` of pareto; ``per`` of throughput_per_user (mm2, dollar, watt); ``design``
                of load, roofline and cost, an id as ``frame()`` has it, by default the knee of the front.

        Raises:
            DesignError: no such figure or option, or there are no results here that it needs.
        """
        from dse.report.figures import build_figure
        from dse.report.plotly_library import make_plotly_figure

        return make_plotly_figure(build_figure(self.part(), name, **options))

    def part(self) -> "ReportedStudy":
        """The study as a report shows it.

        Raises:
            DesignError: there are no results here.
        """
        from dse.report.reported_study import ReportedStudy

        frame, screened = self.designs()
        return ReportedStudy(self.study, frame, screened, self.runs(), self.verification_of(frame))

    def designs(self) -> tuple[pd.DataFrame, ScreenResult | None]:
        """Designs of the study as `frame` has them, and its screen.

        Without runs and verification, which take a second.

        Raises:
            DesignError: there are no results here.
        """
        study = self.study
        searched, screened = self._search_and_screen()
        frame = combine_with_front(study, searched, screened)
        if not len(frame):
            raise DesignError(
                f"study {study.name!r} has no results in {study.run_dir}; run it first: dse run study={study.name}"
            )
        return frame, screened

    def front_sample(self) -> "FrontSample | None":
        """Offered load of the front and its margins to constraints, within sample noise or not.

        None without results, and for workloads that are not streams of requests at a rate.
        """
        from dse.explanations.sample_noise import is_sampled
        from dse.report.page_cache import PageCache
        from dse.report.sampled_front import cached_front_sample

        if not is_sampled(self.study.question.workload) or not len(frame := self.frame()):
            return None
        with PageCache(self.study) as kept:
            return cached_front_sample(self.study, frame, kept)

    def runs(self) -> list[dict[str, Any]]:
        """Runs of the study in this folder, with time, host and versions."""
        if not store_exists(self.study.store):
            return []
        with closing(Store(self.study.store, create=False)) as store:
            return store.runs(self.study.name)

    def check_rows(self) -> None:
        """Tell the user of damaged rows among the stored results."""
        if store_exists(self.study.store):
            with closing(Store(self.study.store, create=False)) as store:
                store.check_rows()

    def __repr__(self) -> str:
        from dse.commands.study_screen import stored_study_lines

        return "\n".join(stored_study_lines(self))

    def _describe_columns(self, frame: pd.DataFrame) -> pd.DataFrame:
        """A table with whole numbers where knobs count, and units in ``attrs``."""
        space = self.study.question.space
        counts = [knob.address for knob in space.knobs if "whole" in space.spec(knob.address).metadata]
        whole = {name: "int64" if frame[name].notna().all() else "Int64" for name in counts if name in frame}
        frame = frame.astype({name: kind for name, kind in whole.items() if pd.api.types.is_float_dtype(frame[name])})
        knob_units = {knob.address: str(space.spec(knob.address).metadata["unit"] or "") for knob in space.knobs}
        units = {name: unit for name, unit in (self.units | knob_units).items() if name in frame and unit}
        frame.attrs.update({"study": self.study.name, "units": units})
        return frame

    def _repr_html_(self) -> str:
        """The front as a table for notebooks."""
        front = self.front()
        knobs = [knob.address for knob in self.study.question.space.knobs if knob.address in front]
        return (
            str(front[[DESIGN, *self.study.objectives, *knobs]].to_html()) if len(front) else f"<pre>{escape(repr(self))}</pre>"
        )

    def verification_of(self, frame: pd.DataFrame) -> Verification | None:
        """The best designs at both fidelities; None if the study verifies nothing or nothing is stored.

        Args:
            frame: as `frame` gives it, so that it is not read again.
        """
        if not store_exists(self.study.store):
            return None
        with closing(Store(self.study.store, create=False)) as store:
            return load_stored_verification(self.study, store, frame)

    def _search_and_screen(self) -> tuple[pd.DataFrame, ScreenResult | None]:
        study = self.study
        asks: dict[int, tuple[Ask, DesignResult]] = {}
        if store_exists(study.store):
            with closing(Store(study.store, create=False)) as store:
                asks = read_stored_asks(study, store)
        screened = load_stored_screen(study) if study.screen.run else None
        return search_frame(study, asks), screened

    @property
    def units(self) -> dict[str, str]:
        """Unit of every metric column."""
        return {name: metric.unit for name, metric in METRICS.items()}


def evaluated_design(loaded: StoredStudy, design: str, *, trust: bool = False) -> tuple[Evaluation, dict[str, Any]]:
    """A design of a study, evaluated at the study's fidelity, and its configuration.

    Args:
        loaded: the study.
        design: its id.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: no such design, or no results here.
    """
    from dse.explanations.stored_design import find_stored_design

    study, (frame, screened) = loaded.study, loaded.designs()
    found_design = find_stored_design(study, frame, screened, design)
    chips = [f"chips=[{found_design.values[CHIP_KNOB]}]"] if CHIP_KNOB in found_design.values else []
    config = compose([*study.overrides, *chips], trust=trust)
    own = build_question(config, find_study_folder(config), fewer=bool(chips))
    return evaluate_design(study.question.space.design_at(found_design.values), own, config), config


def run(name: str, *overrides: Override, trust: bool = False, **settings: Setting) -> StoredStudy:
    """Start a study or go on with it, and give it with its results.

    Args:
        name: of the study.
        overrides, settings: as of `evaluate`, over what the study starts from: ``budget=200``, ``limit=512``.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: no such study, or a setting that is wrong.
    """
    study = find_study(name, *read_study_settings(name, overrides, settings, trust=trust), trust=trust)
    run_study(study)
    return StoredStudy(study)


def load(name: str, *overrides: Override, trust: bool = False, **settings: Setting) -> StoredStudy:
    """A study with its stored results; its files and its store run no code unless trusted.

    Args:
        name: of the study.
        overrides, settings: as of `run`.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: no such study, or a setting that is wrong.
    """
    return StoredStudy(find_study(name, *read_study_settings(name, overrides, settings, trust=trust), trust=trust))


def read_study_settings(name: str, overrides: Iterable[Override], settings: Mapping[str, Setting], *, trust: bool) -> list[str]:
    """Overrides of positional and keyword arguments over a study, without its name.

    Raises:
        DesignError: naming the argument that is wrong.
    """
    base = [f"study={name}"] if name in find_study_paths() else []  # one that is read as it was run has no choice
    return read_settings(overrides, settings, base=base, trust=trust)


def write_comparison_report(loaded: Sequence[StoredStudy], out: str = "") -> Path:
    """Write one report on one or several studies from stored results; returns its path.

    Raises:
        DesignError: one of them has no results here.
    """
    from dse.report.study_page import report_path, write_page

    path = Path(out) if out else report_path([study.study for study in loaded])
    return write_page([study.part() for study in loaded], path)


def find_study(name: str, *given: str, trust: bool = False) -> Study:
    """A study by name: shipped, in the working folder, or stored here as it was run.

    Raises:
        DesignError: no such study, or overrides of one that is read as it was run.
    """
    if not isinstance(name, str):
        raise DesignError(f"study: {name!r} is no name of a study; write it as a text, as in dse.load('quickstart')")
    known, overrides, run_dir = find_study_paths(), list(given), Path("runs") / name
    place = None if overrides else stored_location(run_dir)
    if name not in known and place is None:
        overrides_of_store = dict(word.split("=", 1) for word in overrides if word.startswith(("store=", "run_dir=")))
        if more := [word for word in overrides if not word.startswith(("store=", "run_dir="))]:
            if overrides_of_store or stored_location(run_dir) is not None:
                raise DesignError(f"study {name!r} is read as it was run; remove {' '.join(more)}")
        elif overrides_of_store:
            run_dir = Path(overrides_of_store.get("run_dir", run_dir))
            place = overrides_of_store.get("store") or stored_location(run_dir)
    if name not in known and place is None:
        if suggestion := suggest_assignment(name):
            raise DesignError(f"no study {name!r}; {suggestion}")
        raise DesignError(f"no study {name!r}; {suggest_nearest(name, {*known, *list_run_names()})}")
    line = [f"study={name}", *overrides] if place is None else _as_run(name, place, trust=trust)
    config = compose(line, trust=trust)
    if place is not None:
        config |= {"store": place, "run_dir": str(run_dir)}  # overrides are kept without passwords, and are somebody's
    return build_study(config, known[name].parent if name in known else find_study_folder(config))


def _as_run(name: str, place: str, *, trust: bool) -> list[str]:
    """The overrides of a study's last run; as data, unless they are trusted."""
    with closing(Store(place, create=False)) as store:
        runs = store.runs(name)
    if not runs:
        raise DesignError(f"no run of study {name!r} in {store.place}")
    facts = runs[-1]["facts"]
    overrides: Any = facts.get("overrides") if isinstance(facts, dict) else None
    if not isinstance(overrides, list):
        raise DesignError(f"{store.place}: the last run of study {name!r} has no stored overrides; add them: study={name} ...")
    return overrides if trust else check_stored_overrides(overrides, store.place)
