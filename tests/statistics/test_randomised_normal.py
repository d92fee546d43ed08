"""The law of randomised selection against many digits, and against the paper's law as gamma goes to zero."""

from __future__ import annotations

from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import expit, log_ndtr

from attentest.statistics.inference import confidence_intervals_of, estimates_of
from attentest.statistics.law import Law, Strips
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import RandomisedNormal, RandomisedStudent, TruncatedNormal
from exact_normal import exact_mass
from truncated import inference, known_set

FIRST = np.zeros(1, dtype=np.int64)


def a_law(t: float, z: float, gamma: float) -> RandomisedNormal:
    return RandomisedNormal(statistic=np.array([t]), observed_z=np.array([z]), gamma=np.array([gamma]))


def exact_log_mass(
    law: RandomisedNormal, ends: tuple[float, float], mean: float, lower: float, upper: float
) -> mpmath.mpf:
    """Log of the integral over z of its density, relative to that at the observed z, times P(lower <= T <= upper)."""
    with mpmath.workdps(30):
        gamma, observed = mpmath.mpf(law.gamma[0]), mpmath.mpf(law.observed_z[0])
        variance = 1 + gamma**2
        scale = gamma / mpmath.sqrt(variance)

        def density(z: mpmath.mpf) -> mpmath.mpf:
            centre = mean + (z - mean) / variance
            low, high = (lower - centre) / scale, (upper - centre) / scale
            return mpmath.exp((observed - z) * (z + observed - 2 * mean) / (2 * variance)) * exact_mass(low, high)

        # Panels narrow enough for the integrand to be smooth, wherever in the interval it is.
        panels = int(np.ceil((ends[1] - ends[0]) / (2 * min(law.gamma[0], 1.0)))) + 1
        return mpmath.log(mpmath.quad(density, [mpmath.mpf(e) for e in np.linspace(*ends, panels + 1)], maxdegree=5))


CASES = [
    (0.5, 2.0, 2.3, 0.0, 1.0, 3.5, -0.6828441387864774, 1.3322014456755722),
    (0.5, -1.0, 0.2, 4.0, -0.5, 0.7, -0.16886368244297734, -0.5833257331072415),
    (1.0, 3.0, 1.0, -2.0, -6.0, 6.0, 1.660369738927812, 3.3426224943125113),
    (0.01, 2.0, 2.005, 0.0, 1.99, 2.03, -3.558711566169183, -4.49783424085905),
    (0.01, 1.0, 1.01, 3.0, 0.9, 1.011, -4.451017666307716, -2.4310980151649644),
    (10.0, 2.0, 15.0, 0.0, -20.0, 21.0, 1.2028054748911015, 4.251520225494136),
    (10.0, 4.0, -30.0, 5.0, -31.0, -29.0, 0.41661104983943836, -0.6538449657808294),
    (0.3, 300.0, 300.2, 0.0, 299.0, 301.0, -3666.193674589768, 324.2205843162826),
    (1.0, 500.0, 501.0, 0.0, 500.999, 501.001, -62263.249587169725, -6.204171596247178),
    (0.5, 250.0, 249.5, 240.0, 249.0, 249.500001, -18.35812063830672, 1.6873051001559036),
    (0.1, 0.02, 0.1, 0.0, -1.0, 1.0, 0.5198806969259274, -3.209016829281023),
]
"""Gamma, t, z, the mean and an interval of z, and the exact logs of the masses with |T| above |t| and below it."""

MASSES = ("gamma", "t", "z", "mean", "left", "right", "beyond", "between")


def rounding(t: float, z: float, mean: float) -> float:
    """Rounding of z alone is worth this much in the log of a density so far out."""
    return 1e-13 * max(1.0, t**2, z**2, mean**2) + 1e-12


@pytest.mark.parametrize(MASSES, CASES)
def test_masses_against_many_digits(
    gamma: float, t: float, z: float, mean: float, left: float, right: float, beyond: float, between: float
) -> None:
    strips = Strips.of(FIRST, np.array([left]), np.array([right]), mean=mean, lower=-abs(t), upper=abs(t))
    extreme, ordinary = (float(m[0]) for m in a_law(t, z, gamma).log_masses(strips))
    assert abs(ordinary - between) < rounding(t, z, mean)
    assert abs(extreme - beyond) < rounding(t, z, mean)


