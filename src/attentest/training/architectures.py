"""The paper's table of architectures (appendix C.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One row of the paper's table of architectures (appendix C.2)."""

    layers: int
    hidden: int
    heads: int


ARCHITECTURES: Mapping[str, Architecture] = {
    "small": Architecture(layers=4, hidden=32, heads=2),
    "base": Architecture(layers=8, hidden=64, heads=4),
    "large": Architecture(layers=12, hidden=128, heads=8),
    "huge": Architecture(layers=16, hidden=256, heads=16),
}


def patch_size_of(image_size: int) -> int:
    """Return the side of a patch: max(2, image_size // 8), as in the paper's own models."""
    return max(2, image_size // 8)
