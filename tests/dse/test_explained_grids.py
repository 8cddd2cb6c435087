"""Explanations of small studies against all there is to know: each design of a grid of drawn values, and definitions."""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any

import numpy as np
import pytest

from dse.commands.notebook_api import StoredStudy
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import limits
from dse.execution.result_frame import DESIGN, knob_values, report_order
from dse.explanations.dominance import OUTSIDE
from dse.explanations.explanation import APART, compute_front_shadow_prices
from dse.explanations.shadow_prices import MAX_RELAXATION, MIN_GAIN
from dse.space.array_math import Array
from dse.space.design import Design
from tests.dse.toy import design_ids, searched, toy

KNOBS = {
    "chip.cores": ("choice({})", range(100, 601, 50), 3),
    "chip.l2.size": ("tag(MB, choice({}))", range(8, 257, 8), 2),
    "chip.hbm.bandwidth": ("tag(GB/s, choice({}))", (460, 920, 1380, 1840, 2760), 2),
    "chip.hbm.capacity": ("tag(GB, choice({}))", (4, 8, 16, 64), 2),
    "mapping.both.tp": ("choice({})", (1, 2, 4, 8, 16), 3),
    "mapping.both.prefetch": ("choice({})", ("none", "whole", "partial"), 2),
}
"""How knobs are written, of what their values are drawn, and how many."""

GOALS = {"throughput_per_system_mm2": 1, "tpot": -1}
"""Objectives, and 1 where more is better."""

BOUNDED = ("ttft", "system_price")


@dataclass
class Grid:
    """A study of all designs of a grid, and what each is worth, shape (designs,)."""

    ran: StoredStudy
    rows: list[dict[str, Any]]
    metrics: dict[str, Array]
    limit: Array
    bounds: dict[str, float]

    @property
    def goals(self) -> Array:
        """Logarithms of objectives, more being better; shape (designs, objectives)."""
        return np.array([sign * np.log(self.metrics[name]) for name, sign in GOALS.items()]).T

    @property
    def over(self) -> Array:
        """Relative excess over each constraint, 0 where it holds; shape (constraints, designs)."""
        return np.array([np.maximum(self.metrics[name] / most - 1, 0.0) for name, most in self.bounds.items()])

    @property
    def feasible(self) -> Array:
        return np.asarray((self.limit < 0) & (self.over == 0).all(axis=0))

    @cached_property
    def places(self) -> dict[Design, int]:
        """Where designs are."""
        space = self.ran.study.question.space
        return {space.design_at(row): place for place, row in enumerate(self.rows)}

    def place(self, values: dict[str, Any]) -> int:
        """Of a design; of knobs that do not count, values say nothing."""
        return self.places[self.ran.study.question.space.design_at(values)]


@pytest.fixture(scope="module", params=range(2))
def grid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    rng = np.random.default_rng(request.param)
    words = ["space=l2_prefetch", "model=llama3_8b", "search=exhaustive"]
    for address, (how, values, count) in KNOBS.items():
        drawn = sorted(rng.choice(len(values), count, replace=False).tolist())
        is_new = address in ("chip.l2.size", "mapping.both.prefetch")
        words.append(f"{'' if is_new else '+'}space.{address}='{how.format(','.join(str(values[place]) for place in drawn))}'")
    folder = tmp_path_factory.mktemp("grid")
    space, workload = (question := toy(folder, *words).question).space, question.workload
    columns = space.grid(0, space.combinations)
    outcomes = evaluate(space.stack(columns), workload)
    keep = outcomes.limit < 0
    bounds = {name: float(f"{np.quantile(outcomes.columns[name][keep], rng.uniform(0.4, 0.9)):.4g}") for name in BOUNDED}
    texts = [f"{'' if name == 'ttft' else '+'}constraints.{name}='<= {most!r} {unit}'"
            for (name, most), unit in zip(bounds.items(), ("s", "USD"), strict=True)]  # fmt: skip
    study = toy(folder, *words, *texts)
    searched(study, budget=space.combinations)
    rows = [space.row(columns, row) for row in range(len(outcomes.limit))]
    metrics = {name: np.asarray(outcomes.columns[name]) for name in (*GOALS, *BOUNDED)}
    grid = Grid(StoredStudy(study), rows, metrics, np.asarray(outcomes.limit), bounds)
    assert grid.feasible.sum() > 10
    return grid


