"""Figures that are not rates: distributions, curves, costs and pairs of p-values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from attentest.results.plots import EXTREME_COLOUR, REGION_COLOUR, new_figure
from attentest.studies.rate_plot import legend_below
from attentest.studies.reproduction.family import nearly_gaussian
from attentest.studies.reproduction.rate_figures import BY_ARCHITECTURE, BY_SIZE, FAMILY_COLOURS, model_axis
from attentest.studies.reproduction.series import NOISES
from attentest.studies.reproduction.tally import QUANTILES
from attentest.studies.reproduction.verdict import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEARCH_COLOURS = {
    "spectral": EXTREME_COLOUR,
    "adaptive": "#5b8e7d",
    "combination": "#e09f3e",
    "fixed": REGION_COLOUR,
}

MODEL_COLOURS = ("#1f6fb2", "#5b8e7d", "#e09f3e", "#d1495b", "#7b5ea7", "#3aa6b9", "#8d6e63")

FARTHEST = 0.04
"""Distance at which densities are drawn."""


def uniformity_figure(settings: Sequence[Setting]) -> Figure:
    """Draw quantiles of null p-values against those of the uniform distribution."""
    figure = new_figure(11.0, 5.2)
    models = list(dict.fromkeys(setting["model"] for setting in settings))
    for axes, noise in zip(figure.subplots(1, 2), NOISES, strict=True):
        axes.plot([0, 1], [0, 1], color="0.55", lw=1)
        for setting in settings:
            if setting["noise"] == noise:
                colour = MODEL_COLOURS[models.index(setting["model"]) % len(MODEL_COLOURS)]
                name = f"{setting['model']} ({setting['images']:,} images)"
                axes.plot(QUANTILES, setting["quantiles"], color=colour, lw=1.4, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="quantile of the uniform distribution")
        axes.set_title(f"{noise} noise")
        if len(axes.lines) > 1:
            axes.legend(loc="upper left", fontsize=8.5)
    figure.axes[0].set_ylabel("quantile of the selective p-values")
    return figure


def time_figure(settings: Sequence[Setting]) -> Figure:
    """Draw seconds an image of each search on a logarithmic axis, by image size and by architecture."""
    figure = new_figure(11.0, 4.6)
    timed = {setting["model"] for setting in settings}
    chosen = [models for models in (BY_SIZE, BY_ARCHITECTURE) if timed & set(models)]
    for axes, models in zip(np.ravel(figure.subplots(1, len(chosen), sharey=True)), chosen, strict=True):
        for search, colour in SEARCH_COLOURS.items():
            for noise, marker, style, place in zip(NOISES, ("o", "s"), ("-", ":"), (-0.04, 0.04), strict=True):
                found = sorted(
                    (models.index(setting["model"]) + place, setting["seconds"])
                    for setting in settings
                    if setting["search"] == search
                    and setting["noise"] == noise
                    and setting["model"] in models
                    and setting["seconds"]
                )
                if found:
                    x, seconds = zip(*found, strict=True)
                    name = f"{search}, {noise}"
                    axes.plot(x, seconds, marker=marker, ls=style, color=colour, ms=5, lw=1.4, label=name)
        axes.set_yscale("log")
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        model_axis(axes, models)
    figure.axes[0].set_ylabel("seconds an image")
    legend_below(figure, 4)
    return figure


def densities_figure() -> Figure:
    """Draw the five families at distance 0.04 with the Gaussian."""
    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.linspace(-4.0, 4.0, 801)
    axes.plot(x, norm.pdf(x), color="black", lw=1.6, ls="--", label="Gaussian")
    for family, colour in FAMILY_COLOURS.items():
        axes.plot(x, nearly_gaussian(family, FARTHEST).density(x), color=colour, lw=1.5, label=family)
    axes.set(xlim=(-4, 4), xlabel="noise of a pixel", ylabel="density")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=9, frameon=False)
    return figure


def demonstration_figure(settings: Sequence[Setting]) -> Figure:
    """Draw f_i of each image, far out and close to the statistic."""
    figure = new_figure(11.0, 3.0 * len(settings) + 0.4)
    panels = figure.subplots(len(settings), 2, squeeze=False)
    for row, setting in zip(panels, settings, strict=True):
        for axes, part in zip(row, ("far", "close"), strict=True):
            _draw_curves(axes, setting, part)
        row[0].set_ylabel(f"f_i, image {setting['image']}")
    panels[0][0].set_title("whole line", fontsize=10)
    panels[0][1].set_title("within 0.1 of the statistic", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("z")
    legend_below(figure, 2)
    return figure


def _draw_curves(axes: Axes, setting: Setting, part: str) -> None:
    curves = setting[part]
    for group, colour in (("outside", "#e09f3e"), ("inside", EXTREME_COLOUR)):
        for number, curve in enumerate(curves[group]):
            name = None if number else f"pixels {group} the region"
            axes.plot(curves["z"], curve, color=colour, lw=0.8, alpha=0.75, label=name)
    axes.axhline(0.0, color=REGION_COLOUR, lw=1)
    axes.axvline(setting["statistic"], color=REGION_COLOUR, lw=1.4)
    axes.set_xlim(curves["z"][0], curves["z"][-1])


def precision_figure(settings: Sequence[Setting]) -> Figure:
    """Draw p-values in float32 against those in float64."""
    figure = new_figure(5.6 * len(settings), 5.2)
    for axes, setting in zip(np.ravel(figure.subplots(1, len(settings))), settings, strict=True):
        axes.plot([0, 1], [0, 1], color="0.55", lw=1)
        for changed, colour, name in ((False, EXTREME_COLOUR, "same region"), (True, REGION_COLOUR, "other region")):
            pairs = [(p, single) for p, single, other in setting["pairs"] if other == changed]
            axes.plot(
                [p for p, _ in pairs],
                [single for _, single in pairs],
                "o",
                ms=3.5,
                alpha=0.7,
                color=colour,
                label=f"{name} ({len(pairs)})",
            )
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axes.set(xlabel="p in float64, spectral search", ylabel="p in float32, combination search")
        axes.set_title(setting["model"] + ", authors' model" * setting["published"])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9, frameon=False)
    return figure
