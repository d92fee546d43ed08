"""From raw scores to the attention map and its region, by one of two rules, of pixels or of whole patches."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from attentest.errors import InputError
from attentest.region.attention_map import Margins, attention_map, unusable_scores
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import (
    TIE,
    Threshold,
    ThresholdMargins,
    TopFraction,
    TopMargins,
    as_threshold,
    margins,
    region_of,
)


class RegionRule(Protocol):
    """How an attention map becomes a region.

    Rules and margins are written for regions of pixels. If regions consist of whole patches, the patch grid gives the
    patches in the place of the pixels, with one score each, and nothing else changes.
    """

    def regions(self, attention: Tensor, patch_grid: PatchGrid) -> Tensor:
        """Return the regions (m, H, W) bool of attention maps (m, H, W) on the pixels seen; empty if not unique."""

    def margins(self, regions: Tensor, patch_grid: PatchGrid) -> Margins:
        """Return the margins of observed regions (k, H, W), negative if and only if scores give these regions."""

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON-ready values."""


def as_region_rule(threshold: float | None, top_fraction: float | None) -> RegionRule:
    """Return the rule of a threshold (0.6, the paper's, if nothing is given) or of a top fraction."""
    if top_fraction is None:
        return Threshold() if threshold is None else Threshold(threshold)
    if threshold is not None:
        raise InputError(
            "threshold and top_fraction are two ways to choose the region: give one of them, got "
            f"{threshold!r} and {top_fraction!r}.",
            "threshold",
            "top_fraction",
        )
    return TopFraction(top_fraction)


__all__ = [
    "TIE",
    "RegionRule",
    "Threshold",
    "ThresholdMargins",
    "TopFraction",
    "TopMargins",
    "as_region_rule",
    "as_threshold",
    "attention_map",
    "margins",
    "region_of",
    "unusable_scores",
]
