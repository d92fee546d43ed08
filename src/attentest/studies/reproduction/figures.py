"""The figures of the results page, drawn from the settings of the experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from attentest.registry import REGION_UNITS
from attentest.results.figures.figure_file import new_figure
from attentest.results.figures.palette import EXTREME_COLOUR, REGION_COLOUR
from attentest.simulation.nearly_gaussian import FAMILIES, nearly_gaussian
from attentest.studies.document import png
from attentest.studies.rate_plot import draw_grid, draw_rates, legend_below
from attentest.studies.reproduction.experiment import DEFAULT_MODEL, DISTANCES, GAMMAS
from attentest.studies.reproduction.measures import QUANTILES, Setting, chosen
from attentest.studies.reproduction.published import POWER
from attentest.studies.reproduction.series import NOISES
from attentest.training.paper_model import MODELS, architecture_of, side_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_SIZE = ("base8", "base16", "base32", "base64")
BY_ARCHITECTURE = ("small16", "base16", "large16", "huge16")

GREEN, ORANGE, PURPLE = "#5b8e7d", "#e09f3e", "#7b5ea7"
TEST_COLOURS = {"selective": EXTREME_COLOUR, "naive": REGION_COLOUR, "permutation": ORANGE, "bonferroni": GREEN}
TEST_NAMES = {test: "Bonferroni" if test == "bonferroni" else test for test in TEST_COLOURS}
LEVEL_COLOURS = {"0.01": GREEN, "0.05": EXTREME_COLOUR, "0.1": ORANGE}
GAMMA_COLOURS = dict(zip(GAMMAS, (REGION_COLOUR, ORANGE, GREEN, EXTREME_COLOUR), strict=True))
FAMILY_COLOURS = dict(zip(FAMILIES, (GREEN, REGION_COLOUR, ORANGE, EXTREME_COLOUR, PURPLE), strict=True))
SEARCH_COLOURS = {"spectral": EXTREME_COLOUR, "adaptive": GREEN, "combination": ORANGE, "fixed": REGION_COLOUR}
MODEL_COLOURS = dict(
    zip(MODELS, (EXTREME_COLOUR, GREEN, ORANGE, REGION_COLOUR, PURPLE, "#3aa6b9", "#8d6e63"), strict=True)
)


def _model_axis(axes: Axes, models: Sequence[str]) -> None:
    """Label the horizontal axis with models: pixels of the image, or the architecture."""
    by_size = tuple(models) == BY_SIZE
    axes.set_xticks(range(len(models)), [f"{side_of(m) ** 2:,}" if by_size else architecture_of(m) for m in models])
    axes.set_xlim(-0.6, len(models) - 0.4)
    axes.set_xlabel("pixels of the image" if by_size else "architecture (16x16 images)")


def _finished(figure: Figure, ylabel: str, columns: int, from_zero: bool = False) -> Figure:
    """Add a label and a legend; let rates start at zero, with space for a point there, now that all is drawn."""
    for axes in figure.axes if from_zero else ():
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.02 * top, top)
    figure.axes[0].set_ylabel(ylabel)
    legend_below(figure, columns)
    return figure


def type_i_error_figure(settings: Sequence[Setting], models: Sequence[str]) -> Figure:
    """Draw the type I error of four tests, with attentest's models and the authors'."""
    figure = new_figure(11.0, 4.6)
    whose = (False, True) if chosen(settings, published=True) else (False,)
    groups = [(test, authors) for test in TEST_COLOURS for authors in whose]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for offset, (test, authors) in zip(np.linspace(-0.32, 0.32, len(groups)), groups, strict=True):
            shown = [one for one in chosen(settings, noise=noise, published=authors) if test in one["tests"]]
            name = TEST_NAMES[test] + ", authors' models" * authors
            places = [models.index(setting["model"]) + offset for setting in shown]
            rates = [setting["tests"][test] for setting in shown]
            draw_rates(axes, places, rates, TEST_COLOURS[test], name, hollow=authors)
        axes.axhline(0.05, color="0.4", lw=1, ls="--", zorder=0, label="level 0.05")
        axes.set_title(f"{noise} noise")
        axes.set_ylim(-0.03, 1.05)
        draw_grid(axes)
        _model_axis(axes, models)
    return _finished(figure, "share of null images rejected", 5)


def levels_figure(settings: Sequence[Setting], panels: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> Figure:
    """Draw rates of the selective test with their bands; panels give models and covariances for each title."""
    figure = new_figure(11.0, 4.2)
    for axes, (title, (models, noises)) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        shown = [setting for setting in settings if setting["model"] in models and setting["noise"] in noises]
        for offset, (alpha, colour) in zip((-0.2, 0.0, 0.2), LEVEL_COLOURS.items(), strict=True):
            axes.axhline(float(alpha), color=colour, lw=1, ls="--")
            places = [models.index(setting["model"]) + offset for setting in shown]
            rates = [setting["levels"][alpha] for setting in shown]
            for at, rate in zip(places, rates, strict=True):
                axes.fill_between([at - 0.08, at + 0.08], *rate["band"], color=colour, alpha=0.18, lw=0)
            draw_rates(axes, places, rates, colour, f"level {float(alpha):.2f}")
        axes.set_title(title)
        _model_axis(axes, models)
    return _finished(figure, "share of null images rejected", 3, from_zero=True)


def power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of the selective test and of Bonferroni, and the published values."""
    figure = new_figure(11.0, 4.4)
    groups = [("selective", 0.06), ("bonferroni", 0.16)]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for test, authors, offset in [(t, a, o if a else -o) for t, o in groups for a in (False, True)]:
            shown = chosen(settings, noise=noise, published=authors)
            name = TEST_NAMES[test] + (", authors' models" if authors else ", attentest's models")
            places = [setting["delta"] + offset for setting in shown]
            rates = [setting["tests"][test] for setting in shown]
            draw_rates(axes, places, rates, TEST_COLOURS[test], name, hollow=authors)
        published = POWER[noise]
        axes.plot(list(published), list(published.values()), "x", color="black", ms=7, label="selective, published")
        axes.set_title(f"{noise} noise")
        axes.set(xlabel="strength of the signal, Delta", ylim=(-0.03, 1.05), xlim=(0.6, 4.4), xticks=list(published))
        draw_grid(axes)
    return _finished(figure, "share of images with p at most 0.05", 3)


