"""Noise whose correlation depends only on the lag between two pixels, applied by the FFT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.correlated import CorrelatedNoise
from attentest.noise.dense import DEFINITENESS_TOLERANCE, SYMMETRY_TOLERANCE
from attentest.noise.model import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    BaseNoise,
    FloatArray,
    deviations_text,
    finite_array,
    standard_deviation,
)
from attentest.noise.stationary_correlation import lag_weights

MOST_LAGS = 2**28
"""Largest number of stretched lags: they take 2 GiB."""


def stretched_lags(autocovariance: FloatArray, factor: float, shape: tuple[int, int]) -> FloatArray:
    """Return covariances that reach ``factor`` times as far, with a spectrum that is nowhere negative.

    Those at the lags divided by the factor are interpolated linearly between whole lags, in rows and in columns. This
    is a convolution with triangles, whose Fourier transform is not negative, so a covariance of noise on the whole
    plane stays one; the variance, at lag 0, stays as it is. An autocovariance (2P+1, 2Q+1) need be one only on the
    torus of its images (H, W) = ``shape``, and where that leaves negative power after stretching, it is set to zero and
    the sum is scaled back to the variance. Both arrays have odd sides, with the variance in the middle.
    """
    reach = [int(np.ceil(factor * (side // 2 + 1))) - 1 if factor else 0 for side in autocovariance.shape]
    if np.prod([2.0 * lags + 1 for lags in reach]) > MOST_LAGS:
        raise InputError(
            f"the noise would be correlated up to {max(reach)} pixels away, which takes too much memory: choose a "
            "shorter correlation length."
        )
    weights = []
    for side, lags in zip(autocovariance.shape, reach, strict=True):
        places = np.arange(-lags, lags + 1) / (factor or 1.0)
        weights.append(np.maximum(0.0, 1 - np.abs(places[:, None] - np.arange(-(side // 2), side // 2 + 1))))
    stretched = np.asarray(weights[0] @ autocovariance @ weights[1].T)
    torus, spectrum = torus_and_spectrum(stretched, shape)
    if spectrum.min() >= 0:
        return stretched
    variance = stretched[reach[0], reach[1]]
    clipped = np.fft.fftshift(np.fft.irfft2(np.maximum(spectrum, 0.0), s=torus))
    return np.asarray((clipped + clipped[::-1, ::-1]) / 2 * (variance / clipped[torus[0] // 2, torus[1] // 2]))


def torus_and_spectrum(lags: FloatArray, shape: tuple[int, int]) -> tuple[tuple[int, int], FloatArray]:
    """Return height and width of the torus for images (H, W) and covariances by lag, and their transform by rfft2."""
    rows, columns = (max(side, 2 * length - 1) for side, length in zip(lags.shape, shape, strict=True))
    padding = [((outer - inner) // 2,) * 2 for outer, inner in zip((rows, columns), lags.shape, strict=True)]
    return (rows, columns), np.fft.rfft2(np.fft.ifftshift(np.pad(lags, padding))).real


MOST_PIXELS = 2**26
"""Largest number of pixels, 8,192 x 8,192: their torus takes 2 GiB."""

TOGETHER = 2**20
"""Values on tori that are transformed at a time."""

FORMS = 256
"""Draws of noise from which the variance of a quadratic form is estimated, to within 9%, one standard error."""

FORM_VALUES_TOGETHER = 2**22
"""Values of these draws that are held at a time."""


class LagNoise(CorrelatedNoise):
    """Base class of noise of grey images whose correlation depends on the lag between two pixels only, in O(n log n).

    The image is a corner of a torus that is at least (2H-1) x (2W-1) pixels large, so that no lag within the image
    goes around it. On the torus the covariance is circulant, with the Fourier transform of the covariances by lag as
    its eigenvalues; C is its restriction to the corner, and samples are corners of samples on the torus.
    """

    def __init__(self, autocovariance: ArrayLike, shape: Sequence[int]) -> None:
        self.shape = _image_shape(shape)
        self._lags: FloatArray = _autocovariance(autocovariance)
        rows, columns = self._lags.shape
        self._scale = float(np.sqrt(self._lags[rows // 2, columns // 2]))
        self._torus, spectrum = torus_and_spectrum(self._lags, self.shape)
        smallest, largest = float(spectrum.min()), float(spectrum.max())
        if smallest < -DEFINITENESS_TOLERANCE * largest:
            raise InputError(
                "autocovariance must have a spectrum that is nowhere negative, but on the torus of "
                f"{self._torus[0]} x {self._torus[1]} pixels that holds the image it goes from {smallest:.3g} to "
                f"{largest:.3g}, and noise cannot have a negative power: give more lags, until the covariance has "
                "reached zero, or let it fall to zero smoothly."
            )
        self._spectrum = np.maximum(spectrum, 0.0)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, H, W) of another shape or of several channels."""
        if shape != (1, *self.shape):
            raise InputError(
                f"the noise model is for grey images of (H, W) = {self.shape}, but the image is (C, H, W) = {shape}: "
                "make one for that height and width, and for colour images a PerChannel with it as its spatial model."
            )

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.shape[0] * self.shape[1]

    def _product(self, v: FloatArray) -> FloatArray:
        """Return the corner of a convolution on the torus."""
        images, product = v.reshape(-1, *self.shape), np.empty(v.shape)
        filtered = product.reshape(-1, *self.shape)
        for part in self._parts(len(images)):
            filtered[part] = self._filtered(images[part], self._spectrum)
        return product

    def _draw(self, rng: np.random.Generator, k: int, n: int) -> FloatArray:
        gain, images = np.sqrt(self._spectrum), np.empty((k, *self.shape))
        for part in self._parts(k):
            images[part] = self._filtered(rng.standard_normal((len(images[part]), *self._torus)), gain)
        return images.reshape(k, n)

    def _parts(self, count: int) -> Iterator[slice]:
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

    def _few(self, places: NDArray[np.int64]) -> FloatArray:
        within = np.ones((len(places), len(places)), dtype=bool)
        index = []
        for along, side in zip(np.unravel_index(places, self.shape), self._lags.shape, strict=True):
            lag = np.subtract.outer(along, along)
            within &= np.abs(lag) <= side // 2
            index.append(np.clip(lag + side // 2, 0, side - 1))
        return np.where(within, self._lags[tuple(index)], 0.0)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of sums over lags of products of pixels, whose variance is estimated from draws."""
        torus = 2 * self.shape[0] - 1, 2 * self.shape[1] - 1
        fields = eta.reshape(-1, *self.shape)
        products = np.fft.irfft2(np.abs(np.fft.rfft2(fields, s=torus)) ** 2, s=torus)
        weights = np.fft.rfft2(products * lag_weights(self.shape, origin.get("max_lag"))).real
        # The columns of rfft2 that stand for two.
        weights[..., 1:] *= 2
        flat = weights.reshape(len(eta), -1)
        rng = np.random.default_rng(0)
        forms = np.empty((FORMS, len(eta)))
        together = max(1, FORM_VALUES_TOGETHER // (torus[0] * torus[1]))
        for start in range(0, FORMS, together):
            part = slice(start, min(start + together, FORMS))
            draws = self._draw(rng, part.stop - part.start, eta.shape[1]).reshape(-1, *self.shape)
            power = np.abs(np.fft.rfft2(draws, s=torus)) ** 2
            forms[part] = power.reshape(len(draws), -1) @ flat.T
        return np.asarray(2 * forms.mean(axis=0) ** 2 / forms.var(axis=0, ddof=1))

    def correlation_length(self) -> float:
        """Return the mean of the distances down and across, in pixels, within which correlations fall to 1/e."""
        if np.count_nonzero(self._lags) == 1:
            return 0.0
        down, across = map(_falls_within, self._along_axes())
        return (down + across) / 2

    def _stretched(self, length: float, shape: tuple[int, ...]) -> BaseNoise:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        present = self.correlation_length()
        if not present:
            return super()._stretched(length, shape)
        return self._with_lags(stretched_lags(self._lags, length / present, self.shape))

    def _with_lags(self, lags: FloatArray) -> BaseNoise:
        """Return the same with other covariances by lag."""
        raise NotImplementedError

    def _along_axes(self) -> tuple[FloatArray, FloatArray]:
        """Return the correlations of pixels 1, 2, ... rows apart, and of those 1, 2, ... columns apart."""
        rows, columns = (side // 2 for side in self._lags.shape)
        scaled = self._lags[rows:, columns:] / self._scale**2
        return scaled[1:, 0], scaled[0, 1:]

    def record(self) -> dict[str, Any]:
        """Return name, size, standard deviation (its root mean square if it varies) and the largest lags."""
        sigma = float(np.sqrt(np.mean(np.square(self._factors * self._scale))))
        lags = [side // 2 for side in self._lags.shape]
        return {"model": self.name, "shape": list(self.shape), "sigma": sigma, "lags": lags}

    def words(self) -> str:
        """Return the model in words."""
        rows, columns = (side // 2 for side in self._lags.shape)
        down, across = self._along_axes()
        return (
            f"A standard deviation {self._deviations_in_words()}, and a correlation that depends only on how far apart "
            f"two pixels are, up to {rows} rows and {columns} columns: {down[:1].sum():z.2f} of neighbours in a column "
            f"and {across[:1].sum():z.2f} in a row, 1/e at {_falls_within(down):.1f} rows and "
            f"{_falls_within(across):.1f} columns"
        )

    def _deviations_in_words(self) -> str:
        """Return what the sentence about the model says of its standard deviations."""
        raise NotImplementedError


class Stationary(LagNoise):
    """Noise of grey images whose covariance depends on the lag between two pixels only, in O(n log n).

    Parameters
    ----------
    autocovariance : array of shape (2P+1, 2Q+1)
        Covariances at lags -P..P by -Q..Q, the variance in the middle; zero at lags further out. Entry
        (P + i, Q + j) is the covariance of two pixels i rows and j columns apart, so it equals entry (P - i, Q - j).
    shape
        Height and width of the images. Lags beyond the image change only the size of the torus that holds it.
    """

    name: ClassVar = "stationary"
    parameters: ClassVar = {"autocovariance": np.ndarray, "shape": list}
    estimator: ClassVar = "stationary"

    @property
    def autocovariance(self) -> FloatArray:
        """Covariances (2P+1, 2Q+1)."""
        return self._lags

    @property
    def _factors(self) -> float:
        return 1.0

    def __repr__(self) -> str:
        down, across = (correlations[:1].sum() for correlations in self._along_axes())  # 0 without lags
        return f"Stationary(<sd {self._scale:.3g}, neighbours {down:z.2f} and {across:z.2f}>, shape={self.shape})"

    def _with_lags(self, lags: FloatArray) -> Stationary:
        return Stationary(lags, self.shape)

    def _deviations_in_words(self) -> str:
        return f"of {self._scale:.6g}"


ROUNDING = 1e-9
"""A correlation at lag zero that is closer to 1 than this is 1 up to rounding error."""


class LocallyStationary(LagNoise):
    """Noise of grey images with a standard deviation per pixel and a correlation by lag, in O(n log n).

    Sigma = D R D, with D the diagonal matrix of the standard deviations and R the correlation of a
    :class:`Stationary` model.

    Parameters
    ----------
    deviations : array of shape (H, W)
        Standard deviation of each pixel; non-negative, not all zero.
    autocorrelation : array of shape (2P+1, 2Q+1)
        Correlations at lags -P..P by -Q..Q, 1 in the middle; zero at lags further out.
    """

    name: ClassVar = "locally stationary"
    parameters: ClassVar = {"deviations": np.ndarray, "autocorrelation": np.ndarray}
    estimator: ClassVar = "locally-stationary"

    def __init__(self, deviations: ArrayLike, autocorrelation: ArrayLike) -> None:
        field = finite_array(deviations, "deviations")
        if field.ndim != 2:
            raise InputError(f"deviations must have the shape (H, W) of the images, got {field.shape}.")
        lowest, highest = field.min(initial=np.inf), field.max(initial=0.0)
        if lowest < 0 or not SMALLEST_SIGMA <= highest <= LARGEST_SIGMA:
            raise InputError(
                f"deviations must be non-negative, and the greatest from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, got "
                f"values from {lowest} to {highest}."
            )
        field.setflags(write=False)
        self.deviations: FloatArray = field
        super().__init__(autocorrelation, field.shape)
        variance = self._scale**2
        if abs(variance - 1) > ROUNDING:
            raise InputError(f"autocorrelation must be 1 in the middle, at lag zero, got {variance:.6g} there.")

    @property
    def autocorrelation(self) -> FloatArray:
        """Correlations (2P+1, 2Q+1)."""
        return self._lags

    @property
    def _factors(self) -> FloatArray:
        return self.deviations.ravel()

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"LocallyStationary(<{rows} x {columns} pixels, sd {deviations_text(self._factors**2)}>)"

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of variances and correlation, whose errors are added as if they were independent."""
        squares = float((self.autocorrelation**2).sum())
        smoothing = origin.get("smoothing") or default_smoothing(
            self.autocorrelation, origin["images"] - 1, self.deviations.shape
        )
        by_correlation = super().degrees_per_image(self._factors * eta, origin)
        return np.asarray(1 / (1 / by_correlation + squares / (4 * np.pi * smoothing**2)))

    def _with_lags(self, lags: FloatArray) -> LocallyStationary:
        return LocallyStationary(self.deviations, lags)

    def record(self) -> dict[str, Any]:
        """Return name, size, root mean square, least and greatest standard deviation, and the largest lags."""
        return {**super().record(), "sigmas": [float(self._factors.min()), float(self._factors.max())]}

    def _deviations_in_words(self) -> str:
        least, most, without = self._factors.min(), self._factors.max(), np.mean(self._factors == 0)
        none = f" (none at {without:.1%} of the pixels)" if without else ""
        return f"from {least:.6g} to {most:.6g}, by the place in the image{none}"


def _falls_within(correlations: FloatArray) -> float:
    """Return where correlations at the lags 1, 2, ... have fallen to 1/e, interpolated; beyond the last they are 0."""
    falling = np.r_[1.0, correlations, 0.0]
    after = int(np.argmax(falling <= np.exp(-1)))
    before = falling[after - 1]
    return float(after - 1 + (before - np.exp(-1)) / (before - falling[after]))


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
    lags = finite_array(values, "autocovariance")
    if lags.ndim != 2 or not all(side % 2 for side in lags.shape):
        raise InputError(
            "autocovariance must have an odd number of rows and of columns, with the variance in the middle, "
            f"got shape {lags.shape}."
        )
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


DEGREES_OF_FREEDOM = 100
"""Degrees of freedom of the variance at a pixel, if there are that many: it then has a relative error of 14%. More
would blur the field, and fewer would make variances of contrasts too small, because residuals are divided by standard
deviations that they have a part in."""

LARGEST_SHARE = 0.25
"""Largest standard deviation of the smoothing, as a share of the shorter side: nearly the same weight everywhere."""


def default_smoothing(autocorrelation: FloatArray, degrees: int, shape: tuple[int, ...]) -> float:
    """Return the smoothing, in pixels, for which the variance at a pixel has enough degrees of freedom.

    The variance of independent noise at a pixel has ``4 pi smoothing^2`` times the ``degrees`` of freedom of one pixel,
    and that of noise with an autocorrelation (2P+1, 2Q+1) fewer by the sum of squared correlations. The smoothing of
    images (H, W) = ``shape`` is at most a quarter of the shorter side.
    """
    needed = np.sqrt(DEGREES_OF_FREEDOM * float((autocorrelation**2).sum()) / (4 * np.pi * degrees))
    return float(min(needed, LARGEST_SHARE * min(shape)))
