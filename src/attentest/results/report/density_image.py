"""The density whose dark share is p, with the confidence interval below it, as a small PNG file."""

from __future__ import annotations

import io

from attentest.results.figures.density_plot import draw_density
from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.picture import Picture

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

    def png(self, picture: Picture) -> bytes:
        """Return the density of a picture."""
        import matplotlib as mpl
        from PIL import Image

        with mpl.rc_context(mpl.rcParamsDefault):  # black on white, whatever the user's own style
            self._figure.clear()
            draw_density(self._figure.add_axes((0.04, 0.1, 0.92, 0.86)), picture, size=8.5)
            drawn = io.BytesIO()
            self._figure.savefig(drawn, format="png", dpi=DPI, facecolor="white")
        content = io.BytesIO()
        Image.open(drawn).convert("RGB").quantize(COLOURS).save(content, "PNG", optimize=True)
        return content.getvalue()
