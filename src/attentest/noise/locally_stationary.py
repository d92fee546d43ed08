"""Noise with a standard deviation for each pixel and a correlation that depends on the lag only, and its estimator."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import float_array, positive_number
from attentest.errors import InputError
from attentest.noise.derived import PerChannel
from attentest.noise.estimators import EQUAL_GAIN, NoiseEstimator
from attentest.noise.model import LARGEST_SIGMA, SMALLEST_SIGMA, FloatArray, NoiseModel, SaveableNoise, deviations_text
from attentest.noise.reference_images import ReferenceImages
from attentest.noise.stationary import Exponential, Stationary
from attentest.noise.stationary_correlation import checked_max_lag

ROUNDING = 1e-9
"""A correlation at lag zero that is closer to 1 than this is 1 up to rounding error."""


class LocallyStationary(SaveableNoise):
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

    saved: ClassVar = {"deviations": np.ndarray, "autocorrelation": np.ndarray}

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
        """Refuse images (C, H, W) of another shape or of several channels."""
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

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e."""
        return self._correlation.correlation_length()

    def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> NoiseModel:
        """Return the same with its lags stretched; independent noise gets an exponential correlation."""
        other = self._correlation.with_correlation_length(length, shape)
        if isinstance(other, Stationary):
            return LocallyStationary(self.deviations, other.autocovariance)
        return Exponential(self.deviations.reshape(shape), length)

    def describe(self) -> dict[str, Any]:
        """Return name, size, root mean square, least and greatest standard deviation, and the largest lags."""
        stationary = self._correlation.describe()
        return {
            "model": "locally stationary",
            "shape": stationary["shape"],
            "sigma": float(np.sqrt(np.mean(self._flat**2))),
            "sigmas": [float(self._flat.min()), float(self._flat.max())],
            "lags": stationary["lags"],
        }

    def facts(self) -> dict[str, str]:
        """Return what there is to know, in words."""
        facts = {**self._correlation.facts(), "standard deviation": f"{self._range}, by the pixel"}
        if not self._flat.all():
            facts["pixels without noise"] = f"{np.mean(self._flat == 0):.1%}"
        return facts

    @property
    def _flat(self) -> FloatArray:
        return self.deviations.ravel()

    @property
    def _range(self) -> str:
        return deviations_text(self._flat**2)


def _deviations(values: ArrayLike) -> FloatArray:
    deviations = np.array(float_array(values, "deviations"))
    if deviations.ndim != 2:
        raise InputError(f"deviations must have the shape (H, W) of the images, got {deviations.shape}.")
    if not np.all(np.isfinite(deviations)):
        raise InputError("deviations must be finite, got NaN or infinite entries.")
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


class LocallyStationaryCovariance(NoiseEstimator):
    """A standard deviation that changes slowly over the image, and a correlation that depends on the lag only.

    The variances of pixels are smoothed; the correlation is that of the residuals divided by the standard deviations.
    Pixels that have the same value in all reference images are left out and have no noise. The model is a
    LocallyStationary; for colour images a PerChannel of LocallyStationary, with one field for all channels.

    Parameters
    ----------
    smoothing
        Standard deviation in pixels of the Gaussian that the variances are smoothed with. By default the least for
        which the variance at a pixel has 100 degrees of freedom, a relative error of 14%, but at most a quarter of the
        shorter side: the more images there are and the shorter correlations are, the less.
    max_lag
        See :class:`StationaryCovariance`.
    gain
        "equal" or "per-image", see :class:`NoiseEstimator`.
    """

    ignore_constant = True

    def __init__(self, smoothing: float | None = None, max_lag: int | None = None, *, gain: str = EQUAL_GAIN) -> None:
        super().__init__(gain=gain)
        self.smoothing = None if smoothing is None else positive_number(smoothing, "smoothing")
        self.max_lag = checked_max_lag(max_lag)

    def _estimate(self, reference: ReferenceImages) -> NoiseModel:
        varying = reference.without_constant_pixels()
        planes = varying.standard_planes
        channels, shape = planes.shape[1], planes.shape[2:]
        degrees = (reference.count - 1) * channels
        smoothing = self.smoothing
        if smoothing is None:
            smoothing = default_smoothing(varying.correlation(planes, self.max_lag), degrees, shape)
        variance = smoothed_variance((planes**2).sum(axis=(0, 1)) / degrees, varying.used, smoothing)
        deviations = np.sqrt(variance)
        standard = np.divide(planes, deviations, out=np.zeros_like(planes), where=varying.used)
        correlation = varying.correlation(standard, self.max_lag)
        covariance = varying.channel_covariance
        if covariance.size == 1:
            return LocallyStationary(float(np.sqrt(covariance[0, 0])) * deviations, correlation)
        return PerChannel(covariance, LocallyStationary(deviations, correlation))
