"""The tests of simulated images with one design and one height of the signal: what they rejected, found and covered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from attentest.statistics.multiple_testing import Rate


class Design(NamedTuple):
    """How the region is chosen: the gamma of ``AttentionTest(randomise=)``, what regions consist of, and the draws."""

    randomise: float
    region: str
    draws: int = 1

    @property
    def selection(self) -> str:
        """How it is randomised, in words."""
        several = f", {self.draws} draws" if self.draws > 1 else ""
        return f"gamma {self.randomise:g}{several}" if self.randomise else "not randomised"

    def __str__(self) -> str:
        return f"{self.region}, {self.selection}"


class Detectable(NamedTuple):
    """The least that a test finds with the asked-for power, in the units of the pixels, with its Monte-Carlo error.

    ``low`` and ``high`` are the ends of a 95% interval of ``value``, possibly infinite.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulatedTests:
    """The tests of simulated images with one design and one height of the planted signal.

    Parameters
    ----------
    design
        How the region was chosen.
    delta
        Height of the signal in standard deviations of the noise; 0 if there is none.
    rejected
        Share of the images with p at most alpha, with its Wilson interval. Only what is certain counts.
    undecided
        Number of images whose error bar contains alpha.
    coverage
        Share of the confidence intervals that hold the true value, of several draws the mean of the true differences
        of their regions; None if there are no intervals.
    lengths : (n,)
        Lengths of the confidence intervals over those of the naive ones; None if there are no two-sided intervals.
    differences : (n,)
        Least true difference of each image, in the units of the pixels, that its test finds with the asked-for power,
        given the region that was chosen; None if there are no intervals, or several draws of the added noise.
    overlaps : (n,)
        Pixels in both the region and the signal over those in either (IoU), of several draws the pixels that most of
        them chose; None without a signal.
    evaluations
        Mean number of model evaluations per image.
    """

    design: Design
    delta: float
    rejected: Rate
    undecided: int
    coverage: Rate | None
    lengths: NDArray[np.float64] | None
    differences: NDArray[np.float64] | None
    overlaps: NDArray[np.float64] | None
    evaluations: float

    def __repr__(self) -> str:
        return f"SimulatedTests({self.design}, delta={self.delta:g}, rejected {self.rejected})"

    @property
    def median_length(self) -> float | None:
        """Median of the lengths."""
        return None if self.lengths is None else float(np.median(self.lengths))

    @property
    def length_quartiles(self) -> tuple[float, float, float] | None:
        """Lower quartile, median and upper quartile of the lengths, some of which may be infinite."""
        if self.lengths is None or self.median_length is None:
            return None
        low, high = np.quantile(self.lengths, [0.25, 0.75], method="inverted_cdf")
        return float(low), self.median_length, float(high)

    @property
    def mean_length(self) -> float | None:
        """Mean of the lengths; infinite if one interval is."""
        return None if self.lengths is None else float(np.mean(self.lengths))

    @property
    def detectable_difference(self) -> Detectable | None:
        """Median of the differences, with its 95% interval, by their ranks."""
        if self.differences is None:
            return None
        ordered = np.sort(self.differences)
        rank = int(binom.ppf(0.025, len(ordered), 0.5))  # the interval from this to the same from the end
        low, high = (0.0, np.inf) if rank == 0 else (ordered[rank - 1], ordered[-rank])
        return Detectable(float(np.median(ordered)), float(low), float(high))

    @property
    def mean_overlap(self) -> float | None:
        """Mean of the overlaps."""
        return None if self.overlaps is None else float(np.mean(self.overlaps))

    @property
    def overlap_error(self) -> float | None:
        """Standard error of the mean of the overlaps; None for fewer than two."""
        if self.overlaps is None or len(self.overlaps) < 2:
            return None
        return float(np.std(self.overlaps, ddof=1) / np.sqrt(len(self.overlaps)))
