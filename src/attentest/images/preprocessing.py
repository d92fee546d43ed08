"""From images to the model's input: resizing, cropping and normalisation as one affine map in float64.

The image processors of libraries round to 8 bits and clip. Here nothing is rounded or clipped, so that attention is a
smooth function of the same pixels as the noise model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attentest.checks import changed_parameters, parameter_error, positive_number, real_number, whole_number
from attentest.errors import InputError, counted
from attentest.images.image_source import COLOURS
from attentest.images.processor_config import processor_settings
from attentest.images.resize_matrix import (
    AXES,
    LARGEST_SIZE,
    BandMatrix,
    check_interpolation,
    checked_side,
    checked_sides,
    resize_matrix,
)

CROP_ROUNDINGS = ("down", "even")
"""How half a pixel is rounded when an odd number of pixels is cropped: down in transformers, to even in torchvision."""

GREY = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey, those of ITU-R 601 and of Pillow


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The steps between an image and the model's input, in this order: resize, crop, rescale, normalise.

    Parameters
    ----------
    resize
        The (height, width) to resize to, or the length of the shortest side; the other keeps the aspect ratio. Signals
        have one side, volumes three: (depth, height, width).
    crop
        The (height, width) of the crop from the centre; an image that is too small is padded with zeros.
    interpolation, antialias
        How to resize: see `resize_matrix`.
    rescale
        Factor for an image whose black is 0 and whose white is 255, such as 1/255.
    mean, std
        Subtracted and divided by after rescaling: one number per channel, or one for all.
    crop_rounding
        How half a pixel is rounded when an odd number of pixels is cropped: "down" as in transformers, or "even" as
        in torchvision's ``center_crop``. Where an odd number of zeros is padded, the odd one is below and to the
        right, as in torchvision; the Pillow backend of transformers puts it above and to the left.
    grey
        Whether a model of one channel sees colour images in grey (ITU-R 601, as Pillow's mode "L"). Otherwise they
        raise an error.
    assumed
        Name of the image processor whose defaults these are, where a model was saved without one. An image that the
        model could take as it is then reaches it unchanged, unless it is in colour and its dtype has a black and a
        white.
    """

    resize: tuple[int, ...] | int | None = None
    crop: tuple[int, ...] | None = None
    interpolation: str = "bilinear"
    antialias: bool = True
    rescale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_rounding: str = "down"
    grey: bool = False
    assumed: str = ""

    def __post_init__(self) -> None:
        check_interpolation(self.interpolation, self.antialias)
        if self.crop_rounding not in CROP_ROUNDINGS:
            raise InputError(f"crop_rounding must be one of {', '.join(CROP_ROUNDINGS)}, got {self.crop_rounding!r}.")
        if (self.mean is None) != (self.std is None):
            missing = "mean" if self.mean is None else "std"
            raise InputError(f"mean and std must be given together, but {missing} is missing.")
        checked: dict[str, Any] = {}
        if self.resize is not None:
            single = not isinstance(self.resize, Sequence)
            checked["resize"] = checked_side(self.resize, "resize") if single else checked_sides(self.resize, "resize")
        if self.crop is not None:
            checked["crop"] = checked_sides(self.crop, "crop")
        if self.rescale is not None:
            checked["rescale"] = positive_number(self.rescale, "rescale")
        if self.mean is not None:
            checked["mean"] = tuple(_finite(value, "mean") for value in _per_channel(self.mean, "mean"))
            checked["std"] = tuple(positive_number(value, "std") for value in _per_channel(self.std, "std"))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return changed_parameters(self)

    @classmethod
    def from_processor(cls, processor: Any) -> Preprocessing:
        """Return the preprocessing that an image processor, a preset or a configuration describes.

        Parameters
        ----------
        processor
            An image processor of transformers or a processor that holds one; the mapping in a
            ``preprocessor_config.json`` or ``processor_config.json``; a timm data configuration; a torchvision
            preset, such as ``weights.transforms()``; or a `Preprocessing`, returned unchanged.

        Notes
        -----
        In a ``preprocessor_config.json`` that names its class, missing keys and nulls stand for the defaults of that
        class. In a mapping that does not, they stand for off, with three exceptions: ``resample`` is bilinear,
        ``rescale_factor`` is 1/255, and ``do_rescale`` equals ``do_normalize``, because processors whose files were
        written before that key existed always rescaled.
        """
        return processor if isinstance(processor, Preprocessing) else cls(**processor_settings(processor))

    @classmethod
    def usual(cls, processor: str, shape: tuple[int, ...]) -> Preprocessing:
        """Return what an image processor of transformers does by default, for a model whose input is (C, H, W).

        Sizes have the same proportion to the input as by default. For other channels than three, mean and standard
        deviation are the means of those of the three.
        """
        known, size = cls.from_processor({"image_processor_type": processor}), shape[1:]
        resize: tuple[int, ...] | int = size
        if known.crop is not None and known.resize is not None:
            known_side = known.resize if isinstance(known.resize, int) else known.resize[0]
            height, width = (round(known_side / known.crop[0] * side) for side in size)
            resize = max(height, width) if isinstance(known.resize, int) else (height, width)
        values = {name: getattr(known, name) for name in ("mean", "std")}
        if shape[0] != len(values["mean"]):
            values = {name: (math.fsum(of_colours) / len(of_colours),) for name, of_colours in values.items()}
        crop = None if known.crop is None else size
        return dataclasses.replace(known, resize=resize, crop=crop, grey=True, assumed=processor, **values)

    def chosen(self, resize: str, scale: str, size: tuple[int, ...]) -> Preprocessing:
        """Return the preprocessing with one of ``RESIZES`` and one of ``SCALES``, for an input of these sides."""
        whole = None if len(size) == 1 else max(size)  # of a signal, the middle is cut out as it is
        sizes = {"stretch": (size, None), "crop": (whole, size), "none": (None, None)}
        changes: dict[str, Any] = {}
        if resize in sizes:
            changes["resize"], changes["crop"] = sizes[resize]
        if scale in ("unit", "none"):
            changes |= {"rescale": 1 / 255 if scale == "unit" else None, "mean": None, "std": None, "assumed": ""}
        return dataclasses.replace(self, **changes)

    def describe(self) -> dict[str, Any]:
        """Return all settings as JSON-ready values."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }

    def with_size(self, size: tuple[int, ...]) -> Preprocessing:
        """Return the same preprocessing, but resizing to these sides without a crop."""
        return dataclasses.replace(self, resize=size, crop=None)

    def plan(self, shape: tuple[int, ...], channels: int, levels: tuple[float, float] | None) -> InputMap:
        """Return the map from images of one shape (C, *axes) to the model's input.

        A grey image is repeated in all channels of the input. The levels are the values of black and white in the
        images, such as (0, 255); None if unknown.
        """
        image_shape = _image_shape(shape, channels, self.grey)
        sides = image_shape[1:]
        resized = self._resized(sides)
        crop = resized if self.crop is None else self.crop
        for name, asked in (("resize", resized), ("crop", crop)):
            if len(asked) != len(sides):
                raise InputError(
                    f"the preprocessing has {name} = {asked}, but what is tested has "
                    f"{len(sides)} {'side' if len(sides) == 1 else 'sides'}: give as many."
                )
        black, factor = 0.0, 1.0
        if self.rescale is not None:
            if levels is None:
                taken = (
                    f"the model takes images of {described_shape((channels, *crop))}, but this one has "
                    f"{described_shape(image_shape)}: "
                )
                raise InputError(
                    f"{taken if self.assumed else ''}the model's preprocessing rescales from black 0 and white 255, "
                    "but the dtype of this image (floating point or wide integers) does not define black and white: "
                    "give intensity_range=(black, white), for example (0, 1), or --range 0,1 on the command line; or "
                    "scale='none', --scale none there, if the model takes pixel values as they are."
                )
            black, white = checked_levels(levels)
            factor = self.rescale * (255.0 / (white - black))
        with torch.device("cpu"):  # not torch's default device: the caller moves the map to that of the model
            axes = [self._axis(*lengths) for lengths in zip(sides, resized, crop, strict=True)]
            mean = _spread(self.mean, channels, "mean", 0.0)
            std = _spread(self.std, channels, "std", 1.0)
        return InputMap(
            image_shape=image_shape,
            input_shape=(channels, *crop),
            axes=tuple(matrix for matrix, _ in axes),
            gain=factor / std,
            shift=-mean / std,
            placement=tuple(place for _, place in axes),
            black=black,
            mix=torch.tensor(GREY, dtype=torch.float64) if channels == 1 < image_shape[0] else None,
        )

    def _resized(self, sides: tuple[int, ...]) -> tuple[int, ...]:
        if self.resize is None:
            return sides
        if not isinstance(self.resize, int):
            return self.resize
        resized = tuple(int(self.resize * side / min(sides)) for side in sides)
        if max(resized) > LARGEST_SIZE:
            named = " and ".join(f"{name} {side}" for name, side in zip(AXES[len(sides)], sides, strict=True))
            raise InputError(
                f"an image of {named} would be resized to {' by '.join(map(str, resized))} "
                f"pixels, and at most {LARGEST_SIZE} are allowed: crop it first."
            )
        return resized

    def _axis(self, size: int, resized: int, crop: int) -> tuple[BandMatrix | None, tuple[float, float]]:
        """Return the matrix (crop, size) of one axis, None for the identity, and its scale and offset."""
        if crop >= resized:
            offset = (crop - resized) // 2  # of the first pixel of the resized axis in the crop
        else:
            cut = resized - crop
            offset = -(cut // 2 if self.crop_rounding == "down" else round(cut / 2))
        placement = (resized / size, float(offset))
        if size == resized == crop:
            return None, placement
        matrix = torch.zeros(crop, size, dtype=torch.float64)
        cut, pad, length = max(-offset, 0), max(offset, 0), min(resized, crop)
        if size == resized:
            matrix[pad : pad + length, cut : cut + length] = torch.eye(length, dtype=torch.float64)
        else:
            resizing = resize_matrix(size, resized, self.interpolation, self.antialias)
            matrix[pad : pad + length] = resizing[cut : cut + length]
        return BandMatrix.of(matrix), placement


@dataclass(frozen=True, eq=False)
class InputMap:
    """The affine map from images (m, C, *axes) in the user's units to the model's input (m, channels, *sides)."""

    image_shape: tuple[int, ...]
    input_shape: tuple[int, ...]
    """The (C, *axes) of an image and the (channels, *sides) of the input."""
    axes: tuple[BandMatrix | None, ...]
    """For each axis a matrix (h, H) that resizes and crops along it, with zero rows for padding; None for the
    identity."""
    gain: Tensor
    shift: Tensor
    """(channels,). A pixel of value black + d becomes gain * d + shift; padding becomes shift."""
    placement: tuple[tuple[float, float], ...]
    """The (scale, offset) of each axis: image coordinate y, where pixel i covers [i, i + 1], lies at y * scale + offset
    in the input."""
    black: float = 0.0
    """Value of black in the image, in its own units."""
    mix: Tensor | None = None
    """(C,). Weights of the channels of the image in the only one of the input; None if channels stay as they are."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the model's input (m, channels, *sides) of images (m, C, *axes)."""
        return self.linear(images - self.black if self.black else images) + self._per_channel(self.shift)

    def linear(self, directions: Tensor) -> Tensor:
        """Return the change of the input when the image changes by directions (m, C, *axes)."""
        if tuple(directions.shape[-len(self.image_shape) :]) != self.image_shape:
            raise InputError(
                f"this map is for images of shape {self.image_shape}, got {tuple(directions.shape)}: plan the "
                "preprocessing again for this shape."
            )
        if self.mix is not None:
            directions = (directions * self._per_channel(self.mix)).sum(dim=-len(self.image_shape), keepdim=True)
        for number, matrix in enumerate(reversed(self.axes), start=1):  # the last axis first: its rows are contiguous
            directions = directions if matrix is None else matrix.along(directions, -number)
        return directions * self._per_channel(self.gain)

    def _per_channel(self, values: Tensor) -> Tensor:
        """Return values (channels,) with an axis of length one for each side."""
        return values.reshape(-1, *[1] * len(self.axes))

    def to(self, device: torch.device | str) -> InputMap:
        """Return a copy with its tensors on a device."""
        return dataclasses.replace(
            self,
            axes=tuple(None if matrix is None else matrix.to(device) for matrix in self.axes),
            gain=self.gain.to(device),
            shift=self.shift.to(device),
            mix=None if self.mix is None else self.mix.to(device),
        )


