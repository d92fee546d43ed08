"""Standard deviations and correlations as text, for representations of noise models."""

from __future__ import annotations

import numpy as np

from attentest.noise.model import FloatArray

MOST_LISTED = 4
"""Most standard deviations that are listed; of more, the least and the greatest are given."""

MOST_LAGS = 4
"""Most lags whose correlations are listed."""


def deviations_text(variances: FloatArray) -> str:
    """Return the standard deviations of variances (n,) as text: each of a few, "0.8 to 1.2" of many."""
    if variances.size <= MOST_LISTED:
        return ", ".join(f"{deviation:.3g}" for deviation in np.sqrt(variances))
    ends = (f"{np.sqrt(variance):.3g}" for variance in (variances.min(), variances.max()))
    return " to ".join(dict.fromkeys(ends))  # one number if they are the same


def strongest_text(covariance: FloatArray) -> str:
    """Return the strongest correlation between two different values of a covariance (n, n) as text."""
    deviations = np.sqrt(np.diag(covariance))
    scale = np.outer(deviations, deviations)
    correlations = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
    np.fill_diagonal(correlations, 0.0)
    return f"{correlations.flat[np.abs(correlations).argmax()]:z.2f}"


def lags_text(correlations: FloatArray) -> str:
    """Return correlations at the lags 1, 2, ... as text, the first of them."""
    listed = correlations[:MOST_LAGS]
    if not len(listed):
        return "0"
    values = ", ".join(f"{value:z.2f}" for value in listed)
    return f"{values} at {'lags' if len(listed) > 1 else 'lag'} {', '.join(map(str, range(1, len(listed) + 1)))}"


def falls_within(correlations: FloatArray) -> float:
    """Return where correlations at the lags 1, 2, ... have fallen to 1/e, interpolated; beyond the last they are 0."""
    falling = np.r_[1.0, correlations, 0.0]
    after = int(np.argmax(falling <= np.exp(-1)))
    before = falling[after - 1]
    return float(after - 1 + (before - np.exp(-1)) / (before - falling[after]))
