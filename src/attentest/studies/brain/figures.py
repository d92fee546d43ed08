"""The figures of the study's page, drawn from the summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from attentest.results.plots import EXTREME_COLOUR, REGION_COLOUR, new_figure
from attentest.studies.brain.condition import CONTRASTS, ESTIMATORS, FROM_THE_SLICE, PAPER, THRESHOLDS, Condition
from attentest.studies.brain.finding import CLASS_NAMES, LEVEL, condition_of
from attentest.studies.document import png
from attentest.studies.rate_plot import draw_rates, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Summary: TypeAlias = Mapping[str, Any]

NOISES = (*ESTIMATORS, *FROM_THE_SLICE)

CLASS_COLOURS = {"tumour": REGION_COLOUR, "free": EXTREME_COLOUR}

CONTRAST_TITLES = {
    "background": "region against background",
    "neighbourhood": "region against its neighbourhood",
    "reference": "region against the mean slice",
}

ROOM_COLOURS = (REGION_COLOUR, "#e09f3e", EXTREME_COLOUR, "#5b8e7d")
ROOM_MARKERS = ("o", "s", "^", "D")

APART = 0.16
"""Half the distance of the points of the two classes, whose places are one apart."""

SMALLEST_SHOWN = 1e-6
"""p-values below lie at the edge of the figure: the search does not tell them apart."""


@dataclass(frozen=True, kw_only=True)
class PageFigure:
    """A figure of the page.

    Parameters
    ----------
    name
        Of its file, without the ending.
    caption
        What is to be seen.
    available
        Whether a summary has what it shows.
    draw
        From the summary to the figure.
    """

    name: str
    caption: str
    available: Callable[[Summary], bool]
    draw: Callable[[Summary], Figure]


def noise_condition(noise: str, contrast: str) -> Condition | None:
    """Return a noise model with a contrast; None where they do not go together."""
    if contrast == "reference" and noise in FROM_THE_SLICE:
        return None
    return Condition(noise=noise, contrast=contrast)


def class_rate(found: Mapping[str, Any] | None, name: str) -> Mapping[str, Any] | None:
    """Return how often the selective test rejects slices of a class under a condition, if there are some."""
    if found is None or name not in found["classes"]:
        return None
    rate: Mapping[str, Any] = found["classes"][name]["rates"]["selective"][LEVEL]
    return rate


def pvalues_figure(summary: Summary) -> Figure:
    """Draw distribution functions of the selective p and histograms of the naive one, by class."""
    points = summary["slices"]
    tumour = np.array(points["tumour"], dtype=bool)
    p, naive = np.array(points["p"]), np.array(points["log10_naive"])
    figure = new_figure(11.0, 5.0)
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.4", lw=1, ls="--", label="uniform")
    bins = np.linspace(naive.min(), 0.0, 41) if len(naive) and naive.min() < 0 else np.linspace(-1.0, 0.0, 41)
    for name, colour in CLASS_COLOURS.items():
        own = tumour == (name == "tumour")
        if not own.any():
            continue
        label = f"{CLASS_NAMES[name]} ({own.sum():,} slices)"
        left.ecdf(p[own], color=colour, lw=1.8, label=label)
        share = np.full(own.sum(), 1 / own.sum())
        right.hist(naive[own], bins, weights=share, histtype="stepfilled", alpha=0.25, color=colour)
        right.hist(naive[own], bins, weights=share, histtype="step", lw=1.6, color=colour)
    left.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="selective p", ylabel="share of slices with at most p")
    left.set_title("selective p")
    right.set(xlabel="log10 of the naive p", ylabel="share of slices")
    right.set_title("naive p")
    legend_below(figure, 3)
    return figure


def noise_figure(summary: Summary) -> Figure:
    """Draw the shares rejected, a row for each noise model and a panel for each contrast."""
    figure = new_figure(11.0, 5.0)
    for axes, contrast in zip(figure.subplots(1, len(CONTRASTS), sharey=True), CONTRASTS, strict=True):
        conditions = [noise_condition(noise, contrast) for noise in NOISES]
        found = [None if one is None else condition_of(summary, one) for one in conditions]
        for row, one in enumerate(found):
            if row % 2:
                axes.axhspan(row - 0.5, row + 0.5, color="0.955", lw=0, zorder=0)
            if one is None:
                axes.text(0.5, row, "not tested", color="0.55", fontsize=8.5, ha="center", va="center")
        _draw_classes(axes, found, range(len(NOISES)), APART, horizontal=True)
        axes.axvline(float(LEVEL), color="0.4", lw=1, ls="--", label=f"level {LEVEL}", zorder=1)
        axes.set_title(CONTRAST_TITLES[contrast], fontsize=10.5)
        axes.set(xlim=(-0.04, 1.04), ylim=(len(NOISES) - 0.5, -0.5), xlabel=f"share with p at most {LEVEL}")
        axes.set_yticks(range(len(NOISES)), NOISES)
    figure.axes[0].set_ylabel("noise model")
    legend_below(figure, 3)
    return figure


def threshold_figure(summary: Summary) -> Figure:
    """Draw the shares rejected and the size of the region against tau."""
    figure = new_figure(11.0, 4.4)
    left, right = figure.subplots(1, 2)
    found = [condition_of(summary, Condition(threshold=tau)) for tau in THRESHOLDS]
    _draw_classes(left, found, THRESHOLDS, 0.008)
    left.axhline(float(LEVEL), color="0.4", lw=1, ls="--", label=f"level {LEVEL}", zorder=1)
    left.set(ylim=(-0.04, 1.04), ylabel=f"share with p at most {LEVEL}")
    for place, (name, colour) in zip((-0.008, 0.008), CLASS_COLOURS.items(), strict=True):
        sizes = [
            (tau + place, one["classes"][name]["region"])
            for tau, one in zip(THRESHOLDS, found, strict=True)
            if one is not None and one["classes"].get(name, {}).get("region")
        ]
        spreads = [{"value": size["median"], "low": size["low"], "high": size["high"]} for _, size in sizes]
        draw_rates(right, [tau for tau, _ in sizes], spreads, colour, None)
    right.set_ylim(bottom=0)
    right.set_ylabel("pixels of the region")
    for axes, title in ((left, "rejections"), (right, "size of the region: median and middle 90%")):
        axes.set_title(title)
        axes.set_xlabel("threshold tau")
        axes.set_xticks(THRESHOLDS)
        axes.set_xlim(THRESHOLDS[0] - 0.04, THRESHOLDS[-1] + 0.04)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    legend_below(figure, 3)
    return figure


def overlap_figure(summary: Summary) -> Figure:
    """Draw p against the overlap of region and tumour, and shares rejected by classes of overlap."""
    points = summary["slices"]
    pairs = np.array([(iou, p) for iou, p in zip(points["iou"], points["p"], strict=True) if iou is not None])
    classes = summary["overlap"]["by_iou"]
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    iou, p = pairs.reshape(-1, 2).T
    left.plot(iou, np.maximum(p, SMALLEST_SHOWN), "o", color=REGION_COLOUR, ms=4, alpha=0.45, mew=0)
    left.axhline(float(LEVEL), color="0.4", lw=1, ls="--")
    left.set(yscale="log", ylim=(SMALLEST_SHOWN / 2, 2.0), xlabel="IoU of region and tumour", ylabel="selective p")
    marks = [10.0**power for power in range(-6, 1)]
    names = [f"1e{power}" for power in range(-5, 0)]
    left.set_yticks(marks, ["1e-6 or less", *names, "1"])
    left.set_yticks([], minor=True)
    left.set_xlim(left=-0.01)
    left.set_title("slices with tumour, one point each")
    draw_rates(right, range(len(classes)), [one["rate"] for one in classes], REGION_COLOUR, None)
    right.axhline(float(LEVEL), color="0.4", lw=1, ls="--")
    right.set_xticks(range(len(classes)), [f"{one['iou']}\n(n = {one['images']:,})" for one in classes])
    right.set(xlim=(-0.6, len(classes) - 0.4), ylim=(-0.04, 1.04), xlabel="IoU")
    right.set_ylabel(f"share with p at most {LEVEL}")
    right.set_title("rejections by overlap")
    for axes in (left, right):
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    return figure


def room_figure(summary: Summary) -> Figure:
    """Draw p against how far the density falls within the room of each slice."""
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2)
    for one, colour, marker in zip(_rooms(summary), ROOM_COLOURS, ROOM_MARKERS, strict=False):
        label = f"{one['noise']}, {one['contrast']}"
        left.plot(one["fall"], one["p"], marker, color=colour, ms=5, alpha=0.75, mew=0, label=label)
        right.ecdf(one["room_in_grey_levels"], color=colour, lw=1.8)
    left.axvline(1.0, color="0.4", lw=1, ls="--")
    left.set(xscale="log", ylim=(-0.03, 1.03), xlabel="room times statistic", ylabel="selective p")
    left.set_title("p can be small where the density falls")
    right.set(
        xscale="log", ylim=(0, 1), xlabel="room in grey levels (of 255)", ylabel="share of slices with at most so much"
    )
    right.set_title("how far before the region changes")
    for axes in (left, right):
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
    legend_below(figure, 4)
    return figure


def _rooms(summary: Summary) -> list[Mapping[str, Any]]:
    return [one for one in summary.get("room", []) if one["room"]]


def _draw_classes(
    axes: Axes, found: list[Mapping[str, Any] | None], places: Any, apart: float, horizontal: bool = False
) -> None:
    """Draw the shares rejected of both classes, beside each other, at the place of each condition that was tried."""
    for aside, (name, colour) in zip((-apart, apart), CLASS_COLOURS.items(), strict=True):
        rates = [(at + aside, class_rate(one, name)) for at, one in zip(places, found, strict=True)]
        there = [(at, rate) for at, rate in rates if rate is not None]
        label = CLASS_NAMES[name]
        draw_rates(axes, [at for at, _ in there], [rate for _, rate in there], colour, label, horizontal=horizontal)


def _several(conditions: list[Condition | None], summary: Summary) -> bool:
    """Return whether others than the paper's were tried."""
    return any(one is not None and one != PAPER and condition_of(summary, one) is not None for one in conditions)


