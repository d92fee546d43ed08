"""P, estimate and interval of one image for several noise models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.presentation.words import number_text, range_text
from attentest.record import json_interval, json_number
from attentest.statistics.confidence_interval import ConfidenceInterval, Estimates
from attentest.statistics.interval_mass import probability
from attentest.statistics.pvalue import LogPvalues, decision

SAME = 0.01
"""Bounds on p that differ by less than this, relative to the greater, are shown as one number."""

NEGLIGIBLE = 1e-5
"""So are bounds that differ by less than this: it is of the order of the usual tolerance of a search."""

UNSURE = 0.05
"""Share of the length of an interval that is much."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityCurve:
    """P, estimate and confidence interval of one image as functions of a parameter of the noise.

    Parameters
    ----------
    values : (k,)
        Values of the parameter, in ascending order.
    standard_errors : (k,)
        Standard deviations of the compared difference, in the units of the pixels.
    log_pvalues
        Logs of p (k,), with bounds, ``low`` and ``high``, from what the search knows of the truncation set.
    estimates
        Median-unbiased estimates (k,) in the units of the pixels, with bounds.
    intervals
        Confidence intervals (k,).
    """

    values: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    log_pvalues: LogPvalues
    estimates: Estimates
    intervals: Sequence[ConfidenceInterval]

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"SensitivityCurve({len(self)} values from {self.values[0]:.3g} to {self.values[-1]:.3g})"

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """P-values (k,)."""
        return _probabilities(self.log_pvalues.best)

    @property
    def pvalue_bounds(self) -> NDArray[np.float64]:
        """Least and greatest p-values (k, 2) that are compatible with what the search knows."""
        return np.stack([_probabilities(self.log_pvalues.low), _probabilities(self.log_pvalues.high)], axis=1)

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Whether much of the length of an interval (k,) may be due to what the search left open."""
        return np.array([not one.error <= UNSURE * (one.high - one.low) for one in self.intervals])

    def decisions(self, alpha: float) -> list[bool | None]:
        """Return for each value whether p is at most alpha; None where the bounds do not tell."""
        return [decision(low, high, alpha) for low, high in self.pvalue_bounds.tolist()]

    def rows(self, name: str, alpha: float) -> list[dict[str, Any]]:
        """Return a row for each value, JSON-ready, with the value under a name and the verdict at alpha."""
        return [
            {
                name: float(value),
                "standard_error": float(self.standard_errors[i]),
                "pvalue": probability(self.log_pvalues.best[i]),
                "pvalue_bounds": self.pvalue_bounds[i].tolist(),
                **{f"log_pvalue{end}": json_number(logs[i]) for end, logs in zip(ENDS, self.log_pvalues, strict=True)},
                **{f"estimate{end}": json_number(found[i]) for end, found in zip(ENDS, self.estimates, strict=True)},
                "confidence_interval": json_interval(self.intervals[i]),
                "reject": rejected,
                "text": pvalue_text(*(float(logs[i]) for logs in self.log_pvalues)),
            }
            for i, (value, rejected) in enumerate(zip(self.values, self.decisions(alpha), strict=True))
        ]

    @classmethod
    def from_rows(cls, name: str, rows: Sequence[Mapping[str, Any]]) -> SensitivityCurve:
        """Return the curve whose :meth:`rows` these are."""

        def column(key: str) -> NDArray[np.float64]:
            return np.array([float(row[key]) for row in rows])

        return cls(
            values=column(name),
            standard_errors=column("standard_error"),
            log_pvalues=LogPvalues(*(column(f"log_pvalue{end}") for end in ENDS)),
            estimates=Estimates(*(column(f"estimate{end}") for end in ENDS)),
            intervals=[_interval(row["confidence_interval"]) for row in rows],
        )


def _interval(values: Mapping[str, Any]) -> ConfidenceInterval:
    low, high, level, error = (float(values[name]) for name in ("low", "high", "confidence_level", "error"))
    return ConfidenceInterval(low=low, high=high, confidence_level=level, error=error)


ENDS = ("", "_low", "_high")
"""Ends of the names of a value and of its bounds in a row."""


def pvalue_text(best: float, low: float, high: float) -> str:
    """Return p from the logs of p and its bounds: a number, or the bounds if they differ visibly."""
    p, bounds = probability(best), (probability(low), probability(high))
    known = bounds[1] - bounds[0] <= max(SAME * bounds[1], NEGLIGIBLE)
    return number_text(p, 2) if known else range_text(*bounds, 2)


def _probabilities(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([probability(log) for log in logs])
