"""Designs in, metrics out. `evaluate` is the one door."""

from evaluators.evaluation import FIDELITIES, PHYSICS, alone, evaluate, explain, fidelities, smaller
from evaluators.metrics import METRICS, Metric, Outcomes

__all__ = ["FIDELITIES", "METRICS", "PHYSICS", "Metric", "Outcomes", "alone", "evaluate", "explain", "fidelities", "smaller"]
