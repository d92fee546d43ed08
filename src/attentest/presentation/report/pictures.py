"""The pictures of a report's cards as small PNG files: image with attention and region, map, density."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import binary_dilation, binary_erosion

from attentest.presentation.figure import REGION_COLOUR, new_figure
from attentest.presentation.picture import MAP_COLOURS, MOST_OPAQUE
from attentest.presentation.report.tested_batch import SmallPicture, TestedBatch
from attentest.presentation.result_figure import draw_density
from attentest.record import ResultRecord

WIDTH, HEIGHT = 3.5, 2.7
"""Size in inches."""

DPI = 180
"""Pixels per inch: sharp on a screen of twice the usual resolution, and on paper."""

COLOURS = 48
"""Colours of the file, which has few of its own: this keeps it small."""


class DensityImages:
    """Draws one density after the other on the same figure: a new one for each would take longer."""

    def __init__(self) -> None:
        self._figure = new_figure(WIDTH, HEIGHT)
        self._figure.set_layout_engine("none")

    def png(self, record: ResultRecord) -> bytes:
        """Return the density of a result."""
        import matplotlib as mpl

        with mpl.rc_context(mpl.rcParamsDefault):  # black on white, whatever the user's own style
            self._figure.clear()
            draw_density(self._figure.add_axes((0.04, 0.1, 0.92, 0.86)), record, size=8.5)
            drawn = io.BytesIO()
            self._figure.savefig(drawn, format="png", dpi=DPI, facecolor="white")
        content = io.BytesIO()
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(content, "PNG", optimize=True)
        return content.getvalue()


SHARP_SIDE = 256
"""Small images are enlarged to about so many pixels, so that the outline of the region is finer than they are."""

SQUARE = np.ones((3, 3), dtype=np.bool_)
"""A pixel and its eight neighbours: lines are as wide around corners as along edges."""

CARD_IMAGES_COLOURS = 128
"""Most colours of a picture that is too large to be enlarged, which keeps its file small."""


def overlay_png(picture: SmallPicture, part: int | None = None) -> bytes:
    """Return the image with the attention over it and the outline of its region, or of one compared part thick."""
    grey = picture.image if picture.image.ndim == 3 else np.repeat(picture.image[..., None], 3, axis=2)
    share = (MOST_OPAQUE * picture.attention / 255.0)[..., None]
    mixed = (1 - share) * grey + share * map_colours()[picture.attention]
    region, outlined = picture.parts > 0, picture.parts > 0 if part is None else picture.parts == part
    pixels = _enlarged(np.rint(mixed).astype(np.uint8))
    thin = max(1, max(pixels.shape) // 200)
    if part is not None:
        _draw_outline(pixels, _enlarged(region), thin, rim=0)
    _draw_outline(pixels, _enlarged(outlined), thin + 1, rim=1)
    return _png(pixels)


def map_png(picture: SmallPicture) -> bytes:
    """Return the attention map with a thin outline of the region."""
    pixels = _enlarged(map_colours()[picture.attention])
    _draw_outline(pixels, _enlarged(picture.parts > 0), max(1, max(pixels.shape) // 200), rim=0)
    return _png(pixels)


def map_colours() -> NDArray[np.uint8]:
    """Return the colours (256, 3) of attention from 0 to its maximum."""
    from matplotlib import colormaps

    return np.asarray(colormaps[MAP_COLOURS](np.arange(256), bytes=True)[:, :3])


def _enlarged(pixels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return an image with each pixel as a square of pixels, if it is small."""
    times = max(1, SHARP_SIDE // max(pixels.shape[:2]))
    return np.repeat(np.repeat(pixels, times, axis=0), times, axis=1)


def _draw_outline(pixels: NDArray[np.generic], region: NDArray[np.generic], thick: int, rim: int) -> None:
    """Draw the border of a region (h, w) on pixels (h, w, 3), with a white rim on both sides for dark images."""
    outside = np.pad(region.astype(np.bool_), 1)
    for width, colour in ((thick + 2 * rim, "#ffffff"), (thick, REGION_COLOUR)):
        grown = binary_dilation(outside, SQUARE, iterations=width // 2) if width > 1 else outside
        shrunk = binary_erosion(outside, SQUARE, iterations=(width + 1) // 2)
        pixels[(grown & ~shrunk)[1:-1, 1:-1]] = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


def _png(pixels: NDArray[np.generic]) -> bytes:
    picture = Image.fromarray(pixels)
    if max(pixels.shape) > SHARP_SIDE:
        picture = picture.quantize(CARD_IMAGES_COLOURS)
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return content.getvalue()


class CardPictures:
    """Draws pictures one after the other and holds them by the number of the result in the table."""

    def __init__(self, batch: TestedBatch) -> None:
        self._batch = batch
        self._densities = DensityImages()
        self.drawn: dict[int, dict[str, bytes]] = {}

    def draw(self, number: int, place: int, part: int | None, record: ResultRecord) -> None:
        """Draw the density of a result, and the image and the map if there is a picture of them."""
        small = self._batch.picture(place)
        images = {} if small is None else {"overlay": overlay_png(small, part), "map": map_png(small)}
        self.drawn[number] = {**images, "density": self._densities.png(record)}
