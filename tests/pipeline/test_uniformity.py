"""Under the null hypothesis the selective p-value is uniform (theorem 1); the naive one is not."""

from __future__ import annotations

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

COUNT = 1000
ALPHA = 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "seed"),
    [(Isotropic(1.0), 2024), (AR1(0.5), 2024), *((Isotropic(1.0), seed) for seed in (1, 2, 3, 4))],
    ids=["iid-2024", "ar1-2024", "iid-1", "iid-2", "iid-3", "iid-4"],
)
def test_null_pvalues_are_uniform(noise: NoiseModel, seed: int, device: str) -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=noise, device=device)
    results = test.map(null_images(np.random.default_rng(seed), COUNT, 16, noise))
    pvalues = np.array([result.pvalue for result in results])
    naive = np.array([result.naive_pvalue for result in results])
    rejected, rejected_naive = np.mean(pvalues <= ALPHA), np.mean(naive <= ALPHA)
    uniformity = stats.kstest(pvalues, "uniform").pvalue
    print(f"\nselective: {rejected:.3f} rejected, KS p = {uniformity:.3f}; naive: {rejected_naive:.3f} rejected")
    # 99.9% of valid tests reject between these shares of 1000: 0.05 +- 3.29 sqrt(0.05 * 0.95 / 1000)
    band = stats.norm.ppf(0.9995) * np.sqrt(ALPHA * (1 - ALPHA) / COUNT)
    assert abs(rejected - ALPHA) < band
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
    noise: NoiseModel, channels: int, options: dict[str, Any], device: str
) -> None:
    """Images of 13 x 17 pixels, resized and cropped for an untrained model: the test is valid for any model."""
    preprocessing = Preprocessing(
        resize=10, crop=(8, 8), interpolation="bicubic", mean=(0.1, -0.2, 0.3), std=(1.1,) * 3
    )
    test = AttentionTest(tiny_vit(channels=3), noise=noise, preprocessing=preprocessing, device=device, **options)
    drawn = noise.sample(np.random.default_rng(11), COUNT, channels * 13 * 17).reshape(COUNT, channels, 13, 17)
    pvalues = np.array([result.pvalue for result in test.map([image.transpose(1, 2, 0) for image in drawn])])
    rejected, uniformity = np.mean(pvalues <= ALPHA), stats.kstest(pvalues, "uniform").pvalue
    print(f"\nselective: {rejected:.3f} rejected, KS p = {uniformity:.3f}")
    band = stats.norm.ppf(0.9995) * np.sqrt(ALPHA * (1 - ALPHA) / COUNT)
    assert abs(rejected - ALPHA) < band
    assert uniformity > 1e-3
