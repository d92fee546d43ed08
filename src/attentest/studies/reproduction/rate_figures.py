"""Figures of rates: how often tests reject, by setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from attentest.results.plots import EXTREME_COLOUR, REGION_COLOUR, new_figure
from attentest.studies.rate_plot import draw_rates, legend_below
from attentest.studies.reproduction.family import FAMILIES
from attentest.studies.reproduction.paper_model import architecture_of, side_of
from attentest.studies.reproduction.published_figure import POWER
from attentest.studies.reproduction.series import NOISES
from attentest.studies.reproduction.verdict import Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_SIZE = ("base8", "base16", "base32", "base64")
BY_ARCHITECTURE = ("small16", "base16", "large16", "huge16")

TEST_COLOURS = {
    "selective": EXTREME_COLOUR,
    "naive": REGION_COLOUR,
    "permutation": "#e09f3e",
    "bonferroni": "#5b8e7d",
}
TEST_NAMES = {"bonferroni": "Bonferroni"}
LEVEL_COLOURS = {"0.01": "#5b8e7d", "0.05": EXTREME_COLOUR, "0.1": "#e09f3e"}
FAMILY_COLOURS = dict(zip(FAMILIES, ("#5b8e7d", REGION_COLOUR, "#e09f3e", EXTREME_COLOUR, "#7b5ea7"), strict=True))

WIDTH = 0.64
"""Of the points that belong to one place of the axis, whose places are one apart."""


def model_axis(axes: Axes, models: Sequence[str]) -> None:
    """Write models along the horizontal axis: pixels of the image, or the architecture."""
    by_size = tuple(models) == BY_SIZE
    axes.set_xticks(range(len(models)), [f"{side_of(m) ** 2:,}" if by_size else architecture_of(m) for m in models])
    axes.set_xlim(-0.6, len(models) - 0.4)
    axes.set_xlabel("pixels of the image" if by_size else "architecture (16x16 images)")


def type_i_error_figure(settings: Sequence[Setting], models: Sequence[str]) -> Figure:
    """Draw the type I error of four tests, with attentest's models and the authors'."""
    figure = new_figure(11.0, 4.6)
    both = any(setting["published"] for setting in settings)
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        groups = [(test, authors) for test in TEST_COLOURS for authors in ((False, True) if both else (False,))]
        for place, (test, authors) in zip(np.linspace(-WIDTH / 2, WIDTH / 2, len(groups)), groups, strict=True):
            chosen = [
                (models.index(setting["model"]) + place, setting["tests"][test])
                for setting in settings
                if setting["model"] in models
                and setting["noise"] == noise
                and setting["published"] == authors
                and test in setting["tests"]
            ]
            name = TEST_NAMES.get(test, test) + ", authors' models" * authors
            draw_rates(
                axes, [x for x, _ in chosen], [rate for _, rate in chosen], TEST_COLOURS[test], name, hollow=authors
            )
        axes.axhline(0.05, color="0.4", lw=1, ls="--", zorder=0, label="level 0.05")
        axes.set_title(f"{noise} noise")
        axes.set_ylim(-0.03, 1.05)
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        model_axis(axes, models)
    figure.axes[0].set_ylabel("share of null images rejected")
    legend_below(figure, 5)
    return figure


def levels_figure(
    panels: Mapping[str, Callable[[Setting], bool]], settings: Sequence[Setting], axis: Sequence[Sequence[str]]
) -> Figure:
    """Draw rates of the selective test at several levels, with the band of each.

    Parameters
    ----------
    panels
        Titles, and which settings belong to each.
    settings
        Of the experiment.
    axis
        Models along the axis of each panel.
    """
    figure = new_figure(11.0, 4.2)
    for axes, (title, belongs), models in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), axis, strict=True
    ):
        shown = [setting for setting in settings if setting["model"] in models and belongs(setting)]
        for place, (alpha, colour) in zip((-0.2, 0.0, 0.2), LEVEL_COLOURS.items(), strict=True):
            axes.axhline(float(alpha), color=colour, lw=1, ls="--")
            x = [models.index(setting["model"]) + place for setting in shown]
            rates = [setting["levels"][alpha] for setting in shown]
            for at, rate in zip(x, rates, strict=True):
                axes.fill_between([at - 0.08, at + 0.08], *rate["band"], color=colour, alpha=0.18, lw=0)
            draw_rates(axes, x, rates, colour, f"level {float(alpha):.2f}")
        axes.set_title(title)
        model_axis(axes, models)
    _begin_at_zero(figure)
    figure.axes[0].set_ylabel("share of null images rejected")
    legend_below(figure, 3)
    return figure


def additional_trials_figure(settings: Sequence[Setting], models: Sequence[str]) -> Figure:
    """Draw the three levels by image size or architecture, one panel a covariance."""
    panels = {f"{noise} noise": (lambda setting, noise=noise: bool(setting["noise"] == noise)) for noise in NOISES}
    return levels_figure(panels, settings, [models, models])


def estimated_variance_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the three levels by image size and by architecture."""
    panels = {"image size": lambda setting: True, "architecture": lambda setting: True}
    return levels_figure(panels, settings, [BY_SIZE, BY_ARCHITECTURE])


def power_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the power of the selective test and of Bonferroni, and the published values."""
    figure = new_figure(11.0, 4.4)
    for axes, noise in zip(figure.subplots(1, 2, sharey=True), NOISES, strict=True):
        for test, authors, place in (
            ("selective", False, -0.06),
            ("selective", True, 0.06),
            ("bonferroni", False, -0.16),
            ("bonferroni", True, 0.16),
        ):
            chosen = [s for s in settings if s["noise"] == noise and s["published"] == authors]
            name = TEST_NAMES.get(test, test) + (", authors' models" if authors else ", attentest's models")
            x = [setting["delta"] + place for setting in chosen]
            draw_rates(axes, x, [s["tests"][test] for s in chosen], TEST_COLOURS[test], name, hollow=authors)
        published = POWER[noise]
        axes.plot(list(published), list(published.values()), "x", color="black", ms=7, label="selective, published")
        axes.set_title(f"{noise} noise")
        axes.set(xlabel="strength of the signal, Delta", ylim=(-0.03, 1.05), xlim=(0.6, 4.4))
        axes.set_xticks(list(published))
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    figure.axes[0].set_ylabel("share of images with p at most 0.05")
    legend_below(figure, 3)
    return figure


def non_gaussian_figure(settings: Sequence[Setting]) -> Figure:
    """Draw the rates by family and distance, one panel a level."""
    figure = new_figure(11.0, 4.4)
    for axes, alpha in zip(figure.subplots(1, 2), ("0.05", "0.01"), strict=True):
        axes.axhline(float(alpha), color="0.4", lw=1, ls="--")
        for place, (family, colour) in zip(np.linspace(-0.0025, 0.0025, 5), FAMILY_COLOURS.items(), strict=True):
            chosen = [setting for setting in settings if setting["family"] == family]
            x = [setting["distance"] + place for setting in chosen]
            draw_rates(axes, x, [setting["levels"][alpha] for setting in chosen], colour, family)
        axes.set_title(f"level {alpha}")
        axes.set(xlabel="1-Wasserstein distance from the Gaussian")
        axes.set_xticks([0.01, 0.02, 0.03, 0.04])
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
    _begin_at_zero(figure)
    figure.axes[0].set_ylabel("share of null images rejected")
    legend_below(figure, 5)
    return figure


def _begin_at_zero(figure: Figure) -> None:
    """Let rates begin at zero, with room for a point there; once all is drawn, as panels may share their axis."""
    for axes in figure.axes:
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.02 * top, top)
