from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image

from attentest.errors import InputError
from attentest.noise import (
    AR1,
    AR1Covariance,
    Dense,
    Diagonal,
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
from attentest.noise.residuals import fitted_tail

H, W = 6, 8
CHANNELS = np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
ESTIMATORS = [
    PooledVariance,
    PixelVariance,
    AR1Covariance,
    StationaryCovariance,
    LocallyStationaryCovariance,
    ShrunkCovariance,
]


def grey_images(noise: NoiseModel, count: int, seed: int = 0, shape: tuple[int, int] = (H, W)) -> np.ndarray:
    """Images (K, H, W) of noise around a mean that is not flat."""
    rng = np.random.default_rng(seed)
    return 5 * rng.normal(size=shape) + noise.sample(rng, count, shape[0] * shape[1]).reshape(count, *shape)


def colour_images(noise: NoiseModel, count: int, seed: int = 0) -> np.ndarray:
    """Images (K, H, W, 3)."""
    rng = np.random.default_rng(seed)
    planes = noise.sample(rng, count, 3 * H * W).reshape(count, 3, H, W) + 5 * rng.normal(size=(3, H, W))
    return np.moveaxis(planes, 1, -1)


def matrix(noise: NoiseModel, n: int) -> np.ndarray:
    return noise.apply(np.eye(n))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_fitting_in_the_manner_of_scikit_learn(estimator: type[NoiseEstimator]) -> None:
    images = grey_images(Isotropic(2.0), 12)
    fitted = estimator()
    assert fitted.fit(images) is fitted
    assert fitted.n_images_ == 12
    assert isinstance(fitted.noise_, NoiseModel)
    np.testing.assert_allclose(fitted.mean_, images.mean(axis=0)[None], rtol=1e-12, atol=1e-12)
    assert as_noise(fitted).describe()["estimator"] == type(fitted).__name__
    assert estimator.__name__ in repr(fitted)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_units_and_offsets_carry_through(estimator: type[NoiseEstimator]) -> None:
    images = grey_images(AR1(0.4), 15)
    plain, scaled = estimator().fit(images).noise_, estimator().fit(1e60 * (images + 7)).noise_
    v = np.random.default_rng(1).normal(size=H * W)
    np.testing.assert_allclose(scaled.apply(v), 1e120 * plain.apply(v), rtol=1e-9, atol=1e109)


def test_any_kind_of_image_and_any_iterable() -> None:
    levels = np.random.default_rng(0).integers(0, 255, size=(5, H, W, 3), dtype=np.uint8)
    arrays = PooledVariance().fit(list(levels)).noise_
    pictures = PooledVariance().fit(Image.fromarray(image) for image in levels).noise_
    tensors = PooledVariance().fit(torch.from_numpy(levels).permute(0, 3, 1, 2)).noise_
    for noise in (arrays, pictures, tensors):
        assert isinstance(noise, PerChannel)
        np.testing.assert_allclose(noise.channels, arrays.channels, rtol=1e-10)  # type: ignore[attr-defined]


def test_two_images_in_closed_form() -> None:
    images = np.array([[[1.0, 2.0, 4.0]], [[3.0, 1.0, 0.0]]])
    # Half differences -1, 0.5 and 2 on either side: sums of squares 2, 0.5 and 8, over K - 1 = 1.
    pooled = PooledVariance().fit(images).noise_
    assert pooled == Isotropic(float(np.sqrt(10.5 / 3)))
    ar1 = AR1Covariance().fit(images).noise_
    assert isinstance(ar1, AR1)
    assert ar1.rho == pytest.approx(2 * (-1 * 0.5 + 0.5 * 2) / 2 / 3.5, rel=1e-14)
    assert ar1.sigma == pytest.approx(np.sqrt(3.5), rel=1e-14)


def test_pixel_variance_in_closed_form() -> None:
    images = grey_images(Diagonal(np.arange(1.0, H * W + 1)), 10)
    noise = PixelVariance().fit(images).noise_
    assert isinstance(noise, Diagonal)
    np.testing.assert_allclose(noise.variance, images.var(axis=0, ddof=1).ravel(), rtol=1e-12)
    noise.check_image((1, H, W))


def test_pixels_that_never_vary_are_fine() -> None:
    images = grey_images(Isotropic(1.0), 11)
    images[:, 0, :] = 0.1  # not a float64 whose sum of eleven is exact
    variance = PixelVariance().fit(images).noise_.variance.reshape(H, W)  # type: ignore[attr-defined]
    assert (variance[0] == 0).all()
    assert (variance[1:] > 0).all()


def test_pooled_variance_recovers_the_truth() -> None:
    noise = PooledVariance().fit(grey_images(Isotropic(3.0), 400)).noise_
    assert isinstance(noise, Isotropic)
    # A variance from (K - 1) n = 19,152 values has relative standard error sqrt(2 / 19,152), its root half of that.
    assert noise.sigma == pytest.approx(3.0, rel=4 * 0.5 * np.sqrt(2 / (399 * H * W)))


@pytest.mark.parametrize("estimator", [PooledVariance, AR1Covariance, StationaryCovariance])
def test_few_images_give_no_bias(estimator: type[NoiseEstimator]) -> None:
    # With K = 2 half the variance goes with the mean: dividing by K would give 0.5 in place of 1.
    pairs = Isotropic(1.0).sample(np.random.default_rng(4), 300, H * W).reshape(150, 2, H, W)
    first_pixel = np.eye(H * W)[0]
    variances = [estimator().fit(pair).noise_.apply(first_pixel)[0] for pair in pairs]
    # Each is the mean of n squares, of variance 2 / n.
    assert np.mean(variances) == pytest.approx(1.0, abs=4 * np.sqrt(2 / (H * W) / len(pairs)))


def test_colour_covariance_recovers_the_truth() -> None:
    noise = PooledVariance().fit(colour_images(PerChannel(CHANNELS), 400)).noise_
    assert isinstance(noise, PerChannel)
    variances = np.diag(CHANNELS)
    error = np.sqrt((np.outer(variances, variances) + CHANNELS**2) / (399 * H * W))
    assert (np.abs(noise.channels - CHANNELS) < 4 * error).all()


@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.8])
def test_ar1_recovers_the_truth(rho: float) -> None:
    noise = AR1Covariance().fit(grey_images(AR1(rho, 2.0), 500)).noise_
    assert isinstance(noise, AR1)
    # Bartlett: the standard error of a lag-1 correlation is about sqrt((1 - rho^2) / N), N = 499 * 47 pairs; that of
    # the variance sqrt(2 (1 + rho^2) / (1 - rho^2) / N), relative.
    pairs = 499 * (H * W - 1)
    assert noise.rho == pytest.approx(rho, abs=4 * np.sqrt((1 - rho**2) / pairs) + 1e-3)
    assert noise.sigma**2 == pytest.approx(4.0, rel=4 * np.sqrt(2 * (1 + rho**2) / (1 - rho**2) / pairs))


