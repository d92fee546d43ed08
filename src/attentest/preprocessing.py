"""From the user's image to the model's input: resizing, cropping and normalisation as one affine map in float64.

The model's own image processor rounds to 8 bits and clips; here nothing is rounded or clipped, so that the way from
the image to the attention stays a smooth map of the very pixels the noise is stated for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attentest.checks import positive_number, real_number, whole_number
from attentest.errors import InputError
from attentest.resample import LARGEST_SIZE, check_interpolation, resize_matrix

CROP_ROUNDINGS = ("down", "even")
"""Where half a pixel goes when an odd number of pixels is cut: transformers rounds down, torchvision to even."""

BY_HAND = "describe what the model expects with Preprocessing(...) instead"


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What happens to an image before the model sees it, in this order: resize, crop, rescale, normalise.

    Parameters
    ----------
    resize
        The (height, width) to resize to, or the length of the shortest side, which the other side follows.
    crop
        The (height, width) cut from the centre, with zeros around an image that is too small.
    interpolation, antialias
        How to resize: see `resize_matrix`.
    rescale
        Factor for an image whose black is 0 and whose white is 255, such as 1/255.
    mean, std
        Subtracted and divided by after rescaling: one number per channel, or one for all.
    crop_rounding
        Where half a pixel goes when an odd number of pixels is cut: "down" as in transformers, or "even" as in
        torchvision's ``center_crop``. Zeros around a small image always go as torchvision puts them, the odd one
        below and to the right; the Pillow backend of transformers puts it above and to the left.
    """

    resize: tuple[int, int] | int | None = None
    crop: tuple[int, int] | None = None
    interpolation: str = "bilinear"
    antialias: bool = True
    rescale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_rounding: str = "down"

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
            checked["resize"] = _side(self.resize, "resize") if single else _size(self.resize, "resize")
        if self.crop is not None:
            checked["crop"] = _size(self.crop, "crop")
        if self.rescale is not None:
            checked["rescale"] = positive_number(self.rescale, "rescale")
        if self.mean is not None:
            checked["mean"] = tuple(_finite(value, "mean") for value in _per_channel(self.mean, "mean"))
            checked["std"] = tuple(positive_number(value, "std") for value in _per_channel(self.std, "std"))
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_processor(cls, processor: Any) -> Preprocessing:
        """Read the preprocessing off what the model came with.

        Parameters
        ----------
        processor
            An image processor of transformers or a processor that holds one; the mapping in a
            ``preprocessor_config.json`` or ``processor_config.json``; a timm data configuration; a torchvision
            preset, such as ``weights.transforms()``; or a `Preprocessing`, returned as it is.

        Notes
        -----
        In a ``preprocessor_config.json`` that names its class, missing keys and nulls mean the defaults of that
        class. In a mapping that does not, they mean off, with three exceptions: ``resample`` is bilinear,
        ``rescale_factor`` is 1/255, and ``do_rescale`` follows ``do_normalize``, because the files written before
        that key existed always meant it.
        """
        if isinstance(processor, Preprocessing):
            return processor
        if isinstance(processor, Mapping):
            return _from_mapping(processor)
        inner = getattr(processor, "image_processor", None)
        if inner is not None:
            return cls.from_processor(inner)
        if callable(getattr(processor, "to_dict", None)):
            settings = processor.to_dict()
            return _from_mapping(settings) if _nested(settings) is not None else _from_settings(settings)
        if all(hasattr(processor, name) for name in _PRESET_ATTRIBUTES):
            return _from_torchvision_preset(processor)
        raise InputError(
            f"the preprocessing cannot be read off an object of type {type(processor).__name__}, only off an image "
            f"processor or its configuration, a timm data configuration or a torchvision preset: {BY_HAND}."
        )

    def with_size(self, size: tuple[int, int]) -> Preprocessing:
        """Return the same preprocessing, but resized straight to (height, width) and not cropped."""
        return dataclasses.replace(self, resize=size, crop=None)

    def plan(self, shape: tuple[int, int, int], channels: int, levels: tuple[float, float] | None) -> InputMap:
        """Return the map from images of one shape to the model's input.

        Parameters
        ----------
        shape
            The (C, H, W) of the images.
        channels
            Channels of the model's input; a grey image is repeated in all of them.
        levels
            What the images call black and white, such as (0, 255); None if they do not say.
        """
        with torch.device("cpu"):  # whatever torch's default device is: the caller moves the map to the model's
            return self._plan(_image_shape(shape, channels), channels, levels)

    def _plan(self, image_shape: tuple[int, int, int], channels: int, levels: tuple[float, float] | None) -> InputMap:
        _, height, width = image_shape
        resized = self._resized(height, width)
        crop = resized if self.crop is None else self.crop
        rows, vertical = self._axis(height, resized[0], crop[0])
        columns, horizontal = self._axis(width, resized[1], crop[1])
        black, factor = 0.0, 1.0
        if self.rescale is not None:
            black, white = _levels(levels)
            factor = self.rescale * (255.0 / (white - black))
        mean = _spread(self.mean, channels, "mean", 0.0)
        std = _spread(self.std, channels, "std", 1.0)
        return InputMap(
            image_shape=image_shape,
            input_shape=(channels, *crop),
            rows=rows,
            columns=columns,
            gain=factor / std,
            shift=-mean / std,
            placement=(vertical, horizontal),
            black=black,
        )

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        if self.resize is None:
            return height, width
        if not isinstance(self.resize, int):
            return self.resize
        short, long = sorted((height, width))
        following = int(self.resize * long / short)
        if following > LARGEST_SIZE:
            raise InputError(
                f"an image of height {height} and width {width} would be resized to {self.resize} by {following} "
                f"pixels, and at most {LARGEST_SIZE} are allowed: crop it first."
            )
        return (self.resize, following) if height <= width else (following, self.resize)

    def _axis(self, size: int, resized: int, crop: int) -> tuple[Tensor | None, tuple[float, float]]:
        """Return the matrix (crop, size) of one axis, None for the identity, and the scale and offset along it."""
        offset = self._offset(resized, crop)
        placement = (resized / size, float(offset))
        if size == resized == crop:
            return None, placement
        matrix = torch.zeros(crop, size, dtype=torch.float64)
        cut, pad, kept = max(-offset, 0), max(offset, 0), min(resized, crop)
        if size == resized:
            matrix[pad : pad + kept, cut : cut + kept] = torch.eye(kept, dtype=torch.float64)
        else:
            resizing = resize_matrix(size, resized, self.interpolation, self.antialias)
            matrix[pad : pad + kept] = resizing[cut : cut + kept]
        return matrix, placement

    def _offset(self, resized: int, crop: int) -> int:
        """Return where the first pixel of a resized axis lies in the crop."""
        if crop >= resized:
            return (crop - resized) // 2
        cut = resized - crop
        return -(cut // 2 if self.crop_rounding == "down" else round(cut / 2))


@dataclass(frozen=True, eq=False)
class InputMap:
    """The affine map from images (m, C, H, W) in the user's units to the model's input (m, channels, h, w).

    Parameters
    ----------
    image_shape, input_shape
        The (C, H, W) of an image and the (channels, h, w) of the input.
    rows, columns
        Resizing and cropping along each axis, (h, H) and (w, W), with zero rows where the crop pads; None for none.
    gain, shift : (channels,)
        What the model sees of a pixel v that is black + d: gain * d + shift. Padded places see the shift alone.
    placement
        The (scale, offset) of y and of x: what lies at y in the image, where pixel i covers [i, i + 1], lies at
        y * scale + offset in the input.
    black
        What an image calls black, in its own units.
    """

    image_shape: tuple[int, int, int]
    input_shape: tuple[int, int, int]
    rows: Tensor | None
    columns: Tensor | None
    gain: Tensor
    shift: Tensor
    placement: tuple[tuple[float, float], tuple[float, float]]
    black: float = 0.0

    def __call__(self, images: Tensor) -> Tensor:
        """Return the model's input (m, channels, h, w) of images (m, C, H, W)."""
        return self.linear(images - self.black if self.black else images) + self.shift[:, None, None]

    def linear(self, directions: Tensor) -> Tensor:
        """Return the change of the input (m, channels, h, w) when the image changes by directions (m, C, H, W)."""
        if tuple(directions.shape[-3:]) != self.image_shape:
            raise InputError(
                f"this preprocessing was planned for images of shape {self.image_shape}, "
                f"got {tuple(directions.shape)}: plan it again for these."
            )
        placed = directions if self.columns is None else directions @ self.columns.T
        placed = placed if self.rows is None else self.rows @ placed
        return placed * self.gain[:, None, None]

    def to(self, device: torch.device | str) -> InputMap:
        """Return a copy whose tensors live on a device."""
        return dataclasses.replace(
            self,
            rows=None if self.rows is None else self.rows.to(device),
            columns=None if self.columns is None else self.columns.to(device),
            gain=self.gain.to(device),
            shift=self.shift.to(device),
        )


def identity_map(shape: tuple[int, int, int], channels: int) -> InputMap:
    """Return the map that leaves images (C, H, W) alone, except that grey is repeated in all channels."""
    return Preprocessing().plan(shape, channels, None)


def _image_shape(shape: tuple[int, int, int], channels: int) -> tuple[int, int, int]:
    wanted = whole_number(channels, "the number of channels of the model", 1, LARGEST_SIZE)
    if len(shape) != 3:
        raise InputError(f"the shape of an image must be (channels, height, width), got {tuple(shape)}.")
    depth, height, width = (whole_number(size, "each size of an image", 1, 2**31) for size in shape)
    if depth not in (1, wanted):
        advice = "convert it to grey first" if wanted == 1 else "keep only the channels that the model was trained on"
        allowed = "1 channel" if wanted == 1 else f"1 or {wanted} channels"
        raise InputError(
            f"the model takes images with {allowed}, but this one has {depth}: {advice} (arrays are (H, W, C), tensors "
            "(C, H, W))."
        )
    return depth, height, width


def _levels(levels: tuple[float, float] | None) -> tuple[float, float]:
    if levels is None:
        raise InputError(
            "the model's preprocessing rescales from black 0 and white 255, but an image of floating-point numbers or "
            "wide integers does not say what black and white are: give intensity_range=(black, white), for example "
            "(0, 1), or --range 0,1 on the command line."
        )
    if not isinstance(levels, Sequence) or len(levels) != 2:
        raise InputError(f"intensity_range must be a pair (black, white), got {levels!r}.")
    black, white = (_finite(level, "intensity_range") for level in levels)
    if not black < white or not math.isfinite(white - black):
        raise InputError(f"intensity_range must be (black, white) with black below white, got ({black}, {white}).")
    return black, white


def _spread(values: tuple[float, ...] | None, channels: int, name: str, default: float) -> Tensor:
    """Return one number for each channel."""
    given = (default,) if values is None else values
    if len(given) not in (1, channels):
        raise InputError(
            f"the preprocessing has {len(given)} values of {name}, but the model takes {channels} channel(s): give "
            f"1 value or {channels}."
        )
    return torch.tensor(given, dtype=torch.float64).expand(channels).clone()


def _side(value: Any, name: str) -> int:
    return whole_number(value, name, 1, LARGEST_SIZE)


def _size(value: Any, name: str) -> tuple[int, int]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise InputError(f"{name} must be a pair (height, width), got {value!r}.")
    return _side(value[0], f"the height of {name}"), _side(value[1], f"the width of {name}")


def _finite(value: Any, name: str) -> float:
    number = real_number(value, name)
    if not math.isfinite(number):
        raise InputError(f"{name} must be finite, got {number}.")
    return number


def _per_channel(values: Any, name: str) -> tuple[Any, ...]:
    listed = values.tolist() if isinstance(values, (np.ndarray, Tensor)) else values
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) == 0:
        raise InputError(f"{name} must be a sequence of numbers, one per channel, got {values!r}.")
    return tuple(listed)


