"""The figures of the results page, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from attentest.presentation.figure import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, make_logarithmic, new_figure
from attentest.registry import REGION_UNITS
from attentest.simulation.images import FAMILIES, nearly_gaussian
from attentest.studies import rate_figures as charts
from attentest.studies.document import png
from attentest.studies.measures import QUANTILES
from attentest.studies.reproduction.experiment import DEFAULT_MODEL, DISTANCES, GAMMAS, NOISES, series_words
from attentest.studies.reproduction.measures import POWER, Setting, chosen
from attentest.training.paper_model import ALL_MODELS, MODELS, architecture_of, axes_of, model_name, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_SIZE = ("base8", "base16", "base32", "base64")
BY_ARCHITECTURE = ("small16", "base16", "large16", "huge16")
BY_LENGTH = tuple(f"series-base{length}" for length in (128, 256, 512, 1024))
BY_SERIES_ARCHITECTURE = tuple(f"series-{architecture}256" for architecture in ("small", "base", "large", "huge"))
MODEL_AXES = {
    BY_SIZE: "pixels of the image (base architecture)",
    BY_ARCHITECTURE: "architecture (images of 16x16 pixels)",
    BY_LENGTH: "length of the series (base architecture)",
    BY_SERIES_ARCHITECTURE: "architecture (series of 256 samples)",
}
"""Models along a horizontal axis, and its label."""

NOISE_TITLES = [f"{noise} noise" for noise in NOISES]

TEST_STYLES = {
    "selective": (BLUE, "o"),
    "naive": (VERMILION, "s"),
    "permutation": (ORANGE, "^"),
    "bonferroni": (GREEN, "D"),
}
TEST_NAMES = {test: "Bonferroni" if test == "bonferroni" else test for test in TEST_STYLES}
LEVEL_STYLES = {"0.01": (GREEN, "D"), "0.05": (BLUE, "o"), "0.1": (ORANGE, "^")}
GAMMA_STYLES = dict(zip(GAMMAS, ((VERMILION, "s"), (ORANGE, "^"), (GREEN, "D"), (BLUE, "o")), strict=True))
FAMILY_STYLES = dict(
    zip(FAMILIES, ((GREEN, "D"), (VERMILION, "s"), (ORANGE, "^"), (BLUE, "o"), (PURPLE, "v")), strict=True)
)
SEARCH_COLOURS = {"spectral": BLUE, "adaptive": GREEN, "combination": ORANGE, "fixed": VERMILION}
MODEL_STYLES = dict(
    zip(MODELS, zip((BLUE, GREEN, ORANGE, VERMILION, PURPLE, SKY, "0.4"), cycle(("-", "--"))), strict=True)
)
LINE_STYLES = ("-", (0, (5, 1.5)), "-.", (0, (1, 1)), (0, (3, 1, 1, 1, 1, 1)))
"""Of the families of noise, which colour alone would not tell apart in print."""

REJECTED = "share of null images rejected\n(bars: 95% intervals)"
FOUND = "share of images with p at most 0.05\n(bars: 95% intervals)"
SIGNAL = "height of the signal, Delta (in standard deviations of the noise)"
BAND = "band: range of the rates of a valid test"


def _model_axis(axes: Axes, models: tuple[str, ...]) -> None:
    """Label the horizontal axis with models: sizes or lengths, or architectures."""
    name = architecture_of if models in (BY_ARCHITECTURE, BY_SERIES_ARCHITECTURE) else size_of
    axes.set_xticks(range(len(models)), [name(model) for model in models])
    axes.set(xlim=(-0.6, len(models) - 0.4), xlabel=MODEL_AXES[models])


def _from_zero(figure: Figure) -> Figure:
    """Return a figure whose rates start at zero, with space for a point there, now that all is drawn."""
    for axes in figure.axes:
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.02 * top, top)
    return figure


def type_i_error_figure(settings: Sequence[Setting], models: tuple[str, ...]) -> Figure:
    """Draw the type I error of four tests, with attentest's models and the authors'."""
    figure, panels = charts.titled_panels(11.0, 4.8, NOISE_TITLES)
    whose = (False, True) if chosen(settings, published=True) else (False,)
    groups = [(test, authors) for test in TEST_STYLES for authors in whose]
    for axes, noise in zip(panels, NOISES, strict=True):
        for offset, (test, authors) in zip(np.linspace(-0.32, 0.32, len(groups)), groups, strict=True):
            rates = [
                (models.index(setting["model"]) + offset, setting["tests"][test])
                for setting in chosen(settings, noise=noise, published=authors)
                if test in setting["tests"]
            ]
            name = TEST_NAMES[test] + ", authors' models" * authors
            charts.draw_rates(axes, rates, TEST_STYLES[test], name, hollow=authors)
        charts.draw_level(axes, 0.05, "level 0.05")
        axes.set_ylim(-0.03, 1.05)
        charts.draw_grid(axes)
        _model_axis(axes, models)
    return charts.legend_below(figure, 5, series_words(REJECTED, axes_of(models[0]) == 1))


def levels_figure(settings: Sequence[Setting], panels: Mapping[str, tuple[tuple[str, ...], Sequence[str]]]) -> Figure:
    """Draw rates of the selective test with their bands; panels give models and covariances for each title."""
    figure, all_axes = charts.titled_panels(11.0, 4.6, panels)
    for axes, (models, noises) in zip(all_axes, panels.values(), strict=True):
        shown = [setting for setting in settings if setting["model"] in models and setting["noise"] in noises]
        for offset, (alpha, style) in zip((-0.2, 0.0, 0.2), LEVEL_STYLES.items(), strict=True):
            axes.axhline(float(alpha), color=style[0], lw=1, ls="--")
            rates = [(models.index(setting["model"]) + offset, setting["levels"][alpha]) for setting in shown]
            for place, rate in rates:
                axes.fill_between([place - 0.08, place + 0.08], *rate["band"], color=style[0], **charts.SHADE)
            charts.draw_rates(axes, rates, style, f"rejected at {float(alpha):.2f}")
        charts.name_in_legend(axes, "the level", dashed=True)
        charts.name_in_legend(axes, BAND)
        _model_axis(axes, models)
    return charts.legend_below(_from_zero(figure), 5, REJECTED)


def power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of the selective test and of Bonferroni, and the published values."""
    figure, panels = charts.titled_panels(11.0, 4.6, NOISE_TITLES)
    first, offsets = settings[0]["model"], {"selective": 0.06, "bonferroni": 0.16}
    for axes, (noise, published) in zip(panels, POWER.items(), strict=True):
        for test, authors in product(offsets, (False, True)):
            offset = offsets[test] if authors else -offsets[test]
            shown = chosen(settings, model=first, noise=noise, published=authors)
            rates = [(setting["delta"] + offset, setting["tests"][test]) for setting in shown]
            name = TEST_NAMES[test] + (", authors' models" if authors else ", attentest's models")
            charts.draw_rates(axes, rates, TEST_STYLES[test], name, hollow=authors)
        if axes_of(first) == 2:
            axes.plot(list(published), list(published.values()), "x", color="0.4", ms=7, label="selective, published")
        axes.set(xlabel=SIGNAL, ylim=(-0.03, 1.05), xlim=(0.6, 4.4), xticks=list(published))
        charts.draw_grid(axes)
    return charts.legend_below(figure, 3, series_words(FOUND, axes_of(first) == 1))


