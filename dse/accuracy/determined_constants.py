"""Constants of a stack that measured rows determine, chosen by elasticities before any is fitted.

Columns of elasticities are taken one after the other, each time the one with most left after those before it are projected
out (a QR decomposition with pivots). What is left of a column says how much the rows tell of its constant alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dse.accuracy.least_squares import Vector

RELATIVE_STEP = 0.1
"""Step up and down by which elasticities are taken, as a share of a constant: wide enough to pass over jumps of schedules."""
MIN_ELASTICITY = 0.02
"""Root mean square of the rows' elasticities below which a constant is not fitted: twice the constant moves rows by 2 %."""
MIN_SHARE = 0.15
"""Share of a column that must be left beside the constants already chosen: a multiple correlation of 0.99."""


@dataclass(frozen=True, slots=True)
class UndeterminedConstant:
    """A constant that rows do not determine.

    Attributes:
        address: of the constant.
        reason: why not, as text.
        alike: addresses of chosen constants that rows do not tell it from; empty if there are none.
    """

    address: str
    reason: str
    alike: tuple[str, ...] = ()


def elasticities(model: Callable[[Vector], Vector], start: Vector, scale: Vector, low: Vector, high: Vector) -> Vector:
    """Elasticity of each measured row by each constant, shape (rows, constants). [-]

    It is the change of the logarithm of a simulated row by the relative change of a constant.

    Args:
        model: simulated rows, shape (vectors, rows), of constants, shape (vectors, constants).
        start, low, high: present values and bounds, shape (constants,).
        scale: what a relative step is a share of, shape (constants,).
    """
    steps = np.diag(RELATIVE_STEP * scale)
    vectors = np.clip(np.vstack([start + steps, start - steps]), low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(model(vectors))
    count = len(start)
    width = np.array([vectors[i, i] - vectors[count + i, i] for i in range(count)]) / scale
    slopes = (logs[:count] - logs[count:]) / width[:, None]
    return np.asarray(np.nan_to_num(slopes, posinf=0.0, neginf=0.0).T)


def choose_determined(slopes: Vector, addresses: Sequence[str]) -> tuple[tuple[str, ...], tuple[UndeterminedConstant, ...]]:
    """Addresses of the constants that rows determine together, and the others with reasons.

    Args:
        slopes: elasticities, shape (rows, constants).
        addresses: of the constants.

    >>> slopes = np.array([[1.0, 0.5, 0.0], [0.2, 0.1, 0.0], [0.9, 0.45, 0.0]])
    >>> chosen, others = choose_determined(slopes, ["a", "b", "c"])
    >>> chosen, [(each.address, each.reason) for each in others]
    (('a',), [('b', 'rows do not tell it from a'), ('c', 'no row depends on it')])
    """
    rows = len(slopes)
    norms = np.linalg.norm(slopes, axis=0)
    rest, chosen = slopes.astype(float).copy(), list[int]()
    floor = MIN_ELASTICITY * np.sqrt(rows)
    while len(chosen) < max(1, rows - 1):
        left = np.linalg.norm(rest, axis=0)
        usable = (left > floor) & (left > MIN_SHARE * norms)
        if not usable.any():
            break
        best = int(np.argmax(np.where(usable, left, 0.0)))
        chosen.append(best)
        direction = rest[:, best] / left[best]
        rest -= np.outer(direction, direction @ rest)
        rest[:, best] = 0.0
    left = np.linalg.norm(rest, axis=0)
    others = [i for i in range(len(addresses)) if i not in chosen]
    return tuple(addresses[i] for i in chosen), tuple(
        _explain_undetermined(i, slopes, norms, left, chosen, addresses, floor) for i in others
    )


def _explain_undetermined(
    i: int, slopes: Vector, norms: Vector, left: Vector, chosen: Sequence[int], addresses: Sequence[str], floor: float
) -> UndeterminedConstant:
    """A constant that rows do not determine, with the reason."""
    address = addresses[i]
    if norms[i] < floor / 100:
        return UndeterminedConstant(address, "no row depends on it")
    if norms[i] <= floor:
        moved = norms[i] / np.sqrt(len(slopes))
        return UndeterminedConstant(address, f"rows depend on it too little: twice its value moves them by {moved:.1%}")
    alike = [abs(slopes[:, i] @ slopes[:, k]) / (norms[i] * norms[k]) for k in chosen]
    if left[i] <= max(floor, MIN_SHARE * norms[i]) and max(alike, default=0.0) > 1 - MIN_SHARE**2:
        nearest = addresses[chosen[int(np.argmax(alike))]]
        return UndeterminedConstant(address, f"rows do not tell it from {nearest}", (nearest,))
    if left[i] <= max(floor, MIN_SHARE * norms[i]):
        together = tuple(addresses[k] for k in chosen)
        return UndeterminedConstant(address, f"rows do not tell it from {' and '.join(together)} together", together)
    return UndeterminedConstant(address, f"{len(slopes)} rows determine {len(chosen)} constants at most")
