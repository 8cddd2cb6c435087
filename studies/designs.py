"""Evaluation of a study's design with sets of changed leaves."""

from collections.abc import Mapping, Sequence

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.space.design import stack_designs
from dse.space.fields import replace_leaves


def metrics(name: str, changes: Sequence[Mapping[str, object]], *overrides: str) -> list[dict[str, float]]:
    """Metrics of the study's design for each set of changes, which are leaves by address in SI."""
    question = find_study(name, *overrides).question
    evaluation = evaluate(stack_designs([replace_leaves(question.base, change) for change in changes]), question.workload)
    assert evaluation.feasible.all(), f"{name}: a design does not fit"
    return [{metric: float(column[row]) for metric, column in evaluation.columns.items()} for row in range(len(changes))]
