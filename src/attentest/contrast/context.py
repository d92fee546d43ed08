"""How large a difference is among regions of the same shape elsewhere in the image, and without units: descriptive.

Where the noise of an image is small, every region differs from the rest of it. Then p says nothing about the size of
the difference, and these numbers do: the region, shifted and reflected, is placed elsewhere, and compared there as it
is compared in the test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number, whole_number
from attentest.contrast.contrast import ComparedMeans, Contrast, Mask, compared_means, per_pixel
from attentest.contrast.kernel import Filtered
from attentest.errors import InputError

Box: TypeAlias = tuple[slice, ...]  # a part of an image along each of its axes

MOST_PLACES, FEWEST_PLACES = 500, 20
"""Of more places, so many are drawn: the share then has a standard error of 0.02 at most. With fewer there is none."""

MOST_CALLS, CALLED_PIXELS = 50, 2**23
"""Fewer places, and no more than so many pixels in all, where a function must be called for each of them."""

RUN_ENDS = 2**19
"""Ends of runs of pixels that are looked up in all; a ragged region of a large image has fewer places."""

MOST_SHARED = 0.5  # a copy that shares a greater part of its pixels with the region is not elsewhere
ROUNDING = 1e-9  # differences this close, relative to the largest pixel, are equal


@dataclass(frozen=True, kw_only=True)
class Context:
    """How large the observed difference is within its image: descriptive, not a test."""

    placements: int
    """Number of places elsewhere in the image at which a copy of the region was compared as the region is, chosen at
    random if there are many; 0 if there is no room for other places."""
    smaller: int
    """Number of those with a smaller absolute difference; for a one-sided alternative, with a lower difference than the
    observed one (greater) or a higher one (less)."""
    standard_deviations: float | None
    """The difference over the standard deviation of the pixels that the model sees; None if they are all equal."""
    percent_of_range: float | None
    """The difference in per cent of their range."""

    def __post_init__(self) -> None:
        whole_number(self.placements, "placements", 0, MOST_PLACES)
        whole_number(self.smaller, "smaller", 0, self.placements)
        for name in ("standard_deviations", "percent_of_range"):
            if getattr(self, name) is not None:
                real_number(getattr(self, name), name)

    @property
    def share(self) -> float | None:
        """Share of the places with a smaller difference; None if there is no room for other places."""
        return self.smaller / self.placements if self.placements else None

    def to_dict(self) -> dict[str, Any]:
        """Return the values, with the share, JSON-ready."""
        return {**asdict(self), "share": self.share}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Context:
        """Return the context whose :meth:`to_dict` this is; raise an error if it is not one."""
        context = cls(**{name: values[name] for name in cls.__dataclass_fields__})
        if values["share"] != context.share:
            raise InputError(f"share is {values['share']!r}, and by the other values it is {context.share!r}.")
        return context


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRegion:
    """A region as it is compared in an image; its contexts are computed when they are first asked for, or pickled."""

    contrast: Contrast
    """How it is compared."""
    image: NDArray[np.float64]
    reference: NDArray[np.float64] | None
    """(C, *axes). The image, and its reference if it has one."""
    channel_weights: NDArray[np.float64]
    """(C,). With which weights of the channels."""
    part: Mask
    region: Mask
    seen: Mask
    """(*axes) bool. The compared part of the region, the whole of it, which moves along, and the box that the model
    sees."""
    corners: tuple[NDArray[np.int64], ...]
    """Where along each axis units of regions begin, counted from the corner of that box: copies begin there."""
    difference: float
    """The observed difference."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _known, (self.contexts,)

    @cached_property
    def contexts(self) -> dict[str, Context]:
        """The context of the difference for each alternative."""
        shown = self._plane(self.image)
        low, high, deviation = float(shown.min()), float(shown.max()), float(shown.std())
        differences, observed, rounding = self.differences(), self.difference, ROUNDING * max(abs(low), abs(high))
        smaller = {
            "two-sided": np.abs(differences) < abs(observed) - rounding,
            "greater": differences < observed - rounding,
            "less": differences > observed + rounding,
        }
        flat = high - low <= rounding or not deviation > 0  # which underflows for tiny pixels
        contexts = {
            alternative: Context(
                placements=len(differences),
                smaller=int(np.count_nonzero(counted)),
                standard_deviations=None if flat else observed / deviation,
                percent_of_range=None if flat else 100 * observed / (high - low),
            )
            for alternative, counted in smaller.items()
        }
        return {**contexts, "equal-tailed": contexts["two-sided"]}

    def differences(self) -> NDArray[np.float64]:
        """Return the differences (m,) of copies elsewhere.

        They are copies that lie within what the model sees; where there is no room for those, copies that leave it on
        one side and come in again on the other.
        """
        means = compared_means(self.contrast.of if type(self.contrast) is Filtered else self.contrast)
        for around in (False, True):
            differences = self._called(around) if means is None else self._of_means(means, around)
            if len(differences) >= FEWEST_PLACES:
                return differences
        return np.empty(0)

    @cached_property
    def _box(self) -> Box:
        """The box that the model sees."""
        return _bounding_box(self.seen)

    def _plane(self, image: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weighted sum of the channels of an image (C, *axes), filtered if that is compared, where seen."""
        plane = np.tensordot(self.channel_weights, image, axes=1)
        return np.asarray((self.contrast.filtered(plane) if type(self.contrast) is Filtered else plane)[self._box])

    def _places(self, around: bool, most: int) -> NDArray[np.int64]:
        """Return the reflection, and the shifts on the reflected image (k, 3), of at most so many copies."""
        part = self.part[self._box]
        box = _bounding_box(part)
        shifts = []  # of each axis, (2, n): those on the image, and those on its reflection
        for length, sides, corners in zip(part.shape, box, self.corners, strict=True):
            last = length - (sides.stop - sides.start)
            starts = corners if around else corners[corners <= last]
            moved = np.stack([starts, last - starts]) - sides.start
            shifts.append(moved % length if around else moved)
        flips = enumerate(_flips(part.ndim))
        different = {part[box][flip].tobytes(): number for number, flip in flips}  # symmetric ones are equal
        counts = len(different), *(moved.shape[1] for moved in shifts)
        total = math.prod(counts)
        chosen = np.random.default_rng(0).choice(total, most, replace=False) if total > most else np.arange(total)
        number, *starting = np.unravel_index(chosen, counts)
        flip = np.array(list(different.values()))[number]
        reflected = _reflected(flip, part.ndim)
        along = [moved[on, place] for moved, on, place in zip(shifts, reflected, starting, strict=True)]
        return np.stack([flip, *along], axis=1)

    def _of_means(self, means: ComparedMeans, around: bool) -> NDArray[np.float64]:
        """Return the differences (m,) of copies of which means are compared: by sums over runs of pixels."""
        part, region = self.part[self._box], self.region[self._box]
        places = self._places(around, max(2 * FEWEST_PLACES, min(MOST_PLACES, RUN_ENDS // _runs(part).shape[1])))
        if len(places) < FEWEST_PLACES:
            return np.empty(0)
        plane = self._plane(self.image if self.reference is None else self.image - self.reference)
        # The sets of a copy are those of a region far from the border, moved, as far as they come into the image.
        pads = [
            (0, 0) if around else (int(min(length - sides.stop, means.reach)), int(min(sides.start, means.reach)))
            for length, sides in zip(part.shape, _bounding_box(part), strict=True)
        ]
        wide, moving = np.pad(part, pads), np.pad(region, pads)
        inside, outside = means.compared(wide, moving, np.ones_like(wide))
        runs, corner = _runs(inside), np.array([[before] for before, _ in (*pads, pads[-1])])
        (sums, shared), sizes = _sums(np.stack([plane, part]), runs - corner, places, around)
        elsewhere = shared <= MOST_SHARED * sizes
        places, sums, sizes = places[elsewhere], sums[elsewhere], sizes[elsewhere]
        if outside is None:
            return np.asarray(sums / sizes)
        # What is left of the image has fewer runs than a background, and is often the part itself.
        rest = np.isinf(means.reach)
        others, other_sizes = sums, sizes
        if not np.array_equal(outside != rest, inside):
            (others,), other_sizes = _sums(plane[None], _runs(outside != rest) - corner, places, around)
        if rest:
            others, other_sizes = plane.sum() - others, plane.size - other_sizes
        there = other_sizes > 0
        return np.asarray(sums[there] / sizes[there] - others[there] / other_sizes[there])

    def _called(self, around: bool) -> NDArray[np.float64]:
        """Return the differences (m,) of copies, each by the weights that the contrast gives it."""
        differences = []
        most = min(MOST_CALLS, max(2 * FEWEST_PLACES, CALLED_PIXELS // self.part.size))
        flips = _flips(self.part.ndim)
        for flip, *shift in self._places(around, most).tolist():
            part, region = (self._placed(mask, flips[flip], shift, around) for mask in (self.part, self.region))
            if (part & self.part).sum() > MOST_SHARED * part.sum():
                continue
            try:
                differences.append(self._value(part, region))
            except Exception:  # noqa: BLE001  # code of the caller's need not take every region
                continue
        return np.array(differences)

    def _value(self, part: Mask, region: Mask) -> float:
        """Return the difference of a part of a region."""
        value, contrast = 0.0, self.contrast
        for weigh, image in ((contrast.weights, self.image), (contrast.reference_weights, self.reference)):
            if image is not None:
                weights = per_pixel(weigh(part, region, self.seen)[None], self.channel_weights, image.shape)
                value += float(weights[0] @ image.ravel())
        return value

    def _placed(self, mask: Mask, flip: Box, shift: Sequence[int], around: bool) -> Mask:
        """Return a copy of a mask (*axes) at a place."""
        placed, shown = np.zeros_like(mask), mask[self._box]
        wide = np.pad(shown, [(length, length) for length in shown.shape], mode="wrap" if around else "constant")
        window = tuple(
            slice(length - moved, 2 * length - moved) for length, moved in zip(shown.shape, shift, strict=True)
        )
        placed[self._box] = wide[window][flip]
        return placed


def _known(contexts: dict[str, Context]) -> ComparedRegion:
    """Return a region of which the contexts alone are known."""
    region = object.__new__(ComparedRegion)
    vars(region)["contexts"] = contexts
    return region


def _flips(dimension: int) -> list[Box]:
    """Return the slices that reflect an array of so many axes along none, some or all of them."""
    return list(product((slice(None), slice(None, None, -1)), repeat=dimension))


def _reflected(flip: NDArray[np.int64], dimension: int) -> list[NDArray[np.int64]]:
    """Return for each axis whether (k,) the flips of these numbers reflect it."""
    return [flip >> axis & 1 for axis in reversed(range(dimension))]


def _bounding_box(mask: Mask) -> Box:
    """Return the part along each axis of a mask (*axes) that is not empty."""
    others = [tuple(other for other in range(mask.ndim) if other != axis) for axis in range(mask.ndim)]
    places = [np.flatnonzero(mask.any(axis=axes)) for axes in others]
    return tuple(slice(int(along[0]), int(along[-1]) + 1) for along in places)


def _runs(mask: Mask) -> NDArray[np.int64]:
    """Return the place on all axes but the last, start and end (axes + 1, n) of each run of pixels along the last."""
    edges = np.diff(np.pad(mask, [*[(0, 0)] * (mask.ndim - 1), (1, 1)]).astype(np.int8), axis=-1)
    return np.stack([*np.nonzero(edges == 1), np.nonzero(edges == -1)[-1]])


def _sums(
    planes: NDArray[np.float64], runs: NDArray[np.int64], places: NDArray[np.int64], around: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sums (p, k) of planes (p, *axes) over runs (axes + 1, n) at places (k, axes + 1), and sizes.

    A run that leaves the planes is cut off there; if copies go around the border, it goes on at the other side.
    """
    count, *sides, width = planes.shape
    (flip, *shifts, right), (*leading, start, end) = places.T, runs
    *reflected, last = _reflected(flip, len(sides) + 1)
    length = end - start
    # On the image itself a reflected run goes from minus its end to minus its start, from the other side.
    starts = np.stack([start, -end])[last] + np.where(last, width - right, right)[:, None]
    rows, outside = np.zeros_like(starts), np.zeros(starts.shape, dtype=np.bool_)
    for side, at, on, shift in zip(sides, leading, reflected, shifts, strict=True):
        along = np.stack([at, -at])[on] + np.where(on, side - 1 - shift, shift)[:, None]
        outside |= (along < 0) | (along >= side)
        rows = rows * side + along % side
    if around:
        starts = starts % width
        ends, planes = starts + length, np.concatenate([planes, planes], axis=-1)
    else:
        ends = np.where(outside, 0, np.clip(starts + length, 0, width))
        starts = np.where(outside, 0, np.clip(starts, 0, width))
    cumulative = np.zeros((count, *sides, planes.shape[-1] + 1))
    np.cumsum(planes, axis=-1, out=cumulative[..., 1:])
    sizes, rows = ends.sum(axis=1) - starts.sum(axis=1), rows * cumulative.shape[-1]
    starts, ends = starts + rows, ends + rows
    sums = [plane.take(ends).sum(axis=1) - plane.take(starts).sum(axis=1) for plane in cumulative.reshape(count, -1)]
    return np.array(sums), np.asarray(sizes)
