"""How a round of the spectral search refines zones: by interpolating them again, or by correcting them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from attentest.search.spectral.chebyshev import MAX_DEGREE
from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import MOST_CORRECTIONS, SMOOTH_RATE, Corrections, Fresh, Pieces, correction_gain
from attentest.search.spectral.segments import INSIDE, NO_PIECE, Segments, Zones

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
    replaced = np.isin(segments.zone, chosen.zone[new]) & (segments.kind != INSIDE)
    nothing = np.empty(0, dtype=np.int64)
    corrections = Corrections(piece=nothing, left=np.empty(0), right=np.empty(0), count=nothing)
    refined = redone = nothing
    known = chosen.chosen(~new)
    if len(known.zone):
        whole, again = _interpolated_again(pieces, known)
        # Of a piece that is interpolated again, everything between its outermost zones is replaced; the rest stays.
        start, end = _hulls(known, len(pieces))
        entire = (whole == _PROBED) | (whole == _DOUBLED)
        start, end = np.where(entire, pieces.left, start), np.where(entire, pieces.right, end)
        owner = np.where(segments.piece == NO_PIECE, 0, segments.piece)
        within = (segments.left >= start[owner]) & (segments.right <= end[owner])
        replaced |= (segments.piece != NO_PIECE) & (whole[owner] != _ZONE_BY_ZONE) & within
        rest = known.chosen(whole[known.piece] == _ZONE_BY_ZONE)
        replaced |= np.isin(segments.zone, rest.zone) & (segments.kind != INSIDE)
        count = _corrections_needed(pieces, rest)
        fresh += [again, _fresh(rest.chosen(count == 0), (pieces.error + pieces.floor)[rest.piece[count == 0]])]
        some = count > 0
        corrections = Corrections(
            piece=rest.piece[some], left=rest.left[some], right=rest.right[some], count=count[some]
        )
        refined, redone = known.piece, np.flatnonzero(whole != _ZONE_BY_ZONE)
    return Plan(
        replaced=replaced,
        refined=refined,
        redone=redone,
        fresh=Fresh(**{f.name: np.concatenate([getattr(part, f.name) for part in fresh]) for f in fields(Fresh)}),
        corrections=corrections,
    )


def _hulls(zones: Zones, pieces: int) -> tuple[Floats, Floats]:
    """Return the left end of the first zone and the right end of the last zone of each piece."""
    start, end = np.full(pieces, np.inf), np.full(pieces, -np.inf)
    np.minimum.at(start, zones.piece, zones.left)
    np.maximum.at(end, zones.piece, zones.right)
    return start, end


def _interpolated_again(pieces: Pieces, zones: Zones) -> tuple[Integers, Fresh]:
    """Return for each piece whether and how it is interpolated again as a whole, and the fresh pieces for those."""
    width = pieces.right - pieces.left
    share = np.bincount(zones.piece, zones.right - zones.left, minlength=len(pieces)) / width
    whole = (share > MOSTLY_UNDECIDED) & ~pieces.refined
    doubling = (pieces.degree == DEGREE) & (pieces.rate**DEGREE < WORTH_DOUBLING) & (pieces.error > pieces.floor)
    how = np.where(whole, np.where(doubling, _DOUBLED, _SPLIT), _ZONE_BY_ZONE)
    bumpy = (share > 0) & ~pieces.refined & pieces.bumpy & (pieces.degree == DEGREE)
    how[bumpy] = _PROBED
    probed, doubled, split = (np.flatnonzero(how == way) for way in (_PROBED, _DOUBLED, _SPLIT))
    start, end = (edge[split] for edge in _hulls(zones, len(pieces)))
    wide = end - start > 0.5 * width[split]
    middle = np.where(wide, (start + end) / 2, end)
    entire = np.concatenate([probed, doubled])
    which = np.concatenate([entire, split, split[wide]])
    number = np.arange(len(which))
    return how, Fresh(
        image=pieces.image[which],
        left=np.concatenate([pieces.left[entire], start, middle[wide]]),
        right=np.concatenate([pieces.right[entire], middle, end[wide]]),
        degree=np.where((number >= len(probed)) & (number < len(entire)), MAX_DEGREE, DEGREE),
        stalls=pieces.stalls[which],
        error_so_far=(pieces.error + pieces.floor)[which],
        probed=number < len(probed),
    )


def _corrections_needed(pieces: Pieces, zones: Zones) -> Integers:
    """Return the number of points at which each zone is corrected; 0 if it is better interpolated again."""
    share = (zones.right - zones.left) / (pieces.right - pieces.left)[zones.piece]
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
