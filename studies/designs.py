"""Evaluation of designs for the findings of studies: as numbers, or as cells of a table."""

from collections.abc import Mapping, Sequence

from dse.commands.notebook_api import find_study
from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import find_worst_violation
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.units import format_quantity
from dse.space.workload import Workload


def metrics(name: str, changes: Sequence[Mapping[str, object]], *overrides: str) -> list[dict[str, float]]:
    """Metrics of the study's design for each set of changes, which are leaves by address in SI."""
    question = find_study(name, *overrides).question
    evaluation = evaluate(stack_designs([replace_leaves(question.base, change) for change in changes]), question.workload)
    assert evaluation.feasible.all(), f"{name}: a design does not fit"
    return [{metric: float(column[row]) for metric, column in evaluation.columns.items()} for row in range(len(changes))]


def compose_study(name: str, *overrides: str) -> Question:
    """Question of a study, as `dse evaluate study=NAME` asks it; its named points are left out."""
    config = compose((f"study={name}", *overrides))
    return build_question(config, find_study_folder(config), fewer=True)


def metric_cells(design: Design, workload: Workload, names: Sequence[str], fidelity: str) -> list[str]:
    """Metrics of a design as text, or the limit that it violates and empty cells."""
    worst = find_worst_violation(design, workload)
    outcomes = evaluate(stack_designs([design]), workload, fidelity=fidelity)
    if worst is None and outcomes.feasible[0]:
        return [format_quantity(float(outcomes.columns[name][0]), METRICS[name].unit) for name in names]
    return [str(worst or outcomes.row_outcome(0)), *[""] * (len(names) - 1)]
