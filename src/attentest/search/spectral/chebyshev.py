"""Chebyshev polynomials on [-1, 1]: nodes, coefficients, bounds, and how the coefficients of a piece fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from attentest.statistics.columns import Floats, Mask

MAX_DEGREE = 16
SIZE = MAX_DEGREE + 2
"""Number of coefficients: MAX_DEGREE + 1 nodes, and one more because the check point raises the degree by one."""

CLEAR = 0.3
"""Check points are this fraction of the distance between two nodes away from both, as an angle: there the node
polynomial is 0.8 of its greatest value between them, or more."""

RESOLVED = 0.09
"""A piece whose last coefficients exceed this fraction of the greatest one is not resolved. For a kink it is 0.05 or
less, for a steep step 0.14."""

FLAT = 0.5
"""Nor is a piece whose last coefficients exceed this fraction of those of half the order. A narrow spike between the
nodes has flanks that reach a node or two, and its coefficients are all alike; those of a kink fall to a quarter."""

ABOVE_ROUNDING = 8.0  # coefficients within this factor of the rounding error say nothing about their fall

STEADY, COMPARABLE = 0.4, 0.25
"""Coefficients fall steadily if those of either parity fall by this factor, counting the lesser of the last two if it
exceeds this fraction of the greater. Otherwise something narrower begins to show at an end of the piece."""

REGULAR = (0.25, 0.95)
"""Coefficients fall regularly if the ratios of one to the one before it lie between these, in the last half."""

FASTEST, SLOWEST = 0.03, 0.95  # rates are taken to be no faster and no slower than this


def lobatto_nodes(degree: int) -> Floats:
    """Return the degree + 1 Chebyshev-Lobatto nodes, ascending; those of half the degree are every other one."""
    finest = np.sin(np.pi * np.arange(-MAX_DEGREE, MAX_DEGREE + 1, 2) / (2 * MAX_DEGREE))  # symmetric to the last bit
    return finest[:: MAX_DEGREE // degree]


def gauss_nodes(count: int) -> Floats:
    """Return the zeros of T_count, ascending."""
    return np.asarray(np.sin(np.pi * np.arange(1 - count, count, 2) / (2 * count)))


def coefficients_from(nodes_of: Callable[[int], Floats], number: int) -> Floats:
    """Return the matrix (SIZE, m) from values at m nodes, those of a number, to coefficients of their interpolant."""
    nodes = nodes_of(number)
    matrix = np.zeros((SIZE, len(nodes)))
    matrix[: len(nodes)] = np.linalg.inv(chebyshev.chebvander(nodes, len(nodes) - 1))
    return matrix


def basis_at(points: Callable[..., Floats], *arguments: int) -> Floats:
    """Return the matrix (m, SIZE) from coefficients to values at m points."""
    return basis(torch.from_numpy(points(*arguments))).numpy()


def node_polynomial(degree: int) -> Floats:
    """Return the coefficients (SIZE,) of the polynomial that vanishes at the Lobatto nodes, of greatest value near 1.

    It is T_{degree+1} - T_{degree-1}, that is -2 sin(t) sin(degree t) with x = cos(t); halved here.
    """
    coefficients = np.zeros(SIZE)
    coefficients[degree + 1], coefficients[degree - 1] = 0.5, -0.5
    return coefficients


def check_point(degree: int, share: Floats) -> Floats:
    """Return points between the Lobatto nodes of a degree, for numbers in [0, 1).

    The gaps next to the ends are left out: they are the narrowest, and the node polynomial is small there.
    """
    narrow = degree // 8
    place = narrow + share * (degree - 2 * narrow)
    gap = np.floor(place)
    return np.cos(np.pi * (gap + CLEAR + (1 - 2 * CLEAR) * (place - gap)) / degree)


def second_derivative() -> Floats:
    """Return the matrix (SIZE, SIZE) from coefficients to those of the second derivative."""
    matrix = np.zeros((SIZE, SIZE))
    matrix[: SIZE - 2] = chebyshev.chebder(np.eye(SIZE), 2, axis=0)
    return matrix


@cache
def constant(make: Callable[..., Floats], device: torch.device, *arguments: Any) -> Tensor:
    """Return the array that a function makes of some arguments, on a device; it is made and copied there once."""
    return torch.from_numpy(make(*arguments)).to(device)


def basis(x: Tensor) -> Tensor:
    """Return T_0(x) ... T_{SIZE-1}(x), (..., SIZE)."""
    order = torch.arange(SIZE, dtype=x.dtype, device=x.device)
    return torch.cos(order * torch.acos(x.clamp(-1, 1)).unsqueeze(-1))


@dataclass(frozen=True, kw_only=True)
class Decay:
    """The fall of the coefficients of p pieces."""

    rate: Floats
    """(p,). Ratio of one coefficient to the one before it, in the last ones."""
    last: Floats
    """(p,). Size of the last coefficients."""
    greatest: Floats
    """(p,). Size of the greatest coefficient."""
    steady: Mask
    """(p,) bool. Whether both even and odd orders still fall in the last ones."""
    regular: Mask
    """(p,) bool. Whether the last half falls at an even rate, as no narrow bump's coefficients do."""
    resolved: Mask
    """(p,) bool. Whether the coefficients fall as those of a function do that is nowhere narrower than the distance of
    the nodes."""


def decay_of(sizes: Floats, rounding: Floats) -> Decay:
    """Return the decay of coefficients of orders 1 to n and sizes (p, n), known to within their rounding (p,).

    The last coefficients can be small by chance. So the rate is no faster than it was on average, and the last
    coefficients are taken to be no smaller than any before them would have become at that average rate.
    """
    tiny = np.finfo(np.float64).tiny
    count = sizes.shape[1]
    last = sizes[:, -2:].max(axis=1)
    greatest = sizes.max(axis=1)
    lately = np.sqrt(last / np.maximum(sizes[:, -4:-2].max(axis=1), tiny))
    # Even and odd orders fall each by themselves; of the two, only the one that makes up the last coefficients counts.
    by_parity = sizes[:, -2:] / np.maximum(sizes[:, -4:-2], tiny)
    steady = np.where(sizes[:, -2:] >= COMPARABLE * last[:, None], by_parity, 0.0).max(axis=1) < STEADY
    on_average = (last / np.maximum(greatest, tiny)) ** (1 / (count - 1))
    expected = sizes * np.minimum(on_average, 1.0)[:, None] ** np.arange(count - 1, -1, -1)
    ratios = sizes[:, count // 2 + 1 :] / np.maximum(sizes[:, count // 2 : -1], tiny)
    half_way = sizes[:, count // 2 - 2 : count // 2].max(axis=1)
    flat = (last > FLAT * half_way) | (last > RESOLVED * greatest)
    return Decay(
        rate=np.clip(np.maximum(lately, on_average), FASTEST, SLOWEST),
        last=expected.max(axis=1),
        greatest=greatest,
        steady=steady,
        regular=np.asarray(((ratios > REGULAR[0]) & (ratios < REGULAR[1])).all(axis=1)),
        resolved=~flat | (last <= ABOVE_ROUNDING * rounding),
    )
