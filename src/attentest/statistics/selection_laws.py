"""The laws of a statistic after a selection: the paper's, truncated, those of randomised selection, and that of counts.

The truncated and the randomised one are there twice: with the standard error of the statistic known, and estimated.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np
from scipy.special import betainc, betaincinv, expit, gammaln

from attentest.errors import InputError
from attentest.statistics.alternative import ONE_SIDED, Alternative, as_alternative
from attentest.statistics.bivariate_mass import NormalRectangles, Rectangles
from attentest.statistics.columns import Floats, Integers, Mask
from attentest.statistics.interval_mass import (
    log_mass,
    log_student_mass,
    log_twice_the_smaller,
    mean_in_interval,
    quantile,
    support,
)
from attentest.statistics.law import EstimatedError, Law, Strips
from attentest.statistics.student_bivariate_mass import StudentRectangles

MOST_DEGREES = 1e12
"""Degrees of freedom of a variance that is known, among others that are estimated: more cannot be told from it."""

MOST_RANDOMISED_DEGREES = 1e5
"""With more degrees of freedom a p-value above 1e-4 of a randomised selection changes by less than 0.1% of itself, and
the law with a known standard error is used, whose masses are found faster."""

SMALLEST, MOST_TERMS = 1e-290, 100_000
"""Smaller tails are summed in logs, over at most so many terms: they decrease fast so far from the expected count."""

TIE = 1e-9  # two counts this close to being equally far from the expected one are


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedLaw(Law):
    """A law in which z is the statistic itself."""

    @abstractmethod
    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return the log masses (m,) of intervals of T of images (m,), for means (m,)."""

    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses of intervals outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        left, right = strips.left, strips.right
        start = np.minimum(np.maximum(strips.lower, left), right)
        end = np.minimum(np.maximum(strips.upper, left), right)
        # Most intervals lie in one of the three parts, and the others need not be measured.
        below, between, above = (part.nonzero()[0] for part in (left < start, start < end, end < right))
        rows = np.concatenate([below, between, above])
        masses = self.log_interval_masses(
            strips.image[rows],
            np.concatenate([left[below], start[between], end[above]]),
            np.concatenate([start[below], end[between], right[above]]),
            strips.mean[rows],
        )
        outside, inside = np.full((2, len(left)), -np.inf)
        outside[below], inside[between], beyond = np.split(masses, np.cumsum([len(below), len(between)]))
        lower_part = outside[above]
        both = (lower_part > -np.inf).nonzero()[0]
        beyond[both] = np.logaddexp(lower_part[both], beyond[both])
        outside[above] = beyond
        return outside, inside

    def part_on_side(self, image: Integers, left: Floats, right: Floats, *, above: bool) -> tuple[Floats, Floats]:
        """Return the parts of intervals on one side of the statistic: see :meth:`Law.part_on_side`."""
        t = self.statistic[image]
        return (np.maximum(left, t), right) if above else (left, np.minimum(right, t))


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedNormal(TruncatedLaw):
    """T ~ N(mean, 1) and z = T (sections 2 and 3 of the paper).

    Masses are relative to the density at the observed statistic and in logs, so that neither a statistic of 500, nor
    an interval of width 1e-12, nor a mean a million standard errors away costs accuracy.
    """

    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return normal masses: see :meth:`TruncatedLaw.log_interval_masses`."""
        return log_mass(start, end, mean, relative_to=self.statistic[image])

    def log_masses_on_side(self, strips: Strips, above: Mask) -> tuple[Floats, Floats]:
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`.

        In an exponential family the slope is the mean of T - t in the interval.
        """
        left, right, mean, t = strips.left, strips.right, strips.mean, strips.upper
        mass = log_mass(left, right, mean, relative_to=t)
        return mass, mean_in_interval(left - t, right - t, mean - t, mass)

    def quantiles(self, strips: Strips, share: Floats, extreme: Mask) -> Floats:
        """Return the points before which shares of masses lie: see :meth:`Law.quantiles`."""
        left, right, mean = strips.left, strips.right, strips.mean
        start, end = np.clip(strips.lower, left, right), np.clip(strips.upper, left, right)
        # What is extreme lies below the lower limit, with this share of its mass, and above the upper one.
        below = np.where(left < start, 1.0, 0.0)
        both = np.flatnonzero(extreme & (left < start) & (end < right))
        log_odds = log_mass(left[both], start[both], mean[both]) - log_mass(end[both], right[both], mean[both])
        below[both] = expit(log_odds)
        first = extreme & ((share < below) | (end == right))
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.where(first, share / below, (share - below) / (1 - below))
        return quantile(
            np.where(extreme, np.where(first, left, end), start),
            np.where(extreme, np.where(first, start, right), end),
            mean,
            np.clip(np.where(extreme, within, share), 0.0, 1.0),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedStudent(EstimatedError, TruncatedLaw):
    """z = T = D / S, with D normal and S^2 an independent estimate of its variance; S is in the unit of z.

    The line on which a search moves the image, and so the truncation set of D, does not depend on the variance. So the
    law of D given that it lies in the set, and given the sufficient statistic for the variance, is known: see
    :mod:`attentest.statistics.interval_mass`. This is the selective t-test of Fithian, Sun and Taylor (2014), *Optimal
    inference after model selection*: exact if the estimate has the distribution that :class:`EstimatedError` states.
    """

    def log_interval_masses(self, image: Integers, start: Floats, end: Floats, mean: Floats) -> Floats:
        """Return Student masses: see :meth:`TruncatedLaw.log_interval_masses`."""
        return log_student_mass(start, end, self.statistic[image], mean, self.degrees[image])

    def with_known_error(self) -> TruncatedNormal:
        """Return the paper's law of the same statistics: see :meth:`Law.with_known_error`."""
        return TruncatedNormal(statistic=self.statistic)

    def reach(self, log_tail: float) -> Floats:
        """Return distances from zero beyond which z has little mass, or none: see :meth:`Law.reach`."""
        power = np.maximum(self.degrees / 2 - 1, np.finfo(np.float64).tiny)
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt(self.statistic**2 - self.degrees * np.expm1(-log_tail / power)))


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedLaw(Law):
    """A law in which z = T + gamma E with E ~ N(0, 1): the truncation of T is soft.

    The model looks at the image plus independent noise of the same covariance times gamma^2, and z is the coordinate of
    that sum. Given that z lies in the truncation set, T is not confined to it.
    """

    observed_z: Floats
    """(k,). Observed coordinates z."""
    gamma: Floats
    """(k,). Standard deviation of z given T."""

    @property
    def z_obs(self) -> Floats:
        """Observed coordinates (k,): see :attr:`Law.z_obs`."""
        return self.observed_z

    @property
    def spread(self) -> Floats:
        """Standard deviation of z, sqrt(1 + gamma^2): see :attr:`Law.spread`."""
        return np.asarray(np.sqrt(1 + self.gamma**2))

    def statistic_of(self, image: Integers, z: Floats, chance: Floats) -> Floats:
        """Return draws of T ~ N(z / (1 + gamma^2), gamma^2 / (1 + gamma^2)): see :meth:`Law.statistic_of`."""
        gamma, spread = self.gamma[image], self.spread[image]
        return np.asarray(z / spread**2 + gamma / spread * chance)

    @abstractmethod
    def _rectangles(self, strips: Strips) -> Rectangles:
        """Return strips as rectangles of the plane of T and V = z, with the parameters of the law."""

    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses of z intervals with T outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        outside, inside = masses = np.full((2, len(strips)), -np.inf)
        rows = np.flatnonzero(strips.left < strips.right)
        if len(rows):
            masses[:, rows] = self._rectangles(strips.take(rows)).log_masses()
        return outside, inside

    def log_masses_of_part(self, strips: Strips, extreme: Mask) -> Floats:
        """Return the log masses with T outside, or inside, its range: see :meth:`Law.log_masses_of_part`."""
        return self._rectangles(strips).log_masses_of_part(extreme)


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedNormal(RandomisedLaw):
    """T ~ N(mean, 1) and z = T + gamma E with E ~ N(0, 1).

    As gamma goes to zero this becomes :class:`TruncatedNormal`.
    """

    @property
    def interval_bound(self) -> Floats:
        """Greatest length of a confidence interval in units of the naive one (k,), whatever the truncation set.

        It is sqrt(1 + 1 / gamma^2): Kivaranovic and Leeb (2020), *A (tight) upper bound for the length of confidence
        intervals with conditional coverage*.
        """
        return np.asarray(np.sqrt(1 + 1 / self.gamma**2))

    def log_masses_on_side(self, strips: Strips, above: Mask) -> tuple[Floats, Floats]:
        """Return log masses on one side of the statistics, and their slopes: see :meth:`Law.log_masses_on_side`."""
        return self._rectangles(strips).log_masses_on_side(above)

    def _rectangles(self, strips: Strips) -> NormalRectangles:
        return NormalRectangles(
            left=strips.left,
            right=strips.right,
            lower=strips.lower,
            upper=strips.upper,
            gamma=self.gamma[strips.image],
            mean=strips.mean,
            origin=self.observed_z[strips.image],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomisedStudent(EstimatedError, RandomisedLaw):
    """T as in :class:`TruncatedStudent`, and z = T + gamma E with E ~ N(0, 1), where gamma is in units of S, too.

    Let the mean m of D and its sufficient statistic (D - m)^2 + nu S^2 be given. Then S is a function of D: with t the
    observed T, (u - m)^2 + nu S(u)^2 = (t - m)^2 + nu in units of the observed S, so that where T = u

        S(u) = (1 + (t - u) (t + u - 2 m) / nu)^(1/2).

    The noise that would have been added there has the standard deviation gamma S(u), and z given T = u is normal around
    u with that standard deviation. This is the law of T and z given a set of z, whatever the variance of D is. It is
    exact if the set does not depend on S; but S is also the scale of the added noise beside the line, along which the
    set is taken to be that of the observed S.
    """

    def _rectangles(self, strips: Strips) -> StudentRectangles:
        image, t = strips.image, self.statistic[strips.image]
        least, greatest = support(t - strips.mean, self.degrees[image])
        return StudentRectangles(
            left=strips.left - t,
            right=strips.right - t,
            lower=strips.lower - t,
            upper=strips.upper - t,
            gamma=self.gamma[image],
            least=least,
            greatest=greatest,
            degrees=self.degrees[image],
        )

    def with_known_error(self) -> RandomisedNormal:
        """Return the law of the same statistics with a known standard error: see :meth:`Law.with_known_error`."""
        return RandomisedNormal(statistic=self.statistic, observed_z=self.observed_z, gamma=self.gamma)

    def reach(self, log_tail: float) -> Floats:
        """Return distances from zero beyond which z has little mass: see :meth:`Law.reach`."""
        # With R^2 = nu + t^2 and x = T / R, so that (S / R)^2 = (1 - x^2) / nu, the log density at mean zero is nu / 2
        # times log(1 - x^2) - (z / R - x)^2 / (1 - x^2) / gamma^2, which is at most -(z / R)^2 / (1 + gamma^2).
        stretch = 1 + self.statistic**2 / self.degrees
        observed = self.degrees * np.log(stretch) + ((self.observed_z - self.statistic) / self.gamma) ** 2
        return np.asarray(self.spread * np.sqrt(stretch * (2 * log_tail + observed)))


@dataclass(frozen=True, kw_only=True, eq=False)
class BinomialCounts(Law):
    """Counts ``inside`` a region given the ``total``: binomial with probability ``share`` if mean rates are equal.

    Of each count a random part is put aside before the model sees the image. Parts of a Poisson count are independent,
    so that the region does not depend on what was put aside, and there is no truncation set. Given their total, the
    counts put aside in the region are binomial; at equal mean rates their probability is the share of the region in the
    pixels that are compared, whatever the rates of single pixels are.

    The statistic is the difference from the expected count in standard deviations. Estimates and intervals are of the
    ratio of the mean rates inside and outside, which is 1 if they are equal.
    """

    inside: Floats
    total: Floats
    """(k,). Counts that the model has not seen: in the region, and in all pixels that are compared."""
    share: Floats
    """(k,). Share of the region in these pixels."""
    naive_inside: Floats
    naive_total: Floats
    """(k,). The same of all counts, those that the model saw among them."""

    @classmethod
    def of(
        cls, inside: Floats, total: Floats, share: Floats, naive_inside: Floats, naive_total: Floats
    ) -> BinomialCounts:
        """Return the law of counts (k,), with their statistics."""
        return cls(
            statistic=(inside - total * share) / np.sqrt(total * share * (1 - share)),
            inside=inside,
            total=total,
            share=share,
            naive_inside=naive_inside,
            naive_total=naive_total,
        )

    def naive(self) -> BinomialCounts:
        """Return the law of all counts, as if the region had been fixed before the model saw any of them."""
        return replace(self, inside=self.naive_inside, total=self.naive_total)

    def log_pvalues(self, alternative: Alternative) -> Floats:
        """Return the logs of the p-values (k,) of the binomial test.

        "two-sided" counts all counts at least as far from the expected one, "equal-tailed" twice the smaller tail.
        """
        outside, rest = self.total - self.inside, 1 - self.share
        less = _log_tail(outside, self.total, rest)
        greater = _log_tail(self.inside, self.total, self.share)
        if as_alternative(alternative) in ONE_SIDED:
            return less if alternative == "less" else greater
        if alternative == "equal-tailed":
            return log_twice_the_smaller(less, greater)
        expected = self.total * self.share
        distance = np.abs(self.inside - expected) - TIE * (1 + expected)
        above = _log_tail(np.ceil(expected + distance), self.total, self.share)
        below = _log_tail(self.total - np.floor(expected - distance), self.total, rest)
        return np.asarray(np.where(distance <= 0, 0.0, np.minimum(0.0, np.logaddexp(below, above))))

    @property
    def ratio(self) -> Floats:
        """Ratio (k,) of the mean rates inside and outside; infinite if nothing was counted outside."""
        return _ratio(self.inside / self.total, 1 - self.inside / self.total, self.share)

    def ratio_ends(self, tails: Floats) -> tuple[Floats, Floats]:
        """Return the ends (k,) of Clopper-Pearson intervals of the ratio, each missed with probability tails (k,)."""
        outside = self.total - self.inside
        # Both probabilities are computed, because one minus the greater would lose the digits of the smaller.
        with np.errstate(invalid="ignore"):
            low = _ratio(
                betaincinv(self.inside, outside + 1, tails), betaincinv(outside + 1, self.inside, 1 - tails), self.share
            )
            high = _ratio(
                betaincinv(self.inside + 1, outside, 1 - tails), betaincinv(outside, self.inside + 1, tails), self.share
            )
        return np.where(self.inside == 0, 0.0, low), np.where(outside == 0, np.inf, high)

    def log_masses(self, strips: Strips) -> NoReturn:
        """Raise an error: there is no z, and p-values and intervals are known without masses of it."""
        raise InputError("counts are tested without a search: their statistic has no coordinate on a line.")


def _log_tail(count: Floats, total: Floats, share: Floats) -> Floats:
    """Return the log probabilities (k,) of at least so many of the total, also where they are too small for a float."""
    tails = np.where(count <= 0, 1.0, 0.0)
    some = (count > 0) & (count <= total)
    tails[some] = betainc(count[some], total[some] - count[some] + 1, share[some])
    with np.errstate(divide="ignore"):
        logs = np.log(tails)
    for row in np.flatnonzero(some & (tails < SMALLEST)):
        n, first, odds = total[row], count[row], share[row] / (1 - share[row])
        log_choices = gammaln(n + 1) - gammaln(first + 1) - gammaln(n - first + 1)
        # Relative to the first term; beyond the expected count each is smaller than the one before.
        counts = np.arange(first, min(n, first + MOST_TERMS))
        terms = np.exp(np.cumsum(np.log((n - counts) / (counts + 1) * odds)))
        logs[row] = (
            log_choices + first * np.log(share[row]) + (n - first) * np.log1p(-share[row]) + np.log1p(terms.sum())
        )
    return np.asarray(logs)


def _ratio(inside: Floats, outside: Floats, share: Floats) -> Floats:
    """Return the ratios of rates from the probabilities of a count to be inside and outside."""
    with np.errstate(divide="ignore"):
        return np.asarray(inside / outside * ((1 - share) / share))


LAWS: dict[str, type[Law]] = {
    "truncated normal": TruncatedNormal,
    "randomised normal": RandomisedNormal,
    "truncated Student": TruncatedStudent,
    "randomised Student": RandomisedStudent,
    "binomial": BinomialCounts,
}
"""The names of the laws in records."""


def law_values(law: Law) -> dict[str, Any]:
    """Return what, with the statistic, defines the law of one image; only the name of a law that is not attentest's."""
    name = next((name for name, kind in LAWS.items() if type(law) is kind), None)
    if name is None:
        return {"name": type(law).__name__}
    return {"name": name, **{key: float(getattr(law, field)[0]) for field, key in _recorded(type(law)).items()}}


def law_from_values(statistic: float, values: Mapping[str, Any]) -> Law | None:
    """Return the law of one image, given its statistic and :func:`law_values`; None for one that is not attentest's."""
    kind = LAWS.get(values["name"])
    if kind is None:
        return None
    parameters = {field: np.array([values[key]]) for field, key in _recorded(kind).items()}
    return kind(statistic=np.array([statistic]), **parameters)


def _recorded(kind: type[Law]) -> dict[str, str]:
    """Return the fields of a law other than the statistic, and what each is called in a record."""
    names = (field.name for field in fields(kind) if field.name != "statistic")
    return {name: "z_obs" if name == "observed_z" else name for name in names}
