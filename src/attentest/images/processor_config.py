"""Settings of image processors, data configurations and presets, read without importing their libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from attentest.checks import positive_number, whole_number
from attentest.errors import InputError
from attentest.images.resize_matrix import checked_pair, checked_side

BY_HAND = "describe what the model expects with Preprocessing(...) instead"
"""What to do about settings that cannot be read, for error messages."""

PIL_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters, in the order of their codes in configurations."""

_PRESET_ATTRIBUTES = ("crop_size", "resize_size", "interpolation", "antialias", "mean", "std")
_TIMM_KEYS = ("input_size", "interpolation", "mean", "std", "crop_pct")
_NESTING_KEYS = ("image_processor", "data_config", "pretrained_cfg")
"""Keys under which files of processors, of timm models in transformers and of timm models nest the settings."""

_SUFFIXES = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")

_LINEAR_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
_HARMLESS_STEPS = ("do_convert_rgb", "do_reduce_labels")
"""Steps that can be ignored: colours are for the caller to convert, and labels are not images."""
_UNKNOWN_SETTINGS = (
    "crop_pct",
    "image_grid_pinpoints",
    "keep_aspect_ratio",
    "max_image_tiles",
    "rescale_offset",
    "size_divisor",
    "use_square_size",
)
"""Settings that change the effect of the steps, in processors whose class is not named."""

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


def processor_settings(processor: Any) -> dict[str, Any]:
    """Return the parameters of the ``Preprocessing`` that an image processor or its configuration describes."""
    if isinstance(processor, Mapping):
        return _from_mapping(processor)
    inner = getattr(processor, "image_processor", None)
    if inner is not None:
        return processor_settings(inner)
    if callable(getattr(processor, "to_dict", None)):
        settings = processor.to_dict()
        return _from_mapping(settings) if _nested(settings) is not None else _from_settings(settings)
    if all(hasattr(processor, name) for name in _PRESET_ATTRIBUTES):
        return _from_torchvision_preset(processor)
    raise InputError(
        f"preprocessing must be an image processor or its configuration, a timm data configuration or a torchvision "
        f"preset, got {type(processor).__name__}: {BY_HAND}."
    )


def _from_mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
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
    """Return the class of an image processor without its suffix, None if the settings name none."""
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


def _from_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for the complete settings of an image processor of transformers."""
    _refuse_unknown_steps(settings)
    _family(settings)
    resizes, crops, rescales, normalises = (_switch(settings, step) for step in _LINEAR_STEPS)
    square = settings.get("default_to_square") is not False
    filter_code, factor = settings.get("resample"), settings.get("rescale_factor")
    return dict(
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
            return checked_pair((given["height"], given["width"]), key)
        if set(given) == {"shortest_edge"}:
            return checked_side(given["shortest_edge"], f"shortest_edge of {key}")
        raise InputError(
            f"{key} of an image processor must have height and width, or shortest_edge, got "
            f"{', '.join(map(str, given)) or 'nothing'}: {BY_HAND}."
        )
    if isinstance(value, (list, tuple)):
        return checked_pair(value, key)
    side = checked_side(value, key)
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


def _from_timm_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of timm's evaluation transform: resize to size / crop_pct, crop, scale, normalise."""
    for key in _TIMM_KEYS:
        if config.get(key) is None:
            raise InputError(
                f"the timm data configuration has no {key}: take the one that "
                "timm.data.resolve_model_data_config(model) returns."
            )
    size = config["input_size"]
    if not isinstance(size, Sequence) or len(size) != 3:
        raise InputError(f"input_size of a timm data configuration must be (channels, height, width), got {size!r}.")
    crop = checked_pair(tuple(size[1:]), "input_size")
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
    return dict(
        resize=height if mode == "center" else (height, width),
        crop=crop,
        interpolation=_interpolation(config["interpolation"]),
        rescale=1 / 255,
        mean=config["mean"],
        std=config["std"],
        crop_rounding="even",
    )


def _from_torchvision_preset(preset: Any) -> dict[str, Any]:
    resize, crop = _preset_size(preset.resize_size), _preset_size(preset.crop_size)
    return dict(
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
    """Return a size of torchvision, in which a list of one number stands for the number."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
