"""Noise of each tested image: estimated from the image itself, by its own gain, or that of counts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from attentest.checks import float_array
from attentest.errors import InputError
from attentest.markup import definition_table
from attentest.noise.correlated import Isotropic
from attentest.noise.derived import (
    FROM_IMAGE,
    Estimated,
    NoiseLike,
    PerChannel,
    Scaled,
    as_noise,
    estimation_words,
)
from attentest.noise.estimators import NoiseEstimator
from attentest.noise.model import (
    AXIS_LETTERS,
    LARGEST_SIGMA,
    SMALLEST_SIGMA,
    BaseNoise,
    FloatArray,
    ImageNoise,
    NoiseModel,
    complete,
    named_shape,
)
from attentest.noise.reference_images import dimension_of, gain_against
from attentest.registry import IMAGE_NOISE

if TYPE_CHECKING:
    from attentest.images.sample import ImageLike


LARGEST_RATIO = 1 / 3  # details of a surround are at most this share of those of the object

LEAST_BLOCKS = 16
"""Least number of blocks in the surround and in the object: the median of 16 details has a relative error of 29%, so
that two parts with the same noise hardly ever differ by a factor of three."""

WINDOW = 3
"""Side of the square whose median decides whether a pixel is dark: by its own value, dark pixels of pure noise would
have less noise than others, because they all lie on one side of the threshold."""

HISTOGRAM_BINS = 256


def object_blocks(plane: FloatArray, details: FloatArray) -> NDArray[np.bool_]:
    """Return which blocks of two pixels along each axis have the noise of the object: all without a dark surround.

    A surround is a dark area at the border of a channel (*axes) with far smaller details than the rest has. The details
    are the absolute coefficients of the blocks; a last row or column that is in no block is left out.
    """
    dark = block_corners(_dark_area(plane), plane.ndim)
    surround: NDArray[np.bool_] = np.all(dark, axis=0)
    rest: NDArray[np.bool_] = ~np.any(dark, axis=0)
    everything = np.ones(details.shape, dtype=bool)
    if surround.sum() < LEAST_BLOCKS or not rest.any():
        return everything
    if np.median(details[surround]) > LARGEST_RATIO * np.median(details[rest]) or not details[rest].any():
        return everything
    if rest.sum() >= LEAST_BLOCKS:
        return rest
    if surround.sum() < details.size / 2:
        return everything
    raise InputError(
        f"the image is a dark surround but for {rest.sum()} blocks of {2**plane.ndim} pixels, and at least "
        f"{LEAST_BLOCKS} are needed to estimate the noise of what is in it: give the noise as a standard deviation, or "
        "estimate it from reference images."
    )


def _dark_area(plane: FloatArray) -> NDArray[np.bool_]:
    """Return the pixels (*axes) that are connected with the border through pixels up to Otsu's threshold."""
    from scipy.ndimage import label, median_filter  # here because scipy.ndimage is slow to import

    scale = np.abs(plane).max()  # so that squares of large values do not overflow
    smooth = median_filter(plane / scale if scale > 0 else plane, WINDOW)
    # The threshold divides pixels into two classes with the least variance within them (Otsu 1979).
    counts, edges = np.histogram(smooth, HISTOGRAM_BINS)
    sums, below = np.cumsum(counts * (edges[1:] + edges[:-1]) / 2), np.cumsum(counts)
    # The variance between the classes below and above each edge, times the square of the number of pixels.
    between = (sums[-1] * below - sums * plane.size) ** 2 / np.maximum(below * (plane.size - below), 1.0)
    labels, _ = label(smooth <= edges[1 + np.argmax(between)])
    border = np.concatenate([labels.take([0, -1], axis).ravel() for axis in range(labels.ndim)])
    return np.isin(labels, np.unique(border[border > 0]))


MEDIAN_OF_NOISE = float(ndtri(0.75))  # median absolute value of standard normal noise

FEWEST_BLOCKS = 4
"""Fewest blocks of two pixels along each axis whose median detail is an estimate: those of 4 x 4 pixels."""


