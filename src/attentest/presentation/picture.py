"""The image of a result with its attention map and the outline of its region, on axes and as pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.presentation.figure import OTHER_COLOUR, REGION_COLOUR
from attentest.record import ResultRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A tested image with its attention map and region, and the numbers of its result.

    Parameters
    ----------
    record
        The numbers.
    image : (H, W) or (H, W, C)
        The tested image.
    attention : (H, W)
        The attention map, from 0 to 1.
    region, part : (H, W) bool
        The attention region, and the part of it that was compared.
    randomised_image : (H, W) or (H, W, C)
        The image on which the region was chosen, if that is another one and known.
    title
        Name of the image.
    """

    record: ResultRecord
    image: NDArray[Any]
    attention: NDArray[Any]
    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    randomised_image: NDArray[Any] | None = None
    title: str = ""

    @property
    def chosen_on(self) -> NDArray[Any]:
        """The image on which the region was chosen."""
        return self.image if self.randomised_image is None else self.randomised_image


MAP_COLOURS = "viridis"
"""Colours of attention: even in lightness, and told apart with any colour vision."""

MOST_OPAQUE = 0.55
"""Opacity of the overlay where the attention is greatest; where it is zero, the image is seen as it is."""

CLIPPED = 0.5
"""Percent of the pixels at either end that are shown black or white, so that a few extreme ones hide nothing."""


def draw_overlay(axes: Axes, picture: Picture, *, outline_width: float = 1.6) -> None:
    """Draw the image that the region was chosen on, the attention over it, and the outline of the region."""
    draw_image(axes, picture.chosen_on)
    attention = np.clip(picture.attention, 0.0, 1.0)
    axes.imshow(attention, cmap=MAP_COLOURS, vmin=0, vmax=1, alpha=MOST_OPAQUE * attention, interpolation="nearest")
    _draw_region(axes, picture, outline_width)


def draw_image(axes: Axes, image: NDArray[Any]) -> None:
    """Draw an image (H, W) or (H, W, C) without axes."""
    axes.imshow(displayed(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    _without_ticks(axes)


def draw_map(axes: Axes, picture: Picture) -> AxesImage:
    """Draw the attention map with the outline of the region; return what a colour bar needs."""
    shown = axes.imshow(picture.attention, cmap=MAP_COLOURS, vmin=0, vmax=1, interpolation="nearest")
    _draw_region(axes, picture, 0.9)
    _without_ticks(axes)
    return shown


def _draw_region(axes: Axes, picture: Picture, width: float) -> None:
    """Draw the outline of the compared part, and that of the rest of the region in another colour."""
    if not np.array_equal(picture.part, picture.region):
        draw_outline(axes, picture.region & ~picture.part, OTHER_COLOUR, width=width / 2)
    draw_outline(axes, picture.part, width=width)


def draw_outline(axes: Axes, region: NDArray[np.bool_], colour: str = REGION_COLOUR, width: float = 2.5) -> None:
    """Draw the border of a region (H, W) along pixel edges, with a white rim for dark images; width in points."""
    from matplotlib.collections import LineCollection

    padded = np.pad(region, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    horizontal = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    vertical = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in zip(rows, columns, strict=True)]
    for line_colour, line_width in (("white", 1.8 * width), (colour, width)):
        axes.add_collection(
            LineCollection(horizontal + vertical, colors=line_colour, linewidths=line_width, capstyle="round")
        )


def displayed(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return an image (H, W), (H, W, 1) or (H, W, C) with values from 0 to 1: grey, or the first three channels."""
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values[..., :3] if values.shape[2] > 3 else values.mean(axis=2)
    low, high = np.percentile(values, [CLIPPED, 100 - CLIPPED])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return np.asarray(np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0))


ATTENTION_COLOUR = (253, 231, 37)
"""The colour of the greatest attention, the last one of the colour map: pixels are tinted without Matplotlib."""

RIM = 1
"""Width in pixels of the white rim around an outline, for dark images."""


def overlay_pixels(
    image: NDArray[np.float64],
    attention: NDArray[np.float64],
    region: NDArray[np.bool_],
    part: NDArray[np.bool_],
    side: int,
) -> NDArray[np.uint8]:
    """Return an image tinted by attention, with the outline of its region: pixels (h, w, 3) of a length of longer side.

    Parameters
    ----------
    image : (H, W) or (H, W, 3)
        The image, from 0 to 1.
    attention : (H, W)
        The attention map, from 0 to 1.
    region, part : (H, W) bool
        The region, and its compared part, whose outline is thicker.
    side
        Length of the longer side in pixels.
    """
    colours = 255 * (np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else image)
    opacity = MOST_OPAQUE * np.clip(attention, 0.0, 1.0)[..., None]
    pixels = resized(((1 - opacity) * colours + opacity * ATTENTION_COLOUR).astype(np.uint8), side)
    thin = max(1, side // 200)
    if not np.array_equal(region, part):
        outline_pixels(pixels, region, thin)
    outline_pixels(pixels, part, thin + 1, RIM)
    return pixels


def outline_pixels(pixels: NDArray[np.uint8], region: NDArray[np.bool_], thickness: int, rim: int = 0) -> None:
    """Draw the border of a region (H, W) within it on pixels (h, w, 3), with a white rim around it."""
    from scipy.ndimage import binary_dilation, binary_erosion

    square = np.ones((3, 3), dtype=np.bool_)  # lines are as wide around corners as along edges
    inside = resized(region, max(pixels.shape))
    if rim:
        pixels[binary_dilation(inside, square, rim) & ~inside] = 255
    pixels[inside & ~binary_erosion(inside, square, thickness)] = tuple(bytes.fromhex(REGION_COLOUR[1:]))


def resized(pixels: NDArray[Any], side: int) -> NDArray[Any]:
    """Return a picture (H, W) or (H, W, 3) whose longer side has so many pixels; those of masks are not mixed."""
    from PIL import Image

    height, width = pixels.shape[:2]
    scale = side / max(height, width)
    size = max(1, round(scale * width)), max(1, round(scale * height))
    method = Image.Resampling.NEAREST if pixels.dtype == np.bool_ else Image.Resampling.BOX
    return np.array(Image.fromarray(pixels).resize(size, method))


def _without_ticks(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
