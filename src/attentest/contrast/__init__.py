"""Contrasts eta: which linear combination of pixels is tested (section 2)."""

from __future__ import annotations

from attentest.contrast.difference import Background, Neighbourhood, Reference, RegionMean, as_contrast, check_pair
from attentest.contrast.kernel import Filtered, gaussian
from attentest.contrast.protocol import (
    Channels,
    Contrast,
    ContrastLike,
    ReferenceImage,
    as_channels,
    as_connectivity,
    channel_weights,
    labelled_components,
    takes_stacks,
)

__all__ = [
    "Background",
    "Channels",
    "Contrast",
    "ContrastLike",
    "Filtered",
    "Neighbourhood",
    "Reference",
    "ReferenceImage",
    "RegionMean",
    "as_channels",
    "as_connectivity",
    "as_contrast",
    "channel_weights",
    "check_pair",
    "gaussian",
    "labelled_components",
    "takes_stacks",
]
