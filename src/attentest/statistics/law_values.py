"""The law of one image as JSON-ready values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attentest.statistics.law import Law
from attentest.statistics.randomised_normal import RandomisedNormal
from attentest.statistics.truncated_normal import TruncatedNormal

TRUNCATED, RANDOMISED = "truncated normal", "randomised normal"


def law_values(law: Law) -> dict[str, Any]:
    """Return what, with the statistic, defines the law of one image."""
    if isinstance(law, RandomisedNormal):
        return {"name": RANDOMISED, "z_obs": float(law.z_obs[0]), "gamma": float(law.gamma[0])}
    return {"name": TRUNCATED if isinstance(law, TruncatedNormal) else type(law).__name__}


def law_from_values(statistic: float, values: Mapping[str, Any]) -> Law | None:
    """Return the law of one image, given its statistic and :func:`law_values`; None for one that is not attentest's."""
    observed = np.array([statistic])
    if values["name"] == TRUNCATED:
        return TruncatedNormal(statistic=observed)
    if values["name"] != RANDOMISED:
        return None
    return RandomisedNormal(
        statistic=observed, observed_z=np.array([values["z_obs"]]), gamma=np.array([values["gamma"]])
    )
