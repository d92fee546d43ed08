"""Masses of intervals under the law of a statistic, in logs, and sums and ratios of probabilities kept as logs.

The statistic T = D / S is a normal difference over its standard error. If S is known, T is normal: :func:`log_mass`.

If S^2 is an estimate of the variance s^2 of D, independent of D and with nu degrees of freedom, and the mean of D is
known, (D - mean)^2 + nu S^2 is a sufficient statistic for s, and given its value the law of D no longer depends on s.
In units of the observed S, with t the observed T, its density at z is proportional to

    (1 + (t - z) (t + z - 2 mean) / nu)^(nu / 2 - 1)

where that is positive, and zero elsewhere. With D - mean as the sine of an angle, times the length V^(1/2) with
V = nu + (t - mean)^2, it is the cosine to the power of nu - 1. As nu grows it becomes the normal density around the
mean, relative to its value at t. Its masses are those of :func:`log_student_mass`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp

from attentest.errors import InputError
from attentest.statistics.columns import Floats, Integers

LOG_2 = float(np.log(2.0))

NEGLIGIBLE = 45.0
"""Where a Student density is lower than at the greatest point of an interval by so many logs, the rest is left out."""

SHORT = 1.0  # few nodes suffice where it falls by no more than so many logs
FEW_NODES, NODES = 12, 40  # nodes of Gauss-Legendre quadrature: the density falls by NEGLIGIBLE logs at most

BLUNT, GRADING = 8.0, 4
"""With fewer degrees of freedom the density is not smooth where its support ends, and nodes are denser there: with y
uniform they are at 1 - (1 - y)^GRADING."""


@cache
def gauss_legendre(count: int) -> tuple[Floats, Floats]:
    """Return the nodes and the weights of Gauss-Legendre quadrature on [0, 1], (count,) each."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


_SMALLEST = float(np.nextafter(0.0, 1.0))
_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = gauss_legendre(8)  # exact to rounding for short intervals
_NOTHING = 1e-17  # a fraction that does not change a float64
_NARROW, _FAR_OUT = 0.01, 1e3  # a normal density is exponential to 2e-5 in an interval of this width, or so far out
_FEW, _MANY = gauss_legendre(FEW_NODES), gauss_legendre(NODES)
_GRADED = 1 - (1 - _MANY[0]) ** GRADING, GRADING * (1 - _MANY[0]) ** (GRADING - 1) * _MANY[1]


def log_sums(group: Integers, values: Floats, count: int) -> Floats:
    """Return the logs of the sums of exp(values) by group, (count,)."""
    rows = (values != -np.inf).nonzero()[0]  # most masses of a search are none: its images are done, or on one side
    group, values = group[rows], values[rows]
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, group, values)
    sums = np.bincount(group, np.exp(values - greatest[group]), minlength=count)
    # In units of the greatest of its values a sum is at least one.
    return np.asarray(greatest + np.log(np.maximum(sums, 1.0)))


def log_share(part: Floats, rest: Floats) -> Floats:
    """Return log(part / (part + rest)) of log masses, elementwise; raise an error if the total mass is zero."""
    whole = np.logaddexp(part, rest)
    if np.any(whole == -np.inf):
        raise InputError("the truncation set has no mass: it must be a union of intervals of positive width.")
    return np.asarray(part - whole)


def log_twice_the_smaller(log_p: Floats, other_log_p: Floats) -> Floats:
    """Return the log of twice the smaller of two probabilities that are given as logs, or 0 if that exceeds 1."""
    return np.asarray(np.minimum(LOG_2 + np.minimum(log_p, other_log_p), 0.0))


def probability(log_probability: float) -> float:
    """Return exp of a log-probability, never zero: what underflows becomes the smallest positive float64."""
    return min(1.0, max(float(np.exp(log_probability)), _SMALLEST))


def log_mass(lower: ArrayLike, upper: ArrayLike, mean: ArrayLike = 0.0, relative_to: ArrayLike | None = None) -> Floats:
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


