"""Noise whose correlation depends only on the lag between two pixels, applied by the FFT."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.errors import InputError
from attentest.noise.correlated import DEFINITENESS_TOLERANCE, SYMMETRY_TOLERANCE, CorrelatedNoise
from attentest.noise.model import (
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    BaseNoise,
    FloatArray,
    deviations_text,
    finite_array,
    image_sides,
    named_shape,
    standard_deviation,
)
from attentest.noise.residuals import lag_weights

MOST_LAGS = 2**28  # largest number of stretched lags: they take 2 GiB


def stretched_lags(autocovariance: FloatArray, factor: float, shape: tuple[int, ...]) -> FloatArray:
    """Return covariances that reach ``factor`` times as far, with a spectrum that is nowhere negative.

    Those at the lags divided by the factor are interpolated linearly between whole lags, along each axis. This is a
    convolution with triangles, whose Fourier transform is not negative, so a covariance of noise on an unbounded grid
    stays one; the variance, at lag 0, stays as it is. An autocovariance need be one only on the torus of its images of
    that ``shape``, and where that leaves negative power after stretching, it is set to zero and the sum is scaled back
    to the variance. Both arrays have odd sides, with the variance in the middle.
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
    stretched = autocovariance
    for axis, matrix in enumerate(weights[:-1]):
        stretched = np.moveaxis(np.tensordot(matrix, stretched, (1, axis)), 0, axis)
    stretched = np.asarray(stretched @ weights[-1].T)
    torus, spectrum = torus_and_spectrum(stretched, shape)
    if spectrum.min() >= 0:
        return stretched
    clipped = np.fft.fftshift(np.fft.irfftn(np.maximum(spectrum, 0.0), s=torus, axes=range(len(torus))))
    variance, present = stretched.flat[stretched.size // 2], clipped.flat[clipped.size // 2]
    return np.asarray((clipped + np.flip(clipped)) / 2 * (variance / present))


def torus_and_spectrum(lags: FloatArray, shape: tuple[int, ...]) -> tuple[tuple[int, ...], FloatArray]:
    """Return the sides of the torus for images of a shape and covariances by lag, and their transform by rfftn."""
    torus = tuple(max(side, 2 * length - 1) for side, length in zip(lags.shape, shape, strict=True))
    return torus, np.fft.rfftn(_on_torus(lags, torus)).real


def _on_torus(lags: FloatArray, torus: tuple[int, ...]) -> FloatArray:
    """Return values by lag, lag zero in the middle, on a torus that holds them, lag zero first."""
    before = [outer // 2 - inner // 2 for outer, inner in zip(torus, lags.shape, strict=True)]
    larger = np.zeros(torus)
    larger[tuple(slice(start, start + side) for start, side in zip(before, lags.shape, strict=True))] = lags
    return np.fft.ifftshift(larger)


MOST_ON_TORUS = 2**28
"""Largest number of values on a torus, that of 8,192 x 8,192 pixels or of 322 x 322 x 322: they take 2 GiB."""

TOGETHER = 2**20  # values on tori that are transformed at a time

FORMS = 256
"""Draws of noise from which the variance of a quadratic form is estimated, to within 9%, one standard error."""

PROBES, MOST_PROBES = 4, 16
"""Vectors of random signs from which it is estimated for volumes, of which a draw may take seconds: few for large
volumes, whose many degrees of freedom, of 1,000 to within 5%, need no more; with 20 in a small one to within 15%."""

FORM_VALUES_TOGETHER = 2**22  # values of these draws that are held at a time

STEPS = {
    1: [("samples", "of neighbours")],
    2: [("rows", "of neighbours in a column"), ("columns", "in a row")],
    3: [("slices", "of neighbours across slices"), ("rows", "in a column"), ("columns", "in a row")],
}
"""What lags along each axis count, and which neighbours are one step apart along it, by the number of axes."""


class LagNoise(CorrelatedNoise):
    """Base class of noise of one channel whose correlation depends on the lag between two pixels only, in O(n log n).

    The image is a corner of a torus that is at least 2n-1 pixels long where the image has n, so that no lag within the
    image goes around it. On the torus the covariance is circulant, with the Fourier transform of the covariances by lag
    as its eigenvalues; C is its restriction to the corner, and samples are corners of samples on the torus.
    """

    shape: tuple[int, ...]
    _lags_name: ClassVar[str]
    """Parameter with the covariances by lag."""

    def __init__(self, autocovariance: ArrayLike, shape: Sequence[int]) -> None:
        self.shape = image_sides(shape)
        self._lags: FloatArray = _autocovariance(autocovariance, len(self.shape))
        if math.prod(2 * side - 1 for side in self.shape) > MOST_ON_TORUS:
            raise InputError(f"images of {self.shape} pixels take too much memory: give smaller ones.")
        self._scale = float(np.sqrt(self._lags.flat[self._lags.size // 2]))
        self._torus, spectrum = torus_and_spectrum(self._lags, self.shape)
        smallest, largest = float(spectrum.min()), float(spectrum.max())
        if smallest < -DEFINITENESS_TOLERANCE * largest:
            raise InputError(
                "autocovariance must have a spectrum that is nowhere negative, but on the torus of "
                f"{' x '.join(map(str, self._torus))} pixels that holds the image it goes from {smallest:.3g} to "
                f"{largest:.3g}, and noise cannot have a negative power: give more lags, until the covariance has "
                "reached zero, or let it fall to zero smoothly."
            )
        self._spectrum = np.maximum(spectrum, 0.0)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) of another shape or of several channels."""
        if shape != (1, *self.shape):
            raise InputError(
                f"the noise model is for one channel of {named_shape(self.shape, 0)}, but the image is "
                f"{named_shape(shape)}: make one for these axes, and for several channels a PerChannel with it as its "
                "spatial model."
            )

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
        together = max(1, TOGETHER // math.prod(self._torus))
        return (slice(start, start + together) for start in range(0, count, together))

    def _filtered(self, fields: FloatArray, gain: FloatArray, torus: tuple[int, ...] | None = None) -> FloatArray:
        """Return the corners (m, *shape) of fields (m, *axes) on a torus after multiplying their spectrum."""
        torus = torus or self._torus
        waves = np.fft.rfftn(fields, s=torus, axes=range(1, fields.ndim))
        waves *= gain
        # As irfftn, without the rows that are not in the corner.
        for axis, side in enumerate(self.shape[:-1], start=1):
            waves = np.fft.ifft(waves, axis=axis)[(slice(None),) * axis + (slice(side),)]
        return np.fft.irfft(waves, n=torus[-1])[..., : self.shape[-1]]

    def _lags_within_image(self) -> FloatArray:
        """Return the covariances at lags between two pixels of the image, the variance in the middle."""
        sides = zip(self._lags.shape, self.shape, strict=True)
        return self._lags[tuple(slice(max(0, lags // 2 + 1 - side), lags // 2 + side) for lags, side in sides)]

    def _few(self, places: NDArray[np.int64], n: int) -> FloatArray:
        within = np.ones((len(places), len(places)), dtype=bool)
        index = []
        for along, side in zip(np.unravel_index(places, self.shape), self._lags.shape, strict=True):
            lag = np.subtract.outer(along, along)
            within &= np.abs(lag) <= side // 2
            index.append(np.clip(lag + side // 2, 0, side - 1))
        return np.where(within, self._lags[tuple(index)], 0.0)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of sums over lags of products of pixels, z'Wz for an image z, whose variance is estimated."""
        from scipy.fft import irfftn, next_fast_len, rfftn  # here because scipy.fft is slow to import

        torus = tuple(next_fast_len(2 * side - 1, real=True) for side in self.shape)
        axes, fields = range(1, len(torus) + 1), eta.reshape(-1, *self.shape)
        weights = irfftn(np.abs(rfftn(fields, s=torus, axes=axes)) ** 2, s=torus, axes=axes)
        weights *= _on_torus(np.fft.fftshift(lag_weights(self.shape, origin.get("max_lag"))), torus)
        spectrum = rfftn(weights, axes=axes).real
        if len(torus) == 3:
            covariances = _on_torus(self._lags_within_image(), torus)
            pairs = irfftn(np.abs(rfftn(np.ones(self.shape), s=torus)) ** 2, s=torus)
            traces = np.tensordot(weights, covariances * pairs, len(torus))
            return np.asarray(traces**2 / self._traces_of_squares(spectrum, rfftn(covariances).real, torus))
        # The columns of rfftn that stand for two.
        spectrum[..., 1 : (torus[-1] + 1) // 2] *= 2
        flat = spectrum.reshape(len(eta), -1)
        rng, forms = np.random.default_rng(0), np.empty((FORMS, len(eta)))
        together = max(1, FORM_VALUES_TOGETHER // math.prod(torus))
        for start in range(0, FORMS, together):
            part = slice(start, min(start + together, FORMS))
            draws = self._draw(rng, part.stop - part.start, eta.shape[1]).reshape(-1, *self.shape)
            power = np.abs(rfftn(draws, s=torus, axes=axes)) ** 2
            forms[part] = power.reshape(len(draws), -1) @ flat.T
        return np.asarray(2 * forms.mean(axis=0) ** 2 / forms.var(axis=0, ddof=1))

    def _traces_of_squares(self, weights: FloatArray, gain: FloatArray, torus: tuple[int, ...]) -> FloatArray:
        """Return tr(WCWC), half the variance of z'Wz, for the spectra (m, *axes) of W and that of C on a torus.

        It is the mean of (CWv)'(WCv) over vectors v of random signs.
        """
        together = min(MOST_PROBES, max(1, FORM_VALUES_TOGETHER // math.prod(torus)))
        times = max(1, PROBES // together)
        rng, traces = np.random.default_rng(0), np.zeros(len(weights))
        for _ in range(times):
            probes = rng.choice((-1.0, 1.0), size=(together, *self.shape))
            turned = self._filtered(probes, gain, torus)
            for number, own in enumerate(weights):
                weighted = self._filtered(self._filtered(probes, own, torus), gain, torus)
                traces[number] += np.vdot(weighted, self._filtered(turned, own, torus)) / (together * times)
        return traces

    def correlation_length(self) -> float:
        """Return the mean of the distances along the axes, in pixels, within which correlations fall to 1/e."""
        if np.count_nonzero(self._lags) == 1:
            return 0.0
        return sum(map(_falls_within, self._along_axes())) / len(self.shape)

    def _stretched(self, length: float, shape: tuple[int, ...]) -> BaseNoise:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        present = self.correlation_length()
        if not present:
            return super()._stretched(length, shape)
        lags = stretched_lags(self._lags, length / present, self.shape)
        return type(self)(**{**self.arguments(), self._lags_name: lags})

    def _along_axes(self) -> list[FloatArray]:
        """Return the correlations of pixels 1, 2, ... apart along each axis."""
        middle = [side // 2 for side in self._lags.shape]
        lines = (
            self._lags[(*middle[:axis], slice(start + 1, None), *middle[axis + 1 :])]
            for axis, start in enumerate(middle)
        )
        return [line / self._scale**2 for line in lines]

    def record(self) -> dict[str, Any]:
        """Return name, size, standard deviation (root mean square, least and greatest if it varies), largest lags."""
        factors, lags = self._factors, [side // 2 for side in self._lags.shape]
        sigma = float(np.sqrt(np.mean(np.square(factors * self._scale))))
        record = {"model": self.name, "shape": list(self.shape), "sigma": sigma, "lags": lags}
        if not isinstance(factors, float):
            record["sigmas"] = [float(factors.min()), float(factors.max())]
        return record

    def words(self) -> str:
        """Return the model in words."""
        factors = self._factors
        if isinstance(factors, float):
            deviations = f"of {self._scale:.6g}"
        else:
            without = np.mean(factors == 0)
            none = f" (none at {without:.1%} of the pixels)" if without else ""
            deviations = f"from {factors.min():.6g} to {factors.max():.6g}, by the place in the image{none}"
        units, places = zip(*STEPS[len(self.shape)], strict=True)
        along = self._along_axes()
        furthest = _listed([f"{side // 2} {unit}" for side, unit in zip(self._lags.shape, units, strict=True)])
        near = _listed([f"{line[:1].sum():z.2f} {place}" for line, place in zip(along, places, strict=True)])
        fallen = _listed([f"{_falls_within(line):.1f} {unit}" for line, unit in zip(along, units, strict=True)])
        return (
            f"A standard deviation {deviations}, and a correlation that depends only on how far apart "
            f"two pixels are, up to {furthest}: {near}, 1/e at {fallen}"
        )


class Stationary(LagNoise):
    """Noise of one channel whose covariance depends on the lag between two pixels only, in O(n log n).

    Parameters
    ----------
    autocovariance : array of shape (2P+1,), (2P+1, 2Q+1) or (2P+1, 2Q+1, 2R+1)
        Covariances at lags -P..P by -Q..Q, the variance in the middle; zero at lags further out. Entry
        (P + i, Q + j) is the covariance of two pixels i rows and j columns apart, so it equals entry (P - i, Q - j).
    shape
        Sides of the images, as many as the lags have axes: (T,), (H, W) or (D, H, W). Lags beyond the image change only
        the size of the torus that holds it.
    """

    name: ClassVar = "stationary"
    parameters: ClassVar = {"autocovariance": np.ndarray, "shape": list}
    estimator: ClassVar = "stationary"

    _factors = 1.0
    _lags_name = "autocovariance"

    def __init__(self, autocovariance: ArrayLike, shape: Sequence[int]) -> None:
        super().__init__(autocovariance, shape)
        self.autocovariance = self._lags

    def __repr__(self) -> str:
        near = _listed([f"{correlations[:1].sum():z.2f}" for correlations in self._along_axes()])  # 0 without lags
        return f"Stationary(<sd {self._scale:.3g}, neighbours {near}>, shape={self.shape})"


ROUNDING = 1e-9  # a correlation at lag zero that is closer to 1 than this is 1 up to rounding error


class LocallyStationary(LagNoise):
    """Noise of one channel with a standard deviation per pixel and a correlation by lag, in O(n log n).

    Sigma = D R D, with D the diagonal matrix of the standard deviations and R the correlation of a
    :class:`Stationary` model.

    Parameters
    ----------
    deviations : array of shape (T,), (H, W) or (D, H, W)
        Standard deviation of each pixel; non-negative, not all zero.
    autocorrelation : array of shape (2P+1,), (2P+1, 2Q+1) or (2P+1, 2Q+1, 2R+1)
        Correlations at lags -P..P by -Q..Q, 1 in the middle; zero at lags further out.
    """

    name: ClassVar = "locally stationary"
    parameters: ClassVar = {"deviations": np.ndarray, "autocorrelation": np.ndarray}
    estimator: ClassVar = "locally-stationary"
    _lags_name = "autocorrelation"

    def __init__(self, deviations: ArrayLike, autocorrelation: ArrayLike) -> None:
        field = finite_array(deviations, "deviations")
        if field.ndim not in STEPS:
            raise InputError(f"deviations must have the one to three axes of the images, got shape {field.shape}.")
        lowest, highest = field.min(initial=np.inf), field.max(initial=0.0)
        if lowest < 0 or not SMALLEST_SIGMA <= highest <= LARGEST_SIGMA:
            raise InputError(
                f"deviations must be non-negative, and the greatest from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}, got "
                f"values from {lowest} to {highest}."
            )
        field.setflags(write=False)
        self.deviations: FloatArray = field
        super().__init__(autocorrelation, field.shape)
        self.autocorrelation = self._lags
        variance = self._scale**2
        if abs(variance - 1) > ROUNDING:
            raise InputError(f"autocorrelation must be 1 in the middle, at lag zero, got {variance:.6g} there.")

    @property
    def _factors(self) -> FloatArray:
        return self.deviations.ravel()

    def __repr__(self) -> str:
        sides = " x ".join(map(str, self.shape))
        return f"LocallyStationary(<{sides} pixels, sd {deviations_text(self._factors**2)}>)"

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of variances and correlation, whose errors are added as if they were independent."""
        squares = float((self.autocorrelation**2).sum())
        smoothing = origin.get("smoothing") or default_smoothing(
            self.autocorrelation, origin["images"] - 1, self.deviations.shape
        )
        by_correlation = super().degrees_per_image(self._factors * eta, origin)
        return np.asarray(1 / (1 / by_correlation + squares / gaussian_pixels(smoothing, len(self.shape))))


def _falls_within(correlations: FloatArray) -> float:
    """Return where correlations at the lags 1, 2, ... have fallen to 1/e, interpolated; beyond the last they are 0."""
    falling = np.r_[1.0, correlations, 0.0]
    after = int(np.argmax(falling <= np.exp(-1)))
    before = falling[after - 1]
    return float(after - 1 + (before - np.exp(-1)) / (before - falling[after]))


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _autocovariance(values: ArrayLike, dimension: int) -> FloatArray:
    lags = finite_array(values, "autocovariance")
    if lags.ndim != dimension or not all(side % 2 for side in lags.shape):
        raise InputError(
            "autocovariance must have as many axes as the images, each of an odd length, with the variance in the "
            f"middle, got shape {lags.shape} for images with {dimension} of them."
        )
    largest = np.abs(lags).max()
    middle = float(lags.flat[lags.size // 2])
    if middle <= 0 or largest > middle * (1 + SYMMETRY_TOLERANCE):
        raise InputError(
            "autocovariance must have the variance in the middle, positive and no smaller than any covariance, "
            f"got {middle:.3g} there and up to {largest:.3g} elsewhere."
        )
    standard_deviation(float(np.sqrt(middle)))  # raises an error if the variance would overflow or underflow
    opposite = np.flip(lags)
    asymmetry = np.abs(lags - opposite).max()
    if asymmetry > SYMMETRY_TOLERANCE * largest:
        raise InputError(
            "autocovariance must be the same at opposite lags, such as (i, j) and (-i, -j), "
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
"""Largest standard deviation of the smoothing, as a share of the shortest side: nearly the same weight everywhere."""


def gaussian_pixels(smoothing: float, dimension: int) -> float:
    """Return the number of independent pixels whose mean varies as much as one with Gaussian weights."""
    return float((4 * np.pi * smoothing**2) ** (dimension / 2))


def default_smoothing(autocorrelation: FloatArray, degrees: int, shape: tuple[int, ...]) -> float:
    """Return the smoothing, in pixels, for which the variance at a pixel has enough degrees of freedom.

    The variance of independent noise at a pixel has ``gaussian_pixels`` times the ``degrees`` of freedom of one pixel,
    and that of noise with an autocorrelation fewer by the sum of squared correlations. The smoothing of images of a
    ``shape`` is at most a quarter of the shortest side.
    """
    dimension = len(shape)
    pixels = DEGREES_OF_FREEDOM * float((autocorrelation**2).sum()) / (gaussian_pixels(1.0, dimension) * degrees)
    needed = pixels ** (1 / dimension)
    return float(min(needed, LARGEST_SHARE * min(shape)))
