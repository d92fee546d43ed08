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

PRESET_ATTRIBUTES = ("crop_size", "resize_size", "interpolation", "antialias", "mean", "std")
TIMM_KEYS = ("input_size", "interpolation", "mean", "std", "crop_pct")
NESTING_KEYS = ("image_processor", "data_config", "pretrained_cfg")
"""Keys under which files of processors, of timm models in transformers and of timm models nest the settings."""

SUFFIXES = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")

CROPS_A_SHARE, LEAST_STRETCHED = "ConvNext", 384
"""The processor that resizes to a size over crop_pct and crops that, and the size from which it stretches images."""

LINEAR_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
HARMLESS_STEPS = ("do_convert_rgb", "do_reduce_labels")
"""Steps that can be ignored: colours are for the caller to convert, and labels are not images."""
UNKNOWN_SETTINGS = (
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
_SHORTEST = {"default_to_square": False}
_CROP = {**_SHORTEST, "do_center_crop": True, "crop_size": 224}
_CLIP = {**_STEPS_ON, **_OPENAI, **_CROP, "size": 224, "resample": 3}
_MOBILE = {**_STEPS_ON, **_STANDARD, **_CROP, "size": 256, "resample": 2}

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
    "ConvNext": {**_STEPS_ON, **_STANDARD, **_SHORTEST, "size": 384, "resample": 3, "crop_pct": 224 / 256},
    "MobileNetV1": _MOBILE,
    "MobileNetV2": _MOBILE,
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
        return processor_settings(settings) if _nested(settings) is not None else _from_settings(settings)
    if all(hasattr(processor, name) for name in PRESET_ATTRIBUTES):
        return _from_torchvision_preset(processor)
    raise InputError(
        f"preprocessing must be an image processor or its configuration, a timm data configuration or a torchvision "
        f"preset, got {type(processor).__name__}: {BY_HAND}."
    )


def _from_mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for a configuration, in which values may be missing."""
    inner = _nested(mapping)
    if inner is not None:
        return _from_mapping(inner)
    if "input_size" in mapping:
        return _from_timm_config(mapping)
    if not any(key in mapping for key in (*LINEAR_STEPS, "image_processor_type", "feature_extractor_type")):
        raise InputError(
            f"the mapping with the keys {', '.join(map(str, mapping)) or '(none)'} is neither the configuration of an "
            f"image processor nor a timm data configuration: {BY_HAND}."
        )
    settings = {key: value for key, value in mapping.items() if value is not None}
    family = _family(settings)
    defaults = {"do_rescale": settings.get("do_normalize")} if family is None else CLASS_DEFAULTS[family]
    return _from_settings({**defaults, **settings})


def _nested(mapping: Mapping[str, Any]) -> Mapping[str, Any] | None:
    nested = (mapping.get(key) for key in NESTING_KEYS)
    return next((inner for inner in nested if isinstance(inner, Mapping)), None)


def _family(settings: Mapping[str, Any]) -> str | None:
    """Return the class of an image processor without its suffix, None if the settings name none.

    Raise an error if it takes a step that is not known here.
    """
    named = settings.get("image_processor_type") or settings.get("feature_extractor_type")
    for key, value in settings.items():
        step = str(key).startswith("do_") and key not in (*LINEAR_STEPS, *HARMLESS_STEPS)
        known = key == "crop_pct" and str(named).startswith(CROPS_A_SHARE)
        if value and (step or key in UNKNOWN_SETTINGS) and not known:
            raise InputError(
                f"the image processor has {key} set to {value!r}, a step that attentest does not know: {BY_HAND}."
            )
    if named is None:
        return None
    for suffix in SUFFIXES:
        family = str(named).removesuffix(suffix)
        if family != named and family in CLASS_DEFAULTS:
            return family
    raise InputError(
        f"the image processor {named} is not known to only resize, crop, rescale and normalise, as those of "
        f"{', '.join(CLASS_DEFAULTS)} do: {BY_HAND}."
    )


def _from_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for the complete settings of an image processor of transformers."""
    family = _family(settings)  # raises an error for one that is not known
    parameters: dict[str, Any] = {}
    if _is_on(settings, "do_resize"):
        square = settings.get("default_to_square") is not False
        filter_code = settings.get("resample")
        parameters["resize"] = _size(settings, "do_resize", "size", square)
        parameters["interpolation"] = _interpolation(2 if filter_code is None else filter_code)
        if family == CROPS_A_SHARE:
            parameters |= _share_of(parameters["resize"], positive_number(settings.get("crop_pct"), "crop_pct"))
    if _is_on(settings, "do_center_crop"):
        parameters["crop"] = crop = _size(settings, "do_center_crop", "crop_size", square=True)
        if isinstance(crop, int):
            raise InputError(f"crop_size of an image processor must have height and width, got shortest_edge {crop}.")
    if _is_on(settings, "do_rescale"):
        factor = settings.get("rescale_factor")
        parameters["rescale"] = 1 / 255 if factor is None else factor
    if _is_on(settings, "do_normalize"):
        for name in ("mean", "std"):
            value = _required(settings, "do_normalize", f"image_{name}")
            parameters[name] = value if isinstance(value, (Sequence, np.ndarray, Tensor)) else (value,)
    return parameters


def _share_of(side: Any, share: float) -> dict[str, Any]:
    """Return how ConvNeXt's processor makes a square: the middle share of the image, or for large ones all of it."""
    if not isinstance(side, int):
        raise InputError(f"size of a ConvNeXt image processor must have shortest_edge alone, got {side}.")
    whole = side >= LEAST_STRETCHED
    return {"resize": (side, side)} if whole else {"resize": int(side / share), "crop": (side, side)}


def _is_on(settings: Mapping[str, Any], step: str) -> bool:
    value = settings.get(step)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InputError(f"{step} of an image processor must be true or false, got {value!r}.")


def _required(settings: Mapping[str, Any], step: str, key: str) -> Any:
    value = settings.get(key)
    if value is None:
        raise InputError(f"the image processor has {step} on, but {key} is missing: add it or switch {step} off.")
    return value


def _size(settings: Mapping[str, Any], step: str, key: str, square: bool) -> tuple[int, int] | int:
    """Return a size, (height, width) or the shortest side; a single number is the side of a square if it says so."""
    value = _required(settings, step, key)
    if isinstance(value, Mapping):
        sides = {name: side for name, side in value.items() if side is not None}
        if set(sides) == {"height", "width"}:
            return checked_pair((sides["height"], sides["width"]), key)
        if set(sides) == {"shortest_edge"}:
            return checked_side(sides["shortest_edge"], f"shortest_edge of {key}")
        raise InputError(
            f"{key} of an image processor must have height and width, or shortest_edge, got "
            f"{', '.join(map(str, sides)) or 'nothing'}: {BY_HAND}."
        )
    if isinstance(value, (list, tuple)):
        return checked_pair(value, key)
    side = checked_side(value, key)
    return (side, side) if square else side


def _interpolation(value: Any) -> str:
    """Return the name of a filter given by Pillow's code, by name or by torchvision's enumeration."""
    named = getattr(value, "value", value)
    if isinstance(named, str):
        return named
    code = whole_number(named, "resample, the code of one of Pillow's filters,", 0, len(PIL_FILTERS) - 1)
    return PIL_FILTERS[code]


def _from_timm_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of timm's evaluation transform: resize to size / crop_pct, crop, scale, normalise."""
    for key in TIMM_KEYS:
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
    """Return the parameters of a preset of torchvision, in whose sizes a list of one number stands for the number."""
    resize, crop = (
        size[0] if isinstance(size, (list, tuple)) and len(size) == 1 else size
        for size in (preset.resize_size, preset.crop_size)
    )
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
