"""Signals and volumes on a plane: traces, and slices through the region, so that every picture is one of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.images.image_file import Spacing

TILES = 4  # slices through the region in the strip below the three slices that cross in it

LEAST_SIDE = 240
"""Small volumes are enlarged by a whole factor to at least so many pixels, so that the strip can be seen."""

MOST_SIDE = 1024
"""Most pixels of a side of slices that are stretched, as their voxels are longer along one axis than another."""

TRACE_WIDTH, LANE, LEAST_HEIGHT = 512, 36, 144
"""Pixels of a picture of traces: its width, the height of each channel, and its least height."""

MOST_CHANNELS = 12  # channels that are drawn, the first ones: as many as an ECG has
FINE = 4  # points at which a trace is drawn in each column of pixels, at least


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """Where the values of a signal or a volume are on a picture."""

    axes: tuple[int, ...]
    """The sides of the signal or the volume."""
    places: NDArray[np.int64]
    """(h, w) int64. The place of each pixel of the picture among the values, counted in their order; -1 where there is
    none."""
    caption: str = ""
    """Which slices of a volume these are; empty of a signal."""

    @classmethod
    def through(cls, region: NDArray[np.bool_], image: NDArray[Any], spacing: Spacing | None = None) -> Plane:
        """Return the plane of a signal's traces, or of slices of a volume through the centre of its region (*axes).

        Slices have the proportions of the volume, if the spacing of its voxels is known.
        """
        if region.ndim == 1:
            height = max(LEAST_HEIGHT, LANE * len(channels_of(image)))
            return cls(axes=region.shape, places=np.tile(_nearest(region.size, TRACE_WIDTH), (height, 1)))
        return _slices(region, np.ones(3) if spacing is None else np.array(spacing.lengths))

    def values(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a map or a mask (*axes) on the plane, (h, w): NaN, or False, where there is nothing."""
        nothing = np.False_ if array.dtype == np.bool_ else np.nan
        return np.where(self.places < 0, nothing, array.reshape(-1)[self.places])

    def image(self, image: NDArray[Any]) -> NDArray[np.float64]:
        """Return a signal (T,) or (C, T) as traces (h, w); a volume (D, H, W) as (h, w), with channels as (h, w, C)."""
        if len(self.axes) == 1:
            return _traces(channels_of(image), self.places.shape)
        if image.ndim == 3:
            return np.asarray(self.values(np.asarray(image, dtype=np.float64)))
        return np.stack([self.values(np.asarray(channel, dtype=np.float64)) for channel in image], axis=-1)


def channels_of(signal: NDArray[Any]) -> NDArray[np.float64]:
    """Return the channels (c, T) of a signal that are drawn."""
    return np.atleast_2d(np.asarray(signal, dtype=np.float64))[:MOST_CHANNELS]


def lanes(channels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the heights (c, T) of channels drawn below each other, from 0 at the top to 1, each in its own range."""
    low, high = channels.min(axis=1, keepdims=True), channels.max(axis=1, keepdims=True)
    share = np.where(high > low, (channels - low) / np.where(high > low, high - low, 1.0), 0.5)
    return np.asarray((np.arange(len(channels))[:, None] + 0.94 - 0.88 * share) / len(channels))


def extremes(heights: NDArray[np.float64], columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the least and the greatest height (columns,) of a line through points (T,) in each of so many columns."""
    count = columns * max(FINE, -(-2 * heights.size // columns))
    line = np.interp((np.arange(count) + 0.5) * heights.size / count - 0.5, np.arange(heights.size), heights)
    each = line.reshape(columns, -1)
    return each.min(axis=1), each.max(axis=1)


def _traces(channels: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return traces of channels (c, T), 0 on 1, as a picture (h, w)."""
    height, width = shape
    picture, rows = np.ones(shape), np.arange(height)[:, None]
    for heights in lanes(channels):
        low, high = (ends * height for ends in extremes(heights, width))
        # Each column is joined to the one before it, whether the line rises or falls between them.
        least, greatest = low.copy(), high.copy()
        least[1:], greatest[1:] = np.minimum(low[1:], high[:-1]), np.maximum(high[1:], low[:-1])
        picture[(rows >= np.floor(least)) & (rows <= np.floor(greatest))] = 0.0
    return picture


def _slices(region: NDArray[np.bool_], spacing: NDArray[np.float64]) -> Plane:
    """Return three slices that cross in the centre of a region (D, H, W), and a strip of slices through it.

    The ``spacing`` (3,) of the voxels is in any unit.
    """
    depth, height, width = region.shape
    slices = np.flatnonzero(region.any(axis=(1, 2)))
    if not slices.size:
        slices = np.array([depth // 2])
    z = _middle(region.sum(axis=(1, 2)))
    y = _middle(region[z].sum(axis=1))
    x = _middle(region[z, y])
    lengths = spacing * region.shape / spacing.min()
    lengths *= min(1.0, max(MOST_SIDE, *region.shape) / lengths.max())
    deep, high, wide = (max(1, round(length)) for length in lengths.tolist())
    factor = max(1, -(-LEAST_SIDE // (deep + max(high, wide))))
    sides = tuple(factor * side for side in (deep, high, wide))
    every, rows, columns = (_nearest(*ends) for ends in zip(region.shape, sides, strict=True))
    gap = max(2, (sides[0] + sides[2]) // 40)

    def places(at: Any, down: Any, right: Any) -> NDArray[np.int64]:
        return np.asarray((at * height + down) * width + right)

    front = places(z, rows[:, None], columns)
    side = places(every, rows[:, None], x)
    top = places(every[:, None], y, columns)
    whole = front.shape[1] + gap + side.shape[1]
    tile = max(1, (whole - (TILES - 1) * gap) // TILES)
    down, right = _nearest(height, max(1, round(tile * high / wide))), _nearest(width, tile)
    shown = slices[np.unique(np.linspace(0, slices.size - 1, min(TILES, slices.size)).round().astype(np.int64))]
    strip = [places(number, down[:, None], right) for number in shown]
    blocks = [[front, side], [top], strip]
    tall = sum(row[0].shape[0] for row in blocks) + gap * (len(blocks) - 1)
    canvas, start = np.full((tall, max(whole, tile * TILES + gap * (TILES - 1))), -1, dtype=np.int64), 0
    for row in blocks:
        left = 0
        for block in row:
            canvas[start : start + block.shape[0], left : left + block.shape[1]] = block
            left += block.shape[1] + gap
        start += row[0].shape[0] + gap
    caption = f"slice {z}, column {x}, row {y};\nstrip: slices {', '.join(map(str, shown))}"
    return Plane(axes=region.shape, places=canvas, caption=caption)


def _middle(counts: NDArray[Any]) -> int:
    """Return the place at which half of the counts (n,) is reached; the middle if there are none."""
    reached = np.cumsum(counts)
    return int(np.searchsorted(reached, reached[-1] / 2)) if reached[-1] else len(counts) // 2


def _nearest(length: int, count: int) -> NDArray[np.int64]:
    """Return the place in a range of a length that is nearest to each of so many evenly spaced pixels."""
    return np.asarray((2 * np.arange(count) + 1) * length // (2 * count))
