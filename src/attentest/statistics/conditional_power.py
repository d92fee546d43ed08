"""Power of the tests of k images, given that each image fell into its truncation set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from attentest.statistics.alternative import Alternative, check_alternative
from attentest.statistics.conditional_mean import increasing_roots, padded
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law


def detectable_means(
    law: Law, sets: Sequence[Intervals], alternative: Alternative, alpha: float, power: float
) -> NDArray[np.float64]:
    """Return the least means (k,) of T, without their signs, that a test at level alpha finds with a given power.

    Both the level and the power are conditional on the truncation set: given the region, and all of the image but the
    statistic. The mean points where the alternative does; for "two-sided" to the side of the observed statistic.

    Parameters
    ----------
    law
        The law of k statistics.
    sets : k unions of intervals
        Their truncation sets.
    alternative
        Of the p-values.
    alpha, power
        Level of the tests, and the probability with which they reject.
    """
    check_alternative(alternative)
    ends, t = padded(sets), law.statistic
    two_sided = alternative == "two-sided"
    side = np.where(t < 0, -1.0, 1.0) if two_sided else np.full(len(law), 1.0 if alternative == "greater" else -1.0)

    def log_odds(rows: NDArray[np.int64], mean: ArrayLike, cutoff: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log odds of a rejection, if T is extreme from a cutoff on, on its side or on both."""
        nowhere = np.full(len(rows), np.inf)
        extreme, ordinary = law.log_masses(
            rows[:, None],
            ends[rows, :, 0],
            ends[rows, :, 1],
            mean=np.broadcast_to(mean, len(rows))[:, None],
            lower=-(cutoff if two_sided or alternative == "less" else nowhere)[:, None],
            upper=(cutoff if two_sided or alternative == "greater" else nowhere)[:, None],
        )
        return np.asarray(np.logaddexp.reduce(extreme, axis=1) - np.logaddexp.reduce(ordinary, axis=1))

    def below_level(rows: NDArray[np.int64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
        cutoff = side[rows] * t[rows] + distance
        if not two_sided:
            return float(logit(alpha)) - log_odds(rows, 0.0, cutoff)
        # From zero on everything is extreme.
        return np.where(cutoff > 0, logit(alpha) - log_odds(rows, 0.0, np.maximum(cutoff, 0.0)), -np.inf)

    cutoffs = side * t + increasing_roots(below_level, len(law))

    def above_power(rows: NDArray[np.int64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
        # On the other side of zero the power of a two-sided test rises again, but that is not looked for.
        return log_odds(rows, side[rows] * np.maximum(mean, 0.0), cutoffs[rows]) - float(logit(power))

    return np.maximum(increasing_roots(above_power, len(law)), 0.0)
