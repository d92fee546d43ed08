"""How an attention map becomes a region: by a threshold (section 2 of the paper), a fraction of pixels, or a level."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from attentest.attention.score_function import Sign
from attentest.checks import real_number, strictly_between_0_and_1
from attentest.errors import InputError
from attentest.region.attention_map import Margins, attention_map
from attentest.region.patch_grid import PatchAxis, PatchGrid

TIE = 1e-11
"""Margin by which a pixel of the region must exceed tau. A pixel between the patches of greatest and least attention
can lie exactly at tau whatever the scores are, and rounding would decide whether it belongs to the region."""


class RegionRule(Protocol):
    """How an attention map becomes a region.

    Rules and margins are written for regions of pixels. If regions consist of whole patches, the patch grid gives the
    patches in the place of the pixels, with one score each, and nothing else changes.
    """

    def regions(self, attention: Tensor, patch_grid: PatchGrid, sign: Sign, scores: Tensor) -> Tensor:
        """Return the regions (m, *units) bool of maps (m, *units) with raw scores (m, *grid); empty if not unique."""

    def margins(self, regions: Tensor, patch_grid: PatchGrid, scores: Tensor, sign: Sign) -> Margins:
        """Return the margins of observed regions (k, *units), negative if and only if scores give these regions.

        Of absolute maps, the signs of the observed scores (k, *grid) in the region are a part of it.
        """


@dataclass(frozen=True)
class Threshold:
    """The region is where the attention map exceeds tau, strictly between 0 and 1: beyond, it is empty or all."""

    tau: float = 0.6

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", strictly_between_0_and_1(self.tau, "threshold (tau)"))

    def regions(self, attention: Tensor, patch_grid: PatchGrid, sign: Sign, scores: Tensor) -> Tensor:
        """Return the regions (m, *units) of attention maps (m, *units); that of a map of zeros is empty."""
        return region_of(attention, self.tau)

    def margins(self, regions: Tensor, patch_grid: PatchGrid, scores: Tensor, sign: Sign) -> Margins:
        """Return the margins of observed regions (k, *units)."""
        if sign == "signed":
            return ThresholdMargins(regions, self.tau, patch_grid)
        kind = AbsoluteMargins if sign == "absolute" else PositiveMargins
        return kind(regions, self.tau, patch_grid, scores)


def region_of(attention: Tensor, threshold: float) -> Tensor:
    """Return the attention region M = {i : A_i > tau}, bool, of the shape of the map; pixels at tau are outside."""
    return attention > threshold + TIE


def margins(attention: Tensor, region: Tensor, threshold: float) -> Tensor:
    """Return the margins f_i (m, n) of attention maps (m, *units): tau - A_i inside a region, A_i - tau outside.

    They are all negative if and only if the map has this region (m, *units).
    """
    excess = attention - (threshold + TIE)
    return torch.where(region, -excess, excess).flatten(1)


class ThresholdMargins(Margins):
    """The margins of k observed regions A > tau.

    With t = lowest + tau (highest - lowest), the region at z is the observed one if every pixel of it lies above t and
    every other pixel below: four extremes of the upsampled scores decide, without min-max normalisation. The observed
    regions (k, *units) are those on the pixels seen, on the device of the scores.
    """

    def __init__(self, regions: Tensor, threshold: float, patch_grid: PatchGrid) -> None:
        self._threshold = threshold
        low, high = self._shares()
        # Signs of the lowest and the highest pixel, the lowest in the region and the highest outside it.
        signs = (-1.0, 1.0, -1.0, 1.0)
        super().__init__(regions, patch_grid, signs, [[-low, high, 1.0, 0.0], [low, -high, 0.0, 1.0]])

    def _shares(self) -> tuple[float, float]:
        """Return the shares of the lowest and the highest pixel in the value that those of the region exceed."""
        return 1.0 - (self._threshold + TIE), self._threshold + TIE

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the paper's margins f_i (m, n) of images with indices (m,) and scores (m, *grid)."""
        return margins(attention_map(scores, self._patch_grid), self._kinds[image], self._threshold)

    def _extremes(self, image: Tensor, kinds: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        extremes = (
            pixels.min(dim=1),
            pixels.max(dim=1),
            torch.where(kinds, pixels, torch.inf).min(dim=1),
            torch.where(kinds, -torch.inf, pixels).max(dim=1),
        )
        values = torch.stack([extreme.values for extreme in extremes], dim=1)
        return self.signs * values, torch.stack([extreme.indices for extreme in extremes], dim=1)


class _TwoSignMargins(Margins):
    """Margins that look at each pixel twice, as it is and with the other sign, and at a constant, by default zero.

    Whether a value exceeds a threshold after its sign was changed, or after it was set to zero for its sign, is no
    condition on extremes; but it is one where the signs are the observed ones. So some signs are conditions too.
    """

    _constant = 0.0

    @property
    def count(self) -> int:
        """Number of values of an image."""
        return 2 * super().count + 1

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the values (m, 2 n + 1) of pixels that can be extreme, those of the other sign, and the constant."""
        return self._both(image, super().pixels(image, scores))

    def _both(self, image: Tensor, pixels: Tensor) -> Tensor:
        return torch.cat([pixels, -pixels, torch.full_like(pixels[:, :1], self._constant)], dim=1)

    @abstractmethod
    def _parts(self, image: Tensor, kinds: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return the groups: of pixels as they are (m, n), of pixels of the other sign (m, n), and of the constant."""

    def _groups(self, image: Tensor, kinds: Tensor) -> list[Tensor]:
        return [torch.cat(parts, dim=1) for parts in self._parts(image, kinds)]

    def _extremes(self, image: Tensor, kinds: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        all_pixels = pixels.shape[1] == kinds.shape[1]  # as they are
        return super()._extremes(image, kinds, self._both(image, pixels) if all_pixels else pixels)


class PositiveMargins(_TwoSignMargins):
    """The margins of k observed regions of maps of which negative values were set to zero.

    If a pixel is negative, the least value of the map is zero: that one is, or that none is, is a condition too. With
    it all is as in :class:`ThresholdMargins`, with zero in place of the lowest pixel if that is negative.
    """

    def __init__(self, regions: Tensor, threshold: float, patch_grid: PatchGrid, scores: Tensor) -> None:
        self._threshold = threshold
        low, high = 1.0 - (threshold + TIE), threshold + TIE
        self._has_negative = patch_grid.unit_scores(scores).flatten(1).amin(dim=1, keepdim=True) < 0
        # Of the region with the other sign, outside, of all; less the least value of the map; the lowest pixel or zero,
        # whichever is not the least value, with the other sign.
        weights = [[1.0, 0.0, high, -low, 0.0], [0.0, 1.0, -high, low, 0.0], [0.0, 0.0, 0.0, 1.0, -1.0]]
        super().__init__(regions, patch_grid, (1.0,) * 5, weights)

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n + 1) of images with indices (m,), the last for the sign of the lowest pixel."""
        lowest = self._patch_grid.unit_scores(scores).flatten(1).amin(dim=1, keepdim=True)
        attention = attention_map(scores, self._patch_grid, "positive")
        of_pixels = margins(attention, self._kinds[image], self._threshold)
        return torch.cat([of_pixels, torch.where(self._has_negative[image], lowest, -lowest)], dim=1)

    def _parts(self, image: Tensor, kinds: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        negative = self._has_negative[image]
        none, never = torch.zeros_like(kinds), torch.zeros_like(negative)
        return [
            (none, kinds, never),
            (~kinds, none, never),
            (~none, none, never),
            (none, (~negative).expand_as(kinds), negative),
            (none, negative.expand_as(kinds), ~negative),
        ]


OUT, IN, GREATEST = 0, 1, 2
"""Kinds of pixels of absolute maps: outside the region; in it; and in it with the sign of the greatest pixel."""


class AbsoluteMargins(_TwoSignMargins):
    """The margins of k observed regions of absolute maps, |u| > tau max |u|.

    The signs within the region are conditions too, and that of its greatest pixel. Scores are turned so that this one
    is positive.
    """

    def __init__(self, regions: Tensor, threshold: float, patch_grid: PatchGrid, scores: Tensor) -> None:
        self._threshold = threshold
        values = patch_grid.unit_scores(scores).flatten(1)
        self._turned = self._signs(values)
        inside = torch.where(values * self._turned > 0, GREATEST, IN)
        kinds = torch.where(regions.flatten(1), inside, OUT).to(torch.uint8)
        super().__init__(kinds.unflatten(1, regions.shape[1:]), patch_grid, (1.0,) * 4, self._weights())

    def _signs(self, values: Tensor) -> Tensor:
        """Return the sign (k, 1) by which the observed values (k, n) are turned."""
        return values.gather(1, values.abs().argmax(dim=1, keepdim=True)).sign()

    def _weights(self) -> list[list[float]]:
        # Of the region with the sign that it has not, outside, of the region with the greatest's sign, of all others.
        high = self._threshold + TIE
        return [[1.0, 0.0, high, 0.0], [0.0, 1.0, -high, 0.0], [0.0, 0.0, -1.0, 1.0]]

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n + 1) of images with indices (m,), the last for the sign of the greatest pixel."""
        values = self._turned[image] * self._patch_grid.unit_scores(scores).flatten(1)
        kinds, high = self._kinds[image].flatten(1), self._threshold + TIE
        size = values.abs().amax(dim=1, keepdim=True)
        values = values / torch.where(size > 0, size, 1.0)
        # A pixel of the region must keep its sign.
        inside = torch.where(kinds == GREATEST, high - values, high + values)
        of_pixels = torch.where(kinds == OUT, values.abs() - high, inside)
        sign = -(values.amax(dim=1, keepdim=True) + values.amin(dim=1, keepdim=True))
        return torch.cat([of_pixels, sign], dim=1)

    def _both(self, image: Tensor, pixels: Tensor) -> Tensor:
        return super()._both(image, self._turned[image] * pixels)

    def _parts(self, image: Tensor, kinds: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        greatest, other, outside = kinds == GREATEST, kinds == IN, kinds == OUT
        none, never = torch.zeros_like(outside), torch.zeros_like(outside[:, :1])
        return [
            (other, greatest, never),
            (outside, outside, never),
            (greatest, none, never),
            (outside, outside | other, never),
        ]


@dataclass(frozen=True)
class Level:
    """The region is where the map, not scaled, exceeds a number; of absolute maps, where its absolute value does.

    By how much a pixel must exceed it, for rounding not to decide, follows from the range of the map, as elsewhere.
    """

    level: float

    def __post_init__(self) -> None:
        if not math.isfinite(number := real_number(self.level, "level")):
            raise InputError(f"level must be a finite number, in the units of the map, got {number}.", "level")
        object.__setattr__(self, "level", number)

    def regions(self, attention: Tensor, patch_grid: PatchGrid, sign: Sign, scores: Tensor) -> Tensor:
        """Return the regions (m, *units) of maps with raw scores (m, *grid)."""
        values = patch_grid.unit_scores(scores)
        if sign == "positive" and self.level < 0:  # values below zero are zero, and exceed it
            return torch.ones_like(values, dtype=torch.bool)
        return _excess(values, self.level, sign) > 0

    def margins(self, regions: Tensor, patch_grid: PatchGrid, scores: Tensor, sign: Sign) -> Margins:
        """Return the margins of observed regions (k, *units)."""
        if sign == "absolute":
            return AbsoluteLevelMargins(regions, self.level, patch_grid, scores)
        return LevelMargins(regions, self.level, patch_grid)


def _excess(values: Tensor, level: float, sign: Sign) -> Tensor:
    """Return by how much maps (m, *units) exceed a level, beyond what rounding may decide; positive in the region."""
    axes = tuple(range(1, values.ndim))
    if sign == "absolute":
        values = values.abs()
        span = values.amax(dim=axes, keepdim=True)
    else:
        span = values.amax(dim=axes, keepdim=True) - values.amin(dim=axes, keepdim=True)
    return values - level - TIE * span


class LevelMargins(ThresholdMargins):
    """The margins of k observed regions u > level.

    Interpolation weights sum to one, so that scores less the level give pixels less the level; these are compared with
    zero, which takes the place of the share of the range between the lowest and the highest.
    """

    def _shares(self) -> tuple[float, float]:
        return -TIE, TIE

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n) of images with indices (m,) and scores (m, *grid), in the units of the scores."""
        excess = _excess(self._patch_grid.unit_scores(scores), self._threshold, "signed")
        return torch.where(self._kinds[image], -excess, excess).flatten(1)

    def pixels(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return by how much the pixels (m, n) that can be extreme exceed the level."""
        return super().pixels(image, scores - self._threshold)

    def inside(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return whether images with indices (m,) and scores (m, *grid) have the observed regions, from all pixels."""
        return super().inside(image, scores - self._threshold)


class AbsoluteLevelMargins(AbsoluteMargins):
    """The margins of k observed regions |u| > level; the signs within the region are conditions too."""

    def __init__(self, regions: Tensor, level: float, patch_grid: PatchGrid, scores: Tensor) -> None:
        self._constant = level
        super().__init__(regions, level, patch_grid, scores)

    def _signs(self, values: Tensor) -> Tensor:
        return torch.ones_like(values[:, :1])

    def _weights(self) -> list[list[float]]:
        # Of the region with the sign that it has not, outside, the level, and the greatest absolute value of all.
        return [[1.0, 0.0, 1.0, TIE], [0.0, 1.0, -1.0, -TIE]]

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return the margins (m, n) of images with indices (m,) and scores (m, *grid), in the units of the scores."""
        values, kinds = self._patch_grid.unit_scores(scores), self._kinds[image]
        # A pixel of the region must keep its sign.
        signed = torch.where(kinds == OUT, values.abs(), torch.where(kinds == GREATEST, values, -values))
        excess = _excess(values, self._threshold, "absolute") - values.abs() + signed
        return torch.where(kinds == OUT, excess, -excess).flatten(1)

    def _parts(self, image: Tensor, kinds: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        none, never = torch.zeros_like(kinds, dtype=torch.bool), torch.zeros_like(kinds[:, :1], dtype=torch.bool)
        return [*super()._parts(image, kinds)[:2], (none, none, ~never), (~none, ~none, never)]


ROUNDING = 1e-12  # interpolation weights that differ by less than this are equal

INSIDE, OUTSIDE, SPLIT = 0, 1, 2
"""Kinds of pixels. Beyond the outermost patch centres, neighbouring pixels have equal values whatever the scores are;
if only some of a group of such pixels belong to the region, all of the group are split pixels."""


@dataclass(frozen=True)
class TopFraction:
    """The region is the fraction q, strictly between 0 and 1, of the pixels seen that have the greatest attention.

    With a mask of the map, it is the fraction of those within it. At least one pixel is inside and one outside. Of
    pixels that are equal whatever the scores are, such as those beyond the outermost patch centres, those that come
    first along the axes are taken.
    """

    q: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", strictly_between_0_and_1(self.q, "top_fraction (q)"))

    def regions(self, attention: Tensor, patch_grid: PatchGrid, sign: Sign, scores: Tensor) -> Tensor:
        """Return the regions (m, *units) of attention maps (m, *units); empty where pixels tie at its limit."""
        first_equal = _equal_pixels(patch_grid)
        pixels, total = attention.flatten(1)[:, first_equal], len(first_equal)
        if patch_grid.looked is not None:  # the fraction is that of the pixels within the mask
            pixels = pixels.masked_fill(~patch_grid.looked.flatten(), -torch.inf)
            total = int(patch_grid.looked.sum())
        if total == 1:  # a part of which is none
            return torch.zeros_like(attention, dtype=torch.bool)
        count = max(1, min(total - 1, round(self.q * total)))
        order = pixels.argsort(dim=1, descending=True, stable=True)
        last, first_out = order[:, count - 1], order[:, count]
        gap = (pixels.gather(1, last[:, None]) - pixels.gather(1, first_out[:, None])).squeeze(1)
        clear = (first_equal[last] == first_equal[first_out]) | (gap > TIE)
        if sign == "positive":  # of which all pixels at zero tie
            clear &= pixels.gather(1, last[:, None]).squeeze(1) > TIE
        regions = torch.zeros_like(pixels, dtype=torch.bool).scatter_(1, order[:, :count], True)
        return (regions & clear[:, None]).reshape(attention.shape)

    def margins(self, regions: Tensor, patch_grid: PatchGrid, scores: Tensor, sign: Sign) -> TopMargins:
        """Return the margins of observed regions (k, *units); of positive maps, no pixel of them is zero."""
        if sign == "absolute":
            raise InputError(
                "top_fraction does not go with a map of absolute values: use a threshold, or sign='signed'.",
                "top_fraction",
            )
        return TopMargins(regions, patch_grid, sign)


class TopMargins(Margins):
    """The margins of k observed regions with a fixed number of pixels.

    The region is the observed one if its lowest pixel lies above the highest outside. Split pixels (``SPLIT``) lie
    between those of the region and all others. The observed regions (k, *units) are those on the pixels seen. Of maps
    whose sign is "positive", the lowest pixel of the region must be positive.
    """

    def __init__(self, regions: Tensor, patch_grid: PatchGrid, sign: Sign = "signed") -> None:
        first_equal = _equal_pixels(patch_grid)
        flat = regions.flatten(1)
        members = torch.zeros_like(flat, dtype=torch.int32)
        members = members.index_add_(1, first_equal, flat.to(torch.int32))[:, first_equal]
        size = torch.bincount(first_equal, minlength=len(first_equal))[first_equal]
        kinds = torch.where(flat, INSIDE, OUTSIDE).to(torch.uint8)
        kinds[(members > 0) & (members < size)] = SPLIT
        self._present = torch.stack([(kinds == kind).any(dim=1) for kind in (INSIDE, OUTSIDE, SPLIT)], dim=1)
        # Signs of the lowest pixel inside, the highest outside, and the split pixels as highest and as lowest.
        signs = (-1.0, 1.0, 1.0, -1.0)
        weights = [[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
        self._positive = sign == "positive"
        if self._positive:
            weights += [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        super().__init__(kinds.unflatten(1, regions.shape[1:]), patch_grid, signs, weights)

    def __call__(self, image: Tensor, scores: Tensor) -> Tensor:
        """Return a margin per pixel (m, n) of images with indices (m,), and one for the sign of those of the region."""
        pixels = attention_map(scores, self._patch_grid).flatten(1)
        kinds = self._kinds[image].flatten(1)
        extremes, _ = self._extremes(image, kinds, pixels)
        not_inside, not_outside = extremes[:, 1:3].amax(dim=1), extremes[:, [0, 3]].amax(dim=1)
        split = (extremes[:, [0, 1]] + extremes[:, [2, 3]]).amax(dim=1)
        below, above = not_inside[:, None] - pixels, pixels + not_outside[:, None]
        of_pixels = torch.where(kinds == INSIDE, below, torch.where(kinds == OUTSIDE, above, split[:, None]))
        if not self._positive:
            return of_pixels
        values = self._patch_grid.unit_scores(scores).flatten(1)
        lowest = values.masked_fill(kinds == OUTSIDE, torch.inf).amin(dim=1, keepdim=True)
        return torch.cat([of_pixels, -lowest], dim=1)

    def _groups(self, image: Tensor, kinds: Tensor) -> list[Tensor]:
        inside, outside, split = (kinds == kind for kind in (INSIDE, OUTSIDE, SPLIT))
        some_inside, some_outside, some_split = self._present[image].unsqueeze(2).unbind(dim=1)
        # Where a kind has no pixels another takes its place, so that its condition repeats one of the others.
        lowest = torch.where(some_inside, inside, split)
        highest = torch.where(some_outside, outside, split)
        return [
            lowest,
            highest,
            torch.where(some_split & some_inside, split, highest),
            torch.where(some_split & some_outside, split, lowest),
        ]


def _equal_pixels(patch_grid: PatchGrid) -> Tensor:
    """Return, for each pixel seen (n,), the first one that equals it whatever the scores are.

    With a mask, the first of those that are looked at; all others repeat the first pixel that is.
    """
    first = patch_grid.axes[0].unit.new_zeros(1)
    for axis in patch_grid.axes:
        first = (first[:, None] * len(axis.matrix) + _equal_along(axis)).flatten()
    if patch_grid.looked is None:
        return first
    looked = patch_grid.looked.flatten().nonzero().squeeze(1)
    inside = torch.full_like(first, len(first)).scatter_reduce(0, first[looked], looked, "amin")
    return torch.where(patch_grid.looked.flatten(), inside[first], inside[first[looked[0]]])


def _equal_along(axis: PatchAxis) -> Tensor:
    """Return, for each pixel (n,), the first one with the same weights; only neighbours can have the same."""
    places = torch.arange(len(axis.matrix), device=axis.matrix.device)
    differs = torch.ones_like(places, dtype=torch.bool)
    differs[1:] = axis.matrix.diff(dim=0).abs().amax(dim=1) > ROUNDING
    return torch.where(differs, places, 0).cummax(dim=0).values


RULES: dict[str, Callable[[float], RegionRule]] = {"threshold": Threshold, "top_fraction": TopFraction, "level": Level}
"""Rules by the options of a test that define them."""


def as_region_rule(**options: float | None) -> RegionRule:
    """Return the rule of one of the options of a test; a threshold (0.6, the paper's) if none is given."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return Threshold()
    if len(given) > 1:
        raise InputError(
            f"{' and '.join(given)} are {'two' if len(given) == 2 else 'three'} ways to choose the region: give one of "
            f"them, got {' and '.join(map(repr, given.values()))}.",
            *given,
        )
    ((name, value),) = given.items()
    return RULES[name](value)
