"""Images to test, with their references, checked and put together in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from attentest.contrast import Contrast, check_pair
from attentest.errors import InputError
from attentest.images.sample import ImageLike, Sample, as_sample
from attentest.noise import ImageNoise, NoiseModel
from attentest.pipeline.image_geometry import Frame, Frames

ARRAYS_AN_IMAGE = 12
"""Arrays of the size of an image that its test holds at a time."""


NO_MORE = object()
"""Stands for the images, or the references, that there are not."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """An image to test, with its reference where the contrast has one."""

    image: Sample
    reference: Sample | None = None


def _reference_sample(reference: ImageLike) -> Sample:
    try:
        return as_sample(reference)
    except InputError as error:
        raise InputError(f"the reference: {error}") from None


class Cases:
    """Makes cases of images as they come; what does not fit is refused.

    Parameters
    ----------
    frames
        How images reach the model.
    contrast
        What is compared, with a reference or without.
    noise
        Noise model, or what makes one out of each image.
    """

    def __init__(self, frames: Frames, contrast: Contrast, noise: NoiseModel | ImageNoise) -> None:
        self._frames, self._contrast, self._noise = frames, contrast, noise

    def one(self, image: ImageLike, reference: ImageLike | None = None) -> Case:
        """Return an image that can be tested, with its reference."""
        sample = as_sample(image)
        self._frames.of(sample)
        if isinstance(self._noise, ImageNoise):
            self._noise.for_image(sample.pixels.numpy())  # refuses an image that has no noise to find
        wanted = self._contrast.reference
        if wanted is None and reference is not None:
            raise InputError("a reference image was given, but the contrast has none: use contrast=Reference().")
        if wanted is None:
            return Case(image=sample)
        own = wanted.sample if reference is None else _reference_sample(reference)
        if own is None:
            raise InputError(
                "the contrast compares with a reference image, and there is none: give Reference(image) one for all "
                "images, or each image its own with reference= (references= in map)."
            )
        check_pair(sample.shape, own)
        if isinstance(self._noise, ImageNoise) and wanted.noise is None and not wanted.exact:
            try:
                self._noise.for_image(own.pixels.numpy())
            except InputError as error:
                raise InputError(f"the reference: {error}") from None
        return Case(image=sample, reference=own)

    def each(self, images: Iterable[ImageLike], references: Iterable[ImageLike] | None) -> Iterator[Case]:
        """Yield the cases of images; an error says which one it is about."""
        pairs: Iterable[Any] = ((image, None) for image in images)
        if references is not None:
            pairs = zip_longest(images, references, fillvalue=NO_MORE)
        for index, (image, reference) in enumerate(pairs):
            if image is NO_MORE or reference is NO_MORE:
                more = "references" if image is NO_MORE else "images"
                raise InputError(f"there must be as many references as images, but only {more} go on after {index}.")
            try:
                yield self.one(image, reference)
            except InputError as error:
                raise InputError(f"image {index}: {error}") from None

    def frame(self, case: Case) -> Frame:
        """Return how the image of a case reaches the model."""
        return self._frames.of(case.image)

    def batches(self, cases: Iterable[Case], together: int, memory: int) -> Iterator[list[Case]]:
        """Yield images of one frame together, at most so many, and no more than memory, in bytes, holds."""
        batch: list[Case] = []
        for case in cases:
            if batch and self.frame(case) is not self.frame(batch[0]):
                yield batch
                batch = []
            batch.append(case)
            one_more = ARRAYS_AN_IMAGE * 8 * case.image.pixels.numel() * (len(batch) + 1)
            if len(batch) == together or one_more > memory:
                yield batch
                batch = []
        if batch:
            yield batch
