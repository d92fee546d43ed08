"""Which channels of a colour image are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attentest.checks import real_number, whole_number
from attentest.errors import InputError, counted

Channels: TypeAlias = "Literal['mean'] | int | Sequence[float]"
"""Which channels of a colour image are compared: their mean, one of them by number, or a weight per channel."""

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100
"""Limits between which the square of a weight neither underflows nor overflows."""


def as_channels(channels: Channels) -> Channels:
    """Return the channels that are compared as "mean", a plain int, or a tuple of plain floats."""
    if isinstance(channels, str) and channels == "mean":
        return "mean"
    if isinstance(channels, (int, np.integer)) and not isinstance(channels, bool):
        return whole_number(channels, "channels (the number of a channel)", 0, 2**20)
    listed: Any = channels.tolist() if hasattr(channels, "tolist") else channels
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        weights = tuple(real_number(weight, "channels (each weight)") for weight in listed)
        if not np.all(np.isfinite(weights)) or not SMALLEST_WEIGHT < np.abs(weights).max(initial=0) < LARGEST_WEIGHT:
            raise InputError(
                f"channels (as weights) must be finite and not all zero, and neither huge nor tiny, got {listed}."
            )
        return weights
    raise InputError(f"channels must be 'mean', the number of a channel, or a weight per channel, got {channels!r}.")


def channel_weights(channels: Channels, count: int) -> NDArray[np.float64]:
    """Return the weight (count,) of each channel of an image in the contrast."""
    chosen = as_channels(channels)
    if isinstance(chosen, str):
        return np.full(count, 1.0 / count)
    if isinstance(chosen, int):
        if chosen >= count:
            raise InputError(f"channels = {chosen} is no channel of the image, which has 0 to {count - 1}.")
        return np.asarray(np.eye(count)[chosen])
    if len(chosen) != count:
        raise InputError(
            f"channels gives {counted(len(chosen), 'weight')}, but the image has {counted(count, 'channel')}."
        )
    return np.array(chosen)
