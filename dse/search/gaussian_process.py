"""Gaussian processes on the knobs of a space: predictions for designs that were not evaluated.

A Matern 5/2 kernel with a length scale for each knob, and a linear trend in knobs that are numbers, fitted by maximum
likelihood [rasmussen2006]. On logs of values and of knobs the trend is a power law, as of the time of bytes over a bandwidth.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from dse.space.array_math import Array

ROOT5 = np.sqrt(5.0)
STEPS = 20
"""Steps of the fit."""

NOISE = (1e-6, 1e-3)
"""What a value may owe to chance, as a share of the variance: evaluations are exact, but jump."""


SLOPE_SPREAD = 2.0
"""Standard deviation of the log of the trend's variance around 0, before anything is known: the fit decides."""

CENTRE = 0.5
"""Of features from 0 to 1, where a trend has no variance of its own."""


@dataclass(frozen=True)
class LengthScales:
    """Result of a fit: a length scale per knob, and shares of the variance.

    Attributes:
        lengths: of each knob.
        noise: of each value.
        slope: of the trend, for each feature that it is in; 0 without a trend.
    """

    lengths: Array
    noise: float
    slope: float = 0.0


def expected_scales(groups: Array, numbers: Array | None = None) -> LengthScales:
    """Length scales before anything is known; arguments as of `fit_scales`."""
    knobs = int(groups.max()) + 1
    return LengthScales(np.full(knobs, np.sqrt(knobs) / 2), 1e-4, 0.0 if numbers is None or not numbers.any() else 1.0)


def fit_scales(x: Array, groups: Array, y: Array, numbers: Array | None = None) -> LengthScales:
    """Most likely length scales, with a weak prior for long ones.

    Args:
        x: features, shape (designs, features).
        groups: the knob that a feature is of, shape (features,).
        y: values, shape (designs,), of mean 0 and variance 1.
        numbers: features that a linear trend is in, shape (features,); None for no trend.
    """
    n, knobs = len(x), int(groups.max()) + 1
    gaps = np.stack([_squared_gaps(x[:, groups == k], x[:, groups == k]).ravel() for k in range(knobs)])
    expected = np.log(np.sqrt(knobs) / 2)
    trend = _trend_kernel(x, x, numbers)

    def compute_loss(theta: Array) -> tuple[float, Array]:
        weights = np.exp(-2 * theta[:knobs])
        r = np.sqrt(weights @ gaps)
        decay = np.exp(-ROOT5 * r)
        k = ((1 + ROOT5 * r + 5 / 3 * r * r) * decay).reshape(n, n)
        noise = np.exp(theta[-1])
        k.flat[:: n + 1] += noise
        if trend is not None:
            k += np.exp(theta[knobs]) * trend
        try:
            factor = np.linalg.cholesky(k)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((factor, True), np.eye(n))
        alpha = inverse @ y
        variance = max(float(y @ alpha) / n, 1e-12)
        m = np.outer(alpha, alpha / variance) - inverse
        slope = m.ravel() * (5 / 6 * (1 + ROOT5 * r) * decay)  # -dk / d(r^2), times 2 for d(r^2) / d(log length) below
        far = theta[:knobs] - expected
        value = 0.5 * n * np.log(variance) + float(np.log(np.diag(factor)).sum()) + 0.5 * float(far @ far)
        gradient = np.append(far - (gaps @ slope) * weights, -0.5 * noise * np.trace(m))
        if trend is not None:
            value += 0.5 * (theta[knobs] / SLOPE_SPREAD) ** 2
            slope_gradient = theta[knobs] / SLOPE_SPREAD**2 - 0.5 * np.exp(theta[knobs]) * float((m * trend).sum())
            gradient = np.insert(gradient, knobs, slope_gradient)
        return value, gradient

    start = np.concatenate([np.full(knobs, expected), [] if trend is None else [0.0], [np.log(1e-4)]])
    slopes = [] if trend is None else [(-3 * SLOPE_SPREAD, 3 * SLOPE_SPREAD)]
    bounds = [(np.log(0.05), np.log(50.0))] * knobs + slopes + [(np.log(NOISE[0]), np.log(NOISE[1]))]
    theta = minimize(compute_loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS}).x
    return LengthScales(np.exp(theta[:knobs]), float(np.exp(theta[-1])), 0.0 if trend is None else float(np.exp(theta[knobs])))


def predict(
    scales: LengthScales, x: Array, groups: Array, y: Array, at: Array, numbers: Array | None = None
) -> tuple[Array, Array]:
    """Mean and standard deviation at other designs, shape (others,) each.

    Args:
        scales: as fitted.
        x, groups, y, numbers: as for `fit_scales`.
        at: features of the others, shape (others, features).
    """
    lengths = scales.lengths[groups]
    mine, others = x / lengths, at / lengths
    k, across = _matern_kernel(_squared_gaps(mine, mine)), _matern_kernel(_squared_gaps(mine, others))
    k.flat[:: len(x) + 1] += scales.noise
    own: Any = 1.0
    if scales.slope and numbers is not None:
        apart = at[:, numbers] - CENTRE
        k += scales.slope * _trend_kernel(x, x, numbers)
        across += scales.slope * _trend_kernel(x, at, numbers)
        own = own + scales.slope * (apart * apart).sum(axis=1)
    factor = np.linalg.cholesky(k)
    half = solve_triangular(factor, np.column_stack([across, y]), lower=True, check_finite=False)
    cross, values = half[:, :-1], half[:, -1]
    variance = float(values @ values) / len(x)
    spread = np.sqrt(np.maximum(variance * (own - (cross * cross).sum(axis=0)), 1e-12))
    return values @ cross, spread


def _trend_kernel(a: Array, b: Array, numbers: Array | None) -> Any:
    """Covariance of a linear trend of variance 1 for each feature, shape (rows of a, rows of b); None without such features."""
    if numbers is None or not numbers.any():
        return None
    return (a[:, numbers] - CENTRE) @ (b[:, numbers] - CENTRE).T


def _squared_gaps(a: Array, b: Array) -> Array:
    """Squared distances, shape (rows of a, rows of b)."""
    gaps: Array = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    return gaps


def _matern_kernel(gaps: Array) -> Array:
    r = np.sqrt(5 * gaps)
    k: Array = (1 + r + r * r / 3) * np.exp(-r)
    return k