def test_ar1_of_colours_recovers_the_truth() -> None:
    noise = AR1Covariance().fit(colour_images(PerChannel(CHANNELS, AR1(0.5)), 500)).noise_
    assert isinstance(noise, PerChannel)
    assert isinstance(noise.spatial, AR1)
    assert noise.spatial.sigma == 1.0
    assert noise.spatial.rho == pytest.approx(0.5, abs=4 * np.sqrt(0.75 / (499 * (H * W - 1))))
    variances = np.diag(CHANNELS)
    # (1 + rho^2) / (1 - rho^2) = 5/3 for the dependence along the image.
    error = np.sqrt(5 / 3 * (np.outer(variances, variances) + CHANNELS**2) / (499 * H * W))
    assert (np.abs(noise.channels - CHANNELS) < 4 * error).all()


BLUR = np.exp(-(np.arange(-5, 6)[:, None] ** 2 + np.arange(-5, 6) ** 2) / 4.0)
STRIPES = np.array([[0.4, 0.1, 0.0], [0.1, 1.0, 0.1], [0.0, 0.1, 0.4]])


@pytest.mark.parametrize("truth", [np.array([[1.0]]), STRIPES, BLUR], ids=["white", "stripes", "blur"])
def test_stationary_covariance_recovers_the_truth(truth: np.ndarray) -> None:
    shape = (12, 14)
    model = Stationary(2.5 * truth, shape)
    estimated = StationaryCovariance().fit(grey_images(model, 2000, shape=shape)).noise_
    assert isinstance(estimated, Stationary)
    n = shape[0] * shape[1]
    column = np.eye(n)[n // 2 + shape[1] // 2]
    # A lag has (K - 1) n pairs at most and a quarter of that at half the image, each of variance at most
    # 2 * 2.5^2 times the sum of squared correlations; 5 standard errors, the seed is fixed.
    spread = float((truth**2).sum())
    error = 2.5 * np.sqrt(2 * spread / (1999 * n / 4))
    assert np.abs(estimated.apply(column) - model.apply(column)).max() < 5 * error


def test_stationary_covariance_of_a_contrast_is_hardly_biased() -> None:
    shape = (16, 16)
    model = Stationary(np.exp(-(np.arange(-15, 16)[:, None] ** 2 + np.arange(-15, 16) ** 2) / 4.0), shape)
    region = np.zeros(shape, dtype=bool)
    region[4:9, 5:12] = True
    eta = np.where(region, 1 / region.sum(), -1 / (~region).sum()).ravel()
    truth = eta @ model.apply(eta)
    rng = np.random.default_rng(0)
    fields = model.sample(rng, 40 * 100).reshape(40, 100, *shape)
    ratios = [eta @ StationaryCovariance().fit(images).noise_.apply(eta) / truth for images in fields]
    # Their standard deviation is about 0.05, so the mean of 40 has an error of 0.008; damping and clipping take
    # some 1%.
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.01 + 4 * 0.008)
    assert np.std(ratios) < 0.08


