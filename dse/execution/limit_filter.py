"""Designs that violate a limit known before simulation: samplers skip them, workers never get them.

An evaluation with serving or kernel simulation takes seconds, its limits a thousandth of that. The analytical model of a batch
takes as long as its limits, so there only early limits are checked, which a layout knows before it computes any cost: how many
dies a division takes, and how requests are spread over them.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from dse.evaluators.accounting.outcomes import SILICON_LIMITS
from dse.evaluators.evaluation import early_limits, find_worst_limits, is_simulated
from dse.search.samplers import Values
from dse.space.design_columns import columns_from_values
from dse.space.multi_chip_space import AnySpace
from dse.space.workload import Workload
from dse.store.store import DesignResult

LimitFilter = Callable[[str, Values], DesignResult | None]
"""What comes of a design, by its key and values, where a limit rules it out; None where it has to be evaluated."""

_Broken = tuple[str, float, float]
"""Which limit a design breaks most, what it needs of it, and what there is."""


def accept_all(key: str, values: Values) -> None:
    """Accept every design for evaluation."""


class EarlyLimits:
    """Limits of a space's designs for a workload, each design checked once, several together.

    Args:
        space: whose designs they are.
        workload: of the designs.
        soon: whether only limits count that are known before any cost is computed.
    """

    def __init__(self, space: AnySpace, workload: Workload, *, soon: bool = False) -> None:
        self._space, self._load_workload, self._soon = space, workload, soon
        self._known: dict[tuple[tuple[str, Any], ...], _Broken | None] = {}

    def ruled_out(self, key: str, values: Values) -> DesignResult | None:
        """Result of a design that violates a limit, without metrics; None if it keeps all."""
        (worst,) = self._worst_violations([self._space.canonical(values)])
        return DesignResult(key, values, {}, *worst) if worst else None

    @property
    def refusal_counts(self) -> dict[str, int]:
        """Number of checked designs that each limit rules out."""
        return dict(Counter(worst[0] for worst in self._known.values() if worst))

    def find_possible(self, several: Sequence[Values]) -> list[bool]:
        """Whether designs keep all limits; each is given by its active knobs."""
        return [worst is None for worst in self._worst_violations(several)]

    def _worst_violations(self, several: Sequence[Values]) -> list[_Broken | None]:
        """What binds designs most; None where every limit holds."""
        names = [tuple(values.items()) for values in several]
        new = {name: values for name, values in zip(names, several, strict=True) if name not in self._known}
        if new:
            designs = self._space.stack(columns_from_values(self._space, list(new.values())))
            limits = find_worst_limits(designs, self._load_workload, soon=self._soon)
            words = list(SILICON_LIMITS)
            for name, limit, need, have in zip(
                new, limits.limit.tolist(), limits.need.tolist(), limits.have.tolist(), strict=True
            ):
                self._known[name] = (words[limit], need, have) if limit >= 0 else None
        return [self._known[name] for name in names]


def make_early_limits(space: AnySpace, workload: Workload, fidelity: str) -> EarlyLimits | None:
    """Limits to check before evaluation; None if an evaluation takes no longer than its limits."""
    bases = [member.base for _, member in space.base_spaces]
    if any(is_simulated(base, workload, fidelity) for base in bases):
        return EarlyLimits(space, workload)
    return EarlyLimits(space, workload, soon=True) if any(early_limits(base, workload) for base in bases) else None


def is_ruled_out(result: DesignResult) -> bool:
    """Whether a stored result is of a design that was not evaluated since a limit rules it out."""
    return bool(result.limit) and not result.metrics and not result.error


def count_by_limit(results: Any) -> dict[str, int]:
    """Number of results that each limit rules out, most frequent first."""
    counts: dict[str, int] = {}
    for result in results:
        if is_ruled_out(result):
            counts[result.limit] = counts.get(result.limit, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))
