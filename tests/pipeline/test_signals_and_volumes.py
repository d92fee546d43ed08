"""Signals, images with overlapping patches, and volumes: p against a plain computation of regions along the line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import TorchScores
from attentest.contrast import Filtered, Neighbourhood, Reference
from attentest.errors import InputError
from attentest.noise import AR1
from attentest.results.result import AttentionTestResult
from attentest.search import SpectralSearch

Sides = tuple[int, ...]

KINDS: dict[str, tuple[Sides, Sides, Sides]] = {
    "signal": ((1, 40), (8,), (8,)),
    "signal of overlapping patches": ((1, 41), (8,), (3,)),
    "leads": ((3, 28), (4,), (4,)),
    "image of overlapping patches": ((1, 14, 13), (4, 5), (2, 4)),
    "volume": ((1, 6, 9, 8), (2, 3, 4), (2, 3, 4)),
    "volume of overlapping patches": ((1, 7, 6, 6), (3, 3, 3), (2, 3, 1)),
    "nine voxels": ((1, 3, 3, 1), (1, 1, 1), (1, 1, 1)),
    "colour volume": ((2, 6, 6, 6), (3, 3, 3), (3, 3, 3)),
}
"""Shape of the input, sides of a patch, and steps from patch to patch."""

MARGIN = 1e-11
"""What a threshold is raised by: a pixel may lie three fifths between the extremes of a map whatever the scores are,
and is then outside the region instead of where rounding puts it."""


def grid_of(shape: Sides, patch: Sides, step: Sides) -> Sides:
    return tuple((side - own) // way + 1 for side, own, way in zip(shape[1:], patch, step, strict=True))


class Attending:
    """Attention of one layer between patches, whose weights are random: the mean over those that attend."""

    exact = True

    def __init__(self, shape: Sides, patch: Sides, step: Sides) -> None:
        self._patches = tuple(zip(patch, step, strict=True))
        self.grid = grid_of(shape, patch, step)
        counts = zip(self.grid, patch, step, strict=True)
        self.covered = tuple((count - 1) * way + side for count, side, way in counts)
        self.overlap = tuple(side - way for side, way in self._patches)
        values = shape[0] * math.prod(patch)
        generator = torch.Generator().manual_seed(values)
        self._weights = torch.randn(values, 4, generator=generator, dtype=torch.float64) / math.sqrt(values)

    def __call__(self, images: Tensor) -> Tensor:
        for axis, (side, way) in enumerate(self._patches, start=2):
            images = images.unfold(axis, side, way)
        axes = len(self._patches)
        keys = torch.tanh(images.movedim(1, 1 + axes).flatten(1 + axes).flatten(1, axes) @ self._weights)
        attention = torch.softmax(3 * keys @ keys.mT, dim=-1).mean(dim=1)
        return attention.unflatten(1, self.grid)


def a_test(kind: str, **options: Any) -> AttentionTest:
    shape, patch, step = KINDS[kind]
    function = Attending(shape, patch, step)
    scores = TorchScores(function, shape, exact=True, covered=function.covered, overlap=function.overlap)
    search = SpectralSearch(tol=1e-8)
    return AttentionTest(scores, **{"noise": 1.0, "confidence_level": None, "search": search, **options})


def image_of(kind: str, seed: int = 0) -> NDArray[np.float64]:
    shape = KINDS[kind][0]
    pixels = np.random.default_rng(seed).normal(size=shape)
    return pixels[0] if shape[0] == 1 else pixels


def plain_regions(scores: NDArray[np.float64], kind: str) -> NDArray[np.bool_]:
    """Return the regions of scores (m, *grid): interpolated between centres of patches, axis by axis, and scaled."""
    shape, patch, step = KINDS[kind]
    maps = scores
    for axis, (side, own, way) in enumerate(zip(shape[1:], patch, step, strict=True), start=1):
        centres = own / 2 + way * np.arange(maps.shape[axis])
        weights = np.array([np.interp(np.arange(side) + 0.5, centres, unit) for unit in np.eye(len(centres))])
        maps = np.moveaxis(np.moveaxis(maps, axis, -1) @ weights, -1, axis)
    axes = tuple(range(1, maps.ndim))
    low, high = maps.min(axis=axes, keepdims=True), maps.max(axis=axes, keepdims=True)
    return np.asarray((maps - low) / (high - low) > 0.6 + MARGIN)


def dense_pvalue(test: AttentionTest, result: AttentionTestResult, kind: str) -> float:
    """Return p from points of the line and bisection of the ends, with nothing but the scores, NumPy and SciPy."""
    shape = KINDS[kind][0]
    mask = result.region
    eta = np.broadcast_to(mask / mask.sum() - ~mask / (~mask).sum(), shape) / shape[0]
    direction = eta / np.sqrt((eta**2).sum())
    pixels = result.image.reshape(shape)
    observed = (direction * pixels).sum()

    def inside(z: NDArray[np.float64]) -> NDArray[np.bool_]:
        points = pixels + (z - observed).reshape(-1, *[1] * len(shape)) * direction
        regions = plain_regions(test.pipeline.scores(torch.from_numpy(points)).numpy(), kind)
        return np.asarray((regions == mask).reshape(len(z), -1).all(axis=1))

    z = np.linspace(-9, 9, 4001)
    known = inside(z)
    changes = np.flatnonzero(known[1:] != known[:-1])
    low, high, begins = z[changes], z[changes + 1], known[changes + 1]
    for _ in range(25):
        middle = (low + high) / 2
        before = inside(middle) != begins if len(middle) else begins
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    ends = np.r_[[-np.inf] if known[0] else [], low, [np.inf] if known[-1] else []].reshape(-1, 2)
    mass = np.diff(stats.norm.cdf(ends), axis=1).sum()
    far = abs(result.statistic)
    between = np.diff(stats.norm.cdf(np.clip(ends, -far, far)), axis=1).sum()
    return float((mass - between) / mass)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "volume of overlapping patches"])
def test_p_is_that_of_many_points_of_the_line(kind: str) -> None:
    test = a_test(kind)
    covered = test.pipeline.properties.covered == KINDS[kind][0][1:]
    for seed in range(2):
        result = test(image_of(kind, seed))
        assert result.region.shape == KINDS[kind][0][1:]
        if covered:  # the plain computation knows nothing of pixels that the model does not see
            assert result.pvalue == pytest.approx(dense_pvalue(test, result, kind), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "overlapping" not in kind or "image" in kind])
def test_no_bar_of_p_leaves_out_that_of_many_points(kind: str) -> None:
    """200 cases of each kind, with tolerances of 1e-3 to 1e-6; the plain computation is right to 1e-7."""
    for tol in (1e-3, 1e-6):
        test = a_test(kind, search=SpectralSearch(tol=tol))
        for result in test.map([image_of(kind, seed) for seed in range(100)]):
            low, high = result.pvalue_bounds
            assert low - 1e-7 <= dense_pvalue(test, result, kind) <= high + 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.0, 0.5])
@pytest.mark.parametrize("unit", ["pixels", "patches"])
@pytest.mark.parametrize("noise", [1.0, AR1(0.5)], ids=["independent", "correlated"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "nine voxels"])
def test_p_is_uniform(kind: str, noise: Any, unit: str, gamma: float, at_most: Callable[[int, int], int]) -> None:
    """Null images: the share at most 0.05, with four standard errors, and Kolmogorov's test at 1e-4."""
    test = a_test(kind, noise=noise, region_unit=unit, randomise=gamma, search=SpectralSearch(tol=1e-3))
    rng, shape, count = np.random.default_rng(4), KINDS[kind][0], at_most(1000, 300)
    images = AR1(0.5 if noise != 1.0 else 0.0).sample(rng, count, math.prod(shape)).reshape(count, *shape)
    p = np.array([result.pvalue for result in test.map([image[0] if len(image) == 1 else image for image in images])])
    assert abs((p <= 0.05).mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / count)
    assert stats.kstest(p, "uniform").pvalue > 1e-4


