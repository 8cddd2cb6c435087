"""Sweeps without a study: every combination of some settings, evaluated in batches.

Settings of the chip and the mapping are knobs of one design space for each combination of the other settings (presets,
workload, fidelity), so that their designs are evaluated together. If the work repays it, processes of this machine share it.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dse.analysis.evaluation import CaseResult, Evaluation, describe_design
from dse.config.compose import compose, find_study_folder
from dse.config.metric_expressions import DefinedMetrics, extend_with_derived_metrics
from dse.config.metric_workloads import refuse_foreign_metrics
from dse.config.question import Question, build_question
from dse.config.sweep_syntax import hydra_text, parse_swept_override
from dse.evaluators import evaluate
from dse.evaluators.accounting.metrics import METRICS, Direction, find_metric
from dse.execution.pool.choice import map_beside_this_process
from dse.execution.pool.dispatch import repays_start
from dse.execution.pool.worker_settings import cpu_count
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError, suggest_nearest
from dse.space.former_words import read_metric
from dse.space.knobs import ChoiceKnob, Space, Value
from dse.space.limits import Infeasibility
from dse.space.workload import Workload

MAX_POINTS = 20_000
"""Combinations of a sweep; a study screens and searches more."""

START_S = 2.0
"""What a process takes to import what evaluates. [s]"""

FIRST_BATCH, MAX_BATCH = 4, 1024
"""Designs of the second batch, by whose pace is decided whether processes repay their start, and of the last ones."""

KNOB_GROUPS = ("chip.", "mapping.")
"""Beginnings of the addresses that are knobs of a design space; other settings are composed for each combination."""

EXAMPLE = "dse sweep chip=[h100,h200] mapping.both.tp=[1,2,4] --objective tpot"

STUDY_WORDS = ("study=", "chips=", "mappings=", "search=", "search.", "space=", "space.", "screen.", "verify")
"""Overrides that a study has and a sweep does not."""


@dataclass(frozen=True)
class SweptDesign:
    """One combination of a sweep with its metrics, or the reason why there are none.

    Attributes:
        values: by swept address, in SI; settings that have no effect in this design are left out.
        metrics: by name, in SI; empty where the design is infeasible.
        limit: address of the limit that is violated most; empty string if all hold, or if the combination was refused.
        why: the violated limit as text, or why the combination is no design; empty string for a feasible design.
    """

    values: dict[str, Value]
    metrics: dict[str, float]
    limit: str = ""
    why: str = ""

    @property
    def feasible(self) -> bool:
        """Whether the design exists and keeps every limit."""
        return not self.why


@dataclass(frozen=True)
class Sweep:
    """Designs of a sweep, feasible ones first, the best by the objective before others.

    Attributes:
        axes: values of each swept setting, as they were typed.
        units: of the swept settings in SI; "1" for plain numbers, "" for options.
        objective: metric that orders the designs.
        designs: one a combination.
        best: the first design with the words of its question; None if no combination is feasible.
    """

    axes: dict[str, tuple[Any, ...]]
    units: dict[str, str]
    objective: str
    designs: tuple[SweptDesign, ...]
    best: Evaluation | None = None

    @property
    def better(self) -> Direction:
        """Whether more of the objective is better, or less."""
        return METRICS[self.objective].better

    @property
    def feasible(self) -> tuple[SweptDesign, ...]:
        """Designs that keep every limit, the best first."""
        return tuple(design for design in self.designs if design.feasible)

    @property
    def refusals(self) -> dict[str, int]:
        """Number of designs by violated limit, or by reason, the commonest first."""
        reasons = Counter(design.limit or design.why for design in self.designs if not design.feasible)
        return dict(reasons.most_common())

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that some design has."""
        names = {name for design in self.designs for name in design.metrics}
        return tuple(name for name in METRICS if name in names)

    def frame(self) -> pd.DataFrame:
        """Designs in rows: swept settings, metrics, ``feasible``, ``limit`` and ``why``.

        Numbers are in SI; ``attrs["units"]`` has the unit of each column, and ``attrs["objective"]`` the objective.
        """
        rows = [
            {**design.values, **design.metrics, "feasible": design.feasible, "limit": design.limit, "why": design.why}
            for design in self.designs
        ]
        frame = pd.DataFrame(rows, columns=[*self.axes, *self.metrics, "feasible", "limit", "why"])
        frame.attrs["units"] = {**self.units, **{name: METRICS[name].unit for name in self.metrics}}
        frame.attrs["objective"] = self.objective
        return frame


