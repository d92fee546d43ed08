"""Reference images with different gains, and pixels that never vary."""

from __future__ import annotations

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import (
    AR1,
    AR1Covariance,
    Estimated,
    ImageNoise,
    Isotropic,
    LocallyStationaryCovariance,
    NoiseEstimator,
    OwnGain,
    PixelVariance,
    PooledVariance,
    Scaled,
    ShrunkCovariance,
    Stationary,
    StationaryCovariance,
    as_noise,
)
from attentest.noise.reference_images import gain_against, image_gains

SHAPE = (8, 10)
MEAN = 40 + 10 * np.cos(np.arange(8.0))[:, None] * np.sin(np.arange(10.0))
ESTIMATORS = [
    PooledVariance,
    PixelVariance,
    AR1Covariance,
    StationaryCovariance,
    LocallyStationaryCovariance,
    ShrunkCovariance,
]


def images_with_gains(gains: np.ndarray, sigma: float = 1.0, seed: int = 0) -> np.ndarray:
    noise = sigma * np.random.default_rng(seed).normal(size=(len(gains), *SHAPE))
    return gains[:, None, None] * (MEAN + noise)


GAINS = np.array([0.5, 0.8, 1.0, 1.0, 1.0, 1.1, 1.3, 2.0, 0.9, 1.2, 0.7])


def test_the_gain_is_the_weighted_median_of_ratios() -> None:
    # The least sum of absolute deviations, found by trying every ratio.
    rng = np.random.default_rng(0)
    image, mean = rng.normal(size=(2, 5, 5))
    ratios = (image / mean).ravel()
    sums = [np.abs(image - ratio * mean).sum() for ratio in ratios]
    assert gain_against(image, mean) == ratios[np.argmin(sums)]
    assert gain_against(3.0 * MEAN, MEAN) == pytest.approx(3.0, rel=1e-14)
    lesion = 1.5 * MEAN
    lesion[:2] += 300.0
    assert gain_against(lesion, MEAN) == pytest.approx(1.5, rel=1e-14)
    assert gain_against(MEAN, 0 * MEAN) == 0.0


