"""The connected components of a region."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attentest.checks import whole_number


def as_connectivity(value: Any) -> int:
    """Return a connectivity: 1 if components are joined by shared edges, 2 if by shared corners as well."""
    return whole_number(value, "connectivity (1 for shared edges, 2 for shared corners as well)", 1, 2)


def labelled_components(region: NDArray[np.bool_], connectivity: int) -> tuple[NDArray[np.int32], int]:
    """Return the number of each pixel's component (H, W), 0 outside the region, and the number of components."""
    from scipy.ndimage import generate_binary_structure, label  # here because scipy.ndimage is slow to import

    labels, count = label(region, generate_binary_structure(2, connectivity))
    return np.asarray(labels, dtype=np.int32), int(count)
