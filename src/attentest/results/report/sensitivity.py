"""How a result depends on the noise, from its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attentest.results.noise_factor import SHOWN_FACTORS, NoiseFactors
from attentest.results.report.recorded_law import recorded_law
from attentest.results.sensitivity import Sensitivity, factor_sensitivity
from attentest.statistics.alternative import recorded_tails
from attentest.statistics.truncation_set import TruncationSet

AS_FAR_AS_KNOWN = (
    "The record does not say what the search left open: these p-values count only what it found, as far as it looked."
)


def recorded_sensitivity(values: Mapping[str, Any], alpha: float) -> Sensitivity | None:
    """Return the sensitivity to some factors on the standard deviation of the noise.

    If the record has correlation lengths, because they were asked for, so has what is returned.

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
    found = factor_sensitivity(
        NoiseFactors(
            law=law,
            known=TruncationSet(intervals=best, certain=certain, possible=possible),
            alternative=recorded_tails(values),
            standard_error=values["standard_error"],
        ),
        alpha=alpha,
        confidence_level=values["confidence_interval"]["confidence_level"],
        factors=SHOWN_FACTORS,
        note=None if bounded else AS_FAR_AS_KNOWN,
    )
    recorded = values.get("sensitivity")
    if recorded is None or recorded["lengths"] is None:
        return found
    earlier = Sensitivity.from_dict(recorded)
    return replace(
        found, lengths=earlier.lengths, assumed_length=earlier.assumed_length, evaluations=earlier.evaluations
    )
