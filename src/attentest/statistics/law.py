"""The law of the statistic given the truncation set: the one interface between searches and statistics.

Searches, p-values, bounds, estimates, confidence intervals and pictures ask a law for the masses of intervals of z, and
certificates ask it for z and T as functions of normal random numbers; nothing else asks about distributions. Another
way to condition on the selection is another subclass of ``Law``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from attentest.statistics.columns import Columns, Floats, Integers, Mask
from attentest.statistics.roots import increasing_roots

SHORT_STEP = 1e-5
"""Distance between two means from which slopes are computed, relative to the distance between mean and statistic."""

SHARE_ERROR, PLACE_ERROR = 1e-8, 1e-7
"""How far off the share of the mass before a quantile may be, or its place, relative to the width of the interval."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Strips(Columns):
    """Strips (m,) of the plane of z and T: intervals of z, divided by whether T is extreme."""

    image: Integers
    """(m,). Indices of images."""
    left: Floats
    right: Floats
    """(m,). Ends of the intervals of z; an interval without width has no mass."""
    mean: Floats
    """(m,). Means of T."""
    lower: Floats
    upper: Floats
    """(m,). T is extreme at or below ``lower`` and at or above ``upper``."""

    @classmethod
    def of(
        cls,
        image: Integers,
        left: ArrayLike,
        right: ArrayLike,
        *,
        mean: ArrayLike = 0.0,
        lower: ArrayLike,
        upper: ArrayLike,
    ) -> Strips:
        """Return strips from values of shapes that broadcast together, in the order of the flattened arrays."""
        ends = (np.asarray(value, dtype=np.float64) for value in (left, right, mean, lower, upper))
        image, *columns = (column.ravel() for column in np.broadcast_arrays(image, *ends))
        return cls(image=image, **dict(zip(("left", "right", "mean", "lower", "upper"), columns, strict=True)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Law(Columns, ABC):
    """Joint distribution of the statistic T and the coordinate z of k images, observed if z lies in a truncation set.

    A search moves an image along a line, and z is the coordinate on that line. In the paper's test z is the statistic
    itself. A subclass is a frozen dataclass whose fields are arrays with one row per image.
    """

    statistic: Floats
    """(k,). Observed statistics."""

    @property
    def z_obs(self) -> Floats:
        """Observed coordinates (k,), each in the truncation set of its image."""
        return self.statistic

    @abstractmethod
    def log_masses(self, strips: Strips) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of strips where T is extreme, and where it is not.

        Masses of one image at one mean may carry a common factor, because only their ratios are used.
        """

    def log_masses_of_part(self, strips: Strips, extreme: Mask) -> Floats:
        """Return the log masses (m,) of strips where T is extreme, or where it is not, as a mask (m,) says.

        A subclass for which one of the two takes less time than both overrides this.
        """
        return np.where(extreme, *self.log_masses(strips))

    def part_on_side(self, image: Integers, left: Floats, right: Floats, *, above: bool) -> tuple[Floats, Floats]:
        """Return the ends (m,) of the parts of z intervals (m,) where T can be on one side of the observed statistic.

        The sides are T at or above the statistic, and T below it. A part that is empty has no width.
        """
        return left, right

    def strips_at_statistic(self, image: Integers, left: Floats, right: Floats, mean: Floats) -> Strips:
        """Return strips (m,) in which T is extreme at or above the observed statistic, and nowhere below it."""
        t = self.statistic[image]
        return Strips(image=image, left=left, right=right, mean=mean, lower=np.full_like(t, -np.inf), upper=t)

    def log_masses_on_side(self, strips: Strips, above: Mask) -> tuple[Floats, Floats]:
        """Return the log masses (m,) of strips on one side of the observed statistics, and their slopes (m,).

        The strips are those of :meth:`strips_at_statistic`, of intervals from :meth:`part_on_side`; ``above`` (m,) says
        whether the mass is that of T at or above the statistic, or of T below it. Slopes are derivatives in the mean,
        up to a term that all masses of one image at one mean share. Here these are differences over a short step; a
        subclass for which they are known in closed form overrides this.
        """
        mean = strips.mean
        ahead = mean + SHORT_STEP * np.maximum(np.abs(mean - strips.upper), 1.0)
        both = Strips.concatenated([strips, replace(strips, mean=ahead)])
        here, there = np.where(np.tile(above, 2), *self.log_masses(both)).reshape(2, -1)
        with np.errstate(invalid="ignore"):  # no mass
            return here, (there - here) / (ahead - mean)

    def quantiles(self, strips: Strips, share: Floats, extreme: Mask) -> Floats:
        """Return the points z (m,) before which a share (m,) of the mass of a finite interval, a strip, lies.

        The mass is that where T is ``extreme`` (m,), or that where it is not; not zero. Here they are found by Newton's
        method, with the mass of a short step for the density; a subclass for which there is a closed form overrides
        this.
        """
        left, right = strips.left, strips.right
        width = right - left
        log_whole = self.log_masses_of_part(strips, extreme)

        def excess(rows: Integers, at: Floats) -> tuple[Floats, Floats]:
            ahead = at + PLACE_ERROR * width[rows]
            twice = np.tile(rows, 2)
            steps = replace(
                strips.take(twice), left=np.concatenate([left[rows], at]), right=np.concatenate([at, ahead])
            )
            masses = self.log_masses_of_part(steps, extreme[twice])
            before, step = np.exp(masses.reshape(2, -1) - log_whole[rows])
            with np.errstate(divide="ignore", invalid="ignore"):  # an interval so narrow that no step fits into it
                return before - share[rows], step / (ahead - at)

        return increasing_roots(
            excess, left + share * width, close=SHARE_ERROR, between=(left, right), last_step=PLACE_ERROR * width
        )

    @property
    def spread(self) -> Floats:
        """Standard deviation (k,) of z if there is no selection."""
        return np.ones(len(self))

    def reach(self, log_tail: float) -> Floats:
        """Return distances (k,) from zero beyond which z has little mass when the mean of T is zero.

        There the log density of z is lower than at the observed z by at least ``log_tail``.
        """
        return np.asarray(np.sqrt(self.z_obs**2 + 2 * log_tail * self.spread**2))

    @property
    def degrees_of_freedom(self) -> Floats:
        """Degrees of freedom (k,) of the standard errors of the statistics: infinite, because these are known."""
        return np.full(len(self), np.inf)

    def with_known_error(self) -> Law:
        """Return the law if the standard error of the statistic is known, which in this one it is."""
        return self

    @property
    def interval_bound(self) -> Floats:
        """Greatest length (k,) of a confidence interval over the naive one: infinite if T itself is truncated."""
        return np.full(len(self), np.inf)

    @property
    def state_obs(self) -> Floats:
        """Observed states (k,): a state is a number of which z is a function.

        It is standard normal if T has mean zero and there is no selection.
        """
        return np.asarray(self.z_obs / self.spread)

    def z_of(self, image: Integers, state: Floats) -> Floats:
        """Return z (m,) in states (m,) of images (m,)."""
        return np.asarray(state * self.spread[image])

    def statistic_of(self, image: Integers, z: Floats, chance: Floats) -> Floats:
        """Return draws (m,) of T given z, for mean zero: a function of z (m,) and of standard normal numbers (m,)."""
        return z

    def each(self) -> Iterator[Self]:
        """Yield the law of each image."""
        for i in range(len(self)):
            yield self.take(slice(i, i + 1))

    def scaled(self, divisors: Floats) -> Self:
        """Return the law if the standard deviation of the noise is a multiple of the one that was assumed.

        The coordinate is then measured in greater units, so fields in these units are divided; a subclass with fields
        in other units overrides this. There is one divisor for each of the k images, or any number of them if k = 1.
        """
        return type(self)(**{field.name: getattr(self, field.name) / divisors for field in fields(self)})


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimatedError(Law):
    """What laws share in which T = D / S, with D normal and S^2 an independent estimate of its variance.

    nu S^2 over the true variance has the chi-squared distribution with nu degrees of freedom.
    """

    degrees: Floats
    """(k,). Degrees of freedom nu of the estimates, at least 1."""

    @property
    def degrees_of_freedom(self) -> Floats:
        """Degrees of freedom (k,) of the standard errors: see :attr:`Law.degrees_of_freedom`."""
        return self.degrees

    def scaled(self, divisors: Floats) -> Self:
        """Return the law for other multiples of the noise: degrees of freedom have no unit. See :meth:`Law.scaled`."""
        return replace(super().scaled(divisors), degrees=np.broadcast_to(self.degrees, divisors.shape))
