"""Power of the tests of k images, given that each image fell into its truncation set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import logit

from attentest.statistics.alternative import Alternative
from attentest.statistics.columns import Floats, Integers
from attentest.statistics.interval_mass import log_sums
from attentest.statistics.law import Law, Strips
from attentest.statistics.roots import increasing_roots
from attentest.statistics.truncation_set import Intervals, Unions


def detectable_means(
    law: Law, sets: Sequence[Intervals], alternative: Alternative, alpha: float, power: float
) -> Floats:
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
    unions, t = Unions.of(sets), law.statistic
    one_sided = alternative in ("greater", "less")
    side = np.full(len(law), 1.0 if alternative == "greater" else -1.0) if one_sided else np.where(t < 0, -1.0, 1.0)
    nowhere = np.full(len(law), np.inf)

    def log_odds(rows: Integers, mean: Floats, lower: Floats, upper: Floats) -> Floats:
        """Return the log odds of a rejection, if T is extreme up to a lower and from an upper cutoff on."""
        asked = unions.take(rows)
        owner = asked.owner
        limits = {"mean": mean[owner], "lower": lower[owner], "upper": upper[owner]}
        masses = law.log_masses(Strips(image=rows[owner], left=asked.left, right=asked.right, **limits))
        extreme, ordinary = (log_sums(owner, mass, len(rows)) for mass in masses)
        return np.asarray(extreme - ordinary)

    def tail_end(towards: float, level: float) -> Floats:
        """Return from where on (k,), upwards (1) or downwards (-1), the tails have this probability."""

        def below_level(rows: Integers, distance: Floats) -> tuple[Floats, None]:
            end = t[rows] + towards * distance
            cutoffs = (-nowhere[rows], end) if towards > 0 else (end, nowhere[rows])
            return float(logit(level)) - log_odds(rows, np.zeros(len(rows)), *cutoffs), None

        return t + towards * increasing_roots(below_level, np.zeros(len(law)))

    def absolute_end() -> Floats:
        """Return from where on (k,) both tails together have the probability alpha."""

        def below_level(rows: Integers, distance: Floats) -> tuple[Floats, None]:
            end = np.abs(t[rows]) + distance
            inside = np.maximum(end, 0.0)  # from zero on everything is extreme
            excess = logit(alpha) - log_odds(rows, np.zeros(len(rows)), -inside, inside)
            return np.where(end > 0, excess, -np.inf), None

        return np.abs(t) + increasing_roots(below_level, np.zeros(len(law)))

    if alternative == "two-sided":
        upper = absolute_end()
        lower = -upper
    else:
        level = alpha if one_sided else alpha / 2
        upper = nowhere if alternative == "less" else tail_end(1.0, level)
        lower = -nowhere if alternative == "greater" else tail_end(-1.0, level)

    def above_power(rows: Integers, mean: Floats) -> tuple[Floats, None]:
        # On the other side of zero the power of a two-sided test rises again, but that is not looked for.
        powers = log_odds(rows, side[rows] * np.maximum(mean, 0.0), lower[rows], upper[rows])
        return powers - float(logit(power)), None

    return np.maximum(increasing_roots(above_power, np.zeros(len(law))), 0.0)
