"""Which zones a round of the spectral search refines: the asking part of it, which calls no model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attentest.search.spectral.goals import Goals
from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import Pieces
from attentest.search.spectral.segment_table import QUESTIONS, LogBounds, Zones
from attentest.search.spectral.segments import NO_PIECE
from attentest.statistics.law import Law
from attentest.statistics.log_probability import log_sums
from attentest.statistics.unions import order_by_owner

CENTRE = 2.0
"""Pieces up to so many standard deviations from zero are explored first, with those at z_obs: they are the heaviest."""

FARTHER = math.log(1e-4)
"""Unexplored pieces lighter than this fraction (in logs) of the heaviest one are deferred, unless few were explored
before: the heavier ones may make them irrelevant."""

FAR_OUT = 50.0
"""If what is more extreme than the statistic is this many logs lighter than the rest (|z_obs| above ten or so), it is
explored first: two or three pieces of dozens."""

FARTHEST_OUT = 1e4
"""A confidence interval that depends on z farther than this from z_obs is left as wide as it is."""

STALLED = 4
"""A zone that has not improved this many times is not refined any more."""

MOST_UNITS = 700.0
"""Costs that are smaller than what is allowed by so many logs are none."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What to do in one round.

    Parameters
    ----------
    zones
        Zones to refine.
    idle : (k,) bool
        Active images for which there is nothing that can be refined.
    """

    zones: Zones
    idle: Mask


class Chooser:
    """Chooses the zones to refine: the fewest that leave less than the allowed error in the others.

    Parameters
    ----------
    law
        The law of the k statistics.
    """

    def __init__(self, law: Law) -> None:
        self._z_obs = law.z_obs
        self._centre = CENTRE * law.spread
        self._explored = np.zeros(len(law), dtype=np.int64)
        self._first = True

    def choose(self, zones: Zones, pieces: Pieces, goals: Goals, *, anything_inside: Mask) -> Choice:
        """Return what to refine.

        Parameters
        ----------
        zones
            All open zones, with costs in units of the error that may be left.
        pieces
            The interpolants.
        goals
            What is being resolved.
        anything_inside : (k,) bool
            Whether some part of the set of each image is known.
        """
        count = len(self._z_obs)
        image = zones.image
        finite = np.isfinite(zones.left) & np.isfinite(zones.right)
        workable = goals.active[image] & finite & ~_hopeless(zones, pieces)
        at_obs = (zones.left <= self._z_obs[image]) & (zones.right >= self._z_obs[image])
        if self._first:
            self._first = False
            centre = np.where(_may_settle(zones, at_obs, goals), -np.inf, self._centre)[image]
            chosen = workable & (at_obs | (zones.left < centre) & (zones.right > -centre))
            self._explored += np.bincount(image[chosen], minlength=count)
            return Choice(zones=zones.chosen(chosen), idle=np.zeros(count, dtype=np.bool_))
        # Before any of Z is known masses cannot be compared with it, and the best place to learn of it is z_obs.
        here = np.bincount(image[at_obs & workable], minlength=count) > 0
        blind = here & ~anything_inside
        needed = workable & np.where(blind[image], at_obs, self._too_costly(zones))
        unexplored = zones.piece == NO_PIECE
        first = np.array([self._first_to_explore(zones, q, needed[q] & unexplored) for q in range(QUESTIONS)])
        self._explored += np.bincount(image[first.any(axis=0)], minlength=count)
        chosen = (needed & (~unexplored | at_obs | first)).any(axis=0)
        idle = goals.active & (np.bincount(image[chosen], minlength=count) == 0)
        return Choice(zones=zones.chosen(chosen), idle=idle)

    def tails(self, zones: Zones, goals: Goals) -> Zones:
        """Return the tails in which the ends of confidence intervals need pieces."""
        infinite = np.isinf(zones.left) | np.isinf(zones.right)
        inner = np.where(np.isfinite(zones.left), zones.left, zones.right)
        within_reach = np.abs(inner - self._z_obs[zones.image]) < FARTHEST_OUT
        possible = infinite & within_reach & (goals.active & ~goals.for_p)[zones.image]
        return zones.chosen(possible & self._too_costly(zones).any(axis=0) if possible.any() else possible)

    def _too_costly(self, zones: Zones) -> Mask:
        """Return which zones (QUESTIONS, q) leave too great an error in each p-value, with the cheaper ones."""
        return np.array([_too_costly(zones.image, log_cost) for log_cost in zones.log_cost])

    def _first_to_explore(self, zones: Zones, question: int, candidates: Mask) -> Mask:
        """Return which zones to explore first for a p-value: the heaviest, half as many as were explored before.

        With z_obs far out, what is more extreme is far lighter than the rest and only few zones; once these are
        known, the rest may no longer matter.
        """
        if not candidates.any():
            return candidates
        count = len(self._z_obs)
        log_mass, log_extreme = zones.log_mass[question], zones.log_extreme[question]
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
        starts = np.ones(len(rows), dtype=np.bool_)
        starts[1:] = image[1:] != image[:-1]
        first = np.maximum.accumulate(np.where(starts, np.arange(len(rows)), 0))
        close = log_mass[rows] >= log_mass[rows][first] + FARTHER
        heaviest = np.zeros(len(image_of), dtype=np.bool_)
        heaviest[rows] = close | (np.arange(len(rows)) - first < self._explored[image] // 2)
        return heaviest


def _may_settle(zones: Zones, some: Mask, goals: Goals) -> Mask:
    """Return for which images (k,) p is resolved, whatever the rest of the axis is like, if some zones are inside.

    This is so for a statistic far out, next to which the density changes by orders of magnitude: what is inside just
    before it outweighs all that is more extreme.
    """
    count = len(goals.current)
    log_mass, log_extreme = zones.log_mass[0], zones.log_extreme[0]
    with np.errstate(divide="ignore", invalid="ignore"):  # none of it is ordinary, or it has no mass at all
        log_ordinary = np.where(log_mass > log_extreme, log_mass + np.log1p(-np.exp(log_extreme - log_mass)), -np.inf)
    extreme, ordinary, all_extreme, all_ordinary = (
        log_sums(zones.image[rows], part[rows], count)
        for rows in (some, np.ones_like(some))
        for part in (log_extreme, log_ordinary)
    )
    low = extreme - np.logaddexp(extreme, all_ordinary)
    high = all_extreme - np.logaddexp(all_extreme, ordinary)
    return np.exp(high) - np.exp(low) <= np.exp(goals.allowed_error(LogBounds(low, high)))


def _hopeless(zones: Zones, pieces: Pieces) -> Mask:
    """Return which zones no evaluation can make smaller."""
    narrow = zones.right - zones.left <= 16 * np.spacing(np.maximum(np.abs(zones.left), np.abs(zones.right)))
    hopeless = narrow | (zones.stalls >= STALLED)
    known = zones.piece != NO_PIECE
    piece = zones.piece[known]
    exact = pieces.floor[piece] <= pieces.rounding[piece]
    hopeless[known] |= exact & (pieces.error[piece] <= pieces.rounding[piece])
    return np.asarray(hopeless)


def _too_costly(image: Integers, log_cost: Floats) -> Mask:
    """Return which zones (q,) of images cost more than one, together with the cheaper ones of their image."""
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