def our_levels_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the type I error of our tests and the paper's with their bands, hollow for whole patches."""
    figure = new_figure(11.0, 4.6)
    models = [model for model in MODELS if chosen(settings, model=model)]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        shown = chosen(settings, noise=noise)
        for at, model in enumerate(models):
            for one in chosen(shown, model=model)[:1]:  # all tests have the same band
                axes.fill_between([at - 0.4, at + 0.4], *one["rejected"]["band"], color="0.93", lw=0, zorder=0)
        axes.axhline(0.05, color="0.4", lw=1, ls="--", zorder=0, label="level 0.05, and its band")
        _draw_our_tests(axes, shown, lambda one: models.index(one["model"]))
        axes.set_title(f"{noise} noise")
        axes.set_xticks(range(len(models)), models)
        draw_grid(axes)
    return _finished(figure, "share of null images rejected", 4, from_zero=True)


def our_power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of our tests and the paper's above the length of their intervals, hollow for whole patches."""
    figure = new_figure(11.0, 8.0)
    own = chosen(settings, model=DEFAULT_MODEL, published=False) or settings
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for (above, below), noise in zip(panels.T, NOISES, strict=True):
        shown = chosen(own, noise=noise)
        known = [one for one in shown if one["length"] and one["length"]["median"] is not None]
        lengths = [
            {**one, "rejected": dict.fromkeys(("value", "low", "high"), one["length"]["median"])} for one in known
        ]
        _draw_our_tests(above, shown, lambda one: one["delta"])
        _draw_our_tests(below, lengths, lambda one: one["delta"])
        above.set(title=f"{noise} noise", ylim=(-0.03, 1.05))
        below.set(yscale="log", xlabel="strength of the signal, Delta", xticks=list(POWER[noise]))
        for axes in (above, below):
            draw_grid(axes)
    panels[1, 0].set_ylabel("median length of the interval over the naive one")
    return _finished(figure, "share of images with p at most 0.05", 4)


def _draw_our_tests(axes: Axes, settings: Sequence[Setting], place: Callable[[Setting], float]) -> None:
    """Draw the shares rejected by each test side by side at the place of their setting."""
    tests = [(gamma, region) for gamma in GAMMAS for region in REGION_UNITS]
    for offset, (gamma, region) in zip(np.linspace(-0.3, 0.3, len(tests)), tests, strict=True):
        if own := chosen(settings, region=region, randomise=gamma):
            places, rates = [place(one) + offset for one in own], [one["rejected"] for one in own]
            draw_rates(axes, places, rates, GAMMA_COLOURS[gamma], own[0]["test"], hollow=region == "patches")


