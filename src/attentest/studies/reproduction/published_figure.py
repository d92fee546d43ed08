"""Figures the authors published, of their own models, and whether ours agree with them within Monte-Carlo error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import norm

POWER: Mapping[str, Mapping[float, float]] = {
    "independent": {1.0: 0.145, 2.0: 0.574, 3.0: 0.882, 4.0: 0.936},
    "correlated": {1.0: 0.102, 2.0: 0.345, 3.0: 0.689, 4.0: 0.832},
}
"""Power of the selective test, by strength of the signal (figure 6)."""

PERMUTATION: Mapping[str, float] = {"base8": 0.171, "base16": 0.220, "base32": 0.428, "base64": 0.669}
"""Type I error of the permutation test with correlated noise, by model (figure 4)."""

SECONDS: Mapping[str, tuple[float, float]] = {
    "adaptive": (46.0, 81.0),
    "combination": (206.0, 1450.0),
    "fixed": (1500.0, 8080.0),
}
"""Least and most seconds an image on the authors' machine (figures 7 and 8)."""

IMAGES = 1000
"""Behind each published rate."""

SIGNIFICANCE = 0.05
"""Of all comparisons together."""


def scores(pairs: Sequence[tuple[float, Mapping[str, Any]]]) -> list[float]:
    """Return the z of each published rate against ours: the difference in units of its standard error.

    Parameters
    ----------
    pairs
        A published rate, and ours with its ``value`` and ``total``.
    """
    found = []
    for theirs, ours in pairs:
        variance = theirs * (1 - theirs) / IMAGES + ours["value"] * (1 - ours["value"]) / ours["total"]
        found.append(float((ours["value"] - theirs) / np.sqrt(variance)))
    return found


def largest_agreeing_score(comparisons: int) -> float:
    """Return the |z| up to which rates agree, so that all of some equal ones agree with probability 0.95."""
    return float(norm.isf(SIGNIFICANCE / comparisons / 2))
