"""The figure of a sensitivity: p and interval by the size of the noise, p by its correlation length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from attentest.presentation.figure import BLUE, GREY, NAIVE_COLOUR, VERMILION, shown_name, wrapped
from attentest.presentation.result_figure import LETTER, NARROW
from attentest.statistics.confidence_interval import naive_confidence_interval
from attentest.statistics.noise_factor import NoiseSensitivity, SensitivityCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase


SMALLEST_P = 1e-6
"""P-values are drawn down to this at least, and to a tenth of alpha; smaller ones leave the axes."""

FARTHEST_DRAWN = 1.0
"""An interval is drawn no farther out than this many times the range of the naive one."""

FACTOR_TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Places on the figure, in mm: panels of one size in a row, a title above them and words below."""

    width: float
    panels: int
    words: str
    titled: bool

    size = 7.5
    """Size of the text in points."""

    margin, gap, below = 13.0, 14.0, 11.0
    """Room for the numbers and names of the axes: left of the first panel, between two, and below."""

    @classmethod
    def of(cls, drawn: NoiseSensitivity, width: float, title: str, sentences: Sequence[str]) -> Layout:
        """Return the layout of a figure of a width, with sentences below it."""
        words = wrapped(" ".join(sentences), int((width - 8) / (LETTER * cls.size)))
        return cls(width=width, panels=panel_count(drawn), words=words, titled=bool(title))

    @property
    def columns(self) -> int:
        """Number of panels in a row; those of a narrow figure are below each other."""
        return 1 if self.width < NARROW else self.panels

    @property
    def panel(self) -> tuple[float, float]:
        """Width and height of a panel."""
        wide = (self.width - self.margin - 4 - (self.columns - 1) * self.gap) / self.columns
        return wide, min(wide, 52.0)

    @property
    def row(self) -> float:
        """Height of a panel with its title and its axis."""
        return 9 + self.panel[1] + self.below

    @property
    def words_height(self) -> float:
        """Height of the words."""
        return 0.48 * self.size * (self.words.count("\n") + 1)

    @property
    def height(self) -> float:
        """Height of the figure."""
        rows = self.panels // self.columns
        return (7.0 if self.titled else 1.0) + rows * self.row + self.words_height + 3

    def place(self, number: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of a panel as shares of the figure."""
        wide, high = self.panel
        row, column = divmod(number, self.columns)
        left = self.margin + column * (wide + self.gap)
        bottom = 3 + self.words_height + (self.panels // self.columns - 1 - row) * self.row + self.below
        return left / self.width, bottom / self.height, wide / self.width, high / self.height


def panel_count(drawn: NoiseSensitivity) -> int:
    """Return the number of panels."""
    return 2 if drawn.lengths is None else 3


def draw_figure(figure: FigureBase, drawn: NoiseSensitivity, layout: Layout, title: str) -> list[Axes]:
    """Draw a sensitivity on a figure of the size of the layout, with the name of the image and the words."""
    axes = [figure.add_axes(layout.place(number)) for number in range(layout.panels)]
    draw_sensitivity(axes, drawn, size=layout.size)
    left = 4 / layout.width
    if title:
        name = shown_name(title, int(0.58 * (layout.width - 8) / (LETTER * layout.size)))
        figure.text(left, 1 - 3 / layout.height, va="top", size=layout.size + 2, weight="bold", **name)
    bottom = (2 + layout.words_height) / layout.height
    figure.text(left, bottom, layout.words, va="top", size=layout.size, linespacing=1.3)
    return axes


def draw_sensitivity(axes: Sequence[Axes], drawn: NoiseSensitivity, *, size: float = 8.0) -> None:
    """Draw a sensitivity on two axes, or on three if it has correlation lengths."""
    least = _least(drawn)
    _draw_pvalues(axes[0], drawn, least, size)
    _draw_intervals(axes[1], drawn, size)
    if drawn.lengths is not None:
        _draw_lengths(axes[2], drawn, drawn.lengths, least, size)


def _least(drawn: NoiseSensitivity) -> float:
    """Return the lower end of the axes of p, the same for both."""
    found = [drawn.factors.pvalues.min(), *([] if drawn.lengths is None else [drawn.lengths.pvalues.min()])]
    return float(max(0.5 * min(*found, drawn.alpha), min(SMALLEST_P, 0.1 * drawn.alpha)))


def _draw_pvalues(axes: Axes, drawn: NoiseSensitivity, least: float, size: float) -> None:
    curve = drawn.factors
    _band(axes, curve, least)
    axes.plot(curve.values, np.maximum(curve.pvalues, 0.01 * least), color=BLUE, lw=1.6)
    _mark_assumed(axes, 1.0, size)
    _draw_alpha(axes, drawn.alpha, least, size, "left")
    for flip in drawn.flips:
        axes.axvline(flip, color=VERMILION, lw=1.1)
        axes.annotate(
            f"flips at {flip:.2f}",
            (flip, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 1.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            color=VERMILION,
            size=size,
        )
    _factor_axis(axes, curve, size)
    axes.set_title("selective p", size=size, pad=14)


def _draw_intervals(axes: Axes, drawn: NoiseSensitivity, size: float) -> None:
    curve = drawn.factors
    naive = np.array(
        [
            tuple(naive_confidence_interval(drawn.difference, float(error), drawn.alternative, drawn.confidence_level))
            for error in curve.standard_errors
        ]
    )
    ends = np.array([tuple(interval) for interval in curve.intervals])
    near = np.array([0.0, drawn.difference, *naive[np.isfinite(naive)]])
    reach = FARTHEST_DRAWN * (near.max() - near.min())
    bottom = max(min(ends.min(), near.min()), near.min() - reach)
    top = min(max(ends.max(), near.max()), near.max() + reach)
    margin = 0.04 * (top - bottom)
    beyond = np.clip(ends, bottom - 2 * margin, top + 2 * margin)
    axes.fill_between(curve.values, beyond[:, 0], beyond[:, 1], color=BLUE, alpha=0.18, lw=0)
    sure = np.where(curve.unsure[:, None], np.nan, beyond)
    at_most = "at most" if curve.unsure.any() else ""
    axes.plot(curve.values, sure, color=BLUE, lw=1.2, label=["selective", ""])
    axes.plot(curve.values, beyond, color=BLUE, lw=1.2, ls=":", label=[at_most, ""])
    axes.plot(curve.values, naive, color=NAIVE_COLOUR, lw=1.0, ls=(0, (4, 2)), label=["naive (not valid)", ""])
    estimates = np.clip(curve.estimates.best, bottom - 2 * margin, top + 2 * margin)
    axes.plot(curve.values, estimates, color=BLUE, lw=1.8, ls=(0, (5, 1.5, 1, 1.5)), label="estimate")
    axes.axhline(0.0, color=GREY, lw=1.0, ls=(0, (3, 2)))
    axes.axvline(1.0, color=GREY, lw=0.8, zorder=0)
    axes.set_ylim(bottom - margin, top + margin)
    axes.locator_params(axis="y", nbins=6)
    _factor_axis(axes, curve, size)
    axes.legend(fontsize=size - 1, loc="best", framealpha=0.6, borderpad=0.3, handlelength=2.2)
    axes.set_title(f"{100 * drawn.confidence_level:.10g}% interval of the difference", size=size, pad=14)


def _draw_lengths(axes: Axes, drawn: NoiseSensitivity, curve: SensitivityCurve, least: float, size: float) -> None:
    _band(axes, curve, least)
    shown = np.maximum(curve.pvalues, 0.01 * least)
    axes.plot(curve.values, shown, color=BLUE, lw=1.2, marker="o", ms=4)
    if drawn.assumed_length is not None:
        _mark_assumed(axes, drawn.assumed_length, size)
    _draw_alpha(axes, drawn.alpha, least, size, "right")
    margin = 0.05 * (curve.values[-1] - curve.values[0]) or 1.0
    axes.set_xlim(curve.values[0] - margin, curve.values[-1] + margin)
    _plain(axes, "correlation length in pixels", size)
    axes.set_title("selective p, same variances", size=size, pad=14)


def _band(axes: Axes, curve: SensitivityCurve, least: float) -> None:
    """Fill what is between the bounds on p."""
    low, high = np.maximum(curve.pvalue_bounds, 0.01 * least).T
    axes.fill_between(curve.values, low, high, color=BLUE, alpha=0.25, lw=0)


def _draw_alpha(axes: Axes, alpha: float, least: float, size: float, side: Literal["left", "right"]) -> None:
    """Draw the significance level, with its name on a side, and make the axis of p logarithmic."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.axhline(alpha, color=GREY, lw=1.0, ls=(0, (3, 2)))
    axes.annotate(
        f"alpha {alpha:g}",
        (0.0 if side == "left" else 1.0, alpha),
        xycoords=("axes fraction", "data"),
        xytext=(3 if side == "left" else -3, 2),
        textcoords="offset points",
        ha=side,
        color=GREY,
        size=size,
    )
    axes.set_yscale("log")
    axes.set_ylim(least, 1.6)
    axes.yaxis.set_major_locator(LogLocator(numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())


def _mark_assumed(axes: Axes, value: float, size: float) -> None:
    axes.axvline(value, color=GREY, lw=0.8, zorder=0)
    axes.annotate(
        "assumed",
        (value, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(2, 2),
        textcoords="offset points",
        rotation=90,
        va="bottom",
        color=GREY,
        size=size - 1,
    )


def _factor_axis(axes: Axes, curve: SensitivityCurve, size: float) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xlim(curve.values[0], curve.values[-1])
    ticks = [tick for tick in FACTOR_TICKS if curve.values[0] <= tick <= curve.values[-1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    _plain(axes, "noise, times the assumed", size)


def _plain(axes: Axes, label: str, size: float) -> None:
    axes.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    axes.set_xlabel(label, size=size, labelpad=1.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
