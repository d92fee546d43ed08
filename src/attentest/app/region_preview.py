"""The image with the outline of the region, drawn fast enough to follow a slider."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attentest.results.figures.palette import REGION_COLOUR

SIDE = 480
"""Length in pixels of the longer side of the picture, at least half of it and at most it."""

OUTLINE = 3
"""Width in pixels of the outline."""


def region_picture(image: NDArray[Any], region: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return an image (H, W) or (H, W, C), with the outline of a region (H, W), as a picture (h, w, 3)."""
    height, width = region.shape
    # Small images are enlarged by a whole factor, so that all of their pixels have the same size.
    factor = SIDE // max(height, width) or SIDE / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    method = Image.Resampling.NEAREST if factor >= 1 else Image.Resampling.BOX
    picture = np.array(Image.fromarray(shown_values(image)).convert("RGB").resize(size, method))
    inside = np.array(Image.fromarray(region).resize(size, Image.Resampling.NEAREST))
    picture[_outline(inside)] = [int(REGION_COLOUR[i : i + 2], 16) for i in (1, 3, 5)]
    return picture


def shown_values(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an image with its least value as black and its greatest as white, in 8 bits: (H, W) or (H, W, 3)."""
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values.mean(axis=2)
    low, high = float(values.min()), float(values.max())
    scaled = (values / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)  # halves, because a difference may overflow
    return np.asarray(np.round(255 * scaled), dtype=np.uint8)


def data_address(picture: NDArray[np.uint8]) -> str:
    """Return a picture (h, w, 3) as an address that holds the picture itself."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return png_address(file.getvalue())


def png_address(png: bytes) -> str:
    """Return the bytes of a PNG file as an address that holds them."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _outline(inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels inside that are near the outside or the border of the picture."""
    padded = np.pad(inside, OUTLINE)
    core = inside.copy()
    height, width = inside.shape
    for down in range(2 * OUTLINE + 1):
        for right in range(2 * OUTLINE + 1):
            core &= padded[down : down + height, right : right + width]
    return inside & ~core
