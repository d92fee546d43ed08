"""Searches, statistics and pictures know distributions through a Law alone: another law needs no other change.

The law of these tests is a Laplace distribution observed with noise: T has mean theta, and the search moves along
z = T + U, where U is one of two values. Its masses have closed forms, and it shares nothing with the normal law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, stats
from scipy.special import ndtr

from attentest import AttentionTest
from attentest.pipeline import run
from attentest.presentation.result_figure import results_figure
from attentest.search import GridSearch, SpectralSearch
from attentest.search.grid import Fixed
from attentest.statistics.alternative import Alternative
from attentest.statistics.inference import confidence_intervals_of, estimates_of
from attentest.statistics.law import Law, Strips
from attentest.statistics.pvalue import log_pvalues
from attentest.statistics.selection_laws import RandomisedNormal
from toys import curve_problem, tiny_vit
from truncated import inference

SHIFT = 0.4
"""U is SHIFT or -SHIFT, each with probability one half."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyLaplace(Law):
    """T ~ Laplace(mean, 1), z = T + U with U = SHIFT or -SHIFT; the observed U is SHIFT.

    Given z, U is one of two values with known probabilities.
    """

    @property
    def z_obs(self) -> NDArray[np.float64]:
        return self.statistic + SHIFT

    def log_masses(self, strips: Strips) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        left, right, mean, lower, upper = strips.left, strips.right, strips.mean, strips.lower, strips.upper
        extreme, ordinary = np.full(left.shape, -np.inf), np.full(left.shape, -np.inf)
        for shift in (SHIFT, -SHIFT):
            start, end = left - shift, right - shift
            below, above = np.clip(lower, start, end), np.clip(upper, start, end)
            for part in (_log_laplace_mass(start, below, mean), _log_laplace_mass(above, end, mean)):
                extreme = np.logaddexp(extreme, part)
            ordinary = np.logaddexp(ordinary, _log_laplace_mass(below, above, mean))
        return extreme, ordinary

    def reach(self, log_tail: float) -> NDArray[np.float64]:
        return np.abs(self.z_obs) + log_tail

    @property
    def state_obs(self) -> NDArray[np.float64]:
        return np.asarray(stats.norm.ppf(_z_below(self.z_obs)))

    def z_of(self, image: NDArray[np.int64], state: NDArray[np.float64]) -> NDArray[np.float64]:
        low, high, below = np.full(len(state), -60.0), np.full(len(state), 60.0), ndtr(state)
        for _ in range(45):
            middle = (low + high) / 2
            above = _z_below(middle) > below
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return (low + high) / 2

    def statistic_of(
        self, image: NDArray[np.int64], z: NDArray[np.float64], chance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        up, down = stats.laplace.pdf(z - SHIFT), stats.laplace.pdf(z + SHIFT)
        return z - np.where(stats.norm.cdf(chance) < up / (up + down), SHIFT, -SHIFT)


def _z_below(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(T + U <= z) for mean zero."""
    parts = (np.where(t > 0, 2 - np.exp(-np.abs(t)), np.exp(-np.abs(t))) / 2 for t in (z - SHIFT, z + SHIFT))
    return np.asarray(sum(parts) / 2)


def _log_laplace_mass(start: NDArray[np.float64], end: NDArray[np.float64], mean: ArrayLike) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # in the branches that are not used
        width = np.where(end > start, end - start, 0.0)
        tail = np.log(-np.expm1(-width)) - np.log(2)
        around = np.log1p(-np.exp(start - mean) / 2 - np.exp(mean - end) / 2)
        mass = np.where(start >= mean, mean - start + tail, np.where(end <= mean, end - mean + tail, around))
    return np.where(width > 0, mass, -np.inf)


def brute_force(statistic: float, intervals: list[tuple[float, float]], mean: float = 0.0) -> dict[Alternative, float]:
    """Return p of every alternative by a sum over a fine grid of T, for each value of U."""
    reach = 5 if np.abs(intervals).max() + SHIFT < 5 else 40
    t = np.linspace(-reach, reach, 20_000 * reach + 1)
    weight = np.exp(-np.abs(t - mean))
    inside = sum(
        np.any([(t + shift >= low) & (t + shift <= high) for low, high in intervals], axis=0).astype(float)
        for shift in (SHIFT, -SHIFT)
    )
    mass = weight * inside
    events = {"two-sided": np.abs(t) >= abs(statistic), "greater": t >= statistic, "less": t <= statistic}
    return {name: float(mass[event].sum() / mass.sum()) for name, event in events.items()}  # type: ignore[misc]


INTERVALS = [(0.8, 2.1), (-2.6, -1.9), (3.5, 4.4)]
STATISTIC = 1.2
LAW = NoisyLaplace(statistic=np.array([STATISTIC]))


def margin(z):  # type: ignore[no-untyped-def]
    """Negative exactly in INTERVALS."""
    product = 1.0
    for end in np.ravel(INTERVALS):
        product = product * (z - end)
    return product / (1 + z * z) ** 3


@pytest.mark.parametrize("alternative", ["two-sided", "equal-tailed", "greater", "less"])
@pytest.mark.parametrize("search", [SpectralSearch(), GridSearch(step=Fixed(step=1e-2))], ids=["spectral", "grid"])
def test_searches_and_pvalues_take_any_law(search: SpectralSearch | GridSearch, alternative: Alternative) -> None:
    problem = replace(curve_problem([0.0], margin), law=LAW, alternative=alternative)
    (outcome,) = search.find(problem)
    p = log_pvalues(LAW, [outcome.truncation_set], alternative)
    shares = brute_force(STATISTIC, INTERVALS)
    twice = 2 * min(shares["greater"], shares["less"])
    expected = twice if alternative == "equal-tailed" else shares[alternative]
    assert float(np.exp(p.best[0])) == pytest.approx(expected, abs=2e-4)  # the step of the sum
    assert np.exp(p.low[0]) - 2e-4 <= expected <= np.exp(p.high[0]) + 2e-4
    if isinstance(search, SpectralSearch):
        assert outcome.status == "converged"
        assert np.exp(p.high[0]) - np.exp(p.low[0]) <= search.tol


def test_intervals_and_estimates_take_any_law() -> None:
    (outcome,) = SpectralSearch().find(replace(curve_problem([0.0], margin), law=LAW, confidence_level=0.9))
    (interval,) = confidence_intervals_of([inference(LAW, outcome.truncation_set, 2.0)], 0.9)
    ends = [
        optimize.brentq(
            lambda mean, at=level: brute_force(STATISTIC, INTERVALS, mean)["greater"] - at, -30, 30, xtol=1e-4
        )
        for level in (0.05, 0.5, 0.95)
    ]
    assert interval.low == pytest.approx(2 * ends[0], abs=5e-3)
    assert interval.high == pytest.approx(2 * ends[2], abs=5e-3)
    estimate = estimates_of([inference(LAW, outcome.truncation_set, 2.0)]).best[0]
    assert estimate == pytest.approx(2 * ends[1], abs=5e-3)


def test_a_law_in_greater_units_has_the_masses_of_intervals_in_these_units() -> None:
    """The masses are those of a normal distribution with standard deviation 2, times a common factor."""
    scaled = RandomisedNormal(statistic=np.array([1.0]), observed_z=np.array([1.5]), gamma=np.array([0.8])).scaled(
        np.array([2.0, 0.5])
    )
    assert len(scaled) == 2
    np.testing.assert_array_equal(scaled.gamma, [0.4, 1.6])
    left, right = np.array([0.0, 2.0]), np.array([1.0, 3.0])
    masses = np.logaddexp(
        *scaled.log_masses(Strips.of(np.zeros(2, dtype=np.int64), left / 2, right / 2, lower=-0.5, upper=0.5))
    )
    expected = np.diff(stats.norm(scale=np.sqrt(2.0**2 + 0.8**2)).cdf([left, right]), axis=0)[0]
    assert np.exp(masses[1] - masses[0]) == pytest.approx(expected[1] / expected[0], rel=1e-9)


def test_a_whole_test_takes_another_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, tables and figures too; the pipeline is the only place that names a law."""

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Laplace(NoisyLaplace):
        @property
        def z_obs(self) -> NDArray[np.float64]:
            return self.statistic

    monkeypatch.setattr(run, "TruncatedNormal", Laplace)
    images = np.random.default_rng(5).normal(size=(2, 8, 8))
    results = AttentionTest(tiny_vit(), noise=1.0).map(images)
    for result in results:
        assert result.law.statistic.shape == (1,)
        for alternative in ("two-sided", "greater", "less"):
            found = result.with_alternative(alternative)
            spans = [(float(low), float(high)) for low, high in result.intervals]
            assert found.pvalue == pytest.approx(brute_force(result.statistic, spans)[alternative], abs=5e-3)
        assert result.confidence_interval().low <= result.estimate <= result.confidence_interval().high
    assert results.table()["pvalue"] == results.pvalues.tolist()
    figure = results_figure([results[0].picture("one")])
    assert figure.axes