@pytest.mark.slow
@pytest.mark.parametrize(MASSES, CASES)
def test_the_exact_masses_are_those_of_many_digits(
    gamma: float, t: float, z: float, mean: float, left: float, right: float, beyond: float, between: float
) -> None:
    law, far = a_law(t, z, gamma), 60 * max(1.0, gamma)
    assert between == float(exact_log_mass(law, (left, right), mean, -abs(t), abs(t)))
    below = exact_log_mass(law, (left, right), mean, -abs(t) - far, -abs(t))
    above = exact_log_mass(law, (left, right), mean, abs(t), abs(t) + far)
    assert beyond == float(mpmath.log(mpmath.exp(below) + mpmath.exp(above)))


def test_the_whole_axis_is_the_bivariate_normal() -> None:
    law = a_law(1.3, 2.0, 0.8)
    whole = np.array([-np.inf]), np.array([np.inf])
    extreme, ordinary = law.log_masses(Strips.of(FIRST, *whole, mean=0.4, lower=-1.3, upper=1.3))
    share = np.exp(extreme - np.logaddexp(extreme, ordinary))
    assert share == pytest.approx(stats.norm.cdf(-1.3, 0.4) + stats.norm.sf(1.3, 0.4), rel=1e-12)
    quadrant, rest = law.log_masses(
        Strips.of(FIRST, np.array([1.0]), np.array([np.inf]), mean=0.0, lower=-np.inf, upper=0.5)
    )
    both = stats.multivariate_normal.cdf([-0.5, -1.0], cov=[[1, 1], [1, 1 + 0.8**2]])
    assert np.exp(quadrant - np.logaddexp(quadrant, rest)) == pytest.approx(
        both / stats.norm.sf(1.0, scale=np.hypot(1, 0.8)), rel=1e-6
    )


def test_masses_of_parts_add_up() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        gamma, t = 10 ** rng.uniform(-2, 1), rng.normal() * 10 ** rng.uniform(-1, 2.5)
        law = a_law(t, t + gamma * rng.normal(), gamma)
        mean = float(rng.choice([0.0, t, t + 3 * rng.normal()]))
        edges = np.sort(law.observed_z[0] + rng.normal(size=5) * 10 ** rng.uniform(-3, 1, size=5))
        edges = np.r_[-np.inf, edges, np.inf]
        asked = {"mean": mean, "lower": -abs(t), "upper": abs(t)}
        image = np.zeros(6, dtype=np.int64)
        parts = law.log_masses(Strips.of(image, edges[:-1], edges[1:], **asked))
        whole = law.log_masses(Strips.of(FIRST, edges[:1], edges[-1:], **asked))
        for part, all_ in zip(parts, whole, strict=True):
            assert np.logaddexp.reduce(part) == pytest.approx(all_[0], rel=1e-12, abs=1e-10)


def figures(law: Law, intervals: NDArray[np.float64]) -> NDArray[np.float64]:
    """P of the three alternatives, estimate and ends of the interval."""
    known = [known_set(intervals)]
    p = [np.exp(log_pvalues(law, known, alternative).best[0]) for alternative in ("two-sided", "greater", "less")]
    tested = [inference(law, *known)]
    return np.array([*p, estimates_of(tested).best[0], *confidence_intervals_of(tested, 0.9)[0]])


def test_without_noise_it_is_the_truncated_normal() -> None:
    intervals = np.array([[-2.0, -1.4], [0.8, 2.6]])
    hard = figures(TruncatedNormal(statistic=np.array([1.9])), intervals)
    distances = [np.abs(figures(a_law(1.9, 1.9, gamma), intervals) - hard).max() for gamma in (0.03, 0.01, 0.003)]
    assert distances[0] < 0.1
    assert distances[1] < distances[0] / 2
    assert distances[2] < distances[1] / 2


def test_much_noise_leaves_a_plain_z_test() -> None:
    found = figures(a_law(1.9, -4.0, 1000.0), np.array([[-4.5, -3.0]]))
    plain = [2 * stats.norm.sf(1.9), stats.norm.sf(1.9), stats.norm.cdf(1.9), 1.9, 1.9 - 1.6448536, 1.9 + 1.6448536]
    assert found == pytest.approx(plain, abs=0.01)


