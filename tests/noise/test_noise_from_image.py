from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.stats import norm

from attentest.errors import InputError
from attentest.noise import AR1, Estimated, FromImage, ImageNoise, Isotropic, NoiseModel, PerChannel, from_image
from attentest.noise.tested_image import wavelet_covariance
from attentest.studies.brain.dataset import load_slices


def sigma_of(noise: NoiseModel) -> float:
    assert isinstance(noise, Estimated)
    assert isinstance(noise.model, Isotropic)
    return noise.model.sigma


def test_the_sample_variance_of_the_pixels() -> None:
    image = 1e6 + np.random.default_rng(0).normal(size=(9, 7))
    assert sigma_of(from_image(image)) == pytest.approx(image.std(ddof=1), rel=1e-9)
    assert from_image(image).describe() == from_image(torch.from_numpy(image), "sample").describe()


def test_the_covariance_of_the_channels() -> None:
    image = np.random.default_rng(0).normal(size=(9, 7, 3)) @ np.array([[1, 0.5, 0], [0, 2, 0], [0, 0.3, 1]])
    noise = from_image(image)
    assert isinstance(noise, Estimated)
    assert isinstance(noise.model, PerChannel)
    np.testing.assert_allclose(noise.model.channels, np.cov(image.reshape(-1, 3).T), rtol=1e-12)
    noise.check_image((3, 9, 7))
    with pytest.raises(InputError, match="3 channel"):
        noise.check_image((1, 9, 7))


def test_grey_values_in_three_channels_are_usable() -> None:
    image = np.random.default_rng(0).normal(size=(6, 6, 1)).repeat(3, axis=2)
    assert np.isfinite(from_image(image).apply(np.ones(108))).all()


def haar_detail(image: np.ndarray) -> np.ndarray:
    """The diagonal detail, block by block."""
    high = np.array([1.0, -1.0]) / np.sqrt(2)
    blocks = [
        high @ image[i : i + 2, j : j + 2] @ high
        for i in range(0, image.shape[0] - 1, 2)
        for j in range(0, image.shape[1] - 1, 2)
    ]
    return np.array(blocks)


