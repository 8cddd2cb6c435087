"""Designs in, metrics out. `evaluate` is the one door."""

if __name__ == "evaluators":  # a second copy of every class, where the repository is on the path
    raise ImportError("import dse.evaluators: this folder is part of the package dse")

from dse.evaluators.account.metrics import METRICS, Metric, extend
from dse.evaluators.account.outcomes import Outcomes
from dse.evaluators.evaluation import FIDELITIES, PHYSICS, alone, evaluate, explain, fidelities, readers, smaller

extend()  # here, since packages import what is above

__all__ = [
    "FIDELITIES",
    "METRICS",
    "PHYSICS",
    "Metric",
    "Outcomes",
    "alone",
    "evaluate",
    "explain",
    "fidelities",
    "readers",
    "smaller",
]
