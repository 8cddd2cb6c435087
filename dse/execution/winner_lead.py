"""Lead of the best design at two fidelities: whether the higher one confirms the choice.

On a submesh a winner may lead by far less than on the whole mesh, or not at all: then ranks there say nothing about the choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dse.search.pareto import convert_to_minimisation
from dse.space.array_math import Array


@dataclass(frozen=True, slots=True)
class WinnerLead:
    """Lead of the best design by one objective over the next best verified one, at both fidelities.

    A lead is by how much the runner-up is worse: 0.04 where it takes 4 % longer; below 0 where it is better.

    Attributes:
        winner, runner_up: rows of the study's frame, of the best at full size, as the study evaluated it, and of the next best.
        whole: lead at full size, as the study evaluated it.
        low, high: lead at each of the two fidelities, on a submesh if they simulate one.
        spread: standard deviation of the relative shift, which a decisive lead exceeds.
    """

    metric: str
    winner: int
    runner_up: int
    whole: float
    low: float
    high: float
    spread: float

    @property
    def tells(self) -> bool:
        """Whether the comparison is decisive: the lower fidelity has the same winner there, beyond spread."""
        return bool(np.log1p(self.low) > self.spread)

    def text(self, low: str, high: str, part: bool) -> str:
        """The leads and the verdict, as text.

        Args:
            low, high: fidelities that are compared.
            part: whether these simulated a submesh.

        >>> lead = WinnerLead("latency", 0, 1, whole=1.2, low=0.04, high=0.05, spread=0.01)
        >>> for said in lead.text("analytical@8", "cycles@8", part=True).split("; "):
        ...     print(said)
        by 120.00%
        on the submesh by 4.00% at analytical@8 and 5.00% at cycles@8, shifts spread by 1.00%
        the submesh decides which design is best, not by how much: upheld
        >>> WinnerLead("latency", 0, 1, whole=0.04, low=0.04, high=-0.05, spread=0.01).text("analytical", "events", part=False)
        'by 4.00% at analytical and -5.00% at events, shifts spread by 1.00%; overturned'
        """
        about = "" if np.log1p(self.low) * 2 > np.log1p(self.whole) else " which design is best, not by how much"
        part_text = f"the submesh decides{about}: {self.verdict}" if self.tells else "the submesh cannot decide"
        where = f"by {self.whole:.2%}; on the submesh " if part else ""
        leads = f"{where}by {self.low:.2%} at {low} and {self.high:.2%} at {high}"
        return f"{leads}, shifts spread by {self.spread:.2%}; {part_text if part else self.verdict}"

    @property
    def verdict(self) -> str:
        """Verdict of the higher fidelity: "upheld", "overturned", "too close" or "cannot tell".

        >>> leads = [(0.04, 0.05), (0.04, -0.05), (0.04, 0.005), (0.005, 0.05)]
        >>> [WinnerLead("latency", 0, 1, whole=1.2, low=low, high=high, spread=0.01).verdict for low, high in leads]
        ['upheld', 'overturned', 'too close', 'cannot tell']
        """
        if not self.tells:
            return "cannot tell"
        lead = float(np.log1p(self.high))
        return "too close" if abs(lead) <= self.spread else "upheld" if lead > 0 else "overturned"


def winner_lead(
    metric: str, direction: str, whole: Array, low: Array, high: Array, rows: Sequence[int], spread: float
) -> WinnerLead | None:
    """Lead of the winner by an objective; None if no design is worse than the best.

    Args:
        metric: the objective.
        direction: "max" or "min".
        whole: its values as the study evaluated it, rounded to digits that count; shape (designs,), finite, above 0.
        low, high: at the two fidelities, likewise.
        rows: of the study's frame.
        spread: of the relative shift.

    >>> times = np.array([2.2, 1.0, 3.0])
    >>> found = winner_lead("latency", "min", times, np.array([1.04, 1.0, 2.0]), np.array([1.05, 1.0, 2.1]), [5, 7, 9], 0.01)
    >>> found.winner, found.runner_up, round(found.whole, 2), round(found.low, 2), round(found.high, 2)
    (7, 5, 1.2, 0.04, 0.05)
    """
    if not len(whole):
        return None
    order = convert_to_minimisation(whole[:, None], [direction])[:, 0]
    first = int(order.argmin())
    worse = np.flatnonzero(order > order[first])
    if not len(worse):
        return None
    next_best = int(worse[order[worse].argmin()])

    def compute_lead(values: Array) -> float:
        best, other = float(values[first]), float(values[next_best])
        return (best / other if direction == "max" else other / best) - 1

    return WinnerLead(
        metric, int(rows[first]), int(rows[next_best]), compute_lead(whole), compute_lead(low), compute_lead(high), spread
    )
