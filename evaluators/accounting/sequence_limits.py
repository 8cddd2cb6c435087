"""Limit on sequence lengths: the positions that a model was trained for."""

from dse.evaluators.accounting.metrics import CaseOutcomes
from dse.space.limits import Limit
from dse.space.memoize import memoize_by_identity
from dse.space.workload import BatchCase, ServingLoad, Workload

LENGTH = "model.max_position"


@memoize_by_identity
def length_limits(workload: Workload) -> list[CaseOutcomes]:
    """Length limit of each case with a model, independent of the design."""
    return [
        CaseOutcomes((row,), {}, [Limit(LENGTH, float(case.longest), float(case.model.max_position), "token")])
        for row, case in enumerate(workload.cases)
        if isinstance(case, BatchCase | ServingLoad)
    ]


def length_advice_text(workload: Workload) -> str:
    """What to change for sequences longer than a model's positions; empty string if there are none."""
    models = [case for case in workload.cases if isinstance(case, BatchCase | ServingLoad)]
    beyond = [case for case in models if case.longest > case.model.max_position]
    if not beyond:
        return ""
    worst = max(beyond, key=lambda case: case.longest / case.model.max_position)
    several = f"{len(beyond)} of {len(models)} cases, the longest with " if len(models) > 1 else ""
    return (
        f"{several}{worst.longest:,} tokens of prompt and output on {worst.model.name}: shorten "
        f"requests, choose a model with longer context, or set model.max_position={worst.longest} "
        "if the model was extended"
    )
