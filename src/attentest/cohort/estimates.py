"""What each image contributes to a study: an unbiased estimate after randomised selection, or a likelihood without it.

With X the image, W the noise that was added to it, T = eta'X / s, and z = T + gamma E the coordinate of X + W on the
line of the test, X - W / gamma^2 is independent of X + W, and so of the region. Hence U = s (T - E / gamma) is normal
with mean eta'mu and variance s^2 (1 + 1 / gamma^2), given the region. Its mean given T and the truncation set, in which
E is a truncated normal number, is unbiased too and varies less (Rao and Blackwell). ``gamma`` is that of the law, which
is greater where a noisy reference has a share of the variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from attentest.cohort.means import Estimate, two_sided
from attentest.statistics.columns import Floats, Mask
from attentest.statistics.draws import COLUMNS
from attentest.statistics.interval_mass import log_mass, log_sums, mean_in_interval
from attentest.statistics.roots import increasing_roots
from attentest.statistics.selection_laws import RandomisedLaw
from attentest.statistics.truncation_set import Intervals, TruncationSet, Unions

RESOLVED = 0.01
"""The mean given the set is used where what a search left open changes it by less than so many standard errors, and U
elsewhere: given T both have the same mean, so that choosing between them by T leaves them unbiased."""

FLAT = 0.02  # within so many standard errors of the maximum of a likelihood its signed root is interpolated


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Unbiased estimates (k,) of differences after randomised selection, in the units of the pixels."""

    value: Floats
    resolved: Mask
    """The estimates, and where they are the mean of U given the truncation set, and not U."""
    plain: Floats
    error: Floats
    """U, and its standard deviation, which is at least that of ``value``."""
    correction: Floats
    """``value`` less the naive difference: it is proportional to the assumed variance of the noise."""


def unbiased_estimates(law: RandomisedLaw, sets: Sequence[TruncationSet], standard_error: Floats) -> Estimates:
    """Return unbiased estimates, given the law of k statistics, their truncation sets and standard errors s (k,).

    With a law whose standard error is an estimate they are approximate.
    """
    t, gamma, s = law.statistic, law.gamma, standard_error
    mean, *_ = _added_noise(law, [known.intervals for known in sets], np.zeros(len(t)))
    _, certain, distance = _added_noise(law, [known.certain for known in sets], mean)
    _, possible, farther = _added_noise(law, [known.possible for known in sets], mean)
    error, plain = np.sqrt(1 + 1 / gamma**2), t + (t - law.z_obs) / gamma**2
    with np.errstate(invalid="ignore", over="ignore"):
        # Adding any part of what is possible to what is certain moves the mean by no more than this.
        open_part = np.exp(possible - certain) * farther - distance
        resolved = np.isfinite(mean) & (open_part / gamma <= RESOLVED * error)
    value = np.where(resolved, t - mean / gamma, plain)
    return Estimates(value=s * value, resolved=resolved, plain=s * plain, error=s * error, correction=s * (value - t))


def estimates_from_draws(images: Sequence[Mapping[str, Sequence[float]]]) -> Estimates:
    """Return the mean of U over the draws of each image, which is unbiased for the mean difference of their regions.

    The image's own noise is in all of U and the added noise in each by itself, so that the variance is at most that of
    equal regions, whose parts of the image's noise are the same. The draws are columns of
    ``attentest.statistics.draws``.
    """
    values, naive, errors = [], [], []
    for draws in images:
        t, z, gamma, s = (np.array(draws[name]) for name in COLUMNS)
        values.append(np.mean(s * (t + (t - z) / gamma**2)))
        naive.append(np.mean(s * t))
        errors.append(math.sqrt(np.mean(s) ** 2 + np.mean((s / gamma) ** 2) / len(s)))
    value = np.array(values)
    resolved, error = np.zeros(len(value), dtype=bool), np.array(errors)
    return Estimates(value=value, resolved=resolved, plain=value, error=error, correction=value - np.array(naive))


