"""Figures of p-values, times, densities and target functions, drawn from the settings of the experiments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.log_axis import make_logarithmic
from attentest.results.figures.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from attentest.simulation.nearly_gaussian import nearly_gaussian
from attentest.studies.rate_plot import draw_grid, draw_level, legend_below
from attentest.studies.reproduction.experiment import DISTANCES
from attentest.studies.reproduction.measures import QUANTILES, Setting, chosen
from attentest.studies.reproduction.rate_figures import BY_ARCHITECTURE, BY_SIZE, FAMILY_STYLES, model_axis
from attentest.studies.reproduction.series import NOISES
from attentest.training.paper_model import MODELS, architecture_of, side_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEARCH_COLOURS = {"spectral": BLUE, "adaptive": GREEN, "combination": ORANGE, "fixed": VERMILION}
MODEL_STYLES = dict(
    zip(
        MODELS,
        ((BLUE, "-"), (GREEN, "--"), (ORANGE, "-"), (VERMILION, "--"), (PURPLE, "-"), (SKY, "--"), ("0.4", "-")),
        strict=True,
    )
)
LINE_STYLES = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
"""Of the families of noise, which colour alone would not tell apart in print."""


def uniformity_figure(settings: Sequence[Setting]) -> Figure:
    """Draw quantiles of null p-values against those of the uniform distribution."""
    figure = new_figure(11.0, 6.3)
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        _draw_diagonal(axes, "uniform distribution")
        for setting in chosen(settings, noise=noise):
            colour, line = MODEL_STYLES[setting["model"]]
            name = f"{_model_name(setting)} ({setting['images']:,} images)"
            axes.plot(QUANTILES, setting["quantiles"], color=colour, ls=line, lw=1.5, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="quantile of the uniform distribution")
        axes.set_title(f"{noise} noise")
    figure.axes[0].set_ylabel("quantile of the selective p-values")
    legend_below(figure, 4)
    return figure


def time_figure(settings: Sequence[Setting]) -> Figure:
    """Draw seconds per image of each search on a logarithmic axis, by image size and by architecture."""
    figure = new_figure(11.0, 5.0)
    timed = {setting["model"] for setting in settings}
    groups = [models for models in (BY_SIZE, BY_ARCHITECTURE) if timed & set(models)]
    for axes, models in zip(np.ravel(figure.subplots(1, len(groups), sharey=True)), groups, strict=True):
        for search, colour in SEARCH_COLOURS.items():
            for noise, marker, style, offset in zip(NOISES, "os", "-:", (-0.04, 0.04), strict=True):
                shown = [one for one in chosen(settings, search=search, noise=noise) if one["model"] in models]
                found = sorted((models.index(one["model"]) + offset, one["seconds"]) for one in shown if one["seconds"])
                if found:
                    look: dict[str, Any] = {"marker": marker, "ls": style, "color": colour, "ms": 5, "lw": 1.4}
                    axes.plot(*zip(*found, strict=True), label=f"{search}, {noise} noise", **look)
        make_logarithmic(axes, "y")
        draw_grid(axes)
        model_axis(axes, models)
    devices = ", ".join(dict.fromkeys(device for setting in settings for device in setting["devices"]))
    figure.suptitle(f"time of a test on {devices}", fontsize=11)
    figure.axes[0].set_ylabel("seconds per image")
    legend_below(figure, 4)
    return figure


def densities_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the five families at the greatest distance with the Gaussian, whatever the settings."""
    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.linspace(-4.0, 4.0, 801)
    axes.plot(x, norm.pdf(x), color="0.4", lw=3.5, alpha=0.45, label="Gaussian")
    for (family, (colour, _)), line in zip(FAMILY_STYLES.items(), LINE_STYLES, strict=True):
        density = nearly_gaussian(family, DISTANCES[-1]).density(x)
        axes.plot(x, density, color=colour, ls=line, lw=1.5, label=family)
    axes.set(xlim=(-4, 4), xlabel="noise of a pixel, in standard deviations", ylabel="density")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=9, frameon=False)
    return figure


def demonstration_figure(settings: Sequence[Setting]) -> Figure:
    """Draw f_i of each image, far out and close to the statistic."""
    figure = new_figure(11.0, 3.0 * len(settings) + 0.6)
    panels = figure.subplots(len(settings), 2, squeeze=False, sharex="col", sharey="row")
    for row, setting in zip(panels, settings, strict=True):
        for axes, curves, origin in zip(
            row, (setting["far"], setting["close"]), (0.0, setting["statistic"]), strict=True
        ):
            z = np.array(curves["z"]) - origin
            for group, colour in (("outside", ORANGE), ("inside", BLUE)):
                for number, curve in enumerate(curves[group]):
                    name = None if number else f"pixels {group} the region"
                    axes.plot(z, curve, color=colour, lw=0.9, alpha=0.75, label=name)
            draw_level(axes, 0.0, "zero: above it a pixel is on the other side")
            axes.axvline(setting["statistic"] - origin, color=VERMILION, lw=1.6, label="observed statistic")
            axes.margins(x=0)
            axes.locator_params(axis="x", nbins=5)
        row[0].set_ylabel(f"image {setting['image']}: f_i\n(in units of attention, 0 to 1)")
    for axes, title in zip(panels[0], ("the whole line", "close to the observed statistic"), strict=True):
        axes.set_title(title)
    panels[-1, 0].set_xlabel("z (the statistic, in standard errors)")
    panels[-1, 1].set_xlabel("z minus the observed statistic")
    legend_below(figure, 4)
    return figure


def precision_figure(settings: Sequence[Setting]) -> Figure:
    """Draw p-values in float32 against those in float64."""
    figure = new_figure(5.6 * len(settings), 5.9)
    for axes, setting in zip(np.ravel(figure.subplots(1, len(settings))), settings, strict=True):
        _draw_diagonal(axes, "equal p")
        for changed, colour, marker, name in (
            (False, BLUE, "o", "same region"),
            (True, VERMILION, "s", "another region"),
        ):
            pairs = np.array([(p, single) for p, single, other in setting["pairs"] if other == changed]).reshape(-1, 2)
            axes.plot(*pairs.T, marker, ms=3.8, alpha=0.7, mew=0, color=colour, label=f"{name} ({len(pairs)})")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axes.set(xlabel="p in float64, spectral search", ylabel="p in float32, combination search")
        axes.set_title(_model_name(setting) + ", authors' model" * setting["published"])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, fontsize=9, frameon=False)
    return figure


def _draw_diagonal(axes: Axes, name: str) -> None:
    axes.plot([0, 1], [0, 1], color="0.4", lw=1, ls="--", label=name)


def _model_name(setting: Setting) -> str:
    side = side_of(setting["model"])
    return f"{architecture_of(setting['model'])} {side}x{side}"
