"""The law of the statistic given the truncation set: the one interface between searches and statistics.

Searches, p-values, bounds, estimates, confidence intervals and pictures ask a law for the masses of intervals of z, and
certificates ask it for z and T as functions of normal random numbers; nothing else asks about distributions. Another
way to condition on the selection is another subclass of ``Law``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.roots import newton_roots

SHORT_STEP = 1e-5
"""Distance between two means from which slopes are computed, relative to the distance between mean and statistic."""

SHARE_ERROR, PLACE_ERROR = 1e-8, 1e-7
"""How far off the share of the mass before a quantile may be, or its place, relative to the width of the interval."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Law(ABC):
    """Joint distribution of the statistic T and the coordinate z of k images, observed if z lies in a truncation set.

    A search moves an image along a line, and z is the coordinate on that line. In the paper's test z is the statistic
    itself. A subclass is a frozen dataclass whose fields are arrays with one row per image.

    Parameters
    ----------
    statistic : (k,)
        Observed statistics.
    """

    statistic: NDArray[np.float64]

    @property
    def z_obs(self) -> NDArray[np.float64]:
        """Observed coordinates (k,), each in the truncation set of its image."""
        return self.statistic

    @abstractmethod
    def log_masses(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: ArrayLike,
        lower: ArrayLike,
        upper: ArrayLike,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log masses of left <= z <= right, split by whether T is extreme.

        All arguments are arrays of shapes that broadcast together. Masses of one image at one mean may carry a common
        factor, because only their ratios are used.

        Parameters
        ----------
        image
            Indices of images.
        left, right
            Ends of intervals of z; an interval without width has no mass.
        mean
            Means of T.
        lower, upper
            T is extreme at or below ``lower`` and at or above ``upper``.

        Returns
        -------
        extreme, ordinary
            Log masses where T is extreme, and where it is not.
        """

    def part_on_side(
        self, image: NDArray[np.int64], left: NDArray[np.float64], right: NDArray[np.float64], *, above: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the ends (m,) of the parts of z intervals (m,) where T can be on one side of the observed statistic.

        The sides are T at or above the statistic, and T below it. A part that is empty has no width.
        """
        return left, right

    def log_masses_on_side(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        above: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log masses of left <= z <= right on one side of the observed statistics, and their slopes.

        Parameters
        ----------
        image, left, right, mean : (m,)
            As in :meth:`log_masses`. Intervals are those of :meth:`part_on_side`.
        above : (m,)
            Whether the mass is that of T at or above the statistic, or of T below it.

        Returns
        -------
        log_mass : (m,)
            Log masses.
        slope : (m,)
            Derivatives in the mean, up to a term that all masses of one image at one mean share. Here these are
            differences over a short step; a subclass for which they are known in closed form overrides this.
        """
        t = self.statistic[image]
        ahead = mean + SHORT_STEP * np.maximum(np.abs(mean - t), 1.0)
        extreme, ordinary = self.log_masses(image, left, right, mean=np.stack([mean, ahead]), lower=-np.inf, upper=t)
        here, there = np.where(above, extreme, ordinary)
        with np.errstate(invalid="ignore"):  # no mass
            return here, (there - here) / (ahead - mean)

    def log_masses_of_part(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        extreme: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the log masses (m,) of left <= z <= right where T is extreme, or where it is not.

        A subclass for which one of the two takes less time than both overrides this.

        Parameters
        ----------
        image, left, right, mean, lower, upper : (m,)
            As in :meth:`log_masses`.
        extreme : (m,)
            Whether the mass is that where T is extreme, or that where it is not.
        """
        return np.where(extreme, *self.log_masses(image, left, right, mean=mean, lower=lower, upper=upper))

    def quantiles(
        self,
        image: NDArray[np.int64],
        left: NDArray[np.float64],
        right: NDArray[np.float64],
        share: NDArray[np.float64],
        *,
        mean: NDArray[np.float64],
        lower: NDArray[np.float64],
        upper: NDArray[np.float64],
        extreme: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Return the points z (m,) before which a share of the mass of a finite interval lies.

        Here they are found by Newton's method, with the mass of a short step for the density; a subclass for which
        there is a closed form overrides this.

        Parameters
        ----------
        image, left, right, mean, lower, upper : (m,)
            As in :meth:`log_masses`.
        share : (m,)
            Between 0 and 1.
        extreme : (m,)
            Whether the mass is that where T is extreme, or that where it is not; not zero.
        """

        def log_mass(
            rows: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]
        ) -> NDArray[np.float64]:
            limits = {"mean": mean[rows], "lower": lower[rows], "upper": upper[rows]}
            return self.log_masses_of_part(image[rows], start, end, **limits, extreme=extreme[rows])

        width = right - left
        log_whole = log_mass(np.arange(len(image)), left, right)

        def excess(rows: NDArray[np.int64], at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            ahead = at + PLACE_ERROR * width[rows]
            masses = log_mass(np.tile(rows, 2), np.concatenate([left[rows], at]), np.concatenate([at, ahead]))
            before, step = np.exp(masses.reshape(2, -1) - log_whole[rows])
            with np.errstate(divide="ignore", invalid="ignore"):  # an interval so narrow that no step fits into it
                return before - share[rows], step / (ahead - at)

        return newton_roots(
            excess, left + share * width, close=SHARE_ERROR, between=(left, right), last_step=PLACE_ERROR * width
        )

    @property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation (k,) of z if there is no selection."""
        return np.ones(len(self))

    def reach(self, log_tail: float) -> NDArray[np.float64]:
        """Return distances (k,) from zero beyond which z has little mass when the mean of T is zero.

        There the log density of z is lower than at the observed z by at least ``log_tail``.
        """
        return np.asarray(np.sqrt(self.z_obs**2 + 2 * log_tail * self.spread**2))

    @property
    def degrees_of_freedom(self) -> NDArray[np.float64]:
        """Degrees of freedom (k,) of the standard errors of the statistics: infinite, because these are known."""
        return np.full(len(self), np.inf)

    def with_known_error(self) -> Law:
        """Return the law if the standard error of the statistic is known, which in this one it is."""
        return self

    @property
    def interval_bound(self) -> NDArray[np.float64]:
        """Greatest length (k,) of a confidence interval over the naive one: infinite if T itself is truncated."""
        return np.full(len(self), np.inf)

    @property
    def state_obs(self) -> NDArray[np.float64]:
        """Observed states (k,): a state is a number of which z is a function.

        It is standard normal if T has mean zero and there is no selection.
        """
        return np.asarray(self.z_obs / self.spread)

    def z_of(self, image: NDArray[np.int64], state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return z (m,) in states (m,) of images (m,)."""
        return np.asarray(state * self.spread[image])

    def statistic_of(
        self, image: NDArray[np.int64], z: NDArray[np.float64], chance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return draws (m,) of T given z, for mean zero: a function of z (m,) and of standard normal numbers (m,)."""
        return z

    def __len__(self) -> int:
        return len(self.statistic)

    def chosen(self, images: NDArray[np.int64] | slice) -> Self:
        """Return the law of some of the images."""
        return type(self)(**{field.name: getattr(self, field.name)[images] for field in fields(self)})

    def each(self) -> Iterator[Self]:
        """Yield the law of each image."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        for i in range(len(self)):
            yield type(self)(**{name: values[i : i + 1] for name, values in columns.items()})

    def scaled(self, divisors: NDArray[np.float64]) -> Self:
        """Return the law if the standard deviation of the noise is a multiple of the one that was assumed.

        The coordinate is then measured in greater units, so fields in these units are divided; a subclass with fields
        in other units overrides this.

        Parameters
        ----------
        divisors : (m,)
            Multiples of the standard deviation: one for each of the k images, or any number of them if k = 1.
        """
        return type(self)(**{field.name: getattr(self, field.name) / divisors for field in fields(self)})

    @classmethod
    def stack(cls, laws: Sequence[Self]) -> Self:
        """Return the law of the images of several laws of this class, in order."""
        return cls(**{field.name: np.concatenate([getattr(law, field.name) for law in laws]) for field in fields(cls)})


def clipped_to_side(
    statistic: NDArray[np.float64], left: NDArray[np.float64], right: NDArray[np.float64], *, above: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return :meth:`Law.part_on_side` of intervals (m,) with statistics (m,), where z is the statistic itself."""
    return (np.maximum(left, statistic), right) if above else (left, np.minimum(right, statistic))


def masses_outside_and_inside(
    log_masses: Callable[
        [NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]
    ],
    image: NDArray[np.int64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    *,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log masses of intervals outside and inside [lower, upper], where z is the statistic itself.

    Parameters
    ----------
    log_masses
        Maps starts and ends (m,) of intervals, with their images (m,) and means (m,), to log masses (m,).
    image, left, right, mean, lower, upper
        As in :meth:`Law.log_masses`.
    """
    arrays = np.broadcast_arrays(left, right, mean, lower, upper, image)
    left, right, mean, lower, upper, image = (array.ravel() for array in arrays)
    start = np.minimum(np.maximum(lower, left), right)
    end = np.minimum(np.maximum(upper, left), right)
    # Most intervals lie in one of the three parts, and the others need not be measured.
    below, between, above = (some.nonzero()[0] for some in (left < start, start < end, end < right))
    rows = np.concatenate([below, between, above])
    masses = log_masses(
        np.concatenate([left[below], start[between], end[above]]),
        np.concatenate([start[below], end[between], right[above]]),
        image[rows],
        mean[rows],
    )
    outside, inside = np.full((2, len(image)), -np.inf)
    outside[below] = masses[: len(below)]
    inside[between] = masses[len(below) : len(below) + len(between)]
    beyond, other = masses[len(below) + len(between) :], outside[above]
    both = (other > -np.inf).nonzero()[0]
    beyond[both] = np.logaddexp(other[both], beyond[both])
    outside[above] = beyond
    return outside.reshape(arrays[0].shape), inside.reshape(arrays[0].shape)
