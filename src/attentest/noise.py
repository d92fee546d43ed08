"""Noise models: the covariance Sigma of the paper's section 2 as an operator, never as an n x n array.

A noise model answers two questions: what is ``Sigma v`` (:meth:`NoiseModel.apply`) and what does noise look
like (:meth:`NoiseModel.sample`). Pixels are indexed in row-major order; for an image of C channels the vector
is the (C, H, W) array flattened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky

from attentest.checks import real_number, whole_number
from attentest.errors import InputError

FloatArray: TypeAlias = NDArray[np.float64]

SYMMETRY_TOLERANCE = 1e-10
"""Largest |Sigma - Sigma'| allowed, relative to the largest entry: above rounding, below any real asymmetry."""

MOST_DRAWN = 10**12
"""No more draws or pixels than this are asked for on purpose."""

SMALLEST_SIGMA, LARGEST_SIGMA = 1e-150, 1e150
"""Between these a variance neither under- nor overflows."""

DEFINITENESS_TOLERANCE = 1e-10
"""Most negative eigenvalue allowed, relative to the largest variance: a singular covariance passes."""


@runtime_checkable
class NoiseModel(Protocol):
    """What attentest asks of a noise model; write your own by providing these."""

    @property
    def size(self) -> int | None:
        """Length of the vectors it applies to, or None for any length."""

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis of an array of shape (..., n)."""

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` noise vectors; shape (k, n). ``n`` is needed where ``size`` is None."""

    def describe(self) -> Mapping[str, Any]:
        """Return the model's name and parameters as JSON-ready values."""


