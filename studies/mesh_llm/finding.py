"""Findings on the papers' chips as points of one space: metrics on the load of the study."""

from dse.commands.notebook_api import find_study
from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import find_worst_violation
from dse.space.design import stack_designs
from dse.space.units import format_quantity
from dse.studies.write import table


def finding() -> str:
    """One row per chip, with the settings of its paper."""
    study = find_study("mesh_llm")
    names = [*study.objectives, "ttft", "slo_attainment"]
    rows = []
    for name, values in study.points.items():
        design = study.question.space.design_at(values)
        worst = find_worst_violation(design, study.question.workload)
        if worst is None:
            columns = evaluate(stack_designs([design]), study.question.workload).columns
            cells = [format_quantity(float(columns[metric][0]), METRICS[metric].unit) for metric in names]
        else:
            need, have = (format_quantity(float(value), worst.unit) for value in (worst.need, worst.have))
            cells = [f"needs {need} of {worst.limit}, has {have}", *[""] * (len(names) - 1)]
        rows.append([name, str(values["chip"]), *cells])
    return "The papers' chips, as they are, on this load:\n\n" + table(["paper", "chip", *names], rows)
