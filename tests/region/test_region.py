from __future__ import annotations

import numpy as np
import pytest
import torch

from attentest import AttentionTest
from attentest.errors import InputError
from attentest.region.attention_map import attention_map, unusable_scores
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import Threshold, margins, region_of
from attentest.search import Fixed, GridSearch


def slow_bilinear(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    """Half-pixel centres, written out pixel by pixel."""

    def weights(position: int, size: int, cells: int) -> list[tuple[int, float]]:
        at = max((position + 0.5) * cells / size - 0.5, 0.0)
        low = int(at)
        return [(low, 1 - (at - low)), (min(low + 1, cells - 1), at - low)]

    return np.array(
        [
            [
                sum(
                    wr * wc * grid[r, c]
                    for r, wr in weights(i, height, grid.shape[0])
                    for c, wc in weights(j, width, grid.shape[1])
                )
                for j in range(width)
            ]
            for i in range(height)
        ]
    )


@pytest.mark.parametrize(("grid", "size"), [((4, 4), (8, 8)), ((8, 8), (32, 32)), ((3, 5), (12, 10)), ((2, 2), (2, 2))])
def test_upsampling_is_bilinear_with_half_pixel_centres(grid: tuple[int, int], size: tuple[int, int]) -> None:
    scores = np.random.default_rng(0).normal(size=grid)
    ours = PatchGrid(size, scores.shape).unit_scores(torch.from_numpy(scores)[None])[0].numpy()
    np.testing.assert_allclose(ours, slow_bilinear(scores, *size), atol=1e-14)


def test_map_runs_from_zero_to_one_image_by_image() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4, 4)) * [[[1]], [[100]], [[1e-3]]])
    attention = attention_map(scores, PatchGrid((8, 8), scores.shape[1:]))
    assert attention.amin(dim=(1, 2)).tolist() == [0, 0, 0]
    assert attention.amax(dim=(1, 2)).tolist() == [1, 1, 1]
    assert torch.equal(attention_map(scores[1:2], PatchGrid((8, 8), scores.shape[1:]))[0], attention[1])


def test_margins_are_negative_exactly_where_the_region_is_the_same() -> None:
    rng = np.random.default_rng(0)
    attention = attention_map(torch.from_numpy(rng.normal(size=(50, 2, 2))), PatchGrid((2, 2), (2, 2)))
    region = region_of(attention[0], 0.6)
    f = margins(attention, region.expand(50, 2, 2), 0.6)
    same = [bool((region_of(a, 0.6) == region).all()) for a in attention]
    assert ((f < 0).all(dim=1)).tolist() == same
    assert 1 < sum(same) < 50
    inside = region.flatten()
    assert torch.allclose(f[0][inside], 0.6 - attention[0].flatten()[inside])
    assert torch.allclose(f[0][~inside], attention[0].flatten()[~inside] - 0.6)


def test_a_constant_map_on_the_line_lies_outside() -> None:
    flat = attention_map(torch.ones(1, 2, 2, dtype=torch.float64), PatchGrid((4, 4), (2, 2)))
    region = torch.zeros(1, 4, 4, dtype=torch.bool)
    region[0, 0, 0] = True
    assert margins(flat, region, 0.6).max() > 0


def test_constant_scores_are_found_even_with_rounding() -> None:
    scores = torch.full((3, 4, 4), 0.1, dtype=torch.float64)
    scores[0, 0, 0] += 1e-9
    scores[1, 0, 0] += 1e-16
    found = unusable_scores(scores)
    assert list(found) == [1, 2]
    assert all("attention map is constant" in reason for reason in found.values())
    assert unusable_scores(scores[:1]) == {}


def test_scores_that_are_not_numbers_are_found() -> None:
    scores = torch.rand(2, 4, 4, dtype=torch.float64)
    scores[1, 0, 0] = torch.inf
    found = unusable_scores(scores)
    assert list(found) == [1]
    assert "NaN or infinite" in found[1]


@pytest.mark.parametrize("tau", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_threshold_outside_the_open_unit_interval_is_refused(tau: float) -> None:
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        Threshold(tau)


def test_a_pixel_that_is_always_at_tau_is_outside_and_decides_nothing() -> None:
    """With five pixels per patch, one lies 0.6 of the way from the least patch to the greatest, whatever the scores."""

    def scores(images: np.ndarray) -> np.ndarray:
        first, last = (np.exp(images[:, 0, rows].mean(axis=(1, 2))) for rows in (slice(0, 5), slice(10, 15)))
        return np.stack([first, np.zeros_like(first), last], axis=1)[:, :, None]

    image = np.random.default_rng(0).normal(size=(15, 4))
    image[:5] += 0.4
    spectral, fixed = (
        AttentionTest(scores, noise=1.0, image_shape=(1, 15, 4), search=search, confidence_level=None)(image)
        for search in ("spectral", GridSearch(step=Fixed(step=2e-2)))
    )
    assert not spectral.region[4].any()  # at 0.6 of the greatest
    assert spectral.region[3].all()  # at 0.8
    assert spectral.status == "converged"
    assert spectral.pvalue == pytest.approx(fixed.pvalue, abs=1e-6)
    assert 0.001 < spectral.pvalue < 0.999
