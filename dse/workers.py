"""Who evaluates: the driver itself, or processes of its own. A design that fails costs only itself."""

import time
from collections.abc import Sequence
from typing import Any

from dse.store import Result
from evaluators import evaluate
from evaluators.metrics import LIMITS
from space.design import Design, stacked
from space.workload import Workload

Batch = Sequence[tuple[str, dict[str, Any], Design]]
"""(key, values, design) of designs to evaluate."""


class Serial:
    """Evaluates in the driver's process, a batch at once."""

    def __init__(self, workload: Workload, fidelity: str) -> None:
        self._workload = workload
        self._fidelity = fidelity

    def map(self, batch: Batch) -> list[Result]:
        """Results in the order of the batch; where the batch as a whole fails, designs are tried one by one."""
        try:
            return results(batch, self._workload, self._fidelity)
        except Exception:  # any fault of one design must not cost the others
            return [self._alone(entry) for entry in batch]

    def _alone(self, entry: tuple[str, dict[str, Any], Design]) -> Result:
        try:
            return results([entry], self._workload, self._fidelity)[0]
        except Exception as error:
            return Result(entry[0], entry[1], error=f"{type(error).__name__}: {error}")


def results(batch: Batch, workload: Workload, fidelity: str) -> list[Result]:
    """Evaluates a batch in this process."""
    start = time.perf_counter()
    outcomes = evaluate(stacked([design for _, _, design in batch]), workload, fidelity=fidelity)
    seconds = (time.perf_counter() - start) / len(batch)
    columns = {name: column.tolist() for name, column in outcomes.columns.items()}
    found = []
    for row, (key, values, _) in enumerate(batch):
        limit = int(outcomes.limit[row])
        metrics = {name: column[row] for name, column in columns.items() if column[row] == column[row]}
        binding = list(LIMITS)[limit] if limit >= 0 else ""
        found.append(Result(key, values, metrics, binding, float(outcomes.need[row]), float(outcomes.have[row]), seconds))
    return found
