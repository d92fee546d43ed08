"""A sheet of many tested images, those with the smallest p-values first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from attentest.errors import InputError, counted
from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.overlay import draw_overlay
from attentest.results.figures.palette import EXTREME_COLOUR, GREY, ORANGE
from attentest.results.figures.title import shown_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from attentest.results.figures.picture import Picture

MOST = 24
"""Usual number of images on a sheet."""

COLUMNS = 6
"""Most images in a row."""

CELL = 1.25, 1.56
"""Width and height of an image with its text, in inches."""

FRAMES = {True: EXTREME_COLOUR, False: GREY, None: ORANGE}
"""Colours of the frames of significant, other and undecided images."""

NAME_LETTERS = 18


def contact_sheet(pictures: Sequence[Picture], *, total: int | None = None, alpha: float = 0.05) -> Figure:
    """Draw tested images in the order of their p-values.

    Parameters
    ----------
    pictures
        Results with their images, in any order.
    total
        Number of images of which these are the ones with the smallest p-values, if there are more.
    alpha
        Significance level of the verdicts.
    """
    if not pictures:
        raise InputError("there is nothing to draw: give at least one result.")
    figure = new_figure(*sheet_size(len(pictures)))
    draw_sheet(figure, pictures, total=total, alpha=alpha)
    return figure


def sheet_size(count: int) -> tuple[float, float]:
    """Return the width and height in inches of a sheet of so many images."""
    columns = min(COLUMNS, max(count, 3))
    return columns * CELL[0], math.ceil(count / columns) * CELL[1] + 0.3


def draw_sheet(
    figure: FigureBase, pictures: Sequence[Picture], *, total: int | None, alpha: float, of: str = "image"
) -> list[Axes]:
    """Draw a sheet on a figure, and return the axes of its images; ``of`` is what each shows, in the singular."""
    ordered = sorted(pictures, key=lambda picture: float(picture.values["log_pvalue"]))
    columns = min(COLUMNS, max(len(ordered), 3))
    grid = figure.subplots(math.ceil(len(ordered) / columns), columns, squeeze=False)
    cells: list[Axes] = list(np.ravel(grid))
    for axes, picture in zip(cells, ordered, strict=False):
        draw_overlay(axes, picture, outline_width=1.0)
        colour = FRAMES[picture.decision(alpha)]
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=2.0)
        name = shown_name(picture.title, NAME_LETTERS)
        axes.set_title(name.pop("s"), size=7, pad=3, **name)
        axes.set_xlabel(f"p {picture.pvalue_text}", size=7, labelpad=3)
    for axes in cells[len(ordered) :]:
        axes.set_axis_off()
    significant = sum(picture.decision(alpha) is True for picture in ordered)
    more = "" if total in (None, len(ordered)) else f" with the smallest p of {total:,}"
    figure.suptitle(
        f"{counted(len(ordered), of)}{more}, by selective p; blue frame: significant at {alpha:g} ({significant})",
        size=8,
    )
    return cells[: len(ordered)]
