"""Whether a test is calibrated: how often it rejects images in which there is nothing to find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attentest.checks import level
from attentest.errors import InputError
from attentest.results.result import AttentionTestResult
from attentest.statistics.multiplicity import Rate, rate_of

ALPHAS = (0.01, 0.05, 0.10)

FEWEST_EXPECTED = 10
"""Expected rejections at the greatest level below which there is no verdict."""

UNEVEN = 0.01
"""Kolmogorov-Smirnov p-values below this are mentioned."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """The behaviour of a test on null images, in which there is nothing to find.

    Parameters
    ----------
    pvalues, naive_pvalues : (n,)
        Selective p-values of null images, and those that ignore the selection.
    alphas
        Significance levels.
    rates, naive_rates
        Rejection rates at these levels, with Wilson intervals.
    statuses
        Number of searches by status.
    """

    pvalues: NDArray[np.float64]
    naive_pvalues: NDArray[np.float64]
    alphas: tuple[float, ...]
    rates: tuple[Rate, ...]
    naive_rates: tuple[Rate, ...]
    statuses: dict[str, int]

    @classmethod
    def of(
        cls,
        results: Iterable[AttentionTestResult],
        alphas: Sequence[float] = ALPHAS,
        confidence_level: float = 0.95,
    ) -> Calibration:
        """Return the calibration of results of null images, which are consumed one by one."""
        levels = significance_levels(alphas)
        rows = [(result.pvalue, result.naive_pvalue, result.status) for result in results]
        if not rows:
            raise InputError("there are no results to calibrate by: give at least one.")
        selective, naive = (np.array([row[i] for row in rows]) for i in (0, 1))
        return cls(
            pvalues=selective,
            naive_pvalues=naive,
            alphas=levels,
            rates=tuple(rate_of(selective <= alpha, confidence_level) for alpha in levels),
            naive_rates=tuple(rate_of(naive <= alpha, confidence_level) for alpha in levels),
            statuses=dict(Counter(row[2] for row in rows)),
        )

    @property
    def ks_statistic(self) -> float:
        """Greatest distance of the p-values' distribution from the uniform one."""
        return float(stats.kstest(self.pvalues, "uniform").statistic)

    @property
    def ks_pvalue(self) -> float:
        """P-value of the Kolmogorov-Smirnov test that the p-values are uniform."""
        return float(stats.kstest(self.pvalues, "uniform").pvalue)

    @property
    def naive_ks_pvalue(self) -> float:
        """The same for the p-values that ignore the selection."""
        return float(stats.kstest(self.naive_pvalues, "uniform").pvalue)

    @property
    def calibrated(self) -> bool | None:
        """Whether the type I error is compatible with every nominal level; None with too few images to tell.

        A level is exceeded if the interval of the rejection rate lies above it. With fewer than ten expected
        rejections at the greatest level there is no verdict.
        """
        if len(self.pvalues) * max(self.alphas) < FEWEST_EXPECTED:
            return None
        return all(rate.low <= alpha for alpha, rate in zip(self.alphas, self.rates, strict=True))

    def summary(self) -> str:
        """Return the rates and the conclusion, in words."""
        lines = [f"{len(self.pvalues)} null image{'s' if len(self.pvalues) != 1 else ''}"]
        for alpha, rate, naive in zip(self.alphas, self.rates, self.naive_rates, strict=True):
            lines.append(f"p <= {alpha:g}: selective {rate}, naive {naive}")
        return "\n".join([*lines, self.conclusion()])

    def conclusion(self) -> str:
        """Return the test of uniformity and the verdict, in words."""
        lines = [f"uniform? Kolmogorov-Smirnov p: selective {self.ks_pvalue:.3g}, naive {self.naive_ks_pvalue:.3g}"]
        others = {status: count for status, count in self.statuses.items() if status not in ("converged", "decided")}
        lines += [f"searches that ended with status {status!r}: {count}" for status, count in others.items()]
        verdict = {
            True: "on these images the selective test is calibrated: it rejects no more often than its level",
            False: "on these images the selective test rejects more often than its level",
            None: "these are too few images to tell whether the selective test is calibrated",
        }[self.calibrated]
        uneven = ", but its p-values are not uniform" if self.calibrated and self.ks_pvalue < UNEVEN else ""
        lines.append(verdict + uneven)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {
            "images": len(self.pvalues),
            "levels": [
                {"alpha": alpha, "selective": _described(rate), "naive": _described(naive)}
                for alpha, rate, naive in zip(self.alphas, self.rates, self.naive_rates, strict=True)
            ],
            "ks_statistic": self.ks_statistic,
            "ks_pvalue": self.ks_pvalue,
            "naive_ks_pvalue": self.naive_ks_pvalue,
            "calibrated": self.calibrated,
            "statuses": self.statuses,
            "pvalues": self.pvalues.tolist(),
            "naive_pvalues": self.naive_pvalues.tolist(),
        }


def significance_levels(alphas: Any) -> tuple[float, ...]:
    """Return significance levels as plain floats; refuse an empty list and what is no level."""
    if not isinstance(alphas, Iterable) or isinstance(alphas, str):
        raise InputError(f"alphas must be a list of significance levels, got {alphas!r}.")
    levels = tuple(level(alpha) for alpha in alphas)
    if not levels:
        raise InputError("alphas must hold at least one significance level, got none.")
    return levels


def _described(rate: Rate) -> dict[str, Any]:
    return {"rate": rate.value, "low": rate.low, "high": rate.high, "count": rate.count, "total": rate.total}
