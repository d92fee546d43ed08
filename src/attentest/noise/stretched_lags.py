"""Autocovariances whose lags are stretched."""

from __future__ import annotations

import numpy as np

from attentest.errors import InputError
from attentest.noise.model import FloatArray

MOST_LAGS = 2**28
"""Largest number of stretched lags: they take 2 GiB."""


def stretched_lags(autocovariance: FloatArray, factor: float, shape: tuple[int, int]) -> FloatArray:
    """Return the covariances at the lags divided by a factor, with a spectrum that is nowhere negative.

    Between whole lags the covariance is interpolated linearly, in rows and in columns. This is a convolution with
    triangles, whose Fourier transform is not negative, so a covariance of noise on the whole plane stays one; the
    variance, at lag 0, stays as it is. An autocovariance need be one only on its torus, and where that leaves negative
    power after stretching, it is set to zero and the sum is scaled back to the variance.

    Parameters
    ----------
    autocovariance : (2P+1, 2Q+1)
        Covariances, the variance in the middle; zero at lags further out.
    factor
        Not negative; correlations reach so many times as far.
    shape
        Height and width of the images, which say how large the torus is.

    Returns
    -------
    array with odd sides
        Covariances at whole lags.
    """
    reach = [int(np.ceil(factor * (side // 2 + 1))) - 1 if factor else 0 for side in autocovariance.shape]
    if np.prod([2.0 * lags + 1 for lags in reach]) > MOST_LAGS:
        raise InputError(
            f"the noise would be correlated up to {max(reach)} pixels away, which takes too much memory: choose a "
            "shorter correlation length."
        )
    rows, columns = (_weights(side // 2, lags, factor) for side, lags in zip(autocovariance.shape, reach, strict=True))
    stretched = np.asarray(rows @ autocovariance @ columns.T)
    torus = [max(side, 2 * length - 1) for side, length in zip(stretched.shape, shape, strict=True)]
    padding = [((side - own) // 2,) * 2 for side, own in zip(torus, stretched.shape, strict=True)]
    spectrum = np.fft.rfft2(np.fft.ifftshift(np.pad(stretched, padding))).real
    if spectrum.min() >= 0:
        return stretched
    variance = stretched[reach[0], reach[1]]
    clipped = np.fft.fftshift(np.fft.irfft2(np.maximum(spectrum, 0.0), s=torus))
    return np.asarray((clipped + clipped[::-1, ::-1]) / 2 * (variance / clipped[torus[0] // 2, torus[1] // 2]))


def _weights(own: int, reach: int, factor: float) -> FloatArray:
    """Return the weights (2 reach + 1, 2 own + 1) of linear interpolation at the lags divided by a factor."""
    places = np.arange(-reach, reach + 1) / (factor or 1.0)
    return np.asarray(np.maximum(0.0, 1 - np.abs(places[:, None] - np.arange(-own, own + 1))))
