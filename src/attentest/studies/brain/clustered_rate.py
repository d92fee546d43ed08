"""Shares of slices, with intervals that know that slices of one patient are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BOOTSTRAP_DRAWS = 2000
INTERVAL = (2.5, 97.5)
"""Percentiles: a 95% interval."""


def clustered_rate(hits: NDArray[np.bool_], patients: NDArray[np.str_], seed: int = 0) -> dict[str, Any]:
    """Return the share of slices that are hits, with a 95% interval from drawing patients with replacement.

    Parameters
    ----------
    hits : (m,) bool
        At least one.
    patients : (m,) str
        Whose slices they are.
    seed
        Of the bootstrap.
    """
    names, owner = np.unique(patients, return_inverse=True)
    slices = np.bincount(owner)
    found = np.bincount(owner, weights=hits)
    drawn = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), BOOTSTRAP_DRAWS)
    low, high = np.percentile(drawn @ found / (drawn @ slices), INTERVAL)
    return {"value": float(hits.mean()), "low": float(low), "high": float(high), "count": int(hits.sum())}
