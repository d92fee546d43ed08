"""Rates in figures: points with their intervals, grids, and one legend below all panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_rates(
    axes: Axes,
    places: Sequence[float],
    rates: Sequence[Mapping[str, Any]],
    colour: str,
    name: str | None,
    *,
    hollow: bool = False,
    horizontal: bool = False,
) -> None:
    """Draw rates, each with ``value``, ``low`` and ``high``, at their places on the other axis.

    The points have a name in the legend; horizontal rates lie along the horizontal axis.
    """
    if not rates:
        return
    value = np.array([rate["value"] for rate in rates])
    # Rounding may put the rate itself outside its interval by 1e-17.
    below = np.maximum(0.0, value - [rate["low"] for rate in rates])
    above = np.maximum(0.0, [rate["high"] for rate in rates] - value)
    ends = [below, above]
    axes.errorbar(
        value if horizontal else places,
        places if horizontal else value,
        xerr=ends if horizontal else None,
        yerr=None if horizontal else ends,
        fmt="o",
        ms=4.5,
        lw=1.2,
        capsize=2.5,
        color=colour,
        markerfacecolor="white" if hollow else colour,
        label=name,
    )


def draw_grid(axes: Axes) -> None:
    """Draw pale horizontal lines behind the data."""
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)


def legend_below(figure: Figure, columns: int) -> None:
    """Draw one legend below the panels, with each name once and points with intervals first."""
    found = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(found, key=lambda name: not hasattr(found[name], "has_yerr"))
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
