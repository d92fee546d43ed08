from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attentest.errors import InputError
from attentest.noise import (
    Diagonal,
    LocallyStationary,
    LocallyStationaryCovariance,
    NoiseModel,
    PerChannel,
    Stationary,
    StationaryCovariance,
    load_noise,
    save_noise,
)
from attentest.noise.estimators import smoothed_variance
from attentest.noise.stationary import default_smoothing

SHAPE = (6, 7)
STRIPES = np.array([[0.4, 0.1, 0.0], [0.1, 1.0, 0.1], [0.0, 0.1, 0.4]])
FIELD = 0.5 + np.random.default_rng(3).random(SHAPE)


def falling(shape: tuple[int, int], rho: float = 0.5) -> np.ndarray:
    rows, columns = (rho ** np.abs(np.arange(1 - side, side)) for side in shape)
    return np.outer(rows, columns)


def dense(deviations: np.ndarray, autocorrelation: np.ndarray) -> np.ndarray:
    """The n x n covariance, entry by entry."""
    reach = [side // 2 for side in autocorrelation.shape]
    pixels = list(np.ndindex(*deviations.shape))
    matrix = np.zeros((len(pixels), len(pixels)))
    for a, one in enumerate(pixels):
        for b, other in enumerate(pixels):
            lag = [i - j for i, j in zip(one, other, strict=True)]
            if all(abs(apart) <= furthest for apart, furthest in zip(lag, reach, strict=True)):
                correlation = autocorrelation[reach[0] + lag[0], reach[1] + lag[1]]
                matrix[a, b] = deviations[one] * correlation * deviations[other]
    return matrix


@pytest.mark.parametrize("autocorrelation", [STRIPES, falling(SHAPE)], ids=["near", "far"])
def test_apply_is_the_matrix_product(autocorrelation: np.ndarray) -> None:
    model = LocallyStationary(FIELD, autocorrelation)
    v = np.random.default_rng(0).normal(size=(2, 3, 42))
    expected = v @ dense(FIELD, autocorrelation)
    np.testing.assert_allclose(model.apply(v), expected, rtol=1e-12, atol=1e-12)
    assert np.linalg.eigvalsh(model.apply(np.eye(42))).min() > -1e-12


def test_samples_have_the_covariance() -> None:
    model = LocallyStationary(FIELD, STRIPES)
    covariance = dense(FIELD, STRIPES)
    draws = model.sample(np.random.default_rng(0), 50_000)
    # Standard error of an entry sqrt((S_ii S_jj + S_ij^2) / k); 1,764 entries stay within 5 of it, the seed is fixed.
    variances = np.diag(covariance)
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / len(draws))
    assert (np.abs(draws.T @ draws / len(draws) - covariance) < 5 * error).all()


def test_special_cases_are_the_other_models() -> None:
    v = np.random.default_rng(1).normal(size=42)
    constant = LocallyStationary(np.full(SHAPE, 2.0), STRIPES)
    np.testing.assert_allclose(constant.apply(v), Stationary(4 * STRIPES, SHAPE).apply(v), rtol=1e-12, atol=1e-12)
    independent = LocallyStationary(FIELD, [[1.0]])
    np.testing.assert_allclose(independent.apply(v), Diagonal(FIELD**2).apply(v), rtol=1e-12, atol=1e-12)


def test_a_large_image_without_a_large_matrix() -> None:
    deviations = 1 + np.arange(224.0)[:, None] * np.ones(224)
    model = LocallyStationary(deviations, STRIPES)
    v = np.zeros((224, 224))
    v[100, 50] = 1.0
    found = model.apply(v.ravel()).reshape(224, 224)[99:102, 49:52]
    np.testing.assert_allclose(found, 101.0 * np.array([[100.0], [101.0], [102.0]]) * STRIPES, rtol=1e-9, atol=1e-9)
    assert model.sample(np.random.default_rng(0), 1).shape == (1, 224 * 224)


