"""The figures of the results page, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from attentest.presentation.figure import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, make_logarithmic, new_figure
from attentest.simulation.images import nearly_gaussian
from attentest.studies.document import png
from attentest.studies.rates import draw_grid, draw_level, legend_below
from attentest.studies.reproduction.experiment import DISTANCES, NOISES
from attentest.studies.reproduction.measures import QUANTILES, Setting, chosen
from attentest.studies.reproduction.rate_figures import (
    BY_ARCHITECTURE,
    BY_SIZE,
    FAMILY_STYLES,
    levels_figure,
    model_axis,
    non_gaussian_figure,
    our_levels_figure,
    our_power_figure,
    power_figure,
    type_i_error_figure,
)
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


class PageFigure(NamedTuple):
    """A figure of the page, with its caption."""

    name: str
    experiment: str  # whose settings are drawn
    draw: Callable[[Sequence[Setting]], Figure]
    caption: str
    models: Sequence[str] | None = None  # whose settings are drawn; those of all by default
    part: str = "settings"  # of the experiment; or "ours", our tests

    def settings(self, summary: Mapping[str, Any]) -> list[Setting]:
        """Return the settings that it shows."""
        settings = summary["experiments"].get(self.experiment, {}).get(self.part, [])
        return [one for one in settings if self.models is None or one["model"] in self.models]


RATES = "Share of null images rejected, with 95% Wilson intervals"
AXES = {"size": ("image size", BY_SIZE), "architecture": ("architecture", BY_ARCHITECTURE)}

FIGURES: tuple[PageFigure, ...] = (
    *(
        PageFigure(
            f"type-i-error-{axis}",
            "type-i-error",
            partial(type_i_error_figure, models=models),
            f"{RATES}, by {words}. Hollow: the authors' models.",
            models,
        )
        for axis, (words, models) in AXES.items()
    ),
    *(
        PageFigure(
            f"additional-trials-{axis}",
            "additional-trials",
            partial(levels_figure, panels={f"{noise} noise": (models, (noise,)) for noise in NOISES}),
            f"{RATES}, by {words}, at three levels. Shaded: the band.",
            models,
        )
        for axis, (words, models) in AXES.items()
    ),
    PageFigure(
        "uniformity",
        "additional-trials",
        uniformity_figure,
        "Quantiles of the selective p-values of null images. Those of a valid test lie on the diagonal.",
    ),
    PageFigure(
        "power", "power", power_figure, "Share of images with a signal that are found, with 95% Wilson intervals."
    ),
    PageFigure(
        "type-i-error-ours",
        "type-i-error",
        our_levels_figure,
        f"{RATES}, of our tests and the paper's. Hollow: whole patches. Shaded: the band.",
        part="ours",
    ),
    PageFigure(
        "power-ours",
        "power",
        our_power_figure,
        "Above: share of images with a signal that are found, with 95% Wilson intervals. Below: length of the 95% "
        "interval in units of the naive one. Our tests and the paper's; hollow: whole patches.",
        part="ours",
    ),
    PageFigure(
        "computation-time",
        "computation-time",
        time_figure,
        "Seconds per image of each search, by image size and by architecture. Up to 100 images are tested together.",
    ),
    PageFigure(
        "estimated-variance",
        "estimated-variance",
        partial(levels_figure, panels={words: (models, tuple(NOISES)) for words, models in AXES.values()}),
        f"{RATES}, with the variance of each image estimated from it. Shaded: the band.",
    ),
    PageFigure(
        "non-gaussian", "non-gaussian", non_gaussian_figure, f"{RATES}, with noise at some distance from Gaussian."
    ),
    PageFigure("densities", "non-gaussian", densities_figure, "Densities of the five families at distance 0.04."),
    PageFigure(
        "demonstration",
        "demonstration",
        demonstration_figure,
        "The target functions f_i of pixels in the region and outside it: how far the attention of a pixel is on the "
        "wrong side of the threshold. Where no f_i is above zero the region is the observed one.",
    ),
    PageFigure(
        "precision", "precision", precision_figure, "The same test in float32 and float64, one point per image."
    ),
)


def drawn_figures(summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the PNGs of the figures that a summary has data for, by name."""
    return {figure.name: png(figure.draw(found)) for figure in FIGURES if (found := figure.settings(summary))}
