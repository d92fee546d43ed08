"""Everything against brute force: images drawn given the selection and the nuisance, on nine pixels or voxels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from attentest import AttentionTest
from attentest.contrast import Background, Filtered, Neighbourhood, Reference, RegionMean, gaussian
from attentest.noise import Dense
from attentest.results.result import AttentionTestResult
from toy_selection import (
    COVARIANCE,
    PIXELS,
    REFERENCE_COVARIANCE,
    SIDE,
    Sampler,
    Select,
    by_rank,
    by_threshold,
    filter_matrix,
    mean_of,
    ring_of,
    scores,
)

KERNEL = np.array([[0.2, -1.0, 0.3], [0.5, 1.5, -0.4], [0.0, 0.7, 0.1]])
DRAWS = 30_000
SIGMAS = 4.5
"""Monte-Carlo standard errors within which a rate must lie: with the hundred or so below, one in 1,500 runs fails by
chance, and the seeds are fixed."""

ENOUGH = 400
"""Draws that a rate is worth taking of."""

Eta = Callable[[NDArray[np.bool_]], NDArray[np.float64]]


def background(region: NDArray[np.bool_]) -> NDArray[np.float64]:
    return mean_of(region) - mean_of(~region)


def sums(region: NDArray[np.bool_]) -> NDArray[np.float64]:
    """A contrast somebody might write: sums instead of means."""
    return 2.0 * region - 0.5


CONTRASTS: list[tuple[str, Any, Eta]] = [
    ("background", Background(), background),
    ("neighbourhood", Neighbourhood(1), lambda m: mean_of(m) - mean_of(ring_of(m, 1))),
    ("region mean", RegionMean(), mean_of),
    (
        "laplacian",
        Filtered("laplacian"),
        lambda m: filter_matrix(np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]])).T @ background(m),
    ),
    ("any kernel", Filtered(KERNEL, of=RegionMean()), lambda m: filter_matrix(KERNEL).T @ mean_of(m)),
    ("blur", Filtered(gaussian(0.3)), lambda m: filter_matrix(gaussian(0.3)).T @ background(m)),
    ("written", lambda m: sums(m.ravel()).reshape(SIDE, SIDE), sums),
]


def a_test(sides: tuple[int, ...] = (SIDE, SIDE), **options: Any) -> AttentionTest:
    def shaped(images: NDArray[np.float64]) -> NDArray[np.float64]:
        return scores(images).reshape(-1, *sides)

    return AttentionTest(shaped, noise=Dense(COVARIANCE), image_shape=(1, *sides), **options)


def images(count: int, seed: int = 3) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal(np.linspace(-0.5, 0.8, PIXELS), COVARIANCE, size=count, method="cholesky")


def check_rate(hits: NDArray[np.bool_], expected: float) -> None:
    """Assert that a share of draws is what it should be, to within Monte-Carlo error."""
    assert len(hits) > ENOUGH, "too few draws are accepted to tell"
    error = np.sqrt(max(expected * (1 - expected), 1 / len(hits)) / len(hits))
    assert abs(hits.mean() - expected) < SIGMAS * error, f"{hits.mean()} is not {expected} +- {error}"


def check_against_draws(result: Any, sampler: Sampler, seed: int) -> int:
    """Check p of every alternative, the estimate and both ends of the interval of one image.

    Returns how many of the last three could be checked: far away, draws hardly ever select the region.
    """
    rng = np.random.default_rng(seed)
    z = sampler.z_obs
    assert result.statistic == pytest.approx(z, rel=1e-10)
    assert result.standard_error == pytest.approx(sampler.standard_error, rel=1e-10)
    null = sampler.draw(rng, 0.0, DRAWS)
    check_rate(np.abs(null) >= abs(z), result.pvalue)
    for alternative, extreme in (("greater", null >= z), ("less", null <= z)):
        other = result.with_alternative(alternative)
        assert other.pvalue_bounds[1] - other.pvalue_bounds[0] < 1e-4
        check_rate(extreme, other.pvalue)
    low, high = result.confidence_interval(0.8)
    checked = 0
    for value, share in ((low, 0.1), (result.estimate, 0.5), (high, 0.9)):
        draws = sampler.draw(rng, value / sampler.standard_error, DRAWS)
        if len(draws) > ENOUGH:
            check_rate(draws >= z, share)
            checked += 1
    return checked


def usable(sampler: Sampler) -> bool:
    """Tell whether draws select the region often enough to count them."""
    return len(sampler.draw(np.random.default_rng(0), 0.0, 4000)) > 80


def noise_added_to(x: NDArray[np.float64], result: AttentionTestResult) -> NDArray[np.float64] | None:
    return None if result.randomised_image is None else result.randomised_image.ravel() - x


@pytest.mark.parametrize(
    ("contrast", "eta", "gamma"),
    [(*c[1:], 0.0) for c in CONTRASTS] + [(*c[1:], 0.7) for c in CONTRASTS[::3]],
    ids=[c[0] for c in CONTRASTS] + [f"{c[0]}, randomised" for c in CONTRASTS[::3]],
)
def test_every_contrast(contrast: Any, eta: Eta, gamma: float) -> None:
    def select(x: NDArray[np.float64]) -> NDArray[np.bool_]:
        return by_threshold(x)

    check_some(a_test(threshold=0.4, contrast=contrast, randomise=gamma), eta, select, gamma)


@pytest.mark.parametrize(("count", "gamma"), [(2, 0.0), (4, 0.0), (4, 0.3)])
def test_the_top_fraction(count: int, gamma: float) -> None:
    test = a_test(top_fraction=count / PIXELS, randomise=gamma)
    check_some(test, background, lambda x: by_rank(x, count), gamma)


def beside(region: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Compare samples with those next to them."""
    return mean_of(region) - mean_of(ndimage.binary_dilation(region) & ~region)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize(
    ("sides", "contrast", "eta"),
    [((PIXELS,), Background(), background), ((PIXELS,), Neighbourhood(1), beside)]
    + [(sides, *c[1:]) for sides in [(SIDE, SIDE, 1), (SIDE, 1, SIDE), (1, SIDE, SIDE)] for c in CONTRASTS[:2]],
)
def test_signals_and_volumes(sides: tuple[int, ...], contrast: Any, eta: Eta, gamma: float) -> None:
    """Nine samples or voxels: a ring around some of the voxels is that of the pixels of a plane."""
    check_some(a_test(sides, threshold=0.4, contrast=contrast, randomise=gamma), eta, by_threshold, gamma)