@pytest.mark.parametrize("gamma", [0.1, 0.3, 1.0, 3.0])
def test_no_interval_is_longer_than_its_bound(gamma: float) -> None:
    rng = np.random.default_rng(1)
    bound = float(a_law(0.0, 0.0, gamma).interval_bound[0])
    assert bound == pytest.approx(np.sqrt(1 + gamma**-2))
    longest = 0.0
    for width in (1e-9, 1e-3, 0.1, 1.0, 5.0):
        for place in (0.001, 0.5, 0.999):
            t = float(rng.normal() * 2)
            z = t + gamma * float(rng.normal())
            law = a_law(t, z, gamma)
            known = known_set(np.array([[z - place * width, z + (1 - place) * width]]))
            low, high = confidence_intervals_of([inference(law, known)], 0.95)[0]
            longest = max(longest, (high - low) / (2 * stats.norm.isf(0.025)))
    assert 0.9 * bound < longest < bound * (1 + 1e-9)


@pytest.mark.parametrize(("lower", "width"), [(0.0, 1e-17), (2.0, 2.0**-51), (-30.0, 2.0**-47)])
def test_a_range_of_the_statistic_of_a_rounding_error(lower: float, width: float) -> None:
    """Its mass is the density of T at its place, times its width and the probability of the interval of z there."""
    law = a_law(3.0, 3.2, 1.0)
    left, right = np.array([2.5]), np.array([4.0])
    extreme, ordinary = law.log_masses(Strips.of(FIRST, left, right, mean=0.0, lower=lower, upper=lower + width))
    given = float(mpmath.log(exact_mass(left[0], right[0], lower)))
    expected = stats.norm.logpdf(lower) + np.log(width) + given - stats.norm.logpdf(3.2, scale=np.sqrt(2.0))
    assert ordinary[0] == pytest.approx(expected, rel=1e-13)
    assert np.isfinite(extreme[0])


class DenseSum(NamedTuple):
    """A log mass and the mean of T there, by Gauss-Legendre quadrature on many panels."""

    log_mass: float
    mean: float


