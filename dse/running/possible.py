"""Designs that break a limit which is known before anything is played: samplers pass them over, workers never get them.

An evaluation that plays requests or kernels takes seconds, its limits a thousandth of that. The closed form of a batch takes as
long as its limits do, so there only those are looked at first that a layout knows before it prices anything: how many dies a
division takes, and how requests are spread over them.
"""

from collections.abc import Callable
from typing import Any

from dse.evaluators.evaluation import binding, binding_early, early, plays
from dse.search.samplers import Values
from dse.space.chips import AnySpace
from dse.space.design import Design
from dse.space.limits import Infeasible
from dse.space.workload import Workload
from dse.store.store import Result

RuledOut = Callable[[str, Values], Result | None]
"""What comes of a design, by its key and values, where a limit rules it out; None where it has to be evaluated."""


def nothing_ruled_out(key: str, values: Values) -> None:
    """Every design is evaluated."""


class Limits:
    """The limits of a space's designs under a workload, each worked out once.

    Args:
        space: whose designs they are.
        workload: what is asked of them.
        binds: what binds a design most, of the limits that count.
    """

    def __init__(
        self, space: AnySpace, workload: Workload, binds: Callable[[Design, Workload], Infeasible | None] = binding
    ) -> None:
        self._space = space
        self._workload = workload
        self._binds = binds
        self._known: dict[str, Result | None] = {}

    def ruled_out(self, key: str, values: Values) -> Result | None:
        """The result of a design that breaks a limit: by which, and no metrics."""
        if key not in self._known:
            worst = self._binds(self._space.at(values), self._workload)
            self._known[key] = Result(key, values, {}, worst.limit, worst.need, worst.have) if worst else None
        return self._known[key]

    def possible(self, values: Values) -> bool:
        """Whether a design keeps all limits."""
        return self.ruled_out(self._space.key_at(values), values) is None


def limits_of(space: AnySpace, workload: Workload, fidelity: str) -> Limits | None:
    """The limits to look at before a design is asked; None where an evaluation takes no longer than they do."""
    bases = [one.base for _, one in space.each]
    if any(plays(base, workload, fidelity) for base in bases):
        return Limits(space, workload)
    return Limits(space, workload, binding_early) if any(early(base, workload) for base in bases) else None


def is_ruled_out(result: Result) -> bool:
    """Whether a stored result is of a design that was not evaluated, since a limit rules it out."""
    return bool(result.limit) and not result.metrics and not result.error


def counted(results: Any) -> dict[str, int]:
    """How many results each limit rules out, most first."""
    counts: dict[str, int] = {}
    for result in results:
        if is_ruled_out(result):
            counts[result.limit] = counts.get(result.limit, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))