def check_some(test: AttentionTest, eta: Eta, select: Select, gamma: float, least: int = 2) -> None:
    counts: list[int] = []
    for seed, x in enumerate(images(20)):
        if len(counts) == least:
            break
        result = test(x.reshape(test.image_shape[1:]))
        added = noise_added_to(x, result)
        seen = x if added is None else x + added
        sampler = Sampler(x, eta(select(seen[None])[0]), COVARIANCE, select, added, gamma)
        if usable(sampler):
            counts.append(check_against_draws(result, sampler, seed))
    assert len(counts) == least
    assert sum(counts) >= least, "too few ends of intervals could be checked"


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_reference_image(gamma: float) -> None:
    """Image and reference as one vector of eighteen, with a dense covariance; noise is added to the image alone."""
    joint = np.zeros((2 * PIXELS, 2 * PIXELS))
    joint[:PIXELS, :PIXELS], joint[PIXELS:, PIXELS:] = COVARIANCE, REFERENCE_COVARIANCE
    test = a_test(threshold=0.4, contrast=Reference(noise=Dense(REFERENCE_COVARIANCE)), randomise=gamma)
    references = np.random.default_rng(8).normal(0.2, 0.5, size=(20, PIXELS))
    counts: list[int] = []
    for seed, (x, reference) in enumerate(zip(images(20), references, strict=True)):
        if len(counts) == 2:
            break
        result = test(x.reshape(SIDE, SIDE), reference=reference.reshape(SIDE, SIDE))
        added = noise_added_to(x, result)
        mean = mean_of(result.region.ravel())
        sampler = Sampler(np.r_[x, reference], np.r_[mean, -mean], joint, by_threshold, added, gamma)
        if usable(sampler):
            counts.append(check_against_draws(result, sampler, seed))
    assert len(counts) == 2
    assert sum(counts) >= 2


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_components(gamma: float) -> None:
    """Each component by itself, given the whole region."""
    test = a_test(threshold=0.4, randomise=gamma)
    counts: list[int] = []
    for seed, x in enumerate(images(60)):
        if len(counts) == 3:
            break
        if gamma == 0 and ndimage.label(by_threshold(x[None]).reshape(SIDE, SIDE))[1] < 2:
            continue
        found = test.components(x.reshape(SIDE, SIDE))
        if len(found) < 2:
            continue
        for result in found:
            eta = mean_of(result.part.ravel()) - mean_of(~result.region.ravel())
            sampler = Sampler(x, eta, COVARIANCE, by_threshold, noise_added_to(x, result), gamma)
            if usable(sampler) and len(counts) < 3:
                counts.append(check_against_draws(result, sampler, seed))
    assert len(counts) == 3
    assert sum(counts) >= 3
