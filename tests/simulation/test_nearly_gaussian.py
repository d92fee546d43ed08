"""Noise that is almost Gaussian: five families at a distance from N(0, 1)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri, owens_t

from attentest.errors import InputError
from attentest.simulation.images import FAMILIES, distance_from_normal, nearly_gaussian
from attentest.studies.reproduction.experiment import DISTANCES

SHARES = (np.arange(20_000) + 0.5) / 20_000


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("family", FAMILIES)
def test_members_are_standardised_and_at_their_distance(family: str, distance: float) -> None:
    member = nearly_gaussian(family, distance)
    x = np.linspace(-40.0, 40.0, 400_001)
    density = member.pdf(x)
    # Alternative of t beyond 40 hold less than 1e-6 of the variance at the distances in use.
    assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-9)
    assert np.trapezoid(x * density, x) == pytest.approx(0.0, abs=1e-7)
    assert np.trapezoid(x * x * density, x) == pytest.approx(1.0, abs=1e-5)
    assert distance_from_normal(member) == pytest.approx(distance, abs=1e-9)


@pytest.mark.parametrize("family", ["exponnorm", "gennormsteep", "gennormflat", "t"])
def test_the_distance_is_that_between_quantile_functions(family: str) -> None:
    # Another formula for the same distance: the mean of the differences of quantiles.
    member = nearly_gaussian(family, 0.04)
    raw = FAMILIES[family].distribution(member.args[0])
    # SciPy's own quantiles take a minute for exponnorm; those of its distribution function are as good.
    x = np.linspace(-12.0, 25.0, 400_001)
    own = (np.interp(SHARES, raw.cdf(x), x) - raw.mean()) / raw.std()
    assert np.mean(np.abs(own - ndtri(SHARES))) == pytest.approx(0.04, abs=2e-5)


def test_the_distance_of_the_skew_normal_in_closed_form() -> None:
    # SciPy's quantiles of it take minutes; its distribution function is Phi(x) - 2 T(x, a).
    member = nearly_gaussian("skewnorm", 0.04)
    raw = stats.skewnorm(member.args[0])
    x = np.linspace(-12.0, 12.0, 200_001)
    unscaled = raw.mean() + raw.std() * x
    gap = ndtr(unscaled) - 2 * owens_t(unscaled, member.args[0]) - ndtr(x)
    assert np.trapezoid(np.abs(gap), x) == pytest.approx(0.04, abs=1e-7)


def test_the_two_sides_of_the_generalised_normal_family() -> None:
    assert nearly_gaussian("gennormsteep", 0.02).args[0] < 2 < nearly_gaussian("gennormflat", 0.02).args[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_draws_follow_the_density(family: str) -> None:
    member = nearly_gaussian(family, 0.04)
    draws = member.rvs(size=20_000, random_state=np.random.default_rng(0))
    x = np.linspace(-15.0, 15.0, 30_001)
    distribution = np.cumsum(member.pdf(x)) * (x[1] - x[0])
    # Seeded; the 1% point of the Kolmogorov-Smirnov distance of 20,000 draws is 0.0115.
    assert stats.kstest(draws, lambda at: np.interp(at, x, distribution)).statistic < 0.0115


@pytest.mark.parametrize(
    ("family", "distance", "message"),
    [("cauchy", 0.01, "the family must be one of skewnorm"), ("t", 5.0, "the distance of t must lie between")],
)
def test_what_there_is_not_is_refused(family: str, distance: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        nearly_gaussian(family, distance)