def identity_map(shape: tuple[int, ...], channels: int) -> InputMap:
    """Return the map that does not change images (C, *axes), except that grey is repeated in all channels."""
    return Preprocessing().plan(shape, channels, None)


def _image_shape(shape: tuple[int, ...], channels: int, grey: bool) -> tuple[int, ...]:
    wanted = whole_number(channels, "the number of channels of the model", 1, LARGEST_SIZE)
    if len(shape) - 1 not in AXES:
        raise InputError(f"the shape of an image must be (channels, height, width), got {tuple(shape)}.")
    image = tuple(whole_number(size, "each size of an image", 1, 2**31) for size in shape)
    if image[0] not in (1, wanted) and not (grey and wanted == 1 and image[0] == len(GREY)):
        advice = "convert it to grey first" if wanted == 1 else "keep only the channels that the model was trained on"
        if len(shape) == 2:
            advice = "choose its channels with --channel"
        allowed = "1 channel" if wanted == 1 else f"1 or {wanted} channels"
        raise InputError(f"the model takes images with {allowed}, but this one has {described_shape(image)}: {advice}.")
    return image


def described_shape(shape: tuple[int, ...]) -> str:
    """Return the (C, *axes) of an image in words; with many channels, also which order of the axes is expected."""
    channels, *sides = shape
    named = ", ".join(f"{name} {side}" for name, side in zip(AXES[len(sides)], sides, strict=True))
    described = f"{named} and {counted(channels, 'channel')}"
    if channels <= max(COLOURS) or len(sides) != 2:
        return described
    height, width = sides
    transposed = ""
    if height in COLOURS:
        transposed = "; if its channels come first, transpose the array: numpy.moveaxis(image, 0, -1)"
    elif width in COLOURS:
        transposed = "; if its channels come last, transpose the tensor: image.movedim(-1, 0)"
    return f"{described} (arrays are (H, W, C), tensors (C, H, W){transposed})"


