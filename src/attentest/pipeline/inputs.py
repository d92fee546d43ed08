"""Images to test, with their references, noise models and the way to the model's input, each converted once."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import ScoreFunction
from attentest.attention.score_function import ScoreProperties
from attentest.contrast.contrast import Contrast, channel_weights, check_pair
from attentest.definition import Definition
from attentest.errors import InputError, shortened, speaking_of, worded
from attentest.images.image_source import identity_of
from attentest.images.mask import Mask, Masks
from attentest.images.preprocessing import InputMap, Preprocessing, checked_levels, described_shape, identity_map
from attentest.images.sample import ImageLike, Layout, Sample, add_values, as_sample, check_image, check_place
from attentest.noise import ImageNoise, NoiseModel
from attentest.noise.model import check_shape, complete
from attentest.region.patch_grid import PatchGrid
from attentest.runs.engine import FailedImage, OnError, reason_of

MOST_GEOMETRIES = 16  # number of image shapes whose geometry a test keeps

ARRAYS_PER_IMAGE = 8
"""Arrays of the size of an image that its test holds at a time, at most: one image more in a batch takes 5 to 6, with
randomised selection or references."""

LARGEST_PIXEL = 1e-5 / sys.float_info.epsilon
"""Largest pixel, in standard deviations of its noise: the model computes with pixels rounded to float64, which changes
this one by 1e-5 standard deviations. Below it the error bar says what rounding does to p: on null images of the bundled
model it was up to 0.3 wide where rounding changes pixels by 2e-7, and up to 1 from 7e-7 on."""

ENDED = object()  # sentinel: one of the two iterables ended first

Identity: TypeAlias = "int | str"
"""What the noise that randomised selection adds to an image comes from, beside the seed: its number or its name."""

NumberedImage: TypeAlias = "tuple[int, tuple[ImageLike, ImageLike | None, Identity]]"
"""The number of an image among all images, and the image with its reference and its identity."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """Images of one shape: their map to the model's input, the weights of their channels, and the patches on them."""

    shape: tuple[int, ...]
    """The (C, *axes) of the images."""
    inputs: InputMap
    """Map from the images to the model's input."""
    preprocessing: Preprocessing | None
    """What the map does; None if images reach the model as they are."""
    channel_weights: NDArray[np.float64]
    """(C,). Weight of each channel in the contrast."""
    region_unit: str
    """What regions consist of: "pixels" or "patches"."""
    mask: Mask | None
    looked: NDArray[np.bool_] | None
    compared: NDArray[np.bool_] | None
    """The mask, and the pixels (*axes) within which the map is looked at, and the contrast is made; None for all."""
    properties: ScoreProperties
    """Those of the model: where in its input the patches lie, among others."""
    device: torch.device
    """Where the model computes."""
    _patch_grids: dict[tuple[int, ...], PatchGrid] = field(default_factory=dict, init=False)

    def patch_grid(self, grid: tuple[int, ...]) -> PatchGrid:
        """Return a grid with so many patches along each axis."""
        if grid not in self._patch_grids:
            model = self.properties
            places = zip(self.inputs.placement, model.start, strict=True)
            size, placement = self.shape[1:], tuple((scale, offset - start) for (scale, offset), start in places)
            self._patch_grids[grid] = PatchGrid(
                size, grid, model.covered, placement, self.device, self.region_unit, model.overlap, self.looked
            )
        return self._patch_grids[grid]


@dataclass(frozen=True, kw_only=True, eq=False)
class Input:
    """An image to test."""

    image: Sample
    """The image."""
    geometry: Geometry
    """How it reaches the model."""
    noise: NoiseModel
    """Its noise model."""
    reference: Sample | None = None
    reference_noise: NoiseModel | None = None
    """Its reference image and the noise model of that, where the contrast has one; no noise if it is exact."""
    selection_noise: NoiseModel | None = None
    """Noise model that randomised selection draws from, where it is not that of the image: another one is then
    considered for an image whose region was chosen already."""
    identity: Identity = 0
    draw: int = 0
    """Which noise randomised selection adds: that of an image of this number or name, and which draw of it."""
    number: int | None = None
    """Its number in error messages, if they are to say which image they are about."""

    @property
    def noisy_reference(self) -> str | None:
        """Digest of the reference image, None without one or if it is exact: images that share it are dependent."""
        if self.reference is None or self.reference_noise is None:
            return None
        digest = hashlib.blake2b(digest_size=16)
        add_values(digest, self.reference.pixels)
        return digest.hexdigest()


