"""How a round of the spectral search refines zones: by interpolating them again, or by correcting them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from attentest.search.spectral.chebyshev import MAX_DEGREE
from attentest.search.spectral.corrected_pieces import MOST_CORRECTIONS, SMOOTH_RATE, Corrections, correction_gain
from attentest.search.spectral.fresh_pieces import Fresh
from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segment_table import Zones
from attentest.search.spectral.segments import INSIDE, NO_PIECE, Segments

DEGREE = 8
"""Degree of a fresh piece; doubled where that pays."""

MOSTLY_UNDECIDED = 0.35
"""A piece of which more than this fraction is undecided is interpolated again as a whole."""

WORTH_DOUBLING = 0.05
"""A piece is interpolated with twice the degree if that should reduce its error by this factor, else it is split."""

PROGRESS = 0.02
"""A correction must be expected to reduce the error at least by this factor; otherwise a fresh piece is made."""

_ZONE_BY_ZONE, _PROBED, _DOUBLED, _SPLIT = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a round replaces, and by what.

    Parameters
    ----------
    replaced : (s,) bool
        Segments that are replaced.
    refined : (q,)
        Indices of the pieces that have zones among them.
    redone : (q,)
        Indices of the pieces that are interpolated again as a whole.
    fresh, corrections
        The new pieces.
    """

    replaced: Mask
    refined: Integers
    redone: Integers
    fresh: Fresh
    corrections: Corrections


def plan_for(segments: Segments, pieces: Pieces, chosen: Zones) -> Plan:
    """Return how to refine the chosen zones, whose costs are in units of the error that may be left."""
    new = chosen.piece == NO_PIECE
    fresh = [_fresh(chosen.chosen(new), np.inf)]
    nothing = np.empty(0, dtype=np.int64)
    corrections = Corrections(piece=nothing, left=np.empty(0), right=np.empty(0), count=nothing)
    refined = redone = nothing
    replaced_zones = chosen.zone[new]
    replaced = np.zeros(len(segments), dtype=np.bool_)
    known = chosen.chosen(~new)
    if len(known.zone):
        refined, index = np.unique(known.piece, return_inverse=True)
        how, start, end, again = _interpolated_again(pieces, known, refined, index)
        # Of a piece that is interpolated again, everything between its outermost zones is replaced; the rest stays.
        whole = np.flatnonzero(how != _ZONE_BY_ZONE)
        redone = refined[whole]
        number = np.full(len(pieces) + 1, -1)  # the last one is for NO_PIECE
        number[redone] = whole
        rows = np.flatnonzero(number[segments.piece] >= 0)
        own = number[segments.piece[rows]]
        replaced[rows] = (segments.left[rows] >= start[own]) & (segments.right[rows] <= end[own])
        rest = known.chosen(how[index] == _ZONE_BY_ZONE)
        replaced_zones = np.concatenate([replaced_zones, rest.zone])
        count = _corrections_needed(pieces, rest)
        anew = rest.chosen(count == 0)
        fresh += [again, _fresh(anew, pieces.error[anew.piece] + pieces.floor[anew.piece])]
        some = count > 0
        corrections = Corrections(
            piece=rest.piece[some], left=rest.left[some], right=rest.right[some], count=count[some]
        )
    replaced |= np.isin(segments.zone, replaced_zones) & (segments.kind != INSIDE)
    return Plan(
        replaced=replaced,
        refined=refined,
        redone=redone,
        fresh=Fresh(**{f.name: np.concatenate([getattr(part, f.name) for part in fresh]) for f in fields(Fresh)}),
        corrections=corrections,
    )


def _interpolated_again(
    pieces: Pieces, zones: Zones, piece: Integers, index: Integers
) -> tuple[Integers, Floats, Floats, Fresh]:
    """Return for pieces whether and how they are interpolated again as a whole.

    Parameters
    ----------
    pieces
        All pieces.
    zones
        Zones (z,) to refine.
    piece : (q,)
        Indices of the pieces that these belong to, in ascending order.
    index : (z,)
        Which of these pieces each zone belongs to.

    Returns
    -------
    how : (q,)
        Whether and how each is interpolated again.
    start, end : (q,)
        Ends of the part of each that is replaced then.
    fresh
        The fresh pieces.
    """
    left, right = pieces.left[piece], pieces.right[piece]
    error, floor = pieces.error[piece], pieces.floor[piece]
    coarse, untouched = pieces.degree[piece] == DEGREE, ~pieces.refined[piece]
    share = np.bincount(index, zones.right - zones.left, minlength=len(piece)) / (right - left)
    mostly = share > MOSTLY_UNDECIDED
    # One fresh piece from the first to the last of several zones takes fewer evaluations than one for each.
    several = np.bincount(index[_corrections_needed(pieces, zones) == 0], minlength=len(piece)) > 1
    whole = (mostly | several) & untouched
    doubling = coarse & (pieces.rate[piece] ** DEGREE < WORTH_DOUBLING) & (error > floor)
    how = np.where(whole, np.where(doubling & mostly, _DOUBLED, _SPLIT), _ZONE_BY_ZONE)
    how[(share > 0) & untouched & pieces.bumpy[piece] & coarse] = _PROBED
    probed, doubled, split = (np.flatnonzero(how == way) for way in (_PROBED, _DOUBLED, _SPLIT))
    entire = np.concatenate([probed, doubled])
    start, end = np.full(len(piece), np.inf), np.full(len(piece), -np.inf)
    np.minimum.at(start, index, zones.left)
    np.maximum.at(end, index, zones.right)
    start[entire], end[entire] = left[entire], right[entire]
    first, last = start[split], end[split]
    wide = last - first > 0.5 * (right - left)[split]
    middle = np.where(wide, (first + last) / 2, last)
    which = np.concatenate([entire, split, split[wide]])
    number = np.arange(len(which))
    fresh = Fresh(
        image=pieces.image[piece[which]],
        left=np.concatenate([left[entire], first, middle[wide]]),
        right=np.concatenate([right[entire], middle, last[wide]]),
        degree=np.where((number >= len(probed)) & (number < len(entire)), MAX_DEGREE, DEGREE),
        stalls=pieces.stalls[piece[which]],
        error_so_far=(error + floor)[which],
        probed=number < len(probed),
    )
    return how, start, end, fresh


def _corrections_needed(pieces: Pieces, zones: Zones) -> Integers:
    """Return the number of points at which each zone is corrected; 0 if it is better interpolated again."""
    share = (zones.right - zones.left) / (pieces.right[zones.piece] - pieces.left[zones.piece])
    enough = np.maximum(PROGRESS, np.exp(np.minimum(-zones.log_cost.max(axis=0), 0.0)))
    count = np.zeros(len(share), dtype=np.int64)
    for points in range(MOST_CORRECTIONS, 0, -1):
        count[correction_gain(pieces.order[zones.piece], share, points) <= enough] = points
    return np.where(pieces.rate[zones.piece] <= SMOOTH_RATE, count, 0)


def _fresh(zones: Zones, error_so_far: float | Floats) -> Fresh:
    return Fresh(
        image=zones.image,
        left=zones.left,
        right=zones.right,
        degree=np.full(len(zones.zone), DEGREE),
        stalls=zones.stalls,
        error_so_far=np.broadcast_to(error_so_far, zones.left.shape),
        probed=np.zeros(len(zones.zone), dtype=np.bool_),
    )
