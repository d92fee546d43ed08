"""Noise given by standard deviations and a correlation, which is none or falls exponentially, or by a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import real_number, whole_number
from attentest.errors import InputError
from attentest.noise.model import (
    BaseNoise,
    FloatArray,
    deviations_text,
    finite_array,
    image_sides,
    named_shape,
    sample_shape,
    standard_deviation,
)

STEP = 1e-4  # step of the numerical derivative with respect to a correlation

SYMMETRY_TOLERANCE = 1e-10
"""Largest ``|Sigma - Sigma'|`` allowed, relative to the largest entry: above rounding, below any real asymmetry."""

DEFINITENESS_TOLERANCE = 1e-10
"""Most negative eigenvalue allowed, relative to the largest variance: a singular covariance passes."""

VALUES_TOGETHER = 2**20
"""Values that are filtered at a time: a filter takes several times the memory of what it filters."""


class CorrelatedNoise(BaseNoise):
    """Base class of noise with the covariance D C D: factors D on the values of an image, and a covariance C.

    Mostly D are the standard deviations, and C is a correlation: that of independent pixels, or one that falls with
    the distance along some axes (``_decay``). Noise with another C defines products, draws and entries of its own.
    """

    shape: tuple[int, ...] | None = None  # the (*axes) or (C, *axes) of the images that it is for; None for any
    _scale: float = 1.0
    """Standard deviation of noise with the covariance C: 1 where C is a correlation."""

    @property
    def _factors(self) -> float | FloatArray:
        """The factor on all values of an image, or those (n,) on each."""
        raise NotImplementedError

    def _decay(self, n: int) -> tuple[float, tuple[int, ...], Sequence[int]]:
        """Return rho, the sides of the array of an image's ``n`` values, and its axes along which C is rho^distance.

        Values that differ along another axis are independent.
        """
        return 0.0, (n,), ()

    def _product(self, v: FloatArray) -> FloatArray:
        """Return ``C v`` along the last axis as a new array."""
        rho, sides, axes = self._decay(v.shape[-1])
        product = (v if axes else np.array(v, dtype=np.float64)).reshape(*v.shape[:-1], *sides)
        for axis in axes:
            product = covariance_product(product, rho, axis)
        return product.reshape(v.shape)

    def _draw(self, rng: np.random.Generator, k: int, n: int) -> FloatArray:
        """Draw ``k`` vectors (k, n) with the covariance C."""
        rho, sides, axes = self._decay(n)
        draws = rng.standard_normal((k, *sides))
        for axis in axes:
            draws = stationary_series(draws, rho, axis)
        return draws.reshape(k, n)

    def _few(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the entries (m, m) of C at a few places (m,)."""
        rho, sides, axes = self._decay(n)
        lags = np.abs([np.subtract.outer(along, along) for along in np.unravel_index(places, sides)])
        independent = np.delete(lags, list(axes), axis=0).any(axis=0)
        return np.where(independent, 0.0, rho ** lags[list(axes)].sum(axis=0))

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""
        return None if self.shape is None else math.prod(self.shape)

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) of another shape."""
        if self.shape is not None and shape not in (self.shape, (1, *self.shape)):
            raise InputError(
                f"the noise model is for images of shape {self.shape}, but the image is {named_shape(shape)}: make one "
                "for that shape."
            )

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis of an array of shape (..., n)."""
        if self.size not in (None, v.shape[-1]):
            raise InputError(f"this noise model is for {self.size} pixels, but {v.shape[-1]} were given.")
        factors = self._factors
        uniform = isinstance(factors, float)
        product = self._product(v if uniform else factors * v)
        product *= factors**2 if uniform else factors
        return product

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` noise vectors; shape (k, n). ``n`` is needed where ``size`` is None."""
        draws = self._draw(rng, *sample_shape(k, n, self.size))
        draws *= self._factors
        return draws

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each of the ``n`` values of an image."""
        return np.full(n, np.square(self._factors * self._scale))

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few values of an image."""
        factors = np.broadcast_to(self._factors, n)[places]
        return np.outer(factors, factors) * self._few(places, n)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return the number of pixels: a variance that all of them share."""
        return np.full(len(eta), float(eta.shape[1]))

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e; 0 if pixels are independent."""
        return 0.0

    def _stretched(self, length: float, shape: tuple[int, ...]) -> BaseNoise:
        return Exponential(np.broadcast_to(self._factors * self._scale, int(np.prod(shape))).reshape(shape), length)


@dataclass(frozen=True)
class Isotropic(CorrelatedNoise):
    """Independent noise of one standard deviation: Sigma = sigma^2 I."""

    name: ClassVar = "isotropic"
    parameters: ClassVar = {"sigma": float}
    estimator: ClassVar = "pooled"

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))

    @property
    def _factors(self) -> float:
        return self.sigma

    def words(self) -> str:
        """Return the model in words."""
        return f"Independent between pixels, with a standard deviation of {self.sigma:.6g}"


