"""The shape of an image that is asked for, within the bounds of images that are read."""

from __future__ import annotations

import math
from typing import Any

from attentest.checks import whole_number
from attentest.errors import InputError
from attentest.images.image_file import MAX_PIXELS

LARGEST_SIDE = 2**20
"""Largest side of an image: a larger one is a mistake."""


def as_shape(shape: Any) -> tuple[int, int, int]:
    """Return the (C, H, W) of ``image_shape``, which is (H, W) or (C, H, W); refuse more values than an image has."""
    if not isinstance(shape, tuple) or len(shape) not in (2, 3):
        raise InputError(f"image_shape must be (H, W) or (C, H, W), got {shape!r}.")
    sides = [whole_number(side, "a side in image_shape", 1, LARGEST_SIDE) for side in shape]
    if math.prod(sides) > MAX_PIXELS:
        product = " x ".join(str(side) for side in sides)
        raise InputError(
            f"image_shape must have at most {MAX_PIXELS} values, as many as an image that is read, but {product} has "
            f"{math.prod(sides)}: give smaller sides."
        )
    channels, height, width = sides if len(sides) == 3 else (1, *sides)
    return channels, height, width
