from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest.statistics.law import Law
from attentest.statistics.randomised_normal import RandomisedNormal
from attentest.statistics.roots import FARTHEST, newton_roots
from attentest.statistics.truncated_normal import TruncatedNormal

POWERS = np.array([1.0, 3.0, 1 / 3, 1.0])
"""Of increasing functions sign(x - c) |x - c|^power: Newton's steps alone diverge for one third."""

CENTRES = np.array([0.3, -2.0, 40.0, 1e9])


def powers(rows: NDArray[np.int64], at: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    distance, power = at - CENTRES[rows], POWERS[rows]
    with np.errstate(divide="ignore"):
        return np.sign(distance) * np.abs(distance) ** power, power * np.abs(distance) ** (power - 1)


@pytest.mark.parametrize("start", [0.0, -1e6, 45.0])
def test_newton_roots_are_found_from_anywhere_and_with_wrong_slopes(start: float) -> None:
    def off(factor: float) -> Callable:
        return lambda rows, at: (powers(rows, at)[0], factor * powers(rows, at)[1])

    for factor in (1.0, 0.1, 10.0, np.nan, -1.0):
        error = np.abs(newton_roots(off(factor), np.full(4, start)) - CENTRES)
        # A cube is smaller than what counts as zero within 1e-4 of its root.
        assert np.all(error <= np.maximum([0, 1.001e-4, 0, 0], 2e-12 * np.abs(CENTRES) + 1e-12)), (factor, error)


def test_newton_takes_few_evaluations_and_stops_where_it_is_close_enough() -> None:
    asked: list[int] = []

    def exponential(
        rows: NDArray[np.int64], at: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        asked.append(len(rows))
        return np.expm1(at), np.exp(at)

    assert newton_roots(exponential, np.array([1.0, 1e-3]), close=1e-2).tolist()[1] == 1e-3
    assert asked == [2, 1, 1, 1]  # 1, 0.37, 0.06, 0.002
    asked.clear()
    np.testing.assert_allclose(newton_roots(exponential, np.array([1.0])), 0.0, atol=1e-12)
    assert len(asked) <= 7


def test_a_function_that_has_no_root_has_an_infinite_one_or_none() -> None:
    levels = np.array([-1.0, 1.0, np.nan, -np.inf])
    found = newton_roots(lambda rows, at: (levels[rows], np.zeros(len(rows))), np.zeros(4))
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan, np.inf])
    beyond = newton_roots(lambda rows, at: (at - 2 * FARTHEST, np.ones(len(rows))), np.zeros(1))
    assert beyond[0] == np.inf


T = np.array([0.4])


@pytest.mark.parametrize(
    "law", [TruncatedNormal(statistic=T), RandomisedNormal(statistic=T, observed_z=T, gamma=np.array([0.5]))]
)
def test_slopes_of_masses_are_their_derivatives_in_the_mean(law: Law) -> None:
    """Up to a term that all masses share: so differences between intervals are compared."""
    left = np.array([-np.inf, -1.0, -0.3, 0.4, 0.401, 2.0, 3.0])
    right = np.array([-2.0, -0.5, 0.4, 0.6, 0.402, 2.5, np.inf])
    above, image = left >= 0.4, np.zeros(7, dtype=np.int64)

    def masses(mean: float) -> NDArray[np.float64]:
        return law.log_masses_on_side(image, left, right, mean=np.full(7, mean), above=above)[0]

    for mean in (-1.5, 0.4, 2.2):
        slope = law.log_masses_on_side(image, left, right, mean=np.full(7, mean), above=above)[1]
        derivative = (masses(mean + 1e-4) - masses(mean - 1e-4)) / 2e-4
        # Short steps, here and in the law, make an error of 1e-5 times a curvature of at most 10.
        np.testing.assert_allclose(np.diff(slope), np.diff(derivative), atol=1e-4)


def test_the_part_of_an_interval_on_one_side_has_all_its_mass_there() -> None:
    law = TruncatedNormal(statistic=np.array([0.4]))
    image, left, right = np.zeros(3, dtype=np.int64), np.array([-1.0, 0.0, 1.0]), np.array([-0.5, 1.0, 2.0])
    split = law.log_masses(image, left, right, mean=0.7, lower=-np.inf, upper=0.4)
    for above, masses in zip((True, False), split, strict=True):
        part = law.part_on_side(image, left, right, above=above)
        on_side, _ = law.log_masses_on_side(image, *part, mean=np.full(3, 0.7), above=np.full(3, above))
        np.testing.assert_allclose(on_side, masses, rtol=1e-14)


def test_quantiles_of_the_normal_law_have_their_shares_of_the_mass() -> None:
    rng = np.random.default_rng(5)
    count = 4000
    law = TruncatedNormal(statistic=rng.normal(0, 1, count) * rng.choice([1, 10, 5e3, 1e6], count))
    t, image, share, extreme = law.statistic, np.arange(count), rng.random(count), rng.random(count) < 0.5
    left = rng.choice([-1.0, 1.0], count) * t + rng.normal(0, 1, count) * 10 ** rng.uniform(-6, 1, count)
    right = left + 10 ** rng.uniform(-8, 3, count)
    limits = {
        "mean": np.where(rng.random(count) < 0.5, 0.0, t + rng.normal(0, 3, count)),
        "lower": -np.abs(t),
        "upper": np.abs(t),
    }
    total = np.where(extreme, *law.log_masses(image, left, right, **limits))
    some = np.flatnonzero(total > -np.inf)
    assert len(some) > 1000
    image, left, right, share, extreme, total = (x[some] for x in (image, left, right, share, extreme, total))
    limits = {name: limit[some] for name, limit in limits.items()}
    z = law.quantiles(image, left, right, share, **limits, extreme=extreme)
    assert np.all((left <= z) & (z <= right))
    before = np.exp(np.where(extreme, *law.log_masses(image, left, z, **limits)) - total)
    # A point and the ends are known to a unit of rounding, which can be a part of the mass, and so are logs.
    farthest = np.maximum(np.abs(left - limits["mean"]), np.abs(right - limits["mean"]))
    edges = [left, *(np.clip(limits[name], left, right) for name in ("lower", "upper")), right]
    narrowest = np.min([np.where(width > 0, width, np.inf) for width in np.diff(edges, axis=0)], axis=0)
    unit = np.spacing(np.maximum(np.abs(left), np.abs(right)))
    rounding = unit * (farthest + 1 / narrowest) + np.spacing(np.abs(total))
    assert np.max(np.abs(before - share) - 4 * rounding) < 2e-5
    by_halving = Law.quantiles(law, image, left, right, share, **limits, extreme=extreme)
    assert np.median(np.abs(by_halving - z) / (right - left)) < 1e-6