def our_levels_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the type I error of our tests and the paper's with their bands, hollow for whole patches."""
    figure, panels = charts.titled_panels(11.0, 5.0, NOISE_TITLES)
    models = [model for model in ALL_MODELS if chosen(settings, model=model)]
    for axes, noise in zip(panels, NOISES, strict=True):
        shown = chosen(settings, noise=noise)
        for place, model in enumerate(models):
            for setting in chosen(shown, model=model)[:1]:  # all tests have the same band
                axes.fill_between([place - 0.4, place + 0.4], *setting["rejected"]["band"], color="0.4", **charts.SHADE)
        charts.draw_level(axes, 0.05, "level 0.05")
        charts.name_in_legend(axes, BAND)
        _draw_our_tests(axes, shown, lambda setting: models.index(setting["model"]))
        axes.set_xticks(range(len(models)), [model_name(model, "\n") for model in models])
        axes.set_xlabel(f"architecture, and {'length' if axes_of(models[0]) == 1 else 'pixels of the image'}")
        charts.draw_grid(axes)
    return charts.legend_below(_from_zero(figure), 4, series_words(REJECTED, axes_of(models[0]) == 1))


def our_power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of our tests and the paper's above the length of their intervals, hollow for whole patches."""
    figure = new_figure(11.0, 8.0)
    ours = chosen(settings, model=DEFAULT_MODEL, published=False) or chosen(settings, model=settings[0]["model"])
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for (above, below), noise in zip(panels.T, NOISES, strict=True):
        shown = chosen(ours, noise=noise)
        lengths = [
            {**setting, "rejected": dict.fromkeys(("value", "low", "high"), setting["length"]["median"])}
            for setting in shown
            if setting["length"] and setting["length"]["median"] is not None
        ]
        _draw_our_tests(above, shown, lambda setting: setting["delta"])
        _draw_our_tests(below, lengths, lambda setting: setting["delta"])
        above.set(title=f"{noise} noise", ylim=(-0.03, 1.05))
        below.set(xlabel=SIGNAL, xticks=list(POWER[noise]))
        make_logarithmic(below, "y")
        for axes in (above, below):
            charts.draw_grid(axes)
    panels[1, 0].set_ylabel("median length of the 95% interval,\nas a multiple of the naive one")
    return charts.legend_below(figure, 4, series_words(FOUND, axes_of(ours[0]["model"]) == 1))


