"""What a search is resolving of each image: its p-value first, then the two ends of its confidence interval.

An end of the interval is the mean at which P(Z >= z_obs), or P(Z <= z_obs), falls to a level: a one-sided p-value under
a shifted normal distribution. So the same books serve, with their masses under that mean. The mean is not known before
the set is, so each round takes the end as near to z_obs as what is known so far allows. What may still be inside there
and is not pushes it outward.
"""

from __future__ import annotations

import numpy as np

from attentest.search.spectral.segments import Floats, Integers, Ledger, Mask
from attentest.statistics.conditional_mean import means_at
from attentest.statistics.truncated_normal import Alternative

P, LOW, HIGH, DONE = 0, 1, 2, 3

END_RTOL = 1e-3
"""To which relative accuracy the probability beyond an end of the confidence interval is resolved: the coverage of a
95% interval is then off by less than 0.005%."""

SIDES: dict[int, Alternative] = {LOW: "greater", HIGH: "less"}


class Goals:
    """The goals of k images under way, which pass from p to the ends of the interval to done.

    Parameters
    ----------
    ledger
        The books, which are aimed at what is being resolved.
    z_obs : (k,)
        Observed statistics.
    confidence_level
        Of the interval; None for p alone.

    Attributes
    ----------
    current : (k,)
        What is being resolved of each image.
    moved : bool
        Whether that has changed since the books were put in order.
    """

    def __init__(self, ledger: Ledger, z_obs: Floats, confidence_level: float | None) -> None:
        self._ledger = ledger
        self._z_obs = z_obs
        self._beyond = None if confidence_level is None else (1 - confidence_level) / 2
        self.current = np.full(len(z_obs), P)
        self.moved = False

    @property
    def active(self) -> Mask:
        """Which images are not done."""
        return np.asarray(self.current != DONE)

    def end(self, images: Mask) -> None:
        """Nothing more is to be resolved of some images."""
        self.current[images] = DONE

    def advance(self, images: Mask) -> None:
        """Turn to what comes next for some images."""
        self.current[images] = DONE if self._beyond is None else np.minimum(self.current[images] + 1, DONE)
        self.moved |= bool(np.any(images & self.active))

    def take_aim(self) -> None:
        """Put the books in order for the ends of intervals under way, by what is known now."""
        self.moved = False
        for goal, side in SIDES.items():
            images = np.flatnonzero(self.current == goal)
            if len(images):
                self._ledger.aim_at(images, self._nearest_end(images, goal), side)

    def _nearest_end(self, images: Integers, goal: int) -> Floats:
        """Return the means (m,) at an end of the interval, no farther from z_obs than the sets allow."""
        assert self._beyond is not None
        known = self._ledger.sets(images)
        certain, possible = [sets[1] for sets in known], [sets[2] for sets in known]
        above, below = (certain, possible) if goal == LOW else (possible, certain)
        level = self._beyond if goal == LOW else 1 - self._beyond
        z_obs = self._z_obs[images]
        means = means_at(z_obs, np.full(len(images), level), above, below)
        return np.where(np.isfinite(means), means, z_obs)
