"""P-values of many images together: adjusted p-values, decisions and rates, as far as the searches know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attentest.checks import level
from attentest.statistics.multiple_testing import Adjustment, Rate, adjusted_pvalues, rate_of
from attentest.statistics.pvalue import decision


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyPvalues:
    """What is known of the p-values of m images.

    Parameters
    ----------
    log_low, log_high : (m,)
        Logs of the bounds on the selective p-values.
    naive : (m,)
        P-values that ignore the selection.
    statuses
        How each search ended.
    certified
        Whether each result has a certificate.
    references
        Digest of the noisy reference image of each; None where there is none.
    """

    log_low: NDArray[np.float64]
    log_high: NDArray[np.float64]
    naive: NDArray[np.float64]
    statuses: Sequence[str]
    certified: Sequence[bool]
    references: Sequence[str | None]

    def __len__(self) -> int:
        return len(self.log_low)

    def adjusted_bounds(self, method: Adjustment) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the greatest adjusted p-values (m,) compatible with what the searches know."""
        return adjusted_pvalues(self.log_low, method), adjusted_pvalues(self.log_high, method)

    def decisions(self, alpha: float, method: Adjustment | None = None) -> list[bool | None]:
        """Return for each image whether its hypothesis is rejected at alpha; None where the error bars do not tell."""
        alpha = level(alpha)
        lows, highs = (np.exp(self.log_low), np.exp(self.log_high)) if method is None else self.adjusted_bounds(method)
        return [decision(low, high, alpha) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]

    def rejection_rate(self, alpha: float, naive: bool = False, confidence_level: float = 0.95) -> Rate:
        """Return the proportion of p-values that are certainly at most alpha, with its Wilson interval."""
        alpha = level(alpha)
        hits = self.naive <= alpha if naive else np.array([decided is True for decided in self.decisions(alpha)])
        return rate_of(hits, confidence_level)

    @property
    def share_a_reference(self) -> bool:
        """Whether two images were compared with the same noisy reference."""
        references = [reference for reference in self.references if reference is not None]
        return len(set(references)) < len(references)
