from __future__ import annotations

import matplotlib
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from attentest.errors import InputError
from attentest.statistics.conditional_mean import mean_bounds, mean_roots
from attentest.statistics.inference import naive_confidence_interval
from attentest.statistics.law import Law
from attentest.statistics.roots import FARTHEST
from attentest.statistics.truncation_set import Unions, union
from exact_normal import exact_log_share
from truncated import estimates_of, interval_of, known_set, normal

LINE = np.array([[-np.inf, np.inf]])


def mean_at(z: float, intervals: np.ndarray, level: float) -> float:
    return float(means_at(normal(z), np.array([level]), [intervals], [intervals])[0])


def means_at(law: Law, levels: np.ndarray, above: list[np.ndarray], below: list[np.ndarray]) -> np.ndarray:
    return mean_roots(law, np.arange(len(law)), levels, Unions.of(above), Unions.of(below))


@pytest.mark.parametrize("z", [0.0, -3.2, 40.0, 1e6])
@pytest.mark.parametrize("level", [1e-12, 0.025, 0.5, 0.9])
def test_without_truncation_it_is_the_normal_quantile(z: float, level: float) -> None:
    assert mean_at(z, LINE, level) - z == pytest.approx(stats.norm.ppf(level), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("z", "low", "high"), [(2.0, 1.5, np.inf), (-1.0, -4.0, 0.3), (0.2, -np.inf, 0.9)])
def test_one_interval_against_scipy(z: float, low: float, high: float) -> None:
    for level in (0.05, 0.5, 0.95):
        mean = mean_at(z, np.array([[low, high]]), level)
        assert stats.truncnorm.sf(z, low - mean, high - mean, loc=mean) == pytest.approx(level, rel=1e-7)


SETS = {
    "far tail": (500.0, [[499.5, 500.2]]),
    "narrow": (2.0, [[2.0 - 1e-9, 2.0 + 3e-9]]),
    "at its end": (2.0, [[2.0 - 1e-10, 4.0]]),
    "many": (1.3, [*np.sort(np.random.default_rng(0).normal(0, 3, 400)).reshape(-1, 2), [1.25, 1.35]]),
    "gap beyond": (3.0, [[2.9, 3.1], [9.0, np.inf]]),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("level", [0.025, 0.5, 0.975])
def test_against_eighty_digits(name: str, level: float) -> None:
    """The tail probability at the mean found is the level, computed with mpmath."""
    z, ends = SETS[name]
    intervals = union(ends)
    mean = mean_at(z, intervals, level)
    above = np.maximum(intervals, z)
    above = above[above[:, 0] < above[:, 1]]
    with mpmath.workdps(80):
        share = mpmath.e ** exact_log_share(above, intervals, mean)
    assert float(share) == pytest.approx(level, rel=1e-7)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    edges=st.lists(st.floats(-8, 8), min_size=4, max_size=10, unique=True).filter(lambda e: len(e) % 2 == 0),
    z=st.floats(-4, 4),
    margin=st.floats(0.001, 0.3),
    level=st.floats(0.01, 0.99),
    extra=st.floats(-12, 12),
)
def test_bounds_hold_for_every_set_between(edges: list, z: float, margin: float, level: float, extra: float) -> None:
    truth = union(np.sort(edges).reshape(-1, 2), [[z - 0.2, z + 0.2]])
    shrunk = truth + np.array([margin / 4, -margin / 4])
    certain = union(shrunk[shrunk[:, 0] < shrunk[:, 1]], [[z - 0.1, z + 0.1]])
    possible = union(truth, [[extra - margin, extra + margin]], [[-np.inf, -9], [9, np.inf]])
    low, high = (float(end[0]) for end in mean_bounds(normal(z), [known_set(certain, possible)], np.array([level])))
    exact = mean_at(z, truth, level)
    rounding = 1e-12 * max(1.0, abs(exact))
    assert low - rounding <= exact <= high + rounding


