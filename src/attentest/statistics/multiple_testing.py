"""Many p-values together: adjusted ones, decisions, rates, closed testing, and how many rejections chance allows."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtri

from attentest.checks import confidence, level
from attentest.errors import InputError
from attentest.statistics.interval_mass import probability
from attentest.statistics.pvalue import decision

Adjustment: TypeAlias = Literal["holm", "bh", "by"]

Simultaneous: TypeAlias = Literal["bonferroni", "holm"]  # ways to choose intervals that all cover together
ROUNDING = 1e-9  # relative rounding error of a binomial tail, so that one that equals a bound counts as equal to it


def adjusted_pvalues(log_pvalues: NDArray[np.float64], method: Adjustment) -> NDArray[np.float64]:
    """Return adjusted p-values (m,), in the order of the p-values, whose logs (m,) are given.

    An adjusted p-value increases with every p-value, so upper bounds of p-values give upper bounds of the adjusted
    ones, and lower bounds lower ones. "holm" controls the probability of any false rejection, however the tests depend
    on each other; "bh", Benjamini and Hochberg, the expected proportion of false rejections (false discovery rate), for
    independent or positively dependent tests; "by", Benjamini and Yekutieli, the same however they depend, with
    p-values greater by the factor 1 + 1/2 + ... + 1/m.
    """
    if method not in get_args(Adjustment):
        raise InputError(f"the adjustment must be one of {', '.join(get_args(Adjustment))}, got {method!r}.")
    order = np.argsort(log_pvalues, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    ascending = log_pvalues[order]
    if method == "holm":
        steps = np.maximum.accumulate(ascending + np.log(ranks[::-1]))
    else:
        factor = len(ranks) * np.sum(1 / ranks) if method == "by" else len(ranks)
        steps = np.minimum.accumulate((ascending + np.log(factor / ranks))[::-1])[::-1]
    adjusted = np.empty(len(order))
    adjusted[order] = [probability(log) for log in steps]
    return adjusted


Dependence: TypeAlias = Literal["positive", "any"]
"""How p-values may depend on each other: not or positively, for which Simes' inequality holds, or in any way."""


def least_differing(
    log_pvalues: NDArray[np.float64], chosen: NDArray[np.bool_], alpha: float, dependence: Dependence
) -> int:
    """Return how many of the hypotheses that a mask (m,) chooses are false at least, by closed testing.

    The bounds for all masks hold together with the probability 1 - alpha, so that a mask may depend on the p-values
    (m,): Goeman and Solari (2011), *Multiple testing for exploratory research*; they follow from the size of the
    largest set that its local test does not reject (Goeman, Meijer, Krebs and Solari 2019).
    """
    ascending, count = np.sort(log_pvalues), len(log_pvalues)
    lines, sizes = np.log(alpha * np.arange(1, count + 1)), np.arange(1.0, count + 1)
    # The local test of s hypotheses rejects if p_(j) <= j alpha / c_s: c_s = s by Simes (1986), and times the sum of
    # 1/i for i up to s by Hommel (1983).
    factors = np.log(sizes * (np.cumsum(1 / sizes) if dependence == "any" else 1.0))
    unrejected = (s for s in range(count, 0, -1) if np.all(factors[s - 1] + ascending[count - s :] > lines[:s]))
    cutoffs = lines[: int(chosen.sum())] - factors[next(unrejected, 1) - 1]
    below = np.searchsorted(np.sort(log_pvalues[chosen]), cutoffs, side="right")
    return int(np.max(below - np.arange(len(below)), initial=0))


def global_pvalues(log_pvalues: NDArray[np.float64]) -> dict[str, float]:
    """Return p-values of the hypothesis that all hypotheses are true, by Simes, Hommel (1983) and Fisher.

    The first holds for independent and positively dependent p-values, the second, which is the first times the sum of
    1/i, under any dependence, and the third for independent ones.
    """
    ranks = np.arange(1, len(log_pvalues) + 1)
    simes = float(np.min(np.sort(log_pvalues) - np.log(ranks / len(ranks))))
    hommel, fisher = simes + float(np.log(np.sum(1 / ranks))), chdtrc(2 * len(ranks), -2 * float(np.sum(log_pvalues)))
    return {
        "simes": probability(simes),
        "hommel": probability(hommel),
        "fisher": max(float(fisher), probability(-np.inf)),
    }


