"""Figures of shares of images that are rejected, drawn from the settings of the experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attentest.presentation.figure import BLUE, GREEN, ORANGE, PURPLE, VERMILION, make_logarithmic, new_figure
from attentest.registry import REGION_UNITS
from attentest.simulation.images import FAMILIES
from attentest.studies.rates import (
    SHADE,
    draw_grid,
    draw_level,
    draw_rates,
    legend_below,
    name_in_legend,
)
from attentest.studies.reproduction.experiment import DEFAULT_MODEL, DISTANCES, GAMMAS, NOISES
from attentest.studies.reproduction.measures import POWER, Setting, chosen
from attentest.training.paper_model import MODELS, architecture_of, side_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_SIZE = ("base8", "base16", "base32", "base64")
BY_ARCHITECTURE = ("small16", "base16", "large16", "huge16")

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

REJECTED = "share of null images rejected\n(bars: 95% intervals)"
FOUND = "share of images with p at most 0.05\n(bars: 95% intervals)"
SIGNAL = "height of the signal, Delta (in standard deviations of the noise)"
BAND = "band: range of the rates of a valid test"


def model_axis(axes: Axes, models: Sequence[str]) -> None:
    """Label the horizontal axis with models: sizes of the image, or architectures."""
    by_size = tuple(models) == BY_SIZE
    names = [f"{side_of(model)}x{side_of(model)}" if by_size else architecture_of(model) for model in models]
    axes.set_xticks(range(len(models)), names)
    axes.set_xlim(-0.6, len(models) - 0.4)
    axes.set_xlabel("pixels of the image (base architecture)" if by_size else "architecture (images of 16x16 pixels)")


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
    figure = new_figure(11.0, 4.8)
    whose = (False, True) if chosen(settings, published=True) else (False,)
    groups = [(test, authors) for test in TEST_STYLES for authors in whose]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for offset, (test, authors) in zip(np.linspace(-0.32, 0.32, len(groups)), groups, strict=True):
            shown = [one for one in chosen(settings, noise=noise, published=authors) if test in one["tests"]]
            name, (colour, marker) = TEST_NAMES[test] + ", authors' models" * authors, TEST_STYLES[test]
            places = [models.index(setting["model"]) + offset for setting in shown]
            rates = [setting["tests"][test] for setting in shown]
            draw_rates(axes, places, rates, colour, name, marker=marker, hollow=authors)
        draw_level(axes, 0.05, "level 0.05")
        axes.set_title(f"{noise} noise")
        axes.set_ylim(-0.03, 1.05)
        draw_grid(axes)
        model_axis(axes, models)
    return _finished(figure, REJECTED, 5)


def levels_figure(settings: Sequence[Setting], panels: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> Figure:
    """Draw rates of the selective test with their bands; panels give models and covariances for each title."""
    figure = new_figure(11.0, 4.6)
    for axes, (title, (models, noises)) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        shown = [setting for setting in settings if setting["model"] in models and setting["noise"] in noises]
        for offset, (alpha, (colour, marker)) in zip((-0.2, 0.0, 0.2), LEVEL_STYLES.items(), strict=True):
            axes.axhline(float(alpha), color=colour, lw=1, ls="--")
            places = [models.index(setting["model"]) + offset for setting in shown]
            rates = [setting["levels"][alpha] for setting in shown]
            for at, rate in zip(places, rates, strict=True):
                axes.fill_between([at - 0.08, at + 0.08], *rate["band"], color=colour, **SHADE)
            draw_rates(axes, places, rates, colour, f"rejected at {float(alpha):.2f}", marker=marker)
        name_in_legend(axes, "the level", dashed=True)
        name_in_legend(axes, BAND)
        axes.set_title(title)
        model_axis(axes, models)
    return _finished(figure, REJECTED, 5, from_zero=True)


def power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of the selective test and of Bonferroni, and the published values."""
    figure = new_figure(11.0, 4.6)
    groups = [("selective", 0.06), ("bonferroni", 0.16)]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for test, authors, offset in [(t, a, o if a else -o) for t, o in groups for a in (False, True)]:
            shown = chosen(settings, noise=noise, published=authors)
            name = TEST_NAMES[test] + (", authors' models" if authors else ", attentest's models")
            places = [setting["delta"] + offset for setting in shown]
            rates = [setting["tests"][test] for setting in shown]
            colour, marker = TEST_STYLES[test]
            draw_rates(axes, places, rates, colour, name, marker=marker, hollow=authors)
        published = POWER[noise]
        axes.plot(list(published), list(published.values()), "x", color="0.4", ms=7, label="selective, published")
        axes.set_title(f"{noise} noise")
        axes.set(xlabel=SIGNAL, ylim=(-0.03, 1.05), xlim=(0.6, 4.4), xticks=list(published))
        draw_grid(axes)
    return _finished(figure, FOUND, 3)


