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

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attentest.checks import level
from attentest.results.sensitivity.curve import SensitivityCurve
from attentest.statistics.alternative import Alternative
from attentest.statistics.confidence_interval import confidence_intervals, estimates
from attentest.statistics.interval_mass import probability
from attentest.statistics.law import Law
from attentest.statistics.pvalue import LogPvalues, decision, log_pvalues
from attentest.statistics.truncation_set import TruncationSet

Beyond: TypeAlias = Literal["same", "other", "unknown"]

LEAST, MOST = 0.5, 2.0
"""Range of the factors that are looked at."""

PER_OCTAVE = 12
"""Factors of a curve between one and twice it."""

FACTORS = tuple(2.0 ** (step / PER_OCTAVE) for step in range(-PER_OCTAVE, PER_OCTAVE + 1))
"""Factors of a curve, from LEAST to MOST; 1 is one of them."""

SHOWN_FACTORS = FACTORS[:: PER_OCTAVE // 2]
"""Factors of a small table: 0.5, 0.71, 1, 1.41 and 2."""

POINTS = 29
"""Factors on each side of 1 at which a change of the verdict is looked for: 2.5% from one to the next."""

HALVINGS = 16
"""Bisections of the factor at which the verdict changes: to four digits beyond those that are shown."""

GAP = 0.01
"""The two verdicts may be this far apart, relative to the factor at which one ends: it does not show in the text."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseFactors:
    """The law of one image given its truncation set, as a function of a factor on the standard deviation of the noise.

    Parameters
    ----------
    law
        Law of the statistic of one image.
    known
        Its truncation set. It was searched where p needs it for the factor 1: for other factors the bounds on p, from
        what is certain and what is possible, say how much that tells.
    alternative
        The alternative of p-values and intervals.
    standard_error
        Standard deviation of the compared difference for the factor 1, in the units of the pixels.
    """

    law: Law
    known: TruncationSet
    alternative: Alternative
    standard_error: float

    def log_pvalues(self, factors: ArrayLike) -> LogPvalues:
        """Return the logs of p (k,) for factors (k,), with their bounds."""
        return log_pvalues(*self._scaled(factors), self.alternative)

    def curve(self, factors: ArrayLike, confidence_level: float) -> SensitivityCurve:
        """Return p, estimates and intervals for factors (k,)."""
        law, sets = self._scaled(factors)
        errors = self.standard_error * np.asarray(factors, dtype=np.float64)
        return SensitivityCurve(
            values=np.array(factors, dtype=np.float64),
            standard_errors=errors,
            log_pvalues=log_pvalues(law, sets, self.alternative),
            estimates=estimates(law, sets, errors),
            intervals=confidence_intervals(law, sets, errors, [self.alternative] * len(sets), confidence_level),
        )

    def _scaled(self, factors: ArrayLike) -> tuple[Law, list[TruncationSet]]:
        """Return the law and the truncation set in units of each of the standard deviations."""
        divisors = np.asarray(factors, dtype=np.float64)
        sets = [
            TruncationSet(
                intervals=self.known.intervals / divisor,
                certain=self.known.certain / divisor,
                possible=self.known.possible / divisor,
            )
            for divisor in divisors
        ]
        return self.law.scaled(divisors), sets

    def decisions(self, factors: ArrayLike, alpha: float) -> list[bool | None]:
        """Return for each factor whether p is at most alpha; None where its bounds do not tell."""
        _, low, high = self.log_pvalues(factors)
        return [decision(probability(one), probability(other), alpha) for one, other in zip(low, high, strict=True)]

    def same_verdict(self, alpha: float) -> SameVerdict:
        """Return the factors around 1 for which the verdict at alpha is certainly the same."""
        verdict = self.decisions([1.0], level(alpha))[0]
        if verdict is None:
            return SameVerdict(reject=None, low=1.0, high=1.0, below="unknown", above="unknown")
        low, below = self._end(np.geomspace(1.0, LEAST, POINTS), verdict, alpha)
        high, above = self._end(np.geomspace(1.0, MOST, POINTS), verdict, alpha)
        return SameVerdict(reject=verdict, low=low, high=high, below=below, above=above)

    def _end(self, factors: NDArray[np.float64], verdict: bool, alpha: float) -> tuple[float, Beyond]:
        """Return up to where factors, which lead away from 1, have this verdict, and what comes beyond."""
        found = self.decisions(factors, alpha)
        first = next((place for place, one in enumerate(found) if one is not verdict), None)
        if first is None:
            return float(factors[-1]), "same"
        inside, outside = float(factors[first - 1]), float(factors[first])
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if self.decisions([middle], alpha)[0] is verdict:
                inside = middle
            else:
                outside = middle
        # The error bar of p leaves a gap between the two verdicts; one that does not show in the text is none.
        past = inside * (1 + GAP if outside > inside else 1 - GAP)
        return inside, "other" if self.decisions([past], alpha)[0] is (not verdict) else "unknown"


@dataclass(frozen=True, kw_only=True)
class SameVerdict:
    """The factors from ``low`` to ``high``, around 1, for which the verdict is certainly the same.

    Parameters
    ----------
    reject
        The verdict; None if it is not known even for the factor 1.
    low, high
        Ends of the range.
    below, above
        What comes beyond each end: "same" if the verdict is the same as far as was looked, "other" if it is the
        opposite one, "unknown" if the truncation set was not searched far enough to tell.
    """

    reject: bool | None
    low: float
    high: float
    below: Beyond
    above: Beyond

    def text(self) -> str:
        """Return how wrong the assumed noise may be before the verdict changes, in one sentence."""
        if self.reject is None:
            return "The verdict is open already with the noise that was assumed."
        verdicts = {True: "significant", False: "not significant"}
        beyond = {
            "other": f"it is {verdicts[not self.reject]}",
            "unknown": "it may be another one: the search did not look far enough to tell where it changes",
        }
        ends = [
            f"{where} {end:.2f} times {beyond[what]}"
            for where, end, what in (("below", self.low, self.below), ("above", self.high, self.above))
            if what != "same"
        ]
        return (
            "; ".join(
                [
                    f'The verdict is "{verdicts[self.reject]}" if the true standard deviation of the noise is '
                    f"{self.low:.2f} to {self.high:.2f} times the one that was assumed",
                    *ends,
                ]
            )
            + "."
        )
