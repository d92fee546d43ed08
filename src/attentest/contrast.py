"""The contrast eta: which linear combination of pixels is tested (section 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def background_contrast(regions: NDArray[np.bool_], channels: int = 1) -> NDArray[np.float64]:
    """Return eta: the mean inside each region minus the mean outside it.

    Parameters
    ----------
    regions : (k, H, W) bool
        Attention regions; none empty, none everything.
    channels
        Number of image channels, averaged with equal weight.

    Returns
    -------
    eta : (k, channels * H * W) float64
        Such that ``eta @ image.ravel()`` is the difference of means of a (channels, H, W) image.
    """
    flat = regions.reshape(len(regions), -1)
    inside = flat.sum(axis=1, keepdims=True)
    outside = flat.shape[1] - inside
    eta = np.where(flat, 1.0 / inside, -1.0 / outside) / channels
    return np.tile(eta, (1, channels))