def test_colours_have_it_in_space() -> None:
    channels = np.array([[2.0, 0.5], [0.5, 1.0]])
    model = PerChannel(channels, LocallyStationary(FIELD, STRIPES))
    v = np.random.default_rng(3).normal(size=84)
    expected = np.kron(channels, dense(FIELD, STRIPES)) @ v
    np.testing.assert_allclose(model.apply(v), expected, rtol=1e-12, atol=1e-12)
    model.check_image((2, *SHAPE))
    with pytest.raises(InputError, match=r"one channel of \(H, W\) = \(6, 7\)"):
        model.check_image((2, 7, 6))


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_it_is_saved_and_says_what_it_is(suffix: str, tmp_path: Path) -> None:
    field = FIELD.copy()
    field[0] = 0.0
    model = LocallyStationary(field, STRIPES)
    save_noise(model, tmp_path / f"noise{suffix}")
    loaded = load_noise(tmp_path / f"noise{suffix}")
    assert isinstance(loaded, LocallyStationary)
    assert np.array_equal(loaded.deviations, field)
    assert np.array_equal(loaded.autocorrelation, STRIPES)
    assert isinstance(model, NoiseModel)
    described = model.describe()
    assert described["model"] == "locally stationary"
    assert (described["shape"], described["lags"], described["sigmas"]) == ([6, 7], [1, 1], [0.0, field.max()])
    assert described["sigma"] == pytest.approx(np.sqrt((field**2).mean()), rel=1e-14)
    assert described["sentence"].startswith(
        f"A standard deviation from 0 to {field.max():.6g}, by the place in the image (none at 16.7% of the pixels),"
    )
    assert "0.10 in a row" in described["sentence"]
    assert repr(model) == f"LocallyStationary(<6 x 7 pixels, sd 0 to {field.max():.3g}>)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LocallyStationary(np.ones(4), STRIPES), "as many axes as the images"),
        (lambda: LocallyStationary(-FIELD, STRIPES), "non-negative"),
        (lambda: LocallyStationary(0 * FIELD, STRIPES), "got values from 0.0 to 0.0"),
        (lambda: LocallyStationary(np.ones((0, 3)), STRIPES), "got values from inf to 0.0"),
        (lambda: LocallyStationary(1e200 * FIELD, STRIPES), "the greatest from 1e-150 to 1e[+]150"),
        (lambda: LocallyStationary(FIELD * np.nan, STRIPES), "finite"),
        (lambda: LocallyStationary(FIELD, 2 * STRIPES), "must be 1 in the middle, at lag zero, got 2 there"),
        (lambda: LocallyStationary(FIELD, [[0.8, 1.0, 0.8]]), "negative power"),
        (lambda: LocallyStationary(FIELD, STRIPES).apply(np.ones(5)), "for 42 pixels, but 5"),
        (lambda: LocallyStationary(FIELD, STRIPES).check_image((1, 7, 6)), "make one for these axes"),
        (lambda: LocallyStationaryCovariance(smoothing=0), "smoothing must be positive"),
        (lambda: LocallyStationaryCovariance(max_lag=-1), "max_lag must be at least 0"),
    ],
)
def test_what_is_no_such_noise_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_smoothing_in_closed_form() -> None:
    used = np.ones((9, 11), dtype=bool)
    used[:, 4] = False
    np.testing.assert_allclose(
        smoothed_variance(np.full((9, 11), 3.0), used, 2.0), np.where(used, 3.0, 0.0), rtol=1e-12
    )
    rows, columns = np.mgrid[:9, :11]
    variance = 1.0 + rows + 0.1 * columns
    weights = np.exp(-((rows - 2) ** 2 + (columns - 7) ** 2) / (2 * 0.8**2)) * used
    found = smoothed_variance(variance, used, 0.8)
    ratio = found[2, 7] / found[2, 8]
    others = np.exp(-((rows - 2) ** 2 + (columns - 8) ** 2) / (2 * 0.8**2)) * used
    # Gaussians are cut off at 4 standard deviations, where 1e-3 of the greatest weight is left.
    expected = (weights * variance).sum() / weights.sum() / ((others * variance).sum() / others.sum())
    assert ratio == pytest.approx(expected, rel=1e-3)
    assert found.sum() == pytest.approx(variance[used].sum(), rel=1e-12)
    np.testing.assert_allclose(smoothed_variance(variance, used, 1e9)[used], variance[used].mean(), rtol=1e-9)


def test_smoothing_is_less_with_more_images_and_more_with_correlation() -> None:
    white = np.eye(1)
    assert default_smoothing(white, 10, (64, 64)) == pytest.approx(np.sqrt(10 / (4 * np.pi)))
    assert default_smoothing(white, 40, (64, 64)) == pytest.approx(default_smoothing(white, 10, (64, 64)) / 2)
    assert default_smoothing(falling((9, 9), 0.5), 10, (64, 64)) > default_smoothing(white, 10, (64, 64))
    assert default_smoothing(falling((64, 64), 0.99), 1, (64, 48)) == 12.0


