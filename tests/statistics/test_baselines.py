from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from attentest import AttentionTest
from attentest.contrast import Background, Filtered, Neighbourhood, RegionMean
from attentest.errors import InputError
from attentest.noise import AR1, FromImage
from attentest.statistics.pvalue import bonferroni_log_pvalue, naive_log_pvalue, permutation_test
from toys import tiny_vit


@pytest.mark.parametrize("z", [-3.0, 0.0, 1.5])
def test_naive_is_the_z_test(z: float) -> None:
    assert np.exp(naive_log_pvalue(z)) == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-14)
    assert np.exp(naive_log_pvalue(z, "greater")) == pytest.approx(stats.norm.sf(z), rel=1e-14)
    assert np.exp(naive_log_pvalue(z, "less")) == pytest.approx(stats.norm.cdf(z), rel=1e-14)


def test_naive_and_bonferroni_stay_in_logs() -> None:
    # log p = log 2 + log of the leading asymptotic series of the tail, right to 1e-5 at z = 500
    expected = np.log(2) - 500**2 / 2 - np.log(500 * np.sqrt(2 * np.pi))
    assert naive_log_pvalue(500.0) == pytest.approx(expected, abs=1e-5)
    assert bonferroni_log_pvalue(naive_log_pvalue(500.0), 50_176) == pytest.approx(
        expected + 50_176 * np.log(2), abs=1e-5
    )
    assert bonferroni_log_pvalue(np.log(1e-3), 4) == pytest.approx(np.log(16e-3))
    assert bonferroni_log_pvalue(np.log(1e-3), 256) == 0.0


def test_permutation_counts_what_exceeds() -> None:
    image = np.arange(6.0).reshape(1, 2, 3)
    weights = np.array([1.0, 2, 3, -1, -2, -3])

    def statistics(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1) @ weights

    result = permutation_test(image, statistics, 400, 33, np.random.default_rng(0))
    above, equal = (compare(np.abs(result.permuted), abs(result.statistic)).sum() for compare in (np.greater, np.equal))
    assert 0 < above < 400
    assert equal > 0
    assert result.count_pvalue == above / 400
    assert result.pvalue == (above + equal + 1) / 401
    one_sided = [
        permutation_test(image, statistics, 400, 33, np.random.default_rng(0), alternative).count_pvalue
        for alternative in ("greater", "less")
    ]
    assert one_sided[0] == np.mean(result.permuted > result.statistic)
    assert one_sided[1] == np.mean(result.permuted < result.statistic)
    again = permutation_test(image, statistics, 400, 33, np.random.default_rng(0))
    assert np.array_equal(result.permuted, again.permuted)


def test_permutation_is_valid_with_ties() -> None:
    """A fixed region and one bright pixel anywhere: exchangeable, with two possible statistics."""
    rng = np.random.default_rng(0)

    def statistics(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1)[:, :3].sum(axis=1)

    pvalues = []
    for _ in range(400):
        image = np.zeros(16)
        image[rng.integers(16)] = 1.0
        pvalues.append(permutation_test(image.reshape(1, 4, 4), statistics, 19, 19, rng).pvalue)
    # A valid test rejects at most 5%; the standard error of 400 repeats is 1.1%.
    assert np.mean(np.array(pvalues) <= 0.05) < 0.05 + 3 * 0.011
    flat = permutation_test(np.ones((1, 4, 4)), statistics, 19, 19, rng)
    assert (flat.pvalue, flat.count_pvalue) == (1.0, 0.0)


def test_permutation_keeps_the_channels_of_a_pixel_together() -> None:
    image = np.stack([np.arange(4.0), 10 + np.arange(4.0)]).reshape(2, 2, 2)
    seen: list[np.ndarray] = []

    def statistics(images: np.ndarray) -> np.ndarray:
        seen.extend(images)
        return np.zeros(len(images))

    permutation_test(image, statistics, 20, 7, np.random.default_rng(0))
    assert len(seen) == 21
    assert all(np.array_equal(one[1], one[0] + 10) for one in seen)
    assert len({one.tobytes() for one in seen}) > 10


@pytest.mark.parametrize(
    ("contrast", "noise", "channels"),
    [
        (Background(), 1.0, 1),
        (Background(), FromImage(), 3),
        (RegionMean(), AR1(0.5), 1),
        (Neighbourhood(2), 1.0, 3),
        (Filtered("laplacian"), AR1(0.5), 3),
        (lambda region: region - 0.3, 1.0, 1),
    ],
)
def test_permutations_are_images_tested_one_by_one(contrast: Any, noise: Any, channels: int) -> None:
    test = AttentionTest(tiny_vit(channels=channels), noise=noise, contrast=contrast, confidence_level=None)
    image = np.random.default_rng(1).normal(size=(8, 8, channels))
    result = test.permutation_test(image, permutations=3, rng=3)
    rng = np.random.default_rng(3)
    orders = [np.arange(64), *(rng.permuted(np.arange(64)) for _ in range(3))]
    expected = [test(image.reshape(64, channels)[order].reshape(image.shape)).statistic for order in orders]
    np.testing.assert_allclose([result.statistic, *result.permuted], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 2])
def test_permutations_do_not_depend_on_the_batch_size(channels: int) -> None:
    image = np.random.default_rng(0).normal(size=(channels, 3, 5))
    weights = np.random.default_rng(1).normal(size=image.shape)
    sizes: list[int] = []

    def statistics(images: np.ndarray) -> np.ndarray:
        sizes.append(len(images))
        return np.array([(one * weights).sum() for one in images])

    results = [permutation_test(image, statistics, 40, size, np.random.default_rng(2)) for size in (1, 7, 40, 41, 99)]
    assert sizes == [1] * 41 + [7] * 5 + [6] + [40, 1] + [41] + [41]
    for result in results:
        assert result.statistic == (image * weights).sum()
        assert np.array_equal(result.permuted, results[0].permuted)


def test_permutation_of_a_model(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    result = tiny_test.permutation_test(tiny_images[0], permutations=50, rng=3)
    assert result.statistic == pytest.approx(tiny_test(tiny_images[0]).statistic, rel=1e-12)
    assert 1 / 51 <= result.pvalue <= 1
    with pytest.raises(InputError, match=r"permutations must be at least 1 .* got 0"):
        tiny_test.permutation_test(tiny_images[0], permutations=0)
