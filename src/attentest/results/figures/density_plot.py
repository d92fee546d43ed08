"""The picture of a p-value: the density of the statistic given the selection, and the interval of the difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attentest.results.figures.conditional_density import UNSEEN, ConditionalDensity
from attentest.results.figures.palette import EXTREME_COLOUR, GREY, ORDINARY_COLOUR, REGION_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attentest.results.figures.picture import Picture

SMALL = 0.005
"""A tail that holds less than this share is shown again, enlarged."""

ROOM = 2.1
"""Height of the axes over that of the curve, where there is room above it for the enlarged tail."""

TAIL = 1e-3
"""Share of the tail beyond the statistic that may lie outside its enlargement."""

FARTHEST_DRAWN = 6.0
"""An interval that ends farther out than this many times the range of everything else is cut off, with an arrow."""


def draw_density(axes: Axes, picture: Picture, *, size: float = 8.0) -> None:
    """Draw what p is a share of, and below it the confidence interval of the difference.

    The area under the curve is one, and its dark part is p; with equal tails it is the smaller tail, half of p. The
    axes themselves become a frame for the two plots. ``size`` is that of the text in points.
    """
    axes.set_axis_off()
    curve = axes.inset_axes((0.0, 0.0, 1.0, 0.92) if picture.interval is None else (0.0, 0.42, 1.0, 0.5))
    if picture.law is None:
        curve.set_axis_off()
        text = "The record of this result is of an\nearlier version: it has no density."
        curve.text(0.5, 0.5, text, ha="center", va="center", color=GREY, size=size)
    else:
        density = ConditionalDensity(law=picture.law, intervals=picture.intervals, alternative=picture.tails)
        _draw_curve(curve, density, picture, size)
    if picture.interval is not None:
        _draw_interval(axes.inset_axes((0.0, 0.06, 1.0, 0.1)), picture, picture.interval, size)


def _draw_curve(axes: Axes, density: ConditionalDensity, picture: Picture, size: float) -> None:
    t = picture.statistic
    low, high = density.quantiles([UNSEEN / 2, 1 - UNSEEN / 2])
    margin = 0.06 * (max(high, t) - min(low, t))
    start, end = float(min(low, t) - margin), float(max(high, t) + margin)
    edges = density.edges(start, end, (float(low), float(high)))
    heights = np.exp(density.log_heights(edges))
    _fill(axes, edges, heights, density.extreme(edges))
    axes.axvline(t, color=REGION_COLOUR, lw=1.3)
    small = density.extreme_share < SMALL
    axes.set(xlim=(start, end), ylim=(0, (ROOM if small else 1.08) * heights.max()))
    label = "statistic z without a true difference; dark: p"
    if density.alternative == "equal-tailed":
        label = "z without a true difference; dark: half of p"  # as long: there is no room for more
    _plain(axes, label, size)
    across = (t - start) / (end - start)
    axes.annotate(
        f"observed z = {t:.4g}",
        (across, 1.0),
        xycoords="axes fraction",
        xytext=(0, 2),
        textcoords="offset points",
        color=REGION_COLOUR,
        ha="left" if across < 0.3 else "right" if across > 0.7 else "center",
        va="bottom",
        size=size,
        annotation_clip=False,
    )
    if small:
        _draw_tail(axes, density, t, size, on_left=across > 0.5)


def _draw_tail(axes: Axes, density: ConditionalDensity, t: float, size: float, *, on_left: bool) -> None:
    """Draw the tail beyond the statistic again, enlarged to the height of a plot of its own."""
    outwards = 1.0 if t >= density.ordinary[1] else -1.0
    reach = density.tail_length(t, outwards, TAIL)
    start, end = sorted((t - 0.15 * outwards * reach, t + outwards * reach))
    edges = density.edges(start, end)
    logs = density.log_heights(edges)
    extreme = density.extreme(edges)
    inset = axes.inset_axes((0.0 if on_left else 0.48, 0.62, 0.52, 0.28))
    with np.errstate(over="ignore"):  # what is less extreme can be far higher, and is cut off
        _fill(inset, edges, np.minimum(np.exp(logs - logs[extreme].max()), 2.0), extreme)
    inset.axvline(t, color=REGION_COLOUR, lw=1.3)
    inset.set(xlim=(start, end), ylim=(0, 1.25))
    _plain(inset, "", size - 1, ticks=3)
    inset.set_title("its tail, enlarged", size=size - 1, pad=2)


def _fill(axes: Axes, edges: NDArray[np.float64], heights: NDArray[np.float64], extreme: NDArray[np.bool_]) -> None:
    """Fill the area under a curve, the extreme part of it dark."""
    from matplotlib.patches import StepPatch

    dark = np.where(extreme, heights, 0.0)
    for values, colour in ((heights, ORDINARY_COLOUR), (dark, EXTREME_COLOUR)):
        # Not axes.stairs, which looks for the limits of the axes in every step and takes most of the time.
        axes.add_artist(StepPatch(values, edges, fill=True, color=colour, lw=0))
    axes.add_artist(StepPatch(heights, edges, fill=False, edgecolor=GREY, lw=0.9))


def _draw_interval(axes: Axes, picture: Picture, interval: tuple[float, float], size: float) -> None:
    """Draw the confidence interval with the estimate, zero, and the observed difference."""
    low, high = interval
    naive = [float(picture.values["naive_confidence_interval"][end]) for end in ("low", "high")]
    observed, estimate = (float(picture.values[name]) for name in ("difference", "estimate"))
    near = [0.0, observed, *(end for end in naive if np.isfinite(end))]
    reach = FARTHEST_DRAWN * (max(near) - min(near))
    start, end = max(low, min(near) - reach), min(high, max(near) + reach)
    left, right = min(start, *near), max(end, *near)
    margin = 0.07 * (right - left)
    axes.set(xlim=(left - margin, right + margin), ylim=(-1, 1))
    axes.axvline(0.0, color=GREY, lw=1.0, ls=(0, (3, 2)))
    axes.plot([start, end], [0, 0], color=EXTREME_COLOUR, lw=2.2, solid_capstyle="butt")
    for at, cut, arrow in ((start, start > low, "<"), (end, end < high, ">")):
        axes.plot([at], [0], marker=arrow if cut else "|", color=EXTREME_COLOUR, ms=6, mew=1.8, clip_on=False)
    shown = "estimate"
    if start <= estimate <= end:
        axes.plot([estimate], [0], "o", color=EXTREME_COLOUR, ms=4.5)
    else:
        shown = f"estimate at {estimate:.3g}"
    axes.plot([observed], [0], "D", color=REGION_COLOUR, ms=3.5)
    _plain(axes, f"\N{BLACK DIAMOND} observed, \N{BLACK CIRCLE} {shown}", size)
    axes.set_title(f"{picture.interval_name}: {low:.3g} to {high:.3g}", size=size, pad=2)


def _plain(axes: Axes, label: str, size: float, ticks: int = 5) -> None:
    """Leave only the x axis, with few ticks without an offset."""
    axes.set_yticks([])
    axes.locator_params(axis="x", nbins=ticks)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.tick_params(labelsize=size - 0.5, pad=1.5, length=2.5)
    axes.set_xlabel(label, size=size, labelpad=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