def test_many_at_once_are_as_one_by_one() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(size=30)
    sets = [union(np.sort(rng.normal(0, 3, 6)).reshape(-1, 2), [[at - 0.1, at + 0.1]]) for at in z]
    levels = rng.uniform(0.01, 0.99, 30)
    together = means_at(normal(*z), levels, sets, sets)
    alone = [mean_at(at, intervals, level) for at, intervals, level in zip(z, sets, levels, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_nothing_on_one_side_gives_an_infinite_end() -> None:
    z = normal(1.0)
    above, below = [np.array([[1.0, 2.0]])], [np.array([[0.0, 1.0]])]
    nothing = [np.empty((0, 2))]
    assert means_at(z, np.array([0.5]), above, nothing)[0] == -np.inf
    assert means_at(z, np.array([0.5]), nothing, below)[0] == np.inf
    assert [float(end[0]) for end in mean_bounds(z, [known_set(nothing[0])], [0.5])] == [-np.inf, np.inf]
    hair = [np.array([[1.0 - 1e-16, 1.0]])]
    assert means_at(z, np.array([1e-6]), above, hair)[0] < -FARTHEST / 1e3


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, np.nan])
def test_a_level_outside_the_open_unit_interval_is_refused(level: float) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        mean_at(0.0, LINE, level)


def test_agrees_with_an_independent_package() -> None:
    """sicore has the truncated distribution function; its root in the mean is found here."""
    with matplotlib.rc_context():  # which importing it changes for all later figures
        sicore = pytest.importorskip("sicore.core.dist")
    rng = np.random.default_rng(4)
    for _ in range(8):
        z = rng.normal(0, 2)
        intervals = union(np.sort(rng.normal(0, 2.5, 8)).reshape(-1, 2), [[z - 0.4, z + 0.3]])
        for level in (0.025, 0.5, 0.975):
            root = optimize.brentq(
                lambda mean: sicore.truncated_cdf(stats.norm(mean), z, intervals) - (1 - level),  # noqa: B023
                z - 60,
                z + 60,
                xtol=1e-12,
            )
            assert mean_at(z, intervals, level) == pytest.approx(root, abs=1e-6)


def test_without_truncation_the_interval_is_the_naive_one() -> None:
    for alternative in ("two-sided", "greater", "less"):
        interval = interval_of(2.0, known_set(LINE), alternative, 0.9, standard_error=3.0)
        naive = naive_confidence_interval(6.0, 3.0, alternative, 0.9)
        assert tuple(interval) == pytest.approx(tuple(naive), rel=1e-9)
        assert interval.error == pytest.approx(0.0, abs=1e-9)
    assert 6.0 in naive_confidence_interval(6.0, 3.0, "two-sided", 0.9)
    assert tuple(naive_confidence_interval(0.0, 1.0, "two-sided", 0.95)) == pytest.approx(
        (-1.959964, 1.959964), rel=1e-6
    )


def test_one_sided_intervals_are_bounded_on_the_side_of_the_alternative() -> None:
    """As in SciPy: "greater" gives a lower bound, at which the one-sided p-value is 1 - confidence."""
    intervals = union([[1.0, 3.0]], [[-2.0, 0.5]])
    greater = interval_of(1.5, known_set(intervals), "greater", 0.9)
    less = interval_of(1.5, known_set(intervals), "less", 0.9)
    both = interval_of(1.5, known_set(intervals), "two-sided", 0.8)
    assert greater.high == np.inf
    assert less.low == -np.inf
    assert (greater.low, less.high) == pytest.approx(tuple(both), rel=1e-12)


def test_the_interval_is_the_widest_of_what_is_possible() -> None:
    certain = np.array([[1.0, 3.0]])
    known = interval_of(1.5, known_set(certain))
    partly = known_set(certain, possible=union(certain, [[6.0, np.inf]]))
    wider = interval_of(1.5, partly)
    assert tuple(wider) == pytest.approx(tuple(known))  # what may be there could only make it narrower
    assert known.error == 0
    assert wider.error > 0.1
    best, low, high = estimates_of(1.5, partly)
    assert low[0] < best[0] <= high[0]


def test_an_infinite_interval_is_reported_as_such() -> None:
    interval = interval_of(1.0, known_set(np.array([[1.0, 2.0]])))
    assert interval.low == -np.inf
    assert interval.high == 1.0 - FARTHEST  # wider than it is, so that it contains a number
    best, _, _ = estimates_of(1.0, known_set(np.array([[1.0, 2.0]])))
    assert best[0] == -np.inf


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, np.nan, "0.95", None])
def test_a_confidence_level_outside_the_open_unit_interval_is_refused(level: object) -> None:
    with pytest.raises(InputError, match="confidence_level must"):
        interval_of(1.0, known_set(LINE), level=level)  # type: ignore[arg-type]
