"""The paper's law: a standard normal statistic, truncated to the set of values at which the region is chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.statistics.law import Law
from attentest.statistics.normal_mass import log_mass


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedNormal(Law):
    """T ~ N(mean, 1) and z = T (sections 2 and 3 of the paper).

    Masses are relative to the density at the observed statistic and in logs, so that neither a statistic of 500, nor
    an interval of width 1e-12, nor a mean a million standard errors away costs accuracy.
    """

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
        """Return the log masses of intervals outside and inside [lower, upper]: see :meth:`Law.log_masses`."""
        observed = self.statistic[image]
        left, right, mean, lower, upper, observed = np.broadcast_arrays(left, right, mean, lower, upper, observed)
        start = np.clip(lower, left, right)
        end = np.clip(upper, left, right)
        # Most intervals lie in one of the three parts, and the others need not be measured.
        parts = np.stack([left, start, end]), np.stack([start, end, right])
        some = parts[0] < parts[1]
        at = np.nonzero(some)[1:]
        masses = np.full(some.shape, -np.inf)
        masses[some] = log_mass(parts[0][some], parts[1][some], mean[at], relative_to=observed[at])
        return np.logaddexp(masses[0], masses[2]), masses[1]
