"""Noise whose covariance depends only on the lag between two pixels, applied by the FFT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from attentest.checks import float_array, whole_number
from attentest.errors import InputError
from attentest.noise.ar1 import covariance_product, neighbour_correlation, stationary_series
from attentest.noise.dense import DEFINITENESS_TOLERANCE, SYMMETRY_TOLERANCE
from attentest.noise.model import (
    FloatArray,
    NoiseModel,
    SaveableNoise,
    deviations_text,
    falls_within,
    lags_text,
    sample_shape,
    standard_deviation,
)

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


class Exponential:
    """Noise with the correlation exp(-(rows + columns) / length) of pixels so many rows and columns apart, in O(n).

    Channels are independent. It is what independent noise becomes if it is given a correlation length.

    Parameters
    ----------
    deviations : array of shape (C, H, W)
        Standard deviations of the pixels.
    length
        Correlation length in pixels; 0 for independent pixels.
    """

    def __init__(self, deviations: ArrayLike, length: float) -> None:
        self.deviations: FloatArray = np.array(deviations, dtype=np.float64)
        self.length = float(length)

    def __repr__(self) -> str:
        return f"Exponential(<sd {deviations_text(self.deviations.ravel() ** 2)}>, length={self.length:g})"

    @property
    def size(self) -> int:
        """Number of values."""
        return int(self.deviations.size)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis, by recursive filters along rows and along columns."""
        planes = v.reshape(*v.shape[:-1], *self.deviations.shape) * self.deviations
        for axis in (-2, -1):
            planes = covariance_product(planes, neighbour_correlation(self.length), axis)
        return (planes * self.deviations).reshape(v.shape)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, values = sample_shape(k, n, self.size)
        planes = rng.standard_normal((draws, *self.deviations.shape))
        for axis in (-2, -1):
            planes = stationary_series(planes, neighbour_correlation(self.length), axis)
        return (planes * self.deviations).reshape(draws, values)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "exponential", "size": self.size, "correlation_length": self.length}

    def correlation_length(self) -> float:
        """Return the correlation length in pixels."""
        return self.length

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> Exponential:
        """Return the same with another correlation length."""
        return Exponential(self.deviations, length)


MOST_PIXELS = 2**26
"""Largest number of pixels, 8,192 x 8,192: their torus takes 2 GiB."""

TOGETHER = 2**20
"""Values on tori that are transformed at a time."""


