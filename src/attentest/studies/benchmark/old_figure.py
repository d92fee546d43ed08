"""The figure of a benchmark: the time of a p-value by search, and by the number of images tested together."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.log_axis import make_logarithmic
from attentest.results.figures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from attentest.studies.benchmark.old import Report
from attentest.studies.rate_plot import draw_grid, legend_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE, GREY)
HATCHES = ("", "//", "", "\\\\", "", "..", "")
"""Of the bars of searches."""


def benchmark_figure(report: Report) -> Figure:
    """Draw the seconds per image by model and search, and by the number of images tested together."""
    figure = new_figure(13.0, 5.0)
    bars, line = figure.subplots(1, 2, width_ratios=[2, 1])
    models = list(dict.fromkeys(row.model for row in report.rows))
    searches = list(dict.fromkeys(row.search for row in report.rows))
    width = 0.8 / len(searches)
    for place, (search, colour, hatch) in enumerate(zip(searches, cycle(COLOURS), cycle(HATCHES), strict=False)):
        chosen = [row for row in report.rows if row.search == search]  # in the order of the models
        left = np.arange(len(models)) + (place - (len(searches) - 1) / 2) * width
        label = search + (" (extrapolated)" if any(row.extrapolated for row in chosen) else "")
        seconds = [row.seconds for row in chosen]
        bars.bar(left, seconds, width, label=label, color=colour, hatch=hatch, edgecolor="white", lw=0.5)
    bars.set_xticks(range(len(models)), models)
    bars.set(xlabel="model, and pixels of the image", ylabel="seconds per image", title="by search")
    make_logarithmic(bars, "y")
    together = [point["images"] for point in report.growth]
    line.plot(together, [point["seconds"] for point in report.growth], "o-", color=COLOURS[0])
    line.set(
        xlabel="images tested together", ylabel="seconds per image", title="spectral search, more images at a time"
    )
    make_logarithmic(line, "x")
    make_logarithmic(line, "y")
    line.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (bars, line):
        draw_grid(axes)
    error_bar = report.settings["tol"]
    figure.suptitle(f"a p-value with an error bar of {error_bar:g}, on {report.machine['device']}", fontsize=11)
    legend_below(figure, 4)
    return figure
