from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attentest import AttentionTest, InputError
from attentest.baselines import bonferroni_log_pvalue, naive_log_pvalue, permutation_test


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
    exceeding = np.sum(np.abs(result.permuted) > abs(result.statistic))
    assert 0 < exceeding < 400
    assert result.count_pvalue == exceeding / 400
    assert result.pvalue == (exceeding + 1) / 401
    again = permutation_test(image, statistics, 400, 33, np.random.default_rng(0))
    assert np.array_equal(result.permuted, again.permuted)


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


def test_permutation_of_a_model_selects_each_region_anew(tiny_test: AttentionTest, tiny_images: np.ndarray) -> None:
    result = tiny_test.permutation_test(tiny_images[0], permutations=50, rng=3)
    assert result.statistic == pytest.approx(tiny_test(tiny_images[0]).statistic, rel=1e-12)
    order = np.random.default_rng(3).permuted(np.arange(64)[None], axis=1)[0]
    first = tiny_test(tiny_images[0].ravel()[order].reshape(8, 8))
    assert result.permuted[0] == pytest.approx(first.statistic, rel=1e-10)
    assert 1 / 51 <= result.pvalue <= 1
    with pytest.raises(InputError, match="permutations must be at least 1, got 0"):
        tiny_test.permutation_test(tiny_images[0], permutations=0)
