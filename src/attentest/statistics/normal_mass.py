"""Masses of intervals under a normal distribution, in logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]


def log_mass(
    lower: ArrayLike, upper: ArrayLike, mean: ArrayLike = 0.0, relative_to: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return log P(lower <= Z <= upper) for Z ~ N(mean, 1), elementwise.

    Three formulas, chosen so that none of them cancels:

    - a short interval (width times distance from the mean below one): the density at the end next to the mean
      times a Gauss-Legendre integral of the density relative to it;
    - an interval in one tail: a difference of Mills ratios, scaled by the density;
    - an interval around the mean: one minus the two tails.

    The relative error of the mass is a few units of rounding times max(1, z^2 / 2), the accuracy to which
    float64 can hold its logarithm: 3e-11 at z = 500.

    With ``relative_to``, a point, the mass is divided by the density there. Next to that point nothing is lost then,
    however far from both the mean is.
    """
    lower, upper = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    mean = np.asarray(mean, dtype=np.float64)
    centre = mean if relative_to is None else np.asarray(relative_to, dtype=np.float64)
    width, start, end, tilt = np.broadcast_arrays(upper - lower, lower - centre, upper - centre, mean - centre)
    left, right = start - tilt, end - tilt
    with np.errstate(invalid="ignore"):  # -inf + inf, for the whole line: any order will do
        mirrored = left + right < 0
    near, far = np.where(mirrored, -right, left), np.where(mirrored, -left, right)  # |near| <= |far|, far >= 0
    nearest = np.where(mirrored, end, start)

    positive = width > 0  # nothing at infinity has no width, and is left out here
    short = positive & (width * np.maximum(1.0, far) < 1.0)
    around = positive & ~short & (near < 0)
    tail = positive & ~short & (near >= 0)
    mass = np.full(width.shape, -np.inf)

    step = width[short][:, None] * _NODES
    integral = np.exp(-step * (near[short][:, None] + step / 2)) @ _WEIGHTS
    mass[short] = _log_ratio(nearest[short], tilt[short]) + np.log(width[short]) + np.log(integral)

    mass[around] = tilt[around] ** 2 / 2 + _LOG_SQRT_2PI + np.log1p(-(ndtr(near[around]) + ndtr(-far[around])))

    x, y, w = near[tail], far[tail], width[tail]
    decay = np.exp(-w * (x + y) / 2)
    mass[tail] = _log_ratio(nearest[tail], tilt[tail]) + np.log(_mills(x) - decay * _mills(y))
    return mass - _LOG_SQRT_2PI if relative_to is None else mass


def _log_ratio(t: NDArray[np.float64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the density at a distance t from a centre, relative to that at the centre."""
    return np.asarray(t * (tilt - t / 2))


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
