from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.stats import norm

from attentest import InputError
from attentest.noise import AR1, Estimated, FromImage, ImageNoise, Isotropic, NoiseModel, PerChannel, from_image


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
        (lambda: from_image(np.ones((8, 8, 3)), "wavelet"), "grey images, but this one has 3 channels"),
        (lambda: from_image(np.eye(3), "wavelet"), "at least 4 x 4 pixels, but the image has 3 x 3"),
        (lambda: from_image(np.ones((1, 1))), r"at least 2 pixels, got shape \(1, 1, 1\)"),
        (lambda: from_image(np.array([[np.nan, 1.0]])), "finite"),
        (lambda: from_image("scan.png"), "there is no image file scan.png"),
        (lambda: from_image(1e200 * np.eye(8)), "in other units"),
        (lambda: from_image(1e308 * (2 * np.eye(8) - 1)), "in other units"),
        (lambda: FromImage().for_image(np.eye(8)), r"\(C, H, W\) .* got shape \(8, 8\)"),
        (lambda: FromImage().for_image(np.full((1, 8, 8), np.inf)), "finite"),
    ],
)
def test_what_gives_no_noise_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
