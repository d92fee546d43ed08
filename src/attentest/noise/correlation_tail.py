"""A smooth curve through the correlations at short lags, which says what they become at long ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from attentest.noise.protocol import FloatArray

Tail: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]
"""The correlation of pixels by the absolute lags in rows and in columns, which are broadcast."""

MOST_LAGS = 16
"""Most lags along a half axis that the curve is fitted to, evenly spaced in the logarithm: the cost is the same for
all sizes of images, and short lags, which are estimated from the most pairs, count for the most."""

SHORTEST_LENGTH, LONGEST_LENGTH = 0.3, 20.0
"""Correlation lengths of the curve: from this number of pixels, below which no neighbour is correlated, to this number
of sides, above which the correlation is 1 over the whole image."""

PRECISION, MOST_STEPS = 1e-4, 60
"""Relative change at which the least-squares fit ends, far below the error of the correlations, and most steps."""


def fitted_tail(correlation: FloatArray, weights: FloatArray) -> Tail:
    """Return the curve A exp(-((i / a)^q + (j / b)^q)^(p / q)) through correlations, for lags of i rows and j columns.

    With p = q = 1 it is an autoregression along both axes, with q = 2 a function of the distance alone (but for the
    two lengths), with p = q = 2 that of blurred noise; A < 1 leaves room for independent noise.

    Parameters
    ----------
    correlation : (2H-1, 2W-1)
        Correlations at all lags, with 1 at lag zero in the middle. Those up to half of either side are used.
    weights : (2H-1, 2W-1)
        Weight of each lag: its number of pairs.
    """
    from scipy.optimize import least_squares  # here because scipy.optimize is slow to import

    centre = [side // 2 for side in correlation.shape]
    down, across = (_lags((side + 1) // 2) for side in centre)
    # Opposite lags are the same, so those upwards are left out.
    i, j = (axis.ravel() for axis in np.meshgrid(down, np.r_[-across[:0:-1], across], indexing="ij"))
    used = (i > 0) | (j > 0)
    i, j = i[used], j[used]
    if not i.size:
        return lambda rows, columns: np.zeros(np.broadcast_shapes(rows.shape, columns.shape))
    measured = correlation[centre[0] + i, centre[1] + j]
    root = np.sqrt(weights[centre[0] + i, centre[1] + j])
    rows, columns = np.abs(i).astype(np.float64), np.abs(j).astype(np.float64)
    sides = [side + 1.0 for side in centre]
    lower = [0.0, *np.log([SHORTEST_LENGTH] * 2), 0.3, 1.0]
    upper = [1.0, *np.log([LONGEST_LENGTH * side for side in sides]), 2.0, 2.0]
    # The start is the best of a few lengths along both axes, because there may be a minimum for a short correlation
    # and another one for a long correlation.
    lengths = np.log(np.geomspace(1.0, max(2.0, max(sides)), 6))
    starts = [np.minimum([0.8, length, length, 1.0, 1.5], upper) for length in lengths]

    def error(parameters: FloatArray) -> FloatArray:
        return np.asarray(root * (_curve(parameters, rows, columns) - measured))

    def jacobian(parameters: FloatArray) -> FloatArray:
        return np.asarray(root[:, None] * _derivatives(parameters, rows, columns))

    start = min(starts, key=lambda parameters: float(np.sum(error(parameters) ** 2)))
    best = least_squares(error, start, jacobian, (lower, upper), ftol=PRECISION, xtol=PRECISION, max_nfev=MOST_STEPS).x
    return lambda rows, columns: _curve(best, rows, columns)


def _lags(furthest: int) -> NDArray[np.int64]:
    """Return 0 and at most ``MOST_LAGS`` lags up to the furthest."""
    if furthest < 1:
        return np.zeros(1, dtype=np.int64)
    return np.unique(np.r_[0, np.round(np.geomspace(1, furthest, MOST_LAGS))]).astype(np.int64)


def _curve(parameters: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the curve for parameters A, log a, log b, p and q."""
    amplitude, log_down, log_across, power, norm = parameters
    distance = ((rows * np.exp(-log_down)) ** norm + (columns * np.exp(-log_across)) ** norm) ** (power / norm)
    return np.asarray(amplitude * np.exp(-distance))


def _derivatives(parameters: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Return the derivatives (m, 5) of the curve by its parameters at lags (m,) that are not zero."""
    amplitude, log_down, log_across, power, norm = parameters
    down, across = rows * np.exp(-log_down), columns * np.exp(-log_across)
    down_part, across_part = down**norm, across**norm
    total = down_part + across_part
    distance = total ** (power / norm)
    falling = np.exp(-distance)
    slope = amplitude * falling * distance
    logs = xlogy(down_part, down) + xlogy(across_part, across)
    return np.stack(
        [
            falling,
            slope * power * down_part / total,
            slope * power * across_part / total,
            -slope * np.log(total) / norm,
            slope * power / norm * (np.log(total) / norm - logs / total),
        ],
        axis=1,
    )
