"""Explanations of a front for a page: knob steps, time shares, shadow prices, next designs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dse.documents.records import plain_values
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.explanations.explanation import (
    FrontMember,
    NearestDesign,
    explain_front,
    find_nearest_cheaper_and_faster,
    list_front_outcomes,
    study_goal,
)
from dse.explanations.near_feasible import find_near_feasible_designs
from dse.explanations.neighbours import DesignOutcome, analytical_goal, format_knob_value, is_evaluated_alone
from dse.explanations.shadow_prices import MAX_RELAXATION as MOST_RELAXED
from dse.explanations.shadow_prices import (
    ItemisedLimits,
    KnownDesign,
    ShadowPrice,
    find_shadow_prices,
    gain_over_beaten,
    gain_over_rivals,
)
from dse.report.caveats import (
    caveat_records,
    collect_study_caveats,
    find_foreign_constant_caveats,
    objective_resolution,
    select_distinct_front,
)
from dse.report.page_cache import PageCache, PageQuestion, choice_parts, table_key
from dse.search.pareto import convert_to_minimisation
from dse.space.multi_chip_space import AnySpace

MAX_DESIGNS = 200
"""Designs of a front whose steps a page has: the first ones."""

BUDGET_S = 20.0
"""What the steps of a front may take where the closed form is a formula, or requests are served in the steady state."""

MAX_ITEMISED = 1_024
"""Designs that break a limit whose limits are itemised together; of others those that are asked for, one by one."""

SIMULATED_BUDGET_S = 2.0
"""The same where requests are played; ``dse explain`` has the rest."""


def collect_front_explanations(
    study: Study, ordered: pd.DataFrame, screened: ScreenResult | None, start: int, kept: PageCache
) -> dict[str, Any]:
    """Explanation of a study's front, and its caveats, as JSON values.

    Args:
        study: the study.
        ordered: its designs in the order of the page.
        screened: what its screen looked at.
        start: number of the first in the page.
        kept: where it may be known already.

    Returns:
        ``remarks``: what the study cannot say; ``distinct``: for each front design the row that stands for it, with what tells
        designs apart; ``prices`` of constraints that move the front; ``designs``: by row, its steps, prices and neighbours;
        ``by``: the fidelity of the steps; ``left``: designs of the front for whose steps there was no time.
    """
    return dict(
        kept.answer(
            PageQuestion("front", follows=_followed_from(study, ordered, screened, start)),
            lambda: _of_study(study, ordered, screened, start),
            bool,
        )
    )


def _followed_from(study: Study, ordered: pd.DataFrame, screened: ScreenResult | None, start: int) -> list[tuple[str, Any]]:
    """What the answer follows from beside the workload."""
    wants = [*study.objectives.items(), *(f"{bound.metric} {bound.relation} {bound.value!r}" for bound in study.bounds)]
    return [
        ("space", study.question.space.key),
        ("rows", table_key(ordered)),
        ("screened", screened and [screened.rows, screened.feasible, screened.kept, *map(str, screened.blocks)]),
        ("start", start),
        ("fidelity", study.fidelity),
        ("wants", wants),
        ("defined", [(name, metric.text) for name, metric in study.question.defined.items()]),
        ("apart", objective_resolution(study)),
        ("fitted", [caveat.text for caveat in find_foreign_constant_caveats(study)]),  # sources are of no design's key
        *choice_parts(study),
    ]


def _of_study(study: Study, ordered: pd.DataFrame, screened: ScreenResult | None, start: int) -> dict[str, Any]:
    space, goal = study.question.space, study_goal(study)
    lowest = analytical_goal(goal, space.base)
    seconds = SIMULATED_BUDGET_S if is_evaluated_alone(space.base, lowest) else BUDGET_S
    front = list_front_outcomes(study, ordered)
    rows = {name: start + place for place, (name, _, _) in enumerate(front)}
    members = explain_front(study, ordered, seconds=seconds, most=MAX_DESIGNS)
    rivals = [point for _, _, point in front]
    known = find_near_feasible_designs(study, ordered, screened, rivals, MOST_RELAXED)
    itemised = ItemisedLimits(goal.workload)
    itemised.add(known_design.design() for known_design in known[:MAX_ITEMISED] if known_design.point.limit)
    designs: dict[str, Any] = {}
    for place, member in enumerate(members):
        others = [(*entry, member.point) for entry in front if entry[0] != member.name]
        cheaper, faster = find_nearest_cheaper_and_faster(goal, member.values, others)
        better = partial(gain_over_beaten, goal, outcome=member.point)
        own = find_shadow_prices(
            goal, _worthwhile_designs(study, known, member.point), better, together=True, itemised=itemised
        )
        designs[str(start + place)] = {
            "steps": _member_steps(study, member),
            "prices": [_price_record(space, price) for price in own],
            "cheaper": _near_record(cheaper, rows),
            "faster": _near_record(faster, rows),
        }
    kept, given_members = select_distinct_front(study, ordered)
    return {
        "remarks": plain_values(caveat_records(collect_study_caveats(study, ordered, screened, seconds=seconds))),
        "distinct": {
            "rows": [start + row for row in kept],
            "of": [start + row for row in given_members],
            "by": {name: [share, how] for name, (share, how) in objective_resolution(study).items()},
        },
        "prices": [
            _price_record(space, known_design)
            for known_design in find_shadow_prices(
                goal, known, lambda point: gain_over_rivals(goal, point, rivals), itemised=itemised
            )
        ],
        "designs": designs,
        "by": lowest.fidelity,
        "left": sum(member.changes is None for member in members) + len(front) - len(members),
    }


def _worthwhile_designs(study: Study, known: Sequence[KnownDesign], outcome: DesignOutcome) -> list[KnownDesign]:
    """Designs that are as good as one in all objectives."""
    names = list(study.objectives)
    if not known or any(name not in outcome.metrics for name in names):
        return []
    values = convert_to_minimisation(
        np.array([[design.point.metrics[name] for name in names] for design in known]), study.directions
    )
    mine = convert_to_minimisation(np.array([[outcome.metrics[name] for name in names]]), study.directions)[0]
    return [design for design, as_good in zip(known, (values <= mine).all(axis=1), strict=True) if as_good]


def _member_steps(study: Study, member: FrontMember) -> list[list[Any]] | None:
    """Knob, value as text, change and elasticity of each objective (null where there is none), and what breaks."""
    if member.changes is None:
        return None
    space = study.question.space
    return [
        [
            change.step.knob,
            format_knob_value(space, change.step.knob, change.step.new),
            [_short_number(change.change.get(name)) for name in study.objectives],
            [_short_number(change.elasticity.get(name)) for name in study.objectives],
            change.point.violations_text,
        ]
        for change in member.changes
    ]


def _near_record(near: NearestDesign | None, rows: Mapping[str, int]) -> dict[str, Any] | None:
    if near is None:
        return None
    return {"row": rows[near.name], "cost": list(near.cost), "pace": list(near.pace)}


def _price_record(space: AnySpace, price: ShadowPrice) -> dict[str, Any]:
    """A price in words, with the texts of the design that it admits."""
    knobs = {address: format_knob_value(space, address, value) for address, value in price.known.at.items()}
    return {"what": price.what, "text": price.text, "design": price.design, "knobs": knobs}


def _short_number(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.4g}")