def images_of(model: NoiseModel, count: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 50 + 5 * rng.normal(size=shape) + model.sample(rng, count, int(np.prod(shape))).reshape(count, *shape)


def test_the_estimator_finds_field_and_correlation() -> None:
    shape = (32, 24)
    field = 1 + 2 * np.linspace(0, 1, 24) * np.ones((32, 1))
    truth = falling(shape, 0.4)
    noise = LocallyStationaryCovariance().fit(images_of(LocallyStationary(field, truth), 100, shape)).noise_
    assert isinstance(noise, LocallyStationary)
    # 100 degrees of freedom: a standard deviation has a relative error of 7%; 768 of them within 4.5 of that.
    assert np.abs(noise.deviations / field - 1).max() < 4.5 * 0.07
    # The correlation of 99 fields with 768 pixels, of which about 1 in 2 is independent.
    assert np.abs(noise.autocorrelation - truth)[24:39, 16:31].max() < 5 / np.sqrt(99 * 768 / 2) + 0.01
    assert noise.deviations[:, -1].mean() / noise.deviations[:, 0].mean() > 2.3


def test_a_contrast_where_the_noise_is_strong_has_the_right_variance() -> None:
    shape = (20, 20)
    rows, columns = np.mgrid[:20, :20]
    field = 1 + 3 * np.exp(-((rows - 6) ** 2 + (columns - 6) ** 2) / 40.0)
    model = LocallyStationary(field, falling(shape, 0.5))
    region = np.zeros(shape, dtype=bool)
    region[4:9, 4:9] = True
    eta = np.where(region, 1 / region.sum(), -1 / (~region).sum()).ravel()
    truth = eta @ model.apply(eta)
    local, stationary = [], []
    for seed in range(10):
        images = images_of(model, 30, shape, seed)
        local.append(eta @ LocallyStationaryCovariance().fit(images).noise_.apply(eta) / truth)
        stationary.append(eta @ StationaryCovariance().fit(images).noise_.apply(eta) / truth)
    # One fit has an error of some 0.12, the mean of 10 one of 0.04; smoothing takes a few per cent from the top.
    assert np.mean(local) == pytest.approx(1.0, abs=0.05 + 3 * 0.04)
    assert np.mean(stationary) < 0.5


def test_pixels_that_never_vary_have_no_noise() -> None:
    images = images_of(Stationary(STRIPES, (16, 16)), 40, (16, 16))
    images[:, :5] = 0.1
    noise = LocallyStationaryCovariance().fit(images).noise_
    assert isinstance(noise, LocallyStationary)
    assert (noise.deviations[:5] == 0).all()
    # They do not make the variance of their neighbours smaller: 440 degrees of freedom each in 39 images.
    np.testing.assert_allclose(noise.deviations[5:].mean(axis=1), 1.0, atol=0.12)
    assert noise.autocorrelation[16, 15] == pytest.approx(0.1, abs=0.06)


def test_colours_share_one_field() -> None:
    channels = np.array([[2.0, 0.6], [0.6, 1.0]])
    field = FIELD / np.sqrt((FIELD**2).mean())
    truth = PerChannel(channels, LocallyStationary(field, STRIPES))
    planes = truth.sample(np.random.default_rng(0), 400).reshape(400, 2, *SHAPE)
    padded = np.concatenate([planes, np.zeros((400, 1, *SHAPE))], axis=1)  # a third channel that never varies
    noise = LocallyStationaryCovariance(smoothing=0.3).fit(np.moveaxis(padded, 1, -1)).noise_
    assert isinstance(noise, PerChannel)
    error = np.sqrt((np.outer(np.diag(channels), np.diag(channels)) + channels**2) / (399 * 42 / 2))
    assert (np.abs(noise.channels[:2, :2] - channels) < 5 * error).all()
    assert isinstance(noise.spatial, LocallyStationary)
    np.testing.assert_allclose(noise.spatial.deviations, field, rtol=5 * np.sqrt(1 / (2 * 2 * 399)))


def test_the_mean_variance_is_that_of_the_pixels() -> None:
    images = images_of(LocallyStationary(FIELD, STRIPES), 12, SHAPE)
    for smoothing in (None, 0.5, 3.0):
        noise = LocallyStationaryCovariance(smoothing=smoothing).fit(images).noise_
        variances = np.diag(noise.apply(np.eye(42)))
        assert variances.mean() == pytest.approx(images.var(axis=0, ddof=1).mean(), rel=1e-9)