def test_the_front_is_that_of_all_designs(grid: Grid) -> None:
    good, all_of = np.flatnonzero(grid.feasible), grid.goals
    best = {
        tuple(grid.rows[member].items())
        for member in good
        if not any((all_of[other] >= all_of[member]).all() and (all_of[other] > all_of[member]).any() for other in good)
    }
    front = report_order(grid.ran.study, grid.ran.frame()).query("front")
    front_points = {tuple(knob_values(grid.ran.study, row.to_dict()).items()) for _, row in front.iterrows()}
    assert front_points <= best  # of designs that are equal in all objectives one
    values = {tuple(all_of[grid.place(dict(point))].round(9)) for point in front_points}
    assert values == {tuple(all_of[grid.place(dict(member))].round(9)) for member in best}


def test_each_constraint_costs_what_the_least_relaxation_that_moves_the_front_does(grid: Grid) -> None:
    """Relaxed design by design until something new is on the front; limits likewise, by what they need."""
    prices = {price.address: price for price in compute_front_shadow_prices(grid.ran.study, grid.ran.frame())}
    space, workload = grid.ran.study.question.space, grid.ran.study.question.workload
    good, needs = np.flatnonzero(grid.feasible), dict[str, dict[int, tuple[float, float]]]()
    for row in range(len(grid.rows)):
        over = [name for name, excess in zip(grid.bounds, grid.over[:, row], strict=True) if excess > 0]
        if grid.limit[row] < 0 and len(over) == 1:
            needs.setdefault(over[0], {})[row] = float(grid.metrics[over[0]][row]), grid.bounds[over[0]]
        elif grid.limit[row] >= 0 and not over:
            broken = {
                limit.address: (float(np.max(limit.need)), float(np.min(limit.have)))
                for limit in limits(space.design_at(grid.rows[row]), workload)
                if np.any(limit.need > limit.have)
            }
            if len(broken) == 1:
                ((address, both),) = broken.items()
                assert address == list(SILICON_LIMITS)[grid.limit[row]]
                needs.setdefault(address, {})[row] = both
    wanted = {}
    for address, rows in needs.items():
        moving = {
            row: need / have
            for row, (need, have) in rows.items()
            if need / have - 1 <= MAX_RELAXATION
            and not any((_as_good(grid, other) >= _as_good(grid, row) - _slack(grid, row)).all() for other in good)
        }
        if moving:
            wanted[address] = min(moving.values())
    assert {address: price.then / price.now for address, price in prices.items()} == pytest.approx(wanted)
    for price in prices.values():
        row, all_of = grid.place(dict(price.known.at)), grid.goals
        for place, (name, sign) in enumerate(GOALS.items()):
            others = [design for design in good if (np.delete(all_of[design], place) >= np.delete(all_of[row], place)).all()]
            nearest = max(others, key=lambda design, place=place: all_of[design, place], default=None)
            more = 0.0 if nearest is None else sign * (grid.metrics[name][row] - grid.metrics[name][nearest])
            assert price.gains.get(name, 0.0) == pytest.approx(max(more, 0.0), abs=1e-12 * grid.metrics[name][row])


def _as_good(grid: Grid, row: int) -> Array:
    """Objectives, more being better."""
    return np.array([sign * grid.metrics[name][row] for name, sign in GOALS.items()])


def _slack(grid: Grid, row: int) -> Array:
    """By which a design that moves the front has to be better."""
    return MIN_GAIN * np.abs(_as_good(grid, row))