@runtime_checkable
class ChecksImages(Protocol):
    """A noise model that knows more than the number of pixels of the images it is for."""

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) that it is not for."""


NoiseLike: TypeAlias = "NoiseModel | float"


def as_noise(noise: NoiseLike) -> NoiseModel:
    """Turn a bare number (the standard deviation of independent noise) into a noise model."""
    if isinstance(noise, (int, float, np.integer, np.floating)) and not isinstance(noise, bool):
        return Isotropic(noise)
    if isinstance(noise, NoiseModel) and not isinstance(noise, type):
        return noise
    raise InputError(f"noise must be a standard deviation or a model from attentest.noise, got {type(noise).__name__}.")


@dataclass(frozen=True)
class Isotropic:
    """Independent noise of one standard deviation: Sigma = sigma^2 I."""

    sigma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _standard_deviation(self.sigma))

    @property
    def size(self) -> None:
        """Any length."""
        return None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``sigma^2 v``."""
        return self.sigma**2 * v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors of length ``n``."""
        return self.sigma * rng.standard_normal(_shape(k, n, None))

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "isotropic", "sigma": self.sigma}


@dataclass(frozen=True)
class AR1:
    """First-order autoregressive noise over the flattened index: Sigma_ij = sigma^2 rho^|i-j|, in O(n)."""

    rho: float
    sigma: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", _standard_deviation(self.sigma))
        object.__setattr__(self, "rho", real_number(self.rho, "rho"))
        if not -1.0 < self.rho < 1.0:
            raise InputError(f"rho must lie strictly between -1 and 1, got {self.rho}.")

    @property
    def size(self) -> None:
        """Any length."""
        return None

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` by one recursive filter forwards and one backwards."""
        forward = _decay(v, self.rho)
        backward = _decay(v[..., ::-1], self.rho)[..., ::-1]
        return self.sigma**2 * (forward + backward - v)

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` stationary vectors of length ``n``."""
        innovation = rng.standard_normal(_shape(k, n, None))
        innovation[:, 1:] *= np.sqrt(1.0 - self.rho**2)
        return self.sigma * _decay(innovation, self.rho)

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {"model": "ar1", "rho": self.rho, "sigma": self.sigma}


class Diagonal:
    """Independent noise with a variance for each pixel.

    Parameters
    ----------
    variance : array of shape (n,), (H, W) or (C, H, W)
        Variances, not standard deviations; non-negative, not all zero.
    """

    def __init__(self, variance: ArrayLike) -> None:
        values = np.array(_as_float_array(variance, "variance"))
        self._shape = values.shape
        flat = values.ravel()
        if not np.all(np.isfinite(flat)):
            raise InputError("variance must be finite, got NaN or infinite entries.")
        if np.any(flat < 0) or not np.any(flat > 0):
            raise InputError(
                "variance must be non-negative and not all zero, "
                f"got values from {flat.min(initial=0.0)} to {flat.max(initial=0.0)}."
            )
        flat.setflags(write=False)
        self.variance: FloatArray = flat

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) whose pixels these variances are not for."""
        own = (1, *self._shape) if len(self._shape) == 2 else self._shape
        if len(self._shape) > 1 and own != shape:
            raise InputError(
                f"the variances have shape {self._shape}, but the image is (C, H, W) = {shape}: give them as that is."
            )

    def __repr__(self) -> str:
        return f"Diagonal(<{self.size} variances>)"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return int(self.variance.size)

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``variance * v``."""
        return self.variance * v

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return np.sqrt(self.variance) * rng.standard_normal(_shape(k, n, self.size))

    def describe(self) -> dict[str, Any]:
        """Return name and size."""
        return {"model": "diagonal", "size": self.size}


class Dense:
    """Noise with a full covariance matrix, for small images.

    Parameters
    ----------
    covariance : array of shape (n, n)
        Symmetric positive semi-definite; checked here, in O(n^3).
    """

    def __init__(self, covariance: ArrayLike) -> None:
        matrix = np.array(_as_float_array(covariance, "covariance"))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise InputError(f"covariance must be a square (n, n) matrix, got shape {matrix.shape}.")
        if not np.all(np.isfinite(matrix)):
            raise InputError("covariance must be finite, got NaN or infinite entries.")
        asymmetry = np.abs(matrix - matrix.T).max()
        if asymmetry > SYMMETRY_TOLERANCE * np.abs(matrix).max():
            raise InputError(f"covariance must be symmetric, but it differs from its transpose by {asymmetry:.3g}.")
        matrix = matrix / 2 + matrix.T / 2
        matrix.setflags(write=False)
        self.covariance: FloatArray = matrix
        _ = self.factor  # refuses what is not positive semi-definite

    def __repr__(self) -> str:
        return f"Dense(<{self.size} x {self.size} covariance>)"

    @property
    def size(self) -> int:
        """Number of pixels."""
        return int(self.covariance.shape[0])

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``covariance @ v`` along the last axis."""
        return v @ self.covariance

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        return rng.standard_normal(_shape(k, n, self.size)) @ self.factor.T

    def describe(self) -> dict[str, Any]:
        """Return name and size."""
        return {"model": "dense", "size": self.size}

    @cached_property
    def factor(self) -> FloatArray:
        """Lower Cholesky factor of the covariance, lifted by the tolerance so that a singular one has it too."""
        largest = float(np.diag(self.covariance).max())
        lifted = self.covariance + DEFINITENESS_TOLERANCE * largest * np.eye(self.size)
        try:
            if largest <= 0:
                raise LinAlgError("no positive variance")
            return np.asarray(cholesky(lifted, lower=True, check_finite=False), dtype=np.float64)
        except LinAlgError:
            smallest = float(np.linalg.eigvalsh(self.covariance)[0])
            raise InputError(
                "covariance must be positive semi-definite with some variance, "
                f"but its smallest eigenvalue is {smallest:.3g} and its largest variance {largest:.3g}."
            ) from None


class PerChannel:
    """Noise of colour images: the same in space for every channel, different and correlated across channels.

    The covariance of pixel i in channel c and pixel j in channel d is channels_cd times the spatial model's
    covariance of i and j, so nothing larger than the spatial model is ever built.

    Parameters
    ----------
    channels : array of shape (C, C) or (C,)
        Covariance across channels, or their standard deviations where channels are independent.
    spatial
        Noise model of one channel's pixels; by default independent with standard deviation 1.
    """

    def __init__(self, channels: ArrayLike, spatial: NoiseLike = 1.0) -> None:
        values = _as_float_array(channels, "channels")
        if values.ndim == 1:
            values = np.diag([_standard_deviation(sigma) ** 2 for sigma in values.tolist()])
        self._mixing = Dense(values)
        self.spatial = as_noise(spatial)

    def check_image(self, shape: tuple[int, int, int]) -> None:
        """Refuse images (C, H, W) of another number of channels."""
        if shape[0] != self._mixing.size:
            raise InputError(
                f"the noise model is for images of {self._mixing.size} channel(s), but the image has {shape[0]}."
            )
        if isinstance(self.spatial, ChecksImages):
            self.spatial.check_image((1, *shape[1:]))

    def __repr__(self) -> str:
        return f"PerChannel({self._mixing.covariance.tolist()}, {self.spatial!r})"

    @property
    def size(self) -> int | None:
        """Pixels of all channels, or None where the spatial model fits any image."""
        return None if self.spatial.size is None else self._mixing.size * self.spatial.size

    def apply(self, v: FloatArray) -> FloatArray:
        """Return ``Sigma v`` along the last axis."""
        planes = self._planes(v.shape[-1])
        filtered = self.spatial.apply(v.reshape(*v.shape[:-1], *planes))
        return np.asarray(np.einsum("cd,...dn->...cn", self._mixing.covariance, filtered).reshape(v.shape))

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> FloatArray:
        """Draw ``k`` vectors."""
        draws, length = _shape(k, n, self.size)
        channels, pixels = self._planes(length)
        planes = self.spatial.sample(rng, draws * channels, pixels).reshape(draws, channels, pixels)
        return np.asarray(np.einsum("cd,kdn->kcn", self._mixing.factor, planes).reshape(draws, length))

    def describe(self) -> dict[str, Any]:
        """Return name and parameters."""
        return {
            "model": "per channel",
            "channels": self._mixing.covariance.tolist(),
            "spatial": dict(self.spatial.describe()),
        }

    def _planes(self, length: int) -> tuple[int, int]:
        channels = self._mixing.size
        if length % channels:
            raise InputError(
                f"this noise model is for images of {channels} channels, but {length} values are no multiple of that."
            )
        return channels, length // channels


def _standard_deviation(sigma: float) -> float:
    number = real_number(sigma, "sigma (a standard deviation)")
    if not SMALLEST_SIGMA <= number <= LARGEST_SIGMA:
        raise InputError(
            f"sigma (a standard deviation) must be positive and finite, from {SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g} "
            f"so that its square is too, got {number}."
        )
    return number


def _as_float_array(values: ArrayLike, name: str) -> FloatArray:
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numbers ({str(error).rstrip('.')}).") from None
    if array.dtype.kind not in "fiu" or np.ma.is_masked(values):
        raise InputError(f"{name} must be an array of real numbers without a mask, got {array.dtype}.")
    return array.astype(np.float64)


def _shape(count: int, asked: int | None, own: int | None) -> tuple[int, int]:
    """Return the shape of a sample: how many, and of how many pixels."""
    if asked is None and own is None:
        raise InputError("this noise model fits any image: say how many pixels to draw, sample(rng, k, n).")
    if asked is not None and own is not None and asked != own:
        raise InputError(f"this noise model is for {own} pixels, but {asked} were asked for.")
    length = whole_number(asked if own is None else own, "the number of pixels", 1, MOST_DRAWN)
    return whole_number(count, "the number of draws", 0, MOST_DRAWN), length


def _decay(v: FloatArray, rho: float) -> FloatArray:
    """Return y with y_i = v_i + rho y_{i-1} along the last axis."""
    from scipy.signal import lfilter  # here because scipy.signal is slow to import and only AR1 needs it

    return np.asarray(lfilter([1.0], [1.0, -rho], v, axis=-1), dtype=np.float64)
