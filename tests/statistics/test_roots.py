from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest.statistics.roots import FARTHEST, increasing_roots

POWERS = np.array([1.0, 3.0, 1 / 3, 1.0])
"""Of increasing functions sign(x - c) |x - c|^power: Newton's steps alone diverge for one third."""

CENTRES = np.array([0.3, -2.0, 40.0, 1e9])


def powers(rows: NDArray[np.int64], at: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    distance, power = at - CENTRES[rows], POWERS[rows]
    with np.errstate(divide="ignore"):
        return np.sign(distance) * np.abs(distance) ** power, power * np.abs(distance) ** (power - 1)


@pytest.mark.parametrize("start", [0.0, -1e6, 45.0])
def test_increasing_roots_are_found_from_anywhere_and_with_wrong_slopes(start: float) -> None:
    def off(factor: float) -> Callable:
        return lambda rows, at: (powers(rows, at)[0], factor * powers(rows, at)[1])

    for factor in (1.0, 0.1, 10.0, np.nan, -1.0):
        error = np.abs(increasing_roots(off(factor), np.full(4, start)) - CENTRES)
        # A cube is smaller than what counts as zero within 1e-4 of its root.
        assert np.all(error <= np.maximum([0, 1.001e-4, 0, 0], 2e-12 * np.abs(CENTRES) + 1e-12)), (factor, error)


def test_newton_takes_few_evaluations_and_stops_where_it_is_close_enough() -> None:
    asked: list[int] = []

    def exponential(
        rows: NDArray[np.int64], at: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked.append(len(rows))
        return np.expm1(at), np.exp(at)

    assert increasing_roots(exponential, np.array([1.0, 1e-3]), close=1e-2).tolist()[1] == 1e-3
    assert asked == [2, 1, 1, 1]  # 1, 0.37, 0.06, 0.002
    asked.clear()
    np.testing.assert_allclose(increasing_roots(exponential, np.array([1.0])), 0.0, atol=1e-12)
    assert len(asked) <= 7


def test_a_function_that_has_no_root_has_an_infinite_one_or_none() -> None:
    levels = np.array([-1.0, 1.0, np.nan, -np.inf])
    found = increasing_roots(lambda rows, at: (levels[rows], np.zeros(len(rows))), np.zeros(4))
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan, np.inf])
    beyond = increasing_roots(lambda rows, at: (at - 2 * FARTHEST, np.ones(len(rows))), np.zeros(1))
    assert beyond[0] == np.inf


def test_a_root_between_two_points_is_looked_for_nowhere_else() -> None:
    asked: list[float] = []

    def logarithm(rows: NDArray[np.int64], at: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked.extend(at)
        return np.log(at), np.full(len(at), 1e-9)  # slopes that would lead far away

    found = increasing_roots(logarithm, np.array([2.5]), between=(np.array([0.5]), np.array([4.0])), last_step=1e-3)
    assert abs(found[0] - 1) < 1e-3
    assert all(0.5 < at < 4 for at in asked)
    assert len(asked) <= 12  # halvings of 3.5 down to 0.001
