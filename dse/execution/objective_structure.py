"""Structure of a study's objectives: parts of evaluations, and metrics that need no evaluation.

Parts are kept in the study's store.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dse.evaluators.accounting.metric_compositions import ENERGY, free_metrics, metric_compositions
from dse.evaluators.evaluation import explain, fidelities, is_simulated, power_over_time
from dse.execution.study import Study
from dse.search.samplers import Values
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.design_columns import columns_from_values
from dse.space.metric_composition import MetricComposition
from dse.space.workload import Workload
from dse.store.store import DesignResult, Store
from dse.terminal.progress import say_once

PARTS = "parts"
"""Question under which the store keeps parts."""


class EvaluationStructure:
    """Compositions of a study's objectives, and the parts of its evaluations.

    Parts are a function of the design. So those that a store lacks, as one of an earlier version does, are computed again.

    Args:
        study: the study.
        store: where parts are kept; None for a search without a store.

    Attributes:
        compositions: of each objective; None for one that is modelled as it is.
    """

    def __init__(self, study: Study, store: Store | None) -> None:
        workload, bases = study.question.workload, [space.base for _, space in study.question.space.base_spaces]
        self._study, self._store = study, store
        self._known: dict[str, Mapping[str, float]] = {}
        self._new: dict[str, Mapping[str, float]] = {}
        known = all(study.fidelity in fidelities(base, workload) for base in bases)
        closed = known and not any(is_simulated(base, workload, study.fidelity) for base in bases)
        alike = len(bases) == 1  # parts of unlike chips have other names, and 0 for one that a chip lacks teaches nothing
        made = metric_compositions(workload, study.objectives, closed=closed) if known and alike else {}
        self.compositions: Sequence[MetricComposition | None] = [made.get(name) for name in study.objectives]
        self._names = [name for name, composition in made.items() if composition.parts]

    def load(self, keys: Sequence[str]) -> None:
        """Read the parts of some designs from the store, as far as they are there."""
        if self._names and self._store is not None:
            self._known |= self._store.find_explanations(self._study.context, PARTS, keys)

    def keep(self) -> None:
        """Write parts that are new to the store."""
        if self._store is not None:
            self._store.keep_explanations(self._study.context, PARTS, self._new)
        self._new = {}

    def parts_of(self, result: DesignResult) -> Mapping[str, float]:
        """Parts of a result's evaluation; empty where it has none, or where one of them is no number."""
        if not self._names or not result.metrics:
            return {}
        if result.key not in self._known:
            self._known[result.key] = self._new[result.key] = self._compute(result)
        return self._known[result.key]

    def free_metrics(self, designs: Sequence[Values]) -> Mapping[str, Array]:
        """Metrics that are known without an evaluation, shape (designs,) each."""
        space = self._study.question.space
        return free_metrics(space.stack(columns_from_values(space, designs)), self._study.question.workload)

    def _compute(self, result: DesignResult) -> Mapping[str, float]:
        question = self._study.question
        try:
            design = question.space.design_at(result.values)
            parts = evaluation_parts(design, question.workload, self._study.fidelity, self._names)
        except Exception as error:  # a breakdown that fails must not end a search that can go on without it
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            say_once(f"  search: an evaluation has no parts ({reason}); objectives are modelled as they are")
            return {}
        wrong = next((name for name, value in parts.items() if not math.isfinite(value)), None)
        if wrong is not None:
            say_once(f"  search: the part {wrong!r} of an evaluation is no number; objectives are modelled as they are")
            return {}
        return parts


def evaluation_parts(design: Design, workload: Workload, fidelity: str, names: Collection[str]) -> dict[str, float]:
    """Parts of one design's evaluation that metrics are composed of, by name.

    Cases count by their weights.

    Args:
        design: leaves are all scalar.
        workload: its cases.
        fidelity: of the evaluation.
        names: metrics to compose.

    Returns:
        Seconds and joules. Empty for a design that nothing can lay out, and for metrics that need no parts.
    """
    prefixes = {prefix for made in metric_compositions(workload, names).values() for prefix in made.parts}
    weights = workload.case_weights or (1.0 / len(workload.cases),) * len(workload.cases)
    parts: dict[str, float] = {}
    for case, weight in zip(workload.cases, weights, strict=True) if prefixes else ():
        amounts: dict[str, float] = {}
        if prefixes - {ENERGY}:
            for row in explain(design, case, decode_context=workload.decode_context, fidelity=fidelity).rows:
                for bound, seconds in row.parts.items():
                    amounts[f"{row.phase}: {bound}"] = amounts.get(f"{row.phase}: {bound}", 0.0) + seconds
        profile = power_over_time(design, case, fidelity=fidelity) if ENERGY in prefixes else None
        if profile is not None:
            for name, joules in zip(profile.names, profile.watts * np.diff(profile.instants), strict=True):
                amounts[f"{ENERGY}{name}"] = float(joules)
        for name, value in amounts.items():
            parts[name] = parts.get(name, 0.0) + weight * value
    return parts