def level_of_each(confidence_level: float, count: int) -> float:
    """Return the level of each of so many intervals that all cover together at a confidence level (Bonferroni)."""
    return confidence_level if count == 1 else 1 - (1 - confidence_level) / count


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A proportion, with its Wilson interval."""

    count: int
    total: int
    """Number of hits, and of cases."""
    low: float
    high: float
    """Ends of the interval."""
    confidence_level: float
    """Of the interval."""

    @property
    def value(self) -> float:
        """The proportion."""
        return self.count / self.total

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}] ({self.count} of {self.total})"


def rate_of(hits: NDArray[np.bool_], confidence_level: float = 0.95) -> Rate:
    """Return the proportion of cases (m,) that are hits, with Wilson's interval (1927)."""
    confidence_level = confidence(confidence_level)
    total = len(hits)
    if total == 0:
        raise InputError("a rate needs at least one result, got none.")
    count = int(np.sum(hits))
    z = float(ndtri((1 + confidence_level) / 2))
    centre = (count + z**2 / 2) / (total + z**2)
    half = z / (total + z**2) * math.sqrt(count * (total - count) / total + z**2 / 4)
    low, high = (0.0 if count == 0 else centre - half), (1.0 if count == total else centre + half)
    return Rate(count=count, total=total, low=low, high=high, confidence_level=confidence_level)


def rejection_limits(alphas: Sequence[float], total: int, error_rate: float) -> tuple[int, ...]:
    """Return for each level the greatest number of rejections that is compatible with a valid test.

    A valid test rejects a true hypothesis with probability at most alpha. With independent p-values the probability
    that it exceeds the limit at one level or more is at most ``error_rate``, for every number of p-values. The limits
    are binomial quantiles that all leave the same probability above them, as large as the joint distribution of the
    counts permits; only because counts are whole numbers the error rate can be below the one asked for. Levels are in
    any order.
    """
    from scipy import stats  # takes long to import, and few results need it

    levels, places = np.unique(np.array(alphas, dtype=np.float64), return_inverse=True)
    safe = error_rate / len(levels)  # Bonferroni
    most, fewest = (stats.binom.isf(tail, total, levels) for tail in (safe, error_rate))
    tails = [
        stats.binom.sf(np.arange(low, high + 1), total, p) for low, high, p in zip(fewest, most, levels, strict=True)
    ]
    candidates = np.unique(np.concatenate([[safe], *tails]))
    candidates = candidates[candidates >= safe]

    def limits(tail: float) -> NDArray[np.float64]:
        return np.asarray(stats.binom.isf(tail * (1 + ROUNDING), total, levels))

    allowed = bisect_right(candidates, error_rate, key=lambda tail: exceeding(limits(tail), levels, total))
    most_rejections = limits(candidates[max(allowed - 1, 0)])
    return tuple(int(most_rejections[place]) for place in places)


def exceeding(limits: NDArray[np.float64], levels: NDArray[np.float64], total: int) -> float:
    """Return the probability that uniform p-values exceed a limit: that more than limits[j] are at most levels[j].

    Of the total number of p-values, those between neighbouring ones of the ascending levels (k,) are multinomial:
    independent Poisson numbers, given their sum.
    """
    from scipy import signal, stats  # takes long to import, and few results need it

    within = np.ones(1)  # probabilities of the counts so far, none of which exceeds its limit
    for limit, share in zip(limits, np.diff(levels, prepend=0.0), strict=True):
        added = stats.poisson.pmf(np.arange(limit + 1), total * share)
        within = signal.fftconvolve(within, added)[: len(added)]
    rest = stats.poisson.pmf(total - np.arange(len(within)), total * (1 - levels[-1]))
    return float(1 - within @ rest / stats.poisson.pmf(total, total))


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyPvalues:
    """What is known of the p-values of m images."""

    log_low: NDArray[np.float64]
    log_high: NDArray[np.float64]
    """(m,). Logs of the bounds on the selective p-values."""
    naive: NDArray[np.float64]
    """(m,). P-values that ignore the selection."""
    statuses: Sequence[str]
    """How each search ended."""
    certified: Sequence[bool]
    """Whether each result has a certificate."""
    references: Sequence[str | None]
    """Digest of the noisy reference image of each; None where there is none."""

    def __len__(self) -> int:
        return len(self.log_low)

    def adjusted_bounds(self, method: Adjustment) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest adjusted p-values (m,) compatible with what the searches know."""
        return adjusted_pvalues(self.log_low, method), adjusted_pvalues(self.log_high, method)

    def decisions(self, alpha: float, method: Adjustment | None = None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where the error bars do not tell."""
        alpha = level(alpha)
        lows, highs = (np.exp(self.log_low), np.exp(self.log_high)) if method is None else self.adjusted_bounds(method)
        return [decision(low, high, alpha) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]

    def rejection_rate(self, alpha: float, naive: bool = False, confidence_level: float = 0.95) -> Rate:
        """Return the proportion of p-values that are certainly at most alpha, with its Wilson interval."""
        alpha = level(alpha)
        hits = self.naive <= alpha if naive else np.array([decided is True for decided in self.decisions(alpha)])
        return rate_of(hits, confidence_level)

    @property
    def share_a_reference(self) -> bool:
        """Whether two images were compared with the same noisy reference."""
        references = [reference for reference in self.references if reference is not None]
        return len(set(references)) < len(references)
