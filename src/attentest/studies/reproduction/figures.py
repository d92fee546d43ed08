"""The figures of the results page, with their captions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from attentest.studies.document import png
from attentest.studies.reproduction.curve_figures import (
    demonstration_figure,
    densities_figure,
    precision_figure,
    time_figure,
    uniformity_figure,
)
from attentest.studies.reproduction.measures import Setting
from attentest.studies.reproduction.rate_figures import (
    BY_ARCHITECTURE,
    BY_SIZE,
    levels_figure,
    non_gaussian_figure,
    our_levels_figure,
    our_power_figure,
    power_figure,
    type_i_error_figure,
)
from attentest.studies.reproduction.series import NOISES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