def test_gains_are_found_exactly_without_noise() -> None:
    found = image_gains((GAINS[:, None, None] * MEAN)[:, None])
    np.testing.assert_allclose(found, GAINS / np.median(GAINS), rtol=1e-10)
    np.testing.assert_allclose(image_gains(7.0 * (GAINS[:, None, None] * MEAN)[:, None]), found, rtol=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gains_do_not_count_as_noise(estimator: type[NoiseEstimator]) -> None:
    images = images_with_gains(GAINS)
    fitted = estimator(gain="per-image").fit(images)
    # A gain has a relative error of some 1.25 / (40 sqrt(80)) = 0.35%.
    np.testing.assert_allclose(fitted.gains_, GAINS, rtol=5 * 0.0035)
    variance = np.mean(np.diag(fitted.noise_.apply(np.eye(80))))
    # The mean of 800 squares, relative error sqrt(2 / 800) = 5%; gains take one of 80 degrees of freedom per image.
    assert variance == pytest.approx(1.0, abs=4 * 0.05 + 1 / 80)
    assert np.mean(np.diag(estimator().fit(images).noise_.apply(np.eye(80)))) > 50
    assert estimator().fit(images).gains_.tolist() == [1.0] * 11
    assert repr(estimator(gain="per-image")) == f"{estimator.__name__}(gain='per-image')"


def test_units_carry_through() -> None:
    plain = PooledVariance(gain="per-image").fit(images_with_gains(GAINS))
    scaled = PooledVariance(gain="per-image").fit(1e60 * images_with_gains(GAINS))
    np.testing.assert_allclose(scaled.gains_, plain.gains_, rtol=1e-9)
    assert scaled.noise_.describe()["sigma"] == pytest.approx(1e60 * plain.noise_.describe()["sigma"], rel=1e-9)


def test_the_noise_of_a_tested_image_by_its_own_gain() -> None:
    fitted = StationaryCovariance(gain="per-image").fit(images_with_gains(GAINS))
    own = OwnGain(fitted)
    assert isinstance(own, ImageNoise)
    model = own.for_image(1.7 * MEAN[None])
    assert isinstance(model, Estimated)
    assert isinstance(model.model, Scaled)
    gain = gain_against(1.7 * MEAN[None], fitted.mean_)
    assert gain == pytest.approx(1.7, rel=0.02)
    v = np.random.default_rng(0).normal(size=80)
    np.testing.assert_allclose(model.apply(v), gain**2 * fitted.noise_.apply(v), rtol=1e-12)
    assert own.describe()["sentence"].startswith("Scaled by the gain of each image, from this noise: a standard dev")
    for described in (own.describe(), model.describe()):
        assert described["sentence"].endswith("so that p is approximate.")
        assert described["approximate"] is True
        assert described["estimator"] == "StationaryCovariance"
        assert described["images"] == 11
    draws = (one.sample(np.random.default_rng(1), 2) for one in (model, fitted.noise_))
    np.testing.assert_allclose(next(draws), gain * next(draws), rtol=1e-12)


def test_a_scaled_model_says_what_it_is() -> None:
    model = Scaled(AR1(0.5, 2.0), 1.5)
    assert model.record() == {"model": "scaled", "factor": 1.5, "of": AR1(0.5, 2.0).record()}
    assert "1.5 times as large" in model._repr_html_()
    assert model.size is None
    assert model.sentence().startswith(
        "1.5 times as large as this noise: a standard deviation of 2, and a correlation of 0.5 to"
    )


def surrounded(count: int = 30) -> np.ndarray:
    """Noise of standard deviation 2 in the middle 6 x 6 of 12 x 12 pixels, and a constant surround."""
    images = np.zeros((count, 12, 12))
    middle = Stationary(4 * np.array([[0.0, 0.2, 0.0], [0.2, 1.0, 0.2], [0.0, 0.2, 0.0]]), (6, 6))
    images[:, 3:9, 3:9] = 50 + middle.sample(np.random.default_rng(2), count).reshape(count, 6, 6)
    return images


@pytest.mark.parametrize("estimator", [PooledVariance, AR1Covariance, StationaryCovariance])
def test_constant_pixels_are_ignored(estimator: type[PooledVariance]) -> None:
    fitted = estimator(ignore_constant=True).fit(surrounded()).noise_
    column = fitted.apply(np.eye(144)[78])
    # The mean of 29 x 36 squares with correlations: relative error of some 6%.
    assert column[78] == pytest.approx(4.0, rel=4 * 0.06)
    assert estimator().fit(surrounded()).noise_.apply(np.eye(144)[78])[78] == pytest.approx(column[78] / 4, rel=1e-9)
    if estimator is not PooledVariance:
        assert column[79] / column[78] == pytest.approx(0.2, abs=0.12)


def test_the_middle_alone_gives_the_same_estimate() -> None:
    images = surrounded()
    whole = StationaryCovariance(max_lag=3, ignore_constant=True).fit(images).noise_
    middle = StationaryCovariance(max_lag=3).fit(images[:, 3:9, 3:9]).noise_
    assert isinstance(whole, Stationary)
    assert isinstance(middle, Stationary)
    # The same pairs up to lag 5; on another torus other power is negative, so only nearly the same covariance.
    np.testing.assert_allclose(whole.autocovariance[9:14, 9:14], middle.autocovariance[3:8, 3:8], atol=0.05)
    assert PooledVariance(ignore_constant=True).fit(images).noise_ == PooledVariance().fit(images[:, 3:9, 3:9]).noise_


def test_parameters_are_named() -> None:
    assert StationaryCovariance(3, gain="per-image").parameters() == {
        "max_lag": 3,
        "ignore_constant": False,
        "gain": "per-image",
    }
    assert PixelVariance().parameters() == {"gain": "equal"}
    assert LocallyStationaryCovariance(2).parameters() == {"smoothing": 2.0, "max_lag": None, "gain": "equal"}
    assert repr(LocallyStationaryCovariance(smoothing=2)) == "LocallyStationaryCovariance(smoothing=2.0)"


def two_pixels_apart() -> np.ndarray:
    images = np.zeros((3, 1, 6))
    images[:, 0, ::2] = np.random.default_rng(0).normal(size=(3, 3))
    return images


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PooledVariance(gain="each"), "gain must be 'equal' or 'per-image', got 'each'"),
        (lambda: PooledVariance(ignore_constant="yes"), "ignore_constant must be True or False, got 'yes'"),  # type: ignore[arg-type]
        (
            lambda: PooledVariance(gain="per-image").fit(np.random.default_rng(0).normal(size=(5, 8, 8))),
            "reference image . is not the same scene as the others up to a gain",
        ),
        (
            lambda: PooledVariance(gain="per-image").fit([MEAN, 2 * MEAN, -MEAN, MEAN, MEAN]),
            "reference image 3 is not the same scene",
        ),
        (lambda: PooledVariance(gain="per-image").fit(1e200 * images_with_gains(GAINS)), "in other units"),
        (lambda: AR1Covariance(ignore_constant=True).fit(two_pixels_apart()), "no two neighbouring pixels"),
        (lambda: OwnGain(Isotropic(1.0)), "give a fitted estimator of attentest.noise, got Isotropic"),  # type: ignore[arg-type]
        (lambda: OwnGain(PooledVariance()), "is not fitted yet"),
        (lambda: OwnGain(PooledVariance().fit([MEAN, 2 * MEAN])).for_image(MEAN[None, :4]), r"but the image is \(1, 4"),
        (lambda: OwnGain(PooledVariance().fit([MEAN, 2 * MEAN])).for_image(-MEAN[None]), "it must be positive"),
        (lambda: as_noise(OwnGain(PooledVariance().fit([MEAN, 2 * MEAN]))), "OwnGain makes one per image"),  # type: ignore[arg-type]
        (lambda: Scaled(Isotropic(1.0), 0.0), "factor must be positive"),
        (lambda: Scaled(Isotropic(1.0), 1e200), "factor must be from 1e-150"),
    ],
)
def test_what_cannot_be_estimated_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
