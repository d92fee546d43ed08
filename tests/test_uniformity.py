"""Under the null hypothesis the selective p-value is uniform (theorem 1); the naive one is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attentest import AttentionTest, bundled_model
from attentest.noise import AR1, Isotropic, NoiseModel
from attentest.synthetic import null_images

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
