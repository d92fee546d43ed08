"""Corrections of narrow zones of an interpolant: how much of its error they leave."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.polynomial import chebyshev

from attentest.search.spectral.chebyshev import gauss_nodes
from attentest.search.spectral.pieces import MOST_CORRECTIONS, correction_gain
from attentest.search.spectral.segments import AxisParts


@pytest.mark.parametrize("order", [3, 6, 10, 18])
def test_no_more_of_a_polynomial_error_is_left_than_the_gain_says_at_the_ends_of_a_piece_too(order: int) -> None:
    wave = chebyshev.Chebyshev.basis(order)
    for width in (0.4, 0.1, 0.02, 0.002):
        left = np.linspace(-1, 1 - width, 41)
        zones = AxisParts(image=np.zeros(41, dtype=np.int64), left=3 + left, right=3 + left + width)
        pieces = AxisParts(image=zones.image, left=np.full(41, 2.0), right=np.full(41, 4.0))
        for count in range(1, MOST_CORRECTIONS + 1):
            gain = correction_gain(np.full(41, order), pieces, zones, count)
            for start, most in zip(left, gain, strict=True):
                nodes = start + width / 2 * (1 + gauss_nodes(count))
                corrected = np.polynomial.Polynomial.fit(nodes, wave(nodes), count - 1)
                points = np.linspace(start, start + width, 101)
                left_over = np.abs(wave(points) - corrected(points)).max()
                assert left_over <= max(most, 1e-12)
