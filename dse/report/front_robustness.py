"""Robustness of a study's front over its uncertain constants, kept in its store."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse.accuracy.constant_ranges import UncertainConstant, find_uncertain_constants
from dse.documents.records import record_values
from dse.documents.robust_document import TurningRecord
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.explanations.explanation import study_goal
from dse.explanations.near_feasible import find_near_feasible_designs
from dse.explanations.neighbours import DesignOutcome, StudyGoal, analytical_goal
from dse.explanations.robustness import ContestedDesigns, Scores, TurningConstant, measure_robustness
from dse.report.page_cache import PageCache, PageQuestion, table_key
from dse.search.pareto import nondominated_layers
from dse.space.array_math import Array
from dse.space.design_columns import columns_from_values
from dse.space.knobs import Value
from dse.space.multi_chip_space import CHIP_KNOB

DEFAULT_DRAWS = 64
"""Draws of all constants together: a share is then known to 6 % at most, as the standard deviation of a binomial share."""

BUDGET_S = 900.0
"""CPU time that evaluations may take; the same question goes on where they stopped. [s]"""

MAX_FRONT = 512
"""Designs of a front that are looked at: of more an even choice along the first objective."""

MIN_RIVALS, MAX_RIVALS = 64, 256
"""Designs next to the front that take part: as many as the front has, within these."""

MAX_EXCESS = 0.5
"""Relative excess over one limit or constraint up to which a design that is better than the front takes part."""

ROBUSTNESS = "robustness"
"""The topic under which scores of draws and the answer are kept."""


@dataclass(frozen=True)
class FrontRobustness:
    """Robustness of a study's front, ready for tables, pages and documents.

    Attributes:
        study: its name.
        fidelity: of the evaluations; at another one than the study's, the front is that of this fidelity.
        draws: of all constants together, that were evaluated.
        unmoved: constants that were not moved alone, for lack of time.
        constants: that were drawn.
        rivals: designs next to the front that took part.
        left: designs of the front that did not, since the front is large.
        designs: by id, in the order of the report.
    """

    study: str
    fidelity: str
    draws: int
    unmoved: int
    constants: int
    rivals: int
    left: int
    designs: Mapping[str, "DesignRobustness"]


@dataclass(frozen=True)
class DesignRobustness:
    """Robustness of one design of a front.

    Attributes:
        chip: its name; an empty string in a study of one chip without a name.
        share: of the draws in which it is on the front. [-]
        near_share: of the draws in which it is on the front or within a hundredth of it. [-]
        margin: by how much it would have to be worse in all objectives to leave the front, at the constants as they are. [-]
        turning: records of the constants that turn it most, largest effect first.
    """

    chip: str
    share: float
    near_share: float
    margin: float
    turning: tuple[TurningRecord, ...]


def measure_front_robustness(
    study: Study,
    frame: pd.DataFrame,
    screened: ScreenResult | None,
    *,
    draws: int = DEFAULT_DRAWS,
    seconds: float = BUDGET_S,
    report_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FrontRobustness:
    """Robustness of a study's front; what was evaluated before is read.

    Args:
        study: with results.
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        screened: what its screen looked at.
        draws: of all constants together.
        seconds: of CPU time that evaluations may take.
        report_progress: takes rows that are evaluated, and of how many.
    """
    goal = _robustness_goal(study)
    constants = find_uncertain_constants(study.question.sources, study.question.space)
    ordered = report_order(study, frame)
    if (known := find_known_robustness(study, ordered)) is not None and (known.draws, known.unmoved) == (draws, 0):
        return known
    ids, front_values = _front_designs(study, ordered)
    values = [*front_values, *_list_rivals(study, ordered, screened, len(front_values))]
    contest, keys = _stack_contest(study, values, len(front_values))
    with PageCache(study, ROBUSTNESS) as kept:

        def keep(factors: Array, compute: Callable[[], Scores]) -> Scores:
            follows = [("designs", keys), *_goal_parts(goal, constants)]
            question = PageQuestion(f"scores of {_array_digest(factors)}", follows=follows)
            return np.array(kept.answer(question, lambda: compute().tolist(), bool))

        robustness = measure_robustness(
            contest,
            constants,
            goal,
            draws=draws,
            seed=study.seed,
            seconds=seconds,
            keep=keep,
            report_progress=report_progress,
        )
        designs = {
            design: {
                "chip": _chip_name(study, at),
                "share": float(robustness.shares[row]),
                "near_share": float(robustness.near_shares[row]),
                "margin": float(robustness.margins[row]),
                "turning": [record_values(_turning_record(turning)) for turning in robustness.turning[row]],
            }
            for row, (design, at) in enumerate(zip(ids, front_values, strict=True))
        }
        record = {
            "study": study.name,
            "fidelity": robustness.fidelity,
            "draws": robustness.draws,
            "unmoved": robustness.left,
            "constants": len(constants),
            "rivals": robustness.rivals,
            "left": int(ordered["front"].sum()) - len(ids),
            "designs": designs,
        }
        answer = _read_record(kept.keep(_answer_question(study, ordered, goal, constants), record))
        kept.forget_others()
        return answer


def find_known_robustness(study: Study, frame: pd.DataFrame) -> FrontRobustness | None:
    """Robustness of a study's front as ``dse robust`` left it; None for another front."""
    if not len(frame) or not frame["front"].any():
        return None
    constants = find_uncertain_constants(study.question.sources, study.question.space)
    question = _answer_question(study, report_order(study, frame), _robustness_goal(study), constants)
    record = PageCache(study, ROBUSTNESS).find(question)
    return _read_record(record) if record else None