def test_steps_and_elasticities_are_those_between_designs_of_the_grid(grid: Grid) -> None:
    """Both ways, by the designs that are there."""
    front = int(grid.ran.frame()["front"].sum())
    for number in sorted({1, front}):
        why = grid.ran.why(design_ids(grid.ran)[number - 1])
        assert sum(why.shares.values()) == pytest.approx(1.0)
        place = grid.place(dict(why.values))
        steps = {(change.step.knob, change.step.new): change for change in why.changes}
        wanted = set()
        for knob in (knob for knob in grid.ran.study.question.space.knobs if knob.address in why.values):
            known, old = sorted(knob.values), why.values[knob.address]
            at = known.index(old)
            near = known if knob.words else known[max(at - 1, 0) : at + 2]
            wanted |= {(knob.address, new) for new in near if new != old}
        assert set(steps) == wanted
        for (knob, new), step in steps.items():
            other_place = grid.places[step.step.design]
            assert all(old == {**why.values, knob: new}.get(other, old) for other, old in grid.rows[other_place].items())
            assert step.point.feasible == grid.feasible[other_place]
            for name in GOALS:
                ratio = grid.metrics[name][other_place] / grid.metrics[name][place]
                assert step.change[name] == pytest.approx(ratio - 1, abs=1e-12)
                if not isinstance(new, str):
                    by = log(new / why.values[knob])
                    assert step.elasticity[name] == pytest.approx(log(ratio) / by, abs=1e-12)


def test_the_next_designs_are_cheaper_and_slower_or_dearer_and_faster(grid: Grid) -> None:
    frame = report_order(grid.ran.study, grid.ran.frame())
    front = [grid.place(knob_values(grid.ran.study, row.to_dict())) for _, row in frame[frame["front"]].iterrows()]
    cost, slow = (np.log(grid.metrics[name]) for name in ("system_price", "tpot"))
    for number in sorted({0, len(front) // 2, len(front) - 1}):
        why, place = grid.ran.why(design_ids(grid.ran)[number]), front[number]
        for near, side in ((why.cheaper, -1), (why.faster, 1)):
            apart = {design: (side * (cost[design] - cost[place]), side * (slow[place] - slow[design])) for design in front}
            far = {design: sum(both) for design, both in apart.items() if min(both) >= APART}
            assert (near is None) == (not far)
            if near is not None:
                other_place = grid.place(
                    {**why.values, **{knob: new for knob, (_, new) in near.knobs.items() if new is not None}}
                )
                assert far[other_place] == pytest.approx(min(far.values()))


def test_each_step_of_the_way_is_the_best_next_one_and_the_last_one_is_there(grid: Grid) -> None:
    rng, space = np.random.default_rng(len(grid.rows)), grid.ran.study.question.space
    frame = report_order(grid.ran.study, grid.ran.frame())
    front = set(frame["design"][frame["front"]])
    good = grid.goals[grid.feasible]
    beaten = [row for row in np.flatnonzero(grid.limit < 0) if (good > grid.goals[row]).all(axis=1).any()]
    for row in rng.choice(beaten, min(2, len(beaten)), replace=False).tolist():
        now = dict(grid.rows[row])
        units = {knob: space.spec(knob).metadata["unit"] for knob in now}
        dominance = grid.ran.whynot(
            [
                f"{knob}={value}" if units[knob] in ("", "1") else f"{knob}='{value!r} {units[knob]}'"
                for knob, value in now.items()
            ]
        )
        assert dominance.target is not None
        assert {rival.name for rival in dominance.rivals} <= front
        waiting = {knob: new for knob, (_, new) in dominance.target.knobs.items()}

        def score(place: int, row: int = row) -> tuple[float, float]:
            given_limits = limits(space.design_at(grid.rows[place]), grid.ran.study.question.workload)
            over = [float(np.max(limit.need / limit.have)) - 1 for limit in given_limits]
            return -max(*over, *grid.over[:, place], 0.0), float((grid.goals[place] - grid.goals[row]).sum())

        for hop in dominance.path:
            assert hop.knob != OUTSIDE
            scores = {knob: score(grid.place({**now, knob: new})) for knob, new in waiting.items()}
            assert scores[hop.knob] == pytest.approx(max(scores.values()))
            now[hop.knob] = waiting.pop(hop.knob)
            assert hop.point.feasible == grid.feasible[grid.place(now)]
            assert hop.point.metrics["tpot"] == pytest.approx(grid.metrics["tpot"][grid.place(now)])
        assert not waiting
        stored = knob_values(grid.ran.study, frame[frame[DESIGN] == dominance.target.name].iloc[0].to_dict())
        assert now == stored