def dense_sum(
    law: RandomisedNormal, ends: tuple[float, float], mean: float, lower: float = -np.inf, upper: float = np.inf
) -> DenseSum:
    """Integrate over z with T in a range, wherever the integrand, which is log-concave, is not negligible."""
    variance = 1 + law.gamma[0] ** 2
    deviation = law.gamma[0] / np.sqrt(variance)

    def logs(z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        centre = mean + (z - mean) / variance
        low, high = (lower - centre) / deviation, (upper - centre) / deviation
        near, far = np.where(low + high < 0, -high, low), np.where(low + high < 0, -low, high)
        log_chance = log_ndtr(-near) + np.log1p(-np.exp(log_ndtr(-far) - log_ndtr(-near)))
        log_density = -(z - law.z_obs[0]) * (z + law.z_obs[0] - 2 * mean) / (2 * variance)
        at_low, at_high = (np.exp(-(end**2) / 2 - log_chance) / np.sqrt(2 * np.pi) for end in (low, high))
        return log_density + log_chance, centre + deviation * (at_low - at_high)

    farthest = 60 * np.sqrt(variance) + 2 * max(abs(x) for x in (mean, lower, upper, *ends) if np.isfinite(x))
    low, high = max(ends[0], -farthest), min(ends[1], farthest)
    for _ in range(20):
        grid = np.linspace(low, high, 101)
        there = logs(grid)[0]
        matters = np.flatnonzero(there > there.max() - 60)
        low, high = grid[max(matters[0] - 1, 0)], grid[min(matters[-1] + 1, 100)]
    places, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(low, high, 401)
    half = np.diff(edges)[:, None] / 2
    log_values, means = logs(edges[:-1, None] + half * (1 + places))
    values = half * weights * np.exp(log_values - log_values.max())
    return DenseSum(float(log_values.max() + np.log(values.sum())), float((values * means).sum() / values.sum()))


@pytest.mark.parametrize("gamma", [0.02, 0.4, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("start", [0.0, 2.0, 5.0, 7.0, 13.0, 40.0])
def test_tails_against_a_dense_sum(gamma: float, start: float) -> None:
    """Intervals without an end, on both sides, with T on both sides of t and in a range around zero."""
    law, t = a_law(0.8, 0.3, gamma), 0.8
    for sign in (1.0, -1.0):
        first = sign * start * float(law.spread[0])
        ends = (first, np.inf) if sign > 0 else (-np.inf, first)
        left, right = np.array(ends[:1]), np.array(ends[1:])
        above, below = dense_sum(law, ends, 0.0, t).log_mass, dense_sum(law, ends, 0.0, -np.inf, t).log_mass
        between, lowest = dense_sum(law, ends, 0.0, -t, t).log_mass, dense_sum(law, ends, 0.0, -np.inf, -t).log_mass
        expected = above, below, np.logaddexp(above, lowest), between
        found = (
            *law.log_masses(Strips.of(FIRST, left, right, mean=0.0, lower=-np.inf, upper=t)),
            *law.log_masses(Strips.of(FIRST, left, right, mean=0.0, lower=-t, upper=t)),
        )
        np.testing.assert_allclose(np.concatenate(found), expected, rtol=4e-15, atol=1e-12)


def test_many_masses_are_as_one_by_one() -> None:
    """Many are computed by other rules than a few, and some of them as differences."""
    rng = np.random.default_rng(3)
    count = 3000
    gamma = 10 ** rng.uniform(-2, 1.5, count)
    t = rng.normal(scale=3.0, size=count)
    law = RandomisedNormal(statistic=t, observed_z=t + gamma * rng.normal(size=count), gamma=gamma)
    left = law.z_obs + law.spread * rng.normal(size=count) * 10 ** rng.uniform(-4, 1, count)
    right = left + law.spread * 10 ** rng.uniform(-6, 1.3, count)
    kind = rng.random(count)
    left, right = np.where(kind < 0.1, -np.inf, left), np.where(kind > 0.8, np.inf, right)
    right[:5] = left[:5]
    mean = np.where(rng.random(count) < 0.3, 0.0, t + 4 * rng.normal(size=count))
    one_sided = rng.random(count) < 0.5
    limits = {"lower": np.where(one_sided, -np.inf, -np.abs(t)), "upper": np.where(one_sided, t, np.abs(t))}
    together = np.array(law.log_masses(Strips.of(np.arange(count), left, right, mean=mean, **limits)))
    for i in range(0, count, 7):
        row = np.array([i])
        own = {name: values[row] for name, values in limits.items()}
        alone = np.array(law.log_masses(Strips.of(row, left[row], right[row], mean=mean[row], **own)))
        np.testing.assert_allclose(together[:, i : i + 1], alone, rtol=1e-13, atol=2e-12)
    assert np.isneginf(together[:, :5]).all()
    for part, extreme in ((0, True), (1, False)):
        strips = Strips.of(np.arange(count), left, right, mean=mean, **limits)
        alone = law.log_masses_of_part(strips, np.full(count, extreme))
        np.testing.assert_allclose(alone, together[part], rtol=1e-13, atol=2e-12)
    some = left < right
    for above in (True, False):
        rows = np.flatnonzero(one_sided & some)
        strips = law.strips_at_statistic(rows, left[rows], right[rows], mean[rows])
        found, _ = law.log_masses_on_side(strips, np.full(len(rows), above))
        np.testing.assert_allclose(found, together[0 if above else 1, rows], rtol=1e-13, atol=2e-12)


@pytest.mark.parametrize(
    ("gamma", "t", "z", "mean", "left", "right"),
    [
        (1.0, 1.0, 1.5, 0.0, 0.5, 2.0),
        (1.0, 1.0, 1.5, -1.0, -np.inf, np.inf),
        (1.0, 1.0, 1.5, 2.0, 20.0, np.inf),
        (0.5, -0.3, 0.0, 3.0, -np.inf, -4.0),
        (1.0, 2.0, 1.5, 0.0, 1.5, 1.5 + 1e-9),
        (0.01, 2.0, 2.005, 0.0, 1.99, 2.03),
        (0.01, 2.0, 2.0, 4.0, 1.0, 1.5),
        (30.0, 2.0, 15.0, 0.0, -20.0, 21.0),
        (1.0, 40.0, 40.5, 0.0, 39.0, 41.0),
        (1.0, -40.0, -39.0, -38.0, -np.inf, -39.5),
        (0.3, 40.0, 40.2, 41.0, 40.0, np.inf),
    ],
)
def test_slopes_against_a_dense_sum(gamma: float, t: float, z: float, mean: float, left: float, right: float) -> None:
    """The derivative of a log mass in the mean of T is the mean of T - t there, up to a term that all masses share."""
    law = a_law(t, z, gamma)
    for above in (True, False):
        strips = law.strips_at_statistic(FIRST, np.array([left]), np.array([right]), np.array([mean]))
        log_mass, slope = law.log_masses_on_side(strips, np.array([above]))
        expected = dense_sum(law, (left, right), mean, *((t, np.inf) if above else (-np.inf, t)))
        assert log_mass[0] == pytest.approx(expected.log_mass, rel=1e-13, abs=1e-12)
        assert slope[0] == pytest.approx(expected.mean - t, rel=1e-7, abs=1e-7), above


def test_slopes_of_narrow_intervals_are_those_of_a_point() -> None:
    """Where z is known T is normal, and its mean beyond t is a Mills ratio."""
    for gamma, width in ((1.0, 1e-13), (0.5, 1e-15), (3.0, 1e-14)):
        law = a_law(1.0, 2.0, gamma)
        deviation = gamma / np.hypot(1.0, gamma)
        given = stats.norm(0.4 + (2.0 - 0.4) / (1 + gamma**2), deviation)
        expected = given.mean() - 1.0 + deviation**2 * given.pdf(1.0) / given.sf(1.0)
        strips = law.strips_at_statistic(FIRST, np.array([2.0]), np.array([2.0 + width]), np.array([0.4]))
        _, slope = law.log_masses_on_side(strips, np.array([True]))
        assert slope[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("degrees", [None, 12.0])
@pytest.mark.parametrize("gamma", [1e-3, 0.3, 1.0, 30.0])
def test_quantiles_of_extreme_and_ordinary_masses(gamma: float, degrees: float | None) -> None:
    rng = np.random.default_rng(4)
    count = 200 if degrees is None else 40
    t = rng.normal(scale=2.0, size=count)
    columns = {"statistic": t, "observed_z": t + gamma * rng.normal(size=count), "gamma": np.full(count, gamma)}
    law: Law = (
        RandomisedNormal(**columns)
        if degrees is None
        else RandomisedStudent(**columns, degrees=np.full(count, degrees))
    )
    width = law.spread * 10 ** rng.uniform(-5, 1, count)
    left = law.z_obs - rng.random(count) * width
    right = left + width
    share, extreme = rng.random(count), rng.random(count) < 0.5
    share[:4] = 0.0, 1.0, 1e-12, 1 - 1e-12
    image = np.arange(count)
    limits = {"mean": np.where(rng.random(count) < 0.5, 0.0, t + 1), "lower": -np.abs(t), "upper": np.abs(t)}

    def mass_before(end: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(np.where(extreme, *law.log_masses(Strips.of(image, left, end, **limits))) - whole)

    whole = np.where(extreme, *law.log_masses(Strips.of(image, left, right, **limits)))
    z = law.quantiles(Strips.of(image, left, right, **limits), share, extreme)
    assert np.all((left <= z) & (z <= right))
    off = 2e-7 * width  # what a place may be off
    before, after = mass_before(np.maximum(z - off, left)), mass_before(np.minimum(z + off, right))
    assert np.all((before - 2e-8 <= share) & (share <= after + 2e-8))


def test_power_of_the_two_two_sided_tests_on_the_other_side_of_a_one_sided_set() -> None:
    """The numbers of the table in docs/statistics.md: Z = [1, inf), gamma 0.5, a difference of -2 standard errors."""
    law = a_law(1.0, 1.0, 0.5)

    def probability(theta: float, lower: float, upper: float) -> float:
        ends = np.array([1.0]), np.array([np.inf])
        extreme, ordinary = law.log_masses(Strips.of(FIRST, *ends, mean=theta, lower=lower, upper=upper))
        return float(expit(extreme[0] - ordinary[0]))

    cut = optimize.brentq(lambda cut: probability(0.0, -cut, cut) - 0.05, 1e-6, 20.0)
    low, high = (
        optimize.brentq(lambda cut, side=side: probability(0.0, *side(cut)) - 0.025, -20.0, 20.0)
        for side in (lambda cut: (cut, np.inf), lambda cut: (-np.inf, cut))
    )
    assert probability(-2.0, -cut, cut) == pytest.approx(0.002, abs=5e-4)
    assert probability(-2.0, low, high) == pytest.approx(0.179, abs=5e-4)
    # Data fission: T - (z - T) / gamma^2 is independent of z, with the variance 1 + 1 / gamma^2.
    fission = stats.norm(-2.0, np.sqrt(5.0))
    beyond = 1.96 * np.sqrt(5.0)
    assert fission.cdf(-beyond) + fission.sf(beyond) == pytest.approx(0.145, abs=5e-4)
