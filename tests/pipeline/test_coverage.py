"""Confidence intervals cover the truth as often as they say, given the selection; naive ones do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from attentest import AttentionTest, Results, bundled_model, calibrate
from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean, gaussian
from attentest.noise import AR1, Dense, Isotropic, NoiseModel
from attentest.simulation.images import null_images, signal_images
from attentest.statistics.inference import ConfidenceInterval, confidence_intervals_of, estimates_of
from toy_selection import COVARIANCE, PIXELS, SIDE, scores

LEVEL = 0.95


def toy_test(covariance: NDArray[np.float64], **options: Any) -> AttentionTest:
    """A test of nine pixels, with batches so large that all images are searched together."""
    shape = (1, SIDE, SIDE)
    return AttentionTest(scores, noise=Dense(covariance), threshold=0.4, image_shape=shape, batch_size=4096, **options)


def intervals(results: Results) -> list[ConfidenceInterval]:
    return confidence_intervals_of(results, LEVEL)


def truths(results: Results, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the intervals are for: the difference of the true means, inside and outside each region."""
    return np.array([mean[result.region].mean() - mean[~result.region].mean() for result in results])


def check_binomial(hits: NDArray[np.bool_], expected: float, chance: float = 1e-3) -> None:
    """Assert that a count is within what chance explains."""
    assert stats.binomtest(int(hits.sum()), len(hits), expected).pvalue > chance, f"{hits.mean()} of {len(hits)}"


def check_coverage(results: Results, truth: NDArray[np.float64]) -> tuple[float, float, float]:
    """Check intervals and estimates; return the coverage, the naive coverage, and the median length."""
    found = intervals(results)
    covered = np.array([value in interval for value, interval in zip(truth, found, strict=True)])
    naive = np.array([value in r.naive_confidence_interval(LEVEL) for value, r in zip(truth, results, strict=True)])
    estimates = estimates_of(results).best
    check_binomial(covered, LEVEL)
    check_binomial(estimates > truth, 0.5)
    check_binomial(np.array([value < interval.low for value, interval in zip(truth, found, strict=True)]), 0.025)
    return float(covered.mean()), float(naive.mean()), float(np.median([i.high - i.low for i in found]))


@pytest.mark.parametrize(
    ("signal", "correlated"),
    [
        (0.0, False),
        (0.7, True),
        pytest.param(0.7, False, marks=pytest.mark.slow),
        pytest.param(0.0, True, marks=pytest.mark.slow),
    ],
)
def test_coverage_given_the_selection(signal: float, correlated: bool) -> None:
    """400 images of nine pixels, all together and those of the most frequent region by themselves.

    The standard error of a coverage of 0.95 is 0.011 for all.
    """
    covariance = COVARIANCE if correlated else 0.5 * np.eye(PIXELS)
    mean = signal * np.linspace(-1, 1, PIXELS) ** 3
    draws = np.random.default_rng(17).multivariate_normal(mean, covariance, size=400, method="cholesky")
    test = toy_test(covariance)
    results = test.map(draws.reshape(-1, SIDE, SIDE))
    truth = truths(results, mean.reshape(SIDE, SIDE))
    _, naive, _ = check_coverage(results, truth)
    assert naive < LEVEL - 0.05
    names = [result.region.tobytes() for result in results]
    name, count = Counter(names).most_common(1)[0]
    assert count > 10
    chosen = [i for i, other in enumerate(names) if other == name]
    check_coverage(Results([results[i] for i in chosen]), truth[chosen])


@pytest.mark.parametrize("alternative", ["greater", pytest.param("less", marks=pytest.mark.slow)])
def test_one_sided_intervals_cover_as_often(alternative: Any) -> None:
    draws = np.random.default_rng(18).multivariate_normal(np.zeros(PIXELS), COVARIANCE, size=250, method="cholesky")
    test = toy_test(COVARIANCE, alternative=alternative)
    results = test.map(draws.reshape(-1, SIDE, SIDE))
    check_binomial(np.array([0.0 in interval for interval in intervals(results)]), LEVEL)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.0, 2.0])
@pytest.mark.parametrize("noise", [Isotropic(1.0), AR1(0.5)], ids=["iid", "ar1"])
def test_coverage_on_the_bundled_model(
    noise: NoiseModel, delta: float, device: str, at_most: Callable[[int, int], int]
) -> None:
    """Images of 16x16 pixels with a bright square or without; of 2,000 images the standard error is 0.005."""
    test = AttentionTest.from_pretrained(bundled_model(), noise=noise, device=device)
    images, squares = signal_images(np.random.default_rng(99), at_most(2000, 300), 16, delta, noise)
    results = test.map(images)
    truth = np.array([truths(results[i : i + 1], delta * square)[0] for i, square in enumerate(squares)])
    covered, naive, length = check_coverage(results, truth)
    unresolved = np.mean([interval.error > 0.01 * (interval.high - interval.low) for interval in intervals(results)])
    evaluations = np.mean([result.evaluations for result in results])
    print(
        f"\ncovered {covered:.4f}, naive {naive:.4f}, median length {length:.2f} (naive "
        f"{np.median([2 * 1.96 * result.standard_error for result in results]):.2f}), "
        f"unresolved to 1% {unresolved:.4f}, {evaluations:.0f} evaluations"
    )
    assert naive < 0.9
    assert unresolved < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contrast", "options"),
    [
        (Neighbourhood(3), {}),
        (Filtered("laplacian", of=RegionMean()), {}),
        (Filtered(gaussian(1.0)), {}),
        (Reference(noise=0.7), {}),
        (Background(), {"top_fraction": 0.1}),
    ],
    ids=["neighbourhood", "laplacian", "blur", "reference", "top-fraction"],
)
def test_null_pvalues_of_other_questions_are_uniform(
    contrast: Any, options: dict[str, Any], device: str, at_most: Callable[[int, int], int]
) -> None:
    test = AttentionTest.from_pretrained(bundled_model(), noise=AR1(0.5), contrast=contrast, device=device, **options)
    count = at_most(1000, 300)
    found = calibrate(test, count, 5)
    print(f"\n{found.summary()}")
    assert abs(found.rates[1].value - 0.05) < stats.norm.ppf(0.9995) * np.sqrt(0.05 * 0.95 / count)
    assert found.ks_pvalue > 1e-3
    assert found.naive_ks_pvalue < 1e-3


@pytest.mark.slow
def test_components_keep_the_familywise_error(device: str, at_most: Callable[[int, int], int]) -> None:
    """Holm across the components of null images: any rejection in at most 5% of them, standard error of 1,000 0.007."""
    count = at_most(1000, 300)
    test = AttentionTest.from_pretrained(
        bundled_model(), noise=1.0, threshold=0.4, device=device, confidence_level=None
    )
    found = test.map(null_images(np.random.default_rng(6), count, 16), components=1)
    several = [components for components in found if len(components) > 1]
    any_rejected = np.array([(components.adjusted_pvalues() <= 0.05).any() for components in several])
    pvalues = np.concatenate([components.pvalues for components in several])
    print(
        f"\n{len(several)} images of {count} have several components, {len(pvalues) / len(several):.2f} on average; "
        f"any rejected {any_rejected.mean():.4f}, p <= 0.05 {np.mean(pvalues <= 0.05):.4f}"
    )
    assert len(several) > count / 10
    assert any_rejected.mean() < 0.05 + 3.3 * np.sqrt(0.05 * 0.95 / len(several))
    assert stats.binomtest(int((pvalues <= 0.05).sum()), len(pvalues), 0.05).pvalue > 1e-4
