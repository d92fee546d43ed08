"""The normal distribution truncated to a union of intervals, in logs (sections 2 and 3).

Every probability is kept as a logarithm until the last step, so that a statistic of 500 or an interval of width
1e-12 costs no accuracy: see ``log_mass`` for how a single interval is measured.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, logsumexp, ndtr

from attentest.errors import InputError
from attentest.intervals import Intervals, clip

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]
_SMALLEST = float(np.nextafter(0.0, 1.0))


def check_alternative(alternative: str) -> None:
    """Refuse an alternative that is not one of SciPy's three."""
    if alternative not in get_args(Alternative):
        raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', got {alternative!r}.")


def log_mass(lower: ArrayLike, upper: ArrayLike, mean: float = 0.0) -> NDArray[np.float64]:
    """Return log P(lower <= Z <= upper) for Z ~ N(mean, 1), elementwise.

    Three formulas, chosen so that none of them cancels:

    - a short interval (width times distance from the mean below one): the density at the end next to the mean
      times a Gauss-Legendre integral of the density relative to it;
    - an interval in one tail: a difference of Mills ratios, scaled by the density;
    - an interval around the mean: one minus the two tails.

    The relative error of the mass is a few units of rounding times max(1, z^2 / 2), the accuracy to which
    float64 can hold its logarithm: 3e-11 at z = 500.
    """
    lower, upper = np.broadcast_arrays(np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64))
    width = upper - lower
    left, right = lower - mean, upper - mean
    with np.errstate(invalid="ignore"):  # -inf + inf, for the whole line: any order will do
        mirrored = left + right < 0
    near, far = np.where(mirrored, -right, left), np.where(mirrored, -left, right)  # |near| <= |far|, far >= 0

    short = width * np.maximum(1.0, far) < 1.0
    around = ~short & (near < 0)
    tail = ~short & (near >= 0)
    mass = np.full(width.shape, -np.inf)
    positive = width > 0

    at = short & positive
    step = width[at][:, None] * _NODES
    integral = np.exp(-step * (near[at][:, None] + step / 2)) @ _WEIGHTS
    mass[at] = _log_density(near[at]) + np.log(width[at]) + np.log(integral)

    mass[around] = np.log1p(-(ndtr(near[around]) + ndtr(-far[around])))

    x, y, w = near[tail], far[tail], width[tail]
    decay = np.exp(-w * (x + y) / 2)
    mass[tail] = _log_density(x) + np.log(_mills(x) - decay * _mills(y))
    return mass


def log_cdf(z: float, intervals: Intervals, mean: float = 0.0) -> float:
    """Return log P(Z <= z) for Z ~ N(mean, 1) truncated to a union of intervals."""
    return _log_share(clip(intervals, -np.inf, z), clip(intervals, z, np.inf), mean)


def log_sf(z: float, intervals: Intervals, mean: float = 0.0) -> float:
    """Return log P(Z >= z) for Z ~ N(mean, 1) truncated to a union of intervals."""
    return _log_share(clip(intervals, z, np.inf), clip(intervals, -np.inf, z), mean)


def log_pvalue(z: float, intervals: Intervals, alternative: Alternative = "two-sided") -> float:
    """Return the log of the selective p-value of a statistic.

    Parameters
    ----------
    z
        Observed statistic.
    intervals : (k, 2)
        The truncation set; must contain ``z``.
    alternative
        "two-sided" is P(abs(Z) > abs(z)) as in the paper, "greater" P(Z > z), "less" P(Z < z), for a standard
        normal Z truncated to ``intervals``.
    """
    return log_pvalue_bounds(z, intervals, intervals, alternative)[0]


def log_pvalue_bounds(
    z: float, certain: Intervals, possible: Intervals, alternative: Alternative = "two-sided"
) -> tuple[float, float]:
    """Return the logs of the least and the greatest p-value of any set between two.

    Parameters
    ----------
    z
        Observed statistic.
    certain, possible : (k, 2)
        Unions of intervals with ``certain`` contained in ``possible``: what is known to be in the truncation
        set, and what is not known to be outside it.
    alternative
        As in :func:`log_pvalue`.
    """
    extreme_certain, rest_certain = split_extreme(z, certain, alternative)
    extreme_possible, rest_possible = split_extreme(z, possible, alternative)
    return _log_share(extreme_certain, rest_possible), _log_share(extreme_possible, rest_certain)


def split_extreme(z: float, intervals: Intervals, alternative: Alternative) -> tuple[Intervals, Intervals]:
    """Return the part of a set at least as extreme as z under an alternative, and the rest."""
    check_alternative(alternative)
    below, above = clip(intervals, -np.inf, z), clip(intervals, z, np.inf)
    if alternative == "greater":
        return above, below
    if alternative == "less":
        return below, above
    size = abs(z)
    outer = np.concatenate([clip(intervals, -np.inf, -size), clip(intervals, size, np.inf)])
    return outer, clip(intervals, -size, size)


def probability(log_probability: float) -> float:
    """Return exp of a log-probability, never zero: what underflows becomes the smallest positive float64."""
    return min(1.0, max(float(np.exp(log_probability)), _SMALLEST))


def _log_share(part: Intervals, rest: Intervals, mean: float = 0.0) -> float:
    """Return the log of mass(part) / (mass(part) + mass(rest))."""
    log_part, log_rest = _log_total(part, mean), _log_total(rest, mean)
    if log_part == log_rest == -np.inf:
        raise InputError("the truncation set has no mass: it must be a union of intervals of positive width.")
    return float(log_part - np.logaddexp(log_part, log_rest))


def _log_total(intervals: Intervals, mean: float) -> float:
    if len(intervals) == 0:
        return -np.inf
    return float(logsumexp(log_mass(intervals[:, 0], intervals[:, 1], mean)))


def _log_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-0.5 * x * x - _LOG_SQRT_2PI)


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
