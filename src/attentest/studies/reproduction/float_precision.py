"""What float32 does to regions and p-values, next to what the grid search does in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from attentest.studies.reproduction.rejection import LEVEL
from attentest.studies.reproduction.tally import Tally, described_rate, rounded

DRAWN = 1000
"""Pairs of p-values that a picture needs."""


def precision(tally: Tally) -> dict[str, Any] | None:
    """Return how the two precisions differ on the images of a series, or None if all its trials failed."""
    rows = tally.good
    if not rows:
        return None
    p, double, single = (np.array([row[name] for row in rows]) for name in ("p", "p_float64", "p_float32"))
    changed = np.array([row["region_changed"] for row in rows])
    worst = int(np.argmax(np.abs(single - p)))
    return {
        **tally.setting(),
        "region_differs": described_rate(changed > 0),
        "pixels_changed": {"mean": float(changed.mean()), "most": int(changed.max())},
        "pixels": tally.headers[0]["settings"]["model"]["input"][-2:] if tally.headers else None,
        "float32": {
            **_quantiles(np.abs(single - p)),
            "verdict_changes": described_rate((single <= LEVEL) != (p <= LEVEL)),
        },
        "float64": {
            **_quantiles(np.abs(double - p)),
            "verdict_changes": described_rate((double <= LEVEL) != (p <= LEVEL)),
        },
        "worst": {
            "image": rows[worst]["image"],
            "p": float(p[worst]),
            "p_float64": float(double[worst]),
            "p_float32": float(single[worst]),
            "region_changed": int(changed[worst]),
        },
        "pairs": [[*rounded((p[i], single[i])), bool(changed[i])] for i in range(min(DRAWN, len(rows)))],
    }


def _quantiles(gaps: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    median, most_of, greatest = (float(np.quantile(gaps, q)) for q in (0.5, 0.9, 1.0))
    return {"median": median, "ninety_percent": most_of, "greatest": greatest}
