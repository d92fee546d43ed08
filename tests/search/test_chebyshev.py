from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev as reference

from attentest.search.spectral.chebyshev import (
    SIZE,
    basis,
    check_point,
    coefficients_from,
    gauss_nodes,
    lobatto_nodes,
    node_polynomial,
    second_derivative,
)


def test_nodes_of_half_the_degree_are_among_them() -> None:
    assert set(lobatto_nodes(8)) < set(lobatto_nodes(16))
    for degree in (8, 16):
        nodes = lobatto_nodes(degree)
        assert (nodes[0], nodes[degree // 2], nodes[-1]) == (-1.0, 0.0, 1.0)
        np.testing.assert_allclose(nodes, -np.cos(np.pi * np.arange(degree + 1) / degree), atol=1e-15)


@pytest.mark.parametrize("count", [1, 2, 3, 4, SIZE])
def test_gauss_nodes_are_zeros(count: int) -> None:
    nodes = gauss_nodes(count)
    assert (np.diff(nodes) > 0).all()
    np.testing.assert_allclose(reference.chebval(nodes, [0] * count + [1]), 0, atol=1e-14)


@pytest.mark.parametrize(
    ("nodes_of", "number"), [(lobatto_nodes, 8), (lobatto_nodes, 16), (gauss_nodes, 3), (gauss_nodes, SIZE)]
)
def test_a_polynomial_is_recovered_from_its_values(nodes_of: Callable[[int], np.ndarray], number: int) -> None:
    nodes = nodes_of(number)
    exact = np.zeros(SIZE)
    exact[: len(nodes)] = np.random.default_rng(0).normal(size=len(nodes))
    found = coefficients_from(nodes_of, number) @ reference.chebval(nodes, exact)
    np.testing.assert_allclose(found, exact, atol=1e-13)
    x = torch.linspace(-1, 1, 101, dtype=torch.float64)
    np.testing.assert_allclose(basis(x).numpy() @ found, reference.chebval(x.numpy(), exact), atol=1e-13)


@pytest.mark.parametrize("degree", [8, 16])
def test_the_node_polynomial_vanishes_at_the_nodes_and_not_at_the_check_points(degree: int) -> None:
    polynomial = node_polynomial(degree)
    np.testing.assert_allclose(reference.chebval(lobatto_nodes(degree), polynomial), 0, atol=1e-14)
    everywhere = np.abs(reference.chebval(np.linspace(-1, 1, 10_001), polynomial))
    assert everywhere.max() <= 1
    checks = check_point(degree, np.linspace(0, 1, 1000, endpoint=False))
    assert np.abs(reference.chebval(checks, polynomial)).min() > 0.35
    assert checks.max() > 0.85
    assert checks.min() < -0.85
    slope = np.abs(reference.chebval(np.linspace(-1, 1, 10_001), reference.chebder(polynomial)))
    assert slope.max() <= 2 * degree * (1 + 1e-12)


def test_second_derivative() -> None:
    coefficients = np.random.default_rng(1).normal(size=SIZE)
    x = np.linspace(-1, 1, 11)
    expected = reference.chebval(x, reference.chebder(coefficients, 2))
    np.testing.assert_allclose(reference.chebval(x, second_derivative() @ coefficients), expected, rtol=1e-10)
