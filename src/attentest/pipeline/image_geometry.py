"""How images of one shape reach the model, and what of them is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attentest.checks import real_number
from attentest.contrast import Channels, Contrast, as_channels, channel_weights
from attentest.errors import InputError
from attentest.images.preprocessing import InputMap, Preprocessing, identity_map
from attentest.images.sample import Sample
from attentest.noise import ImageNoise, NoiseModel, check_noise

MOST_FRAMES = 16
"""Shapes of image whose way to the model is remembered."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """Images of one shape (C, H, W): their way to the model's input, and the weight (C,) of each channel."""

    shape: tuple[int, int, int]
    inputs: InputMap
    weights: NDArray[np.float64]


class Frames:
    """The frames of images as they come, of whatever shapes; what does not fit is refused.

    Parameters
    ----------
    expected
        The (C, H, W) of the model's input.
    preprocessing
        How images get there; None if they must have that size.
    intensity_range
        What images call black and white; None for what their dtype says.
    noise
        Noise model, which may be for one shape only.
    contrast
        What is compared, which may be for one shape only.
    channels
        What of colour images is compared.
    device
        Where the model computes.
    """

    def __init__(
        self,
        expected: tuple[int, int, int],
        preprocessing: Preprocessing | None,
        intensity_range: tuple[float, float] | None,
        noise: NoiseModel | ImageNoise,
        contrast: Contrast,
        channels: Channels,
        device: torch.device,
    ) -> None:
        self._expected, self._preprocessing, self._device = expected, preprocessing, device
        self._noise, self._contrast = noise, contrast
        self._range = _intensity_range(intensity_range, preprocessing)
        self.channels = as_channels(channels)
        self._frames: dict[tuple[tuple[int, int, int], tuple[float, float] | None], Frame] = {}
        self._check_noise()

    def of(self, sample: Sample) -> Frame:
        """Return how images of a shape reach the model, and how its attention comes back to their pixels."""
        levels = sample.levels if self._range is None else self._range
        key = sample.shape, levels
        if key not in self._frames:
            frame = self._new_frame(sample.shape, levels)
            if len(self._frames) >= MOST_FRAMES:
                self._frames.pop(next(iter(self._frames)))
            self._frames[key] = frame
        return self._frames[key]

    def _new_frame(self, shape: tuple[int, int, int], levels: tuple[float, float] | None) -> Frame:
        expected = self._expected
        if self._preprocessing is None:
            if shape[0] not in (1, expected[0]) or shape[1:] != expected[1:]:
                raise InputError(
                    f"the model takes images of {_described_shape(expected)}, but this one has "
                    f"{_described_shape(shape)}: resize it first, or say with preprocessing how it is to be done."
                )
            inputs = identity_map(shape, expected[0])
        else:
            inputs = self._preprocessing.plan(shape, expected[0], levels)
            if inputs.input_shape != expected:
                raise InputError(
                    f"the model takes images of {_described_shape(expected)}, but preprocessing makes this one "
                    f"{_described_shape(inputs.input_shape)}: give it a resize or a crop to that size."
                )
        check_noise(self._noise, shape)
        self._contrast.check_image(shape)
        return Frame(
            shape=shape,
            inputs=inputs.to(self._device),
            weights=channel_weights(self.channels, shape[0]),
        )

    def _check_noise(self) -> None:
        """Refuse now a noise model that fits no image, where that is known."""
        channels, height, width = self._expected
        if self._preprocessing is not None or isinstance(self._noise, ImageNoise):
            return
        if self._noise.size not in (None, height * width, channels * height * width):
            raise InputError(
                f"the noise model is for {self._noise.size} pixels, but the model's images have "
                f"{channels * height * width}."
            )


def preprocessing_and_size(
    preprocessing: Any, image_size: int | tuple[int, int] | None
) -> tuple[Preprocessing | None, int | tuple[int, int] | None]:
    """Return the preprocessing and the size of the model's input that goes with it."""
    if preprocessing is None:
        return None, image_size
    chosen = Preprocessing.from_processor(preprocessing)
    if image_size is not None:
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
        return chosen.with_size(size), size
    if isinstance(chosen.resize, int) and chosen.crop is None:
        raise InputError(
            f"the preprocessing makes the shorter side {chosen.resize} pixels long and the other follows the image, "
            "but the model's input must have one size: give image_size=(height, width)."
        )
    return chosen, chosen.crop or chosen.resize


def _intensity_range(value: Any, preprocessing: Preprocessing | None) -> tuple[float, float] | None:
    if value is None:
        return None
    if preprocessing is None or preprocessing.rescale is None:
        raise InputError(
            "intensity_range is for preprocessing that rescales, and there is none: pixel values reach the model as "
            "they are."
        )
    try:
        black, white = (real_number(level, "intensity_range") for level in value)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"intensity_range must be a pair (black, white), got {value!r}.") from None
    return black, white


def _described_shape(shape: tuple[int, int, int]) -> str:
    return f"height {shape[1]}, width {shape[2]} and {shape[0]} channel(s)"
