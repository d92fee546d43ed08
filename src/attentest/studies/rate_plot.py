"""Elements of the figures of studies: rates with intervals, levels, bands, axes, and one legend for all panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADE = {"alpha": 0.16, "lw": 0, "zorder": 0}
"""How a band or a row is shaded."""


def draw_rates(
    axes: Axes,
    places: Sequence[float],
    rates: Sequence[Mapping[str, Any]],
    colour: str,
    name: str | None,
    *,
    marker: str = "o",
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
        fmt=marker,
        ms=5,
        lw=1.2,
        capsize=2.5,
        color=colour,
        markerfacecolor=axes.get_facecolor() if hollow else colour,
        label=name,
    )


def draw_level(axes: Axes, level: float, name: str, *, vertical: bool = False) -> None:
    """Draw a dashed line at a level, with its name in the legend."""
    draw = axes.axvline if vertical else axes.axhline
    draw(level, color="0.4", lw=1, ls="--", zorder=1, label=name)


def name_in_legend(axes: Axes, name: str, *, dashed: bool = False) -> None:
    """Name all bands, or all dashed lines, of several colours by one grey sample in the legend."""
    if dashed:
        axes.plot([], [], color="0.4", lw=1, ls="--", label=name)
    else:
        axes.fill([], [], color="0.4", alpha=SHADE["alpha"], lw=0, label=name)


def draw_grid(axes: Axes) -> None:
    """Draw pale horizontal lines behind the data."""
    axes.grid(axis="y", color="0.5", alpha=0.18)
    axes.set_axisbelow(True)


def legend_below(figure: Figure, columns: int) -> None:
    """Draw one legend below the panels, with each name once and points with intervals first."""
    found = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(found, key=lambda name: not hasattr(found[name], "has_yerr"))
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
