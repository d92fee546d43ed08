"""Power of the tests of k images, given that each image fell into its truncation set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from attentest.statistics.alternative import Alternative
from attentest.statistics.law import Law
from attentest.statistics.roots import increasing_roots
from attentest.statistics.truncation_set import Intervals


def detectable_means(
    law: Law, sets: Sequence[Intervals], alternative: Alternative, alpha: float, power: float
) -> NDArray[np.float64]:
    """Return the least means (k,) of T, without their signs, that a test at level alpha finds with a given power.

    Both the level and the power are conditional on the truncation set: given the region, and all of the image but the
    statistic. The mean points where the alternative does; for a two-sided one to the side of the observed statistic.

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
    ends, t = _padded(sets), law.statistic
    one_sided = alternative in ("greater", "less")
    side = np.full(len(law), 1.0 if alternative == "greater" else -1.0) if one_sided else np.where(t < 0, -1.0, 1.0)
    nowhere = np.full(len(law), np.inf)

    def log_odds(
        rows: NDArray[np.int64], mean: ArrayLike, lower: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the log odds of a rejection, if T is extreme up to a lower and from an upper cutoff on."""
        extreme, ordinary = law.log_masses(
            rows[:, None],
            ends[rows, :, 0],
            ends[rows, :, 1],
            mean=np.broadcast_to(mean, len(rows))[:, None],
            lower=lower[:, None],
            upper=upper[:, None],
        )
        return np.asarray(np.logaddexp.reduce(extreme, axis=1) - np.logaddexp.reduce(ordinary, axis=1))

    def tail_end(towards: float, level: float) -> NDArray[np.float64]:
        """Return from where on (k,), upwards (1) or downwards (-1), the tails have this probability."""

        def below_level(rows: NDArray[np.int64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
            end = t[rows] + towards * distance
            cutoffs = (-nowhere[rows], end) if towards > 0 else (end, nowhere[rows])
            return float(logit(level)) - log_odds(rows, 0.0, *cutoffs)

        return t + towards * increasing_roots(below_level, len(law))

    def absolute_end() -> NDArray[np.float64]:
        """Return from where on (k,) both tails together have the probability alpha."""

        def below_level(rows: NDArray[np.int64], distance: NDArray[np.float64]) -> NDArray[np.float64]:
            end = np.abs(t[rows]) + distance
            inside = np.maximum(end, 0.0)  # from zero on everything is extreme
            return np.where(end > 0, logit(alpha) - log_odds(rows, 0.0, -inside, inside), -np.inf)

        return np.abs(t) + increasing_roots(below_level, len(law))

    if alternative == "two-sided":
        upper = absolute_end()
        lower = -upper
    else:
        level = alpha if one_sided else alpha / 2
        upper = nowhere if alternative == "less" else tail_end(1.0, level)
        lower = -nowhere if alternative == "greater" else tail_end(-1.0, level)

    def above_power(rows: NDArray[np.int64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
        # On the other side of zero the power of a two-sided test rises again, but that is not looked for.
        powers = log_odds(rows, side[rows] * np.maximum(mean, 0.0), lower[rows], upper[rows])
        return powers - float(logit(power))

    return np.maximum(increasing_roots(above_power, len(law)), 0.0)


def _padded(sets: Sequence[Intervals]) -> NDArray[np.float64]:
    """Return unions of intervals as one array (k, n, 2), padded with intervals without width."""
    most = max((len(intervals) for intervals in sets), default=0)
    padded = np.zeros((len(sets), max(1, most), 2))
    for row, intervals in enumerate(sets):
        padded[row, : len(intervals)] = intervals
    return padded