OPTIONS = {
    "patches": {"region_unit": "patches"},
    "randomised": {"randomise": 0.5},
    "top fraction": {"top_fraction": 0.3},
    "ring": {"contrast": Neighbourhood(2)},
    "filtered": {"contrast": Filtered("laplacian")},
    "correlated": {"noise": AR1(0.5)},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", ["signal of overlapping patches", "colour volume"])
def test_every_option_has_its_meaning_with_any_number_of_axes(kind: str, options: dict[str, Any]) -> None:
    test = a_test(kind, **options, search=SpectralSearch(tol=1e-4))
    results = test.map([image_of(kind, seed) for seed in range(3)])
    alone = test(image_of(kind, 1), name=1)
    assert results[1].pvalue == pytest.approx(alone.pvalue, abs=1e-12)
    assert all(0 < result.pvalue < 1 and result.status == "converged" for result in results)
    components = test.components(image_of(kind, 1))
    assert sum(int(one.part.sum()) for one in components) == int(alone.region.sum()) or options.get("randomise")


def test_whole_patches_that_overlap_divide_the_signal_at_the_middle_between_their_centres() -> None:
    kind = "signal of overlapping patches"
    result = a_test(kind, region_unit="patches")(image_of(kind))
    edges = np.flatnonzero(np.diff(result.region.astype(int))) + 1
    assert len(edges) > 0
    # Patches of 8 samples begin at 0, 3, 6, ...: their centres are at 4, 7, ..., and the next is nearest from 5.5 on.
    assert set(edges % 3) <= {2}


def test_a_reference_and_a_mean_have_the_axes_of_the_model() -> None:
    kind = "colour volume"
    image = image_of(kind)
    test = a_test(kind, contrast=Reference(np.zeros_like(image), noise=0), search=SpectralSearch(tol=1e-3))
    assert 0 < test(image).pvalue < 1
    with pytest.raises(InputError, match=r"a volume must be .D, H, W., or .C, D, H, W. with several channels, but"):
        test(image[0, 0])
    with pytest.raises(InputError, match=r"a signal must be .T,., or .C, T. with several channels, but the array has"):
        a_test("signal")(image)
    with pytest.raises(InputError, match="length 40 and 1 channel, but this one has length 39 and 1 channel"):
        a_test("signal")(np.zeros(39))
    with pytest.raises(InputError, match="the filter's kernel is an array with 2 axes, but the volume has 3"):
        a_test(kind, contrast=Filtered(np.ones((3, 3))))(image)