class Inputs:
    """Makes inputs of images of any shapes; an image that does not fit the test raises an error.

    The definition says preprocessing, intensity range, channels, units of regions, and noise and contrast, which may be
    for one shape only.
    """

    def __init__(self, definition: Definition, scores: ScoreFunction, properties: ScoreProperties) -> None:
        self._definition, self._scores, self._properties = definition, scores, properties
        self.dimension = len(scores.image_shape) - 1
        # Noise and contrast were converted when the definition was made.
        self.noise = cast("NoiseModel | ImageNoise", definition.noise)
        self.contrast = cast(Contrast, definition.contrast)
        self._intensity_range = _intensity_range(definition.intensity_range, definition.preprocessing)
        self._geometries: dict[tuple[Any, ...], Geometry] = {}
        # To find out whether noise is estimated from each image takes longer than a small image.
        self._estimates_noise = isinstance(self.noise, ImageNoise)
        self._deviations: dict[tuple[int, int], float] = {}  # of a pixel, by its place and the number of pixels
        if definition.preprocessing is None and not isinstance(self.noise, ImageNoise):
            values, pixels = math.prod(scores.image_shape), math.prod(scores.image_shape[1:])
            if self.noise.size not in (None, pixels, values):
                said = f"the noise model is for {self.noise.size} pixels, but the model's images have {values}."
                raise InputError(worded(said, self.dimension))

    def one(
        self,
        image: ImageLike,
        reference: ImageLike | None = None,
        identity: Identity | None = None,
        number: int | None = None,
    ) -> Input:
        """Return an image as an input, with its reference, identity, and number if it is one of many.

        By default its identity is the name of its file, or 0, as that of the first of many.
        """
        identity = (identity_of(image) or 0) if identity is None else checked_identity(identity)
        sample = as_sample(image, self.dimension)
        with speaking_of(self.dimension):
            mask = self._mask_of(identity)
            geometry = self._geometry((sample.shape, sample.levels), mask)
            check_place(sample, None if mask is None else mask.affine, "mask")
            noise = self._noise_of(sample)
            self._check_rounding(sample, noise)
        tested = Input(image=sample, geometry=geometry, noise=noise, identity=identity, number=number)
        kind, chosen = self.contrast.reference, self._chosen_reference(reference)
        if kind is None or chosen is None:
            return tested
        with _about("the reference"):
            reference_sample = as_sample(chosen, self.dimension)
        with speaking_of(self.dimension):
            check_pair(sample.shape, reference_sample.shape)
            check_place(sample, reference_sample.affine, "reference")
        reference_noise = None if kind.exact else kind.noise
        if not kind.exact and kind.noise is None:
            with _about("the reference"):
                reference_noise = self._noise_of(reference_sample)
        return replace(tested, reference=reference_sample, reference_noise=reference_noise)

    def like(self, tested: Input, pixels: NDArray[np.float64]) -> Input:
        """Return other pixels (C, *axes) as an input of the same kind, without a reference."""
        image = replace(tested.image, pixels=pixels)
        return replace(tested, image=image, noise=self._noise_of(image))

    def each(self, images: Iterable[NumberedImage], on_error: OnError = "raise") -> Iterator[Input | FailedImage]:
        """Yield the inputs of images; an error says which image it is about, or takes its place."""
        for number, (image, reference, identity) in images:
            if on_error == "raise":
                with _about(worded(f"image {number}", self.dimension)):
                    tested = self.one(image, reference, identity, number)
                yield tested
                del tested  # a batch that was tested must not live on while the next is read
                continue
            try:
                yield self.one(image, reference, identity)
            except Exception as error:  # noqa: BLE001  # whatever the error is, the other images go on
                yield FailedImage(number=number, reason=reason_of(error))

    def check_each(self, images: Iterable[NumberedImage]) -> None:
        """Raise an error if the test cannot take one of the images, which it names; nothing is converted."""
        for number, (image, reference, identity) in images:
            with speaking_of(self.dimension), _about(f"image {number}"):
                layout = check_image(image, self.dimension)
                self._geometry(layout, self._mask_of(identity))
                chosen = self._chosen_reference(reference)
                if chosen is not None:
                    with _about("the reference"):
                        reference_layout = check_image(chosen, self.dimension)
                    check_pair(layout[0], reference_layout[0])

    def _mask_of(self, identity: Identity) -> Mask | None:
        """Return the mask of an image, if there is one."""
        masks = self._definition.mask
        return masks.of(identity) if isinstance(masks, Masks) else masks

    def _geometry(self, layout: Layout, mask: Mask | None) -> Geometry:
        """Return the geometry of images with a layout and a mask."""
        shape, levels = layout
        levels = levels if self._intensity_range is None else self._intensity_range
        key = shape, levels, None if mask is None else mask.sha256
        if key not in self._geometries:
            geometry = self._new_geometry(shape, levels, mask)
            if len(self._geometries) >= MOST_GEOMETRIES:
                self._geometries.pop(next(iter(self._geometries)))
            self._geometries[key] = geometry
        return self._geometries[key]

    def _new_geometry(self, shape: tuple[int, ...], levels: tuple[float, float] | None, mask: Mask | None) -> Geometry:
        definition, expected = self._definition, self._scores.image_shape
        preprocessing: Preprocessing | None = definition.preprocessing
        if preprocessing is not None and preprocessing.assumed and self._intensity_range is None:
            fits = shape[0] in (1, expected[0]) and shape[1:] == expected[1:]
            # Image processors are for colour: what a model of one channel takes is not known to be scaled.
            preprocessing = None if fits and (expected[0] == 1 or levels is None) else preprocessing
        if preprocessing is not None:
            inputs = preprocessing.plan(shape, expected[0], levels)
            if inputs.input_shape != expected:
                raise InputError(
                    f"the model takes images of {described_shape(expected)}, but preprocessing makes this one "
                    f"{described_shape(inputs.input_shape)}: give it a resize or a crop to that size, such as "
                    "resize='stretch' (--resize stretch)."
                )
        else:
            advice = None
            if shape[0] not in (1, expected[0]):
                one = {1: "choose one with --channel", 2: "convert it to grey first", 3: "give one channel"}
                advice = f"{one[self.dimension]}, or use a model of that many channels"
            elif shape[1:] != expected[1:]:
                advice = "resize it first, or say how it is to be done with resize='stretch' (--resize stretch)"
            if advice is not None:
                raise InputError(
                    f"the model takes images of {described_shape(expected)}, but this one has "
                    f"{described_shape(shape)}: {advice}."
                )
            inputs = identity_map(shape, expected[0])
        check_shape(self.noise, shape)
        self.contrast.check_image(shape)
        if mask is not None:
            mask.check_image(shape)
        return Geometry(
            shape=shape,
            inputs=inputs.to(self._scores.device),
            preprocessing=preprocessing,
            channel_weights=channel_weights(definition.channels, shape[0]),
            region_unit=definition.region_unit,
            mask=mask,
            looked=None if mask is None or definition.mask_use == "contrast" else mask.pixels,
            compared=None if mask is None or definition.mask_use == "map" else mask.pixels,
            properties=self._properties,
            device=self._scores.device,
        )

    def _noise_of(self, image: Sample) -> NoiseModel:
        """Return the noise model of an image: that of the test, or one that is estimated from the image."""
        noise: Any = self.noise
        model: NoiseModel = noise.for_image(image.pixels) if self._estimates_noise else noise
        return model

    def _check_rounding(self, image: Sample, noise: NoiseModel) -> None:
        """Raise an error for an image whose pixels are so large that float64 does not resolve their noise."""
        pixels = image.pixels.reshape(-1)
        where = max(int(pixels.argmax()), int(pixels.argmin()), key=lambda place: abs(pixels[place]))
        key, known = (where, pixels.size), {} if self._estimates_noise else self._deviations
        if key not in known:
            variance = float(complete(noise).covariances(np.array([where]), pixels.size)[0, 0])
            known[key] = math.sqrt(max(variance, 0.0))
        sigma = known[key]
        if sigma > 0 and abs(float(pixels[where])) > LARGEST_PIXEL * sigma:
            raise InputError(
                f"an image has a pixel of {pixels[where]:.4g}, whose noise has the standard deviation {sigma:.4g}, and "
                f"float64 does not resolve it: pixels may be at most {LARGEST_PIXEL:.2g} standard deviations from 0, "
                "so subtract a constant from the image, such as its mean, or check the noise."
            )

    def _chosen_reference(self, reference: ImageLike | None) -> ImageLike | None:
        """Return the reference image to use; None if the contrast needs none."""
        kind = self.contrast.reference
        if kind is None:
            if reference is not None:
                raise InputError("a reference image was given, but the contrast has none: use contrast=Reference().")
            return None
        chosen = kind.sample(self.dimension) if reference is None else reference
        if chosen is None:
            raise InputError(
                "the contrast compares with a reference image, and there is none: give Reference(image) one for all "
                "images, or each image its own with reference= (references= in map)."
            )
        return chosen


