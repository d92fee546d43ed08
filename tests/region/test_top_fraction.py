from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import TorchScores
from attentest.errors import InputError
from attentest.region.attention_map import attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import TopFraction
from attentest.search import Adaptive, Fixed, GridSearch
from toys import tiny_vit

GRIDS = {
    "patch 1": ((4, 4), (4, 4)),
    "patch 2": ((8, 8), (4, 4)),
    "patch 5": ((15, 10), (3, 2)),
    "large": ((48, 40), (4, 5)),
}


COARSE = GridSearch(step=Fixed(step=5e-3))
NEAR = GridSearch(step=Adaptive(), extent=3.0)


def vit(**options: Any) -> AttentionTest:
    return AttentionTest(tiny_vit(), noise=1.0, confidence_level=None, **options)


def slow_region(scores: np.ndarray, patch_grid: PatchGrid, q: float) -> np.ndarray:
    """The greatest pixels one by one; equal ones in reading order."""
    pixels = patch_grid.unit_scores(torch.from_numpy(scores)[None])[0].numpy()
    count = max(1, min(pixels.size - 1, round(q * pixels.size)))
    rounded = np.round(pixels, 12).ravel()
    chosen = sorted(range(pixels.size), key=lambda i: (-rounded[i], i))[:count]
    region = np.zeros(pixels.size, dtype=bool)
    region[chosen] = True
    return region.reshape(pixels.shape)


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("q", [0.001, 0.05, 0.13, 0.5, 0.9, 0.999])
def test_the_region_is_the_greatest_pixels(name: str, q: float) -> None:
    size, grid = GRIDS[name]
    patch_grid = PatchGrid(size, grid)
    scores = np.random.default_rng(0).normal(size=(10, *grid))
    values = torch.from_numpy(scores)
    regions = TopFraction(q).regions(attention_map(values, patch_grid), patch_grid, "signed", values)
    for score, region in zip(scores, regions, strict=True):
        assert np.array_equal(region.numpy(), slow_region(score, patch_grid, q))


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("q", [0.02, 0.13, 0.5, 0.97])
def test_margins_are_negative_exactly_where_the_region_is_the_same(
    name: str, q: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores near the observed ones, so that some give the same region: every pixel's margin, and the extremes'."""
    # Row by row: rows lack kinds of pixels.
    monkeypatch.setattr(sys.modules["attentest.region.attention_map"], "PIXELS_TOGETHER", 1)
    size, grid = GRIDS[name]
    patch_grid, rule = PatchGrid(size, grid), TopFraction(q)
    rng = np.random.default_rng(1)
    observed = rng.normal(size=(1, *grid))
    values = torch.from_numpy(observed)
    region = rule.regions(attention_map(values, patch_grid), patch_grid, "signed", values)
    margins = rule.margins(region, patch_grid, values, "signed")
    scores = torch.from_numpy(observed + rng.choice([0.01, 0.1, 0.5], size=(300, 1, 1)) * rng.normal(size=(300, *grid)))
    which = torch.zeros(300, dtype=torch.int64)
    same = (
        (rule.regions(attention_map(scores, patch_grid), patch_grid, "signed", scores) == region).flatten(1).all(dim=1)
    )
    assert 0 < int(same.sum()) < 300
    assert torch.equal((margins(which, scores) < 0).all(dim=1), same)
    assert torch.equal(margins.inside(which, scores), same)
    pixels = margins.pixels(which, scores)
    extremes, attained = margins.extremes(which, pixels)
    assert torch.equal((extremes @ margins.weights.T < 0).all(dim=1), same)
    torch.testing.assert_close(margins.signs * pixels.gather(1, attained), extremes)


@pytest.mark.parametrize("q", [0.02, 0.1, 0.4])
def test_spectral_and_fixed_agree(q: float) -> None:
    rng = np.random.default_rng(3)
    image = rng.normal(size=(8, 8))
    spectral, fixed = (vit(top_fraction=q, search=search)(image) for search in ("spectral", COARSE))
    assert spectral.region.sum() == max(1, round(q * 64))
    assert spectral.pvalue == pytest.approx(fixed.pvalue, abs=2e-6)
    assert spectral.settings["top_fraction"] == q
    assert spectral.settings["threshold"] is None


def patch_softmax(images: Tensor) -> Tensor:
    """The softmax over the four patches of 2 x 2 pixels, sharp enough to move with the image."""
    means = images.unflatten(2, (2, 2)).unflatten(4, (2, 2)).mean((1, 3, 5))
    return torch.softmax(4 * means.flatten(1), dim=1).unflatten(1, (2, 2))


@pytest.mark.parametrize("q", [0.1, 0.4])
def test_adaptive_has_margins_to_step_by(q: float) -> None:
    image = np.random.default_rng(4).normal(size=(4, 4))
    scores = TorchScores(patch_softmax, (1, 4, 4))
    spectral, adaptive = (
        AttentionTest(scores, noise=1.0, top_fraction=q, search=search, confidence_level=None)(image)
        for search in ("spectral", NEAR)
    )
    assert 0.01 < spectral.pvalue < 0.99
    assert spectral.pvalue == pytest.approx(adaptive.pvalue, abs=1e-3)


def two_equal(images: np.ndarray) -> np.ndarray:
    """Scores of four patches, the last two of which are always equal."""
    means = images.mean(axis=(1, 2, 3))
    return np.stack([means + 3, means + 2, np.tanh(means), np.tanh(means)], axis=1).reshape(-1, 2, 2)


def test_bad_input_ends_in_one_sentence() -> None:
    for q in (0, 1, -0.5, 1.5, np.nan):
        with pytest.raises(InputError, match=r"top_fraction \(q\) must lie strictly between 0 and 1"):
            vit(top_fraction=q)
    with pytest.raises(InputError, match="must be a number"):
        vit(top_fraction="a tenth")
    with pytest.raises(InputError, match="threshold and top_fraction are two ways"):
        vit(top_fraction=0.1, threshold=0.6)
    tied = AttentionTest(two_equal, noise=1.0, top_fraction=0.75, image_shape=(1, 2, 2))
    with pytest.raises(InputError, match="equal attention lie on both sides of the cut"):
        tied(np.random.default_rng(0).normal(size=(2, 2)))
    fine = AttentionTest(two_equal, noise=1.0, top_fraction=0.5, image_shape=(1, 2, 2))
    assert fine(np.random.default_rng(0).normal(size=(2, 2))).region.sum() == 2
