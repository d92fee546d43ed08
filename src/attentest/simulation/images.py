"""Simulated images: noise, with or without a bright square, and noise that is almost Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.integrate import cumulative_simpson
from scipy.optimize import brentq

from attentest.checks import as_generator, whole_number
from attentest.contrast.contrast import channel_weights, per_pixel
from attentest.errors import InputError, worded
from attentest.images.sample import ImageLike, Sample, as_sample, as_shape
from attentest.noise import ImageNoise, Isotropic, NoiseLike, NoiseModel, Poisson, as_noise
from attentest.noise.model import check_shape, complete
from attentest.pipeline.attention_test import AttentionTest
from attentest.results.result import AttentionTestResult

UNIT_NOISE = Isotropic(1.0)  # the noise of the paper's images


def null_images(
    rng: np.random.Generator, count: int, size: int, noise: NoiseLike = UNIT_NOISE, axes: int = 2
) -> NDArray[np.float64]:
    """Draw images (count, size, size) of zero mean; with 1 or 3 axes, signals or volumes of as many sides.

    The noise is a model, or the standard deviation of independent noise.
    """
    if count < 1 or size < 1:
        raise InputError(f"count and size must be at least 1, got count={count} and size={size}.")
    return as_noise(noise).sample(rng, count, size**axes).reshape(count, *[size] * axes)


def signal_images(
    rng: np.random.Generator,
    count: int,
    size: int,
    delta: float | tuple[float, float],
    noise: NoiseLike = UNIT_NOISE,
    axes: int = 2,
    share: int = 3,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Draw images whose mean is ``delta`` on a square of side ``size // share`` placed at random.

    A pair of deltas (low, high) is a range from which one is drawn for each image; the other parameters are those of
    :func:`null_images`. Returned are the images (count, size, size), and a mask of the pixels of each that have the
    signal.
    """
    if size < share:
        raise InputError(f"a signal image needs size >= {share}, got {size}.")
    side = size // share
    low, high = delta if isinstance(delta, tuple) else (delta, delta)
    strength = rng.uniform(low, high, count)
    corner = rng.integers(0, size - side + 1, (count, axes))
    squares = np.ones((count, *[size] * axes), dtype=bool)
    for axis, places in enumerate(np.indices(squares.shape[1:])):
        offset = places - corner[:, axis].reshape(-1, *[1] * axes)
        squares &= (offset >= 0) & (offset < side)
    images = null_images(rng, count, size, noise, axes) + strength.reshape(-1, *[1] * axes) * squares
    return images, squares


IMAGE, REFERENCE, SQUARE = 0, 1, 2
"""What is drawn for an image, as the last of the numbers that seed it: itself, its reference, the place of a square."""

EXAMINED_PIXELS = 64
"""Pixels whose variances are averaged, spread evenly over the image: the variance of one takes a product with Sigma."""


