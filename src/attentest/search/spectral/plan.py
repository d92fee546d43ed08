"""Which zones a round of the spectral search refines, and how: by interpolating them again, or by correcting them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attentest.search.spectral.chebyshev import MAX_DEGREE
from attentest.search.spectral.goals import Goals
from attentest.search.spectral.pieces import MOST_CORRECTIONS, SMOOTH_RATE, Fresh, Pieces, correction_gain
from attentest.search.spectral.segments import INSIDE, NO_PIECE, PVALUES, AxisParts, LogBounds, Segments, Zones
from attentest.statistics.columns import Floats, Integers, Mask, order_by_owner, run_ends
from attentest.statistics.interval_mass import log_sums
from attentest.statistics.law import Law

CENTRE = 2.0
"""Pieces up to so many standard deviations from zero are explored first, with those at z_obs: they are the heaviest."""

FARTHER = math.log(1e-4)
"""Unexplored pieces lighter than this fraction (in logs) of the heaviest one are deferred, unless few were explored
before: the heavier ones may make them irrelevant."""

FAR_OUT = 50.0
"""If what is more extreme than the statistic is this many logs lighter than the rest (|z_obs| above ten or so), it is
explored first: two or three pieces of dozens."""

FARTHEST_OUT = 1e4  # a confidence interval that depends on z farther than this from z_obs is left as wide as it is
STALLED = 4  # a zone that has not improved this many times is not refined any more
MOST_UNITS = 700.0  # costs that are smaller than what is allowed by so many logs are none
DEGREE = 8  # degree of a fresh piece; doubled where that pays
MOSTLY_UNDECIDED = 0.35  # a piece of which more than this fraction is undecided is interpolated again as a whole

WORTH_DOUBLING = 0.05
"""A piece is interpolated with twice the degree if that should reduce its error by this factor, else it is split."""

PROGRESS = 0.02
"""A correction must be expected to reduce the error at least by this factor; otherwise a fresh piece is made."""

_ZONE_BY_ZONE, _PROBED, _DOUBLED, _SPLIT = 0, 1, 2, 3


class Chooser:
    """Chooses the zones to refine: the fewest that leave less than the allowed error in the others."""

    def __init__(self, law: Law) -> None:
        self._z_obs = law.z_obs
        self._centre = CENTRE * law.spread
        self._explored = np.zeros(len(law), dtype=np.int64)
        self._first = True

    def choose(self, zones: Zones, pieces: Pieces, goals: Goals, *, anything_inside: Mask) -> tuple[Zones, Mask]:
        """Return the zones to refine in a round, and for which active images (k,) nothing can be refined.

        All open zones are given, with costs in units of the error that may be left, and whether some part of the set of
        each image (k,) is known.
        """
        count = len(self._z_obs)
        image = zones.image
        finite = np.isfinite(zones.left) & np.isfinite(zones.right)
        workable = goals.active[image] & finite & ~_hopeless(zones, pieces)
        at_obs = (zones.left <= self._z_obs[image]) & (zones.right >= self._z_obs[image])
        if self._first:
            self._first = False
            centre = np.where(_may_settle(zones, at_obs, goals), -np.inf, self._centre)[image]
            central = workable & (at_obs | (zones.left < centre) & (zones.right > -centre))
            self._explored += np.bincount(image[central], minlength=count)
            return zones.take(central), np.zeros(count, dtype=np.bool_)
        # Before any of Z is known masses cannot be compared with it, and the best place to learn of it is z_obs.
        here = np.bincount(image[at_obs & workable], minlength=count) > 0
        blind = here & ~anything_inside
        needed = workable & np.where(blind[image], at_obs, too_costly(zones))
        unexplored = zones.piece == NO_PIECE
        first = np.array([self._first_to_explore(zones, p, needed[p] & unexplored) for p in range(PVALUES)])
        self._explored += np.bincount(image[first.any(axis=0)], minlength=count)
        refined = (needed & (~unexplored | at_obs | first)).any(axis=0)
        return zones.take(refined), goals.active & (np.bincount(image[refined], minlength=count) == 0)

    def tails(self, zones: Zones, goals: Goals) -> Zones:
        """Return the tails in which the ends of confidence intervals need pieces."""
        infinite = np.isinf(zones.left) | np.isinf(zones.right)
        inner = np.where(np.isfinite(zones.left), zones.left, zones.right)
        within_reach = np.abs(inner - self._z_obs[zones.image]) < FARTHEST_OUT
        possible = infinite & within_reach & (goals.active & ~goals.for_p)[zones.image]
        return zones.take(possible & too_costly(zones).any(axis=0) if possible.any() else possible)

    def _first_to_explore(self, zones: Zones, pvalue: int, candidates: Mask) -> Mask:
        """Return which zones to explore first for a p-value: the heaviest, half as many as were explored before.

        With z_obs far out, what is more extreme is far lighter than the rest and only few zones; once these are
        known, the rest may no longer matter.
        """
        if not candidates.any():
            return candidates
        count = len(self._z_obs)
        log_mass, log_extreme = zones.log_mass[pvalue], zones.log_extreme[pvalue]
        heaviest, extreme = np.full(count, -np.inf), np.full(count, -np.inf)
        np.maximum.at(heaviest, zones.image[candidates], log_mass[candidates])
        np.maximum.at(extreme, zones.image[candidates], log_extreme[candidates])
        far_out = (extreme > -np.inf) & (extreme < heaviest - FAR_OUT)
        outer = candidates & far_out[zones.image] & (log_extreme >= (extreme + FARTHER)[zones.image])
        return np.asarray(outer | self._heaviest(zones.image, log_mass, candidates & ~far_out[zones.image]))

    def _heaviest(self, image_of: Integers, log_mass: Floats, candidates: Mask) -> Mask:
        rows = np.flatnonzero(candidates)
        rows = rows[order_by_owner(image_of[rows], -log_mass[rows])]
        image = image_of[rows]
        starts, _ = run_ends(len(rows), image[1:] != image[:-1])
        first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
        close = log_mass[rows] >= log_mass[rows][first] + FARTHER
        heaviest = np.zeros(len(image_of), dtype=np.bool_)
        heaviest[rows] = close | (np.arange(len(rows)) - first < self._explored[image] // 2)
        return heaviest


def _may_settle(zones: Zones, inside: Mask, goals: Goals) -> Mask:
    """Return for which images (k,) p is resolved, whatever the rest of the axis is like, if some zones (q,) are inside.

    This is so for a statistic far out, next to which the density changes by orders of magnitude: what is inside just
    before it outweighs all that is more extreme.
    """
    count = len(goals.current)
    log_mass, log_extreme = zones.log_mass[0], zones.log_extreme[0]
    with np.errstate(divide="ignore", invalid="ignore"):  # none of it is ordinary, or it has no mass at all
        log_ordinary = np.where(log_mass > log_extreme, log_mass + np.log1p(-np.exp(log_extreme - log_mass)), -np.inf)
    extreme, ordinary, all_extreme, all_ordinary = (
        log_sums(zones.image[rows], part[rows], count)
        for rows in (inside, np.ones_like(inside))
        for part in (log_extreme, log_ordinary)
    )
    low = extreme - np.logaddexp(extreme, all_ordinary)
    high = all_extreme - np.logaddexp(all_extreme, ordinary)
    return np.exp(high) - np.exp(low) <= np.exp(goals.allowed_error(LogBounds(low, high)))


def _hopeless(zones: Zones, pieces: Pieces) -> Mask:
    """Return which zones no evaluation can make smaller."""
    narrow = zones.width <= 16 * np.spacing(np.maximum(np.abs(zones.left), np.abs(zones.right)))
    hopeless = narrow | (zones.stalls >= STALLED)
    known = zones.piece != NO_PIECE
    piece = zones.piece[known]
    exact = pieces.floor[piece] <= pieces.rounding[piece]
    hopeless[known] |= exact & (pieces.error[piece] <= pieces.rounding[piece])
    return np.asarray(hopeless)


def too_costly(zones: Zones) -> Mask:
    """Return which zones (PVALUES, q) leave too great an error in p, together with the cheaper ones of their image."""
    return np.array([_sums_exceed_one(zones.image, log_cost) for log_cost in zones.log_cost])


def _sums_exceed_one(image: Integers, log_cost: Floats) -> Mask:
    """Return which zones (q,) of images (q,) cost more than one, together with the cheaper ones of their image."""
    costly = np.zeros(len(image), dtype=np.bool_)
    rows = np.flatnonzero(log_cost > -np.inf)
    rows = rows[order_by_owner(image[rows], log_cost[rows])]
    if len(rows) == 0:
        return costly
    image, log_cost = image[rows], log_cost[rows]
    starts = np.concatenate([[0], np.flatnonzero(image[1:] != image[:-1]) + 1])
    ends = np.concatenate([starts[1:], [len(rows)]])
    count = ends - starts
    # In units of each image's greatest cost: costs of different images differ by hundreds of orders of magnitude.
    unit = log_cost[ends - 1]  # the least costs of an image come first
    cost = np.exp(log_cost - np.repeat(unit, count))
    sums = np.cumsum(cost)
    before = (sums - cost)[starts]
    costly[rows] = sums - np.repeat(before, count) > np.repeat(np.exp(np.minimum(-unit, MOST_UNITS)), count)
    return costly


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a round replaces, and by what."""

    replaced: Mask
    """(s,) bool. Segments that are replaced."""
    refined: Integers
    """(q,). Indices of the pieces that have zones among them."""
    redone: Integers
    """(q,). Indices of the pieces that are interpolated again as a whole."""
    fresh: Fresh
    """The pieces to interpolate."""
    corrected: tuple[Zones, Integers]
    """The zones to correct (m,), and the number of points (m,) of each."""


