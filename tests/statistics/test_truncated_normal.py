from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from attentest.errors import InputError
from attentest.statistics.interval_mass import log_mass, probability
from attentest.statistics.law import Law, Strips
from attentest.statistics.selection_laws import RandomisedNormal, TruncatedNormal
from attentest.statistics.truncation_set import union
from exact_normal import exact_log_share, exact_mass
from truncated import bounds_on_log_p, log_pvalue

RELATIVE_ERROR = 1e-10


def exact_log_pvalue(z: float, intervals: np.ndarray, alternative: str = "two-sided") -> mpmath.mpf:
    beyond = {
        "greater": [(z, np.inf)],
        "less": [(-np.inf, z)],
        "two-sided": [(-np.inf, -abs(z)), (abs(z), np.inf)],
    }[alternative]
    parts = [
        (max(low, a), min(high, b)) for low, high in intervals.tolist() for a, b in beyond if max(low, a) < min(high, b)
    ]
    return exact_log_share(np.array(parts), intervals)


def scenario(name: str, z: float) -> np.ndarray:
    rng = np.random.default_rng(7)
    if name == "narrow":
        return np.array([[z - 1e-12, z + 1e-12]])
    if name == "narrow and its mirror image":
        return union([[z - 1e-12, z + 3e-12]], [[-z - 2e-12, -z + 2e-12]])
    if name == "one-sided":
        return np.array([[z - 0.3, z + 0.2]])
    if name == "ray":
        return np.array([[z - 1e-3, np.inf]])
    if name == "line":
        return np.array([[-np.inf, np.inf]])
    if name == "hundreds":
        ends = np.sort(rng.uniform(-z - 3, z + 3, 800)).reshape(-1, 2)
        return union(ends, [[z - 1e-7, z + 1e-7]])
    assert name == "hundreds of narrow ones"
    starts = np.sort(rng.uniform(-z - 2, z + 2, 300))
    return union(np.column_stack([starts, starts + 1e-9]), [[z - 1e-12, z + 1e-12]])


SCENARIOS = (
    "narrow",
    "narrow and its mirror image",
    "one-sided",
    "ray",
    "line",
    "hundreds",
    "hundreds of narrow ones",
)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("z", [1e-12, 1e-5, 0.3, 1.0, 5.0, 37.0, 100.0, 500.0])
def test_pvalue_agrees_with_fifty_digits(name: str, z: float) -> None:
    intervals = scenario(name, z)
    exact = exact_log_pvalue(z, intervals)
    ours = log_pvalue(z, intervals)
    # The relative error of p is the absolute error of log p; below 1e-290 the log itself is what counts.
    allowed = RELATIVE_ERROR if exact > np.log(1e-290) else 1e-13 * abs(float(exact))
    assert abs(float(exact - mpmath.mpf(ours))) < allowed


@pytest.mark.parametrize("alternative", ["greater", "less"])
@pytest.mark.parametrize("z", [-5.0, -1e-6, 0.7, 40.0])
def test_one_sided_pvalues_agree_with_fifty_digits(alternative: str, z: float) -> None:
    intervals = union([[z - 1e-6, z + 2e-6]], [[-3, -2.5]], [[z + 1, z + 1.5]], [[z - 2, z - 1.7]])
    exact = exact_log_pvalue(z, intervals, alternative)
    assert abs(float(exact - mpmath.mpf(log_pvalue(z, intervals, alternative)))) < RELATIVE_ERROR


@settings(max_examples=120, deadline=None)
@given(
    start=st.floats(-500, 500),
    exponent=st.floats(-12, 2),
    mean=st.sampled_from([0.0, 0.0, 3.0, -200.0]),
)
def test_mass_of_any_interval_agrees_with_fifty_digits(start: float, exponent: float, mean: float) -> None:
    end = start + 10.0**exponent
    if not end > start:
        return
    exact = mpmath.log(exact_mass(start, end, mean))
    # A rounding of start - mean by half a unit in the last place moves the log density by as much times itself.
    rounding = 1e-15 * max(1.0, abs(start - mean), abs(end - mean)) ** 2
    assert abs(float(exact - float(log_mass(start, end, mean)))) < rounding + 1e-13


