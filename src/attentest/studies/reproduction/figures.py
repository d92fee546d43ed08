"""The figures of the page: which there are, and what they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from attentest.studies.document import png
from attentest.studies.reproduction.rate_figures import (
    BY_ARCHITECTURE,
    BY_SIZE,
    additional_trials_figure,
    estimated_variance_figure,
    non_gaussian_figure,
    power_figure,
    type_i_error_figure,
)
from attentest.studies.reproduction.shape_figures import (
    demonstration_figure,
    densities_figure,
    precision_figure,
    time_figure,
    uniformity_figure,
)
from attentest.studies.reproduction.verdict import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class PageFigure:
    """A figure of the page.

    Parameters
    ----------
    name
        Of its file, without the ending.
    experiment
        Whose settings it shows.
    caption
        What is to be seen.
    draw
        From the settings to the figure.
    models
        It needs settings of one of these; of any if there are none.
    """

    name: str
    experiment: str
    caption: str
    draw: Callable[[Sequence[Setting]], Figure]
    models: tuple[str, ...] = ()

    def settings(self, summary: Mapping[str, Any]) -> list[Setting]:
        """Return what it would show."""
        settings: list[Setting] = summary["experiments"].get(self.experiment, {}).get("settings", [])
        return [setting for setting in settings if not self.models or setting["model"] in self.models]


RATES = "Share of null images rejected, with 95% Wilson intervals"

FIGURES: tuple[PageFigure, ...] = (
    PageFigure(
        name="type-i-error-size",
        experiment="type-i-error",
        caption=f"{RATES}, by image size. Hollow: the authors' models.",
        draw=partial(type_i_error_figure, models=BY_SIZE),
        models=BY_SIZE,
    ),
    PageFigure(
        name="type-i-error-architecture",
        experiment="type-i-error",
        caption=f"{RATES}, by architecture. Hollow: the authors' models.",
        draw=partial(type_i_error_figure, models=BY_ARCHITECTURE),
        models=BY_ARCHITECTURE,
    ),
    PageFigure(
        name="additional-trials-size",
        experiment="additional-trials",
        caption=f"{RATES}, by image size, at three levels. Shaded: the band.",
        draw=partial(additional_trials_figure, models=BY_SIZE),
        models=BY_SIZE,
    ),
    PageFigure(
        name="additional-trials-architecture",
        experiment="additional-trials",
        caption=f"{RATES}, by architecture, at three levels. Shaded: the band.",
        draw=partial(additional_trials_figure, models=BY_ARCHITECTURE),
        models=BY_ARCHITECTURE,
    ),
    PageFigure(
        name="uniformity",
        experiment="additional-trials",
        caption="Quantiles of the selective p-values of null images. Those of a valid test lie on the diagonal.",
        draw=uniformity_figure,
    ),
    PageFigure(
        name="power",
        experiment="power",
        caption="Share of images with a signal that are found, with 95% Wilson intervals.",
        draw=power_figure,
    ),
    PageFigure(
        name="computation-time",
        experiment="computation-time",
        caption="Seconds an image of each search, by image size and by architecture.",
        draw=time_figure,
    ),
    PageFigure(
        name="estimated-variance",
        experiment="estimated-variance",
        caption=f"{RATES}, with the variance of each image estimated from it. Shaded: the band.",
        draw=estimated_variance_figure,
    ),
    PageFigure(
        name="non-gaussian",
        experiment="non-gaussian",
        caption=f"{RATES}, with noise at some distance from Gaussian.",
        draw=non_gaussian_figure,
    ),
    PageFigure(
        name="densities",
        experiment="non-gaussian",
        caption="Densities of the five families at distance 0.04.",
        draw=lambda settings: densities_figure(),
    ),
    PageFigure(
        name="demonstration",
        experiment="demonstration",
        caption="f_i of pixels in the region and outside it. Vertical red: the observed statistic. Where no f_i is "
        "above zero the region is the observed one.",
        draw=demonstration_figure,
    ),
    PageFigure(
        name="precision",
        experiment="precision",
        caption="The same test in float32 and float64, one point an image.",
        draw=precision_figure,
    ),
)


def available_figures(summary: Mapping[str, Any]) -> list[PageFigure]:
    """Return the figures there are data for."""
    return [figure for figure in FIGURES if figure.settings(summary)]


def drawn(figure: PageFigure, summary: Mapping[str, Any]) -> bytes:
    """Return a figure as a PNG."""
    return png(figure.draw(figure.settings(summary)))