class Diagonal(CorrelatedNoise):
    """Independent noise with a variance per pixel.

    Parameters
    ----------
    variance : array of shape (n,), (*axes) or (C, *axes)
        Variances, not standard deviations; non-negative, not all zero.
    """

    name: ClassVar = "diagonal"
    parameters: ClassVar = {"variance": np.ndarray}
    estimator: ClassVar = "pixel"

    shape: tuple[int, ...]

    def __init__(self, variance: ArrayLike) -> None:
        values = finite_array(variance, "variance")
        self.shape = values.shape
        flat = values.ravel()
        if np.any(flat < 0) or not np.any(flat > 0):
            raise InputError(
                "variance must be non-negative and not all zero, "
                f"got values from {flat.min(initial=0.0)} to {flat.max(initial=0.0)}."
            )
        flat.setflags(write=False)
        self.variance: FloatArray = flat

    def check_image(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images (C, *axes) of another shape than the variances, unless these are flat."""
        if len(self.shape) > 1:
            super().check_image(shape)

    def __repr__(self) -> str:
        return f"Diagonal(<{self.size} variances, sd {deviations_text(self.variance)}>)"

    @cached_property
    def _factors(self) -> FloatArray:
        return np.sqrt(self.variance)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``variance * v``."""
        return self.variance * v

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of a weighted sum of variances of pixels, each with one."""
        parts = eta**2 * self.variance
        return np.asarray(parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1))

    def arguments(self) -> dict[str, Any]:
        """Return the variances in the shape in which they were given."""
        return {"variance": self.variance.reshape(self.shape)}

    def words(self) -> str:
        """Return the model in words."""
        median = float(np.sqrt(np.median(self.variance)))
        return (
            f"Independent between pixels, with a standard deviation of its own for each of {self.size:,}, "
            f"{deviations_text(self.variance)}, their median {median:.3g}"
        )


def covariance_product(values: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return the product with the matrix rho^abs(i - j) along an axis: one filter forwards and one backwards."""
    product = np.empty(values.shape)
    along, filtered = (np.moveaxis(array, axis, -1) for array in (values, product))
    for part, decayed in _decayed(along, rho):
        filtered[part] = decayed
    for part, decayed in _decayed(along, rho, backwards=True):
        filtered[part] += decayed
        filtered[part] -= along[part]
    return product


def stationary_series(white: FloatArray, rho: float, axis: int = -1) -> FloatArray:
    """Return series with the covariance rho^abs(i - j) along an axis, made from independent standard normal numbers."""
    series: FloatArray = np.sqrt(1.0 - rho**2) * white
    along = np.moveaxis(series, axis, -1)
    along[..., :1] = np.moveaxis(white, axis, -1)[..., :1]
    for part, decayed in _decayed(along, rho):
        along[part] = decayed
    return series


def neighbour_correlation(length: float) -> float:
    """Return the rho with which correlations fall to 1/e within a length of 0 or more."""
    return float(np.exp(-1 / length)) if length else 0.0


def _decayed(v: FloatArray, rho: float, backwards: bool = False) -> Iterator[tuple[Any, FloatArray]]:
    """Yield y with y_i = v_i + rho y_{i-1} along the last axis, or rho y_{i+1}, in parts that follow their places."""
    from scipy.signal import lfilter  # here because scipy.signal is slow to import and few noise models need it

    length = v.shape[-1]
    together = max(1, VALUES_TOGETHER * length // max(1, v.size))
    starts = range(0, length, together)
    before = np.zeros((*v.shape[:-1], 1))  # rho times the last y of the part before
    for start in reversed(starts) if backwards else starts:
        part = (..., slice(start, start + together))
        values = v[part][..., ::-1] if backwards else v[part]
        decayed, before = lfilter([1.0], [1.0, -rho], values, zi=before)
        yield part, decayed[..., ::-1] if backwards else decayed


@dataclass(frozen=True)
class AR1(CorrelatedNoise):
    """First-order autoregressive noise over the flattened index: Sigma_ij = sigma^2 rho^|i-j|, in O(n)."""

    name: ClassVar = "ar1"
    parameters: ClassVar = {"rho": float, "sigma": float}
    estimator: ClassVar = "ar1"

    rho: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", standard_deviation(self.sigma))
        object.__setattr__(self, "rho", real_number(self.rho, "rho"))
        if not -1.0 < self.rho < 1.0:
            raise InputError(f"rho must lie strictly between -1 and 1, got {self.rho}.", "rho")

    @property
    def _factors(self) -> float:
        return self.sigma

    @property
    def _direction(self) -> str:
        return "in reading order"

    def _decay(self, n: int) -> tuple[float, tuple[int, ...], Sequence[int]]:
        return self.rho, (n,), (-1,)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of v g(r / v), with v the mean of y_i^2 and r that of y_i y_(i+1): linear in (v, r) nearby."""
        rho = self.rho
        step = STEP * (1 - abs(rho))
        low, value, high = (
            np.einsum("ki,ki->k", eta, replace(self, rho=at, sigma=1.0).apply(eta))
            for at in (rho - step, rho, rho + step)
        )
        slope = (high - low) / (2 * step)
        by_variance, by_product = value - rho * slope, slope
        # Bartlett's formula: n times the variances of v and r, and their covariance, over a long series of variance 1.
        rest = 1 - rho**2
        of_variance, crossed = 2 * (1 + rho**2) / rest, 4 * rho / rest
        of_product = (1 + rho**2) / rest + rho**2 + 2 * rho**2 / rest
        variance = by_variance**2 * of_variance + 2 * by_variance * by_product * crossed + by_product**2 * of_product
        return np.asarray(2 * value**2 * eta.shape[1] / variance)

    def correlation_length(self) -> float:
        """Return the distance in pixels within which correlations fall to 1/e."""
        return -1 / float(np.log(abs(self.rho))) if self.rho else 0.0

    def _stretched(self, length: float, shape: tuple[int, ...]) -> AR1:
        """Return the same with another rate of decay; the sign of rho is kept."""
        return replace(self, rho=float(np.copysign(neighbour_correlation(length), self.rho)))

    def words(self) -> str:
        """Return the model in words."""
        return (
            f"A standard deviation of {self.sigma:.6g}, and a correlation of {self.rho:.6g} to the power of the "
            f"distance between two pixels {self._direction}"
        )


@dataclass(frozen=True)
class ARAlong(AR1):
    """First-order autoregressive noise along one axis, such as time; places that differ otherwise are independent.

    Parameters
    ----------
    rho, sigma
        Correlation of neighbours along the axis, and standard deviation.
    shape
        The (*axes) of the images, or (C, *axes) for several channels, which are then independent.
    axis
        The axis, counted from the last one, -1.
    """

    name: ClassVar = "ar1 along an axis"
    parameters: ClassVar = {**AR1.parameters, "shape": list, "axis": int}

    shape: tuple[int, ...] = field(kw_only=True)
    axis: int = field(default=-1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shape", image_sides(self.shape, most_axes=4))
        object.__setattr__(
            self, "axis", whole_number(self.axis, "axis (counted from the last, -1)", -len(self.shape), -1)
        )

    def _decay(self, n: int) -> tuple[float, tuple[int, ...], Sequence[int]]:
        return self.rho, self.shape, (self.axis,)

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments as JSON-ready values."""
        return {**super().arguments(), "shape": list(self.shape)}

    @property
    def _direction(self) -> str:
        return f"along axis {self.axis}, counted from the last, and none between others"


class Exponential(CorrelatedNoise):
    """Noise with the correlation exp(-distance / length), in O(n); distances along each axis are added.

    Channels are independent. It is what independent noise, with standard deviations (C, *axes) of the pixels, becomes
    if it is given a correlation length in pixels; with 0 they are independent.
    """

    name: ClassVar = "exponential"
    parameters: ClassVar = {"deviations": np.ndarray, "length": float}

    shape: tuple[int, ...]

    def __init__(self, deviations: ArrayLike, length: float) -> None:
        self.deviations: FloatArray = np.array(deviations, dtype=np.float64)
        self.length = float(length)
        self.shape = self.deviations.shape

    def __repr__(self) -> str:
        return f"Exponential(<sd {deviations_text(self._factors**2)}>, length={self.length:g})"

    @property
    def _factors(self) -> FloatArray:
        return self.deviations.ravel()

    def _decay(self, n: int) -> tuple[float, tuple[int, ...], Sequence[int]]:
        return neighbour_correlation(self.length), self.shape, range(1 - len(self.shape), 0)

    def degrees_per_image(self, eta: FloatArray, origin: Mapping[str, Any]) -> FloatArray:
        """Return those of one variance of pixels with correlations r^distance: fewer by the sum of squares."""
        r = neighbour_correlation(self.length)
        return np.full(len(eta), float(eta.shape[1])) * ((1 - r**2) / (1 + r**2)) ** (len(self.shape) - 1)

    def correlation_length(self) -> float:
        """Return the correlation length in pixels."""
        return self.length

    def record(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": self.name, "size": self.size, "correlation_length": self.length}

    def words(self) -> str:
        """Return the model in words."""
        return (
            f"A standard deviation of {deviations_text(self._factors**2)}, and a correlation that falls to "
            f"1/e within {self.length:.6g} pixels along each axis"
        )


class Dense(BaseNoise):
    """Noise with a full covariance matrix, for small images.

    Parameters
    ----------
    covariance : array of shape (n, n)
        Symmetric positive semi-definite; checked here, in O(n^3).
    """

    name: ClassVar = "dense"
    parameters: ClassVar = {"covariance": np.ndarray}
    estimator: ClassVar = "shrunk"

    def __init__(self, covariance: ArrayLike) -> None:
        matrix = finite_array(covariance, "covariance")
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise InputError(f"covariance must be a square (n, n) matrix, got shape {matrix.shape}.")
        asymmetry = np.abs(matrix - matrix.T).max()
        if asymmetry > SYMMETRY_TOLERANCE * np.abs(matrix).max():
            raise InputError(f"covariance must be symmetric, but it differs from its transpose by {asymmetry:.3g}.")
        matrix = matrix / 2 + matrix.T / 2
        matrix.setflags(write=False)
        self.covariance: FloatArray = matrix
        self.factor: FloatArray = _cholesky_factor(matrix)

    def __repr__(self) -> str:
        return f"Dense(<{self.size} x {self.size} covariance, sd {deviations_text(np.diag(self.covariance))}>)"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return int(self.covariance.shape[0])

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``covariance @ v`` along the last axis."""
        return v @ self.covariance

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return rng.standard_normal(sample_shape(k, n, self.size)) @ self.factor.T

    def variances(self, n: int) -> FloatArray:
        """Return the variance (n,) of each pixel."""
        return np.diag(self.covariance)

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the covariances (m, m) of a few pixels."""
        return np.asarray(self.covariance[np.ix_(places, places)])

    def words(self) -> str:
        """Return the model in words."""
        variances = np.diag(self.covariance)
        scale = np.sqrt(np.outer(variances, variances))
        correlations = np.divide(self.covariance, scale, out=np.zeros_like(scale), where=scale > 0)
        np.fill_diagonal(correlations, 0.0)
        strongest = correlations.flat[np.abs(correlations).argmax()]
        return (
            f"A covariance matrix of all {self.size:,} pixel values, with the standard deviations "
            f"{deviations_text(variances)} and {strongest:z.2f} as the strongest correlation"
        )


def _cholesky_factor(covariance: FloatArray) -> FloatArray:
    """Return the lower Cholesky factor (n, n) of a covariance plus a tiny diagonal, which a singular one needs."""
    from scipy.linalg import cholesky  # here because scipy.linalg is slow to import

    largest = float(np.diag(covariance).max())
    regular = covariance + DEFINITENESS_TOLERANCE * largest * np.eye(len(covariance))
    try:
        if largest <= 0:
            raise np.linalg.LinAlgError("no positive variance")
        return np.asarray(cholesky(regular, lower=True, check_finite=False), dtype=np.float64)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(covariance)[0])
        raise InputError(
            "covariance must be positive semi-definite with some variance, "
            f"but its smallest eigenvalue is {smallest:.3g} and its largest variance {largest:.3g}."
        ) from None
