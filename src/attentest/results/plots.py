"""The plot methods of a result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from attentest.checks import level
from attentest.presentation.figure import axes_or_new, checked_axes, shown_figure
from attentest.presentation.picture import Picture, draw_overlay
from attentest.presentation.result_figure import MM, Layout, checked_width, draw_density, draw_panels, draw_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ResultPlots(ABC):
    """Something with a picture, and the ways to draw it."""

    @abstractmethod
    def picture(self, title: str = "") -> Picture:
        """Return everything that a picture of the result shows."""

    def plot(
        self, axes: Sequence[Axes] | None = None, *, title: str = "", alpha: float = 0.05, width: float = 180.0
    ) -> list[Axes]:
        """Draw the image with attention and region, the attention map, and the density whose dark share is p.

        Colours of background and text are those of Matplotlib's style: ``plt.style.context("dark_background")`` makes a
        dark figure. Needs Matplotlib (``pip install 'attentest[plots]'``).

        Parameters
        ----------
        axes
            Three axes to draw on; by default those of a new figure, which also has the verdict in words.
        title
            Name of the image, for a new figure.
        alpha
            Significance level of the verdict.
        width
            Width of a new figure in mm: 180 for a page, 80 for a column, in which the density is below the images.

        Returns
        -------
        list of Axes
            Those of image, map and density.
        """
        if axes is None:
            size = checked_width(width)
            figure = shown_figure(size * MM, Layout(width=size).height * MM, arranged=False)
            return draw_row(figure, self.picture(title), width=size, alpha=level(alpha))
        given = checked_axes(axes, 3)
        draw_panels(given, self.picture(title), alpha=level(alpha))
        return given

    def overlay(self, ax: Axes | None = None, *, title: str = "") -> Axes:
        """Draw the image with the attention over it and the outline of the region.

        Parameters
        ----------
        ax
            Where to draw; by default on a new figure.
        title
            Title of the axes, taken literally.
        """
        axes = axes_or_new(ax, 3.2, 3.2)
        draw_overlay(axes, self.picture(title))
        axes.set_title(title, parse_math=False)
        return axes

    def density_plot(self, ax: Axes | None = None) -> Axes:
        """Draw the density of the statistic given the selection, whose dark share is p, and the interval below it.

        Parameters
        ----------
        ax
            Where to draw; by default on a new figure. The axes become a frame, and the plots are its ``child_axes``.
        """
        axes = axes_or_new(ax, 3.6, 3.2)
        draw_density(axes, self.picture())
        return axes
