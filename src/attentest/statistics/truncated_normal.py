"""The normal distribution truncated to a union of intervals, in logs (sections 2 and 3).

Every probability is kept as a logarithm until the last step, so that a statistic of 500 or an interval of width
1e-12 costs no accuracy: see ``log_mass`` for how a single interval is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

from attentest.errors import InputError
from attentest.statistics.intervals import Intervals, clip

Alternative: TypeAlias = Literal["two-sided", "greater", "less"]

_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2  # on [0, 1]
_SMALLEST = float(np.nextafter(0.0, 1.0))


def check_alternative(alternative: str) -> None:
    """Refuse an alternative that is not one of SciPy's three."""
    if alternative not in get_args(Alternative):
        raise InputError(f"alternative must be 'two-sided', 'greater' or 'less', got {alternative!r}.")


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
    low, high = log_pvalue_bounds_of_many(np.array([z]), [certain], [possible], alternative)
    return float(low[0]), float(high[0])


def log_pvalue_bounds_of_many(
    z: NDArray[np.float64],
    certain: Sequence[Intervals],
    possible: Sequence[Intervals],
    alternative: Alternative = "two-sided",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return :func:`log_pvalue_bounds` of statistics (k,) and their k sets, all at once."""
    ordinary = ordinary_range(z, alternative)
    extreme_certain, rest_certain = _log_masses_of_sets(certain, ordinary)
    extreme_possible, rest_possible = _log_masses_of_sets(possible, ordinary)
    high = log_share(extreme_possible, rest_certain)
    return np.minimum(log_share(extreme_certain, rest_possible), high), high  # for p next to 1 rounding can swap them


def ordinary_range(z: NDArray[np.float64], alternative: Alternative) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends (k,) between which a value is less extreme than the statistics z (k,)."""
    check_alternative(alternative)
    if alternative == "greater":
        return np.full_like(z, -np.inf), z
    if alternative == "less":
        return z, np.full_like(z, np.inf)
    return -np.abs(z), np.abs(z)


def extreme_and_ordinary_log_masses(
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    mean: ArrayLike = 0.0,
    relative_to: ArrayLike | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log masses of intervals [left, right] outside and inside [lower, upper], elementwise.

    ``mean`` and ``relative_to`` are as in :func:`log_mass`.
    """
    with np.errstate(invalid="ignore"):  # the width of nothing at infinity
        below = log_mass(left, np.maximum(left, np.minimum(right, lower)), mean, relative_to)
        above = log_mass(np.minimum(right, np.maximum(left, upper)), right, mean, relative_to)
        start = np.clip(lower, left, right)
        between = log_mass(start, np.maximum(start, np.minimum(right, upper)), mean, relative_to)
    return np.logaddexp(below, above), between


def log_sums(group: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the logs of the sums of exp(values) by group, (count,)."""
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, group, values)
    shift = np.where(np.isfinite(greatest), greatest, 0.0)
    sums = np.bincount(group, np.exp(values - shift[group]), minlength=count)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(sums) + shift)


def log_share(part: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(part / (part + rest)) of log masses, elementwise; refuse a whole of no mass."""
    whole = np.logaddexp(part, rest)
    if np.any(whole == -np.inf):
        raise InputError("the truncation set has no mass: it must be a union of intervals of positive width.")
    return np.asarray(part - whole)


def split_extreme(z: float, intervals: Intervals, alternative: Alternative) -> tuple[Intervals, Intervals]:
    """Return the part of a set at least as extreme as z under an alternative, and the rest."""
    lower, upper = (float(end[0]) for end in ordinary_range(np.array([z]), alternative))
    outer = np.concatenate([clip(intervals, -np.inf, lower), clip(intervals, upper, np.inf)])
    return outer, clip(intervals, lower, upper)


def probability(log_probability: float) -> float:
    """Return exp of a log-probability, never zero: what underflows becomes the smallest positive float64."""
    return min(1.0, max(float(np.exp(log_probability)), _SMALLEST))


def _log_masses_of_sets(
    sets: Sequence[Intervals], ordinary: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    group = np.repeat(np.arange(len(sets)), [len(intervals) for intervals in sets])
    left, right = np.concatenate(list(sets)).T
    extreme, rest = extreme_and_ordinary_log_masses(left, right, ordinary[0][group], ordinary[1][group])
    return log_sums(group, extreme, len(sets)), log_sums(group, rest, len(sets))


def _log_ratio(t: NDArray[np.float64], tilt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the density at a distance t from a centre, relative to that at the centre."""
    return np.asarray(t * (tilt - t / 2))


def _mills(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (1 - Phi(x)) / phi(x) for x >= 0."""
    return np.asarray(np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2)))
