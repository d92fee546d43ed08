"""What is being resolved for each image: its p-value first, then both ends of its confidence interval together.

An end of the interval is the mean at which P(T >= t), or P(T <= t), equals a level: a one-sided p-value under a shifted
mean, so the same bounds on p serve. The mean is not known before the set is, so each round takes the end of the best
estimate of the set, as near to t as what is unexplored allows: all of it counts as inside where that moves the end
towards t. So an end moves outwards as pieces are explored, and does not wait until each of them is decided.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attentest.search.problem import CONVERGED, DECIDED, TOO_SHARP, SearchProblem
from attentest.search.spectral.segments import PVALUES, LogBounds, SegmentTable
from attentest.statistics.alternative import Alternative
from attentest.statistics.columns import Floats, Mask
from attentest.statistics.conditional_mean import mean_roots
from attentest.statistics.truncation_set import Unions

P, ENDS, DONE = 0, 1, 2

SIDES: tuple[Alternative, Alternative] = ("greater", "less")
"""Which values are extreme under the mean at the lower end, and under that at the upper end."""

END_RTOL = 1e-3
"""Relative accuracy of the probability beyond an end of the confidence interval. The coverage of a 95% interval is
then off by less than 0.005%."""

LOG_ODDS_ERROR = 0.02
"""Accuracy of the log odds of that probability at the mean that a round takes for the end. What is refined does not
depend on more; the interval itself is computed afterwards, to all digits."""

NAIVE = 2.0  # distance between the statistic and the point at which an end is looked for first
LEFT_OVER = 0.6  # fraction of the tolerance that may be left in zones that are not refined
MOST_WHILE_ACTIVE = 0.95  # most of the work that an image which is not done counts as

DECISION_SHARE = 0.25
"""In decision mode, the target width of the error bar as a fraction of the distance between p and alpha."""


class Goals:
    """The current goal of each of k images, the tolerance of each goal, and the status of each p-value.

    An error bar of p of the width ``tol``, or of p times ``rtol``, is narrow enough.
    """

    def __init__(self, problem: SearchProblem, tol: float, rtol: float) -> None:
        self._law = problem.law
        self._alternative = problem.alternative
        self._alpha = problem.alpha
        self._tol, self._rtol = tol, rtol
        # Decision mode needs no interval: its set is searched only as far as the decision does.
        level = problem.confidence_level if problem.alpha is None else None
        count = len(problem.law)
        self._beyond = None if level is None else (1 - np.broadcast_to(level, count)) / 2
        self._ends = np.full((PVALUES, count), np.nan)
        self.current = np.full(count, P)
        """(k,). P, ENDS or DONE."""
        self.status: NDArray[np.object_] = np.full(count, None)
        """(k,). How the searches for p ended."""

    @property
    def with_ends(self) -> bool:
        """Whether confidence intervals are searched for."""
        return self._beyond is not None

    @property
    def sure(self) -> Mask:
        """For which images p is converged or decided."""
        return np.asarray((self.status == CONVERGED) | (self.status == DECIDED))

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
        self._ask_for_ends(table, table.asked & (self.current == ENDS))

    def ask_for_p(self, table: SegmentTable, images: Mask) -> None:
        """Compute the masses of some images for their p-values, whatever their current goal is."""
        if images.any():
            table.ask(0, images, np.zeros(len(images)), self._alternative)
            table.drop(1, images)

    def ask_for_ends(self, table: SegmentTable, images: Mask) -> None:
        """Compute the masses of some images for both ends of their intervals, whatever their current goal is."""
        self._ends[:, images] = np.nan
        self._ask_for_ends(table, np.broadcast_to(images, (PVALUES, len(images))))

    def reopen(self, table: SegmentTable, images: Mask) -> None:
        """Search for the p-values of some images again."""
        self.current[images] = P
        self.status[images] = None
        self.ask_for_p(table, images)

    def finish(self, table: SegmentTable, bounds: LogBounds) -> Mask:
        """End the goals that are reached; return which images are searched for their intervals from now on."""
        low, high = np.exp(bounds.low), np.exp(bounds.high)
        narrow = _narrow(bounds, *self._tolerances())
        at_ends = self.current == ENDS
        for pvalue, reached in enumerate(at_ends & table.asked & narrow):
            table.drop(pvalue, reached)
        self.current[at_ends & narrow.all(axis=0)] = DONE  # bounds that are not asked for are narrow
        before = self.current.copy()
        self.end(self.for_p & narrow[0], CONVERGED)
        if self._alpha is not None:
            self.end(self.for_p & ((low[0] > self._alpha) | (high[0] <= self._alpha)), DECIDED)
        return np.asarray((self.current == ENDS) & (before == P))

    def reopen_widened(self, table: SegmentTable, images: Mask) -> Mask:
        """Search again for those p-values of some images that converged and whose bars are too wide by now.

        The search for an interval may find that a piece was wrong, and then knows less than before.
        """
        images = images & (self.status == CONVERGED)
        self.ask_for_p(table, images)
        narrow = _narrow(table.log_bounds(), np.full(len(images), self._tol), np.full(len(images), self._rtol))[0]
        self.reopen(table, images & ~narrow)
        return np.asarray(images & ~narrow)

    def end(self, images: Mask, status: str) -> None:
        """End the current goal of some images; go on to the interval only if p converged.

        An interval that cannot be resolved does not change the status of p, unless scores that are too sharp cast doubt
        on p too.
        """
        images = self.active & images
        self.status[images & (self.for_p | (status == TOO_SHARP))] = status
        onwards = images & self.for_p & (status == CONVERGED) & self.with_ends
        self.current[images] = np.where(onwards, ENDS, DONE)[images]

    def allowed_error(self, bounds: LogBounds) -> Floats:
        """Return the logs (PVALUES, k) of the errors that may be left in zones that are not refined.

        At an end of an interval p is known in advance, however little its bounds say.
        """
        low, high = np.exp(bounds.low), np.exp(bounds.high)
        tol, rtol = self._tolerances()
        if self._alpha is not None:  # then p is the only goal
            tol = np.maximum(tol, DECISION_SHARE * np.abs((low + high) / 2 - self._alpha))
        log_p = bounds.low if self._beyond is None else np.where(self.for_p, bounds.low, np.log(self._beyond))
        with np.errstate(divide="ignore"):  # no error is allowed
            return np.asarray(math.log(LEFT_OVER) + np.maximum(np.log(rtol) + log_p, np.log(tol)))

    def fraction_done(self, bounds: LogBounds) -> float:
        """Return which share of the evaluations is done, from 0 to 1, as far as the error bars tell.

        The square root of how far a bar has shrunk, on a log scale, grows about as evaluations do whatever the map: the
        first of them find out where the region changes, and the bar shrinks late. With an interval p is half of it.
        """
        with np.errstate(invalid="ignore"):  # both bounds are -inf
            of_ends = np.nan_to_num(bounds.high - bounds.low).max(axis=0)  # those that are reached are narrow
        width = np.where(self.for_p, np.exp(bounds.high[0]) - np.exp(bounds.low[0]), of_ends)
        least = np.where(self.for_p, self._tol or self._rtol, END_RTOL)
        share = np.sqrt(np.log(np.clip(width, least, 1.0)) / np.log(least))
        if self.with_ends:
            share = (share + ~self.for_p) / 2
        return float(np.where(self.active, np.minimum(share, MOST_WHILE_ACTIVE), 1.0).mean())

    def _tolerances(self) -> tuple[Floats, Floats]:
        """Return the absolute and the relative width (k,) of the error bar at which each goal is reached."""
        return np.where(self.for_p, self._tol, 0.0), np.where(self.for_p, self._rtol, END_RTOL)

    def _ask_for_ends(self, table: SegmentTable, wanted: Mask) -> None:
        """Compute the masses at the ends of intervals that are wanted (PVALUES, k), lower and upper.

        The ends are the means that are as near to t as what is unexplored allows.
        """
        if self._beyond is None or not wanted.any():
            return
        side, image = np.nonzero(wanted)  # the lower ends first
        images = np.asarray(wanted.any(axis=0))
        explored, all_likely = table.likely_unions(images)
        place, is_lower, t = (np.cumsum(images) - 1)[image], side == 0, self._law.statistic[image]
        lower, upper = place[is_lower], place[~is_lower]
        start = self._ends[side, image]
        means = mean_roots(
            self._law,
            image,
            np.where(is_lower, self._beyond[image], 1 - self._beyond[image]),
            above=Unions.concatenated([explored.take(lower), all_likely.take(upper)]),
            below=Unions.concatenated([all_likely.take(lower), explored.take(upper)]),
            start=np.where(np.isnan(start), t + np.where(is_lower, -1, 1) * NAIVE, start),
            log_odds_error=LOG_ODDS_ERROR,
        )
        ends = self._ends.copy()
        ends[side, image] = np.where(np.isfinite(means), means, t)
        for pvalue, alternative in enumerate(SIDES):
            moved = wanted[pvalue] & (ends[pvalue] != self._ends[pvalue])
            if moved.any():
                table.ask(pvalue, moved, ends[pvalue], alternative)
        self._ends = ends


def _narrow(bounds: LogBounds, tol: Floats, rtol: Floats) -> Mask:
    """Return where bounds (PVALUES, k) differ by no more than an absolute or a relative width (k,)."""
    narrow = (np.exp(bounds.high) - np.exp(bounds.low) <= tol) & (tol > 0)
    with np.errstate(invalid="ignore"):  # both bounds are -inf
        return np.asarray(narrow | (bounds.high - bounds.low <= np.log1p(rtol)))
