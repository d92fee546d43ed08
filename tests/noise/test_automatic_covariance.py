"""The estimator that the images choose: stationary noise, or locally stationary noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from attentest.errors import InputError
from attentest.noise import (
    AutomaticCovariance,
    LocallyStationaryCovariance,
    NoiseEstimator,
    StationaryCovariance,
    as_noise,
    load_noise,
    save_noise,
)
from attentest.noise.estimators import CHOICE_LEVEL
from attentest.noise.model import complete
from attentest.noise.residuals import Cells, equal_strength
from attentest.registry import NOISE_ESTIMATORS

SIDE = 16


def correlated(rng: np.random.Generator, count: int, side: int = SIDE) -> np.ndarray:
    """Stationary noise, correlated over a few pixels."""
    return gaussian_filter(rng.standard_normal((count, side + 16, side + 16)), (0, 1, 1))[:, 8:-8, 8:-8]


def vignette(side: int = SIDE) -> np.ndarray:
    """Strength of noise that is three times as strong in the corners as in the middle."""
    places = np.linspace(-1, 1, side)
    return 1 + places[:, None] ** 2 + places**2


def assert_same(chosen: NoiseEstimator, expected: NoiseEstimator) -> None:
    v = np.random.default_rng(1).normal(size=chosen.mean_.size)
    np.testing.assert_array_equal(chosen.noise_.apply(v), expected.noise_.apply(v))


@pytest.mark.parametrize("colours", [1, 3])
def test_noise_that_is_equally_strong_everywhere_is_stationary(colours: int) -> None:
    images = correlated(np.random.default_rng(0), 8 * colours).reshape(8, colours, SIDE, SIDE)
    chosen = AutomaticCovariance(max_lag=5).fit(images)
    assert_same(chosen, StationaryCovariance(max_lag=5).fit(images))
    assert chosen.choice_.startswith("stationary, because no part of the image shows stronger noise than others: p = ")


@pytest.mark.parametrize("colours", [1, 3])
def test_noise_that_is_stronger_in_the_corners_is_locally_stationary(colours: int) -> None:
    images = correlated(np.random.default_rng(0), 8 * colours).reshape(8, colours, SIDE, SIDE) * vignette()
    chosen = AutomaticCovariance(smoothing=3.0).fit(images)
    assert_same(chosen, LocallyStationaryCovariance(smoothing=3.0).fit(images))
    assert chosen.choice_.startswith("locally-stationary, because the strength of the noise differs")


def test_an_area_without_noise_is_left_out() -> None:
    images = correlated(np.random.default_rng(0), 4)
    images[:, :, : SIDE // 2] = 0.0
    assert_same(AutomaticCovariance().fit(images), LocallyStationaryCovariance().fit(images))
    ignored = AutomaticCovariance(ignore_constant=True).fit(images)
    assert_same(ignored, StationaryCovariance(ignore_constant=True).fit(images))


def test_two_images_do_not_tell_and_are_stationary() -> None:
    images = correlated(np.random.default_rng(0), 2) * vignette()
    chosen = AutomaticCovariance().fit(images)
    assert_same(chosen, StationaryCovariance().fit(images))
    assert "so few images do not tell" in chosen.choice_


def test_the_noise_says_what_was_chosen_and_is_estimated_again_in_the_same_way(tmp_path: Path) -> None:
    chosen = AutomaticCovariance(max_lag=4).fit(correlated(np.random.default_rng(0), 5))
    save_noise(chosen, tmp_path / "noise.json")
    loaded = complete(load_noise(tmp_path / "noise.json"))
    assert loaded.describe() == complete(as_noise(chosen)).describe()
    assert loaded.describe()["choice"] == chosen.choice_
    assert f"(AutomaticCovariance chose {chosen.choice_})" in loaded.sentence()
    again = loaded.fresh_estimator()
    assert isinstance(again, NOISE_ESTIMATORS.load("auto"))
    assert again.max_lag == 4


def test_parameters_are_those_of_the_estimators_it_chooses_from() -> None:
    for parameters in ({"max_lag": -1}, {"smoothing": 0.0}, {"gain": "none"}, {"ignore_constant": 2}):
        with pytest.raises(InputError, match=next(iter(parameters))):
            AutomaticCovariance(**parameters)


def test_means_over_cells_have_the_covariances_of_their_pixels() -> None:
    shape, cells = (9, 13), Cells((9, 13))
    decay = np.outer(0.5 ** np.abs(np.arange(-8.0, 9)), 0.8 ** np.abs(np.arange(-12.0, 13)))
    units = cells.means(np.eye(9 * 13).reshape(-1, *shape)).T  # the weights of each mean
    rows, columns = np.indices(shape).reshape(2, -1)
    dense = decay[8 + np.subtract.outer(rows, rows), 12 + np.subtract.outer(columns, columns)]
    np.testing.assert_allclose(cells.covariances(decay), units @ dense @ units.T, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [3, 6, 20])
@pytest.mark.parametrize("noise", ["independent", "correlated", "unequal gains"])
def test_equal_strength_is_rejected_as_often_as_the_level_says(noise: str, count: int) -> None:
    rng = np.random.default_rng(count)
    by_lag = np.zeros((2 * SIDE - 1, 2 * SIDE - 1))
    by_lag[SIDE - 1, SIDE - 1] = 1.0
    if noise == "correlated":
        by_lag = gaussian_filter(by_lag, np.sqrt(2.0))
        by_lag /= by_lag.max()
    used, pvalues = np.ones((SIDE, SIDE), dtype=bool), []
    for _ in range(400):
        images = correlated(rng, count) if noise == "correlated" else rng.standard_normal((count, SIDE, SIDE))
        if noise == "unequal gains":
            images *= np.exp(0.1 * rng.standard_normal((count, 1, 1)))
        residuals = (images - images.mean(axis=0))[:, None]
        tested = equal_strength(residuals / residuals.std(), used, by_lag)
        assert tested is not None
        pvalues.append(tested[0])
    # A standard error of 0.011: three of them, and a little because F is approximate.
    assert 0.005 <= np.mean(np.array(pvalues) <= CHOICE_LEVEL) <= CHOICE_LEVEL + 0.04


def test_unequal_strength_is_found_in_few_images() -> None:
    rng = np.random.default_rng(4)
    found = [AutomaticCovariance(max_lag=4).fit(correlated(rng, 4, 32) * vignette(32)).choice_ for _ in range(10)]
    assert sum(choice.startswith("locally-stationary") for choice in found) >= 9