def our_levels_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the type I error of our tests and the paper's with their bands, hollow for whole patches."""
    figure = new_figure(11.0, 5.0)
    models = [model for model in MODELS if chosen(settings, model=model)]
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        shown = chosen(settings, noise=noise)
        for at, model in enumerate(models):
            for one in chosen(shown, model=model)[:1]:  # all tests have the same band
                axes.fill_between([at - 0.4, at + 0.4], *one["rejected"]["band"], color="0.4", **SHADE)
        draw_level(axes, 0.05, "level 0.05")
        name_in_legend(axes, BAND)
        _draw_our_tests(axes, shown, lambda one: models.index(one["model"]))
        axes.set_title(f"{noise} noise")
        names = [f"{architecture_of(model)}\n{side_of(model)}x{side_of(model)}" for model in models]
        axes.set_xticks(range(len(models)), names)
        axes.set_xlabel("architecture, and pixels of the image")
        draw_grid(axes)
    return _finished(figure, REJECTED, 4, from_zero=True)


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
        below.set(xlabel=SIGNAL, xticks=list(POWER[noise]))
        make_logarithmic(below, "y")
        for axes in (above, below):
            draw_grid(axes)
    panels[1, 0].set_ylabel("median length of the 95% interval,\nas a multiple of the naive one")
    return _finished(figure, FOUND, 4)


def _draw_our_tests(axes: Axes, settings: Sequence[Setting], place: Callable[[Setting], float]) -> None:
    """Draw the shares rejected by each test side by side at the place of their setting."""
    tests = [(gamma, region) for gamma in GAMMAS for region in REGION_UNITS]
    present = [test for test in tests if chosen(settings, randomise=test[0], region=test[1])]
    for offset, (gamma, region) in zip(np.linspace(-0.3, 0.3, len(present)), present, strict=True):
        own = chosen(settings, region=region, randomise=gamma)
        places, rates = [place(one) + offset for one in own], [one["rejected"] for one in own]
        colour, marker = GAMMA_STYLES[gamma]
        draw_rates(axes, places, rates, colour, own[0]["test"], marker=marker, hollow=region == "patches")


def non_gaussian_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the rates by family and distance, with one panel per level."""
    figure = new_figure(11.0, 4.6)
    for axes, alpha in zip(figure.subplots(1, 2), ("0.05", "0.01"), strict=True):
        draw_level(axes, float(alpha), "the level")
        for offset, (family, (colour, marker)) in zip(
            np.linspace(-0.0025, 0.0025, len(FAMILY_STYLES)), FAMILY_STYLES.items(), strict=True
        ):
            shown = chosen(settings, family=family)
            places = [setting["distance"] + offset for setting in shown]
            rates = [setting["levels"][alpha] for setting in shown]
            draw_rates(axes, places, rates, colour, family, marker=marker)
        axes.set_title(f"level {alpha}")
        axes.set(xlabel="1-Wasserstein distance from the Gaussian", xticks=DISTANCES)
        draw_grid(axes)
    return _finished(figure, REJECTED, 6, from_zero=True)