def block_corners(values: NDArray[Any], dimension: int) -> list[NDArray[Any]]:
    """Return the corners of blocks of two pixels along each of the last axes, an array for each, without copying."""
    ends = [side // 2 * 2 for side in values.shape[values.ndim - dimension :]]
    starts: list[tuple[int, ...]] = list(product((0, 1), repeat=dimension))
    places: list[Any] = [(..., *map(slice, start, ends, [2] * dimension)) for start in starts]
    return [values[place] for place in places]


def haar_details(corners: Sequence[FloatArray]) -> FloatArray:
    """Return the Haar coefficients of blocks that are differences along all axes, from their corners.

    Independent pixels of standard deviation 1 have details of standard deviation 1.
    """
    details = corners[0] - corners[1]
    for place, corner in enumerate(corners[2:], start=2):
        (np.subtract if place.bit_count() % 2 else np.add)(details, corner, out=details)
    details /= math.sqrt(len(corners))
    return details


class _PerImage(ABC):
    """Base class of the estimators of the noise of each tested image, with their name in records."""

    name: ClassVar[str]

    @abstractmethod
    def _origin(self) -> dict[str, Any]:
        """Return the record of how the noise of an image is estimated."""

    @abstractmethod
    def _words(self) -> str:
        """Return what the noise of an image is, in words."""

    def describe(self) -> dict[str, Any]:
        """Return the method and its sentence as JSON-ready values."""
        origin = self._origin()
        return {"model": self.name, **origin, "sentence": f"{self._words()}; {estimation_words(origin)}."}

    def _repr_html_(self) -> str:
        return definition_table(repr(self), {"noise": self.describe()["sentence"]})


@dataclass(frozen=True)
class FromImage(_PerImage):
    """Independent noise with its variance estimated from each tested image itself, as the noise of an AttentionTest.

    This is approximate: p-values take the noise to be known, and here it depends on the image.

    Parameters
    ----------
    method
        "sample" is the sample variance of the pixels, as in the paper's appendix on robustness; for colour images the
        covariance of the channels. It counts the signal as noise. "wavelet" is the median absolute Haar coefficient
        of differences along all axes, divided by that of standard noise, and for colour images the same of sums and
        differences of channels; smooth signals hardly change it. It leaves out a dark surround, as scans have it: an
        area at the border that is darker than the rest and has at most a third of its details.
    """

    name: ClassVar = "from image"

    method: str = "sample"

    def __post_init__(self) -> None:
        IMAGE_NOISE.load(self.method)  # raises an error for another name

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise model of an image (C, *axes)."""
        values = float_array(pixels, "the image")
        if values.ndim - 1 not in AXIS_LETTERS or values[0].size < 2:
            raise InputError(
                f"the image must be (C, T), (C, H, W) or (C, D, H, W) with at least 2 pixels, got shape {values.shape}."
            )
        if not np.all(np.isfinite(values)):
            raise InputError("the image must have finite pixel values, got NaN or infinite ones.")
        with np.errstate(over="ignore", invalid="ignore"):
            covariance = IMAGE_NOISE.load(self.method)(values)
            sigma = float(np.sqrt(np.diag(covariance).max()))
        if sigma == 0:
            raise InputError(
                f"the method {self.method!r} finds no noise in the image, because most or all of it is constant: "
                "give the noise as a standard deviation, or estimate it from reference images."
            )
        if not SMALLEST_SIGMA <= sigma <= LARGEST_SIGMA:
            raise InputError(
                f"the noise of the image has a standard deviation of {sigma:.3g}, but it must be from "
                f"{SMALLEST_SIGMA:g} to {LARGEST_SIGMA:g}: give the image in other units."
            )
        return Estimated(Isotropic(sigma) if len(values) == 1 else PerChannel(covariance), self._origin())

    def _origin(self) -> dict[str, Any]:
        return {"method": self.method, "approximate": True, "origin": FROM_IMAGE}

    def _words(self) -> str:
        return "Independent between pixels, with a standard deviation of its own for each image"


def from_image(image: ImageLike, method: str = "sample", dimension: int | None = None) -> NoiseModel:
    """Return independent noise with its variance estimated from an image that is to be tested: see FromImage.

    The ``dimension`` is its number of axes, by default as in :meth:`NoiseEstimator.fit`.
    """
    from attentest.images.sample import as_sample  # here because torch is slow to import and noise models do without

    return FromImage(method).for_image(as_sample(image, dimension or dimension_of(image)).pixels)


def sample_covariance(pixels: FloatArray) -> FloatArray:
    """Return the sample covariance (C, C) of the channels of an image (C, *axes)."""
    planes = pixels.reshape(len(pixels), -1)
    # Relative to the first pixel, so that a constant image has exactly zero variance.
    shifted = planes - planes[:, :1]
    residuals = shifted - shifted.mean(axis=1, keepdims=True)
    return np.asarray(residuals @ residuals.T / (planes.shape[1] - 1))


def wavelet_covariance(pixels: FloatArray) -> FloatArray:
    """Return the covariance (C, C) of the channels of an image (C, *axes) from Haar coefficients.

    Medians of absolute values take the place of standard deviations. Blocks of a dark surround are left out.
    """
    sides = pixels.shape[1:]
    if math.prod(side // 2 for side in sides) < FEWEST_BLOCKS:
        raise InputError(
            f"the method 'wavelet' needs at least {FEWEST_BLOCKS} blocks of {' x '.join('2' * len(sides))} pixels, but "
            f"the image has {' x '.join(map(str, sides))} pixels: use 'sample'."
        )
    details = haar_details(block_corners(pixels, len(sides)))
    if not np.all(np.isfinite(details)):
        return np.full((len(pixels), len(pixels)), np.inf)  # an error for being too large follows
    used = object_blocks(pixels.max(axis=0), np.abs(details).max(axis=0))
    return _robust_covariance(details[:, used])


def _robust_covariance(values: FloatArray) -> FloatArray:
    """Return the covariance (C, C) of normal values (C, m) of mean 0 from medians.

    A correlation compares the scales of the sum and of the difference of two channels (Gnanadesikan and Kettenring
    1972). Three or more correlations need not fit together; negative eigenvalues are then set to zero.
    """
    scales = _robust_scales(values)
    standard = values / np.where(scales > 0, scales, 1.0)[:, None]
    sums = _robust_scales(standard[:, None] + standard) ** 2
    differences = _robust_scales(standard[:, None] - standard) ** 2
    correlations = np.divide(sums - differences, sums + differences, out=np.zeros_like(sums), where=sums > 0)
    eigenvalues, vectors = np.linalg.eigh(correlations)
    fitting = (vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T
    deviations = np.sqrt(np.diag(fitting))
    factors = np.divide(scales, deviations, out=np.zeros_like(scales), where=deviations > 0)
    return np.asarray(fitting * np.outer(factors, factors))


def _robust_scales(values: FloatArray) -> FloatArray:
    """Return the standard deviations of normal values of mean 0 from the medians of their absolutes, last axis."""
    return np.asarray(np.median(np.abs(values), axis=-1) / MEDIAN_OF_NOISE)


@dataclass(frozen=True, eq=False)
class OwnGain(_PerImage):
    """Noise of each tested image: that of a fitted estimator, scaled by the gain of the image.

    The gain is that of the tested image against the mean of the reference images. This is approximate: p-values take
    the noise to be known, and here its scale depends on the image.

    Parameters
    ----------
    estimator
        A fitted estimator; one with ``gain="per-image"`` has estimated the noise of an image of gain 1.
    """

    name: ClassVar = "own gain"

    estimator: NoiseEstimator

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, NoiseEstimator):
            raise InputError(
                "the gain of a tested image is that against the mean of reference images: give a fitted estimator of "
                f"attentest.noise, got {type(self.estimator).__name__}."
            )
        as_noise(self.estimator)  # raises an error if it is not fitted

    def for_image(self, pixels: FloatArray) -> NoiseModel:
        """Return the noise model of an image (C, *axes)."""
        values, mean = float_array(pixels, "the image"), self.estimator.mean_
        if values.shape != mean.shape:
            raise InputError(
                f"the reference images are {named_shape(mean.shape)}, but the image is {values.shape}: give reference "
                "images of that shape."
            )
        gain = gain_against(values, mean)
        if not 0 < gain < np.inf:
            raise InputError(
                f"the image has a gain of {gain:.3g} against the mean of the reference images, but it must be "
                "positive: is it another scene?"
            )
        return Estimated(Scaled(self.estimator.noise_, gain), self._origin())

    def _origin(self) -> dict[str, Any]:
        return {
            **self.estimator.record(),
            "method": "its gain against the mean of the reference images",
            "approximate": True,
            "origin": "scaled by the gain of the tested image itself",
        }

    def _words(self) -> str:
        words = complete(self.estimator.noise_).words()
        return f"Scaled by the gain of each image, from this noise: {words[:1].lower()}{words[1:]}"

    def describe(self) -> dict[str, Any]:
        """Return the method, its sentence, and the noise model that is scaled."""
        return {**super().describe(), "of": complete(self.estimator.noise_).record()}


LARGEST_COUNT = 2.0**53  # beyond it float64 does not hold every whole number


@dataclass(frozen=True)
class Poisson(BaseNoise):
    """Pixels that count photons, decays or particles, as the noise of an AttentionTest: ``noise="poisson"``.

    Before the model sees an image, each count is divided at random: a share 1 / (1 + gamma^2) of it, on average, is
    what the model chooses the region on, and the rest is what is tested (gamma is the test's ``randomise``, by default
    1, a half). Parts of a Poisson count are independent of each other. So the test is exact, with no noise model and
    no search: of the counts put aside, the number in the region is binomial if the mean rates are equal, whatever the
    rates of single pixels are. The image must be the counts themselves, neither scaled nor corrected.

    Parameters
    ----------
    rate
        Mean count of an image: one with far smaller differences between neighbours can hardly be counts, and is said
        not to have the noise. 0 where it is not known.
    """

    name: ClassVar = "poisson"
    parameters: ClassVar[Mapping[str, type]] = {}

    rate: float = field(default=0.0, repr=False)

    def for_image(self, pixels: FloatArray) -> Poisson:
        """Return the noise of an image (C, *axes); raise an error if its pixels are no counts."""
        counts = np.asarray(pixels, dtype=np.float64)
        wrong = ~(np.isfinite(counts) & (counts >= 0) & (counts <= LARGEST_COUNT) & (counts == np.floor(counts)))
        if wrong.any():
            raise InputError(
                f"noise='poisson' is for images of counts, whole numbers from 0 to 2^53, but a pixel is "
                f"{counts[wrong][0]:.6g}: give the counts before they are scaled or corrected, or another noise.",
                "noise",
            )
        return Poisson(rate=float(counts.mean()))

    def thinned(self, rng: np.random.Generator, counts: FloatArray, gamma: float) -> FloatArray:
        """Return what the model sees of counts, in their own scale: a random part of each, divided by its share."""
        return np.asarray(rng.binomial(counts.astype(np.int64), seen_share(gamma)) / seen_share(gamma))

    def apply(self, v: FloatArray) -> NoReturn:
        """Raise an error: there is no covariance."""
        raise InputError(
            "noise='poisson' has no covariance: counts can be tested, but certificates, margins, permutation tests, "
            "sensitivity, calibration and power need Gaussian noise.",
            "noise",
        )

    def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> NoReturn:
        """Raise an error: the noise depends on the rates."""
        self.apply(np.empty(0))

    def covariances(self, places: NDArray[np.int64], n: int) -> FloatArray:
        """Return the variances of pixels of the mean rate."""
        return self.rate * np.eye(len(places))

    def words(self) -> str:
        """Return the noise in words."""
        return "Poisson counts, of any mean in each pixel"

    def origin_words(self) -> str:
        """Return what the test makes of it."""
        return "the test of counts that the model did not see is exact, without a noise model"


def seen_share(gamma: float) -> float:
    """Return the share of each count that the model sees: the one whose noise is sqrt(1 + gamma^2) times as large."""
    return 1 / (1 + gamma**2)


def as_test_noise(noise: NoiseLike | ImageNoise | str) -> NoiseModel | ImageNoise:
    """Return what a test takes as its noise: a noise model, or an estimator of the noise from each image as it is."""
    if isinstance(noise, ImageNoise) and not isinstance(noise, (type, NoiseModel)):
        return noise
    if isinstance(noise, str) and noise == Poisson.name:
        return Poisson()
    return as_noise(noise)  # type: ignore[arg-type]  # raises an error for a class
