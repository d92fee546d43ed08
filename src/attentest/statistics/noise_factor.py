"""What a result would be if the standard deviation of the noise were another multiple of the one that was assumed.

With the covariance c^2 Sigma in place of Sigma the line through the image is the same line, and the region is chosen by
the model alone. Only the units of its coordinate change: statistic and truncation set are divided by c. So p is known
for any factor c without another evaluation of the model, and so are estimate and confidence interval, whose standard
error is multiplied by c. (The noise of a reference image is multiplied by c, too.)

With randomised selection the noise that was added is what it is, whatever the noise of the image. Its standard
deviation was gamma times the assumed one, so it is gamma / c times one that is c times as great. Gamma is divided by c
too, and the result is that of the test with this gamma on the same randomised image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import level
from attentest.statistics.inference import (
    ConfidenceInterval,
    Estimates,
    Inference,
    confidence_intervals_of,
    estimates_of,
)
from attentest.statistics.interval_mass import probability
from attentest.statistics.law import Law
from attentest.statistics.pvalue import LogPvalues, decision, log_pvalues
from attentest.statistics.truncation_set import TruncationSet

Beyond: TypeAlias = Literal["same", "other", "unknown"]

LEAST, MOST = 0.5, 2.0  # range of the factors that are looked at
PER_OCTAVE = 12  # factors of a curve between one and twice it

FACTORS = tuple(2.0 ** (step / PER_OCTAVE) for step in range(-PER_OCTAVE, PER_OCTAVE + 1))
"""Factors of a curve, from LEAST to MOST; 1 is one of them."""

SHOWN_FACTORS = FACTORS[:: PER_OCTAVE // 2]  # factors of a small table: 0.5, 0.71, 1, 1.41 and 2
POINTS = 29  # factors on each side of 1 at which a change of the verdict is looked for: 2.5% from one to the next
HALVINGS = 16  # bisections of the factor at which the verdict changes: to four digits beyond those that are shown

GAP = 0.01
"""The two verdicts may be this far apart, relative to the factor at which one ends: it does not show in the text."""

UNSURE = 0.05  # share of the length of an interval that is much


@dataclass(frozen=True, kw_only=True, eq=False)
class SensitivityCurve:
    """P, estimate and confidence interval of one image as functions of a parameter of the noise."""

    values: NDArray[np.float64]
    """(k,). Values of the parameter, in ascending order."""
    standard_errors: NDArray[np.float64]
    """(k,). Standard deviations of the compared difference, in the units of the pixels."""
    log_pvalues: LogPvalues
    """Logs of p (k,), with bounds, ``low`` and ``high``, from what the search knows of the truncation set."""
    estimates: Estimates
    """Median-unbiased estimates (k,) in the units of the pixels, with bounds."""
    intervals: Sequence[ConfidenceInterval]
    """Confidence intervals (k,)."""

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"SensitivityCurve({len(self)} values from {self.values[0]:.3g} to {self.values[-1]:.3g})"

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """P-values (k,)."""
        return np.array([probability(log) for log in self.log_pvalues.best])

    @property
    def pvalue_bounds(self) -> NDArray[np.float64]:
        """Least and greatest p-values (k, 2) that are compatible with what the search knows."""
        ends = zip(self.log_pvalues.low, self.log_pvalues.high, strict=True)
        return np.array([(probability(low), probability(high)) for low, high in ends])

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Whether much of the length of an interval (k,) may be due to what the search left open."""
        return np.array([not interval.error <= UNSURE * (interval.high - interval.low) for interval in self.intervals])

    def decisions(self, alpha: float) -> list[bool | None]:
        """Return for each value whether p is at most alpha; None where the bounds do not tell."""
        return [decision(low, high, alpha) for low, high in self.pvalue_bounds.tolist()]


@dataclass(frozen=True, kw_only=True)
class SameVerdict:
    """The factors from ``low`` to ``high``, around 1, for which the verdict is certainly the same."""

    reject: bool | None
    """The verdict; None if it is not known even for the factor 1."""
    low: float
    high: float
    """Ends of the range."""
    below: Beyond
    above: Beyond
    """What comes beyond each end: "same" if the verdict is the same as far as was looked, "other" if it is the opposite
    one, "unknown" if the truncation set was not searched far enough to tell."""


def factor_log_pvalues(inference: Inference, factors: ArrayLike) -> LogPvalues:
    """Return the logs of p (k,) for factors (k,), with their bounds.

    The truncation set was searched where p needs it for the factor 1: for other factors the bounds on p, from what is
    certain and what is possible, say how much that tells.
    """
    return log_pvalues(*_scaled(inference, factors), inference.alternative)


def factor_curve(inference: Inference, factors: ArrayLike, confidence_level: float) -> SensitivityCurve:
    """Return p, estimates and intervals for factors (k,)."""
    law, sets = _scaled(inference, factors)
    errors = inference.standard_error * np.asarray(factors, dtype=np.float64)
    scaled = [
        replace(inference, law=part, truncation_set=known, standard_error=error)
        for part, known, error in zip(law.each(), sets, errors.tolist(), strict=True)
    ]
    return SensitivityCurve(
        values=np.array(factors, dtype=np.float64),
        standard_errors=errors,
        log_pvalues=log_pvalues(law, sets, inference.alternative),
        estimates=estimates_of(scaled),
        intervals=confidence_intervals_of(scaled, confidence_level),
    )


def same_verdict(inference: Inference, alpha: float) -> SameVerdict:
    """Return the factors around 1 for which the verdict at alpha is certainly the same."""
    verdict = _decisions(inference, [1.0], level(alpha))[0]
    if verdict is None:
        return SameVerdict(reject=None, low=1.0, high=1.0, below="unknown", above="unknown")
    low, below = _end(inference, np.geomspace(1.0, LEAST, POINTS), verdict, alpha)
    high, above = _end(inference, np.geomspace(1.0, MOST, POINTS), verdict, alpha)
    return SameVerdict(reject=verdict, low=low, high=high, below=below, above=above)


def _scaled(inference: Inference, factors: ArrayLike) -> tuple[Law, list[TruncationSet]]:
    """Return the law and the truncation set in units of each of the standard deviations."""
    divisors = np.asarray(factors, dtype=np.float64)
    return inference.law.scaled(divisors), [inference.truncation_set / divisor for divisor in divisors]


def _decisions(inference: Inference, factors: ArrayLike, alpha: float) -> list[bool | None]:
    """Return for each factor whether p is at most alpha; None where its bounds do not tell."""
    _, lows, highs = factor_log_pvalues(inference, factors)
    return [decision(probability(low), probability(high), alpha) for low, high in zip(lows, highs, strict=True)]


def _end(inference: Inference, factors: NDArray[np.float64], verdict: bool, alpha: float) -> tuple[float, Beyond]:
    """Return up to where factors, which lead away from 1, have this verdict, and what comes beyond."""
    decisions = _decisions(inference, factors, alpha)
    first = next((place for place, decided in enumerate(decisions) if decided is not verdict), None)
    if first is None:
        return float(factors[-1]), "same"
    inside, outside = float(factors[first - 1]), float(factors[first])
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if _decisions(inference, [middle], alpha)[0] is verdict:
            inside = middle
        else:
            outside = middle
    # The error bar of p leaves a gap between the two verdicts; one that does not show in the text is none.
    past = inside * (1 + GAP if outside > inside else 1 - GAP)
    return inside, "other" if _decisions(inference, [past], alpha)[0] is (not verdict) else "unknown"
