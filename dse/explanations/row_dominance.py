"""Rows of a study's table that beat a design, or that it beats, in the objectives of a goal."""

import numpy as np
import pandas as pd

from dse.explanations.neighbours import DesignOutcome, StudyGoal
from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array


def objective_sides(goal: StudyGoal, outcome: DesignOutcome, rows: pd.DataFrame) -> tuple[Array, Array] | None:
    """Objectives to be made small of a design and of rows; None if the design lacks one.

    Shapes (objectives,) and (rows, objectives).
    """
    names, directions = list(goal.objectives), list(goal.objectives.values())
    if any(name not in outcome.metrics for name in names):
        return None
    mine = convert_to_minimisation(np.array([[outcome.metrics[name] for name in names]]), directions)[0]
    return mine, convert_to_minimisation(rows[names].to_numpy(dtype=float).reshape(-1, len(names)), directions)


def find_better_rows(goal: StudyGoal, outcome: DesignOutcome, rows: pd.DataFrame) -> Array:
    """Mask of the rows that are as good in all objectives and better in one, shape (rows,).

    None are where the design has no metrics.
    """
    sides = objective_sides(goal, outcome, rows)
    if sides is None:
        return np.zeros(len(rows), dtype=bool)
    mine, theirs = sides
    return np.asarray((theirs <= mine).all(axis=1) & (theirs < mine).any(axis=1))


def find_worse_rows(goal: StudyGoal, outcome: DesignOutcome, rows: pd.DataFrame) -> Array:
    """Mask of the rows that a design beats, shape (rows,); none if it is not feasible."""
    sides = objective_sides(goal, outcome, rows)
    if sides is None or not outcome.feasible:
        return np.zeros(len(rows), dtype=bool)
    mine, theirs = sides
    return np.asarray((theirs >= mine).all(axis=1) & (theirs > mine).any(axis=1))
