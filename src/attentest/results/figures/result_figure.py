"""The figure of a result: image with attention and region, map, and the density whose dark share is p."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attentest.checks import positive_number
from attentest.errors import InputError
from attentest.results.figures.density_plot import draw_density
from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.overlay import draw_map, draw_overlay
from attentest.results.figures.title import shown_name, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from attentest.results.figures.picture import Picture

MM = 1 / 25.4
"""A millimetre in inches."""

WIDTH = 180.0
"""Usual width of a figure in mm: the text width of a page."""

NARROWEST, WIDEST = 60.0, 1000.0
"""Least and greatest width in mm in which everything can be read."""

NARROW = 120.0
"""A figure narrower than this, such as one of a column of 80 mm, has the density below the images."""

LETTER = 0.19
"""Mean width of a letter in mm per point of its size."""


def checked_width(width: float) -> float:
    """Return the width of a figure in mm; refuse one in which nothing can be read."""
    size = positive_number(width, "width")
    if not NARROWEST <= size <= WIDEST:
        raise InputError(f"width must be {NARROWEST:g} to {WIDEST:g} mm, got {size:g}.")
    return size


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places on a row of a figure, in mm: three panels of one width, with text above and below them."""

    width: float

    @property
    def narrow(self) -> bool:
        """Whether the density is below the images."""
        return self.width < NARROW

    @property
    def size(self) -> float:
        """Size of the text in points."""
        return 6.5 if self.narrow else 7.5

    @property
    def panel(self) -> float:
        """Width of a panel, which is also its height."""
        return (self.width - 14) / 2 if self.narrow else (self.width - 26) / 3

    @property
    def letters(self) -> int:
        """Letters in a line."""
        return int((self.width - 8) / (LETTER * self.size))

    @property
    def words(self) -> float:
        """Height of the verdict."""
        return 0.46 * self.size * (10 if self.narrow else 5)

    @property
    def height(self) -> float:
        """Height of the row."""
        return 18 + self.panel + 11 + (self.panel * 1.15 + 12 + 10 if self.narrow else 0) + self.words + 2

    @property
    def panels(self) -> list[tuple[float, float, float, float]]:
        """Left, bottom, width and height of image, map and density."""
        top, side = self.height - 18, self.panel
        first, second = (4.0, top - side, side, side), (10.0 + side, top - side, side, side)
        if self.narrow:
            return [first, second, (5.0, top - side - 22 - 1.15 * side, self.width - 10, 1.15 * side)]
        return [first, second, (self.width - 5 - side, top - side, side, side)]


def results_figure(pictures: Sequence[Picture], *, width: float = WIDTH, alpha: float = 0.05) -> Figure:
    """Draw a row for each tested image.

    Parameters
    ----------
    pictures
        Results with their images.
    width
        Width of the figure in mm; one narrower than 120 has the density below the images.
    alpha
        Significance level of the verdicts.
    """
    if not pictures:
        raise InputError("there is nothing to draw: give at least one result.")
    figure = new_figure(width * MM, Layout(width=width).height * MM * len(pictures))
    for row, picture in zip(figure.subfigures(len(pictures), 1, squeeze=False)[:, 0], pictures, strict=True):
        draw_row(row, picture, width=width, alpha=alpha)
    return figure


def draw_row(figure: FigureBase, picture: Picture, *, width: float, alpha: float) -> list[Axes]:
    """Draw a result on a figure of a width in mm, with its name above and the verdict in words below it."""
    layout = Layout(width=width)
    axes = [
        figure.add_axes((left / width, bottom / layout.height, wide / width, high / layout.height))
        for left, bottom, wide, high in layout.panels
    ]
    draw_panels(axes, picture, alpha=alpha, size=layout.size)
    left, name = 4 / width, shown_name(picture.title, int(0.58 * layout.letters))
    figure.text(left, 1 - 2 / layout.height, va="top", size=layout.size + 2, weight="bold", **name)
    sentences = picture.verdict(alpha), picture.difference_text, picture.contradiction_text(alpha)
    words = wrapped(" ".join(filter(None, sentences)), layout.letters)
    figure.text(left, (2 + layout.words) / layout.height, words, va="top", size=layout.size, linespacing=1.3)
    return axes


def draw_panels(axes: Iterable[Axes], picture: Picture, *, alpha: float, size: float = 8.0) -> None:
    """Draw image, map and density on three axes."""
    image_axes, map_axes, density_axes = axes
    draw_overlay(image_axes, picture)
    where = "image" if picture.randomised_image is None else "randomised image"
    image_axes.set_title(f"{where} and region:\n{picture.region_text}", size=size)
    shown = draw_map(map_axes, picture)
    map_axes.set_title("attention map", size=size)
    scale = map_axes.inset_axes((0.0, -0.06, 1.0, 0.03))
    map_axes.figure.colorbar(shown, cax=scale, orientation="horizontal")
    scale.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    draw_density(density_axes, picture, size=size)
    certified = "" if picture.certified_text is None else f"certified p {picture.certified_text}, "
    density_axes.set_title(
        f"{picture.short_verdict(alpha)}\nselective p {picture.pvalue_text}\n"
        f"{certified}naive p {picture.naive_text} (not valid)",
        size=size,
    )
