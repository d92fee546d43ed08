"""Whether a tested image can have the noise that a model says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attentest import AttentionTest
from attentest.noise import AR1, Diagonal, FloatArray, Isotropic, NoiseModel, PerChannel, Stationary
from attentest.noise.implausible import BLOCKS_TOGETHER, noise_doubts
from attentest.presentation.footnotes import row_notes
from attentest.presentation.rows import row_of
from toys import tiny_vit

LAGS = np.arange(-15, 16)
SMOOTH = Stationary(np.exp(-np.add.outer(LAGS**2, LAGS**2) / 8.0), (16, 16))


def doubt(noise: NoiseModel, image: FloatArray) -> str | None:
    return noise_doubts(image[None], [noise])[0]


@pytest.mark.parametrize("noise", [Isotropic(7.0), AR1(0.9), AR1(-0.9), SMOOTH, Diagonal(np.linspace(0.5, 2, 256))])
def test_nothing_is_said_of_images_that_have_the_noise(noise: Any) -> None:
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:16, :16]
    square = 3.0 * ((down > 5) & (across > 5))
    for signal in (0.0, 0.1 * down, square):
        images = signal + noise.sample(rng, 40, 256).reshape(40, 1, 16, 16)
        assert noise_doubts(images, [noise] * 40) == [None] * 40


def smooth(rng: np.random.Generator, sigma: float) -> FloatArray:
    down, across = np.mgrid[:32, :32]
    signal = 100 * np.exp(-((down - 16) ** 2 + (across - 16) ** 2) / 100)
    return np.asarray((signal + sigma * rng.standard_normal((32, 32)))[None])


def test_noise_that_is_too_strong() -> None:
    rng = np.random.default_rng(0)
    said = doubt(Isotropic(30.0), smooth(rng, 3.0))
    assert said is not None
    assert "times less than the noise alone would make them differ" in said
    times = float(said.split("differ ")[1].split(" times")[0])
    # sqrt(3^2 + signal) against 30; the root mean square of 256 details has a standard error of 4%
    assert times == pytest.approx(10.0, rel=0.2)
    assert doubt(Isotropic(3.0), smooth(rng, 3.0)) is None
    assert doubt(Isotropic(1.0), np.add.outer(np.arange(16.0), np.arange(16.0))[None]) is not None  # a ramp


def test_a_constant_image_is_said_in_verdict_and_footnote() -> None:
    for image in (np.zeros((1, 16, 16)), np.broadcast_to(np.array([1.0, 2.0, 3.0])[:, None, None], (3, 4, 4))):
        assert str(doubt(Isotropic(1.0), image)).startswith("the image is constant: ")
    assert doubt(Isotropic(1.0), np.eye(4)[None]) is None
    test = AttentionTest(tiny_vit(), noise=1.0, randomise=0.5)
    constant, other = test(np.full((8, 8), 7.0)), test(np.random.default_rng(0).normal(size=(8, 8)))
    assert "The image is constant: it does not have the assumed noise" in constant.verdict()
    assert "constant" not in other.verdict()
    row = row_of("black.png", constant.record())
    assert sum("the image is constant" in note for note in row_notes(row, False, 0.05, 0.95)) == 1


def test_other_units() -> None:
    image = smooth(np.random.default_rng(0), 3.0)
    said = doubt(Isotropic(3.0), 257 * image)
    assert said is not None
    assert "check that image and noise model are in the same units" in said
    assert "less than" in str(doubt(Isotropic(3.0), image / 255))


def test_correlation_counts() -> None:
    noise = SMOOTH.sample(np.random.default_rng(0), 1).reshape(1, 16, 16)
    assert doubt(SMOOTH, noise) is None
    assert "lacks the correlation of neighbours" in str(doubt(Isotropic(1.0), noise))


def test_masked_and_clipped_areas_do_not_count() -> None:
    rng = np.random.default_rng(0)
    image = 5.0 * rng.standard_normal((1, 48, 48))
    image[:, :, 20:] = 0.0
    assert doubt(Isotropic(5.0), 100 + image) is None
    clipped = np.maximum(5.0 * rng.standard_normal((1, 48, 48)), 0.0)
    assert doubt(Isotropic(5.0), clipped) is None
    assert doubt(Isotropic(500.0), image[:, :8, :8]) is None  # too little


def test_masks_and_saturated_photographs_have_no_noise_that_exceeds_their_range() -> None:
    rng = np.random.default_rng(0)
    down, across = np.mgrid[:32, :32]
    mask = ((down - 16) ** 2 + (across - 16) ** 2 < 60).astype(np.float64)[None]
    for sigma in (0.1, 1.0, 8.0, 800.0):
        assert str(doubt(Isotropic(sigma), mask)).startswith("the image has only two values: ")
    saturated = np.clip(2000 * mask + 20 * rng.standard_normal((3, 32, 32)) - 20, 0, 255)
    assert "times less" in str(doubt(Isotropic(800.0), saturated))
    image = np.where(mask == 1, rng.standard_normal((1, 32, 32)), 0.0)[:, 12:, 12:]  # a few pixels with noise
    image[:, 4:] = 0
    assert doubt(Isotropic(1.0), image) is None


def test_footnotes_say_whether_details_are_too_large_or_too_small() -> None:
    image = np.random.default_rng(0).normal(size=(8, 8))
    row = row_of("a.png", AttentionTest(tiny_vit(), noise=1.0, confidence_level=None)(image).record())
    for sigma, size in ((0.001, "larger"), (1000.0, "smaller")):
        said = doubt(Isotropic(sigma), np.tile(image, (1, 4, 4)))
        assert f"are much {size} than it would" in "".join(row_notes({**row, "noise_doubt": said}, False, 0.05, None))


def test_channels_are_judged_one_by_one() -> None:
    image = np.concatenate([smooth(np.random.default_rng(seed), 3.0) for seed in range(3)])
    said = doubt(PerChannel([3.0, 3.0, 300.0]), image)
    assert said is not None
    assert "in channel 2" in said


def test_images_that_are_judged_together_are_judged_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    strengths = np.array([0.1, 1.0, 100.0])[rng.integers(3, size=(60, 2))]
    images = strengths[:, :, None, None] * rng.standard_normal((60, 2, 17, 24))
    noise: list[NoiseModel] = [Isotropic(1.0), Isotropic(10.0)] * 30
    together = noise_doubts(images, noise)
    assert together == [doubt(model, image) for model, image in zip(noise, images, strict=True)]
    assert {None} < set(together)
    assert any("in channel 1" in str(said) for said in together)


def test_an_image_of_many_parts_is_judged_as_a_whole() -> None:
    side = 2 * int(BLOCKS_TOGETHER**0.5) + 200
    image = np.random.default_rng(0).standard_normal((1, side, side))
    image[:, : side // 2] *= 0.1  # the root mean square is 0.71, and that of half of the image 0.1
    assert doubt(Isotropic(1.0), image) is None
    times = str(doubt(Isotropic(10.0), image)).split("differ ")[1].split(" times")[0]
    assert float(times) == 14  # of 14.07, with a relative standard error of 1 / sqrt(2 * 64,000 * 2) = 0.2%
