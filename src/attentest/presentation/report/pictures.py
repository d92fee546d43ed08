"""The pictures of a report's cards as small PNG files: image with attention and region, map, density."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from attentest.presentation.figure import new_figure
from attentest.presentation.picture import MAP_COLOURS, outline_pixels, overlay_pixels, resized
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
"""Small images are enlarged to so many pixels, so that the outline of the region is finer than they are."""

CARD_IMAGES_COLOURS = 128
"""Most colours of a picture that is too large to be enlarged, which keeps its file small."""


def overlay_png(picture: SmallPicture, part: int | None = None) -> bytes:
    """Return the image with the attention over it and the outline of its region, or of one compared part thick."""
    region = picture.parts > 0
    outlined = region if part is None else picture.parts == part
    return _png(overlay_pixels(picture.image / 255.0, picture.attention / 255.0, region, outlined, _side(picture)))


def map_png(picture: SmallPicture) -> bytes:
    """Return the attention map with a thin outline of the region."""
    from matplotlib import colormaps

    colours = np.asarray(colormaps[MAP_COLOURS](picture.attention, bytes=True)[..., :3])
    pixels = resized(colours, _side(picture))
    outline_pixels(pixels, picture.parts > 0, max(1, max(pixels.shape) // 200))
    return _png(pixels)


def _side(picture: SmallPicture) -> int:
    return int(max(SHARP_SIDE, *picture.parts.shape))


def _png(pixels: NDArray[np.uint8]) -> bytes:
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
