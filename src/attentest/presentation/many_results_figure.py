"""Figures of many results: a sheet of tested images, and their p-values in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, counted
from attentest.presentation.figure import EXTREME_COLOUR, GREY, NAIVE_COLOUR, ORANGE, new_figure, shown_name
from attentest.presentation.picture import Picture, draw_overlay
from attentest.presentation.words import selective_p

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase


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
    ordered = sorted(pictures, key=lambda picture: picture.record.log_pvalue)
    columns = min(COLUMNS, max(len(ordered), 3))
    grid = figure.subplots(math.ceil(len(ordered) / columns), columns, squeeze=False)
    cells: list[Axes] = list(np.ravel(grid))
    for axes, picture in zip(cells, ordered, strict=False):
        draw_overlay(axes, picture, outline_width=1.0)
        colour = FRAMES[picture.record.reject_at(alpha)]
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=2.0)
        name = shown_name(picture.title, NAME_LETTERS)
        axes.set_title(name.pop("s"), size=7, pad=3, **name)
        axes.set_xlabel(f"p {selective_p(picture.record)}", size=7, labelpad=3)
    for axes in cells[len(ordered) :]:
        axes.set_axis_off()
    significant = sum(picture.record.reject_at(alpha) is True for picture in ordered)
    more = "" if total in (None, len(ordered)) else f" with the smallest p of {total:,}"
    figure.suptitle(
        f"{counted(len(ordered), of)}{more}, by selective p; blue frame: significant at {alpha:g} ({significant})",
        size=8,
    )
    return cells[: len(ordered)]


FEW_POINTS = 100
"""Up to this many p-values are drawn as points."""


def draw_pvalues(
    axes: Axes, pvalues: NDArray[np.float64], naive: NDArray[np.float64], adjusted: NDArray[np.float64], alpha: float
) -> None:
    """Draw sorted p-values against their ranks.

    Without any true difference the selective ones follow the diagonal. Those below the line of Benjamini and Hochberg,
    up to the last one below it, are rejected.

    Parameters
    ----------
    axes
        Where to draw.
    pvalues, naive, adjusted : (n,)
        Selective p-values, those that ignore the selection, and the selective ones adjusted by Benjamini and Hochberg.
    alpha
        Significance level, and false discovery rate of the line.
    """
    count = len(pvalues)
    ranks = np.arange(1, count + 1)
    marker = {"marker": "o", "ms": 4.0} if count <= FEW_POINTS else {}
    axes.plot([0, count], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)), label="no true difference anywhere")
    axes.plot(ranks, np.sort(naive), color=NAIVE_COLOUR, lw=1, alpha=0.8, label="naive (not valid)", **marker)  # type: ignore[arg-type]
    axes.plot(ranks, np.sort(pvalues), color=EXTREME_COLOUR, lw=1.6, label="selective", **marker)  # type: ignore[arg-type]
    axes.plot([0, count], [0, alpha], color=GREY, lw=1, label=f"Benjamini-Hochberg at {alpha:g}")
    axes.set(xlim=(0, count + 0.5), ylim=(-0.02, 1.02), xlabel="rank", ylabel="p-value")
    axes.set_title(
        f"{counted(count, 'image')}: {int(np.sum(pvalues <= alpha))} with p at most {alpha:g}, "
        f"{int(np.sum(adjusted <= alpha))} after adjustment",
        size="medium",
    )
    axes.legend(fontsize="small", loc="upper left", framealpha=0.85)