def reach(length: float, shape: tuple[int, int]) -> np.ndarray:
    """Correlations exp(-lag / length) along both axes: convex, so that they have no negative power on any torus."""
    rows, columns = (np.exp(-np.abs(np.arange(1 - side, side)) / length) for side in shape)
    return np.outer(rows, columns)


@pytest.mark.parametrize("length", [15.0, 30.0])
def test_long_correlations_are_not_cut_off(length: float) -> None:
    # If correlations as long as the image fell to zero at its end, eta' Sigma eta would be half as large again.
    shape = (16, 14)
    model = Stationary(reach(length, shape), shape)
    region = np.zeros(shape, dtype=bool)
    region[2:7, 3:8] = True
    eta = np.where(region, 1 / region.sum(), -1 / (~region).sum()).ravel()
    fields = model.sample(np.random.default_rng(6), 30 * 20).reshape(30, 20, *shape)
    ratios = [eta @ StationaryCovariance().fit(images).noise_.apply(eta) for images in fields] / (
        eta @ model.apply(eta)
    )
    # A variance from K - 1 = 19 images of one contrast has a relative error of at most sqrt(2 / 19) = 0.32, and the
    # mean of 30 one of 0.06; 3 of these, and 4% for the curve and for negative power.
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.04 + 3 * 0.06)
    assert np.std(ratios) < 0.4


