"""What is being resolved for each image: its p-value first, then the two ends of its confidence interval.

An end of the interval is the mean at which P(T >= t), or P(T <= t), equals a level: a one-sided p-value under a shifted
mean, so the same bounds on p serve. The mean is not known before the set is, so each round takes the end as near to
t as what is known so far allows: everything that may still be inside is counted as inside where that moves the end
towards t.
"""

from __future__ import annotations

import math

import numpy as np

from attentest.search.outcome import CONVERGED, DECIDED, OUT_OF_EVALUATIONS, TOO_SHARP
from attentest.search.problem import SearchProblem
from attentest.search.spectral.segments import Floats, Integers, LogBounds, Mask, SegmentTable
from attentest.statistics.alternative import Tails
from attentest.statistics.conditional_mean import means_at

P, LOW, HIGH, DONE = 0, 1, 2, 3

SIDES: dict[int, Tails] = {LOW: "greater", HIGH: "less"}

END_RTOL = 1e-3
"""Relative accuracy of the probability beyond an end of the confidence interval. The coverage of a 95% interval is
then off by less than 0.005%."""

LEFT_OVER = 0.6
"""Fraction of the tolerance that may be left in zones that are not refined."""

DECISION_SHARE = 0.25
"""In decision mode, the target width of the error bar as a fraction of the distance between p and alpha."""


class Goals:
    """The current goal of each of k images, the tolerance of each goal, and the status of each p-value.

    Parameters
    ----------
    problem
        What is searched for.
    tol, rtol
        Width of the error bar of p, absolute and relative, at which it is narrow enough.

    Attributes
    ----------
    current : (k,)
        P, LOW, HIGH or DONE.
    changed : bool
        Whether a goal has changed since :meth:`update` was called.
    status : list of k str or None
        How the search for p ended.
    """

    def __init__(self, problem: SearchProblem, tol: float, rtol: float) -> None:
        self._law = problem.law
        self._alternative = problem.alternative
        self._alpha = problem.alpha
        self._tol, self._rtol = tol, rtol
        # Decision mode needs no interval: its set is searched only as far as the decision does.
        level = problem.confidence_level if problem.alpha is None else None
        self._beyond = None if level is None else (1 - np.broadcast_to(level, len(problem.law))) / 2
        self.current = np.full(len(problem.law), P)
        self.status: list[str | None] = [None] * len(problem.law)
        self.changed = False

    @property
    def searched(self) -> tuple[int, ...]:
        """The goals of every image, in order."""
        return (P,) if self._beyond is None else (P, LOW, HIGH)

    @property
    def sure(self) -> Mask:
        """For which images p is converged or decided."""
        return np.array([status in (CONVERGED, DECIDED) for status in self.status], dtype=np.bool_)

    @property
    def active(self) -> Mask:
        """Which images are not done."""
        return np.asarray(self.current != DONE)

    @property
    def for_p(self) -> Mask:
        """Which images are searched for their p-value."""
        return np.asarray(self.current == P)

    def update(self, table: SegmentTable) -> None:
        """Recompute the masses at the current ends of the confidence intervals."""
        self.changed = False
        for goal in SIDES:
            self.ask(table, np.flatnonzero(self.current == goal), goal)

    def ask(self, table: SegmentTable, images: Integers, goal: int) -> None:
        """Compute the masses of some images for a goal, whatever their current one is."""
        if len(images) and goal == P:
            table.ask(images, np.zeros(len(images)), self._alternative)
        elif len(images):
            table.ask(images, self._nearest_end(table, images, goal), SIDES[goal])

    def reopen(self, table: SegmentTable, images: Mask) -> None:
        """Search for the p-values of some images again."""
        self.current[images] = P
        for image in np.flatnonzero(images):
            self.status[image] = None
        self.ask(table, np.flatnonzero(images), P)

    def finish(self, bounds: LogBounds) -> None:
        """End the goals that are reached."""
        low, high = np.exp(bounds.low), np.exp(bounds.high)
        tol, rtol = self._tolerances()
        narrow = (high - low <= tol) & (tol > 0)
        with np.errstate(invalid="ignore"):  # both bounds are -inf
            narrow |= bounds.high - bounds.low <= np.log1p(rtol)
        self.end(narrow, CONVERGED)
        if self._alpha is not None:
            self.end(self.for_p & ((low > self._alpha) | (high <= self._alpha)), DECIDED)

    def end(self, images: Mask, status: str) -> None:
        """End the current goal of some images; go on to the next only if it converged.

        An end of the interval that cannot be resolved does not keep the other one from being searched for, unless the
        evaluations are used up. Scores that are too sharp cast doubt on p too.
        """
        images = self.active & images
        for_p = self.for_p
        for image in np.flatnonzero(images & (for_p | (status == TOO_SHARP))):
            self.status[image] = status
        if status == CONVERGED:
            self._advance(images)
        else:
            self._advance(images & ~for_p)
            self.current[images & (for_p | (status in (OUT_OF_EVALUATIONS, TOO_SHARP)))] = DONE

    def allowed_error(self, bounds: LogBounds) -> Floats:
        """Return the error that may be left in zones that are not refined, as a fraction (k,) of the upper bound."""
        low, high = np.exp(bounds.low), np.exp(bounds.high)
        tol, rtol = self._tolerances()
        if self._alpha is not None:  # then p is the only goal
            tol = np.maximum(tol, DECISION_SHARE * np.abs((low + high) / 2 - self._alpha))
        relative = rtol * np.exp(bounds.low - bounds.high)
        return LEFT_OVER * np.maximum(relative, tol / np.maximum(high, np.finfo(np.float64).tiny))

    def fraction_done(self, bounds: LogBounds) -> float:
        """Return how far the error bars have shrunk, on a log scale from 0 to 1."""
        width = np.exp(bounds.high) - np.exp(bounds.low)
        least = self._tol or self._rtol
        share = np.log(np.clip(width, least, 1.0)) / math.log(least)
        return float(np.where(self.for_p, np.minimum(share, 0.9), np.where(self.active, 0.95, 1.0)).mean())

    def _advance(self, images: Mask) -> None:
        self.current[images] = DONE if self._beyond is None else np.minimum(self.current[images] + 1, DONE)
        self.changed |= bool(np.any(images & self.active))

    def _tolerances(self) -> tuple[Floats, Floats]:
        """Return the absolute and the relative width (k,) of the error bar at which each goal is reached."""
        return np.where(self.for_p, self._tol, 0.0), np.where(self.for_p, self._rtol, END_RTOL)

    def _nearest_end(self, table: SegmentTable, images: Integers, goal: int) -> Floats:
        """Return the means (m,) at an end of the interval, as near to the statistic as the sets allow."""
        assert self._beyond is not None
        known = table.sets(images)
        certain, possible = [each.certain for each in known], [each.possible for each in known]
        above, below = (certain, possible) if goal == LOW else (possible, certain)
        levels = (self._beyond if goal == LOW else 1 - self._beyond)[images]
        law = self._law.chosen(images)
        means = means_at(law, levels, above, below)
        return np.where(np.isfinite(means), means, law.statistic)
