"""Images to test, with their references and noise models, each converted and estimated once; randomised selection."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.contrast import Contrast, check_pair
from attentest.definition import Definition
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, add_values, as_sample, check_image, stacked
from attentest.noise import ImageNoise, NoiseModel
from attentest.noise.model import complete
from attentest.pipeline.geometry import Geometries, Geometry, contrast_of, noise_of
from attentest.runs.engine import FailedImage, OnError, reason_of

ARRAYS_PER_IMAGE = 8
"""Arrays of the size of an image that its test holds at a time, at most: one image more in a batch takes 5 to 6, with
randomised selection or references."""

LARGEST_PIXEL = 1e-5 / sys.float_info.epsilon
"""Largest pixel, in standard deviations of its noise: the model computes with pixels rounded to float64, which changes
this one by 1e-5 standard deviations. Below it the error bar says what rounding does to p: on null images of the bundled
model it was up to 0.3 wide where rounding changes pixels by 2e-7, and up to 1 from 7e-7 on."""

ENDED = object()
"""Sentinel: one of the two iterables ended first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Input:
    """An image to test.

    Parameters
    ----------
    image
        The image.
    geometry
        How it reaches the model.
    noise
        Its noise model.
    reference, reference_noise
        Its reference image and the noise model of that, where the contrast has one; no noise if it is exact.
    selection_noise
        Noise model that randomised selection draws from, where it is not that of the image: another one is then
        considered for an image whose region was chosen already.
    """

    image: Sample
    geometry: Geometry
    noise: NoiseModel
    reference: Sample | None = None
    reference_noise: NoiseModel | None = None
    selection_noise: NoiseModel | None = None

    @property
    def noisy_reference(self) -> str | None:
        """Digest of the reference image, None without one or if it is exact: images that share it are dependent."""
        if self.reference is None or self.reference_noise is None:
            return None
        found = hashlib.blake2b(digest_size=16)
        add_values(found, self.reference.pixels)
        return found.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Makes inputs of images; images that do not fit the test are refused.

    Parameters
    ----------
    definition
        The test.
    geometries
        How images reach the model.
    """

    definition: Definition
    geometries: Geometries

    @property
    def noise(self) -> NoiseModel | ImageNoise:
        """Noise model, or an estimator that makes one from each image."""
        return noise_of(self.definition)

    @property
    def contrast(self) -> Contrast:
        """Contrast, with a reference or without."""
        return contrast_of(self.definition)

    @cached_property
    def _deviations(self) -> dict[tuple[int, int], float]:
        """Standard deviations of pixels by the noise model, if it is one for all images, as far as they are known.

        The key is the place of a pixel and the number of them in an image.
        """
        return {}

    @cached_property
    def _estimates_noise(self) -> bool:
        """Whether the noise is estimated from each image; to find that out takes longer than a small image."""
        return isinstance(self.noise, ImageNoise)

    def one(self, image: ImageLike, reference: ImageLike | None = None) -> Input:
        """Return one image as an input, with its reference."""
        sample = as_sample(image)
        geometry = self.geometries.of((sample.shape, sample.levels))
        noise: Any = self.noise
        if self._estimates_noise:
            noise = noise.for_image(sample.pixels)
        self._check_rounding(sample, noise)
        wanted = self.contrast.reference
        given = self._given_reference(reference)
        if wanted is None or given is None:
            return Input(image=sample, geometry=geometry, noise=noise)
        own: Sample = _about_the_reference(as_sample, given)
        check_pair(sample.shape, own.shape)
        return Input(
            image=sample,
            geometry=geometry,
            noise=noise,
            reference=own,
            reference_noise=None if wanted.exact else self._reference_noise(own),
        )

    def like(self, tested: Input, pixels: NDArray[np.float64]) -> Input:
        """Return other pixels (C, H, W) as an input of the same kind, without a reference."""
        noise = self.noise.for_image(pixels) if isinstance(self.noise, ImageNoise) else self.noise
        return replace(tested, image=replace(tested.image, pixels=pixels), noise=noise)

    def check(self, image: ImageLike, reference: ImageLike | None = None) -> None:
        """Refuse an image that the test cannot take, without converting it."""
        layout = check_image(image)
        self.geometries.of(layout)
        given = self._given_reference(reference)
        if given is not None:
            check_pair(layout[0], _about_the_reference(check_image, given)[0])

    def each(
        self, images: Iterable[ImageLike], references: Iterable[ImageLike] | None, on_error: OnError = "raise"
    ) -> Iterator[Input | FailedImage]:
        """Yield the inputs of images; an error says which image it is about, or takes its place."""
        for number, (image, reference) in enumerate(paired(images, references)):
            if on_error == "raise":
                yield _numbered(number, self.one, image, reference)
                continue
            try:
                yield self.one(image, reference)
            except Exception as error:  # noqa: BLE001  # whatever the error is, the other images go on
                yield FailedImage(number=number, reason=reason_of(error))

    def check_each(self, images: Iterable[ImageLike], references: Iterable[ImageLike] | None) -> None:
        """Refuse images of which the test cannot take one; an error says which."""
        for number, (image, reference) in enumerate(paired(images, references)):
            _numbered(number, self.check, image, reference)

    def _check_rounding(self, image: Sample, noise: NoiseModel) -> None:
        """Refuse an image whose pixels are so large that float64 does not resolve their noise."""
        pixels = image.pixels.reshape(-1)
        where = max(int(pixels.argmax()), int(pixels.argmin()), key=lambda place: abs(pixels[place]))
        sigma = self._deviation(noise, where, pixels.size)
        if sigma > 0 and abs(float(pixels[where])) > LARGEST_PIXEL * sigma:
            raise InputError(
                f"an image has a pixel of {pixels[where]:.4g}, whose noise has the standard deviation {sigma:.4g}, and "
                f"float64 does not resolve it: pixels may be at most {LARGEST_PIXEL:.2g} standard deviations from 0, "
                "so subtract a constant from the image, such as its mean, or check the noise."
            )

    def _deviation(self, noise: NoiseModel, place: int, n: int) -> float:
        """Return the standard deviation of one of the n pixels of an image."""
        known = {} if self._estimates_noise else self._deviations
        if (place, n) not in known:
            variance = float(complete(noise).covariances(np.array([place]), n)[0, 0])
            known[place, n] = math.sqrt(max(variance, 0.0))
        return known[place, n]

    def _given_reference(self, reference: ImageLike | None) -> ImageLike | None:
        """Return the reference image to use; None if the contrast needs none."""
        wanted = self.contrast.reference
        if wanted is None:
            if reference is not None:
                raise InputError("a reference image was given, but the contrast has none: use contrast=Reference().")
            return None
        given = wanted.sample if reference is None else reference
        if given is None:
            raise InputError(
                "the contrast compares with a reference image, and there is none: give Reference(image) one for all "
                "images, or each image its own with reference= (references= in map)."
            )
        return given

    def _reference_noise(self, reference: Sample) -> NoiseModel:
        wanted = self.contrast.reference
        if wanted is not None and wanted.noise is not None:
            return wanted.noise
        if isinstance(self.noise, ImageNoise):
            model: NoiseModel = _about_the_reference(self.noise.for_image, reference.pixels)
            return model
        return self.noise


def batches(inputs: Iterable[Input | FailedImage], most: int, memory: int) -> Iterator[list[Input | FailedImage]]:
    """Yield inputs of one geometry together, at most ``most`` and no more than fit in ``memory`` bytes.

    Failed images are in their places.
    """
    batch: list[Input | FailedImage] = []
    geometry = None
    for each in inputs:
        if isinstance(each, Input):
            if batch and geometry is not None and each.geometry is not geometry:
                yield batch
                batch = []
            geometry = each.geometry
        batch.append(each)
        pixels = each.image.pixels.size if isinstance(each, Input) else 0
        one_more = ARRAYS_PER_IMAGE * 8 * pixels * (len(batch) + 1)
        del each  # a batch that was tested must not live on while the next is read
        if len(batch) == most or one_more > memory:
            yield batch
            batch = []
    if batch:
        yield batch


def paired(images: Iterable[ImageLike], references: Iterable[ImageLike] | None) -> Iterator[tuple[Any, Any]]:
    """Yield images with their references; refuse iterables of different lengths."""
    if references is None:
        yield from ((image, None) for image in images)
        return
    for number, (image, reference) in enumerate(zip_longest(images, references, fillvalue=ENDED)):
        if image is ENDED or reference is ENDED:
            more = "references" if image is ENDED else "images"
            raise InputError(f"there must be as many references as images, but only {more} go on after {number}.")
        yield image, reference


def _numbered(number: int, function: Any, image: Any, reference: Any) -> Any:
    try:
        return function(image, reference)
    except InputError as error:
        raise InputError(f"image {number}: {error}", *error.parameters) from None


def _about_the_reference(function: Any, value: Any) -> Any:
    try:
        return function(value)
    except InputError as error:
        raise InputError(f"the reference: {error}", *error.parameters) from None


KEY = b"attentest randomised selection 1"
"""Changes with every change of how the noise is drawn."""


@dataclass(frozen=True, kw_only=True)
class Randomisation:
    """How the image is randomised before the model chooses the region.

    Parameters
    ----------
    gamma
        Standard deviation of the added noise in units of that of the image's own noise.
    seed
        By default the added noise is a function of the image, so that it cannot be drawn again until p is small. A seed
        gives other noise, and is recorded.
    """

    gamma: float
    seed: int | None = None

    def added(self, inputs: Sequence[Input]) -> NDArray[np.float64]:
        """Return the noise (k, C, H, W) that is added to images: gamma times noise as each of them has."""
        return stacked([self.gamma * self._drawn(each) for each in inputs])

    def _drawn(self, given: Input) -> NDArray[np.float64]:
        pixels = given.image.pixels
        found = hashlib.blake2b(key=KEY, digest_size=32)
        add_values(found, pixels)
        found.update(b"" if self.seed is None else self.seed.to_bytes(8, "little"))
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(found.digest(), "little")))
        return (given.selection_noise or given.noise).sample(rng, 1, pixels.size).reshape(pixels.shape)


def randomisation_of(definition: Definition) -> Randomisation | None:
    """Return how the images of a test are randomised before the model sees them; None if they are not."""
    if definition.randomise == 0:
        return None
    return Randomisation(gamma=definition.randomise, seed=definition.randomise_seed)
