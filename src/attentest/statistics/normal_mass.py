"""Masses of intervals under a normal distribution, in logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]; eight are exact to rounding for short intervals
_NOTHING = 1e-17  # a fraction that does not change a float64


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
    ends = np.broadcast_arrays(upper - lower, lower - centre, upper - centre, mean - centre)
    width, start, end, tilt = (column.ravel() for column in ends)
    left, right = start - tilt, end - tilt
    with np.errstate(invalid="ignore"):  # -inf + inf, for the whole line: any order will do
        mirrored = left + right < 0
    near, far = np.where(mirrored, -right, left), np.where(mirrored, -left, right)  # |near| <= |far|, far >= 0
    nearest = np.where(mirrored, end, start)

    positive = width > 0  # nothing at infinity has no width, and is left out here
    short = width * np.maximum(far, 1.0) < 1.0
    mass = np.full(len(width), -np.inf)

    rows = (positive & short).nonzero()[0]
    if len(rows):
        x, w = near[rows], width[rows]
        step = w[:, None] * _NODES
        integral = np.exp(-step * (x[:, None] + step / 2)) @ _WEIGHTS
        mass[rows] = _log_ratio(nearest[rows], tilt[rows]) + np.log(w) + np.log(integral)

    long = positive & ~short
    rows = (long & (near < 0)).nonzero()[0]
    if len(rows):
        mass[rows] = tilt[rows] ** 2 / 2 + _LOG_SQRT_2PI + np.log1p(-(ndtr(near[rows]) + ndtr(-far[rows])))

    rows = (long & (near >= 0)).nonzero()[0]
    if len(rows):
        x, y = near[rows], far[rows]
        decay = np.exp(-width[rows] * (x + y) / 2)
        scaled = _mills(x)
        counts = (decay > _NOTHING).nonzero()[0]
        scaled[counts] -= decay[counts] * _mills(y[counts])
        mass[rows] = _log_ratio(nearest[rows], tilt[rows]) + np.log(scaled)
    return (mass - _LOG_SQRT_2PI if relative_to is None else mass).reshape(ends[0].shape)


def mean_in_interval(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    mean: NDArray[np.float64],
    log_mass_relative_to_zero: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return E(Z | lower <= Z <= upper) for Z ~ N(mean, 1), elementwise, given the log mass relative to zero.

    Its error is no greater than the interval, and a few units of rounding times its distance from the mean.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an interval without mass
        at_lower, at_upper = (np.exp(_log_ratio(end, mean) - log_mass_relative_to_zero) for end in (lower, upper))
        return np.asarray(np.clip(mean + (at_lower - at_upper), lower, upper))


def _log_ratio(t: NDArray[np.float64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the density at a distance t from a centre, relative to that at the centre."""
    return np.asarray(t * (tilt - t / 2))


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
