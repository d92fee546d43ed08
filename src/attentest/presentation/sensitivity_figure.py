"""The figure of a sensitivity: p and interval by the size of the noise, p by its correlation length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attentest.presentation.figure import (
    BLUE,
    GREY,
    NAIVE_COLOUR,
    NARROW,
    VERMILION,
    Layout,
    annotate,
    letters_in_line,
    make_plain,
    wrapped,
)
from attentest.presentation.words import interval_name
from attentest.statistics.inference import naive_confidence_interval
from attentest.statistics.noise_factor import NoiseSensitivity, SensitivityCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SMALLEST_LOG = -6.0
"""P-values are drawn down to this power of ten at least, to a tenth of alpha, and to the square of p with the assumed
noise; smaller ones, of less noise, leave the axes."""

FARTHEST_DRAWN = 1.0
"""An interval is drawn no farther out than this many times the range of the naive one."""

NEAR = 1.15
"""A factor that is less than this is as near to 1 as the word beside the line at 1 is wide."""

FACTOR_TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)


def sensitivity_layout(width: float, count: int, titled: bool, words: str) -> Layout:
    """Return the layout of so many panels of one size in a row, or below each other on a narrow figure."""
    columns = 1 if width < NARROW else count
    left, gap = 13.0, 14.0  # room for the numbers and names of the axes
    wide = (width - left - 4 - (columns - 1) * gap) / columns
    high = min(wide, 52.0)
    top, row = (16.0 if titled else 10.0), high + 20
    places = [divmod(number, columns) for number in range(count)]
    return Layout(
        width=width,
        panels=[(left + column * (wide + gap), top + line * row, wide, high) for line, column in places],
        above_words=top - 8 + count // columns * row,
        lines=wrapped(words, letters_in_line(width, Layout.size)).count("\n") + 1,
    )


def draw_sensitivity(axes: Sequence[Axes], drawn: NoiseSensitivity, *, size: float = 8.0) -> None:
    """Draw a sensitivity on two axes, or on three if it has correlation lengths."""
    curves = [drawn.factors, *([] if drawn.lengths is None else [drawn.lengths])]
    level = float(np.log10(drawn.alpha))
    smallest = min(*(_powers(curve.log_pvalues.best).min() for curve in curves), level)
    assumed = float(np.interp(1.0, drawn.factors.values, _powers(drawn.factors.log_pvalues.best)))
    least = max(smallest - 0.3, min(SMALLEST_LOG, level - 1, 2 * assumed))  # the same for both axes of p
    beside = any(1.0 < flip < NEAR for flip in drawn.flips)  # a line through the word that is usually there
    _draw_pvalues(axes[0], drawn.factors, 1.0, drawn.alpha, least, size, side="left", word_before=beside, lw=1.6)
    for flip in drawn.flips:
        axes[0].axvline(flip, color=VERMILION, lw=1.1)
        text, where = f"flips at {flip:.2f}", ("data", "axes fraction")
        annotate(axes[0], text, (flip, 1.0), along=where, ha="center", va="bottom", color=VERMILION, size=size)
    _factor_axis(axes[0], drawn.factors, size)
    axes[0].set_title("selective p", size=size, pad=14)
    _draw_intervals(axes[1], drawn, size)
    if drawn.lengths is not None and drawn.assumed_length is not None:
        first, last = drawn.lengths.values[[0, -1]]
        margin = 0.05 * (last - first) or 1.0
        style: dict[str, Any] = {"lw": 1.2, "marker": "o", "ms": 4}
        _draw_pvalues(axes[2], drawn.lengths, drawn.assumed_length, drawn.alpha, least, size, side="right", **style)
        axes[2].set_xlim(first - margin, last + margin)
        make_plain(axes[2], "correlation length in pixels", size)
        axes[2].set_title("selective p, same variances", size=size, pad=14)


def _draw_pvalues(
    axes: Axes,
    curve: SensitivityCurve,
    assumed: float,
    alpha: float,
    least: float,
    size: float,
    *,
    side: Literal["left", "right"],
    word_before: bool = False,
    **style: Any,
) -> None:
    """Draw log10 p with its bounds from ``least``, the assumed noise, and alpha with its name."""
    best, low, high = (np.maximum(_powers(logs), 2 * least) for logs in curve.log_pvalues)
    axes.fill_between(curve.values, low, high, color=BLUE, alpha=0.25, lw=0)
    axes.plot(curve.values, best, color=BLUE, **style)
    axes.axvline(assumed, color=GREY, lw=0.8, zorder=0)
    text: dict[str, Any] = {"color": GREY, "size": size}
    across: dict[str, Any] = {"along": ("data", "axes fraction"), "rotation": 90, "va": "bottom"}
    across |= {"by": (-2, 2), "ha": "right"} if word_before else {"by": (2, 2)}
    annotate(axes, "assumed", (assumed, 0.0), **across, **text | {"size": size - 1})
    height = float(np.log10(alpha))
    axes.axhline(height, color=GREY, lw=1.0, ls=(0, (3, 2)))
    end, inwards = (0.0, 3) if side == "left" else (1.0, -3)
    annotate(axes, f"alpha {alpha:g}", (end, height), along=("axes fraction", "data"), by=(inwards, 2), ha=side, **text)
    # Powers of ten on a linear axis: p-values below 1e-308 are too small for a logarithmic one.
    axes.set_ylim(least, -0.03 * least)
    axes.locator_params(axis="y", integer=True, nbins=7)
    axes.yaxis.set_major_formatter(lambda power, _: f"$10^{{{power:.0f}}}$")


def _powers(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the powers of ten of natural logs."""
    return np.asarray(logs / np.log(10.0))


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
    axes.set_title(f"{interval_name(drawn.confidence_level)} of the difference", size=size, pad=14)


def _factor_axis(axes: Axes, curve: SensitivityCurve, size: float) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.set_xlim(curve.values[0], curve.values[-1])
    ticks = [tick for tick in FACTOR_TICKS if curve.values[0] <= tick <= curve.values[-1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    make_plain(axes, "noise, times the assumed", size)
