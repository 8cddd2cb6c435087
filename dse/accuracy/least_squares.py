"""Fit of constants by bounded robust least squares on log(simulated / measured).

Arrays only: no chip and no file. A model maps vectors of constants, (vectors, constants), to simulated rows, (vectors, rows).
Residuals are logarithms, so that rows of microseconds and minutes count equally; beyond `SOFT_LOSS_SCALE` they count less and
less (soft L1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Model = Callable[[Vector], Vector]

SOFT_LOSS_SCALE = 0.1
"""Residual from which on one counts less than its square: a tenth."""
DIFFERENCE_STEP = 1e-4
"""Of a finite difference, as a share of a constant's scale."""
NOTHING = 1e-3
"""A constant is not identifiable if all of its scale moves the rows, root mean square, by less than this share."""
ALIKE, CONDITION = 0.99, 1e3
"""Correlation of two estimates, and condition number of all, above which rows do not tell constants apart."""
SCREENED, BEST = 32, 2
"""Starts that are looked at for each constant, and how many of them a fit goes on from."""
FAR = 5.0
"""Logarithm that stands for a row which has no time at all."""
MAX_SCANNED = 2
"""Most constants of which a range is scanned: points of a scan fill no more directions."""
SCAN_POINTS, SCANNED_BEST, SCAN_ROUNDS = 16, 3, 3
"""Points for each constant and round of a scan, boxes of its second round, and rounds after the first."""
EXACT = 1e-12
"""Loss below which no better constants are looked for."""


@dataclass(frozen=True)
class ConstantBounds:
    """Start values, bounds and scales of fitted constants; each of shape (constants,), in SI.

    Attributes:
        scale: a step that means something for each.
        step: of a finite difference, as a share of `scale`; wider where schedules make small jumps.
        tolerance: relative change of the loss or of the constants at which a descent ends.
        scanned: whether a few constants are also looked for by a scan, where schedules make many local minima.
    """

    start: Vector
    low: Vector
    high: Vector
    scale: Vector
    step: float = DIFFERENCE_STEP
    tolerance: float = 1e-10
    scanned: bool = False


@dataclass(frozen=True)
class FitResult:
    """Fitted constants with their confidence intervals and residuals.

    Attributes:
        values: (constants,).
        interval: (constants, 2), of 95 %; not a number where there is none.
        unmoved: constants that no row says anything of; they are as they were.
        alike: constants that rows do not tell from others, with these.
        at_bound: constants that end at the lower (-1) or upper (1) end of their range.
        residuals: (rows,), logarithms.
    """

    values: Vector
    interval: Vector
    unmoved: tuple[int, ...]
    alike: dict[int, tuple[int, ...]]
    at_bound: dict[int, int]
    residuals: Vector


def log_ratios(simulated: Vector, low: Vector, high: Vector) -> Vector:
    """Logarithms of simulated values over measured ranges, shape (..., rows); 0 inside a range. [-]"""
    known = np.isfinite(simulated) & (simulated > 0)
    values = np.where(known, simulated, 1.0)
    inside = np.minimum(np.log(values / low), 0.0) + np.maximum(np.log(values / high), 0.0)
    return np.where(known, inside, FAR)


def start_vectors(model: Model, bounds: ConstantBounds, seed: int, count: int = SCREENED) -> tuple[Vector, Vector]:
    """Start vectors of a fit, (starts, constants), and the model's rows at each of them.

    The first vector holds the present values; of others there are `count` for each constant.
    """
    random = np.random.default_rng(seed)
    shape = (count * len(bounds.start), len(bounds.start))
    spread = np.where(np.isfinite(bounds.high), bounds.high, bounds.low + 8 * bounds.scale) - bounds.low
    drawn = bounds.low + spread * random.random(shape) ** 2  # nearer to the low ends, which overheads are at
    vectors = np.vstack([bounds.start, drawn])
    return vectors, model(vectors)


