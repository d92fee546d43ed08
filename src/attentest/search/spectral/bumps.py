"""Narrow bumps of the scores between the nodes of a piece: how high one may be, and where to look for it.

A bump that is much narrower than the distance of the nodes shows only by its flanks, in coefficients that do not fall
evenly. Where they may be those of a bump, the error of the piece allows for it; and where that is all that keeps the
piece from deciding, the model is evaluated half way between the nodes instead of interpolating the piece anew.
"""

from __future__ import annotations

import numpy as np

from attentest.search.spectral.chebyshev import MAX_DEGREE, lobatto_nodes
from attentest.search.spectral.decay import Decay
from attentest.search.spectral.masses import Floats

NODES_PER_BUMP = 25.0
"""Bumps are not missed if their standard deviation is at least the width of the piece over this."""

HEIGHT, RATE = 200.0, 0.47
"""Such a bump, half way between two nodes, is up to this many times as high as the last of 8 coefficients, which then
fall neither faster than this rate nor regularly."""

WORTH_PROBING = 4.0
"""A piece is probed if it may then leave out an allowance that is this many times the rest of its error."""


def bump_height(decay: Decay, width: Floats, degree: int, narrowest: Floats) -> Floats:
    """Return the height (p,) of the bump that pieces of some widths (p,) may hide; zero if they cannot.

    ``narrowest`` (p,) is the standard deviation of the narrowest bump that must not be missed. Of one that is wider, in
    units of the distance of the nodes, less is missed: with the fourth power.
    """
    thinned = np.minimum(1.0, width / (NODES_PER_BUMP * narrowest) * (8 / degree)) ** 4
    return np.where((decay.rate > RATE) & ~decay.regular, HEIGHT * thinned * decay.last, 0.0)


def probe_points(left: Floats, right: Floats, check: Floats) -> Floats:
    """Return where to look for bumps in pieces (p,) of degree 8: one point in each of their four widest gaps (p, 4).

    That is the check point of the piece, in [-1, 1], in the gap that has it, and elsewhere the middle: a node of degree
    16, so that a piece that is interpolated again has use of it.
    """
    nodes = lobatto_nodes(MAX_DEGREE)
    known = (nodes[4:11:2] < check[:, None]) & (check[:, None] < nodes[6:13:2])
    middle, half = (left + right) / 2, (right - left) / 2
    return middle[:, None] + half[:, None] * np.where(known, check[:, None], nodes[5:12:2])
