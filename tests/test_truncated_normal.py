from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attentest import InputError
from attentest.statistics.intervals import union
from attentest.statistics.log_probability import probability
from attentest.statistics.normal_mass import log_mass
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


@settings(max_examples=300, deadline=None)
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