def _read_record(record: Mapping[str, Any]) -> FrontRobustness:
    designs = {
        name: DesignRobustness(**{**entry, "turning": tuple(TurningRecord(**turning) for turning in entry["turning"])})
        for name, entry in record["designs"].items()
    }
    return FrontRobustness(**{**record, "designs": designs})


def _robustness_goal(study: Study) -> StudyGoal:
    """The goal of a study at the lowest fidelity, at which batches of designs are evaluated."""
    return analytical_goal(study_goal(study), study.question.space.base)


def _front_designs(study: Study, ordered: pd.DataFrame) -> tuple[list[str], list[dict[str, Value]]]:
    """Ids and knob values of the front, of a large one evenly chosen."""
    places = np.flatnonzero(ordered["front"])
    if len(places) > MAX_FRONT:
        places = places[np.linspace(0, len(places) - 1, MAX_FRONT).round().astype(int)]
    rows = ordered.iloc[places]
    values = [knob_values(study, row) for row in rows.to_dict("records")]
    return list(map(str, rows[DESIGN])), values


def _list_rivals(study: Study, ordered: pd.DataFrame, screened: ScreenResult | None, front: int) -> list[dict[str, Value]]:
    """Knob values of designs next to a front: the next layers of feasible ones, and those that one excess keeps off it."""
    many = min(max(front, MIN_RIVALS), MAX_RIVALS)
    rest = ordered[ordered["feasible"] & ~ordered["front"]]
    names = list(study.objectives)
    layers = nondominated_layers(rest[names].to_numpy(dtype=float).reshape(-1, len(names)), study.directions, many)
    rivals = [knob_values(study, row) for row in rest.iloc[layers].to_dict("records")]
    best = [DesignOutcome({name: float(row[name]) for name in names}) for row in ordered[ordered["front"]].to_dict("records")]
    near = find_near_feasible_designs(study, ordered, screened, best, MAX_EXCESS)
    near.sort(key=lambda design: design.point.excess)
    return [*rivals, *(dict(design.at) for design in near[:many])]


def _stack_contest(study: Study, values: list[dict[str, Value]], front: int) -> tuple[ContestedDesigns, str]:
    """The designs at some knob values, and a digest of their keys."""
    space = study.question.space
    designs = space.stack(columns_from_values(space, values)) if space.knobs else space.stack({})
    chips = tuple(str(at.get(CHIP_KNOB, "")) for at in values)
    keys = " ".join(space.key_at(at) for at in values)
    return ContestedDesigns(designs, chips, front), hashlib.sha256(keys.encode()).hexdigest()


def _chip_name(study: Study, at: Mapping[str, Value]) -> str:
    return str(at.get(CHIP_KNOB) or study.config["choices"].get("chip", ""))


def _goal_parts(goal: StudyGoal, constants: list[UncertainConstant]) -> list[tuple[str, Any]]:
    """What scores follow from beside designs and factors, as parts of a key."""
    wants = [*goal.objectives.items(), *(f"{bound.metric} {bound.relation} {bound.value!r}" for bound in goal.bounds)]
    defined = [(name, metric.text) for name, metric in goal.defined.items()]
    return [("goal", [goal.fidelity, wants, defined]), ("constants", list(map(str, constants)))]


def _answer_question(study: Study, ordered: pd.DataFrame, goal: StudyGoal, constants: list[UncertainConstant]) -> PageQuestion:
    """The answer for all known designs of a study, whatever the number of draws."""
    rows = table_key(ordered[[DESIGN, "feasible", "front", *study.objectives]])
    follows = [("rows", rows), ("seed", study.seed), ("space", study.question.space.key), *_goal_parts(goal, constants)]
    return PageQuestion("robustness", follows=follows)


def _array_digest(values: Array) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def _turning_record(turning: TurningConstant) -> TurningRecord:
    """A turning constant as a record of documents; ends of its range are factors of its value."""
    constant = turning.constant
    return TurningRecord(
        address=constant.address,
        chips=[name for name in constant.chips if name],
        value=constant.si_value,
        unit=constant.unit,
        written=constant.value,
        low=constant.low,
        high=constant.high,
        source=constant.source,
        range_of="constant" if constant.stated else "source",
        margin_lost=turning.drop,
        turns_at=list(turning.turns_at),
    )


def format_turning_constant(record: TurningRecord) -> str:
    """A turning constant in one line: address, value, range, source, and where it turns a design.

    >>> sram = TurningRecord(
    ...     address="chip.technology.sram", chips=[], value=0.5, unit="mm2/MB", written="0.5 mm2/MB", low=0.77, high=1.3,
    ...     source="fitted", range_of="source", margin_lost=0.1, turns_at=[1.3],
    ... )
    >>> format_turning_constant(sram)
    'chip.technology.sram 0.5 mm2/MB (x0.77 to x1.3, fitted): off the front at x1.3'
    """
    ends = " and ".join(f"x{end:.3g}" for end in record.turns_at)
    effect = f"off the front at {ends}" if ends else "not alone"
    return f"{record.address} {record.written} (x{record.low:.3g} to x{record.high:.3g}, {record.source}): {effect}"
