"""Contrasts eta: which linear combination of pixels is tested (section 2)."""

from __future__ import annotations

from attentest.contrast.channels import Channels, as_channels, channel_weights
from attentest.contrast.components import as_connectivity, labelled_components
from attentest.contrast.difference import Background, Neighbourhood, RegionMean
from attentest.contrast.function import as_contrast
from attentest.contrast.kernel import Filtered, gaussian
from attentest.contrast.protocol import Contrast, ContrastLike, ReferenceImage, takes_stacks
from attentest.contrast.reference import Reference, check_pair

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