def batches(inputs: Iterable[Input | FailedImage], most: int, memory: int) -> Iterator[list[Input | FailedImage]]:
    """Yield inputs of one geometry together, at most ``most`` and no more than fit in ``memory`` bytes.

    Failed images are in their places.
    """
    batch: list[Input | FailedImage] = []
    geometry = None
    for item in inputs:
        if isinstance(item, Input):
            if batch and geometry is not None and item.geometry is not geometry:
                yield batch
                batch = []
            geometry = item.geometry
        batch.append(item)
        pixels = item.image.pixels.size if isinstance(item, Input) else 0
        one_more = ARRAYS_PER_IMAGE * 8 * pixels * (len(batch) + 1)
        del item  # a batch that was tested must not live on while the next is read
        if len(batch) == most or one_more > memory:
            yield batch
            batch = []
    if batch:
        yield batch


def numbered_images(
    images: Iterable[ImageLike],
    references: Iterable[ImageLike] | None,
    names: Iterable[Identity] | None = None,
) -> Iterator[NumberedImage]:
    """Yield images with references and identities, numbered from 0; iterables of different lengths raise an error.

    The identity of an image is its name, that of its file, or else its number. No two have the same: a name that was
    there already gets the number too.
    """
    every: dict[str, Iterable[Any] | None] = {"images": images, "references": references, "names": names}
    listed = {name: values for name, values in every.items() if values is not None}
    known: set[Identity] = set()
    for number, values in enumerate(zip_longest(*listed.values(), fillvalue=ENDED)):
        given = dict(zip(listed, values, strict=True))
        if ended := [name for name, value in given.items() if value is ENDED]:
            more = next(name for name in given if name not in ended)
            others = " and ".join(name for name in listed if name != "images")
            raise InputError(f"there must be as many {others} as images, but only {more} go on after {number}.")
        image, reference = given["images"], given.get("references")
        identity = identity_of(image) or number if names is None else checked_identity(given["names"])
        known.add(identity := f"{identity} {number}" if identity in known else identity)
        yield number, (cast(ImageLike, image), cast("ImageLike | None", reference), identity)


