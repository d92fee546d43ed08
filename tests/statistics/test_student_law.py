"""The laws of statistics with an estimated standard error: against many digits, closed forms, limits and drawn data."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from attentest.statistics.alternative import Alternative
from attentest.statistics.conditional_mean import mean_bounds
from attentest.statistics.inference import confidence_intervals_of, estimates_of
from attentest.statistics.interval_mass import log_density, log_student_mass, log_sums
from attentest.statistics.law import Law, Strips
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import (
    RandomisedNormal,
    RandomisedStudent,
    TruncatedNormal,
    TruncatedStudent,
    law_from_values,
    law_values,
)
from truncated import inference, known_set

WHOLE = [(-np.inf, np.inf)]


def student(t: float, degrees: float) -> TruncatedStudent:
    return TruncatedStudent(statistic=np.array([t]), degrees=np.array([degrees]))


def randomised(t: float, z: float, gamma: float, degrees: float) -> RandomisedStudent:
    one = (np.array([value]) for value in (t, z, gamma, degrees))
    return RandomisedStudent(**dict(zip(("statistic", "observed_z", "gamma", "degrees"), one, strict=True)))


def pvalue(law: Law, intervals: list[tuple[float, float]], tails: Alternative = "two-sided") -> float:
    return float(np.exp(log_pvalues(law, [known_set(intervals)], tails).best[0]))


def exact_log_mass(lower: float, upper: float, t: float, mean: float, degrees: float) -> float:
    """Return the log mass by quadrature with 40 digits over the angle whose sine is the distance from the mean."""
    with mpmath.workdps(40):
        radius = mpmath.sqrt(degrees + (mpmath.mpf(t) - mean) ** 2)
        ends = [mpmath.asin(min(max((mpmath.mpf(end) - mean) / radius, -1), 1)) for end in (lower, upper)]
        mass = mpmath.quad(lambda angle: mpmath.cos(angle) ** (degrees - 1), mpmath.linspace(*ends, 9))
        return float(mpmath.log(mass * radius ** (degrees - 1) / mpmath.mpf(degrees) ** (degrees / 2 - 1)))


@pytest.mark.parametrize(
    ("lower", "upper", "t", "mean", "degrees"),
    [
        (-1.0, 2.0, 0.5, 0.0, 12.0),
        (1.0, 1.0 + 1e-9, 0.5, 0.0, 7.3),
        (2.0, 3.0, 2.5, -4.0, 255.0),
        (3.0, 50.0, 3.0, 0.0, 9.0),
        (-50.0, 50.0, 3.0, 1.0, 4.0),
        (2.9, 3.1, 3.0, 30.0, 60.0),
        (-3.0, -2.0, 3.0, 0.0, 3.0),
        (0.0, 1.4, 1.0, 0.0, 1.5),
        (10.0, 11.0, 10.5, 0.0, 1000.0),
    ],
)
def test_masses_against_many_digits(lower: float, upper: float, t: float, mean: float, degrees: float) -> None:
    # The densities fall by up to e^60 here; a relative error of 1e-11 is some 1e5 roundings.
    found = float(log_student_mass(lower, upper, t, mean, degrees))
    assert found == pytest.approx(exact_log_mass(lower, upper, t, mean, degrees), abs=1e-11)


def test_outside_its_support_there_is_no_mass() -> None:
    # With t = 1, mean 0 and 3 degrees of freedom it ends at 2.
    assert log_student_mass(2.0, 5.0, 1.0, 0.0, 3.0) == -np.inf
    assert log_student_mass(1.9, 5.0, 1.0, 0.0, 3.0) == log_student_mass(1.9, 2.0, 1.0, 0.0, 3.0)
    assert log_density(2.1, 1.0, 0.0, 3.0) == -np.inf


@pytest.mark.parametrize("degrees", [1.0, 2.0, 3.7, 11.0, 256.0, 1e6])
@pytest.mark.parametrize("t", [0.3, -2.0, 7.0])
def test_without_selection_it_is_the_t_test(t: float, degrees: float) -> None:
    law = student(t, degrees)
    assert pvalue(law, WHOLE) == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-6)
    assert pvalue(law, WHOLE, "greater") == pytest.approx(stats.t.sf(t, degrees), rel=1e-6)
    assert pvalue(randomised(t, t + 0.3, 0.7, max(degrees, 3.0)), WHOLE) == pytest.approx(
        2 * stats.t.sf(abs(t), max(degrees, 3.0)), rel=1e-6
    )


@pytest.mark.parametrize("degrees", [2.5, 11.0, 300.0])
def test_interval_and_estimate_without_selection_are_those_of_the_t_test(degrees: float) -> None:
    t = 1.3
    reach = stats.t.ppf(0.975, degrees)
    for law in (student(t, degrees), randomised(t, 0.9, 1.0, degrees)):
        tested = [inference(law, known_set(WHOLE), 2.0)]
        (interval,) = confidence_intervals_of(tested, 0.95)
        assert tuple(interval) == pytest.approx((2 * (t - reach), 2 * (t + reach)), rel=1e-7)
        assert estimates_of(tested).best[0] == pytest.approx(2 * t, abs=1e-9)


SETS = [[(1.0, 2.5)], [(-4.0, -3.0), (1.9, 2.2)], [(-0.5, 0.4), (0.9, 30.0)]]


@pytest.mark.parametrize("intervals", SETS)
@pytest.mark.parametrize("tails", ["two-sided", "greater", "less", "equal-tailed"])
def test_many_degrees_of_freedom_give_the_law_with_a_known_error(
    intervals: list[tuple[float, float]], tails: Alternative
) -> None:
    t = 2.0
    known = TruncatedNormal(statistic=np.array([t]))
    # p differs by about (t^4 + 1) / (4 degrees) of itself, here 4e-9, in the tails of these sets by a few times that.
    assert pvalue(student(t, 1e9), intervals, tails) == pytest.approx(pvalue(known, intervals, tails), rel=1e-6)
    soft = RandomisedNormal(statistic=np.array([t]), observed_z=np.array([2.1]), gamma=np.array([0.6]))
    law = randomised(t, 2.1, 0.6, 1e9)
    assert pvalue(law, intervals, tails) == pytest.approx(pvalue(soft, intervals, tails), rel=1e-6)
    for one in (law, student(t, 1e9)):
        expected = pvalue(one, intervals, tails)
        assert type(one.with_known_error()) in (TruncatedNormal, RandomisedNormal)
        assert pvalue(one.with_known_error(), intervals, tails) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("intervals", SETS)
def test_little_added_noise_gives_the_law_without_it(intervals: list[tuple[float, float]]) -> None:
    t, degrees = 2.0, 14.0
    # The edges of the set are blurred by gamma: the masses change by about gamma times the density there.
    hard, soft = pvalue(student(t, degrees), intervals), pvalue(randomised(t, t, 1e-4, degrees), intervals)
    assert soft == pytest.approx(hard, abs=1e-4)


def test_masses_with_added_noise_against_quadrature() -> None:
    rng = np.random.default_rng(0)
    for _ in range(25):
        t, degrees, gamma = 2 * rng.normal(), np.exp(rng.uniform(2, 6)), np.exp(rng.uniform(-2, 1))
        left = t + rng.normal()
        right, mean = left + rng.exponential(), rng.normal()
        law = randomised(t, (left + right) / 2, gamma, degrees)
        found = law.log_masses(
            Strips.of(np.zeros(1, int), *np.array([[left], [right]]), mean=mean, lower=-abs(t), upper=abs(t))
        )
        # The trapezoidal rule on a grid of T; with both cut points on it, its error is of second order in the step.
        radius = np.sqrt(degrees + (t - mean) ** 2)
        for values, parts in zip(
            found, ([(mean - radius, -abs(t)), (abs(t), mean + radius)], [(-abs(t), abs(t))]), strict=True
        ):
            total = 0.0
            for start, end in parts:
                start, end = max(start, mean - radius), min(end, mean + radius)
                if start < end:
                    grid = np.linspace(start, end, 40_001)
                    scale = gamma * np.sqrt(np.maximum(1 + (t - grid) * (t + grid - 2 * mean) / degrees, 1e-300))
                    chance = stats.norm.cdf(right, grid, scale) - stats.norm.cdf(left, grid, scale)
                    total += np.trapezoid(np.exp(log_density(grid, t, mean, degrees)) * chance, grid)
            assert np.exp(values[0]) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("left", "right", "t", "mean", "gamma", "degrees"),
    [
        (1.0, 2.5, 2.0, 0.0, 0.5, 4.0),
        (3.0, np.inf, 3.2, 0.0, 0.5, 2.0),
        (1.0, 1.0 + 1e-7, 0.5, 1.5, 2.0, 7.3),
        (-3.0, -2.0, 1.0, -20.0, 1.0, 60.0),
        (9.0, 12.0, 1.0, 0.0, 1.0, 3.0),
        (1.9, 2.2, 2.0, 400.0, 0.3, 12.0),
    ],
)
def test_masses_with_added_noise_against_many_digits(
    left: float, right: float, t: float, mean: float, gamma: float, degrees: float
) -> None:
    """Quadrature with 18 digits over the angle whose sine is T - mean; 1e-9 is what the module promises."""
    with mpmath.workdps(18):
        radius = mpmath.sqrt(degrees + (mpmath.mpf(t) - mean) ** 2)

        def density(angle: mpmath.mpf) -> mpmath.mpf:
            scale = gamma * radius * mpmath.cos(angle) * mpmath.sqrt(2 / mpmath.mpf(degrees))
            start, end = ((mpmath.mpf(side) - mean - radius * mpmath.sin(angle)) / scale for side in (left, right))
            chance = mpmath.erfc(start) - mpmath.erfc(end) if start > 0 else mpmath.erfc(-end) - mpmath.erfc(-start)
            return mpmath.fabs(mpmath.cos(angle)) ** (degrees - 1) * chance

        observed = mpmath.asin((mpmath.mpf(t) - mean) / radius)
        # Finer and finer towards the ends of the range, where the integrand may change abruptly.
        shares = [mpmath.mpf(2) ** -k for k in (24, 16, 12, 9, 7, 5, 4, 3, 2, 1)]
        shares = [0, *shares, *(1 - share for share in reversed(shares[:-1])), 1]
        log_above, log_below = (
            mpmath.log(mpmath.quad(density, [start + (end - start) * share for share in shares]))
            for start, end in ((observed, mpmath.pi / 2), (-mpmath.pi / 2, observed))
        )
        expected = float(log_above - log_below)
    ends = (np.array([end]) for end in (left, right))
    above, below = randomised(t, t, gamma, degrees).log_masses(
        Strips.of(np.zeros(1, int), *ends, mean=mean, lower=-np.inf, upper=t)
    )
    assert above[0] - below[0] == pytest.approx(expected, abs=2e-9)


def test_probability_of_a_greater_statistic_rises_with_the_mean_for_any_set() -> None:
    """Every level has one mean: from three degrees of freedom on this is proven, from two on it is seen."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        t, gamma, degrees = 2.5 * rng.normal(), np.exp(rng.uniform(-3, 1)), np.exp(rng.uniform(np.log(2), 4))
        edges = np.sort(t + 10 ** rng.uniform(-2, 0.5) * rng.normal(size=2 * rng.integers(1, 5))).reshape(-1, 2)
        if rng.random() < 0.3:
            edges[-1, 1] = np.inf
        means = t + np.concatenate([-(10 ** np.linspace(6, -2, 13)), 10 ** np.linspace(-2, 6, 13)])
        mean, left = np.broadcast_arrays(means[:, None], edges[:, 0])
        strips = Strips.of(
            np.zeros(left.shape, int), left, edges[:, 1], mean=mean, lower=-np.inf, upper=np.full(left.shape, t)
        )
        above, below = randomised(t, t, gamma, degrees).log_masses(strips)
        sums = (np.logaddexp.reduce(part.reshape(left.shape), axis=1) for part in (above, below))
        assert np.all(np.diff(np.subtract(*sums)) > -1e-9)  # masses are accurate to 1e-9