def plan_for(segments: Segments, pieces: Pieces, zones: Zones) -> Plan:
    """Return how to refine zones, whose costs are in units of the error that may be left."""
    new = zones.piece == NO_PIECE
    known = zones.take(~new)
    refined, index = np.unique(known.piece, return_inverse=True)
    how, start, end, again = _interpolated_again(pieces, known, refined, index)
    # Of a piece that is interpolated again, everything between its outermost zones is replaced; the rest stays.
    whole = np.flatnonzero(how != _ZONE_BY_ZONE)
    redone = refined[whole]
    number = np.full(len(pieces) + 1, -1)  # the last one is for NO_PIECE
    number[redone] = whole
    replaced = np.zeros(len(segments), dtype=np.bool_)
    rows = np.flatnonzero(number[segments.piece] >= 0)
    piece = number[segments.piece[rows]]
    replaced[rows] = (segments.left[rows] >= start[piece]) & (segments.right[rows] <= end[piece])
    rest = known.take(how[index] == _ZONE_BY_ZONE)
    replaced |= np.isin(segments.zone, np.concatenate([zones.zone[new], rest.zone])) & (segments.kind != INSIDE)
    count = _corrections_needed(pieces, rest)
    anew = rest.take(count == 0)
    fresh = [
        _fresh(zones.take(new), np.inf),
        again,
        _fresh(anew, pieces.error[anew.piece] + pieces.floor[anew.piece]),
    ]
    return Plan(
        replaced=replaced,
        refined=refined,
        redone=redone,
        fresh=Fresh.concatenated(fresh),
        corrected=(rest.take(count > 0), count[count > 0]),
    )