class SimulatedImages:
    """Images for a test by number: a background, a square where a height is given, and noise.

    An image depends on the seed and its number alone, so it is the same however many images there are and in whatever
    order they are drawn. Images of one number have the same background, place of the square and noise, whatever the
    height of the square. Images are made after a check that the test can take them.

    Image i has the mean i modulo their number, None for zeros, of the given shape or that of the model's input. The
    side of the square, in a signal an interval and in a volume a cube, is by default a third of the shortest side of
    the image, as in the paper. The other parameters are those of :func:`calibrate` and :func:`plan`.
    """

    def __init__(
        self,
        test: AttentionTest,
        rng: np.random.Generator | int,
        *,
        means: Sequence[ImageLike | None],
        image_shape: Any,
        true_noise: NoiseLike | None,
        side: int | None = None,
    ) -> None:
        if not isinstance(test, AttentionTest):
            raise InputError(f"test must be an AttentionTest, got {type(test).__name__}.")
        self.backgrounds = tuple(_background(test, mean, image_shape) for mean in means)
        """The means."""
        self.dimension = len(test.image_shape) - 1
        """Number of axes of the images."""
        if side is not None:
            sizes = [background.shape[1:] for background in self.backgrounds]
            name = worded("side (of the raised part, in pixels)", self.dimension)
            side = whole_number(side, name, 1, min(map(min, sizes)))
            if any(set(size) == {side} for size in sizes):
                said = f"side = {side} raises all of the image, so that there is nothing to compare it with: give less."
                raise InputError(worded(said, self.dimension), "side")
        self._side = side
        noise = test.noise if true_noise is None else true_noise
        if isinstance(test.noise, Poisson):
            test.noise.apply(np.empty(0))  # raises an error
        if isinstance(noise, ImageNoise):
            raise InputError(
                "the test makes its noise out of each image, so images cannot be drawn from it: say with true_noise= "
                "what they are drawn from, such as true_noise=1.0."
            )
        self.noise = as_noise(noise)
        """Noise model of the images."""
        try:
            for background in self.backgrounds:
                check_shape(self.noise, background.shape)
        except InputError as error:
            which = "" if true_noise is None else "the noise that images are drawn from: "
            raise InputError(f"{which}{error}", *error.parameters) from None
        self.seed: tuple[int, ...] = tuple(as_generator(rng).integers(2**63, size=2).tolist())
        """Whole numbers from which everything is drawn."""
        self._contrast = test.contrast
        for number in range(len(self.backgrounds)):
            references = self.references([number])
            try:
                test.validate(self.image(number), reference=None if references is None else next(references))
            except InputError as error:
                where = worded(f"image {number}: ", self.dimension) if len(self.backgrounds) > 1 else ""
                raise InputError(f"{where}{error}", *error.parameters) from None

    def image(self, number: int, height: float = 0.0) -> Sample:
        """Return an image whose square has a height, in the units of the pixels."""
        return self._drawn(self.mean(number, height), self.noise, number, IMAGE)

    def reference(self, number: int) -> Sample:
        """Return the reference of an image: its background with noise of its own, if references have noise."""
        reference = self._contrast.reference
        if reference is None or reference.exact:
            return self.background(number)
        noise = self.noise if reference.noise is None else reference.noise
        return self._drawn(self.background(number).pixels, noise, number, REFERENCE)

    def references(self, numbers: Iterable[int]) -> Iterator[Sample] | None:
        """Return the references of images; None if the test compares images with none."""
        return None if self._contrast.reference is None else map(self.reference, numbers)

    def mean(self, number: int, height: float = 0.0) -> NDArray[np.float64]:
        """Return the mean (C, *axes) of an image."""
        background = self.background(number).pixels
        return background + height * self.square(number) if height else background

    def background(self, number: int) -> Sample:
        """Return the background of an image."""
        return self.backgrounds[number % len(self.backgrounds)]

    def side_of(self, number: int) -> int:
        """Return the side of the square of an image in pixels."""
        return max(1, min(self.background(number).shape[1:]) // 3) if self._side is None else self._side

    def square(self, number: int) -> NDArray[np.bool_]:
        """Return the pixels (*axes) of the square of an image."""
        size, side = self.background(number).shape[1:], self.side_of(number)
        corner = self._rng(number, SQUARE).integers(0, np.array(size) - side + 1)
        mask = np.zeros(size, dtype=bool)
        mask[tuple(slice(start, start + side) for start in corner)] = True
        return mask

    def contrast_terms(self, result: AttentionTestResult, number: int, height: float = 0.0) -> NDArray[np.float64]:
        """Return terms (2, C, *axes), those of an image and of its reference, whose sum is the true value eta' mu."""
        seen = result.part & result.seen, result.region, result.seen  # of which a mask may leave a part
        background = self.background(number).pixels
        channels = channel_weights(result.settings["channels"], len(background))
        return np.stack(
            [
                per_pixel(weights[None], channels, mean.shape).reshape(mean.shape) * mean
                for weights, mean in (
                    (self._contrast.weights(*seen), self.mean(number, height)),
                    (self._contrast.reference_weights(*seen), background),
                )
            ]
        )

    def _drawn(self, mean: NDArray[np.float64], noise: NoiseModel, number: int, stream: int) -> Sample:
        """Return a mean (C, *axes) with noise, and with black and white of the background.

        Each image is drawn by itself, so that it does not depend on others even in the last digit of a matrix product.
        """
        drawn = noise.sample(self._rng(number, stream), 1, mean.size)
        return Sample(pixels=mean + drawn.reshape(mean.shape), levels=self.background(number).levels)

    def _rng(self, number: int, stream: int) -> np.random.Generator:
        return np.random.default_rng((*self.seed, number, stream))


def _background(test: AttentionTest, mean: ImageLike | None, image_shape: Any) -> Sample:
    """Return the mean of images to draw; by default zero, of a shape that is given or that the model takes."""
    dimension = len(test.image_shape) - 1
    if mean is not None:
        sample = as_sample(mean, dimension)
        if image_shape is not None and as_shape(image_shape, dimension) != sample.shape:
            raise InputError(
                f"the mean image has (C, H, W) = {sample.shape}, but image_shape says {image_shape}.", "image_shape"
            )
        return sample
    if image_shape is not None:
        return Sample(pixels=np.zeros(as_shape(image_shape, dimension)), levels=None)
    changes = test.preprocessing
    if changes is not None and not changes.assumed and (changes.resize is not None or changes.crop is not None):
        raise InputError(
            "the test's preprocessing takes images of any size: say which to draw with image_shape, as (H, W) or "
            "in colour as (C, H, W).",
            "image_shape",
        )
    channels, *sides = test.image_shape
    one_channel = isinstance(test.noise, NoiseModel) and test.noise.size == math.prod(sides)
    return Sample(pixels=np.zeros((1 if one_channel else channels, *sides)), levels=None)


def noise_deviation(noise: NoiseModel, size: int) -> float:
    """Return the standard deviation of a pixel of images of a size, from the mean variance of some of the pixels."""
    pixels = np.unique(np.linspace(0, size - 1, min(size, EXAMINED_PIXELS)).round().astype(np.int64))
    return float(np.sqrt(np.diag(complete(noise).covariances(pixels, size)).mean()))


POINTS = np.sinh(np.linspace(-6.0, 6.0, 8001))
"""Points at which two distributions of variance one are compared: dense in the middle, and as far out as 200."""

SHAPE_TOLERANCE = 1e-10  # relative tolerance of the shape parameter


class Family(NamedTuple):
    """A SciPy distribution, and the shape parameters between which its distance from N(0, 1) grows from near zero."""

    distribution: Callable[..., Any]
    gaussian_end: float
    far_end: float


FAMILIES: Mapping[str, Family] = {
    "skewnorm": Family(stats.skewnorm, 1e-3, 1e3),
    "exponnorm": Family(stats.exponnorm, 1e-2, 20.0),
    "gennormsteep": Family(stats.gennorm, 2.0 - 1e-6, 0.5),
    "gennormflat": Family(stats.gennorm, 2.0 + 1e-6, 100.0),
    "t": Family(stats.t, 1e5, 2.1),
}


def standardised(family: str, shape: float) -> Any:
    """Return the distribution of a family with mean zero, variance one and a shape parameter as SciPy defines it."""
    distribution = FAMILIES[family].distribution
    mean, variance = distribution(shape).stats(moments="mv")
    deviation = np.sqrt(variance)
    return distribution(shape, loc=-mean / deviation, scale=1 / deviation)


def distance_from_normal(distribution: Any) -> float:
    """Return the 1-Wasserstein distance from N(0, 1): the area between the two distribution functions."""
    # All densities have a closed form; the distribution functions are their integrals.
    gap = cumulative_simpson(distribution.pdf(POINTS) - stats.norm.pdf(POINTS), x=POINTS, initial=0.0)
    return float(np.trapezoid(np.abs(gap), POINTS))


@cache
def nearly_gaussian(family: str, distance: float) -> Any:
    """Return the member of a family at a 1-Wasserstein distance from N(0, 1), as a frozen distribution of SciPy."""
    if family not in FAMILIES:
        raise InputError(f"the family must be one of {', '.join(FAMILIES)}, got {family!r}.")
    ends = np.log(FAMILIES[family].gaussian_end), np.log(FAMILIES[family].far_end)

    def distance_at(log_shape: float) -> float:
        return distance_from_normal(standardised(family, float(np.exp(log_shape))))

    low, high = map(distance_at, ends)
    if not low < distance < high:
        raise InputError(f"the distance of {family} must lie between {low:.2g} and {high:.2g}, got {distance}.")
    log_shape = brentq(lambda at: distance_at(at) - distance, *ends, xtol=SHAPE_TOLERANCE)
    return standardised(family, float(np.exp(log_shape)))
