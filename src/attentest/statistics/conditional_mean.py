"""The mean of a statistic that was observed because its image fell into a truncation set.

P(T >= t) given the set increases with the mean of T from 0 to 1, whatever the set (monotone likelihood ratio). So each
level belongs to one mean, and a set that is known only in part gives bounds on that mean; and a test given the set has
a required power from some mean on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit

from attentest.errors import InputError
from attentest.statistics.alternative import ONE_SIDED, Alternative
from attentest.statistics.columns import Floats, Integers
from attentest.statistics.interval_mass import log_sums
from attentest.statistics.law import Law, Strips
from attentest.statistics.roots import ROUNDING, increasing_roots
from attentest.statistics.truncation_set import Intervals, TruncationSet, Unions

MOST_TOGETHER = 2_000_000  # intervals that are processed at a time, to bound memory

Cutoffs: TypeAlias = Callable[[Floats], tuple[Floats, Floats]]
"""Maps points to the values of T up to which, and from which on, it is extreme."""


def mean_bounds(law: Law, sets: Sequence[TruncationSet], levels: ArrayLike) -> tuple[Floats, Floats]:
    """Return the least and the greatest mean at which P(T >= t) equals a level, given what is known of the sets.

    All sets between what is certain and what is possible count. Levels (..., k) are those of k statistics t; 0.5 gives
    the median-unbiased estimate. The means (..., k) are infinite where all of the certain set lies on one side of t.
    """
    levels = np.asarray(levels, dtype=np.float64)
    levels = np.broadcast_to(levels, np.broadcast_shapes(levels.shape, law.statistic.shape))
    image = np.broadcast_to(np.arange(len(law)), levels.shape).ravel()
    certain = Unions.of([known.certain for known in sets]).take(image)
    possible = Unions.of([known.possible for known in sets]).take(image)
    means = mean_roots(
        law,
        np.tile(image, 2),
        np.tile(levels.ravel(), 2),
        above=Unions.concatenated([possible, certain]),
        below=Unions.concatenated([certain, possible]),
        undetermined=np.repeat([-np.inf, np.inf], len(image)),
    )
    least, greatest = means.reshape(2, *levels.shape)
    return least, np.maximum(least, greatest)  # where both are one mean, rounding can swap them


def mean_roots(
    law: Law,
    image: Integers,
    levels: Floats,
    above: Unions,
    below: Unions,
    undetermined: ArrayLike = np.nan,
    *,
    start: Floats | None = None,
    log_odds_error: float = ROUNDING,
) -> Floats:
    """Return the means (m,) at which P(T >= t) equals the levels (m,), for any number of levels for each image (m,).

    The masses of T >= t are taken from the sets ``above`` (m,), and those of T < t from the sets ``below`` (m,). Where
    neither has any mass, ``undetermined`` (m,) is returned. ``start`` (m,) is where the means are expected, to save
    steps, and the log odds of P(T >= t) may be off by ``log_odds_error``.
    """
    if not np.all((levels > 0) & (levels < 1)):
        raise InputError(f"a level must lie strictly between 0 and 1, got {levels.tolist()}.")
    t = law.statistic[image]
    above, below = _part_on_side(law, image, above, True), _part_on_side(law, image, below, False)
    means = np.select([above.count > 0, below.count > 0], [-np.inf, np.inf], undetermined)
    both = np.flatnonzero((above.count > 0) & (below.count > 0))
    chunk = np.cumsum((above.count + below.count)[both]) // MOST_TOGETHER
    for rows in (both[chunk == number] for number in np.unique(chunk)):
        sides = Unions.concatenated([above.take(rows), below.take(rows)])
        excess = partial(_excess_log_odds, law, image[rows], logit(levels[rows]), sides)
        expected = np.zeros(len(rows)) if start is None else (start - t)[rows]
        distance = increasing_roots(excess, expected, close=log_odds_error)
        means[rows] = np.where(np.isnan(distance), means[rows], t[rows] + distance)
    return means


def _part_on_side(law: Law, image: Integers, unions: Unions, above: bool) -> Unions:
    """Return the part of the unions (m,) of images (m,) where T can be on one side of t: at or above, or below."""
    left, right = law.part_on_side(image[unions.owner], unions.left, unions.right, above=above)
    return replace(unions, left=left, right=right).where(left < right)


def _excess_log_odds(
    law: Law, image: Integers, log_odds: Floats, sides: Unions, rows: Integers, distance: Floats
) -> tuple[Floats, Floats]:
    """Return how far the log odds of T >= t exceed others, with the slopes, if the means are t + distance (q,).

    Image and log odds (m,) are indices of images, and the other log odds; of these, ``rows`` (q,), in ascending order,
    are asked for. The sides (2 m,) are the sets with T >= t, and after those the ones with T < t.
    """
    if len(rows) < len(image):
        sides = sides.take(np.concatenate([rows, len(image) + rows]))
        image, log_odds = image[rows], log_odds[rows]
    owner = np.concatenate([image, image]).repeat(sides.count)
    mean = law.statistic[owner] + np.concatenate([distance, distance]).repeat(sides.count)
    strips = law.strips_at_statistic(owner, sides.left, sides.right, mean)
    log_mass, slope = law.log_masses_on_side(strips, np.arange(len(owner)) < sides.count[: len(image)].sum())
    log_sum, slope = _log_sums(log_mass, slope, sides.count)
    with np.errstate(invalid="ignore"):  # no mass on either side
        return log_sum[: len(image)] - log_sum[len(image) :] - log_odds, slope[: len(image)] - slope[len(image) :]


def _log_sums(logs: Floats, slopes: Floats, count: Integers) -> tuple[Floats, Floats]:
    """Return the logs (m,) of sums of exp(logs), each of the next few logs (m,), one at least, with their slopes."""
    first = np.cumsum(count) - count
    greatest = np.maximum.reduceat(logs, first)
    shift = np.where(np.isneginf(greatest), 0.0, greatest)
    terms = np.exp(logs - np.repeat(shift, count))
    sums = np.add.reduceat(terms, first)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.add.reduceat(np.where(terms > 0, terms * slopes, 0.0), first) / sums
        return shift + np.log(sums), slope


def detectable_means(
    law: Law, sets: Sequence[Intervals], alternative: Alternative, alpha: float, power: float
) -> Floats:
    """Return the least means (k,) of T, without their signs, that a test at level alpha finds with a given power.

    Both the level and the power are conditional on the truncation sets of the k statistics: given the region, and all
    of the image but the statistic. The mean points where the alternative does; for a two-sided one to the side of the
    observed statistic.
    """
    unions, t = Unions.of(sets), law.statistic
    one_sided = alternative in ONE_SIDED
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

    def end_of_extreme(level: float, start: Floats, towards: float, cutoffs: Cutoffs) -> Floats:
        """Return from where on (k,), upwards (1) or downwards (-1), what is extreme has a probability of this level."""

        def below_level(rows: Integers, distance: Floats) -> tuple[Floats, None]:
            end = start[rows] + towards * distance
            return float(logit(level)) - log_odds(rows, np.zeros(len(rows)), *cutoffs(end)), None

        return start + towards * increasing_roots(below_level, np.zeros(len(law)))

    lower, upper = -nowhere, nowhere
    if alternative == "two-sided":  # from zero on everything is extreme
        upper = end_of_extreme(alpha, np.abs(t), 1.0, lambda end: (-np.maximum(end, 0.0), np.maximum(end, 0.0)))
        lower = -upper
    level = alpha if one_sided else alpha / 2
    if alternative in ("greater", "equal-tailed"):
        upper = end_of_extreme(level, t, 1.0, lambda end: (np.full_like(end, -np.inf), end))
    if alternative in ("less", "equal-tailed"):
        lower = end_of_extreme(level, t, -1.0, lambda end: (end, np.full_like(end, np.inf)))

    def above_power(rows: Integers, mean: Floats) -> tuple[Floats, None]:
        # On the other side of zero the power of a two-sided test rises again, but that is not looked for.
        powers = log_odds(rows, side[rows] * np.maximum(mean, 0.0), lower[rows], upper[rows])
        return powers - float(logit(power)), None

    return np.maximum(increasing_roots(above_power, np.zeros(len(law))), 0.0)