def _interpolated_again(
    pieces: Pieces, zones: Zones, piece: Integers, index: Integers
) -> tuple[Integers, Floats, Floats, Fresh]:
    """Return how pieces (q,) are interpolated again as a whole, if they are; what is replaced then; and by what.

    Zones (z,) of them are to be refined; ``index`` (z,) says which of these pieces each belongs to. Their own indices
    ``piece`` (q,) ascend. What is replaced has ends (q,).
    """
    left, right = pieces.left[piece], pieces.right[piece]
    error, floor = pieces.error[piece], pieces.floor[piece]
    coarse, untouched = pieces.degree[piece] == DEGREE, ~pieces.refined[piece]
    share = np.bincount(index, zones.width, minlength=len(piece)) / (right - left)
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
    # What only the noise of rough scores hides is as smooth as it was found to be: exact ones need no narrower pieces.
    hidden = pieces.is_rough[piece] & (error < floor)
    wide = (last - first > 0.5 * (right - left)[split]) & ~hidden[split]
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
    piece = zones.piece
    parents = AxisParts(image=zones.image, left=pieces.left[piece], right=pieces.right[piece])
    enough = np.maximum(PROGRESS, np.exp(np.minimum(-zones.log_cost.max(axis=0), 0.0)))
    count = np.zeros(len(zones), dtype=np.int64)
    for points in range(MOST_CORRECTIONS, 0, -1):
        count[correction_gain(pieces.order[piece], parents, zones, points) <= enough] = points
    return np.where(pieces.rate[piece] <= SMOOTH_RATE, count, 0)


def _fresh(zones: Zones, error_so_far: float | Floats) -> Fresh:
    return Fresh(
        image=zones.image,
        left=zones.left,
        right=zones.right,
        degree=np.full(len(zones), DEGREE),
        stalls=zones.stalls,
        error_so_far=np.broadcast_to(error_so_far, zones.left.shape),
        probed=np.zeros(len(zones), dtype=np.bool_),
    )
