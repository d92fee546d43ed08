"""The noise that a test assumed, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def noise_words(noise: Mapping[str, Any]) -> str:
    """Return a noise model in a sentence, from its description (``noise.describe()``)."""
    return f"{_model(noise)}{_origin(noise)}."


def _model(noise: Mapping[str, Any]) -> str:
    name = noise.get("model", "")
    try:
        if name == "isotropic":
            return f"Independent between pixels, with a standard deviation of {_number(noise['sigma'])}"
        if name == "ar1":
            return (
                f"A standard deviation of {_number(noise['sigma'])}, and a correlation of "
                f"{_number(noise['rho'])} to the power of the distance between two pixels in reading order"
            )
        if name in ("stationary", "locally stationary"):
            height, width = noise["lags"]
            deviation = f"of {_number(noise['sigma'])}"
            if name == "locally stationary":
                deviation = "from {} to {}, by the place in the image".format(*map(_number, noise["sigmas"]))
            return (
                f"A standard deviation {deviation}, and a correlation that depends only on how far "
                f"apart two pixels are, up to {height} rows and {width} columns"
            )
        if name == "diagonal":
            return f"Independent between pixels, with a standard deviation of its own for each of {noise['size']:,}"
        if name == "dense":
            return f"A covariance matrix of all {noise['size']:,} pixel values"
        if name == "per channel":
            within = _lower(_model(noise["spatial"]))
            return f"Channels with the covariance {json.dumps(noise['channels'])}, and within each channel: {within}"
        if name == "averaged":
            return f"That of the mean of {noise['count']} images, each with this noise: {_lower(_model(noise['of']))}"
        if name == "scaled":
            return f"{_number(noise['factor'])} times as large as this noise: {_lower(_model(noise['of']))}"
        if name == "own gain":
            return f"Scaled by the gain of each image, from this noise: {_lower(_model(noise['of']))}"
        if name == "from image":
            return "Independent between pixels, with a standard deviation of its own for each image"
    except (KeyError, TypeError, ValueError):  # a record of another version
        pass
    return f"The model {name!r} with {json.dumps(dict(noise), sort_keys=True)}"


def _origin(noise: Mapping[str, Any]) -> str:
    if noise.get("approximate"):
        method = f" ({noise['method']})" if noise.get("method") else ""
        return f"; estimated from the tested image itself{method}, so that p is approximate"
    if noise.get("estimator"):
        count = noise.get("images")
        images = "reference images" if count is None else f"{count} reference image{'s' if count != 1 else ''}"
        return f"; estimated from {images} ({noise['estimator']}), and the test does not know that it is an estimate"
    return "; given, not estimated by attentest" if noise.get("model") else ""


def _number(value: Any) -> str:
    return f"{float(value):.6g}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
