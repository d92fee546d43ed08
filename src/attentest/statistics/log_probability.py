"""Sums and ratios of probabilities that are kept as logarithms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

LOG_2 = float(np.log(2.0))

_SMALLEST = float(np.nextafter(0.0, 1.0))


def log_sums(group: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the logs of the sums of exp(values) by group, (count,)."""
    rows = (values != -np.inf).nonzero()[0]  # most masses of a search are none: its images are done, or on one side
    group, values = group[rows], values[rows]
    greatest = np.full(count, -np.inf)
    np.maximum.at(greatest, group, values)
    sums = np.bincount(group, np.exp(values - greatest[group]), minlength=count)
    # In units of the greatest of its values a sum is at least one.
    return np.asarray(greatest + np.log(np.maximum(sums, 1.0)))


def log_share(part: NDArray[np.float64], rest: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(part / (part + rest)) of log masses, elementwise; refuse a total mass of zero."""
    whole = np.logaddexp(part, rest)
    if np.any(whole == -np.inf):
        raise InputError("the truncation set has no mass: it must be a union of intervals of positive width.")
    return np.asarray(part - whole)


def log_twice_the_smaller(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of twice the smaller of two probabilities that are given as logs, or 0 if that exceeds 1."""
    return np.asarray(np.minimum(LOG_2 + np.minimum(one, other), 0.0))


def probability(log_probability: float) -> float:
    """Return exp of a log-probability, never zero: what underflows becomes the smallest positive float64."""
    return min(1.0, max(float(np.exp(log_probability)), _SMALLEST))