def checked_identity(name: Any) -> Identity:
    """Return the name of an image; raise an error if it is no text or whole number."""
    if not isinstance(name, (str, int, np.integer)) or isinstance(name, bool):
        raise InputError(f"the name of an image must be a text or a whole number, got {shortened(name)}.", "name")
    return name if isinstance(name, str) else int(name)


@contextmanager
def _about(subject: str) -> Iterator[None]:
    """Let errors begin with what they are about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{subject}: {error}", *error.parameters) from None


def preprocessing_and_size(
    preprocessing: Any, image_size: int | tuple[int, ...] | None, saved_with: object = None
) -> tuple[Preprocessing | None, int | tuple[int, ...] | None]:
    """Return the preprocessing, and the size of the model's input that goes with it.

    ``saved_with`` is the model with which it was saved, if it was, for errors.
    """
    if preprocessing is None:
        return None, image_size
    try:
        converted = Preprocessing.from_processor(preprocessing)
    except InputError as error:
        if saved_with is None:
            raise
        raise InputError(
            f"the image processor of {saved_with} (its preprocessor_config.json or processor_config.json, of timm its "
            f"config.json) cannot be used: {error}"
        ) from None
    if image_size is not None:
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        return converted.with_size(size), size
    if isinstance(converted.resize, int) and converted.crop is None:
        raise InputError(
            f"the preprocessing makes the shorter side {converted.resize} pixels long and the other follows the image, "
            "but the model's input must have one size: give image_size, as (height, width).",
            "image_size",
        )
    return converted, converted.crop or converted.resize


def _intensity_range(value: Any, preprocessing: Preprocessing | None) -> tuple[float, float] | None:
    if value is None:
        return None
    if preprocessing is None or preprocessing.rescale is None:
        raise InputError(
            "intensity_range is for preprocessing that rescales, and there is none: pixel values reach the model as "
            "they are.",
            "intensity_range",
        )
    return checked_levels(value)
