"""Which slices show enough of a brain to ask about: those at either end of the head are nearly empty."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.errors import InputError

LEAST_BRIGHT = 20
"""Of 255, which brain exceeds: 99% of what scanners leave in the corners, outside the head, is below 10."""

LEAST_SHARE = 0.2
"""Share of the pixels that must exceed it: a third of them do in the median slice.

On the data of Buda et al. (2019) this keeps 1,311 of the 1,373 slices with a tumour and 1,902 of the 2,556 without.
All 88 slices of one patient go, 37 of them with a tumour: that scan is not empty but dark, with nothing above 70.
"""


def shows_brain(flair: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which slices are not nearly empty.

    Parameters
    ----------
    flair : (n, H, W) uint8
        Slices.

    Returns
    -------
    shown : (n,) bool
        Whether at least ``LEAST_SHARE`` of the pixels are brighter than ``LEAST_BRIGHT``.
    """
    if not isinstance(flair, np.ndarray) or flair.dtype != np.uint8 or flair.ndim != 3:
        received = f"{flair.dtype} {flair.shape}" if isinstance(flair, np.ndarray) else type(flair).__name__
        raise InputError(f"slices must be an array (n, H, W) of uint8, got {received}.")
    return np.asarray((flair > LEAST_BRIGHT).mean(axis=(1, 2)) >= LEAST_SHARE)
