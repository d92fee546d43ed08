"""Masses of intervals under a normal distribution, in logs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]; eight are exact to rounding for short intervals
_NOTHING = 1e-17  # a fraction that does not change a float64
_NARROW, _FAR_OUT = 0.01, 1e3  # a normal density is exponential to 2e-5 in an interval of this width, or so far out


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
        return np.asarray(np.minimum(np.maximum(mean + (at_lower - at_upper), lower), upper))


def quantile(
    lower: NDArray[np.float64], upper: NDArray[np.float64], mean: NDArray[np.float64], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the points before which shares of the masses of intervals lie, for Z ~ N(mean, 1), elementwise.

    The share before the point that is returned is off by less than 2e-5. In a narrow interval, and far out in a tail,
    where tail probabilities are too close to each other to be told apart, the density is taken to be exponential.
    """
    width, left, right = upper - lower, lower - mean, upper - mean
    mirrored = left + right < 0
    near, far = np.where(mirrored, -right, left), np.where(mirrored, -left, right)  # |near| <= |far|, far >= 0
    before = np.where(mirrored, 1 - share, share)

    exponential = (width < _NARROW) | (near > _FAR_OUT)
    distance = np.empty(len(width))
    rows = exponential.nonzero()[0]
    rate = near[rows] + np.minimum(width[rows], 1 / np.maximum(near[rows], 1.0)) / 2
    rate = np.where(np.abs(rate) < _NARROW, _NARROW, rate)
    with np.errstate(divide="ignore"):  # all of an interval that is infinite
        distance[rows] = -np.log1p(before[rows] * np.expm1(-rate * width[rows])) / rate
    rows = (~exponential).nonzero()[0]
    x, share_before = near[rows], before[rows]
    with np.errstate(divide="ignore"):  # all of the mass, or none
        log_tail = np.logaddexp(np.log1p(-share_before) + log_ndtr(-x), np.log(share_before) + log_ndtr(-far[rows]))
    distance[rows] = -ndtri_exp(log_tail) - x
    point = np.where(mirrored, upper - distance, lower + distance)
    return np.asarray(np.minimum(np.maximum(point, lower), upper))


def _log_ratio(t: NDArray[np.float64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the density at a distance t from a centre, relative to that at the centre."""
    return np.asarray(t * (tilt - t / 2))


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
