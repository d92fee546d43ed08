"""Degrees of freedom of estimated variances of contrasts: closed forms, and the scatter of estimates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from attentest.noise import (
    AR1,
    AR1Covariance,
    Averaged,
    Dense,
    Diagonal,
    Estimated,
    FromImage,
    Isotropic,
    LocallyStationaryCovariance,
    NoiseEstimator,
    NoiseModel,
    PerChannel,
    PixelVariance,
    PooledVariance,
    ShrunkCovariance,
    Stationary,
    StationaryCovariance,
    as_noise,
)
from attentest.noise.correlated import Exponential
from attentest.noise.model import complete
from attentest.noise.residuals import lag_weights

SIDE = 8
LAGS = np.hypot(*np.meshgrid(np.arange(1.0 - SIDE, SIDE), np.arange(1.0 - SIDE, SIDE)))


def degrees_of_freedom(noise: NoiseModel, eta: NDArray[np.float64]) -> NDArray[np.float64]:
    return complete(noise).degrees_of_freedom(eta)


def halves() -> NDArray[np.float64]:
    """Return two contrasts (2, n): the left half of an image against the right one, and a corner against the rest."""
    left, corner = np.zeros((2, SIDE, SIDE))
    left[:, : SIDE // 2], corner[:3, :3] = 1.0, 1.0
    return np.stack([np.where(one, 1 / one.sum(), -1 / (1 - one).sum()).ravel() for one in (left, corner)])


def estimated(model: NoiseModel, images: int, **origin: object) -> Estimated:
    return Estimated(model, {"images": images, **origin})


def test_noise_that_is_known_has_infinitely_many() -> None:
    image = np.random.default_rng(0).normal(size=(1, SIDE, SIDE))
    models = (Isotropic(2.0), AR1(0.5), Averaged(Isotropic(1.0), 3), FromImage().for_image(image))
    for model in models:
        assert np.all(np.isinf(degrees_of_freedom(model, halves())))


def test_independent_noise_has_one_for_each_pixel_of_each_residual_image() -> None:
    assert degrees_of_freedom(estimated(Isotropic(2.0), 5), halves()) == pytest.approx(4 * SIDE**2)
    assert degrees_of_freedom(Averaged(estimated(Isotropic(2.0), 5), 7), halves()) == pytest.approx(4 * SIDE**2)


def test_variances_of_single_pixels_are_added_by_the_rule_of_satterthwaite() -> None:
    variance = np.random.default_rng(0).uniform(1, 9, size=SIDE**2)
    parts = halves() ** 2 * variance
    expected = 11 * parts.sum(axis=1) ** 2 / (parts**2).sum(axis=1)
    assert degrees_of_freedom(estimated(Diagonal(variance), 12), halves()) == pytest.approx(expected)


def test_any_covariance_has_one_for_each_residual_image() -> None:
    assert degrees_of_freedom(estimated(Dense(np.eye(SIDE**2)), 12), halves()) == pytest.approx(11)


def test_noise_of_another_kind_has_the_least() -> None:
    class Own:
        size = None

        def apply(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
            return v

        def sample(self, rng: np.random.Generator, k: int, n: int | None = None) -> NDArray[np.float64]:
            return rng.standard_normal((k, n or 1))

        def describe(self) -> dict[str, object]:
            return {"model": "own"}

    assert degrees_of_freedom(estimated(Own(), 12), halves()) == pytest.approx(11)


def test_correlation_takes_degrees_of_freedom_away() -> None:
    eta = halves()
    independent = degrees_of_freedom(estimated(AR1(0.0), 5), eta)
    # The correlation is estimated, too, so there are somewhat fewer than for one variance alone.
    assert np.all((independent > 0.5 * 4 * SIDE**2) & (independent <= 4 * SIDE**2))
    # Of the corner, whose pixels are correlated; along the rows of the halves the errors of the two estimates cancel.
    assert degrees_of_freedom(estimated(AR1(0.8), 5), eta)[1] < 0.3 * independent[1]
    short = degrees_of_freedom(estimated(Exponential(np.ones((1, SIDE, SIDE)), 0.0), 5), eta)
    assert short == pytest.approx(4 * SIDE**2)
    assert np.all(degrees_of_freedom(estimated(Exponential(np.ones((1, SIDE, SIDE)), 2.0), 5), eta) < 0.3 * short)


def test_colour_images_have_those_of_the_worst_channel() -> None:
    spatial = Stationary(np.exp(-LAGS), (SIDE, SIDE))
    grey = degrees_of_freedom(estimated(spatial, 5), halves())
    colour = degrees_of_freedom(estimated(PerChannel([1.0, 2.0], spatial), 5), np.tile(halves() / 2, 2))
    assert colour == pytest.approx(grey)


def test_a_channel_without_weight_has_no_say() -> None:
    spatial = Stationary(np.exp(-LAGS), (SIDE, SIDE))
    grey = degrees_of_freedom(estimated(spatial, 5), halves())
    first_only = np.concatenate([halves(), np.zeros_like(halves())], axis=1)
    assert degrees_of_freedom(estimated(PerChannel([1.0, 2.0], spatial), 5), first_only) == pytest.approx(grey)


def test_pixels_that_never_vary_tell_nothing() -> None:
    images = np.zeros((4, SIDE, SIDE))
    images[:, :2] = np.random.default_rng(0).normal(size=(4, 2, SIDE))
    noise = as_noise(PooledVariance(ignore_constant=True).fit(images))
    assert degrees_of_freedom(noise, halves()) == pytest.approx(3 * 2 * SIDE)


TRUTHS: dict[str, tuple[NoiseModel, NoiseEstimator]] = {
    "pooled": (Isotropic(2.0), PooledVariance()),
    "pixel": (Diagonal(np.linspace(1, 9, SIDE**2)), PixelVariance()),
    "ar1": (AR1(0.5, 2.0), AR1Covariance()),
    "stationary": (Stationary(np.exp(-LAGS / 1.5), (SIDE, SIDE)), StationaryCovariance(4)),
    "locally stationary": (Isotropic(2.0), LocallyStationaryCovariance(2.0, 3)),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_they_are_those_of_the_scatter_of_estimates(name: str) -> None:
    truth, estimator = TRUTHS[name]
    rng, eta, images, repeats = np.random.default_rng(0), halves(), 12, 150
    variances, predicted = [], []
    for _ in range(repeats):
        noise = as_noise(estimator.fit(truth.sample(rng, images, SIDE**2).reshape(images, SIDE, SIDE)))
        variances.append(np.einsum("ki,ki->k", eta, noise.apply(eta)))
        if len(predicted) < 10:
            predicted.append(degrees_of_freedom(noise, eta))
    found = 2 * np.mean(variances, axis=0) ** 2 / np.var(variances, axis=0, ddof=1)
    # The relative standard error of a variance of 150 numbers is 12%: 4 of these, and the correction may be cautious.
    ratio = np.median(predicted, axis=0) / found
    assert np.all((ratio > 0.35) & (ratio < 1.5)), ratio


@pytest.mark.parametrize(("shape", "reach", "max_lag"), [((7, 6, 5), 2, None), ((5, 8, 7), 9, 3)])
def test_those_of_a_volume_are_ratios_of_traces(
    shape: tuple[int, ...], reach: int, max_lag: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tr(WC)^2 / tr(WCWC) with whole matrices; 2,000 probes have a standard error of 3% here, and 4 are allowed."""
    monkeypatch.setattr("attentest.noise.stationary.MOST_PROBES", 2000)
    fall = np.exp(-np.abs(np.arange(-reach, reach + 1.0)))
    noise, pixels = Stationary(np.einsum("i,j,k->ijk", fall, fall, fall), shape), int(np.prod(shape))
    eta = np.zeros((2, *shape))
    eta[0, :3], eta[1, 1:4, 2:4, :3] = 1.0, 1.0
    eta = eta.reshape(2, pixels) - eta.reshape(2, pixels).mean(axis=1, keepdims=True)
    places = np.stack(np.unravel_index(np.arange(pixels), shape))
    lags = tuple(places[:, :, None] - places[:, None, :])
    expected = []
    for field in eta.reshape(2, *shape):
        products = np.zeros([2 * side - 1 for side in shape])
        np.add.at(products, lags, np.outer(field, field))
        matrix = (products * lag_weights(shape, max_lag))[lags] @ noise.apply(np.eye(pixels))
        expected.append(np.trace(matrix) ** 2 / np.trace(matrix @ matrix))
    assert noise.degrees_per_image(eta, {"max_lag": max_lag}) == pytest.approx(expected, rel=0.12)


def test_estimators_record_what_is_needed() -> None:
    images = np.random.default_rng(0).normal(size=(12, SIDE, SIDE))
    noise = as_noise(StationaryCovariance(3).fit(images))
    assert isinstance(noise, Estimated)
    assert noise.images == 12
    assert noise.origin["max_lag"] == 3
    assert as_noise(ShrunkCovariance().fit(images)).describe()["images"] == 12
