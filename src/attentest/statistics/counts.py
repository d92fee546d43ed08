"""The law of the counts in a region that was chosen on other counts of the same image: binomial, and exact.

Of each count a random part is put aside before the model sees the image. Parts of a Poisson count are independent, so
that the region does not depend on what was put aside, and there is no truncation set. Given their total, the counts put
aside in the region are binomial; at equal mean rates their probability is the share of the region in the pixels that
are compared, whatever the rates of single pixels are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from scipy.special import betainc, betaincinv, gammaln

from attentest.errors import InputError
from attentest.statistics.alternative import ONE_SIDED, Alternative, as_alternative
from attentest.statistics.columns import Floats
from attentest.statistics.interval_mass import LOG_2
from attentest.statistics.law import Law, Strips

SMALLEST, MOST_TERMS = 1e-290, 100_000
"""Smaller tails are summed in logs, over at most so many terms: they decrease fast so far from the expected count."""

TIE = 1e-9  # two counts this close to being equally far from the expected one are


@dataclass(frozen=True, kw_only=True, eq=False)
class BinomialCounts(Law):
    """Counts ``inside`` a region given the ``total``: binomial with probability ``share`` if mean rates are equal.

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
            return np.asarray(np.minimum(0.0, LOG_2 + np.minimum(less, greater)))
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