def test_whole_line_gives_the_naive_pvalue() -> None:
    whole = np.array([[-np.inf, np.inf]])
    assert np.exp(log_pvalue(1.96, whole)) == pytest.approx(2 * stats.norm.sf(1.96), rel=1e-14)
    assert np.exp(log_pvalue(1.96, whole, "greater")) == pytest.approx(stats.norm.sf(1.96), rel=1e-14)
    assert np.exp(log_pvalue(1.96, whole, "less")) == pytest.approx(stats.norm.cdf(1.96), rel=1e-14)


def test_symmetry_under_reflection() -> None:
    intervals = union([[-2, -1]], [[0.5, 4.0]])
    mirrored = union(-intervals[:, ::-1])
    assert log_pvalue(1.5, intervals) == pytest.approx(log_pvalue(-1.5, mirrored), rel=1e-14)
    assert log_pvalue(1.5, intervals, "greater") == pytest.approx(log_pvalue(-1.5, mirrored, "less"), rel=1e-14)


@pytest.mark.parametrize("mean", [-30.0, -1.0, 0.0, 2.5, 45.0, 1e6])
def test_masses_relative_to_a_point_lose_nothing_however_far_the_mean_is(mean: float) -> None:
    """The log of the ratio of two masses next to a point, both relative to the density there, with fifty digits."""
    point, left, right = 2.5, (2.4, 2.5), (2.5, 2.5 + 1e-3)
    ours = np.diff([float(log_mass(*ends, mean, relative_to=point)) for ends in (left, right)])[0]
    with mpmath.workdps(80):
        exact = mpmath.log(exact_mass(*right, mean)) - mpmath.log(exact_mass(*left, mean))
        density = mpmath.exp(-((mpmath.mpf(point) - mpmath.mpf(mean)) ** 2) / 2) / mpmath.sqrt(2 * mpmath.pi)
        alone = mpmath.log(exact_mass(*right, mean) / density)
    assert ours == pytest.approx(float(exact), rel=1e-9)
    assert float(log_mass(*right, mean, relative_to=point)) == pytest.approx(float(alone), rel=1e-9)


def test_bounds_enclose_every_set_between() -> None:
    rng = np.random.default_rng(3)
    certain, possible = union([[1.0, 2.0]], [[-3, -2.5]]), union([[0.2, 2.6]], [[-4, -1]])
    lower, upper = bounds_on_log_p(1.5, certain, possible)
    ends = rng.uniform([0.2, 2.0, -4.0], [1.0, 2.6, -3.0], (200, 3))
    inside = [log_pvalue(1.5, union(certain, [[a, 1]], [[2, b]], [[-4, c]])) for a, b, c in ends]
    assert lower < min(inside) < max(inside) < upper


def test_an_empty_interval_weighs_nothing_and_an_empty_set_is_refused() -> None:
    assert log_mass(1.0, 1.0) == -np.inf
    with pytest.raises(InputError, match="no mass"):
        log_pvalue(0.0, np.empty((0, 2)))
    with pytest.raises(InputError, match="alternative must be"):
        log_pvalue(0.0, np.array([[-1.0, 1.0]]), "bigger")  # type: ignore[arg-type]


def test_probability_never_underflows_to_zero() -> None:
    assert 0 < probability(-1e6) < 1e-300
    assert probability(1e-17) == 1.0


T = np.array([0.4])


