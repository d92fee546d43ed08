"""The audit: points at random places where something was concluded, to see whether the conclusions hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.search.spectral.segments import INSIDE, AxisParts, SegmentTable
from attentest.statistics.columns import Columns, Floats, Integers, Mask, order_by_owner, repeated

WORDS = tuple(np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""Constants of the generator SplitMix64 (Steele, Lea and Flood 2014)."""

FROM_ENDS = 2.0**-25
"""Least distance of an audit point from the ends of its cell, relative to its width: there scores are too close to the
threshold to tell."""


def uniform(seeds: NDArray[np.uint64], *keys: NDArray[np.float64] | NDArray[np.int64]) -> Floats:
    """Return numbers in [0, 1), one for each seed and its keys: arrays that broadcast together."""
    state = np.asarray(seeds, dtype=np.uint64)
    for key in keys:
        state = _mixed(state ^ np.ascontiguousarray(key).view(np.uint64))
    return np.asarray((_mixed(state) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        state = state + WORDS[0]
        state = (state ^ (state >> np.uint64(30))) * WORDS[1]
        state = (state ^ (state >> np.uint64(27))) * WORDS[2]
        return np.asarray(state ^ (state >> np.uint64(31)))


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditPoints(Columns):
    """Points (m,) at which conclusions are checked: images, places, and whether they were concluded to be inside."""

    image: Integers
    z: Floats
    inside: Mask


def drawn(table: SegmentTable, pvalue: int, count: Integers, seeds: NDArray[np.uint64], look: Integers) -> AuditPoints:
    """Draw so many audit points (k,) of each image from what a table says, by the masses of one of its p-values.

    ``look`` (k,) says how often each image was audited before: other points are drawn each time.
    """
    cells, inside = _concluded(table, count > 0)
    masses = table.log_masses(pvalue, cells)
    groups = [(kind, part) for part in (0, 1) for kind in (True, False)]
    # An equal number from each part that there is, so that a light one is audited too.
    rows = [np.flatnonzero((inside == kind) & (masses[part] > -np.inf)) for kind, part in groups]
    present = np.array([np.bincount(cells.image[members], minlength=len(count)) > 0 for members in rows])
    # The counts are divided evenly among the groups that are present.
    share_of, rank = np.maximum(present.sum(axis=0), 1), np.cumsum(present, axis=0) - 1
    shares = np.where(present, count // share_of + (rank < count % share_of), 0)
    columns = []
    for number, ((_, part), members) in enumerate(zip(groups, rows, strict=True)):
        which, place = repeated(shares[number])
        keys = (look[which], np.full(len(which), number), place)
        share = (place + uniform(seeds[which], *keys)) / shares[number][which]
        cell, within = _quantiles(cells.image[members], masses[part][members], which, share)
        columns.append((which, members[cell], np.full(len(which), part), within))
    image, cell, part_of, within = (np.concatenate(column) for column in zip(*columns, strict=True))
    drawn_from = cells.take(cell)
    z = table.quantiles(pvalue, drawn_from, within, part_of == 0)
    margin = FROM_ENDS * drawn_from.width
    z = np.clip(z, drawn_from.left + margin, drawn_from.right - margin)
    return AuditPoints(image=image, z=z, inside=inside[cell])


def _concluded(table: SegmentTable, wanted: Mask) -> tuple[AxisParts, Mask]:
    """Return the cells of the axes of some images about which something is concluded, and whether they are inside."""
    segments = table.segments.take(wanted[table.segments.image])
    segments = segments.take(order_by_owner(segments.image, segments.left))
    certain = segments.kind == INSIDE
    # What belongs to no segment is outside.
    gap = (segments.image[1:] == segments.image[:-1]) & (segments.right[:-1] < segments.left[1:])
    cells = AxisParts(
        image=np.concatenate([segments.image[certain], segments.image[1:][gap]]),
        left=np.concatenate([segments.left[certain], segments.right[:-1][gap]]),
        right=np.concatenate([segments.right[certain], segments.left[1:][gap]]),
    )
    order = order_by_owner(cells.image, cells.left)
    return cells.take(order), (np.arange(len(cells)) < certain.sum())[order]


def _quantiles(image: Integers, log_mass: Floats, which: Integers, share: Floats) -> tuple[Integers, Floats]:
    """Return the cell at each share (m,) of an image's mass (m,), and the share of the cell's own mass before it.

    The cells (c,), given by their images and log masses, are sorted by image.
    """
    heaviest = np.full(int(image.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(heaviest, image, log_mass)
    mass = np.exp(log_mass - heaviest[image])
    sums = np.cumsum(mass)
    first, last = (np.searchsorted(image, which, side=side) for side in ("left", "right"))
    before = np.where(first > 0, sums[first - 1], 0.0)
    target = before + share * (sums[last - 1] - before)
    cell = np.clip(np.searchsorted(sums, target), first, last - 1)
    within = (target - np.where(cell > 0, sums[cell - 1], 0.0)) / mass[cell]
    return cell, np.clip(within, 0.0, 1.0)
