"""Numbers that the authors published, of their own models."""

from __future__ import annotations

from collections.abc import Mapping

POWER: Mapping[str, Mapping[float, float]] = {
    "independent": {1.0: 0.145, 2.0: 0.574, 3.0: 0.882, 4.0: 0.936},
    "correlated": {1.0: 0.102, 2.0: 0.345, 3.0: 0.689, 4.0: 0.832},
}
"""Power of the selective test, by strength of the signal (figure 6)."""

PERMUTATION: Mapping[str, float] = {"base8": 0.171, "base16": 0.220, "base32": 0.428, "base64": 0.669}
"""Type I error of the permutation test with correlated noise, by model (figure 4)."""

SECONDS: Mapping[str, tuple[float, float]] = {
    "adaptive": (46.0, 81.0),
    "combination": (206.0, 1450.0),
    "fixed": (1500.0, 8080.0),
}
"""Least and most seconds per image of each search on the authors' machine (figures 7 and 8)."""

IMAGES = 1000  # of each published rate

COUNTS = {
    "type-i-error": 1000,
    "additional-trials": 10_000,
    "estimated-variance": 10_000,
    "non-gaussian": 10_000,
    "power": 1000,
}
"""Images per setting in the paper, by experiment."""