def checked_levels(levels: tuple[float, float]) -> tuple[float, float]:
    """Return the pixel values of black and white; raise an error if they are not two finite numbers that increase."""
    try:
        black, white = (_finite(level, "intensity_range") for level in levels)
    except InputError:
        raise
    except (TypeError, ValueError):
        raise InputError(f"intensity_range must be a pair (black, white), got {levels!r}.", "intensity_range") from None
    if not black < white or not math.isfinite(white - black):
        raise InputError(
            f"intensity_range must be (black, white) with black below white, got ({black}, {white}).", "intensity_range"
        )
    return black, white


def _spread(values: tuple[float, ...] | None, channels: int, name: str, default: float) -> Tensor:
    """Return one number for each channel."""
    known = (default,) if values is None else values
    if len(known) not in (1, channels):
        raise InputError(
            f"the preprocessing has {len(known)} values of {name}, but the model takes {counted(channels, 'channel')}: "
            f"give {'1 value' if channels == 1 else f'1 value or {channels}'}."
        )
    return torch.tensor(known, dtype=torch.float64).expand(channels).clone()


def _finite(value: Any, name: str) -> float:
    number = real_number(value, name)
    if not math.isfinite(number):
        raise parameter_error(name, f"must be finite, got {number}")
    return number


def _per_channel(values: Any, name: str) -> tuple[Any, ...]:
    listed = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else values
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) == 0:
        raise InputError(f"{name} must be a sequence of numbers, one per channel, got {values!r}.")
    return tuple(listed)
