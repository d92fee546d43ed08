"""The same image gives the same p, whatever is tested with it and wherever."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from attentest import AttentionTest, bundled_model
from attentest.search import SpectralSearch
from attentest.simulation.images import null_images
from toys import tiny_vit

EXACT, MIXED = SpectralSearch(precision="float64"), SpectralSearch(precision="mixed")


def pvalues(test: AttentionTest, images: np.ndarray) -> np.ndarray:
    return np.array([result.pvalue for result in test.map(images)])


@pytest.mark.parametrize("search", [EXACT, MIXED])
def test_alone_in_three_and_in_twenty(search: SpectralSearch) -> None:
    test = AttentionTest(tiny_vit(), noise=1.0, search=search, batch_size=4000, confidence_level=None)
    images = np.random.default_rng(0).normal(size=(20, 8, 8))
    together = pvalues(test, images)
    np.testing.assert_allclose(pvalues(test, images[:3]), together[:3], rtol=0, atol=1e-9)
    for index in (0, 19):
        assert test(images[index]).pvalue == pytest.approx(together[index], abs=1e-9)


def test_mixed_precision_gives_the_same_answers_within_its_bars() -> None:
    images = np.random.default_rng(1).normal(size=(8, 8, 8))
    exact, mixed = (
        AttentionTest(tiny_vit(), noise=1.0, search=search, confidence_level=None).map(images)
        for search in (EXACT, MIXED)
    )
    for one, other in zip(exact, mixed, strict=True):
        assert other.pvalue_bounds[0] <= one.pvalue_bounds[1]
        assert one.pvalue_bounds[0] <= other.pvalue_bounds[1]
        assert other.pvalue_bounds[1] - other.pvalue_bounds[0] <= 1e-6
        assert one.pvalue == pytest.approx(other.pvalue, abs=1e-6)


@pytest.mark.slow
def test_many_images_of_the_bundled_model(device: str, at_most: Callable[[int, int], int]) -> None:
    images = null_images(np.random.default_rng(5), at_most(1000, 200), 16)
    for search in (EXACT, MIXED):
        test = AttentionTest.from_pretrained(bundled_model(), noise=1.0, search=search, device=device)
        together = pvalues(test, images)
        seven = np.abs(pvalues(test, images[:7]) - together[:7]).max()
        alone = max(abs(test(images[i]).pvalue - together[i]) for i in range(0, len(images), len(images) // 10))
        print(f"\n{search.precision}: in 7 against in {len(images)}: {seven:.1e}; alone: {alone:.1e}")
        assert max(seven, alone) <= (1e-9 if search is EXACT else 1e-6)


@pytest.mark.slow
def test_cpu_and_cuda_agree_on_the_bundled_model() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    images = null_images(np.random.default_rng(6), 30, 16)
    for search in (EXACT, MIXED):
        cpu, cuda = (
            pvalues(AttentionTest.from_pretrained(bundled_model(), noise=1.0, search=search, device=device), images)
            for device in ("cpu", "cuda")
        )
        print(f"\n{search.precision}: CPU against CUDA: {np.abs(cpu - cuda).max():.1e}")
        assert np.abs(cpu - cuda).max() <= (1e-7 if search is EXACT else 1e-6)


def test_an_image_takes_as_many_evaluations_by_itself_as_among_others() -> None:
    images = np.random.default_rng(2).normal(size=(5, 8, 8))
    test = AttentionTest(tiny_vit(), noise=1.0, search=SpectralSearch(tol=1e-4, precision="mixed"))
    together = test.map(images)
    assert [test(image).evaluations for image in images] == [result.evaluations for result in together]
