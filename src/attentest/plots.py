"""Pictures of results: image, attention map, region, and the truncation set on the z axis."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from attentest.errors import InputError
from attentest.intervals import clip
from attentest.result import AttentionTestResult
from attentest.truncated_normal import split_extreme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")

REGION_COLOUR = "#d1495b"
KEPT_COLOUR = "#9fc5e8"
EXTREME_COLOUR = "#1f6fb2"

FAR_OUT = 15.0
"""A statistic farther from zero than this is shown with its surroundings alone."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One row of a figure: a tested image, shown as (H, W) or (H, W, 3), and its result."""

    title: str
    image: NDArray[np.float64]
    result: AttentionTestResult


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; needs Matplotlib (``pip install 'attentest[plots]'``)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need Matplotlib: pip install 'attentest[plots]'.") from None
    return Figure(figsize=(width, height), layout="constrained")


def results_figure(panels: Sequence[Panel]) -> Figure:
    """Draw a row for each tested image."""
    if not panels:
        raise InputError("there is nothing to draw: give at least one panel.")
    figure = new_figure(13.0, 3.1 * len(panels))
    grid = figure.add_gridspec(len(panels), 4, width_ratios=[1, 1.18, 1, 2.1])
    for row, panel in enumerate(panels):
        image_axes, map_axes, region_axes, set_axes = (figure.add_subplot(grid[row, i]) for i in range(4))
        image_axes.imshow(_displayed(panel.image), cmap="gray", interpolation="nearest")
        image_axes.set_title(panel.title, parse_math=False)
        shown = map_axes.imshow(panel.result.attention, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        map_axes.set_title("attention map")
        figure.colorbar(shown, ax=map_axes, shrink=0.85)
        region_axes.imshow(_displayed(panel.image), cmap="gray", interpolation="nearest")
        _outline(region_axes, panel.result.region)
        region_axes.set_title(f"region: {int(panel.result.region.sum())} of {int(panel.result.seen.sum())}")
        for axes in (image_axes, map_axes, region_axes):
            axes.set_xticks([])
            axes.set_yticks([])
        draw_truncation_set(set_axes, panel.result)
    return figure


def check_figure_path(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path that cannot become a figure, or that would overwrite an input, before anything is computed."""
    if path.suffix.lower() not in FIGURE_SUFFIXES:
        raise InputError(f"a figure's file name must end in {', '.join(FIGURE_SUFFIXES)}, got {str(path)!r}.")
    if path.resolve() in {other.resolve() for other in inputs}:
        raise InputError(f"the figure would overwrite the image {path}: give it another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"the figure cannot be written to {path}: it is a directory or in one that is read-only.")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a checked path."""
    figure.savefig(path, dpi=110)


def draw_truncation_set(axes: Axes, result: AttentionTestResult) -> None:
    """Shade the truncation set under the logarithm of the standard normal density.

    Dark is what is at least as extreme as the observed statistic; its share of the shaded probability is the p-value.
    Far from zero only the part of the set around the statistic is shown.
    """
    low, high = _shown_range(result)
    line = np.linspace(low, high, 801)
    decades = norm.logpdf(line) / np.log(10)
    floor, ceiling = decades.min(), decades.max()
    axes.plot(line, decades, color="0.6", lw=1)
    extreme, rest = split_extreme(result.statistic, result.intervals, result.settings["alternative"])
    for part, colour in ((extreme, EXTREME_COLOUR), (rest, KEPT_COLOUR)):
        for left, right in clip(part, low, high):
            at = np.linspace(left, right, 101)
            # The edge keeps a set far narrower than a pixel visible.
            axes.fill_between(at, floor, norm.logpdf(at) / np.log(10), color=colour, lw=1.0)
    axes.axvline(result.statistic, color=REGION_COLOUR, lw=1.5)
    beside = result.statistic < low + 0.75 * (high - low)
    axes.annotate(
        f"z = {result.statistic:.2f}",
        (result.statistic, 0.93),
        xycoords=("data", "axes fraction"),
        xytext=(4 if beside else -4, 0),
        textcoords="offset points",
        color=REGION_COLOUR,
        ha="left" if beside else "right",
        va="center",
    )
    axes.set_xlim(low, high)
    axes.set_ylim(floor, ceiling + 0.1 * (ceiling - floor))
    axes.set_xlabel("z; shaded: same region chosen; dark: at least as extreme")
    axes.set_ylabel("log10 of the normal density")
    axes.locator_params(axis="x", nbins=6)
    axes.set_title(f"naive p {_short(result.naive_pvalue)},  selective p {_short(result.pvalue)}")


def _shown_range(result: AttentionTestResult) -> tuple[float, float]:
    """Return the part of the z axis to show: around zero, or around the statistic where that is far out."""
    z = result.statistic
    if abs(z) <= FAR_OUT:
        reach = max(4.0, abs(z) + 1.5)
        return -reach, reach
    left, right = result.intervals[np.searchsorted(result.intervals[:, 1], z)]
    left, right = max(left, z - FAR_OUT), min(right, z + FAR_OUT)
    margin = 0.4 * (right - left)
    return left - margin, right + margin


def _displayed(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an image as Matplotlib shows it: grey as it is, colour scaled to [0, 1]."""
    if image.ndim == 2:
        return image
    span = float(image.max() - image.min()) or 1.0
    return np.asarray((image - image.min()) / span)


def _outline(axes: Axes, region: NDArray[np.bool_]) -> None:
    """Draw the region's border along pixel edges."""
    from matplotlib.collections import LineCollection

    padded = np.pad(region, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    horizontal = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    vertical = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in zip(rows, columns, strict=True)]
    axes.add_collection(LineCollection(horizontal + vertical, colors=REGION_COLOUR, linewidths=2.5))


def _short(p: float) -> str:
    return "< 1e-307" if p < 1e-307 else f"= {p:.3f}" if p >= 0.001 else f"= {p:.1e}"