@pytest.mark.parametrize("gamma", [None, 0.5])
def test_probability_of_a_greater_statistic_rises_with_the_mean(gamma: float | None) -> None:
    law = student(1.5, 5.0) if gamma is None else randomised(1.5, 1.8, gamma, 5.0)
    sets = [np.array([(-3.0, -2.0), (0.5, 1.6), (2.5, 9.0)])]
    levels = np.linspace(0.02, 0.98, 13)
    means = [mean_bounds(law, [known_set(sets[0])], [level])[0][0] for level in levels]
    assert np.all(np.diff(means) > 0)
    # Each is the mean that its level belongs to.
    for mean, level in zip(means, levels, strict=True):
        above, below = law.log_masses(
            Strips.of(np.zeros(3, int), *sets[0].T, mean=mean, lower=np.full(3, -np.inf), upper=np.full(3, 1.5))
        )
        assert np.exp(above).sum() / np.exp(np.logaddexp(above, below)).sum() == pytest.approx(level, abs=1e-9)


def drawn(rng: np.random.Generator, degrees: int, count: int, gamma: float) -> tuple[NDArray[np.float64], ...]:
    """Return differences, estimated standard errors and coordinates under the null hypothesis."""
    difference = rng.normal(size=count)
    error = np.sqrt(rng.chisquare(degrees, count) / degrees)
    return difference, error, difference + gamma * error * rng.normal(size=count)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_pvalues_are_uniform_though_the_error_is_estimated_and_the_statistic_is_selected(gamma: float) -> None:
    # The set in units of the pixels does not depend on the estimate, which has 4 degrees of freedom.
    edges = np.array([(-2.5, -1.2), (0.8, 1.1), (1.4, np.inf)])
    difference, error, z = drawn(np.random.default_rng(1), 4, 60_000, gamma)
    selected = np.flatnonzero(((z[:, None] > edges[:, 0]) & (z[:, None] < edges[:, 1])).any(axis=1))[:3000]
    t = difference[selected] / error[selected]
    sets = [known_set(edges / one) for one in error[selected]]
    degrees = np.full(len(t), 4.0)
    if gamma:
        law: Law = RandomisedStudent(
            statistic=t, observed_z=z[selected] / error[selected], gamma=np.full(len(t), gamma), degrees=degrees
        )
    else:
        law = TruncatedStudent(statistic=t, degrees=degrees)
    p = np.exp(log_pvalues(law, sets, "two-sided").best)
    # Of 3,000 uniform p-values the Kolmogorov-Smirnov test calls fewer than 1 in 1,000 samples uneven at this level.
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    # With the error taken as known, far too many are small: 3,000 x 0.01 = 30 +- 5.4 would be right.
    known = np.exp(log_pvalues(law.with_known_error(), sets, "two-sided").best)
    assert (p <= 0.01).sum() < 30 + 4 * 5.4
    assert (known <= 0.01).sum() > 1.5 * (p <= 0.01).sum()


