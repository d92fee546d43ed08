"""Everything that a picture of one result shows, and the image with its attention map and the outline of its region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attentest.presentation.figure import OTHER_COLOUR, REGION_COLOUR
from attentest.presentation.words import (
    contradict,
    estimate_text,
    number_text,
    pvalue_text,
    short_verdict,
    verdict_text,
    with_sign,
)
from attentest.statistics.alternative import Alternative, as_alternative
from attentest.statistics.law import Law
from attentest.statistics.pvalue import decision
from attentest.statistics.randomised_law import law_from_values
from attentest.statistics.truncation_set import Intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A tested image with its attention map and region, and the numbers of its result.

    It is made from a result, or from the record of one on disk and the arrays saved with it.

    Parameters
    ----------
    values
        JSON-ready values of the result (``result.to_dict()``).
    law
        Law of the statistic; None if it is not known, as in records of earlier versions.
    image : (H, W) or (H, W, C)
        The tested image.
    attention : (H, W)
        The attention map, from 0 to 1.
    region, part : (H, W) bool
        The attention region, and the part of it that was compared.
    randomised_image : (H, W) or (H, W, C)
        The image on which the region was chosen, if that is another one and known.
    title
        Name of the image.
    """

    values: Mapping[str, Any]
    law: Law | None
    image: NDArray[Any]
    attention: NDArray[Any]
    region: NDArray[np.bool_]
    part: NDArray[np.bool_]
    randomised_image: NDArray[Any] | None = None
    title: str = ""

    @classmethod
    def of_record(
        cls,
        values: Mapping[str, Any],
        image: NDArray[Any],
        attention: NDArray[Any],
        region: NDArray[np.bool_],
        part: NDArray[np.bool_] | None = None,
        *,
        title: str = "",
    ) -> Picture:
        """Return the picture of a result whose values and arrays were read from disk."""
        law = None if values.get("law") is None else law_from_values(float(values["statistic"]), values["law"])
        compared = region if part is None else part
        return cls(values=values, law=law, image=image, attention=attention, region=region, part=compared, title=title)

    @property
    def intervals(self) -> Intervals:
        """The truncation set (n, 2)."""
        return np.array(self.values["intervals"], dtype=np.float64).reshape(-1, 2)

    @property
    def statistic(self) -> float:
        """The observed statistic."""
        return float(self.values["statistic"])

    @property
    def alternative(self) -> Alternative:
        """The alternative, which says what tails p counts."""
        return as_alternative(self.values["alternative"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """Confidence interval of the difference, if the search went for one."""
        if self.values.get("confidence_level") is None:
            return None
        found = self.values["confidence_interval"]
        return float(found["low"]), float(found["high"])

    @property
    def interval_name(self) -> str:
        """The interval with its level: "95% interval"."""
        return f"{100 * self.values['confidence_interval']['confidence_level']:.10g}% interval"

    @property
    def difference_text(self) -> str:
        """The estimated difference and its interval in a sentence; empty if the search went for p alone."""
        if self.interval is None:
            return ""
        low, high = self.interval
        bounds = float(self.values["estimate_bounds"][0]), float(self.values["estimate_bounds"][1])
        estimate = estimate_text(float(self.values["estimate"]), bounds, self.values["status"])
        ends = f"{self.interval_name} {low:.3g} to {high:.3g}"
        return f"Estimated difference {estimate}, {ends}, in units of the pixel values."

    def contradiction_text(self, alpha: float) -> str:
        """Return a sentence if p and the interval do not agree about a difference of 0; empty if they do."""
        if self.interval is None or self.alternative != "two-sided":
            return ""
        level = self.values["confidence_interval"]["confidence_level"]
        if not contradict(self.decision(alpha), self.interval, level, alpha):
            return ""
        return (
            "Here p and the interval disagree: p counts both tails together, the interval each by itself "
            '(alternative="equal-tailed" makes them agree).'
        )

    @property
    def region_text(self) -> str:
        """The size of the compared part: "35 of 256 pixels"."""
        return f"{self.values['part_pixels']:,} of {self.values['seen_pixels']:,} pixels"

    def decision(self, alpha: float) -> bool | None:
        """Return whether p is at most alpha; None if the search cannot tell."""
        low, high = self.values["pvalue_bounds"]
        return decision(low, high, alpha)

    def verdict(self, alpha: float) -> str:
        """Return the verdict in two or three sentences."""
        return verdict_text(self.values, alpha)

    def short_verdict(self, alpha: float) -> str:
        """Return the verdict in a few words."""
        return short_verdict(self.decision(alpha), alpha)

    @property
    def pvalue_text(self) -> str:
        """The selective p-value with its sign: "= 0.042"."""
        low, high = self.values["pvalue_bounds"]
        return with_sign(pvalue_text(self.values["pvalue"], (low, high), self.values["status"]))

    @property
    def naive_text(self) -> str:
        """The naive p-value with its sign."""
        return with_sign(number_text(self.values["naive_pvalue"]))

    @property
    def certified_text(self) -> str | None:
        """The certified p-value with its sign, if there is one."""
        certificate = self.values.get("certificate")
        return None if certificate is None else with_sign(number_text(certificate["pvalue"]))


MAP_COLOURS = "viridis"
"""Colours of attention: even in lightness, and told apart with any colour vision."""

MOST_OPAQUE = 0.55
"""Opacity of the overlay where the attention is greatest; where it is zero, the image is seen as it is."""

CLIPPED = 0.5
"""Percent of the pixels at either end that are shown black or white, so that a few extreme ones hide nothing."""


def draw_overlay(axes: Axes, picture: Picture, *, outline_width: float = 1.6) -> None:
    """Draw the image that the region was chosen on, the attention over it, and the outline of the region."""
    chosen_on = picture.image if picture.randomised_image is None else picture.randomised_image
    draw_image(axes, chosen_on)
    attention = np.clip(picture.attention, 0.0, 1.0)
    axes.imshow(attention, cmap=MAP_COLOURS, vmin=0, vmax=1, alpha=MOST_OPAQUE * attention, interpolation="nearest")
    _draw_region(axes, picture, outline_width)


def draw_image(axes: Axes, image: NDArray[Any]) -> None:
    """Draw an image (H, W) or (H, W, C) without axes."""
    axes.imshow(displayed(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    _without_ticks(axes)


def draw_map(axes: Axes, picture: Picture) -> AxesImage:
    """Draw the attention map with the outline of the region; return what a colour bar needs."""
    shown = axes.imshow(picture.attention, cmap=MAP_COLOURS, vmin=0, vmax=1, interpolation="nearest")
    _draw_region(axes, picture, 0.9)
    _without_ticks(axes)
    return shown


def _draw_region(axes: Axes, picture: Picture, width: float) -> None:
    """Draw the outline of the compared part, and that of the rest of the region in another colour."""
    if not np.array_equal(picture.part, picture.region):
        draw_outline(axes, picture.region & ~picture.part, OTHER_COLOUR, width=width / 2)
    draw_outline(axes, picture.part, width=width)


def draw_outline(axes: Axes, region: NDArray[np.bool_], colour: str = REGION_COLOUR, width: float = 2.5) -> None:
    """Draw the border of a region (H, W) along pixel edges, with a white rim for dark images; width in points."""
    from matplotlib.collections import LineCollection

    padded = np.pad(region, 1)
    rows, columns = np.nonzero(padded[1:, 1:-1] != padded[:-1, 1:-1])
    horizontal = [[(c - 0.5, r - 0.5), (c + 0.5, r - 0.5)] for r, c in zip(rows, columns, strict=True)]
    rows, columns = np.nonzero(padded[1:-1, 1:] != padded[1:-1, :-1])
    vertical = [[(c - 0.5, r - 0.5), (c - 0.5, r + 0.5)] for r, c in zip(rows, columns, strict=True)]
    for line_colour, line_width in (("white", 1.8 * width), (colour, width)):
        axes.add_collection(
            LineCollection(horizontal + vertical, colors=line_colour, linewidths=line_width, capstyle="round")
        )


def displayed(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return an image (H, W), (H, W, 1) or (H, W, C) with values from 0 to 1: grey, or the first three channels."""
    values = np.asarray(image, dtype=np.float64)
    if values.ndim == 3 and values.shape[2] != 3:
        values = values[..., :3] if values.shape[2] > 3 else values.mean(axis=2)
    low, high = np.percentile(values, [CLIPPED, 100 - CLIPPED])
    if high <= low:
        low, high = float(values.min()), float(values.max())
    return np.asarray(np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0))


def _without_ticks(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
