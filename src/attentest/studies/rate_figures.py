"""Drawing rates with their intervals, levels, bands and legends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attentest.presentation.figure import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SHADE: Mapping[str, Any] = {"alpha": 0.16, "lw": 0, "zorder": 0}  # how a band or a row is shaded
Style = tuple[str, str]  # colour and marker


def titled_panels(width: float, height: float, titles: Iterable[str], **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a new figure and its panels, one for each title, side by side with one vertical axis by default."""
    titles = list(titles)
    figure = new_figure(width, height)
    panels = list(np.ravel(figure.subplots(1, len(titles), **{"sharey": True, **shared})))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
    return figure, panels


def draw_rates(
    axes: Axes,
    rates: Iterable[tuple[float, Mapping[str, Any]]],
    style: Style,
    name: str | None,
    *,
    hollow: bool = False,
    horizontal: bool = False,
) -> None:
    """Draw rates, each with ``value``, ``low`` and ``high``, after their places on the other axis.

    The points have a name in the legend; horizontal rates lie along the horizontal axis.
    """
    pairs = list(rates)
    if not pairs:
        return
    places, (colour, marker) = [place for place, _ in pairs], style
    value, low, high = (np.array([rate[end] for _, rate in pairs]) for end in ("value", "low", "high"))
    # Rounding may put the rate itself outside its interval by 1e-17.
    ends = [np.maximum(0.0, value - low), np.maximum(0.0, high - value)]
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


def draw_diagonal(axes: Axes, name: str) -> None:
    """Draw the dashed diagonal of the unit square, with its name in the legend."""
    axes.plot([0, 1], [0, 1], color="0.4", lw=1, ls="--", label=name)


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


def legend_below(figure: Figure, columns: int, ylabel: str | None = None) -> Figure:
    """Draw one legend below the panels, with each name once and points with intervals first; return the figure.

    A label of the vertical axis is that of the first panel.
    """
    if ylabel is not None:
        figure.axes[0].set_ylabel(ylabel)
    handles = {
        name: handle for axes in figure.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(handles, key=lambda name: not hasattr(handles[name], "has_yerr"))
    shown = [handles[name] for name in names]
    figure.legend(shown, names, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    return figure