@pytest.mark.parametrize(
    ("degrees", "edges"), [(2, [(3.0, np.inf)]), (2, [(1.0, 2.0)]), (8, [(-4.0, -1.0), (2.0, 3.0)])]
)
def test_noise_that_is_added_in_proportion_to_the_estimate_leaves_levels_exact(
    degrees: int, edges: list[tuple[float, float]]
) -> None:
    """Of p-values of all alternatives and of the estimate's median: all are functions of P(T >= t) at the true mean.

    ``benchmarks/randomised_student.py`` has the levels from more draws, and from an image of several values.
    """
    gamma, theta, count = 0.5, 1.0, 2_000
    difference, error, z = drawn(np.random.default_rng(2), degrees, 100_000, gamma)
    z += theta
    rows = np.flatnonzero(np.any([(z > low) & (z < high) for low, high in edges], axis=0))[:count]
    error, t = error[rows], (theta + difference[rows]) / error[rows]
    law = RandomisedStudent(
        statistic=t, observed_z=z[rows] / error, gamma=np.full(count, gamma), degrees=np.full(count, float(degrees))
    )
    image, ends = np.repeat(np.arange(count), len(edges)), np.tile(edges, (count, 1))
    ends /= error[image, None]
    masses = law.log_masses(Strips.of(image, *ends.T, mean=theta / error[image], lower=-np.inf, upper=t[image]))
    above, below = (log_sums(image, mass, count) for mass in masses)
    # Fewer than 1 in 1,000 samples of uniform numbers are called uneven.
    assert stats.kstest(expit(above - below), "uniform").pvalue > 1e-3


def test_a_factor_on_the_noise_leaves_the_degrees_of_freedom() -> None:
    factors = np.array([0.5, 2.0])
    for law in (student(2.0, 7.0), randomised(2.0, 2.2, 0.5, 7.0)):
        scaled = law.scaled(factors)
        assert scaled.statistic.tolist() == [4.0, 1.0]
        assert scaled.degrees_of_freedom.tolist() == [7.0, 7.0]


def test_recorded_laws() -> None:
    for law in (student(2.0, 7.0), randomised(2.0, 2.2, 0.5, 7.0)):
        values = law_values(law)
        again = law_from_values(2.0, values)
        assert type(again) is type(law)
        assert law_values(again) == values  # type: ignore[arg-type]
