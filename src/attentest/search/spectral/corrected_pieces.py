"""Narrow zones of pieces of the z axis, corrected by the error of the piece as measured at a few points of the zone.

The error of an interpolant is smooth, so on a narrow zone it is nearly constant, and one evaluation there gains as much
as ten for a fresh piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from attentest.search.problem import Points, on_device
from attentest.search.spectral.chebyshev import (
    SIZE,
    basis,
    coefficients_from_gauss,
    constant,
    gauss_nodes,
    values_at_gauss,
)
from attentest.search.spectral.masses import Floats, Integers, Mask
from attentest.search.spectral.pieces import Pieces

CORRECTION_SAFETY = 2.0
"""Safety factor on the error of a corrected piece."""

SMOOTH_RATE = 0.65
"""Only pieces whose coefficients fall faster than this are corrected, because corrections need a smooth error."""

MOST_CORRECTIONS = 4
"""Most points at which a zone is corrected."""


@dataclass(frozen=True, kw_only=True)
class Corrections:
    """Zones of pieces to correct (q,), each at ``count`` points."""

    piece: Integers
    left: Floats
    right: Floats
    count: Integers


def correction_gain(order: Integers, share: Floats, count: int) -> Floats:
    """Return the factor by which ``count`` corrections reduce the error on a zone that is a fraction of its piece.

    The error resembles a polynomial of degree ``order``. Interpolating it at ``count`` Chebyshev points of the zone
    leaves 2 (order share)^count / count! of it.
    """
    return CORRECTION_SAFETY * 2 * (order * share) ** count / math.factorial(count)


def correction_points(left: Floats, right: Floats, count: int) -> Points:
    """Return the points (p, count) at which zones are corrected."""
    return (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * gauss_nodes(count)


def corrected_pieces(parents: Pieces, left: Floats, right: Floats, values: Tensor) -> tuple[Pieces, Mask]:
    """Correct zones of pieces by scores (p, count, gh, gw) at the points of :func:`correction_points`.

    Returns
    -------
    pieces
        The zones as pieces.
    underestimated : (p,) bool
        Whether the error of the parent turned out greater than its estimate.
    """
    device = values.device
    count = values.shape[1]
    middle, half = (parents.left + parents.right) / 2, (parents.right - parents.left) / 2
    start, end = (left - middle) / half, (right - middle) / half
    inner = gauss_nodes(SIZE)  # as many as represent the parent's polynomial exactly
    points = (start + end)[:, None] / 2 + (end - start)[:, None] / 2 * inner
    carried = constant(coefficients_from_gauss, device, SIZE) @ basis(on_device(points, device))
    coefficients = carried @ parents.coefficients.flatten(2)
    missed = values.flatten(2) - constant(values_at_gauss, device, count) @ coefficients
    coefficients += constant(coefficients_from_gauss, device, count) @ missed
    seen = missed.abs().amax(dim=(1, 2)).cpu().numpy()
    estimated = parents.error + parents.floor
    gain = correction_gain(parents.order, (right - left) / (parents.right - parents.left), count)
    corrected = replace(
        parents,
        left=left,
        right=right,
        error=np.maximum(estimated, 2 * seen) * np.minimum(1.0, gain),
        floor=parents.rounding,
        degree=np.zeros(len(left), dtype=np.int64),
        vanishes=np.zeros(len(left), dtype=np.bool_),
        order=np.full(len(left), count + 2),
        refined=np.zeros(len(left), dtype=np.bool_),
        bumpy=np.zeros(len(left), dtype=np.bool_),
        coefficients=coefficients.unflatten(2, values.shape[2:]),
    )
    return corrected, seen > estimated