def solve_constants(model: Model, low: Vector, high: Vector, bounds: ConstantBounds, begun: tuple[Vector, Vector]) -> Vector:
    """Constants of least loss, shape (constants,), by descents from the best start vectors.

    Args:
        model: of the rows that are fitted.
        low: of the measured ranges, (rows,).
        high: likewise; that of a number is itself.
        bounds: of the constants.
        begun: starts, and what the model makes of them for these rows.
    """
    loss = _soft_loss(log_ratios(begun[1], low, high))
    chosen = [0, *(1 + np.argsort(loss[1:], kind="stable")[:BEST])]
    best = _descend(model, low, high, bounds, begun[0][chosen])
    if not bounds.scanned or len(best) > MAX_SCANNED:
        return best
    known = np.vstack([best, begun[0]])
    losses = np.concatenate([_soft_loss(log_ratios(model(best[None]), low, high)), loss])
    if losses[0] <= EXACT:
        return best
    point, width = _scan_box(model, low, high, bounds, (known, losses))
    fine = replace(bounds, step=float(np.min(width / bounds.scale)), tolerance=min(bounds.tolerance, 1e-8))
    return _descend(model, low, high, fine, np.vstack([point, best]))


def _descend(model: Model, low: Vector, high: Vector, bounds: ConstantBounds, starts: Vector) -> Vector:
    """Constants of least loss of descents from some starts, (starts, constants); shape (constants,)."""
    from scipy.optimize import least_squares

    best: Any = None
    for vector in starts:
        inner = np.clip(vector, bounds.low, bounds.high)
        solution = least_squares(
            lambda x: log_ratios(model(x[None] * bounds.scale), low, high)[0],
            inner / bounds.scale,
            jac=lambda x: jacobian(model, x * bounds.scale, low, high, bounds),
            bounds=(bounds.low / bounds.scale, bounds.high / bounds.scale),
            loss="soft_l1",
            f_scale=SOFT_LOSS_SCALE,
            xtol=bounds.tolerance,
            ftol=bounds.tolerance,
            max_nfev=200,
        )
        if best is None or solution.cost < best.cost * (1 - 1e-9):
            best = solution
    return np.asarray(best.x * bounds.scale, dtype=float)


def _scan_box(
    model: Model, low: Vector, high: Vector, bounds: ConstantBounds, known: tuple[Vector, Vector]
) -> tuple[Vector, Vector]:
    """Constants of least loss of a scan of their ranges, round after round in smaller boxes.

    Args:
        model, low, high: as of `solve_constants`.
        bounds: of the constants.
        known: vectors whose losses are known, the best descent first, and these losses.

    Returns:
        The constants, and the distance of the last round's points; each of shape (constants,).
    """
    from scipy.stats import qmc

    count = len(bounds.start)
    points = qmc.Halton(count, scramble=False).random(SCAN_POINTS * count + 1)[1:]
    spread = np.where(np.isfinite(bounds.high), bounds.high, bounds.low + 8 * bounds.scale) - bounds.low
    vectors = bounds.low + spread * points
    vectors, losses = (
        np.vstack([known[0], vectors]),
        np.concatenate([known[1], _soft_loss(log_ratios(model(vectors), low, high))]),
    )
    half = spread / SCAN_POINTS
    for number in range(SCAN_ROUNDS):
        centres = vectors[np.argsort(losses, kind="stable")[: 1 if number else SCANNED_BEST]]
        near = (centres[:, None] + half * (2 * points - 1)).reshape(-1, count)
        near = np.clip(near, bounds.low, bounds.high)
        vectors = np.vstack([vectors, near])
        losses = np.concatenate([losses, _soft_loss(log_ratios(model(near), low, high))])
        half = half * 2 / SCAN_POINTS ** (1 if count == 1 else 0.75)
    return vectors[np.argmin(losses)], half


def jacobian(model: Model, values: Vector, low: Vector, high: Vector, bounds: ConstantBounds) -> Vector:
    """Central differences of the log ratios by each scaled constant, shape (rows, constants).

    The model is called once.
    """
    count = len(values)
    steps = np.diag(bounds.step * bounds.scale)
    vectors = np.clip(np.vstack([values + steps, values - steps]), bounds.low, bounds.high)
    ratios = log_ratios(model(vectors), low, high)
    width = np.array([vectors[i, i] - vectors[count + i, i] for i in range(count)]) / bounds.scale
    return np.asarray(((ratios[:count] - ratios[count:]) / width[:, None]).T)


