"""Noise of the same variances with another correlation length, against covariances in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import (
    AR1,
    Averaged,
    Dense,
    Diagonal,
    Estimated,
    Isotropic,
    NoiseModel,
    PerChannel,
    Stationary,
    StationaryCovariance,
)
from attentest.noise.model import complete

SHAPE = (1, 4, 5)
COLOUR = (3, 4, 5)


def matrix(noise: NoiseModel, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    return noise.apply(np.eye(int(np.prod(shape))))


def exponential(length: float, shape: tuple[int, int, int] = SHAPE) -> np.ndarray:
    """Correlations exp(-(rows + columns) / length) within channels, entry by entry."""
    channel, row, column = (np.ravel(index) for index in np.indices(shape))
    apart = np.abs(np.subtract.outer(row, row)) + np.abs(np.subtract.outer(column, column))
    return np.where(np.equal.outer(channel, channel), np.exp(-apart / length), 0.0)


def ar1_matrix(rho: float, count: int) -> np.ndarray:
    return rho ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))


def separable(rho: float, reach: int) -> np.ndarray:
    falling = rho ** np.abs(np.arange(-reach, reach + 1))
    return np.outer(falling, falling)


VARIANCES = np.linspace(0.5, 2.0, 20).reshape(4, 5)
CHANNELS = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 3.0]])

EXPECTED = {
    "isotropic": (Isotropic(1.5), SHAPE, 2.0, 1.5**2 * exponential(2.0)),
    "isotropic, in colour": (Isotropic(1.5), COLOUR, 2.0, 1.5**2 * exponential(2.0, COLOUR)),
    "diagonal": (
        Diagonal(VARIANCES),
        SHAPE,
        0.7,
        np.sqrt(np.outer(VARIANCES, VARIANCES)) * exponential(0.7),
    ),
    "twice the length of rho 0.25": (AR1(0.25, 2.0), SHAPE, -2 / np.log(0.25), 4 * ar1_matrix(0.5, 20)),
    "half the length of rho -0.5": (AR1(-0.5), SHAPE, -0.5 / np.log(0.5), ar1_matrix(-0.25, 20)),
    "autoregression made independent": (AR1(0.5, 2.0), SHAPE, 0.0, 4 * np.eye(20)),
    "independent autoregression": (AR1(0.0), SHAPE, 3.0, ar1_matrix(np.exp(-1 / 3), 20)),
    "estimated": (Estimated(Isotropic(2.0), {"images": 3}), SHAPE, 1.0, 4 * exponential(1.0)),
    "averaged": (Averaged(AR1(0.25), 4), SHAPE, -2 / np.log(0.25), ar1_matrix(0.5, 20) / 4),
    "per channel": (PerChannel(CHANNELS), COLOUR, 1.0, np.kron(CHANNELS, exponential(1.0))),
    "white, by lag": (Stationary(np.array([[9.0]]), (4, 5)), SHAPE, 2.0, 9 * exponential(2.0)),
    "by lag, made independent": (Stationary(4 * separable(0.5, 9), (4, 5)), SHAPE, 0.0, 4 * np.eye(20)),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_the_covariance_is_the_closed_form(case: str) -> None:
    noise, shape, length, expected = EXPECTED[case]
    other = complete(noise).with_correlation_length(length, shape)
    np.testing.assert_allclose(matrix(other, shape), expected, rtol=1e-12, atol=1e-13)
    assert complete(other).correlation_length() == pytest.approx(length)


def test_samples_of_exponential_noise_have_its_covariance() -> None:
    noise = complete(Diagonal(VARIANCES)).with_correlation_length(2.0, SHAPE)
    draws = noise.sample(np.random.default_rng(0), 100_000)
    covariance = matrix(noise)
    variances = np.diag(covariance)
    # An entry's standard error is sqrt((S_ii S_jj + S_ij^2) / k); 400 entries stay within 4.5 of it with a
    # probability above 0.997, and the seed is fixed.
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(draws))
    assert (np.abs(draws.T @ draws / len(draws) - covariance) < 4.5 * error).all()


def test_half_the_length_takes_every_second_lag() -> None:
    noise = Stationary(3 * separable(0.8, 40), (4, 5))
    other = complete(noise).with_correlation_length(complete(noise).correlation_length() / 2, SHAPE)
    row, column = (np.ravel(index) for index in np.indices((4, 5)))
    apart = np.abs(np.subtract.outer(row, row)) + np.abs(np.subtract.outer(column, column))
    np.testing.assert_allclose(matrix(other), 3 * 0.64**apart, rtol=1e-10)


@pytest.mark.parametrize("factor", [1.4, 2.0, 3.7])
def test_a_stretched_covariance_is_the_linear_interpolation_between_lags(factor: float) -> None:
    """Lags that have reached zero leave nothing to be set to zero, so the interpolation is all there is."""
    lags = 2 * separable(0.6, 30)
    noise = Stationary(lags, (4, 5))
    other = complete(noise).with_correlation_length(factor * complete(noise).correlation_length(), SHAPE)
    at = np.arange(5) / factor
    falling = np.interp(at, np.arange(31), 0.6 ** np.arange(31))
    np.testing.assert_allclose(matrix(other)[0].reshape(4, 5), 2 * np.outer(falling[:4], falling), rtol=1e-6)
    assert isinstance(other, Stationary)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3, 2.0])
def test_an_estimate_stays_a_covariance_of_the_same_variance(factor: float) -> None:
    """The estimate of noise that is correlated farther than the image reaches has no power at many frequencies."""
    far = Stationary(np.exp(-(np.arange(-40, 41)[:, None] ** 2 + np.arange(-40, 41) ** 2) / 50), (6, 6))
    images = far.sample(np.random.default_rng(1), 5).reshape(5, 6, 6)
    estimate = StationaryCovariance().fit(images).noise_
    other = complete(estimate).with_correlation_length(factor * complete(estimate).correlation_length(), (1, 6, 6))
    before, after = matrix(estimate, (1, 6, 6)), matrix(other, (1, 6, 6))
    np.testing.assert_allclose(np.diag(after), np.diag(before), rtol=1e-9)
    assert np.linalg.eigvalsh(after)[0] > -1e-9 * before[0, 0]


def test_the_own_length_gives_the_model_itself() -> None:
    for noise in (Isotropic(1.0), AR1(0.5), Stationary(separable(0.5, 9), (4, 5))):
        assert complete(noise).with_correlation_length(complete(noise).correlation_length(), SHAPE) is noise


def test_a_model_of_the_users_own_may_have_a_correlation_length() -> None:
    class Own(Isotropic):
        def with_correlation_length(self, length: float, shape: tuple[int, int, int]) -> Any:
            return AR1(0.1 * length, self.sigma)

    assert complete(Own(2.0)).with_correlation_length(3.0, SHAPE).describe() == AR1(0.1 * 3.0, 2.0).describe()


def test_what_has_no_correlation_length_is_refused_with_what_to_do() -> None:
    for noise in (Dense(np.eye(20)), Estimated(Dense(np.eye(20)), {})):
        with pytest.raises(InputError, match=r"Dense has no correlation length .* each covariance that you think"):
            complete(noise).with_correlation_length(1.0, SHAPE)
    with pytest.raises(InputError, match="0 or a positive number of pixels, got -1"):
        complete(Isotropic(1.0)).with_correlation_length(-1.0, SHAPE)
    with pytest.raises(InputError, match="but the image"):
        complete(Diagonal(VARIANCES)).with_correlation_length(1.0, (1, 5, 4))
    with pytest.raises(InputError, match="takes too much memory"):
        complete(Stationary(separable(0.5, 9), (4, 5))).with_correlation_length(1e6, SHAPE)