def test_the_estimate_is_the_mean_of_pairs_at_short_lags() -> None:
    # With so many images there is no negative power, and each lag up to half of either side is its own mean of pairs.
    shape = (7, 8)
    images = Stationary(reach(1.0, shape), shape).sample(np.random.default_rng(8), 4000).reshape(4000, *shape)
    noise = StationaryCovariance().fit(images).noise_
    assert isinstance(noise, Stationary)
    residuals = images - images.mean(axis=0)
    for i, j in [(0, 0), (1, 0), (0, 1), (2, 3), (3, -1), (3, 4)]:
        rows, columns = shape[0] - i, shape[1] - abs(j)
        first = residuals[:, :rows, max(-j, 0) :][:, :, :columns]
        second = residuals[:, i:, max(j, 0) :][:, :, :columns]
        expected = (first * second).sum() / (3999 * rows * columns)
        assert noise.autocovariance[6 + i, 7 + j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("amplitude", "down", "across", "power", "norm"),
    [(1.0, 3.0, 3.0, 1.0, 1.0), (0.5, 20.0, 6.0, 1.0, 2.0), (0.9, 4.0, 5.0, 2.0, 2.0), (1.0, 60.0, 60.0, 1.5, 1.5)],
)
def test_the_curve_finds_its_own_parameters(
    amplitude: float, down: float, across: float, power: float, norm: float
) -> None:
    rows, columns = np.abs(np.arange(-15.0, 16.0)), np.abs(np.arange(-11.0, 12.0))

    def curve(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.asarray(amplitude * np.exp(-(((i / down) ** norm + (j / across) ** norm) ** (power / norm))))

    correlation = curve(rows[:, None], columns)
    correlation[15, 11] = 1.0
    pairs = (16 - rows)[:, None] * (12 - columns)
    found = fitted_tail(correlation, pairs)(rows[:, None], columns)
    assert np.abs(found - curve(rows[:, None], columns)).max() < 0.01


@pytest.mark.parametrize("shape", [(1, 90), (5, 1), (2, 2), (1, 2)])
def test_narrow_images_have_a_stationary_covariance(shape: tuple[int, int]) -> None:
    noise = StationaryCovariance().fit(grey_images(Isotropic(1.0), 50, shape=shape)).noise_
    covariance = matrix(noise, shape[0] * shape[1])
    assert np.linalg.eigvalsh(covariance).min() > -1e-10


def test_a_known_range_makes_the_stationary_estimate_better() -> None:
    shape = (16, 16)
    model = Stationary(STRIPES, shape)
    eta = np.zeros(shape)
    eta[:8] = 1 / 128
    eta[8:] = -1 / 128
    fields = model.sample(np.random.default_rng(1), 40 * 20).reshape(40, 20, *shape)
    truth = eta.ravel() @ model.apply(eta.ravel())

    def error(max_lag: int | None) -> float:
        fits = (StationaryCovariance(max_lag).fit(images).noise_ for images in fields)
        return float(np.mean([(eta.ravel() @ noise.apply(eta.ravel()) / truth - 1) ** 2 for noise in fits]))

    assert error(1) < error(None) / 2


@pytest.mark.parametrize("max_lag", [1, 3, 100])
def test_correlations_up_to_the_largest_lag_are_kept(max_lag: int) -> None:
    noise = StationaryCovariance(max_lag).fit(grey_images(Stationary(STRIPES, (H, W)), 2000)).noise_
    assert isinstance(noise, Stationary)
    middle = noise.autocovariance[H - 2 : H + 1, W - 2 : W + 1]
    # At least 1999 * 35 pairs, correlated by at most sum(STRIPES^2) = 1.36.
    np.testing.assert_allclose(middle, STRIPES, atol=4.5 * np.sqrt(2 * 1.36 / (1999 * 35)))


def test_independent_pixels_are_the_largest_lag_0() -> None:
    noise = StationaryCovariance(0).fit(grey_images(AR1(0.5, 2.0), 20)).noise_
    pooled = PooledVariance().fit(grey_images(AR1(0.5, 2.0), 20)).noise_
    v = np.random.default_rng(0).normal(size=H * W)
    np.testing.assert_allclose(noise.apply(v), pooled.apply(v), rtol=1e-9, atol=1e-9)


def test_stationary_covariance_of_colours_recovers_the_truth() -> None:
    noise = StationaryCovariance().fit(colour_images(PerChannel(CHANNELS, Stationary(STRIPES, (H, W))), 1000)).noise_
    assert isinstance(noise, PerChannel)
    assert isinstance(noise.spatial, Stationary)
    middle = noise.spatial.autocovariance[H - 2 : H + 1, W - 2 : W + 1]
    # Lag 1 of 6 x 8 pixels has at least 999 * 35 pairs, correlated by at most sum(STRIPES^2) = 1.36.
    np.testing.assert_allclose(middle, STRIPES, atol=5 * np.sqrt(2 * 1.36 / (999 * 35)))
    assert middle[1, 1] == pytest.approx(1.0, rel=1e-12)
    variances = np.diag(CHANNELS)
    error = np.sqrt(1.36 * (np.outer(variances, variances) + CHANNELS**2) / (999 * H * W))
    assert (np.abs(noise.channels - CHANNELS) < 4 * error).all()


def test_a_channel_that_never_varies_plays_no_part() -> None:
    images = colour_images(PerChannel(CHANNELS, AR1(0.5)), 30)
    images[..., 1] = 3.7
    for estimator in (PooledVariance(), AR1Covariance(), StationaryCovariance()):
        noise = estimator.fit(images).noise_
        assert isinstance(noise, PerChannel)
        assert not noise.channels[1].any()
        assert np.isfinite(noise.apply(np.ones(3 * H * W))).all()


def test_shrunk_covariance_recovers_the_truth() -> None:
    shape, truth = (3, 4), AR1(0.7, 1.5)
    noise = ShrunkCovariance().fit(grey_images(truth, 5000, shape=shape)).noise_
    assert isinstance(noise, Dense)
    covariance = matrix(truth, 12)
    error = np.sqrt((np.outer(np.diag(covariance), np.diag(covariance)) + covariance**2) / 4999)
    assert (np.abs(noise.covariance - covariance) < 4.5 * error).all()  # of 144 entries


def test_shrinking_keeps_the_mean_variance_without_bias() -> None:
    # Ledoit and Wolf keep the trace: its mean over many fits of K = 10 is that of the truth, not 9/10 of it.
    images = Isotropic(1.0).sample(np.random.default_rng(3), 3000, 12).reshape(300, 10, 3, 4)
    traces = [np.trace(ShrunkCovariance().fit(sample).noise_.covariance) / 12 for sample in images]  # type: ignore[attr-defined]
    assert np.mean(traces) == pytest.approx(1.0, abs=4 * np.sqrt(2 / (9 * 12) / 300))


def test_a_fitted_estimator_is_fitted_again() -> None:
    estimator = PooledVariance().fit(grey_images(Isotropic(1.0), 5))
    assert estimator.fit(colour_images(PerChannel(CHANNELS), 4)).n_images_ == 4
    assert isinstance(estimator.noise_, PerChannel)


def test_without_scikit_learn_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.covariance", None)
    with pytest.raises(InputError, match=r"pip install 'attentest\[estimators\]'"):
        ShrunkCovariance().fit(grey_images(Isotropic(1.0), 12))


def images(count: int = 12) -> np.ndarray:
    return grey_images(Isotropic(1.0), count)


def with_nan() -> np.ndarray:
    broken = images()
    broken[2, 0, 0] = np.nan
    return broken


def blank() -> np.ndarray:
    broken = images()
    broken[3] = 7.0
    return broken


class Unfitting:
    noise_ = "loud"

    def fit(self, images: object) -> Unfitting:
        return self


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PooledVariance().fit([]), "at least 2 reference images are needed, got none"),
        (lambda: PooledVariance().fit(images(1)), "at least 2 reference images .* got 1: give more"),
        (lambda: PixelVariance().fit(images(9)), r"at least 10 .* sqrt\(2 / \(K - 1\)\).* got 9"),
        (lambda: ShrunkCovariance().fit(images(9)), "at least 10 .* got 9"),
        (lambda: ShrunkCovariance().fit(np.random.default_rng(0).normal(size=(10, 65, 64))), "4096 values, .* 4160"),
        (lambda: PooledVariance().fit(5), "must be a list of images, got int"),  # type: ignore[arg-type]
        (lambda: PooledVariance().fit("scan.png"), "got a string"),  # type: ignore[arg-type]
        (lambda: PooledVariance().fit(["scan.png"]), "reference image 1 cannot be used"),  # type: ignore[list-item]
        (lambda: PooledVariance().fit(images()[0]), "one image, or has signals as its rows"),
        (lambda: PooledVariance().fit([*images(), images()[0].T]), r"\(1, 6, 8\) and image 13 is \(1, 8, 6\)"),
        (lambda: PooledVariance().fit(with_nan()), "reference image 3 cannot be used: .* 1 of 48 are NaN"),
        (lambda: PooledVariance().fit(blank()), "reference image 4 has the value 7 in every pixel"),
        (lambda: PooledVariance().fit([0.1 * images()[0]] * 3), "3 reference images are all the same"),
        (lambda: PixelVariance().fit([0.1 * images()[0]] * 11), "are all the same"),
        (lambda: PooledVariance().fit(1e200 * images()), "standard deviation of .* in other units"),
        (lambda: PooledVariance().fit(1e-152 * images()), "standard deviation of .* in other units"),
        (lambda: PooledVariance().fit(1.7e308 * np.sign(images())), "in other units"),
        (lambda: AR1Covariance().fit([[[0.0, 1.0, 0.0]], [[1.0, 2.0, 1.0]]]), "correlation of 1, .* between -1 and 1"),
        (lambda: AR1Covariance().fit([[[0.0, 1.0]], [[1.0, 0.0]]]), "correlation of -1"),
        (lambda: StationaryCovariance(max_lag=-1), "max_lag must be at least 0"),
        (lambda: StationaryCovariance(max_lag=1.5), "max_lag must be a whole number"),  # type: ignore[arg-type]
        (lambda: as_noise(PooledVariance()), r"PooledVariance is not fitted yet: call its fit\(images\)"),
        (lambda: as_noise(PooledVariance), "got ABCMeta"),  # type: ignore[arg-type]
        (lambda: as_noise(Unfitting()), "noise_ of a fitted Unfitting must be a noise model, got str"),
        (lambda: as_noise(FromImage()), "FromImage makes one per image"),  # type: ignore[arg-type]
    ],
)
def test_what_gives_no_estimate_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
