"""The connected components of a region."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import whole_number


def as_connectivity(value: Any) -> int:
    """Return 1 for pixels that share an edge, 2 for those that share a corner too."""
    return whole_number(value, "connectivity (1 for shared edges, 2 for corners too)", 1, 2)


def labelled_components(region: NDArray[np.bool_], connectivity: int) -> tuple[NDArray[np.int32], int]:
    """Return the number of each pixel's component (H, W), 0 outside, and how many there are."""
    from scipy.ndimage import generate_binary_structure, label  # here because scipy.ndimage is slow to import

    labels, count = label(region, generate_binary_structure(2, connectivity))
    return np.asarray(labels, dtype=np.int32), int(count)
