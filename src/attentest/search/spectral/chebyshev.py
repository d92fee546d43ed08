"""Chebyshev polynomials on [-1, 1]: nodes, coefficients, bounds.

Polynomials of any degree are stored as coefficients (..., SIZE, g) in the basis T_0 ... T_{SIZE-1}, so that many pieces
are processed together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from torch import Tensor

MAX_DEGREE = 16
SIZE = MAX_DEGREE + 2
"""Number of coefficients: MAX_DEGREE + 1 nodes, and one more because the check point raises the degree by one."""

CLEAR = 0.3
"""Check points are this fraction of the distance between two nodes away from both, as an angle: there the node
polynomial is 0.8 of its greatest value between them, or more."""


def lobatto_nodes(degree: int) -> NDArray[np.float64]:
    """Return the degree + 1 Chebyshev-Lobatto nodes, ascending; those of half the degree are every other one."""
    finest = np.sin(np.pi * np.arange(-MAX_DEGREE, MAX_DEGREE + 1, 2) / (2 * MAX_DEGREE))  # symmetric to the last bit
    return finest[:: MAX_DEGREE // degree]


def gauss_nodes(count: int) -> NDArray[np.float64]:
    """Return the zeros of T_count, ascending."""
    return np.asarray(np.sin(np.pi * np.arange(1 - count, count, 2) / (2 * count)))


def coefficients_from(nodes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (SIZE, m) from values at m nodes to the coefficients of their interpolant."""
    matrix = np.zeros((SIZE, len(nodes)))
    matrix[: len(nodes)] = np.linalg.inv(chebyshev.chebvander(nodes, len(nodes) - 1))
    return matrix


def coefficients_from_lobatto(degree: int) -> NDArray[np.float64]:
    """Return the matrix (SIZE, degree + 1) from values at the Lobatto nodes to coefficients."""
    return coefficients_from(lobatto_nodes(degree))


def coefficients_from_gauss(count: int) -> NDArray[np.float64]:
    """Return the matrix (SIZE, count) from values at the zeros of T_count to coefficients."""
    return coefficients_from(gauss_nodes(count))


def values_at_gauss(count: int) -> NDArray[np.float64]:
    """Return the matrix (count, SIZE) from coefficients to values at the zeros of T_count."""
    return basis(torch.from_numpy(gauss_nodes(count))).numpy()


def node_polynomial(degree: int) -> NDArray[np.float64]:
    """Return the coefficients (SIZE,) of the polynomial that vanishes at the Lobatto nodes, of greatest value near 1.

    It is T_{degree+1} - T_{degree-1}, that is -2 sin(t) sin(degree t) with x = cos(t); halved here.
    """
    coefficients = np.zeros(SIZE)
    coefficients[degree + 1], coefficients[degree - 1] = 0.5, -0.5
    return coefficients


def check_point(degree: int, share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points between the Lobatto nodes of a degree, for numbers in [0, 1).

    The gaps next to the ends are left out: they are the narrowest, and the node polynomial is small there.
    """
    narrow = degree // 8
    place = narrow + share * (degree - 2 * narrow)
    gap = np.floor(place)
    return np.cos(np.pi * (gap + CLEAR + (1 - 2 * CLEAR) * (place - gap)) / degree)


def second_derivative() -> NDArray[np.float64]:
    """Return the matrix (SIZE, SIZE) from coefficients to those of the second derivative."""
    matrix = np.zeros((SIZE, SIZE))
    matrix[: SIZE - 2] = chebyshev.chebder(np.eye(SIZE), 2, axis=0)
    return matrix


@cache
def constant(make: Callable[..., NDArray[np.float64]], device: torch.device, *arguments: int) -> Tensor:
    """Return the array that a function makes of some arguments, on a device; it is made and copied there once."""
    return torch.from_numpy(make(*arguments)).to(device)


def basis(x: Tensor) -> Tensor:
    """Return T_0(x) ... T_{SIZE-1}(x), (..., SIZE)."""
    order = torch.arange(SIZE, dtype=x.dtype, device=x.device)
    return torch.cos(order * torch.acos(x.clamp(-1, 1)).unsqueeze(-1))