def non_gaussian_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the rates by family and distance, with one panel per level."""
    figure = new_figure(11.0, 4.4)
    for axes, alpha in zip(figure.subplots(1, 2), ("0.05", "0.01"), strict=True):
        axes.axhline(float(alpha), color="0.4", lw=1, ls="--")
        for offset, (family, colour) in zip(np.linspace(-0.0025, 0.0025, 5), FAMILY_COLOURS.items(), strict=True):
            shown = chosen(settings, family=family)
            places = [setting["distance"] + offset for setting in shown]
            draw_rates(axes, places, [setting["levels"][alpha] for setting in shown], colour, family)
        axes.set_title(f"level {alpha}")
        axes.set(xlabel="1-Wasserstein distance from the Gaussian", xticks=DISTANCES)
        draw_grid(axes)
    return _finished(figure, "share of null images rejected", 5, from_zero=True)


def uniformity_figure(settings: Sequence[Setting]) -> Figure:
    """Draw quantiles of null p-values against those of the uniform distribution."""
    figure = new_figure(11.0, 5.2)
    for axes, noise in zip(figure.subplots(1, 2), NOISES, strict=True):
        axes.plot([0, 1], [0, 1], color="0.55", lw=1)
        for setting in chosen(settings, noise=noise):
            colour, name = MODEL_COLOURS[setting["model"]], f"{setting['model']} ({setting['images']:,} images)"
            axes.plot(QUANTILES, setting["quantiles"], color=colour, lw=1.4, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="quantile of the uniform distribution")
        axes.set_title(f"{noise} noise")
        if len(axes.lines) > 1:
            axes.legend(loc="upper left", fontsize=8.5)
    figure.axes[0].set_ylabel("quantile of the selective p-values")
    return figure


def time_figure(settings: Sequence[Setting]) -> Figure:
    """Draw seconds per image of each search on a logarithmic axis, by image size and by architecture."""
    figure = new_figure(11.0, 4.6)
    timed = {setting["model"] for setting in settings}
    groups = [models for models in (BY_SIZE, BY_ARCHITECTURE) if timed & set(models)]
    for axes, models in zip(np.ravel(figure.subplots(1, len(groups), sharey=True)), groups, strict=True):
        for search, colour in SEARCH_COLOURS.items():
            for noise, marker, style, offset in zip(NOISES, "os", "-:", (-0.04, 0.04), strict=True):
                shown = [one for one in chosen(settings, search=search, noise=noise) if one["model"] in models]
                found = sorted((models.index(one["model"]) + offset, one["seconds"]) for one in shown if one["seconds"])
                if found:
                    look: dict[str, Any] = {"marker": marker, "ls": style, "color": colour, "ms": 5, "lw": 1.4}
                    axes.plot(*zip(*found, strict=True), label=f"{search}, {noise}", **look)
        axes.set_yscale("log")
        draw_grid(axes)
        _model_axis(axes, models)
    return _finished(figure, "seconds per image", 4)


def densities_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the five families at the greatest distance with the Gaussian, whatever the settings."""
    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.linspace(-4.0, 4.0, 801)
    axes.plot(x, norm.pdf(x), color="black", lw=1.6, ls="--", label="Gaussian")
    for family, colour in FAMILY_COLOURS.items():
        axes.plot(x, nearly_gaussian(family, DISTANCES[-1]).density(x), color=colour, lw=1.5, label=family)
    axes.set(xlim=(-4, 4), xlabel="noise of a pixel", ylabel="density")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize=9, frameon=False)
    return figure


def demonstration_figure(settings: Sequence[Setting]) -> Figure:
    """Draw f_i of each image, far out and close to the statistic."""
    figure = new_figure(11.0, 3.0 * len(settings) + 0.4)
    panels = figure.subplots(len(settings), 2, squeeze=False)
    for row, setting in zip(panels, settings, strict=True):
        for axes, curves in zip(row, (setting["far"], setting["close"]), strict=True):
            for group, colour in (("outside", ORANGE), ("inside", EXTREME_COLOUR)):
                for number, curve in enumerate(curves[group]):
                    name = None if number else f"pixels {group} the region"
                    axes.plot(curves["z"], curve, color=colour, lw=0.8, alpha=0.75, label=name)
            axes.axhline(0.0, color=REGION_COLOUR, lw=1)
            axes.axvline(setting["statistic"], color=REGION_COLOUR, lw=1.4)
            axes.set_xlim(curves["z"][0], curves["z"][-1])
        row[0].set_ylabel(f"f_i, image {setting['image']}")
    for axes, title in zip(panels[0], ("whole line", "within 0.1 of the statistic"), strict=True):
        axes.set_title(title, fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("z")
    legend_below(figure, 2)
    return figure


def precision_figure(settings: Sequence[Setting]) -> Figure:
    """Draw p-values in float32 against those in float64."""
    figure = new_figure(5.6 * len(settings), 5.2)
    for axes, setting in zip(np.ravel(figure.subplots(1, len(settings))), settings, strict=True):
        axes.plot([0, 1], [0, 1], color="0.55", lw=1)
        for changed, colour, name in ((False, EXTREME_COLOUR, "same region"), (True, REGION_COLOUR, "other region")):
            pairs = np.array([(p, single) for p, single, other in setting["pairs"] if other == changed]).reshape(-1, 2)
            axes.plot(*pairs.T, "o", ms=3.5, alpha=0.7, color=colour, label=f"{name} ({len(pairs)})")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axes.set(xlabel="p in float64, spectral search", ylabel="p in float32, combination search")
        axes.set_title(setting["model"] + ", authors' model" * setting["published"])
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=9, frameon=False)
    return figure


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
        "Seconds per image of each search, by image size and by architecture.",
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
        "f_i of pixels in the region and outside it. Vertical red: the observed statistic. Where no f_i is above zero "
        "the region is the observed one.",
    ),
    PageFigure(
        "precision", "precision", precision_figure, "The same test in float32 and float64, one point per image."
    ),
)


def drawn_figures(summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the PNGs of the figures that a summary has data for, by name."""
    return {figure.name: png(figure.draw(found)) for figure in FIGURES if (found := figure.settings(summary))}