@pytest.mark.parametrize(
    "law", [TruncatedNormal(statistic=T), RandomisedNormal(statistic=T, observed_z=T, gamma=np.array([0.5]))]
)
def test_slopes_of_masses_are_their_derivatives_in_the_mean(law: Law) -> None:
    """Up to a term that all masses share: so differences between intervals are compared."""
    left = np.array([-np.inf, -1.0, -0.3, 0.4, 0.401, 2.0, 3.0])
    right = np.array([-2.0, -0.5, 0.4, 0.6, 0.402, 2.5, np.inf])
    above, image = left >= 0.4, np.zeros(7, dtype=np.int64)

    def masses_and_slopes(mean: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return law.log_masses_on_side(law.strips_at_statistic(image, left, right, np.full(7, mean)), above)

    for mean in (-1.5, 0.4, 2.2):
        slope = masses_and_slopes(mean)[1]
        derivative = (masses_and_slopes(mean + 1e-4)[0] - masses_and_slopes(mean - 1e-4)[0]) / 2e-4
        # Short steps, here and in the law, make an error of 1e-5 times a curvature of at most 10.
        np.testing.assert_allclose(np.diff(slope), np.diff(derivative), atol=1e-4)


def test_the_part_of_an_interval_on_one_side_has_all_its_mass_there() -> None:
    law = TruncatedNormal(statistic=np.array([0.4]))
    image, left, right = np.zeros(3, dtype=np.int64), np.array([-1.0, 0.0, 1.0]), np.array([-0.5, 1.0, 2.0])
    split = law.log_masses(Strips.of(image, left, right, mean=0.7, lower=-np.inf, upper=0.4))
    for above, masses in zip((True, False), split, strict=True):
        part = law.part_on_side(image, left, right, above=above)
        on_side, _ = law.log_masses_on_side(law.strips_at_statistic(image, *part, np.full(3, 0.7)), np.full(3, above))
        np.testing.assert_allclose(on_side, masses, rtol=1e-14)


def test_quantiles_of_the_normal_law_have_their_shares_of_the_mass() -> None:
    rng = np.random.default_rng(5)
    count = 4000
    law = TruncatedNormal(statistic=rng.normal(0, 1, count) * rng.choice([1, 10, 5e3, 1e6], count))
    t, image, share, extreme = law.statistic, np.arange(count), rng.random(count), rng.random(count) < 0.5
    share[:200], share[200:400] = 0.0, 1.0
    left = rng.choice([-1.0, 1.0], count) * t + rng.normal(0, 1, count) * 10 ** rng.uniform(-6, 1, count)
    right = left + 10 ** rng.uniform(-8, 3, count)
    limits = {
        "mean": np.where(rng.random(count) < 0.5, 0.0, t + rng.normal(0, 3, count)),
        "lower": -np.abs(t),
        "upper": np.abs(t),
    }
    total = np.where(extreme, *law.log_masses(Strips.of(image, left, right, **limits)))
    some = np.flatnonzero(total > -np.inf)
    assert len(some) > 1000
    image, left, right, share, extreme, total = (x[some] for x in (image, left, right, share, extreme, total))
    limits = {name: limit[some] for name, limit in limits.items()}
    strips = Strips.of(image, left, right, **limits)
    z = law.quantiles(strips, share, extreme)
    assert np.all((left <= z) & (z <= right))
    before = np.exp(np.where(extreme, *law.log_masses(Strips.of(image, left, z, **limits))) - total)
    # A point and the ends are known to a unit of rounding, which can be a part of the mass, and so are logs.
    farthest = np.maximum(np.abs(left - limits["mean"]), np.abs(right - limits["mean"]))
    edges = [left, *(np.clip(limits[name], left, right) for name in ("lower", "upper")), right]
    narrowest = np.min([np.where(width > 0, width, np.inf) for width in np.diff(edges, axis=0)], axis=0)
    unit = np.spacing(np.maximum(np.abs(left), np.abs(right)))
    rounding = unit * (farthest + 1 / narrowest) + np.spacing(np.abs(total))
    assert np.max(np.abs(before - share) - 4 * rounding) < 2e-5
    by_halving = Law.quantiles(law, strips, share, extreme)
    assert np.median(np.abs(by_halving - z) / (right - left)) < 1e-6
