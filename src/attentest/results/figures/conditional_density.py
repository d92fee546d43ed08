"""The density of a statistic under the hypothesis, given that the model chooses the observed region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from attentest.statistics.alternative import Tails, ordinary_range
from attentest.statistics.intervals import Intervals
from attentest.statistics.law import Law
from attentest.statistics.roots import increasing_roots

UNSEEN = 1e-4
"""Share of the distribution that may lie outside the picture."""

POINTS = 400
"""Points of the curve over the range that is shown, and again over where nearly all of the mass is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionalDensity:
    """The distribution of T with mean zero, given that z lies in a truncation set.

    Parameters
    ----------
    law
        Law of the statistic of one image.
    intervals : (n, 2)
        Truncation set.
    alternative
        What counts as extreme: for "equal-tailed" the smaller of the two tails.
    """

    law: Law
    intervals: Intervals
    alternative: Tails

    @property
    def ordinary(self) -> tuple[float, float]:
        """The ends between which T is less extreme than observed."""
        lower, upper = ordinary_range(self.law.statistic, self.alternative)
        if self.alternative == "equal-tailed":
            t = self.law.statistic
            above, below = self.log_masses(np.concatenate([t, [-np.inf]]), np.concatenate([[np.inf], t]))
            lower, upper = ordinary_range(t, "greater" if above <= below else "less")
        return float(lower[0]), float(upper[0])

    def log_masses(self, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log probabilities (m,) of T between ends (m,)."""
        left, right = self.intervals.T
        image = np.zeros(len(left), dtype=np.int64)
        elsewhere, between = self.law.log_masses(
            image, left, right, mean=0.0, lower=lower[:, None], upper=upper[:, None]
        )
        inside, outside = (np.logaddexp.reduce(masses, axis=1) for masses in (between, elsewhere))
        return np.asarray(inside - np.logaddexp(inside, outside))

    def log_heights(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logs of the mean densities (m,) between consecutive ones of m + 1 edges."""
        return np.asarray(self.log_masses(edges[:-1], edges[1:]) - np.log(np.diff(edges)))

    def extreme(self, edges: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of the cells (m,) between edges, among which the ends of the ordinary are, are extreme."""
        middle = (edges[1:] + edges[:-1]) / 2
        low, high = self.ordinary
        return np.asarray((middle <= low) | (middle >= high))

    @property
    def extreme_share(self) -> float:
        """Probability that T is at least as extreme as observed: p, if the truncation set is known.

        With equal tails it is half of p.
        """
        low, high = self.ordinary
        tails = np.array([ends for ends in ((-np.inf, low), (high, np.inf)) if ends[0] < ends[1]])
        return float(np.exp(np.logaddexp.reduce(self.log_masses(*tails.T))))

    def tail_length(self, start: float, outwards: float, rest: float) -> float:
        """Return how far beyond a point, upwards (1) or downwards (-1), all of the tail but a share of it lies."""

        def log_beyond(distances: NDArray[np.float64]) -> NDArray[np.float64]:
            ends = start + outwards * distances
            beyond = np.full_like(ends, outwards * np.inf)
            return self.log_masses(np.minimum(ends, beyond), np.maximum(ends, beyond))

        distances = np.concatenate([[0.0], np.geomspace(1e-9, 100.0, 120)])
        logs = log_beyond(distances)
        return float(distances[np.argmax(logs < logs[0] + np.log(rest))] or distances[-1])

    def edges(self, start: float, end: float, dense: tuple[float, float] | None = None) -> NDArray[np.float64]:
        """Return ascending points from start to end for a curve: at ends of intervals, and evenly spaced in between.

        They are closer to each other in a ``dense`` part.
        """
        even = [np.linspace(left, right, POINTS + 1) for left, right in [(start, end), *([dense] if dense else [])]]
        points = np.concatenate([*even, self.intervals.ravel(), self.ordinary])
        return np.unique(points[(points >= start) & (points <= end)])

    def quantiles(self, levels: Sequence[float]) -> NDArray[np.float64]:
        """Return quantiles (k,)."""
        log_odds = logit(np.array(levels))

        def excess(rows: NDArray[np.int64], at: NDArray[np.float64]) -> NDArray[np.float64]:
            below = self.log_masses(np.full(len(at), -np.inf), at)
            above = self.log_masses(at, np.full(len(at), np.inf))
            return np.asarray(below - above - log_odds[rows])

        return increasing_roots(excess, len(levels))