def mean_in_interval(lower: Floats, upper: Floats, mean: Floats, log_mass_relative_to_zero: Floats) -> Floats:
    """Return E(Z | lower <= Z <= upper) for Z ~ N(mean, 1), elementwise, given the log mass relative to zero.

    Its error is no greater than the interval, and a few units of rounding times its distance from the mean.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # an interval without mass
        at_lower, at_upper = (np.exp(_log_ratio(end, mean) - log_mass_relative_to_zero) for end in (lower, upper))
        return np.asarray(np.minimum(np.maximum(mean + (at_lower - at_upper), lower), upper))


def quantile(lower: Floats, upper: Floats, mean: Floats, share: Floats) -> Floats:
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


def _log_ratio(t: Floats, tilt: Floats) -> Floats:
    """Return the log of the density at a distance t from a centre, relative to that at the centre."""
    return np.asarray(t * (tilt - t / 2))


def _mills(x: Floats) -> Floats:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))


def log_density(z: ArrayLike, t: ArrayLike, mean: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the log density at z relative to that at t, elementwise; -inf outside the support."""
    z, t, mean, degrees = (np.asarray(x, dtype=np.float64) for x in (z, t, mean, degrees))
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.maximum((t - z) * (t + z - 2 * mean) / degrees, -1.0)
        logs = (degrees / 2 - 1) * np.log1p(excess)
    return np.where(excess > -1.0, logs, -np.inf)


def support(shift: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the support, as distances from t: the lower one is negative, the upper one positive.

    ``shift`` is t less the mean.
    """
    far = np.hypot(np.sqrt(degrees), shift) + np.abs(shift)
    near = degrees / far  # the end next to t, without a difference of two large numbers
    return -np.where(shift > 0, far, near), np.where(shift > 0, near, far)


def log_student_mass(lower: ArrayLike, upper: ArrayLike, t: ArrayLike, mean: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the log of the integral of the density, relative to its value at t, from lower to upper, elementwise."""
    columns = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (lower, upper, t, mean, degrees)))
    lower, upper, t, mean, degrees = (column.ravel() for column in columns)
    # All positions are distances from t, so that nothing is lost next to it, however far away the mean is.
    shift = t - mean
    ends = support(shift, degrees)
    with np.errstate(invalid="ignore"):
        exact_width = upper - lower
    cut_lower, cut_upper = lower - t < ends[0], upper - t > ends[1]
    start, end = np.where(cut_lower, ends[0], lower - t), np.where(cut_upper, ends[1], upper - t)
    mode = -shift
    around = (start < mode) & (mode < end)
    index = np.arange(len(t))
    # An interval around the mean is two, each of which starts at the mean.
    which = np.concatenate([index, index[around]])
    near = np.where(around, mode, np.where(end <= mode, end, start))
    far = np.where(around, end, np.where(end <= mode, start, end))
    width = np.where(around | cut_lower | cut_upper, np.abs(far - near), exact_width)
    wide = np.concatenate([start < end, (start < end)[around]])
    near, width = np.concatenate([near, mode[around]]), np.concatenate([width, (mode - start)[around]])
    masses = np.full(len(which), -np.inf)
    masses[wide] = _log_integrals(near[wide], width[wide], shift[which[wide]], degrees[which[wide]])
    whole = masses[: len(t)]
    whole[around] = np.logaddexp(whole[around], masses[len(t) :])
    return whole.reshape(columns[0].shape)


def _log_integrals(near: Floats, width: Floats, shift: Floats, degrees: Floats) -> Floats:
    """Return the log integrals (m,) from the end next to the mean, at a distance ``near`` from t, outwards."""
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
    for rows, (places, weights) in ((short, _FEW), (~short & blunt, _GRADED), (~short & ~blunt, _MANY)):
        step = angle[rows, None] * places
        tangent = (first[rows] / cosine[rows])[:, None]
        # The cosine of the angle relative to that at the near end.
        less = 2 * np.sin(step / 2) ** 2 + tangent * np.sin(step)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs_at = (degrees[rows, None] - 1) * np.log1p(-np.minimum(less, 1.0))
        logs[rows] = np.log(np.exp(logs_at) @ weights * angle[rows] * cosine[rows])
    return np.asarray(logs + log_density(near, 0.0, -shift, degrees))
