"""Evaluation of designs in several processes, if there are enough designs to repay their start."""

import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from math import inf

from dse.evaluators.evaluation import FIDELITIES
from dse.execution.pool.choice import map_beside_this_process
from dse.execution.pool.dispatch import repays_start
from dse.execution.pool.worker_settings import WorkerSettings, cpu_count
from dse.explanations.kept_answers import NOTHING_KEPT, KeptAnswers
from dse.explanations.neighbours import DESIGNS_PER_S, DesignOutcome, StudyGoal, evaluate_points, find_known_outcomes
from dse.space.design import Design, stack_designs
from dse.space.machines import machine_of

START_S = 2.0
"""What a process takes to import what evaluates. [s]"""

MOST = 0.75
"""Of all structures, what a kind of chip has at most without being cut: its designs share much of what is worked out."""


def evaluate_in_processes(
    designs: Sequence[Design],
    goal: StudyGoal,
    crew: WorkerSettings,
    *,
    seconds: float = inf,
    kept: KeptAnswers = NOTHING_KEPT,
) -> list[DesignOutcome | None]:
    """Outcomes of designs, in several processes of this machine if that takes less time.

    Args:
        designs, goal: as of `points`.
        crew: how many processes may work.
        seconds: after which no more are evaluated.
        kept: where outcomes may be known already, and where new ones go.

    Returns:
        One a design, in order; None of those that there was no time for.
    """
    every = list(dict.fromkeys(designs))
    points: dict[Design, DesignOutcome | None] = dict(find_known_outcomes(every, goal, kept))
    different = [design for design in every if design not in points]
    count = min(crew.count, cpu_count()) or cpu_count()
    repays = repays_start(len(different) / DESIGNS_PER_S, count, START_S)
    if crew.kind == "serial" or goal.fidelity != FIDELITIES[0] or not repays or seconds <= START_S:
        points.update(zip(different, evaluate_points(different, goal, seconds=seconds, kept=kept), strict=True))
        return [points[design] for design in designs]
    parts = split_designs(different, count)
    answers = map_beside_this_process(partial(_evaluate_until, goal=goal, end=time.time() + seconds, kept=kept), parts)
    for part, answer in zip(parts, answers, strict=True):
        points.update(zip(part, answer, strict=True))
    return [points[design] for design in designs]


def _evaluate_until(designs: Sequence[Design], goal: StudyGoal, end: float, kept: KeptAnswers) -> list[DesignOutcome | None]:
    """`points` until a time by the clock of the machine. [s]"""
    return evaluate_points(designs, goal, seconds=end - time.time(), kept=kept)


def split_designs(designs: Sequence[Design], count: int) -> list[list[Design]]:
    """Designs in shares for processes, with about equally many design groups each, largest first.

    A design group takes about as long for few designs as for many. Kinds of chips stay together, but for one that has nearly
    all.
    """
    groups = stack_designs(designs).groups
    kinds = defaultdict[str, list[list[int]]](list)
    for rows, design in groups:
        kinds[machine_of(design.chip)].append(rows.tolist())
    pieces: list[list[list[int]]] = []
    for kind in kinds.values():
        cut = count if len(kind) > MOST * len(groups) else 1
        pieces += [kind[place * len(kind) // cut : (place + 1) * len(kind) // cut] for place in range(cut)]
    shares: list[list[list[int]]] = [[] for _ in range(count)]
    for piece in sorted(pieces, key=len, reverse=True):
        min(shares, key=len).extend(piece)
    return [[designs[row] for rows in share for row in rows] for share in sorted(shares, key=len, reverse=True) if share]