@pytest.mark.parametrize("shape", [(4, 4), (8, 6), (9, 7)])
def test_the_median_diagonal_detail(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(1).normal(size=shape)
    expected = np.median(np.abs(haar_detail(image))) / norm.ppf(0.75)
    assert sigma_of(from_image(image, "wavelet")) == pytest.approx(expected, rel=1e-12)


def test_both_methods_recover_independent_noise() -> None:
    image = Isotropic(2.0).sample(np.random.default_rng(2), 1, 256 * 256).reshape(256, 256)
    # Relative standard errors: sqrt(1 / 2n) of the sample; of the median of m = n / 4 absolute values
    # 1 / (2 sqrt(m) * 2 phi(q) * q) with q the quartile of the normal distribution.
    quartile = norm.ppf(0.75)
    assert sigma_of(from_image(image)) == pytest.approx(2.0, rel=4 * np.sqrt(1 / (2 * image.size)))
    wavelet_error = 1 / (4 * np.sqrt(image.size / 4) * norm.pdf(quartile) * quartile)
    assert sigma_of(from_image(image, "wavelet")) == pytest.approx(2.0, rel=4 * wavelet_error)


def test_the_wavelet_does_not_take_what_is_shown_for_noise() -> None:
    rng = np.random.default_rng(3)
    rows, columns = np.mgrid[:128, :128]
    scene = 20.0 * (rows > 60) + 0.3 * columns
    image = scene + rng.normal(size=(128, 128))
    assert sigma_of(from_image(image, "wavelet")) == pytest.approx(1.0, rel=0.1)
    assert sigma_of(from_image(image, "sample")) > 5


def disc(side: int, radius: float, surround: float, seed: int = 0) -> np.ndarray:
    """A bright disc with noise of standard deviation 2 in a dark surround with noise of another."""
    rows, columns = np.mgrid[:side, :side] - (side - 1) / 2
    inside = np.hypot(rows, columns) < radius
    return np.where(inside, 60.0, 5.0) + np.where(inside, 2.0, surround) * np.random.default_rng(seed).normal(
        size=(side, side)
    )


@pytest.mark.parametrize("surround", [0.0, 0.1])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_wavelet_does_not_take_a_dark_surround_for_the_noise(surround: float, channels: int) -> None:
    # Three quarters of the image are surround. The median of some 400 details has a relative error of 6%; those on
    # the edge of the disc, a tenth, make it some 10% larger.
    planes = np.stack([disc(96, 28.0, surround, seed) for seed in range(channels)])
    assert np.median(np.abs(haar_detail(planes[0]))) < 0.2
    np.testing.assert_allclose(np.sqrt(np.diag(wavelet_covariance(planes))), 2.0, rtol=4 * 0.06 + 0.1)
    scaled = wavelet_covariance(1e60 * (planes - 300.0))
    np.testing.assert_allclose(scaled, 1e120 * wavelet_covariance(planes), rtol=1e-6)


@pytest.mark.parametrize("blur", [0.0, 1.0])
@pytest.mark.parametrize("side", [8, 16, 33])
def test_pure_noise_has_no_surround(side: int, blur: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        image = gaussian_filter(rng.normal(size=(side, side)), blur)
        expected = np.median(np.abs(haar_detail(image))) / norm.ppf(0.75)
        assert sigma_of(from_image(image, "wavelet")) == pytest.approx(expected, rel=1e-12)


def test_the_wavelet_finds_the_covariance_of_the_channels() -> None:
    mixing = np.array([[1, 0.5, 0], [0, 2, 0], [0, 0.3, 1]])
    image = np.random.default_rng(0).normal(size=(200, 200, 3)) @ mixing
    truth = mixing.T @ mixing
    noise = from_image(image, "wavelet")
    assert isinstance(noise, Estimated)
    assert isinstance(noise.model, PerChannel)
    deviations = np.sqrt(np.diag(truth))
    # Standard deviations of 10,000 medians have an error of 1.2%, correlations one of some 2%.
    np.testing.assert_allclose(
        noise.model.channels / np.outer(deviations, deviations), np.corrcoef(image.reshape(-1, 3).T), atol=0.08
    )
    grey = np.random.default_rng(0).normal(size=(32, 32))
    repeated = FromImage("wavelet").for_image(np.stack([grey, grey, 2 * grey]))
    single = sigma_of(FromImage("wavelet").for_image(grey[None])) ** 2
    np.testing.assert_allclose(
        repeated.model.channels,
        single * np.outer([1, 1, 2], [1, 1, 2]),
        rtol=1e-9,  # type: ignore[attr-defined]
    )


def test_a_channel_without_noise_has_none() -> None:
    planes = np.random.default_rng(0).normal(size=(3, 20, 20))
    planes[1] = 4.0
    covariance = FromImage("wavelet").for_image(planes).model.channels  # type: ignore[attr-defined]
    assert (covariance[1] == 0).all()
    assert (np.diag(covariance)[[0, 2]] > 0.5).all()


def test_the_surround_of_brain_slices_is_left_out(brain_data: Path) -> None:
    slices = load_slices(brain_data).flair[200::400].astype(np.float64)
    plain = [np.median(np.abs(haar_detail(image))) / norm.ppf(0.75) for image in slices]
    found = [sigma_of(from_image(image, "wavelet")) for image in slices]
    # Of 300 slices the median is 0.7 grey levels with the surround and 4.4 without.
    assert np.median(plain) < 1.5
    assert np.median(found) > 2.5


@pytest.mark.parametrize("method", ["sample", "wavelet"])
def test_it_says_that_it_is_approximate(method: str) -> None:
    image = np.random.default_rng(0).normal(size=(8, 8))
    each = FromImage(method)  # type: ignore[arg-type]
    assert isinstance(each, ImageNoise)
    assert not isinstance(each, NoiseModel)
    assert not isinstance(AR1(0.5), ImageNoise)
    model = each.for_image(image[None])
    assert isinstance(model, NoiseModel)
    assert model.describe() == from_image(image, method).describe()  # type: ignore[arg-type]
    for described in (each.describe(), model.describe()):
        assert described["approximate"] is True
        assert described["origin"] == "estimated from the tested image itself"
        assert described["method"] == method
        json.dumps(described)
    assert each.describe()["model"] == "from image"
    assert model.describe()["model"] == "isotropic"


QUIET = np.zeros((8, 8))
QUIET[0, 0] = 5.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FromImage("median"), "method must be sample or wavelet, got 'median'"),  # type: ignore[arg-type]
        (lambda: FromImage(["sample"]), "method must be sample or wavelet"),  # type: ignore[arg-type]
        (lambda: from_image(np.full((8, 8), 0.1)), "'sample' finds no noise"),
        (lambda: from_image(QUIET, "wavelet"), "'wavelet' finds no noise"),
        (lambda: from_image(np.ones((8, 8, 3)), "wavelet"), "'wavelet' finds no noise"),
        (lambda: from_image(1e308 * (2 * np.eye(8) - 1), "wavelet"), "in other units"),
        (lambda: from_image(disc(32, 3.0, 0.0), "wavelet"), "dark surround but for . blocks .* at least 16"),
        (lambda: from_image(np.eye(3), "wavelet"), "at least 4 blocks of 2 x 2 pixels, but the image has 3 x 3"),
        (lambda: from_image(np.ones((1, 1))), r"at least 2 pixels, got shape \(1, 1, 1\)"),
        (lambda: from_image(np.array([[np.nan, 1.0]])), "finite"),
        (lambda: from_image("scan.png"), "there is no image file scan.png"),
        (lambda: from_image(1e200 * np.eye(8)), "in other units"),
        (lambda: from_image(1e308 * (2 * np.eye(8) - 1)), "in other units"),
        (lambda: FromImage().for_image(np.ones(8)), r"\(C, H, W\) .* got shape \(8,\)"),
        (lambda: FromImage().for_image(np.full((1, 8, 8), np.inf)), "finite"),
    ],
)
def test_what_gives_no_noise_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