# What models come with, read without importing the libraries they come from.

PIL_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters in the order of the codes that configurations hold."""

_PRESET_ATTRIBUTES = ("crop_size", "resize_size", "interpolation", "antialias", "mean", "std")
_TIMM_KEYS = ("input_size", "interpolation", "mean", "std", "crop_pct")
_NESTING_KEYS = ("image_processor", "data_config", "pretrained_cfg")
"""Where the files of processors, of timm models in transformers and of timm models keep the settings."""

_SUFFIXES = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")

_LINEAR_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
# Colours are the caller's concern here, and labels are not images.
_HARMLESS_STEPS = ("do_convert_rgb", "do_reduce_labels")
_UNKNOWN_SETTINGS = (
    "crop_pct",
    "image_grid_pinpoints",
    "keep_aspect_ratio",
    "max_image_tiles",
    "rescale_offset",
    "size_divisor",
    "use_square_size",
)
"""Settings that change what the steps do, in processors whose class is not named."""

_HALF = (0.5, 0.5, 0.5)
_IMAGENET = {"image_mean": (0.485, 0.456, 0.406), "image_std": (0.229, 0.224, 0.225)}
_OPENAI = {"image_mean": (0.48145466, 0.4578275, 0.40821073), "image_std": (0.26862954, 0.26130258, 0.27577711)}
_STANDARD = {"image_mean": _HALF, "image_std": _HALF}
_STEPS_ON = {"do_resize": True, "do_rescale": True, "do_normalize": True}
_CLIP = {
    **_STEPS_ON,
    **_OPENAI,
    "size": 224,
    "default_to_square": False,
    "resample": 3,
    "do_center_crop": True,
    "crop_size": 224,
}

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "ViT": {**_STEPS_ON, **_STANDARD, "size": 224, "resample": 2},
    "DeiT": {**_STEPS_ON, **_STANDARD, "size": 256, "resample": 3, "do_center_crop": True, "crop_size": 224},
    "Beit": {**_STEPS_ON, **_STANDARD, "size": 224, "resample": 3, "crop_size": 224},
    "Bit": _CLIP,
    "CLIP": _CLIP,
    "ChineseCLIP": _CLIP,
    "Siglip": {**_STEPS_ON, **_STANDARD, "size": (224, 224), "resample": 3, "default_to_square": False},
    "Blip": {**_STEPS_ON, **_OPENAI, "size": 384, "resample": 3},
    "DINOv3ViT": {**_STEPS_ON, **_IMAGENET, "size": 224, "resample": 2},
    "Pvt": {**_STEPS_ON, **_IMAGENET, "size": 224, "resample": 3},
}
"""The image processors of transformers that only resize, crop, rescale and normalise, and their defaults."""


def _from_mapping(mapping: Mapping[str, Any]) -> Preprocessing:
    inner = _nested(mapping)
    if inner is not None:
        return _from_mapping(inner)
    if "input_size" in mapping:
        return _from_timm_config(mapping)
    if not any(key in mapping for key in (*_LINEAR_STEPS, "image_processor_type", "feature_extractor_type")):
        raise InputError(
            f"the mapping with the keys {', '.join(map(str, mapping)) or '(none)'} is neither the configuration of an "
            f"image processor nor a timm data configuration: {BY_HAND}."
        )
    given = {key: value for key, value in mapping.items() if value is not None}
    _refuse_unknown_steps(given)
    family = _family(given)
    defaults = {"do_rescale": given.get("do_normalize")} if family is None else CLASS_DEFAULTS[family]
    return _from_settings({**defaults, **given})


def _nested(mapping: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = (mapping.get(key) for key in _NESTING_KEYS)
    return next((inner for inner in found if isinstance(inner, Mapping)), None)


def _family(settings: Mapping[str, Any]) -> str | None:
    """Return the class of an image processor without its suffix, None where it is not named."""
    named = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    if named is None:
        return None
    for suffix in _SUFFIXES:
        family = str(named).removesuffix(suffix)
        if family != named and family in CLASS_DEFAULTS:
            return family
    raise InputError(
        f"the image processor {named} is not known to only resize, crop, rescale and normalise, as those of "
        f"{', '.join(CLASS_DEFAULTS)} do: {BY_HAND}."
    )


def _from_settings(settings: Mapping[str, Any]) -> Preprocessing:
    """Read the complete settings of an image processor of transformers."""
    _refuse_unknown_steps(settings)
    _family(settings)
    resizes, crops, rescales, normalises = (_switch(settings, step) for step in _LINEAR_STEPS)
    square = settings.get("default_to_square") is not False
    filter_code, factor = settings.get("resample"), settings.get("rescale_factor")
    return Preprocessing(
        resize=_processor_size(settings, "do_resize", "size", square) if resizes else None,
        crop=_processor_crop(settings) if crops else None,
        interpolation=_interpolation(2 if filter_code is None else filter_code) if resizes else "bilinear",
        rescale=(1 / 255 if factor is None else factor) if rescales else None,
        mean=_as_sequence(settings, "image_mean") if normalises else None,
        std=_as_sequence(settings, "image_std") if normalises else None,
    )


def _refuse_unknown_steps(settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        step = str(key).startswith("do_") and key not in (*_LINEAR_STEPS, *_HARMLESS_STEPS)
        if value and (step or key in _UNKNOWN_SETTINGS):
            raise InputError(
                f"the image processor has {key} set to {value!r}, a step that attentest does not know: {BY_HAND}."
            )


def _switch(settings: Mapping[str, Any], step: str) -> bool:
    value = settings.get(step)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InputError(f"{step} of an image processor must be true or false, got {value!r}.")


def _required(settings: Mapping[str, Any], step: str, key: str) -> Any:
    value = settings.get(key)
    if value is None:
        raise InputError(f"the image processor has {step} on, but {key} is missing: add it or switch {step} off.")
    return value


def _processor_size(settings: Mapping[str, Any], step: str, key: str, square: bool) -> tuple[int, int] | int:
    value = _required(settings, step, key)
    if isinstance(value, Mapping):
        given = {name: size for name, size in value.items() if size is not None}
        if set(given) == {"height", "width"}:
            return _size((given["height"], given["width"]), key)
        if set(given) == {"shortest_edge"}:
            return _side(given["shortest_edge"], f"shortest_edge of {key}")
        raise InputError(
            f"{key} of an image processor must have height and width, or shortest_edge, got "
            f"{', '.join(map(str, given)) or 'nothing'}: {BY_HAND}."
        )
    if isinstance(value, (list, tuple)):
        return _size(value, key)
    side = _side(value, key)
    return (side, side) if square else side


def _processor_crop(settings: Mapping[str, Any]) -> tuple[int, int]:
    crop = _processor_size(settings, "do_center_crop", "crop_size", square=True)
    if isinstance(crop, int):
        raise InputError(f"crop_size of an image processor must have height and width, got shortest_edge {crop}.")
    return crop


def _as_sequence(settings: Mapping[str, Any], key: str) -> Any:
    value = _required(settings, "do_normalize", key)
    return value if isinstance(value, (Sequence, np.ndarray, Tensor)) else (value,)


def _interpolation(value: Any) -> str:
    """Return the name of a filter given by Pillow's code, by name or by torchvision's enumeration."""
    named = getattr(value, "value", value)
    if isinstance(named, str):
        return named
    code = whole_number(named, "resample, the code of one of Pillow's filters,", 0, len(PIL_FILTERS) - 1)
    return PIL_FILTERS[code]


def _from_timm_config(config: Mapping[str, Any]) -> Preprocessing:
    """Read timm's evaluation transform: resize to size / crop_pct, cut the centre, scale to [0, 1], normalise."""
    for key in _TIMM_KEYS:
        if config.get(key) is None:
            raise InputError(
                f"the timm data configuration has no {key}: take the one that "
                "timm.data.resolve_model_data_config(model) returns."
            )
    size = config["input_size"]
    if not isinstance(size, Sequence) or len(size) != 3:
        raise InputError(f"input_size of a timm data configuration must be (channels, height, width), got {size!r}.")
    crop = _size(tuple(size[1:]), "input_size")
    share = positive_number(config["crop_pct"], "crop_pct")
    height, width = (math.floor(side / share) for side in crop)
    mode = config.get("crop_mode") or "center"
    if mode not in ("center", "squash"):
        raise InputError(f"crop_mode of a timm data configuration must be center or squash, got {mode!r}: {BY_HAND}.")
    if mode == "center" and height != width:
        raise InputError(
            f"a timm data configuration with crop_mode center must have a square input_size, got {tuple(size)}: "
            f"{BY_HAND}."
        )
    return Preprocessing(
        resize=height if mode == "center" else (height, width),
        crop=crop,
        interpolation=_interpolation(config["interpolation"]),
        rescale=1 / 255,
        mean=config["mean"],
        std=config["std"],
        crop_rounding="even",
    )


def _from_torchvision_preset(preset: Any) -> Preprocessing:
    resize, crop = _preset_size(preset.resize_size), _preset_size(preset.crop_size)
    return Preprocessing(
        resize=resize,
        crop=(crop, crop) if isinstance(crop, int) else crop,
        interpolation=_interpolation(preset.interpolation),
        antialias=preset.antialias,
        rescale=1 / 255,
        mean=preset.mean,
        std=preset.std,
        crop_rounding="even",
    )


def _preset_size(value: Any) -> Any:
    """Return torchvision's size, where a list of one number means the same as the number."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