def _draw_our_tests(axes: Axes, settings: Sequence[Setting], place: Callable[[Setting], float]) -> None:
    """Draw the shares rejected by each test side by side at the place of their setting."""
    tests = [(gamma, region) for gamma in GAMMAS for region in REGION_UNITS]
    present = [test for test in tests if chosen(settings, randomise=test[0], region=test[1])]
    for offset, (gamma, region) in zip(np.linspace(-0.3, 0.3, len(present)), present, strict=True):
        shown = chosen(settings, region=region, randomise=gamma)
        rates = [(place(setting) + offset, setting["rejected"]) for setting in shown]
        charts.draw_rates(axes, rates, GAMMA_STYLES[gamma], shown[0]["test"], hollow=region == "patches")


def non_gaussian_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the rates by family and distance, with one panel per level."""
    levels = ("0.05", "0.01")
    figure, panels = charts.titled_panels(11.0, 4.6, [f"level {alpha}" for alpha in levels], sharey=False)
    offsets = np.linspace(-0.0025, 0.0025, len(FAMILY_STYLES))
    for axes, alpha in zip(panels, levels, strict=True):
        charts.draw_level(axes, float(alpha), "the level")
        for offset, (family, style) in zip(offsets, FAMILY_STYLES.items(), strict=True):
            shown = chosen(settings, family=family)
            rates = [(setting["distance"] + offset, setting["levels"][alpha]) for setting in shown]
            charts.draw_rates(axes, rates, style, family)
        axes.set(xlabel="1-Wasserstein distance from the Gaussian", xticks=DISTANCES)
        charts.draw_grid(axes)
    return charts.legend_below(_from_zero(figure), 6, REJECTED)


def uniformity_figure(settings: Sequence[Setting]) -> Figure:
    """Draw quantiles of null p-values against those of the uniform distribution."""
    figure, panels = charts.titled_panels(11.0, 6.3, NOISE_TITLES)
    for axes, noise in zip(panels, NOISES, strict=True):
        charts.draw_diagonal(axes, "uniform distribution")
        for setting in chosen(settings, noise=noise):
            colour, line = MODEL_STYLES[setting["model"]]
            name = f"{model_name(setting['model'])} ({setting['images']:,} images)"
            axes.plot(QUANTILES, setting["quantiles"], color=colour, ls=line, lw=1.5, label=name)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="quantile of the uniform distribution")
    return charts.legend_below(figure, 4, "quantile of the selective p-values")


def time_figure(settings: Sequence[Setting]) -> Figure:
    """Draw seconds per image of each search on a logarithmic axis, by image size and by architecture."""
    timed = {setting["model"] for setting in settings}
    groups = [models for models in (BY_SIZE, BY_ARCHITECTURE) if timed & set(models)]
    figure, panels = charts.titled_panels(11.0, 5.0, [""] * len(groups))
    for axes, models in zip(panels, groups, strict=True):
        for search, colour in SEARCH_COLOURS.items():
            for noise, marker, style, offset in zip(NOISES, "os", "-:", (-0.04, 0.04), strict=True):
                points = sorted(
                    (models.index(setting["model"]) + offset, setting["seconds"])
                    for setting in chosen(settings, search=search, noise=noise)
                    if setting["model"] in models and setting["seconds"]
                )
                if points:
                    look: dict[str, Any] = {"marker": marker, "ls": style, "color": colour, "ms": 5, "lw": 1.4}
                    axes.plot(*zip(*points, strict=True), label=f"{search}, {noise} noise", **look)
        make_logarithmic(axes, "y")
        charts.draw_grid(axes)
        _model_axis(axes, models)
    devices = ", ".join(dict.fromkeys(device for setting in settings for device in setting["devices"]))
    figure.suptitle(f"time of a test on {devices}", fontsize=11)
    return charts.legend_below(figure, 4, "seconds per image")


def densities_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the five families at the greatest distance with the Gaussian, whatever the settings."""
    figure = new_figure(7.5, 4.4)
    axes = figure.subplots()
    x = np.linspace(-4.0, 4.0, 801)
    axes.plot(x, norm.pdf(x), color="0.4", lw=3.5, alpha=0.45, label="Gaussian")
    for (family, (colour, _)), line in zip(FAMILY_STYLES.items(), LINE_STYLES, strict=True):
        density = nearly_gaussian(family, DISTANCES[-1]).pdf(x)
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
            charts.draw_level(axes, 0.0, "zero: above it a pixel is on the other side")
            axes.axvline(setting["statistic"] - origin, color=VERMILION, lw=1.6, label="observed statistic")
            axes.margins(x=0)
            axes.locator_params(axis="x", nbins=5)
        row[0].set_ylabel(f"image {setting['image']}: f_i\n(in units of attention, 0 to 1)")
    for axes, title in zip(panels[0], ("the whole line", "close to the observed statistic"), strict=True):
        axes.set_title(title)
    panels[-1, 0].set_xlabel("z (the statistic, in standard errors)")
    panels[-1, 1].set_xlabel("z minus the observed statistic")
    return charts.legend_below(figure, 4)


