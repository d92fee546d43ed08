"""The demonstration of f_i: how straight the curves are far from the statistic, and how small close to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.studies.reproduction.tally import Tally, described_rate, rounded

STEP = 0.2
"""The paper's largest grid width, over which f_i is taken for linear."""

NEAR = 0.1
"""Distance from the statistic within which it is not."""

BEND = 0.1
"""Largest distance of a straight curve from its chord, as a share of its change over the step..."""

SMALLEST_CHANGE = 0.01
"""...which counts as at least this; attention lies between 0 and 1."""

DRAWN = 120
"""Points of a curve that a picture needs."""


def demonstration(tally: Tally) -> list[dict[str, Any]]:
    """Return, for each image, its curves thinned for a picture and what they say of the paper's heuristics."""
    return [_described(row) for row in tally.good]


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    far, close = ({name: np.array(values) for name, values in row[part].items()} for part in ("far", "close"))
    curves = np.vstack([part for part in (far["inside"], far["outside"]) if part.size])
    near = np.vstack([part for part in (close["inside"], close["outside"]) if part.size])
    return {
        "image": row["image"],
        "statistic": row["statistic"],
        "bent": described_rate(bent_steps(far["z"], curves, row["statistic"])),
        "smallest_close": float(close["closest_to_zero"]),
        "median_close": float(np.median(np.abs(near).min(axis=1))),
        "far": _thinned(far),
        "close": _thinned(close),
    }


def bent_steps(z: NDArray[np.float64], curves: NDArray[np.float64], statistic: float) -> NDArray[np.bool_]:
    """Return, for each step of 0.2 and each curve, whether it leaves its chord by more than a tenth of its change.

    Parameters
    ----------
    z : (m,)
        Where the curves are known, equally spaced.
    curves : (k, m)
        Values.
    statistic
        Steps that come within 0.1 of it do not count.
    """
    width = max(2, int(STEP / (z[1] - z[0]) + 1e-6))
    found = []
    for start in range(0, len(z) - width, width):
        at = slice(start, start + width + 1)
        if z[at][0] < statistic + NEAR and z[at][-1] > statistic - NEAR:
            continue
        first, last = curves[:, start], curves[:, start + width]
        share = np.arange(width + 1) / width
        chord = first[:, None] + (last - first)[:, None] * share
        bend = np.abs(curves[:, at] - chord).max(axis=1)
        found.append(bend > BEND * np.maximum(np.abs(last - first), SMALLEST_CHANGE))
    return np.concatenate(found)


def _thinned(part: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    count = len(part["z"])
    kept = np.unique(np.linspace(0, count - 1, min(DRAWN, count)).round().astype(int))
    return {
        "z": rounded(part["z"][kept]),
        **{name: [rounded(curve[kept], 4) for curve in part[name]] for name in ("inside", "outside")},
    }
