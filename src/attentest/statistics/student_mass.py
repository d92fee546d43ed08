"""Masses of intervals under the law of a normal statistic whose standard error is estimated, in logs.

A normal difference D has variance s^2, and S^2, independent of D, is an estimate of s^2 with nu degrees of freedom. Let
T = D / S. If the mean of D is known, (D - mean)^2 + nu S^2 is a sufficient statistic for s, and given its value the law
of D no longer depends on s. In units of the observed S, with t the observed T, its density at z is proportional to

    (1 + (t - z) (t + z - 2 mean) / nu)^(nu / 2 - 1)

where that is positive, and zero elsewhere. With D - mean as the sine of an angle, times the length V^(1/2) with
V = nu + (t - mean)^2, it is the cosine to the power of nu - 1. As nu grows it becomes the normal density around the
mean, relative to its value at t.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

NEGLIGIBLE = 45.0
"""Where the density is lower than at the greatest point of an interval by so many logs, the rest is left out."""

SHORT = 1.0
"""Few nodes suffice where the density falls by no more than so many logs."""

FEW_NODES, NODES = 12, 40
"""Nodes of Gauss-Legendre quadrature: the density falls by NEGLIGIBLE logs at most."""

_GAUSS_LEGENDRE = {
    count: ((nodes + 1) / 2, weights / 2)
    for count in (FEW_NODES, NODES)
    for nodes, weights in [np.polynomial.legendre.leggauss(count)]
}
"""Nodes and weights on [0, 1]."""

BLUNT, GRADING = 8.0, 4
"""With fewer degrees of freedom the density is not smooth where its support ends, and nodes are denser there: with y
uniform they are at 1 - (1 - y)^GRADING."""

_GRADED = (
    1 - (1 - _GAUSS_LEGENDRE[NODES][0]) ** GRADING,
    GRADING * (1 - _GAUSS_LEGENDRE[NODES][0]) ** (GRADING - 1) * _GAUSS_LEGENDRE[NODES][1],
)


def log_density(z: ArrayLike, t: ArrayLike, mean: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the log density at z relative to that at t, elementwise; -inf outside the support."""
    z, t, mean, degrees = (np.asarray(x, dtype=np.float64) for x in (z, t, mean, degrees))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.maximum((t - z) * (t + z - 2 * mean) / degrees, -1.0)
        logs = (degrees / 2 - 1) * np.log1p(excess)
    return np.where(excess > -1.0, logs, -np.inf)


def support(t: Floats, mean: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the support, as distances from t: the lower one is negative, the upper one positive."""
    shift = t - mean
    far = np.hypot(np.sqrt(degrees), shift) + np.abs(shift)
    near = degrees / far  # the end next to t, without a difference of two large numbers
    return -np.where(shift > 0, far, near), np.where(shift > 0, near, far)


def log_mass(lower: ArrayLike, upper: ArrayLike, t: ArrayLike, mean: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the log of the integral of the density, relative to its value at t, from lower to upper, elementwise."""
    columns = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (lower, upper, t, mean, degrees)))
    lower, upper, t, mean, degrees = (column.ravel() for column in columns)
    # All positions are distances from t, so that nothing is lost next to it, however far away the mean is.
    ends = support(t, mean, degrees)
    with np.errstate(invalid="ignore"):
        exact_width = upper - lower
    cut_lower, cut_upper = lower - t < ends[0], upper - t > ends[1]
    start, end = np.where(cut_lower, ends[0], lower - t), np.where(cut_upper, ends[1], upper - t)
    shift = t - mean
    mode = -shift
    around = (start < mode) & (mode < end)
    index = np.arange(len(t))
    # An interval around the mean is two, each of which starts at the mean.
    which = np.concatenate([index, index[around]])
    near = np.where(around, mode, np.where(end <= mode, end, start))
    far = np.where(around, end, np.where(end <= mode, start, end))
    width = np.where(around | cut_lower | cut_upper, np.abs(far - near), exact_width)
    some = np.concatenate([start < end, (start < end)[around]])
    piece = _Pieces(
        near=np.concatenate([near, mode[around]])[some],
        width=np.concatenate([width, (mode - start)[around]])[some],
        shift=shift[which][some],
        degrees=degrees[which][some],
    )
    masses = np.full(len(which), -np.inf)
    masses[some] = _log_integrals(piece)
    whole = masses[: len(t)]
    whole[around] = np.logaddexp(whole[around], masses[len(t) :])
    return whole.reshape(columns[0].shape)


class _Pieces(NamedTuple):
    """Intervals (m,) from the end next to the mean outwards."""

    near: Floats  # that end, as a distance from t
    width: Floats
    shift: Floats  # t - mean
    degrees: Floats


def _log_integrals(piece: _Pieces) -> Floats:
    near, width, shift, degrees = piece
    radius = np.hypot(np.sqrt(degrees), shift)
    first = np.abs(near + shift)
    # radius^2 - first^2, which is degrees at t
    room = np.maximum(degrees - near * (near + 2 * shift), np.finfo(np.float64).tiny)
    power = np.maximum(degrees / 2 - 1, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        light = -room * np.expm1(-NEGLIGIBLE / power)
    width = np.minimum(width, light / (first + np.sqrt(first**2 + light)))
    cosine, cosine_end = np.sqrt(room), np.sqrt(np.maximum(room - width * (2 * first + width), 0.0))
    # The angle between the two ends, from the chord: neither sine nor cosine are subtracted from each other.
    rise = width * (2 * first + width) / (cosine + cosine_end)
    angle = 2 * np.arcsin(np.minimum(np.hypot(width, rise) / (2 * radius), 1.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # at the end of the support; with one degree it falls nowhere
        fall = -(degrees - 1) * np.log1p(-np.minimum(width * (2 * first + width) / room, 1.0)) / 2
    logs = np.empty(len(near))
    short, blunt = fall <= SHORT, degrees < BLUNT
    for rows, (places, weights) in (
        (short, _GAUSS_LEGENDRE[FEW_NODES]),
        (~short & blunt, _GRADED),
        (~short & ~blunt, _GAUSS_LEGENDRE[NODES]),
    ):
        step = angle[rows, None] * places
        tangent = (first[rows] / cosine[rows])[:, None]
        # The cosine of the angle relative to that at the near end.
        less = 2 * np.sin(step / 2) ** 2 + tangent * np.sin(step)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs_at = (degrees[rows, None] - 1) * np.log1p(-np.minimum(less, 1.0))
        logs[rows] = np.log(np.exp(logs_at) @ weights * angle[rows] * cosine[rows])
    return np.asarray(logs + log_density(near, 0.0, -shift, degrees))
