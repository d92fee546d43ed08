"""Noise whose correlation depends only on the lag between two pixels, applied by the FFT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.noise.autoregressive import Exponential
from attentest.noise.dense import DEFINITENESS_TOLERANCE, SYMMETRY_TOLERANCE
from attentest.noise.model import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    BaseNoise,
    FloatArray,
    NoiseModel,
    deviations_text,
    finite_array,
    sample_shape,
    standard_deviation,
)
from attentest.noise.stationary_correlation import lag_weights

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
    padding = [((outer - inner) // 2,) * 2 for outer, inner in zip(torus, stretched.shape, strict=True)]
    spectrum = np.fft.rfft2(np.fft.ifftshift(np.pad(stretched, padding))).real
    if spectrum.min() >= 0:
        return stretched
    variance = stretched[reach[0], reach[1]]
    clipped = np.fft.fftshift(np.fft.irfft2(np.maximum(spectrum, 0.0), s=torus))
    return np.asarray((clipped + clipped[::-1, ::-1]) / 2 * (variance / clipped[torus[0] // 2, torus[1] // 2]))


def _weights(lags: int, reach: int, factor: float) -> FloatArray:
    """Return the weights (2 reach + 1, 2 lags + 1) of linear interpolation at the lags divided by a factor."""
    places = np.arange(-reach, reach + 1) / (factor or 1.0)
    return np.asarray(np.maximum(0.0, 1 - np.abs(places[:, None] - np.arange(-lags, lags + 1))))


MOST_PIXELS = 2**26
"""Largest number of pixels, 8,192 x 8,192: their torus takes 2 GiB."""

TOGETHER = 2**20
"""Values on tori that are transformed at a time."""

FORMS = 256
"""Draws of noise from which the variance of a quadratic form is estimated, to within 9%, one standard error."""

FORM_VALUES_TOGETHER = 2**22
"""Values of these draws that are held at a time."""


class Stationary(BaseNoise):
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

    name: ClassVar = "stationary"
    parameters: ClassVar = {"autocovariance": np.ndarray, "shape": list}
    estimator: ClassVar = "stationary"

    def __init__(self, autocovariance: ArrayLike, shape: Sequence[int]) -> None:
        self.shape = _image_shape(shape)
        self.autocovariance: FloatArray = _autocovariance(autocovariance)
        height, width = self.shape
        rows, columns = self.autocovariance.shape
        self._torus = max(rows, 2 * height - 1), max(columns, 2 * width - 1)
        self._spectrum = _spectrum(self.autocovariance, self._torus)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Raise an error for images (C, H, W) of another shape or of several channels."""
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
        images, product = v.reshape(-1, *self.shape), np.empty(v.shape)
        filtered = product.reshape(-1, *self.shape)
        for part in self._parts(len(images)):
            filtered[part] = self._filtered(images[part], self._spectrum)
        return product

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, length = sample_shape(k, n, self.size)
        gain, images = np.sqrt(self._spectrum), np.empty((draws, *self.shape))
        for part in self._parts(draws):
            images[part] = self._filtered(rng.standard_normal((len(images[part]), *self._torus)), gain)
        return images.reshape(draws, length)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.full(n, self._deviation**2)

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels: zero at lags beyond those of the autocovariance."""
        lags = [np.subtract.outer(along, along) for along in np.unravel_index(places, self.shape)]
        within = np.ones((len(places), len(places)), dtype=bool)
        index = []
        for lag, side in zip(lags, self.autocovariance.shape, strict=True):
            within &= np.abs(lag) <= side // 2
            index.append(np.clip(lag + side // 2, 0, side - 1))
        return np.where(within, self.autocovariance[tuple(index)], 0.0)

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
            draws = self.sample(rng, part.stop - part.start).reshape(-1, *self.shape)
            power = np.abs(np.fft.rfft2(draws, s=torus)) ** 2
            forms[part] = power.reshape(len(draws), -1) @ flat.T
        return np.asarray(2 * forms.mean(axis=0) ** 2 / forms.var(axis=0, ddof=1))

    def correlation_length(self) -> float:
        """Return the mean of the distances down and across, in pixels, within which correlations fall to 1/e."""
        if np.count_nonzero(self.autocovariance) == 1:
            return 0.0
        down, across = map(_falls_within, self._correlations())
        return (down + across) / 2

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        present = self.correlation_length()
        if not present:
            return Exponential(np.full(shape, self._deviation), length)
        return Stationary(stretched_lags(self.autocovariance, length / present, self.shape), self.shape)

    def record(self) -> dict[str, Any]:
        """Return name, size, standard deviation and the largest lags."""
        lags = [side // 2 for side in self.autocovariance.shape]
        return {"model": self.name, "shape": list(self.shape), "sigma": self._deviation, "lags": lags}

    def words(self) -> str:
        """Return the model in words."""
        return self._words_with(f"of {self._deviation:.6g}")

    def _words_with(self, deviation: str) -> str:
        """Return the model in words, with its standard deviation in words."""
        rows, columns = (side // 2 for side in self.autocovariance.shape)
        down, across = self._correlations()
        return (
            f"A standard deviation {deviation}, and a correlation that depends only on how far apart two pixels are, "
            f"up to {rows} rows and {columns} columns: {down[:1].sum():z.2f} of neighbours in a column and "
            f"{across[:1].sum():z.2f} in a row, 1/e at {_falls_within(down):.1f} rows and "
            f"{_falls_within(across):.1f} columns"
        )

    @property
    def _deviation(self) -> float:
        rows, columns = self.autocovariance.shape
        return float(np.sqrt(self.autocovariance[rows // 2, columns // 2]))

    def _correlations(self) -> tuple[FloatArray, FloatArray]:
        """Return the correlations of pixels 1, 2, ... rows apart, and of those 1, 2, ... columns apart."""
        rows, columns = (side // 2 for side in self.autocovariance.shape)
        scaled = self.autocovariance[rows:, columns:] / self._deviation**2
        return scaled[1:, 0], scaled[0, 1:]

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


ROUNDING = 1e-9
"""A correlation at lag zero that is closer to 1 than this is 1 up to rounding error."""


class LocallyStationary(BaseNoise):
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
        self.deviations: FloatArray = _deviations(deviations)
        self._correlation = Stationary(autocorrelation, self.deviations.shape)
        rows, columns = self.autocorrelation.shape
        middle = float(self.autocorrelation[rows // 2, columns // 2])
        if abs(middle - 1) > ROUNDING:
            raise InputError(f"autocorrelation must be 1 in the middle, at lag zero, got {middle:.6g} there.")

    @property
    def autocorrelation(self) -> FloatArray:
        """Correlations (2P+1, 2Q+1)."""
        return self._correlation.autocovariance

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Raise an error for images (C, H, W) of another shape or of several channels."""
        self._correlation.check_image(shape)

    def __repr__(self) -> str:
        return "LocallyStationary(<{} x {} pixels, sd {}>)".format(*self.deviations.shape, self._range)

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self._correlation.size

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        if v.shape[-1] != self.size:
            raise InputError(f"this noise model is for {self.size} pixels, but {v.shape[-1]} were given.")
        return self._flat * self._correlation.apply(self._flat * v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return self._flat * self._correlation.sample(rng, k, n)

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return self._flat**2

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return np.outer(self._flat[places], self._flat[places]) * self._correlation.covariances(places, n)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of variances and correlation, whose errors are added as if they were independent."""
        squares = float((self.autocorrelation**2).sum())
        smoothing = origin.get("smoothing") or default_smoothing(
            self.autocorrelation, origin["images"] - 1, self.deviations.shape
        )
        by_correlation = self._correlation.degrees_per_image(self._flat * eta, origin)
        return np.asarray(1 / (1 / by_correlation + squares / (4 * np.pi * smoothing**2)))

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e."""
        return self._correlation.correlation_length()

    def _stretched(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        other = self._correlation.with_correlation_length(length, shape)
        if isinstance(other, Stationary):
            return LocallyStationary(self.deviations, other.autocovariance)
        return Exponential(self.deviations.reshape(shape), length)

    def record(self) -> dict[str, Any]:
        """Return name, size, root mean square, least and greatest standard deviation, and the largest lags."""
        return {
            **self._correlation.record(),
            "model": self.name,
            "sigma": float(np.sqrt(np.mean(self._flat**2))),
            "sigmas": [float(self._flat.min()), float(self._flat.max())],
        }

    def words(self) -> str:
        """Return the model in words."""
        least, most, without = self._flat.min(), self._flat.max(), np.mean(self._flat == 0)
        none = f" (none at {without:.1%} of the pixels)" if without else ""
        return self._correlation._words_with(f"from {least:.6g} to {most:.6g}, by the place in the image{none}")

    @property
    def _flat(self) -> FloatArray:
        return self.deviations.ravel()

    @property
    def _range(self) -> str:
        return deviations_text(self._flat**2)


def _deviations(values: ArrayLike) -> FloatArray:
    deviations = finite_array(values, "deviations")
    if deviations.ndim != 2:
        raise InputError(f"deviations must have the shape (H, W) of the images, got {deviations.shape}.")
    lowest, highest = deviations.min(initial=np.inf), deviations.max(initial=0.0)
    if lowest < 0 or not SMALLEST_SIGMA <= highest <= LARGEST_SIGMA:
        raise InputError(
            f"deviations must be non-negative, and the greatest from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, got "
            f"values from {lowest} to {highest}."
        )
    deviations.setflags(write=False)
    return deviations


DEGREES_OF_FREEDOM = 100
"""Degrees of freedom of the variance at a pixel, if there are that many: it then has a relative error of 14%. More
would blur the field, and fewer would make variances of contrasts too small, because residuals are divided by standard
deviations that they have a part in."""

LARGEST_SHARE = 0.25
"""Largest standard deviation of the smoothing, as a share of the shorter side: nearly the same weight everywhere."""


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
