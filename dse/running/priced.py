"""What a lower fidelity says of a study's designs: the best of its screen, and others as they are looked at.

A design is priced once. What a screen has is read from its blocks; the rest is stored as results of the lower fidelity, so
that a search that goes on prices nothing again. It is not of the budget, which counts designs at the study's fidelity.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dse.config.expressions import known
from dse.running.ask_tell import base_of, told
from dse.running.frame import values_of
from dse.running.screen import Screened
from dse.running.study import Study
from dse.running.workers import attempted, evaluator
from dse.search.acquisition import lag
from dse.search.pareto import minimised
from dse.search.promoted import POOL
from dse.search.samplers import Told, Values
from dse.space.elementwise import Array
from dse.store.store import Result, Store


class Priced:
    """The lower fidelity of a study that promotes designs.

    Args:
        asked: the study.
        store: where results go, each under its fidelity.
        screened: what its screen found at that fidelity; None where none ran.
    """

    def __init__(self, asked: Study, store: Store, screened: Screened | None) -> None:
        self.fidelity = str(asked.search["promote"])
        self._asked, self._store = asked, store
        self._context = asked.context_at(self.fidelity)
        self._evaluate = evaluator(asked.question.workload, self.fidelity)
        self._known = store.results(self._context)
        self.pool: Sequence[tuple[Values, Told]] = _best(asked, screened) if screened is not None else ()
        self.all = screened is not None and screened.exact

    def __str__(self) -> str:
        of = f"the {len(self.pool):,} best of the screen" if self.pool else "a sample"
        return f"from {of} at {self.fidelity}" + ("" if self.all and self.pool else ", and neighbours that it prices")

    def told(self, designs: Sequence[Values]) -> list[Told]:
        """What is known of designs; those that are new are evaluated together, and stored."""
        space = self._asked.question.space
        keys = [space.key_at(values) for values in designs]
        new = {key: values for key, values in zip(keys, designs, strict=True) if key not in self._known}
        if new:
            found = attempted(self._evaluate, [(key, values, space.at(values)) for key, values in new.items()], 0)
            self._known |= {result.key: result for result in found}
            self._store.append(self._asked.name, self._context, base_of(self._asked), [], found)
        return [self._told(self._known[key]) for key in keys]

    def _told(self, result: Result) -> Told:
        if result.error or not result.limit:
            return told(self._asked, result)
        metrics = known(result.metrics, self._asked.question.defined)
        whole = all(name in metrics for name in (*self._asked.objectives, *(bound.metric for bound in self._asked.bounds)))
        return (
            told(self._asked, result) if whole else Told(None, {"limit": result.need / result.have - 1 if result.have else 1.0})
        )


def _best(asked: Study, screened: Screened) -> list[tuple[Values, Told]]:
    """The designs of a screen that come nearest to its front, with what it says of them, in the order of the screen."""
    knobs = [knob.address for knob in asked.question.space.knobs]
    names = list(dict.fromkeys([*asked.objectives, *(bound.metric for bound in asked.bounds)]))
    front = minimised(screened.front[list(asked.objectives)].to_numpy(dtype=float), asked.directions)
    if not len(front):
        return []
    low, reach = front.min(axis=0), np.where(np.ptp(front, axis=0) > 0, np.ptp(front, axis=0), 1.0)
    parts: list[pd.DataFrame] = []
    behind: list[Array] = []
    for file in screened.blocks:
        table = file.table([*knobs, *names, "limit", "excess"]).to_pandas()
        table = table[table["limit"].isna() & table[names].notna().all(axis=1)]
        values = minimised(table[list(asked.objectives)].to_numpy(dtype=float), asked.directions)
        excess = sum(
            (np.maximum(_excess(asked, table, place), 0.0) for place in range(len(asked.bounds))), np.zeros(len(table))
        )
        far = lag(values, np.asarray(excess), front, low, reach)
        keep = np.sort(np.argsort(far, kind="stable")[:POOL])
        parts.append(table.iloc[keep])
        behind.append(far[keep])
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.iloc[np.sort(np.argsort(np.concatenate(behind), kind="stable")[:POOL])]
    bounds = {str(bound): _excess(asked, frame, place) for place, bound in enumerate(asked.bounds)}
    found = []
    for row, record in enumerate(frame.to_dict("records")):
        constraints = {"limit": 0.0, **{name: float(column[row]) for name, column in bounds.items()}}
        found.append((values_of(asked, record), Told(tuple(float(record[name]) for name in asked.objectives), constraints)))
    return found


def _excess(asked: Study, frame: pd.DataFrame, place: int) -> Array:
    bound = asked.bounds[place]
    return np.asarray(bound.excess(frame[bound.metric].to_numpy(dtype=float)))
