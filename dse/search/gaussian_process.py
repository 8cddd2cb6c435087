"""Gaussian processes on the knobs of a space: predictions for designs that were not evaluated.

A Matern 5/2 kernel with a length scale for each knob, fitted by maximum likelihood [rasmussen2006].
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize

from dse.space.array_math import Array

ROOT5 = np.sqrt(5.0)
STEPS = 20
"""Steps of the fit."""

NOISE = (1e-6, 1e-3)
"""What a value may owe to chance, as a share of the variance: evaluations are exact, but jump."""


@dataclass(frozen=True)
class LengthScales:
    """Result of a fit: a length scale per knob, and noise as a share of the variance."""

    lengths: Array
    noise: float


def fit_scales(x: Array, groups: Array, y: Array) -> LengthScales:
    """Most likely length scales, with a weak prior for long ones.

    Args:
        x: features, shape (designs, features).
        groups: the knob that a feature is of, shape (features,).
        y: values, shape (designs,), of mean 0 and variance 1.
    """
    n, knobs = len(x), int(groups.max()) + 1
    gaps = np.stack([_squared_gaps(x[:, groups == k], x[:, groups == k]).ravel() for k in range(knobs)])
    expected = np.log(np.sqrt(knobs) / 2)

    def compute_loss(theta: Array) -> tuple[float, Array]:
        weights = np.exp(-2 * theta[:-1])
        r = np.sqrt(weights @ gaps)
        decay = np.exp(-ROOT5 * r)
        k = ((1 + ROOT5 * r + 5 / 3 * r * r) * decay).reshape(n, n)
        noise = np.exp(theta[-1])
        k.flat[:: n + 1] += noise
        try:
            factor = np.linalg.cholesky(k)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        inverse = cho_solve((factor, True), np.eye(n))
        alpha = inverse @ y
        variance = max(float(y @ alpha) / n, 1e-12)
        m = np.outer(alpha, alpha / variance) - inverse
        slope = m.ravel() * (5 / 6 * (1 + ROOT5 * r) * decay)  # -dk / d(r^2), times 2 for d(r^2) / d(log length) below
        gradient = np.append(-(gaps @ slope) * weights, -0.5 * noise * np.trace(m))
        far = theta[:-1] - expected
        value = 0.5 * n * np.log(variance) + float(np.log(np.diag(factor)).sum()) + 0.5 * float(far @ far)
        gradient[:-1] += far
        return value, gradient

    start = np.append(np.full(knobs, expected), np.log(1e-4))
    bounds = [(np.log(0.05), np.log(50.0))] * knobs + [(np.log(NOISE[0]), np.log(NOISE[1]))]
    theta = minimize(compute_loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": STEPS}).x
    return LengthScales(np.exp(theta[:-1]), float(np.exp(theta[-1])))


def predict(scales: LengthScales, x: Array, groups: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """Mean and standard deviation at other designs, shape (others,) each.

    Args:
        scales: as fitted.
        x, groups, y: as for `fitted`.
        at: features of the others, shape (others, features).
    """
    lengths = scales.lengths[groups]
    mine, others = x / lengths, at / lengths
    k = _matern_kernel(_squared_gaps(mine, mine))
    k.flat[:: len(x) + 1] += scales.noise
    factor = np.linalg.cholesky(k)
    half = solve_triangular(
        factor, np.column_stack([_matern_kernel(_squared_gaps(mine, others)), y]), lower=True, check_finite=False
    )
    cross, values = half[:, :-1], half[:, -1]
    variance = float(values @ values) / len(x)
    spread = np.sqrt(np.maximum(variance * (1 - (cross * cross).sum(axis=0)), 1e-12))
    return values @ cross, spread


def _squared_gaps(a: Array, b: Array) -> Array:
    """Squared distances, shape (rows of a, rows of b)."""
    gaps: Array = np.maximum((a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2 * a @ b.T, 0.0)
    return gaps


def _matern_kernel(gaps: Array) -> Array:
    r = np.sqrt(5 * gaps)
    k: Array = (1 + r + r * r / 3) * np.exp(-r)
    return k