FIGURES: tuple[PageFigure, ...] = (
    PageFigure(
        name="pvalues",
        caption="Left: distribution functions of the selective p under the paper's condition. A valid test gives the "
        "diagonal where the null hypothesis holds; above it p is smaller. Right: naive p, whose logarithms need an "
        "axis of their own.",
        available=lambda summary: bool(summary["slices"]["p"]),
        draw=pvalues_figure,
    ),
    PageFigure(
        name="noise",
        caption="Share of slices rejected at 0.05 by noise model and by what the region is compared with, with 95% "
        "intervals over patients. Conditions may differ in how many slices they are of: see the table.",
        available=lambda summary: _several([noise_condition(n, c) for n in NOISES for c in CONTRASTS], summary),
        draw=noise_figure,
    ),
    PageFigure(
        name="threshold",
        caption="Share of slices rejected at 0.05, with 95% intervals over patients, and size of the region, by the "
        "threshold on the attention map; the paper's is 0.6. Thresholds may differ in how many slices they are of.",
        available=lambda summary: _several([Condition(threshold=tau) for tau in THRESHOLDS], summary),
        draw=threshold_figure,
    ),
    PageFigure(
        name="overlap",
        caption="Selective p of slices with tumour by how far region and tumour overlap: their intersection over "
        "their union. Dashed: 0.05. p-values below 1e-6 lie at the edge.",
        available=lambda summary: summary["overlap"] is not None,
        draw=overlap_figure,
    ),
    PageFigure(
        name="room",
        caption="Of the slices shown below, under four conditions. Left: p against room times statistic; right of "
        "the dashed line the density falls within the room by more than a factor of e. Right: the room in grey levels.",
        available=lambda summary: bool(_rooms(summary)),
        draw=room_figure,
    ),
)


def available_figures(summary: Summary) -> list[PageFigure]:
    """Return the figures there are data for."""
    return [figure for figure in FIGURES if figure.available(summary)]


def drawn(figure: PageFigure, summary: Summary) -> bytes:
    """Return a figure as a PNG."""
    return png(figure.draw(summary))
