"""Probabilities of the normal distribution with many digits."""

from __future__ import annotations

import mpmath
import numpy as np


def exact_mass(lower: float, upper: float, mean: float = 0.0) -> mpmath.mpf:
    """P(lower <= N(mean, 1) <= upper) with 50 digits left after any cancellation of 30."""
    with mpmath.workdps(80):
        low, high = (mpmath.mpf(end) - mpmath.mpf(mean) for end in (lower, upper))
        if low + high < 0:
            low, high = -high, -low
        if low >= 0:
            return (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2
        return 1 - (mpmath.erfc(-low / mpmath.sqrt(2)) + mpmath.erfc(high / mpmath.sqrt(2))) / 2


def exact_log_share(part: np.ndarray, whole: np.ndarray, mean: float = 0.0) -> mpmath.mpf:
    with mpmath.workdps(80):
        masses = [mpmath.fsum(exact_mass(*ends, mean) for ends in set_.tolist()) for set_ in (part, whole)]
        return mpmath.log(masses[0]) - mpmath.log(masses[1])
