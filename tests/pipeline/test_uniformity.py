"""Under the null hypothesis the selective p-value is uniform (theorem 1); the naive one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attentest import AttentionTest, bundled_model
from attentest.attention import Rollout
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, Isotropic, NoiseModel, PerChannel
from attentest.simulation.images import null_images
from toys import tiny_vit

ALPHA = 0.05


def band(count: int) -> float:
    """How far from alpha 99.9% of valid tests reject: 3.29 standard errors of a share of so many images."""
    return float(stats.norm.ppf(0.9995) * np.sqrt(ALPHA * (1 - ALPHA) / count))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "seed"),
    [(Isotropic(1.0), 2024), (AR1(0.5), 2024), *((Isotropic(1.0), seed) for seed in (1, 2, 3, 4))],
    ids=["iid-2024", "ar1-2024", "iid-1", "iid-2", "iid-3", "iid-4"],
)
def test_null_pvalues_are_uniform(
    noise: NoiseModel, seed: int, device: str, at_most: Callable[[int, int], int]
) -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=noise, device=device)
    results = test.map(null_images(np.random.default_rng(seed), at_most(1000, 300), 16, noise))
    pvalues = np.array([result.pvalue for result in results])
    naive = np.array([result.naive_pvalue for result in results])
    rejected, rejected_naive = np.mean(pvalues <= ALPHA), np.mean(naive <= ALPHA)
    uniformity = stats.kstest(pvalues, "uniform").pvalue
    print(f"\nselective: {rejected:.3f} rejected, KS p = {uniformity:.3f}; naive: {rejected_naive:.3f} rejected")
    assert abs(rejected - ALPHA) < band(len(pvalues))
    assert uniformity > 1e-3
    assert stats.kstest(naive, "uniform").pvalue < 1e-10
    assert rejected_naive > 0.2


CORRELATED = PerChannel([[1.0, 0.6, 0.2], [0.6, 2.0, 0.5], [0.2, 0.5, 1.5]], AR1(0.4))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "channels", "options"),
    [
        (Isotropic(1.0), 1, {}),
        (Isotropic(1.0), 3, {}),
        (CORRELATED, 3, {}),
        (Isotropic(1.0), 3, {"attention": Rollout("max")}),
        (Isotropic(1.0), 3, {"channels": 1, "alternative": "greater"}),
    ],
    ids=["grey", "colour", "correlated", "max-heads", "one-channel-greater"],
)
def test_null_pvalues_are_uniform_through_preprocessing(
    noise: NoiseModel, channels: int, options: dict[str, Any], device: str, at_most: Callable[[int, int], int]
) -> None:
    """Images of 13 x 17 pixels, resized and cropped for an untrained model: the test is valid for any model."""
    preprocessing = Preprocessing(
        resize=10, crop=(8, 8), interpolation="bicubic", mean=(0.1, -0.2, 0.3), std=(1.1,) * 3
    )
    test = AttentionTest(tiny_vit(channels=3), noise=noise, preprocessing=preprocessing, device=device, **options)
    count = at_most(1000, 300)
    drawn = noise.sample(np.random.default_rng(11), count, channels * 13 * 17).reshape(count, channels, 13, 17)
    pvalues = np.array([result.pvalue for result in test.map([image.transpose(1, 2, 0) for image in drawn])])
    rejected, uniformity = np.mean(pvalues <= ALPHA), stats.kstest(pvalues, "uniform").pvalue
    print(f"\nselective: {rejected:.3f} rejected, KS p = {uniformity:.3f}")
    assert abs(rejected - ALPHA) < band(count)
    assert uniformity > 1e-3
