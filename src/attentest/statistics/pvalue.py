"""Selective p-values of k images with bounds, and the tests that the paper compares with (appendix C.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from attentest.checks import whole_number
from attentest.statistics.alternative import Alternative, ordinary_range
from attentest.statistics.columns import Floats
from attentest.statistics.interval_mass import LOG_2, log_share, log_sums, log_twice_the_smaller
from attentest.statistics.law import Law, Strips
from attentest.statistics.selection_laws import BinomialCounts
from attentest.statistics.truncation_set import Intervals, TruncationSet, Unions

TIE_TOLERANCE = 1e-12  # statistics this close, relative to the observed one, differ only by the order of summation
MOST_PERMUTATIONS = 10**8  # upper limit on the number of permutations, against typing errors

LogMasses: TypeAlias = tuple[Floats, Floats]
"""Log masses (k,) of what is at least as extreme as the observed statistics, and of the rest."""


class LogPvalues(NamedTuple):
    """Logs of p-values (k,), and of the least and the greatest that are compatible with what is known of the sets."""

    best: Floats
    low: Floats
    high: Floats


def log_pvalues(law: Law, sets: Sequence[TruncationSet], alternative: Alternative) -> LogPvalues:
    """Return the selective p-values of k images with truncation sets, for the hypothesis that T has mean zero.

    "two-sided" is P(abs(T) >= abs(t) given the set), as in the paper; "greater" and "less" are its two one-sided
    counterparts, and "equal-tailed" is twice the smaller of these, or 1 if that is less.
    """
    if isinstance(law, BinomialCounts):
        exact = law.log_pvalues(alternative)
        return LogPvalues(exact, exact, exact)
    likely, certain, possible = (
        _log_masses(law, [getattr(known, name) for known in sets], alternative)
        for name in ("intervals", "certain", "possible")
    )
    best, _ = _bounds(likely, likely, alternative)
    low, high = _bounds(certain, possible, alternative)
    # Where nothing more extreme was found because nothing there can matter, the upper bound is all that is known.
    return LogPvalues(np.where(np.isneginf(best), high, best), low, high)


def _bounds(certain: LogMasses, possible: LogMasses, alternative: Alternative) -> tuple[Floats, Floats]:
    """Return the logs (k,) of the least and the greatest p-value over all sets between two of known masses."""
    (extreme_certain, rest_certain), (extreme_possible, rest_possible) = certain, possible
    high = log_share(extreme_possible, rest_certain)
    low = np.minimum(log_share(extreme_certain, rest_possible), high)  # for p next to 1 rounding can swap them
    if alternative != "equal-tailed":
        return low, high
    rest_high = log_share(rest_possible, extreme_certain)
    rest_low = np.minimum(log_share(rest_certain, extreme_possible), rest_high)
    return log_twice_the_smaller(low, rest_low), log_twice_the_smaller(high, rest_high)


def decision(low: float, high: float, alpha: float) -> bool | None:
    """Return whether a p-value between two bounds is at most alpha; None if the bounds do not tell."""
    return True if high <= alpha else False if low > alpha else None


def _log_masses(law: Law, sets: Sequence[Intervals], alternative: Alternative) -> LogMasses:
    unions = Unions.of(sets)
    image = unions.owner
    lower, upper = ordinary_range(law.statistic, alternative)
    strips = Strips.of(image, unions.left, unions.right, lower=lower[image], upper=upper[image])
    extreme, rest = (log_sums(image, masses, len(sets)) for masses in law.log_masses(strips))
    return extreme, rest


def naive_log_pvalue(z: ArrayLike, alternative: Alternative = "two-sided") -> Floats:
    """Return the log p-values of plain z-tests (k,), which ignore that the regions were chosen from the images.

    Without a selection the two two-sided p-values are the same.
    """
    z = np.asarray(z, dtype=np.float64)
    if alternative == "greater":
        return np.asarray(log_ndtr(-z))
    if alternative == "less":
        return np.asarray(log_ndtr(z))
    return np.asarray(LOG_2 + log_ndtr(-np.abs(z)))


def naive_log_pvalues(law: Law, alternative: Alternative) -> Floats:
    """Return the log p-values (k,) of plain tests of what a law is of: z-tests, of counts the binomial test of all."""
    if isinstance(law, BinomialCounts):
        return law.naive().log_pvalues(alternative)
    return naive_log_pvalue(law.statistic, alternative)


def bonferroni_log_pvalue(log_naive: ArrayLike, selectable: int, kinds: int = 2) -> Floats:
    """Return the logs of min(1, kinds^selectable p): a correction for every possible region.

    ``selectable`` is the number of pixels, or of patches if regions consist of whole ones, and ``kinds`` the number of
    states of each: in the region or not; for a component of a region, in it, in another component, or outside.
    """
    return np.asarray(np.minimum(0.0, selectable * np.log(kinds) + np.asarray(log_naive)))


@dataclass(frozen=True, kw_only=True)
class PermutationResult:
    """A permutation test."""

    statistic: float
    """Observed statistic."""
    pvalue: float
    """(count + 1) / (B + 1) with ties counted as extreme: never zero, and valid for exchangeable pixels."""
    count_pvalue: float
    """count / B with ties not counted, the paper's formula."""
    permuted: Floats = field(repr=False)
    """(B,). Statistics of the permuted images."""


def permutation_test(
    image: Floats,
    statistics: Callable[[Floats], Floats],
    permutations: int,
    batch_size: int,
    rng: np.random.Generator,
    alternative: Alternative = "two-sided",
) -> PermutationResult:
    """Compare the statistic of an image (C, H, W) with those of the same pixels in so many random orders.

    The channels of a pixel stay together. ``statistics`` maps images (m, C, H, W), ``batch_size`` at a time, to their
    statistics (m,), each with its own region. "two-sided" compares absolute values, as the paper does; "equal-tailed"
    doubles the smaller of the two one-sided p-values.
    """
    permutations = whole_number(permutations, "permutations", 1, MOST_PERMUTATIONS)
    flat = image.reshape(image.shape[0], -1)
    grey = len(flat) == 1
    # Grey pixels are shuffled directly: shuffling indices and gathering takes up to half as long again.
    pixels: NDArray[Any] = flat[0] if grey else np.arange(flat.shape[1])
    values = np.empty(permutations + 1)
    for start in range(0, len(values), batch_size):
        rows = np.tile(pixels, (min(batch_size, len(values) - start), 1))
        shuffled = rows[1:] if start == 0 else rows  # the first of all is the image itself
        rng.permuted(shuffled, axis=1, out=shuffled)
        images = rows[:, None] if grey else np.moveaxis(flat.take(rows, axis=1), 1, 0)
        values[start : start + len(rows)] = statistics(images.reshape(-1, *image.shape))
    observed, permuted = float(values[0]), values[1:]
    extremities: dict[Alternative, tuple[np.ufunc, ...]] = {
        "two-sided": (np.abs,),
        "equal-tailed": (np.positive, np.negative),
        "greater": (np.positive,),
        "less": (np.negative,),
    }
    tie = TIE_TOLERANCE * abs(observed)
    ways = extremities[alternative]
    with_ties = min(int(np.sum(way(permuted) >= way(observed) - tie)) for way in ways)
    beyond = min(int(np.sum(way(permuted) > way(observed) + tie)) for way in ways)
    return PermutationResult(
        statistic=observed,
        pvalue=min(1.0, len(ways) * (with_ties + 1) / (permutations + 1)),
        count_pvalue=min(1.0, len(ways) * beyond / permutations),
        permuted=permuted,
    )