def fit_with_statistics(
    model: Model, low: Vector, high: Vector, bounds: ConstantBounds, begun: tuple[Vector, Vector]
) -> FitResult:
    """Constants of least loss, with their intervals and identifiability."""
    from scipy.stats import t

    values = solve_constants(model, low, high, bounds, begun)
    slopes = jacobian(model, values, low, high, bounds)
    unmoved = np.sqrt((slopes**2).mean(axis=0)) < NOTHING
    residuals = log_ratios(model(values[None]), low, high)[0]
    for i in np.flatnonzero(unmoved):  # flat where the descent ended is not yet flat all the way back to where it began
        back = np.where(np.arange(len(values)) == i, bounds.start, values)
        log_ratio = log_ratios(model(back[None]), low, high)[0]
        unmoved[i] = np.sqrt(((log_ratio - residuals) ** 2).mean()) < NOTHING
        values, residuals = (back, log_ratio) if unmoved[i] else (values, residuals)
    near = 1e-6 * bounds.scale
    lower, upper = values <= bounds.low + near, values >= bounds.high - near
    at_bound = {int(i): -1 if lower[i] else 1 for i in np.flatnonzero((lower | upper) & ~unmoved)}
    free = [i for i in range(len(values)) if not unmoved[i] and i not in at_bound]
    weights = 1 / np.sqrt(1 + (residuals / SOFT_LOSS_SCALE) ** 2)
    weighted = slopes[:, free] * np.sqrt(weights)[:, None]
    norms = np.linalg.norm(weighted, axis=0)
    covariance, alike = _normal_covariance(weighted / norms, free)
    interval = np.full((len(values), 2), np.nan)
    freedom = len(residuals) - len(free)
    if freedom > 0 and free:
        spread = np.sqrt((weights * residuals**2).sum() / freedom)
        half = t.ppf(0.975, freedom) * spread * np.sqrt(np.diag(covariance)) / norms * bounds.scale[free]
        ends = np.stack([values[free] - half, values[free] + half], axis=1)
        interval[free] = np.clip(ends, bounds.low[free, None], bounds.high[free, None])
    return FitResult(values, interval, tuple(map(int, np.flatnonzero(unmoved))), alike, at_bound, residuals)


def cross_validation_folds(rows: int, count: int, seed: int) -> Sequence[NDArray[np.intp]]:
    """Rows to hold out in each fold of a cross-validation; each row once."""
    return np.array_split(np.random.default_rng(seed).permutation(rows), min(count, rows))


def _normal_covariance(columns: Vector, free: Sequence[int]) -> tuple[Vector, dict[int, tuple[int, ...]]]:
    """Inverse of the normal matrix of columns of length 1, and which constants it does not tell apart."""
    if not free:
        return np.zeros((0, 0)), {}
    _, singular, right = np.linalg.svd(columns, full_matrices=False)
    held = np.maximum(singular, 1e-9)
    covariance = (right.T / held**2) @ right
    deviation = np.sqrt(np.diag(covariance))
    together = np.abs(covariance / np.outer(deviation, deviation)) > ALIKE
    if singular[0] > CONDITION * singular[-1]:
        taking_part = np.abs(right[-1]) > 0.3
        together |= np.outer(taking_part, taking_part)
    np.fill_diagonal(together, False)
    named = {free[i]: tuple(free[int(j)] for j in np.flatnonzero(row)) for i, row in enumerate(together) if row.any()}
    return covariance, named


def _soft_loss(residuals: Vector) -> Vector:
    """Soft L1 of residuals, summed over rows."""
    return np.asarray((SOFT_LOSS_SCALE**2 * 2 * (np.sqrt(1 + (residuals / SOFT_LOSS_SCALE) ** 2) - 1)).sum(axis=-1))
