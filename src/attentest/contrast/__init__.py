"""Contrasts eta: which linear combination of pixels is tested (section 2)."""

from __future__ import annotations

from attentest.contrast.context import Context
from attentest.contrast.contrast import (
    Background,
    Channels,
    Contrast,
    ContrastLike,
    Neighbourhood,
    Reference,
    RegionMean,
)
from attentest.contrast.kernel import Filtered, gaussian

__all__ = [
    "Background",
    "Channels",
    "Context",
    "Contrast",
    "ContrastLike",
    "Filtered",
    "Neighbourhood",
    "Reference",
    "RegionMean",
    "gaussian",
]
