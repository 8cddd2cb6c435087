"""Low-fidelity results of a study's designs: the best of its screen, and further ones on request.

A design is evaluated once at the lower fidelity. Results of a screen are read from its blocks; the rest is stored as results of
the lower fidelity, so that a resumed search evaluates nothing again. They are not part of the budget, which counts designs at
the study's fidelity.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dse.config.metric_expressions import extend_with_derived_metrics
from dse.execution.ask_tell import base_design_key, compute_feedback
from dse.execution.result_frame import knob_values
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.execution.workers import evaluate_with_retries, make_evaluator
from dse.search.acquisition import front_distance
from dse.search.multi_fidelity import POOL_SIZE
from dse.search.pareto import convert_to_minimisation
from dse.search.samplers import Feedback, Values
from dse.space.array_math import Array
from dse.store.store import DesignResult, Store


class LowFidelity:
    """Lower fidelity of a study that promotes designs.

    Args:
        asked: the study.
        store: where results go, each under its fidelity.
        screened: what its screen found at that fidelity; None where none ran.
    """

    def __init__(self, study: Study, store: Store, screened: ScreenResult | None) -> None:
        self.fidelity = str(study.search.promote)
        self._asked, self._store = study, store
        self._context = study.context_at(self.fidelity)
        self._evaluate = make_evaluator(study.question.workload, self.fidelity)
        self._known = store.results(self._context)
        self.pool: Sequence[tuple[Values, Feedback]] = _best_screened(study, screened) if screened is not None else ()
        self.all = screened is not None and screened.exact

    def __str__(self) -> str:
        pool_text = f"the {len(self.pool):,} best of the screen" if self.pool else "a sample"
        return f"from {pool_text} at {self.fidelity}" + ("" if self.all and self.pool else ", and neighbours that it prices")

    def feedback_on(self, designs: Sequence[Values]) -> list[Feedback]:
        """Low-fidelity results of designs; new ones are evaluated together, and stored."""
        space = self._asked.question.space
        keys = [space.key_at(values) for values in designs]
        new = {key: values for key, values in zip(keys, designs, strict=True) if key not in self._known}
        if new:
            results = evaluate_with_retries(
                self._evaluate, [(key, values, space.design_at(values)) for key, values in new.items()], 0
            )
            self._known |= {result.key: result for result in results}
            self._store.append(self._asked.name, self._context, base_design_key(self._asked), [], results)
        return [self._make_feedback(self._known[key]) for key in keys]

    def _make_feedback(self, result: DesignResult) -> Feedback:
        if result.error or not result.limit:
            return compute_feedback(self._asked, result)
        metrics = extend_with_derived_metrics(result.metrics, self._asked.question.defined)
        whole = all(name in metrics for name in (*self._asked.objectives, *(bound.metric for bound in self._asked.bounds)))
        return (
            compute_feedback(self._asked, result)
            if whole
            else Feedback(None, {"limit": result.need / result.have - 1 if result.have else 1.0})
        )


def _best_screened(study: Study, screened: ScreenResult) -> list[tuple[Values, Feedback]]:
    """The designs of a screen that come nearest to its front, with what it says of them, in the order of the screen."""
    knobs = [knob.address for knob in study.question.space.knobs]
    names = list(dict.fromkeys([*study.objectives, *(bound.metric for bound in study.bounds)]))
    front = convert_to_minimisation(screened.front[list(study.objectives)].to_numpy(dtype=float), study.directions)
    if not len(front):
        return []
    low, reach = front.min(axis=0), np.where(np.ptp(front, axis=0) > 0, np.ptp(front, axis=0), 1.0)
    parts: list[pd.DataFrame] = []
    behind: list[Array] = []
    for file in screened.blocks:
        table = file.read_table([*knobs, *names, "limit", "excess"]).to_pandas()
        table = table[table["limit"].isna() & table[names].notna().all(axis=1)]
        values = convert_to_minimisation(table[list(study.objectives)].to_numpy(dtype=float), study.directions)
        excess = sum(
            (np.maximum(_bound_excess(study, table, place), 0.0) for place in range(len(study.bounds))), np.zeros(len(table))
        )
        far = front_distance(values, np.asarray(excess), front, low, reach)
        keep = np.sort(np.argsort(far, kind="stable")[:POOL_SIZE])
        parts.append(table.iloc[keep])
        behind.append(far[keep])
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.iloc[np.sort(np.argsort(np.concatenate(behind), kind="stable")[:POOL_SIZE])]
    bounds = {str(bound): _bound_excess(study, frame, place) for place, bound in enumerate(study.bounds)}
    best = []
    for row, record in enumerate(frame.to_dict("records")):
        constraints = {"limit": 0.0, **{name: float(column[row]) for name, column in bounds.items()}}
        best.append(
            (knob_values(study, record), Feedback(tuple(float(record[name]) for name in study.objectives), constraints))
        )
    return best


def _bound_excess(study: Study, frame: pd.DataFrame, place: int) -> Array:
    bound = study.bounds[place]
    return np.asarray(bound.excess(frame[bound.metric].to_numpy(dtype=float)))
