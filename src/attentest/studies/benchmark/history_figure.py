"""The picture of a history: how each ratio changed from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from attentest.errors import counted
from attentest.registry import COMPARISONS
from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.log_axis import make_logarithmic
from attentest.results.figures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from attentest.studies.benchmark.ratio import Ratio
from attentest.studies.benchmark.run import Run
from attentest.studies.rate_plot import draw_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
MARKERS = "os^Dv<>"
COLUMNS = 4
MOST_DATES = 4
"""Dates below a panel; more would overlap."""

TITLE_LETTERS = 45
"""Letters of the title above each column."""

MARGIN = 1.25
"""Panels reach this factor beyond what is in them, so that mere noise does not look like a change."""

LOGARITHMIC = 4.0
"""From this ratio of its ends on, an axis is logarithmic."""


def history_figure(runs: Sequence[Run]) -> Figure:
    """Draw the ratios of the last run, and of earlier ones on the same machine with the same settings."""
    shown = [run for run in runs if run.conditions == runs[-1].conditions]
    latest = {ratio.key: ratio for run in shown for ratio in run.ratios}
    names = [name for name in COMPARISONS if any(ratio.comparison == name for ratio in latest.values())]
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    figure = new_figure(3.9 * columns, 3.7 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        _draw_comparison(axes, name, [ratio for ratio in latest.values() if ratio.comparison == name], shown)
    for axes in panels[len(names) :]:
        axes.remove()
    settings, machine = runs[-1].settings, runs[-1].machine
    size = settings["size"]
    title = (
        f"ratios of {counted(len(shown), 'run')} of attentest bench, less is better (dashed: goals): {size}x{size} "
        f"model, {counted(settings['images'], 'image')}, {machine['device']}, {counted(machine['threads'], 'thread')}"
    )
    figure.suptitle(fill(title, TITLE_LETTERS * columns), fontsize=11)
    return figure


def _draw_comparison(axes: Axes, name: str, ratios: Sequence[Ratio], runs: Sequence[Run]) -> None:
    """Draw the ratios of one comparison against the number of the run, with dashed goals."""
    heights = [ratio.goal for ratio in ratios if ratio.goal is not None]
    for ratio, colour, marker in zip(ratios, cycle(COLOURS), cycle(MARKERS), strict=False):
        found = [(place, one.ratio) for place, run in enumerate(runs) for one in run.ratios if one.key == ratio.key]
        heights += [height for _, height in found]
        label = f"{ratio.of} / {ratio.over}: {ratio.quantity}"
        axes.plot(*zip(*found, strict=True), f"{marker}-", color=colour, ms=4, lw=1.2, label=label)
        if ratio.goal is not None:
            axes.axhline(ratio.goal, color=colour, lw=1, ls="--", zorder=1)
    axes.set_title(f"{name}: {COMPARISONS[name].summary}", fontsize=8)
    places = np.unique(np.linspace(0, len(runs) - 1, min(MOST_DATES, len(runs))).round().astype(int))
    axes.set_xticks(places, [f"{runs[place].date:%Y-%m-%d\n%H:%M}" for place in places])
    axes.set_xlim(-0.5, len(runs) - 0.5)
    axes.tick_params(labelsize=7)
    low, high = min(heights) / MARGIN, max(heights) * MARGIN
    axes.set_ylim(low, high)
    if high > LOGARITHMIC * low:
        make_logarithmic(axes, "y")
    draw_grid(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.18), fontsize=6.5, frameon=False, borderaxespad=0)
