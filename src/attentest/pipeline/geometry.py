"""How images of one shape reach the model, and how its patches lie on their pixels."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.attention import ScoreFunction
from attentest.checks import real_number
from attentest.contrast import Contrast, channel_weights
from attentest.definition import Definition
from attentest.errors import InputError, counted
from attentest.images.preprocessing import InputMap, Preprocessing, identity_map
from attentest.images.sample import Layout
from attentest.noise import ImageNoise, NoiseModel
from attentest.noise.model import check_shape
from attentest.region.patch_grid import PatchGrid

MOST_GEOMETRIES = 16
"""Number of image shapes whose geometry a test keeps."""


class Geometry:
    """Images of one shape: their map to the model's input, the weights of their channels, and the patches on them.

    Parameters
    ----------
    shape
        The (C, H, W) of the images.
    inputs
        Map from the images to the model's input.
    channel_weights : (C,)
        Weight of each channel in the contrast.
    region_unit
        What regions consist of: "pixels" or "patches".
    """

    def __init__(
        self, *, shape: tuple[int, int, int], inputs: InputMap, channel_weights: NDArray[np.float64], region_unit: str
    ) -> None:
        self.shape = shape
        self.inputs = inputs
        self.channel_weights = channel_weights
        self._region_unit = region_unit
        self._patch_grids: dict[tuple[int, ...], PatchGrid] = {}

    def patch_grid(self, grid: tuple[int, int], covered: tuple[int, int], device: torch.device) -> PatchGrid:
        """Return a grid (rows, columns) of patches over the part (height, width) of the input that they cover."""
        if grid not in self._patch_grids:
            size = self.shape[1:]
            self._patch_grids[grid] = PatchGrid(size, grid, covered, self.inputs.placement, device, self._region_unit)
        return self._patch_grids[grid]


class Geometries:
    """The geometries of images of any shapes; an image that does not fit the test raises an error.

    Parameters
    ----------
    definition
        The test: preprocessing, intensity range, channels, units of regions, and noise and contrast, which may be for
        one shape only.
    scores
        The model.
    """

    def __init__(self, definition: Definition, scores: ScoreFunction) -> None:
        self._definition, self._scores = definition, scores
        self._intensity_range = _intensity_range(definition.intensity_range, definition.preprocessing)
        self._geometries: dict[Layout, Geometry] = {}
        self._check_noise()

    def of(self, layout: Layout) -> Geometry:
        """Return the geometry of images with a layout."""
        shape, levels = layout
        key = shape, levels if self._intensity_range is None else self._intensity_range
        if key not in self._geometries:
            geometry = self._new_geometry(*key)
            if len(self._geometries) >= MOST_GEOMETRIES:
                self._geometries.pop(next(iter(self._geometries)))
            self._geometries[key] = geometry
        return self._geometries[key]

    def _new_geometry(self, shape: tuple[int, int, int], levels: tuple[float, float] | None) -> Geometry:
        definition, expected = self._definition, self._scores.image_shape
        if definition.preprocessing is None:
            if shape[0] not in (1, expected[0]):
                raise InputError(
                    f"the model takes images of {_described_shape(expected)}, but this one has "
                    f"{_described_shape(shape)}: convert it to grey first, or use a model of that many channels."
                )
            if shape[1:] != expected[1:]:
                raise InputError(
                    f"the model takes images of {_described_shape(expected)}, but this one has "
                    f"{_described_shape(shape)}: resize it first, or say with preprocessing how it is to be done."
                )
            inputs = identity_map(shape, expected[0])
        else:
            inputs = definition.preprocessing.plan(shape, expected[0], levels)
            if inputs.input_shape != expected:
                raise InputError(
                    f"the model takes images of {_described_shape(expected)}, but preprocessing makes this one "
                    f"{_described_shape(inputs.input_shape)}: give it a resize or a crop to that size."
                )
        check_shape(noise_of(definition), shape)
        contrast_of(definition).check_image(shape)
        return Geometry(
            shape=shape,
            inputs=inputs.to(self._scores.device),
            channel_weights=channel_weights(definition.channels, shape[0]),
            region_unit=definition.region_unit,
        )

    def _check_noise(self) -> None:
        """Raise an error if the noise model fits no image, as far as that is known before images are."""
        noise, (channels, height, width) = noise_of(self._definition), self._scores.image_shape
        if self._definition.preprocessing is not None or isinstance(noise, ImageNoise):
            return
        if noise.size not in (None, height * width, channels * height * width):
            raise InputError(
                f"the noise model is for {noise.size} pixels, but the model's images have {channels * height * width}."
            )


def noise_of(definition: Definition) -> NoiseModel | ImageNoise:
    """Return the noise model of a test, or the estimator that makes one from each image."""
    return cast("NoiseModel | ImageNoise", definition.noise)  # converted when the definition was made


def contrast_of(definition: Definition) -> Contrast:
    """Return what a test compares regions with."""
    return cast(Contrast, definition.contrast)  # converted when the definition was made


def preprocessing_and_size(
    preprocessing: Any, image_size: int | tuple[int, int] | None
) -> tuple[Preprocessing | None, int | tuple[int, int] | None]:
    """Return the preprocessing, and the size of the model's input that goes with it."""
    if preprocessing is None:
        return None, image_size
    chosen = Preprocessing.from_processor(preprocessing)
    if image_size is not None:
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        return chosen.with_size(size), size
    if isinstance(chosen.resize, int) and chosen.crop is None:
        raise InputError(
            f"the preprocessing makes the shorter side {chosen.resize} pixels long and the other follows the image, "
            "but the model's input must have one size: give image_size, as (height, width).",
            "image_size",
        )
    return chosen, chosen.crop or chosen.resize


def _intensity_range(value: Any, preprocessing: Preprocessing | None) -> tuple[float, float] | None:
    if value is None:
        return None
    if preprocessing is None or preprocessing.rescale is None:
        raise InputError(
            "intensity_range is for preprocessing that rescales, and there is none: pixel values reach the model as "
            "they are.",
            "intensity_range",
        )
    try:
        black, white = (real_number(level, "intensity_range") for level in value)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"intensity_range must be a pair (black, white), got {value!r}.", "intensity_range") from None
    return black, white


def _described_shape(shape: tuple[int, int, int]) -> str:
    return f"height {shape[1]}, width {shape[2]} and {counted(shape[0], 'channel')}"