class _Part(NamedTuple):
    """Designs of one combination of composed settings.

    Attributes:
        values: of the designs, by swept address.
        designs: these.
        question: what is asked of them.
        config: composed configuration of that question.
    """

    values: list[dict[str, Value]]
    designs: list[Design]
    question: Question
    config: dict[str, Any]

    @property
    def fidelity(self) -> str:
        """Fidelity at which the designs are evaluated."""
        return str(self.config["fidelity"])


class _Work(NamedTuple):
    """Designs of one part that are evaluated together, as a process takes them."""

    part: int
    designs: list[Design]
    workload: Workload
    fidelity: str


class _Verdict(NamedTuple):
    """What an evaluation gives of one design."""

    metrics: dict[str, float]
    infeasibility: Infeasibility | None


def sweep(
    words: Sequence[str],
    objective: str = "",
    *,
    trust: bool = False,
    most: int = MAX_POINTS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sweep:
    """Evaluate every combination of the swept settings among some overrides.

    Args:
        words: overrides as of `dse evaluate`; those with a list, a comma, ``choice(...)`` or ``range(...)`` are swept.
        objective: metric that orders the designs; empty string for the first that the workload has.
        trust: whether files that are not ours may run code.
        most: combinations at most.
        progress: takes the number of designs that are done, and of all.

    Raises:
        DesignError: nothing is swept, too much is, a setting is wrong for all combinations, or no such metric.
    """
    fixed, axes = _split_axes(words, most)
    parts, refused, units = _make_parts(fixed, axes, trust)
    objective = read_metric(objective) if objective else ""
    if objective:
        find_metric(objective)  # when those that the overrides define are known
        refuse_foreign_metrics("sweep --objective", [objective], parts[0].question.defined, parts[0].question.workload)
    designs = [*_evaluate_parts(parts, progress), *refused]
    present = [name for name in METRICS if any(name in design.metrics for design in designs)]
    objective = objective or (present or [next(iter(METRICS))])[0]
    if present and objective not in present:
        raise DesignError(f"sweep --objective: no design here has {objective}; {suggest_nearest(objective, present)}")
    sign = -1.0 if METRICS[objective].better == "max" else 1.0
    designs.sort(key=lambda design: (not design.feasible, sign * design.metrics.get(objective, sign * np.inf)))
    best = _describe_best(parts, designs[0]) if designs[0].feasible else None
    return Sweep({address: tuple(swept["values"]) for address, swept in axes.items()}, units, objective, tuple(designs), best)


def _describe_best(parts: Sequence[_Part], best: SweptDesign) -> Evaluation:
    """A swept design with the words of its question, from the metrics that it has already."""
    part, row = next((part, part.values.index(best.values)) for part in parts if best.values in part.values)
    cases = tuple(CaseResult(case.label, True, {}) for case in part.question.workload.cases)
    return describe_design(part.designs[row], part.question, part.config, best.metrics, cases)


def _split_axes(words: Sequence[str], most: int) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Overrides with one value, and what is swept by address.

    Raises:
        DesignError: nothing is swept, or one address twice, or too much, or a setting belongs to a study.
    """
    fixed, axes = [], dict[str, dict[str, Any]]()
    for word in words:
        if word.startswith(STUDY_WORDS) or word.startswith(tuple(f"+{start}" for start in STUDY_WORDS)):
            raise DesignError(
                f"sweep: {word.partition('=')[0]} belongs to a study; write the values of a setting, as in {EXAMPLE}"
            )
        swept = None if word.startswith(("-", "~")) or "=" not in word else parse_swept_override(word)
        if swept is None:
            fixed.append(word)
            continue
        address = word.partition("=")[0].lstrip("+")
        if address in axes:
            raise DesignError(f"sweep: {address} is swept twice; remove one of them")
        if repeated := [value for value, count in Counter(map(hydra_text, swept["values"])).items() if count > 1]:
            raise DesignError(f"sweep: {address} has {repeated[0]} twice; remove one of them")
        axes[address] = swept
    if both := sorted({word.partition("=")[0].lstrip("+") for word in fixed} & set(axes)):
        raise DesignError(f"sweep: {both[0]} is swept and set to one value; remove one of them")
    if not axes:
        raise DesignError(f"sweep: no setting has several values; write a list, as in {EXAMPLE}")
    if (count := prod(len(swept["values"]) for swept in axes.values())) > most:
        raise DesignError(f"sweep: {count:,} combinations, of {most:,} at most; take fewer values, or search them in a study")
    return fixed, axes


def _make_parts(
    fixed: list[str], axes: Mapping[str, Mapping[str, Any]], trust: bool
) -> tuple[list[_Part], list[SweptDesign], dict[str, str]]:
    """Designs by combination of composed settings, those that are no designs, and units of the swept settings.

    Raises:
        DesignError: no combination is possible, or a preset does not exist.
    """
    knobs = {address: dict(swept) for address, swept in axes.items() if address.startswith(KNOB_GROUPS)}
    outer = [address for address in axes if address not in knobs]
    parts, refused, units = list[_Part](), list[SweptDesign](), dict.fromkeys(axes, "")
    for values in product(*(axes[address]["values"] for address in outer)):
        typed = [_override(address, value, axes[address].get("unit")) for address, value in zip(outer, values, strict=True)]
        labels = {
            address: value if isinstance(value, int | float | str) else hydra_text(value)
            for address, value in zip(outer, values, strict=True)
        }
        try:
            part = _make_part([*fixed, *typed], knobs, labels, trust)
        except DesignError as error:
            _refuse_unknown(typed, [word for word in fixed if word.startswith("-") or "=" not in word], trust)
            why = str(error).removeprefix("space: ").removeprefix("space.")
            for own in product(*(swept["values"] for swept in knobs.values())):
                refused.append(SweptDesign({**labels, **dict(zip(knobs, own, strict=True))}, {}, "", why))
            continue
        parts.append(part)
        space = part.question.space
        assert isinstance(space, Space)
        units |= {
            knob.address: "" if knob.words else space.spec(knob.address).metadata["unit"] or "1"
            for knob in space.knobs
            if isinstance(knob, ChoiceKnob)
        }
    if not parts:
        raise DesignError(refused[0].why)
    return parts, refused, units


def _override(address: str, value: Any, unit: str | None) -> str:
    """One value of a swept setting as an override."""
    return f"{address}='{value} {unit}'" if unit else f"{address}={hydra_text(value)}"


def _refuse_unknown(typed: Sequence[str], flags: Sequence[str], trust: bool) -> None:
    """Refuse a preset that cannot be composed by itself, as a misspelt one: nobody asked for a sweep without it."""
    for word in typed:
        if "." not in word.partition("=")[0]:
            compose([word, *flags], trust=trust)


def _make_part(words: list[str], knobs: Mapping[str, Any], labels: Mapping[str, Value], trust: bool) -> _Part:
    """Every design of one combination of composed settings."""
    config = {**compose(words, trust=trust), "space": {}}
    question = _build_with_knobs(config, knobs)
    space = question.space
    assert isinstance(space, Space)
    columns = space.grid(0, space.combinations or 1) if knobs else {}
    rows = len(next(iter(columns.values()))) if columns else 1
    own = [space.row(columns, row) for row in range(rows)] if columns else [{}]
    return _Part([{**labels, **values} for values in own], [space.design_at(values) for values in own], question, config)


def _build_with_knobs(config: dict[str, Any], knobs: Mapping[str, Any]) -> Question:
    """A question with knobs.

    Raises:
        DesignError: of several knobs that the chip does not have, the first.
    """
    folder = find_study_folder(config)
    try:
        return build_question({**config, "space": dict(knobs)}, folder)
    except DesignError:
        for address in knobs if len(knobs) > 1 else ():
            build_question({**config, "space": {address: knobs[address]}}, folder)
        raise


def _evaluate_parts(parts: Sequence[_Part], progress: Callable[[int, int], None]) -> list[SweptDesign]:
    """Every design, evaluated here in growing batches until processes repay their start, then there as well."""
    total = sum(len(part.designs) for part in parts)
    verdicts: list[list[_Verdict]] = [[] for _ in parts]
    done, size, count = 0, 1, cpu_count()
    places = [(number, row) for number, part in enumerate(parts) for row in range(len(part.designs))]
    while done < total:
        number, row = places[done]
        rows = range(row, min(row + size, len(parts[number].designs)))
        start = time.perf_counter()
        verdicts[number] += _evaluate_work(_work_of(parts, number, rows))
        pace = (time.perf_counter() - start) / len(rows)
        done += len(rows)
        progress(done, total)
        # the first batch pays for imports and compilation, and tells nothing of those to come
        if size > 1 and repays_start(pace * (total - done), count, START_S):
            for number, answer in _evaluate_in_processes(parts, places[done:], count):
                verdicts[number] += answer
            progress(total, total)
            break
        size = min(max(FIRST_BATCH, 2 * size), MAX_BATCH)
    return [
        _swept_design(values, verdict, part.question.defined)
        for part, answers in zip(parts, verdicts, strict=True)
        for values, verdict in zip(part.values, answers, strict=True)
    ]


def _evaluate_in_processes(
    parts: Sequence[_Part], places: Sequence[tuple[int, int]], count: int
) -> list[tuple[int, list[_Verdict]]]:
    """Verdicts by part, in order of their rows, from several processes of this machine."""
    works: list[_Work] = []
    share = -(-len(places) // (4 * count))
    for number in dict.fromkeys(number for number, _ in places):
        rows = [row for part, row in places if part == number]
        works += [
            _work_of(parts, number, range(start, min(start + share, rows[-1] + 1)))
            for start in range(rows[0], rows[-1] + 1, share)
        ]
    shares = [works[place::count] for place in range(count) if works[place::count]]
    answers = map_beside_this_process(_evaluate_works, shares)
    verdicts = {
        id(work): answer for own, given in zip(shares, answers, strict=True) for work, answer in zip(own, given, strict=True)
    }
    return [(work.part, verdicts[id(work)]) for work in works]


def _work_of(parts: Sequence[_Part], number: int, rows: range) -> _Work:
    """Some designs of a part, as what a process takes."""
    part = parts[number]
    return _Work(number, part.designs[rows.start : rows.stop], part.question.workload, part.fidelity)


def _evaluate_works(works: Sequence[_Work]) -> list[list[_Verdict]]:
    """Verdicts of several batches, in order."""
    return [_evaluate_work(work) for work in works]


def _evaluate_work(work: _Work) -> list[_Verdict]:
    """Verdict on each design of a batch."""
    outcomes = evaluate(stack_designs(work.designs), work.workload, fidelity=work.fidelity)
    verdicts = []
    for row in range(len(work.designs)):
        outcome = outcomes.row_outcome(row)
        verdicts.append(_Verdict({}, outcome) if isinstance(outcome, Infeasibility) else _Verdict(outcome, None))
    return verdicts


def _swept_design(values: dict[str, Value], verdict: _Verdict, defined: DefinedMetrics) -> SweptDesign:
    """A combination with what its evaluation gave."""
    if verdict.infeasibility is not None:
        return SweptDesign(values, {}, verdict.infeasibility.limit, str(verdict.infeasibility))
    metrics = extend_with_derived_metrics(verdict.metrics, defined)
    return SweptDesign(values, {name: value for name, value in metrics.items() if value is not None and value == value})
