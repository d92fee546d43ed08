"""Estimate of a variance that changes slowly over the image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attentest.noise.protocol import FloatArray

DEGREES_OF_FREEDOM = 100
"""Degrees of freedom of the variance at a pixel, if there are that many: it then has a relative error of 14%. More
would blur the field, and fewer would make variances of contrasts too small, because residuals are divided by standard
deviations that they have a part in."""

GAUSSIAN_ENDS = 4.0
"""Standard deviations at which the Gaussian is cut off."""

LARGEST_SHARE = 0.25
"""Largest standard deviation of the smoothing, as a share of the shorter side: nearly the same weight everywhere."""


def smoothed_variance(variance: FloatArray, used: NDArray[np.bool_], smoothing: float) -> FloatArray:
    """Return the Gaussian mean (H, W) of the variances of the pixels that are used, 0 at the others.

    The weights of pixels beyond the border and of those that are not used are left out, and the sum of the result is
    that of the variances.

    Parameters
    ----------
    variance : (H, W)
        Variance of each pixel.
    used : (H, W)
        Whether a pixel is used.
    smoothing
        Standard deviation of the Gaussian in pixels.
    """
    from scipy.ndimage import gaussian_filter  # here because scipy.ndimage is slow to import

    # A Gaussian that is wider than the image is cut off where no two pixels are that far apart.
    radius = tuple(min(int(GAUSSIAN_ENDS * smoothing + 0.5), side - 1) for side in used.shape)
    weights = gaussian_filter(used.astype(np.float64), smoothing, mode="constant", radius=radius)
    means = gaussian_filter(np.where(used, variance, 0.0), smoothing, mode="constant", radius=radius)
    local = np.divide(means, weights, out=np.zeros_like(means), where=used)
    return np.asarray(local * (variance[used].sum() / local.sum()))


def default_smoothing(autocorrelation: FloatArray, degrees: int, shape: tuple[int, ...]) -> float:
    """Return the smoothing, in pixels, for which the variance at a pixel has enough degrees of freedom.

    The variance of independent noise at a pixel has ``4 pi smoothing^2`` times the degrees of freedom of one pixel,
    and that of correlated noise fewer by the sum of squared correlations.

    Parameters
    ----------
    autocorrelation : (2P+1, 2Q+1)
        Correlations at all lags.
    degrees
        Degrees of freedom of the variance of one pixel.
    shape
        Height and width of the images.
    """
    needed = np.sqrt(DEGREES_OF_FREEDOM * float((autocorrelation**2).sum()) / (4 * np.pi * degrees))
    return float(min(needed, LARGEST_SHARE * min(shape)))
