"""Figures of many results: a sheet of tested images, and their p-values in order."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError, counted, worded
from attentest.presentation import figure as drawing
from attentest.presentation.number_texts import SMALLEST
from attentest.presentation.picture import Picture, draw_overlay, draw_seen, seen_lines
from attentest.presentation.words import selective_p
from attentest.record import map_of_all, predicted_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST = 24  # usual number of images on a sheet
COLUMNS, SIGNAL_COLUMNS = 6, 4  # most images, and signals, in a row

CELL, SIGNAL_CELL = (1.25, 1.56), (2.4, 1.3)
"""Width and height of an image, and of a signal, with its text, in inches."""

LETTERS_PER_INCH = 17  # letters of a title on an inch
LINE_HEIGHT = 0.12  # height of a line of text in inches, of which a randomised image has one more

FRAMES = {True: drawing.EXTREME_COLOUR, False: drawing.GREY, None: drawing.ORANGE}
"""Colours of the frames of significant, other and undecided images."""

NAME_LETTERS = 18


def contact_sheet(
    pictures: Sequence[Picture],
    *,
    total: int | None = None,
    alpha: float = 0.05,
    of: str = "image",
    make: Callable[[float, float], Figure] = drawing.new_figure,
) -> list[Axes]:
    """Draw tested images in the order of their p-values, and return the axes of each.

    They may be those with the smallest p-values of a ``total``. ``of`` says what each shows, in the singular, and
    ``make`` makes the figure, of a width and a height in inches.
    """
    if not pictures:
        raise InputError("there is nothing to draw: give at least one result.")
    ordered = sorted(pictures, key=lambda picture: picture.record.log_pvalue)
    randomised = any(picture.randomised_image is not None for picture in ordered)
    each = 2 if randomised else 1  # a randomised image is beside the image
    traces = ordered[0].region.ndim == 1
    cell = SIGNAL_CELL if traces else CELL
    columns = min((SIGNAL_COLUMNS if traces else COLUMNS) // each, max(len(ordered), 2 if traces else 3))
    rows = math.ceil(len(ordered) / columns)
    figure = make(columns * each * cell[0], rows * (cell[1] + LINE_HEIGHT * randomised) + 0.3)
    cells: list[Axes] = list(np.ravel(figure.subplots(rows, columns * each, squeeze=False)))
    images = cells[::each][: len(ordered)]
    for axes in cells:
        axes.set_axis_off()
    for axes, beside, picture in zip(images, cells[each - 1 :: each], ordered, strict=False):
        if picture.randomised_image is not None:
            draw_seen(beside, picture, outline_width=0.6)
            beside.set_axis_on()
            beside.set_xlabel(seen_lines(picture), size=7, labelpad=3)
        axes.set_axis_on()
        draw_overlay(axes, picture, outline_width=1.0)
        colour = FRAMES[picture.record.reject_at(alpha)]
        for spine in axes.spines.values():
            spine.set(color=colour, linewidth=2.0)
        name = drawing.shown_name(picture.title, NAME_LETTERS)
        axes.set_title(name.pop("s"), size=7, pad=3, **name)
        named = predicted_class(picture.record.target)
        axes.set_xlabel(f"{named}p {selective_p(picture.record)}", size=7, labelpad=3)
    shapes = [shown.get_array().shape for axes in images for shown in axes.get_images()[:1]]  # type: ignore[union-attr]
    if (tallest := max((shape[0] / shape[1] for shape in shapes), default=1.0)) > 1:
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + rows * cell[0] * (tallest - 1))
    significant = sum(picture.record.reject_at(alpha) is True for picture in ordered)
    more = "" if total in (None, len(ordered)) else f" with the smallest p of {total:,}"
    shown = counted(len(ordered), worded(of, ordered[0].record.dimension))
    settings = ordered[0].record.settings
    map_of_class = [map_of_all(settings)] if settings.get("target") else []
    masked = "; dashed: mask" if settings.get("mask") else ""
    title = f"{shown}{more}, by selective p; blue frame: significant at {alpha:g} ({significant}){masked}"
    letters = int(columns * each * cell[0] * LETTERS_PER_INCH)
    figure.suptitle("\n".join([*map_of_class, *textwrap.wrap(title, letters)]), size=8)
    return images


FEW_POINTS = 100  # up to this many p-values are drawn as points

TINY = 0.01
"""P-values below this share of 1/n, the least of n that is to be expected by chance, would be drawn on zero."""

MOST_TICKS = 8  # most numbers on a logarithmic axis, apart from 1


def draw_pvalues(
    axes: Axes,
    pvalues: NDArray[np.float64],
    naive: NDArray[np.float64],
    adjusted: NDArray[np.float64],
    alpha: float,
    of: str = "image",
) -> None:
    """Draw sorted p-values (n,) against their ranks: selective, naive, and adjusted by Benjamini and Hochberg.

    Without any true difference the selective ones follow the diagonal. Those below the line of Benjamini and Hochberg,
    up to the last one below it, are rejected; alpha is its false discovery rate. The axis of p is logarithmic where
    some would be drawn on zero. ``of`` is what the p-values are of, in the singular.
    """
    count = len(pvalues)
    pvalues, naive = np.maximum(pvalues, SMALLEST), np.maximum(naive, SMALLEST)
    ranks = np.arange(1, count + 1)
    marker: dict[str, Any] = {"clip_on": False} | ({"marker": "o", "ms": 4.0} if count <= FEW_POINTS else {})
    line = np.linspace(0.5 / count, 1, 200)
    axes.plot(count * line, line, color=drawing.GREY, lw=1, ls=(0, (4, 3)), label="no true difference anywhere")
    axes.plot(ranks, np.sort(naive), color=drawing.NAIVE_COLOUR, lw=1, alpha=0.8, label="naive (not valid)", **marker)
    axes.plot(ranks, np.sort(pvalues), color=drawing.EXTREME_COLOUR, lw=1.6, label="selective", **marker)
    axes.plot(count * line, alpha * line, color=drawing.GREY, lw=1, label=f"Benjamini-Hochberg at {alpha:g}")
    axes.set(xlim=(0, count + 0.5), xlabel="rank", ylabel="p-value")
    axes.locator_params(axis="x", integer=True)
    if pvalues.min() < TINY / count:
        decades = math.ceil(-math.log10(min(pvalues.min(), naive.min())))
        axes.set(yscale="log", ylim=(10.0**-decades, 1.0))
        powers = [-decade for decade in range(0, decades + 1, math.ceil(decades / MOST_TICKS))]
        axes.set_yticks([10.0**power for power in powers], [f"{10.0**power:g}" for power in powers])
        axes.minorticks_off()
    else:
        axes.set_ylim(-0.02, 1.02)
    axes.set_title(
        f"{counted(count, of)}: {int(np.sum(pvalues <= alpha))} with p at most {alpha:g}, "
        f"{int(np.sum(adjusted <= alpha))} after adjustment",
        size="medium",
    )
    axes.legend(fontsize="small", loc="best", framealpha=0.85)
