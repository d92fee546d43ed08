"""The law of randomised selection against many digits, and against the paper's law as gamma goes to zero."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attentest.statistics.confidence_interval import confidence_intervals, estimates
from attentest.statistics.law import Law
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.randomised_normal import RandomisedNormal
from attentest.statistics.truncated_normal import TruncatedNormal
from exact_normal import exact_mass
from truncated import known_set

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


@pytest.mark.parametrize(
    ("gamma", "t", "z", "mean", "left", "right"),
    [
        (0.5, 2.0, 2.3, 0.0, 1.0, 3.5),
        (0.5, -1.0, 0.2, 4.0, -0.5, 0.7),
        (1.0, 3.0, 1.0, -2.0, -6.0, 6.0),
        (0.01, 2.0, 2.005, 0.0, 1.99, 2.03),
        (0.01, 1.0, 1.01, 3.0, 0.9, 1.011),
        (10.0, 2.0, 15.0, 0.0, -20.0, 21.0),
        (10.0, 4.0, -30.0, 5.0, -31.0, -29.0),
        (0.3, 300.0, 300.2, 0.0, 299.0, 301.0),
        (1.0, 500.0, 501.0, 0.0, 500.999, 501.001),
        (0.5, 250.0, 249.5, 240.0, 249.0, 249.500001),
        (0.1, 0.02, 0.1, 0.0, -1.0, 1.0),
    ],
)
def test_masses_against_many_digits(gamma: float, t: float, z: float, mean: float, left: float, right: float) -> None:
    law = a_law(t, z, gamma)
    lower, upper = -abs(t), abs(t)
    ends = np.array([left]), np.array([right])
    extreme, ordinary = (float(m[0]) for m in law.log_masses(FIRST, *ends, mean=mean, lower=lower, upper=upper))
    # Rounding of z alone is worth this much in the log of a density so far out.
    tolerance = 1e-13 * max(1.0, t**2, z**2, mean**2) + 1e-12
    between = exact_log_mass(law, (left, right), mean, lower, upper)
    assert abs(ordinary - between) < tolerance
    far = 60 * max(1.0, gamma)
    below = exact_log_mass(law, (left, right), mean, lower - far, lower)
    above = exact_log_mass(law, (left, right), mean, upper, upper + far)
    assert abs(extreme - mpmath.log(mpmath.exp(below) + mpmath.exp(above))) < tolerance


def test_the_whole_axis_is_the_bivariate_normal() -> None:
    law = a_law(1.3, 2.0, 0.8)
    whole = np.array([-np.inf]), np.array([np.inf])
    extreme, ordinary = law.log_masses(FIRST, *whole, mean=0.4, lower=-1.3, upper=1.3)
    share = np.exp(extreme - np.logaddexp(extreme, ordinary))
    assert share == pytest.approx(stats.norm.cdf(-1.3, 0.4) + stats.norm.sf(1.3, 0.4), rel=1e-12)
    quadrant, rest = law.log_masses(FIRST, np.array([1.0]), np.array([np.inf]), mean=0.0, lower=-np.inf, upper=0.5)
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
        parts = law.log_masses(image, edges[:-1], edges[1:], **asked)
        whole = law.log_masses(FIRST, edges[:1], edges[-1:], **asked)
        for part, all_ in zip(parts, whole, strict=True):
            assert np.logaddexp.reduce(part) == pytest.approx(all_[0], rel=1e-12, abs=1e-10)


def figures(law: Law, intervals: NDArray[np.float64]) -> NDArray[np.float64]:
    """P of the three alternatives, estimate and ends of the interval."""
    known = [known_set(intervals)]
    p = [np.exp(log_pvalues(law, known, alternative).best[0]) for alternative in ("two-sided", "greater", "less")]
    interval = confidence_intervals(law, known, np.ones(1), ["two-sided"], 0.9)[0]
    return np.array([*p, estimates(law, known, np.ones(1)).best[0], *interval])


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
            known = [known_set(np.array([[z - place * width, z + (1 - place) * width]]))]
            low, high = confidence_intervals(law, known, np.ones(1), ["two-sided"], 0.95)[0]
            longest = max(longest, (high - low) / (2 * stats.norm.isf(0.025)))
    assert 0.9 * bound < longest < bound * (1 + 1e-9)


def test_ends_that_rounding_makes_one_have_nothing_between_them() -> None:
    ends = np.array([2.5]), np.array([4.0])
    extreme, ordinary = a_law(3.0, 3.2, 1.0).log_masses(np.zeros(1, int), *ends, mean=0.0, lower=0.0, upper=1e-17)
    assert np.isneginf(ordinary[0])
    assert np.isfinite(extreme[0])
