"""How p depends on the size of the noise, from the record of a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attentest.results.noise_factor import SHOWN_FACTORS, NoiseFactors, factor_text
from attentest.results.report.recorded_law import recorded_law
from attentest.statistics.log_probability import probability
from attentest.statistics.truncation_set import TruncationSet

AS_FAR_AS_KNOWN = (
    "The record does not say what the search left open: these p-values count only what it found, as far as it looked."
)


def sensitivity(values: Mapping[str, Any], alpha: float) -> dict[str, Any] | None:
    """Return p for some factors on the standard deviation of the noise, and where the verdict changes, JSON-ready.

    Parameters
    ----------
    values
        JSON-ready values of a result (``result.to_dict()``). Of an earlier version they lack the law of a randomised
        test, and then None is returned; or the bounds on the truncation set, and then a note says so.
    alpha
        Significance level of the verdict.
    """
    law = recorded_law(values)
    if law is None:
        return None
    bounded = "certain_intervals" in values and "possible_intervals" in values
    names = ("intervals", "certain_intervals", "possible_intervals") if bounded else ("intervals",) * 3
    best, certain, possible = (np.array(values[name], dtype=np.float64).reshape(-1, 2) for name in names)
    factors = NoiseFactors(
        law=law,
        known=TruncationSet(intervals=best, certain=certain, possible=possible),
        alternative=values["alternative"],
    )
    logs = factors.log_pvalues(SHOWN_FACTORS)
    same = factors.same_verdict(alpha)
    return {
        "factors": [
            {
                "factor": factor,
                "pvalue": probability(p),
                "pvalue_low": probability(low),
                "pvalue_high": probability(high),
                "text": factor_text(p, low, high),
                "reject": decided,
            }
            for factor, p, low, high, decided in zip(
                SHOWN_FACTORS, *logs, factors.decisions(SHOWN_FACTORS, alpha), strict=True
            )
        ],
        "same_verdict_from": same.low,
        "same_verdict_to": same.high,
        "below": same.below,
        "above": same.above,
        "text": same.text(),
        "note": None if bounded else AS_FAR_AS_KNOWN,
    }
