"""Findings on the papers' chips: at the load that each carries, and as fleets of a demand."""

from collections.abc import Sequence

from dse.commands.notebook_api import find_study
from dse.evaluators import METRICS, evaluate
from dse.evaluators.evaluation import find_worst_violation
from dse.space.design import Design, stack_designs
from dse.space.units import format_quantity
from dse.space.workload import Workload
from dse.studies.markdown_table import table

DEMANDS = (1, 10, 100)
"""Requests a second of fleets."""

NODES = ("n5", "n7")


def finding() -> str:
    """Tables of the papers' chips, simulated, and of fleets of them in the steady state."""
    study = find_study("mesh_llm")
    names = [*study.objectives, "max_rate", "ttft_p90", "tpot"]
    rows = []
    for node in NODES:
        of_node = find_study("mesh_llm", f"technology@chip.technology={node}")
        for name, values in of_node.points.items():
            design = of_node.question.space.design_at(values)
            rows.append([name, str(values["chip"]), node, *_cells(design, of_node.question.workload, names, "analytical")])
    text = "The papers' chips, as they are, at the load that each carries (simulated):\n\n"
    text += table(["paper", "chip", "node", *names], rows)
    whole = ["fleet_systems", "fleet_throughput_per_mm2", "energy_per_token", "price_per_mtoken"]
    rows = []
    for demand in DEMANDS:
        fleet = find_study("mesh_llm", f"workload.demand='{demand} Hz'")
        for name, values in fleet.points.items():
            cells = _cells(fleet.question.space.design_at(values), fleet.question.workload, whole, "steady_state")
            rows.append([f"{demand} Hz", name, *cells])
    return f"{text}\n\nAs fleets of whole systems (steady state):\n\n{table(['demand', 'paper', *whole], rows)}"


def _cells(design: Design, workload: Workload, names: Sequence[str], fidelity: str) -> list[str]:
    """Metrics of a design as text, or the limit that it breaks."""
    worst = find_worst_violation(design, workload)
    outcomes = evaluate(stack_designs([design]), workload, fidelity=fidelity)
    if worst is None and outcomes.feasible[0]:
        return [format_quantity(float(outcomes.columns[name][0]), METRICS[name].unit) for name in names]
    return [str(worst or outcomes.row_outcome(0)), *[""] * (len(names) - 1)]