class Stationary(SaveableNoise):
    """Noise of grey images whose covariance depends on the lag between two pixels only, in O(n log n).

    The image is a corner of a torus that is at least (2H-1) x (2W-1) pixels large, so that no lag within the image
    goes around it. On the torus the covariance is circulant, with the Fourier transform of the autocovariance as its
    eigenvalues; Sigma is its restriction to the corner, and samples are corners of samples on the torus.

    Parameters
    ----------
    autocovariance : array of shape (2P+1, 2Q+1)
        Covariances at lags -P..P by -Q..Q, the variance in the middle; zero at lags further out. Entry
        (P + i, Q + j) is the covariance of two pixels i rows and j columns apart, so it equals entry (P - i, Q - j).
    shape
        Height and width of the images. Lags beyond the image change only the size of the torus.
    """

    saved: ClassVar = {"autocovariance": np.ndarray, "shape": list}

    def __init__(self, autocovariance: ArrayLike, shape: Sequence[int]) -> None:
        self.shape = _image_shape(shape)
        self.autocovariance: FloatArray = _autocovariance(autocovariance)
        height, width = self.shape
        rows, columns = self.autocovariance.shape
        self._torus = max(rows, 2 * height - 1), max(columns, 2 * width - 1)
        self._spectrum = _spectrum(self.autocovariance, self._torus)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) of another shape or of several channels."""
        if shape != (1, *self.shape):
            raise InputError(
                f"the noise model is for grey images of (H, W) = {self.shape}, but the image is (C, H, W) = {shape}: "
                "make one for that height and width, and for colour images a PerChannel with it as its spatial model."
            )

    def __repr__(self) -> str:
        down, across = (correlations[:1].sum() for correlations in self._correlations())  # 0 without lags
        return f"Stationary(<sd {self._deviation:.3g}, neighbours {down:z.2f} and {across:z.2f}>, shape={self.shape})"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.shape[0] * self.shape[1]

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis: the corner of a convolution on the torus."""
        if v.shape[-1] != self.size:
            raise InputError(f"this noise model is for {self.size} pixels, but {v.shape[-1]} were given.")
        images, found = v.reshape(-1, *self.shape), np.empty(v.shape)
        filtered = found.reshape(-1, *self.shape)
        for some in self._few(len(images)):
            filtered[some] = self._filtered(images[some], self._spectrum)
        return found

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, length = sample_shape(k, n, self.size)
        gain, found = np.sqrt(self._spectrum), np.empty((draws, *self.shape))
        for some in self._few(draws):
            found[some] = self._filtered(rng.standard_normal((len(found[some]), *self._torus)), gain)
        return found.reshape(draws, length)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.full(n, self._deviation**2)

    def describe(self) -> dict[str, Any]:
        """Return name, size, standard deviation and the largest lags."""
        lags = [side // 2 for side in self.autocovariance.shape]
        return {"model": "stationary", "shape": list(self.shape), "sigma": self._deviation, "lags": lags}

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        down, across = self._correlations()
        down_to, across_to = falls_within(down), falls_within(across)
        return {
            "pixels per image": "{} x {}".format(*self.shape),
            "standard deviation": f"{self._deviation:.4g}",
            "correlation down columns": lags_text(down),
            "correlation along rows": lags_text(across),
            "correlation falls to 1/e within": f"{down_to:.1f} pixels down, {across_to:.1f} across",
        }

    def correlation_length(self) -> float:
        """Return the mean of the distances down and across, in pixels, within which correlations fall to 1/e."""
        if np.count_nonzero(self.autocovariance) == 1:
            return 0.0
        down, across = self._correlations()
        return (falls_within(down) + falls_within(across)) / 2

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        own = self.correlation_length()
        if not own:
            return Exponential(np.full(shape, self._deviation), length)
        return Stationary(stretched_lags(self.autocovariance, length / own, self.shape), self.shape)

    @property
    def _deviation(self) -> float:
        rows, columns = self.autocovariance.shape
        return float(np.sqrt(self.autocovariance[rows // 2, columns // 2]))

    def _correlations(self) -> tuple[FloatArray, FloatArray]:
        """Return the correlations of pixels 1, 2, ... rows apart, and of those 1, 2, ... columns apart."""
        rows, columns = (side // 2 for side in self.autocovariance.shape)
        scaled = self.autocovariance[rows:, columns:] / self._deviation**2
        return scaled[1:, 0], scaled[0, 1:]

    def _few(self, count: int) -> Iterator[slice]:
        """Yield parts of a number of fields, as many at a time as their tori are not too large for."""
        together = max(1, TOGETHER // (self._torus[0] * self._torus[1]))
        return (slice(start, start + together) for start in range(0, count, together))

    def _filtered(self, fields: FloatArray, gain: FloatArray) -> FloatArray:
        """Return the corners (m, H, W) of fields (m, h, w) on the torus after multiplying their spectrum."""
        waves = np.fft.rfft2(fields, s=self._torus)
        waves *= gain
        # As irfft2, without the rows that are not in the corner.
        rows = np.fft.ifft(waves, axis=-2)[:, : self.shape[0]]
        return np.fft.irfft(rows, n=self._torus[1])[..., : self.shape[1]]


def _image_shape(shape: Any) -> tuple[int, int]:
    try:
        height, width = shape
    except (TypeError, ValueError):
        raise InputError(f"shape must be the (height, width) of the images, got {shape!r}.") from None
    sides = (
        whole_number(height, "the height of the images", 1, MOST_PIXELS),
        whole_number(width, "the width of the images", 1, MOST_PIXELS),
    )
    if sides[0] * sides[1] > MOST_PIXELS:
        raise InputError(f"images must have at most {MOST_PIXELS} pixels, but shape = {sides} has more.")
    return sides


def _autocovariance(values: ArrayLike) -> FloatArray:
    lags = float_array(values, "autocovariance")
    if lags.ndim != 2 or not all(side % 2 for side in lags.shape):
        raise InputError(
            "autocovariance must have an odd number of rows and of columns, with the variance in the middle, "
            f"got shape {lags.shape}."
        )
    if not np.all(np.isfinite(lags)):
        raise InputError("autocovariance must be finite, got NaN or infinite entries.")
    largest = np.abs(lags).max()
    middle = float(lags[lags.shape[0] // 2, lags.shape[1] // 2])
    if middle <= 0 or largest > middle * (1 + SYMMETRY_TOLERANCE):
        raise InputError(
            "autocovariance must have the variance in the middle, positive and no smaller than any covariance, "
            f"got {middle:.3g} there and up to {largest:.3g} elsewhere."
        )
    standard_deviation(float(np.sqrt(middle)))  # raises an error if the variance would overflow or underflow
    opposite = lags[::-1, ::-1]
    asymmetry = np.abs(lags - opposite).max()
    if asymmetry > SYMMETRY_TOLERANCE * largest:
        raise InputError(
            "autocovariance must be the same at opposite lags, (i, j) and (-i, -j), "
            f"but there it differs by {asymmetry:.3g}."
        )
    lags = lags / 2 + opposite / 2
    lags.setflags(write=False)
    return lags


def _spectrum(autocovariance: FloatArray, torus: tuple[int, int]) -> FloatArray:
    """Return the eigenvalues of the covariance on the torus, in the half layout of rfft2."""
    rows, columns = autocovariance.shape
    on_torus = np.zeros(torus)
    on_torus[:rows, :columns] = autocovariance
    centred = np.roll(on_torus, (-(rows // 2), -(columns // 2)), axis=(0, 1))
    spectrum = np.fft.rfft2(centred).real
    smallest, largest = float(spectrum.min()), float(spectrum.max())
    if smallest < -DEFINITENESS_TOLERANCE * largest:
        raise InputError(
            "autocovariance must have a spectrum that is nowhere negative, but on the torus of "
            f"{torus[0]} x {torus[1]} pixels that holds the image it goes from {smallest:.3g} to {largest:.3g}, and "
            "noise cannot have a negative power: give more lags, until the covariance has reached zero, or let it "
            "fall to zero smoothly."
        )
    return np.maximum(spectrum, 0.0)