def precision_figure(settings: Sequence[Setting]) -> Figure:
    """Draw p-values in float32 against those in float64."""
    titles = [model_name(setting["model"]) + ", authors' model" * setting["published"] for setting in settings]
    figure, panels = charts.titled_panels(5.6 * len(settings), 5.9, titles, sharey=False)
    styles: dict[bool, tuple[str, charts.Style]] = {
        False: ("same region", (BLUE, "o")),
        True: ("another region", (VERMILION, "s")),
    }
    for axes, setting in zip(panels, settings, strict=True):
        charts.draw_diagonal(axes, "equal p")
        for changed, (name, (colour, marker)) in styles.items():
            pairs = np.array([(p, single) for p, single, other in setting["pairs"] if other == changed]).reshape(-1, 2)
            axes.plot(*pairs.T, marker, ms=3.8, alpha=0.7, mew=0, color=colour, label=f"{name} ({len(pairs)})")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        axes.set(xlabel="p in float64, spectral search", ylabel="p in float32, combination search")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3, fontsize=9, frameon=False)
    return figure


class PageFigure(NamedTuple):
    """A figure of the page, whose caption is in its template."""

    name: str
    experiment: str  # whose settings are drawn
    draw: Callable[[Sequence[Setting]], Figure]
    models: Sequence[str] | None = None  # whose settings are drawn; those of all by default
    part: str = "settings"  # of the experiment; or "ours", our tests

    def settings(self, summary: Mapping[str, Any]) -> list[Setting]:
        """Return the settings that it shows."""
        settings = summary["experiments"].get(self.experiment, {}).get(self.part, [])
        return [setting for setting in settings if self.models is None or setting["model"] in self.models]


AXES = {"size": BY_SIZE, "architecture": BY_ARCHITECTURE}
SERIES_AXES = {"length": BY_LENGTH, "architecture": BY_SERIES_ARCHITECTURE}
BY_NOISE = {axis: {f"{noise} noise": (models, (noise,)) for noise in NOISES} for axis, models in AXES.items()}
BY_MODEL = {"image size": (BY_SIZE, tuple(NOISES)), "architecture": (BY_ARCHITECTURE, tuple(NOISES))}
"""Models and covariances of the panels of figures."""

FIGURES: tuple[PageFigure, ...] = (
    *(
        PageFigure(f"{name}-{axis}", name, partial(type_i_error_figure, models=models), models)
        for name, on_axes in (("type-i-error", AXES), ("series-type-i-error", SERIES_AXES))
        for axis, models in on_axes.items()
    ),
    *(
        PageFigure(f"additional-trials-{axis}", "additional-trials", partial(levels_figure, panels=panels), AXES[axis])
        for axis, panels in BY_NOISE.items()
    ),
    PageFigure("uniformity", "additional-trials", uniformity_figure),
    *(PageFigure(name, name, power_figure) for name in ("power", "series-power")),
    *(
        PageFigure(f"{name}-ours", name, draw, part="ours")
        for prefix in ("", "series-")
        for name, draw in ((f"{prefix}type-i-error", our_levels_figure), (f"{prefix}power", our_power_figure))
    ),
    PageFigure("computation-time", "computation-time", time_figure),
    PageFigure("estimated-variance", "estimated-variance", partial(levels_figure, panels=BY_MODEL)),
    PageFigure("non-gaussian", "non-gaussian", non_gaussian_figure),
    PageFigure("densities", "non-gaussian", densities_figure),
    PageFigure("demonstration", "demonstration", demonstration_figure),
    PageFigure("precision", "precision", precision_figure),
)


def drawn_figures(summary: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the PNGs of the figures that a summary has data for, by name."""
    return {figure.name: png(figure.draw(shown)) for figure in FIGURES if (shown := figure.settings(summary))}
