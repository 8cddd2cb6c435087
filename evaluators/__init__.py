"""Evaluation of designs under a workload: `evaluate` gives the metrics."""

if __name__ == "evaluators":  # a second copy of every class, where the repository is on the path
    raise ImportError("import dse.evaluators: this folder is part of the package dse")

from typing import Any

from dse.evaluators.accounting.metrics import METRICS, Metric, load_metric_plugins
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.evaluation import (
    FIDELITIES,
    PHYSICS_VERSION,
    case_types_at_fidelity,
    evaluate,
    explain,
    fidelities,
    fidelity_names,
    submesh_text,
)

FORMER_NAMES = {
    "PHYSICS": "PHYSICS_VERSION",
    "alone": "case_types_at_fidelity",
    "readers": "fidelity_names",
    "smaller": "submesh_text",
}
"""Names of PHYSICS 31 and before, which are answered for one release."""


def __getattr__(name: str) -> Any:
    """Return what a former name of this package stands for."""
    if name in FORMER_NAMES:
        return globals()[FORMER_NAMES[name]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


load_metric_plugins()  # here, since packages import what is above

__all__ = [
    "FIDELITIES",
    "METRICS",
    "PHYSICS_VERSION",
    "Metric",
    "Outcomes",
    "case_types_at_fidelity",
    "evaluate",
    "explain",
    "fidelities",
    "fidelity_names",
    "submesh_text",
]