def _added_noise(law: RandomisedLaw, sets: Sequence[Intervals], centre: Floats) -> tuple[Floats, Floats, Floats]:
    """Return mean, log mass and mean distance from a centre (k,) of the added noise E, given T and the sets."""
    unions, count = Unions.of(sets), len(sets)
    owner = unions.owner
    t, gamma, middle = law.statistic[owner], law.gamma[owner], np.nan_to_num(centre[owner])
    left, right = (unions.left - t) / gamma, (unions.right - t) / gamma
    zero, cut = np.zeros_like(left), np.clip(middle, left, right)

    def moments(start: Floats, end: Floats) -> tuple[Floats, Floats]:
        mass = log_mass(start, end, zero, relative_to=zero)
        return mass, np.where(np.isneginf(mass), 0.0, mean_in_interval(start, end, zero, mass))

    mass, mean = moments(left, right)
    total = log_sums(owner, mass, count)
    with np.errstate(invalid="ignore"):
        first = np.bincount(owner, np.exp(mass - total[owner]) * mean, minlength=count)
        distance = np.zeros(count)
        for ends in ((left, cut), (cut, right)):
            part, at = moments(*ends)
            distance += np.bincount(owner, np.exp(part - total[owner]) * np.abs(at - middle), minlength=count)
    return np.where(np.isneginf(total), np.nan, first), total, distance


def common_effect(
    statistic: Floats, sets: Sequence[Intervals], standard_error: Floats, confidence_level: float
) -> Estimate:
    """Return the difference that images have in common, from statistics T (k,) without randomised selection.

    T_i ~ N(theta / s_i, 1) given that T_i lies in its set are an exponential family with one parameter, whose
    sufficient statistic is the sum of T_i / s_i. Its tails are those of the signed root of the likelihood ratio with
    Barndorff-Nielsen's correction (1986), a saddlepoint approximation. The estimate is median-unbiased, p equal-tailed.
    """
    unions, s = Unions.of(sets), standard_error
    owner = unions.owner
    t, errors = statistic[owner], s[owner]
    left, right = unions.left - t, unions.right - t

    def likelihood(theta: float) -> tuple[float, float]:
        """Return the log likelihood, and how far the mean of the sufficient statistic exceeds the observed one."""
        mean = theta / errors - t
        mass = log_mass(left, right, mean, relative_to=0.0)
        total = log_sums(owner, mass, len(s))
        excess = np.exp(mass - total[owner]) * mean_in_interval(left, right, mean, mass) / errors
        return -float(total.sum()), float(excess.sum())

    unit = float(1 / np.sqrt(np.sum(s**-2.0)))  # the standard error without selection
    best = unit * _root(lambda at: unit * likelihood(unit * at)[1], float(np.sum(statistic / s)) * unit)
    step = 1e-3 * unit
    width = math.sqrt(2 * step / (likelihood(best + step)[1] - likelihood(best - step)[1]))
    highest = likelihood(best)[0]

    def corrected(u: float) -> float:
        root = math.copysign(math.sqrt(2 * (highest - likelihood(best - width * u)[0])), u)
        return root + math.log(u / root) / root

    around = corrected(FLAT), corrected(-FLAT)

    def signed_root(theta: float) -> float:
        """Return what is standard normal if theta is the true effect."""
        u = (best - theta) / width
        share = (1 + u / FLAT) / 2
        return corrected(u) if abs(u) >= FLAT else share * around[0] + (1 - share) * around[1]

    quantile = float(ndtri((1 + confidence_level) / 2))
    low, value, high = (
        best + width * _root(lambda at, wanted=wanted: -signed_root(best + width * at) - wanted, wanted)  # type: ignore[misc]
        for wanted in (-quantile, 0.0, quantile)
    )
    return Estimate(
        value=value, standard_error=width, degrees=math.inf, low=low, high=high, confidence_level=confidence_level,
        pvalue=two_sided(signed_root(0.0), math.inf),
    )  # fmt: skip


def _root(function: Callable[[float], float], start: float) -> float:
    """Return the root of an increasing function."""
    return float(increasing_roots(lambda _, at: (np.array([function(float(at[0]))]), None), np.array([start]))[0])
