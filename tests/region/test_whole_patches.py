"""Regions of whole patches, against loops over pixels and patches in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest import AttentionTest
from attentest.attention import NumpyScores, TorchScores, ViTScores
from attentest.contrast import Filtered, Neighbourhood, Reference, RegionMean
from attentest.contrast.contrast import labelled_components
from attentest.errors import InputError
from attentest.images.preprocessing import Preprocessing
from attentest.noise import AR1, Isotropic, PerChannel
from attentest.region.attention_map import attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import RegionRule, Threshold, TopFraction
from attentest.results.result import AttentionTestResult
from attentest.search import Adaptive, Fixed, GridSearch, SpectralSearch
from attentest.statistics.truncation_set import Intervals
from toys import COARSE, tiny_vit

Axis = tuple[int, int, Fraction, Fraction, Fraction]


@dataclass(frozen=True)
class Patches:
    """A grid of patches over an image, by axis: pixels, patches, pixels of the input covered, scale and offset."""

    rows: Axis
    columns: Axis

    def grid(self) -> PatchGrid:
        axes = self.rows, self.columns
        size, count, covered, placement = (
            tuple(make(axis) for axis in axes)
            for make in (lambda a: a[0], lambda a: a[1], lambda a: float(a[2]), lambda a: (float(a[3]), float(a[4])))
        )
        return PatchGrid(size, count, covered, placement, units="patches")  # type: ignore[arg-type]

    def of_pixels(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The patch that the centre of each pixel lies in; pixels that the model does not see are left out."""
        rows, columns = (patches_of(*axis) for axis in (self.rows, self.columns))
        return {(y, x): (row, column) for y, row in rows.items() for x, column in columns.items()}


@cache
def patches_of(pixels: int, patches: int, covered: Fraction, scale: Fraction, offset: Fraction) -> dict[int, int]:
    centres = {pixel: (pixel + Fraction(1, 2)) * scale + offset for pixel in range(pixels)}
    return {
        pixel: min(floor(centre * patches / covered), patches - 1)
        for pixel, centre in centres.items()
        if 0 <= centre <= covered
    }


def plain(pixels: int, patches: int, covered: int | None = None) -> Axis:
    return pixels, patches, Fraction(covered or pixels), Fraction(1), Fraction(0)


def placed(pixels: int, patches: int, covered: int, scale: str, offset: str) -> Axis:
    return pixels, patches, Fraction(covered), Fraction(scale), Fraction(offset)


PATCHES = {
    "a pixel each": Patches(plain(4, 4), plain(4, 4)),
    "rectangle": Patches(plain(8, 12), plain(12, 6)),
    "odd, with a border": Patches(plain(9, 4, 8), plain(11, 5, 10)),
    "centres on borders": Patches(plain(15, 6), plain(35, 14)),
    "resized and cropped": Patches(placed(45, 4, 64, "9/5", "-73/10"), placed(35, 3, 60, "12/7", "21/10")),
    "resized by an odd factor": Patches(placed(33, 7, 49, "49/33", "0"), placed(19, 7, 49, "85/19", "-18")),
    "resized, centres on borders": Patches(placed(11, 10, 30, "30/11", "0"), placed(13, 10, 30, "30/13", "0")),
    "more patches than pixels": Patches(placed(3, 8, 16, "16/3", "0"), placed(5, 7, 14, "14/5", "0")),
    "padded": Patches(placed(6, 4, 16, "1", "5"), placed(7, 4, 16, "1", "9/2")),
}

RULES: tuple[RegionRule, ...] = (Threshold(0.6), Threshold(0.25), TopFraction(0.2), TopFraction(0.01), TopFraction(0.9))


def slow_map_and_region(
    scores: NDArray[np.float64], patches: Patches, rule: RegionRule
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The map and the region pixel by pixel, from the scores of the patches that have pixels."""
    patch_of = patches.of_pixels()
    own = {patch: scores[patch] for patch in sorted(set(patch_of.values()))}
    low, high = min(own.values()), max(own.values())
    if isinstance(rule, Threshold):
        chosen = {patch for patch, score in own.items() if (score - low) / (high - low) > rule.tau}
    else:
        assert isinstance(rule, TopFraction)
        count = max(1, min(len(own) - 1, round(rule.q * len(own))))
        chosen = set(sorted(own, key=lambda patch: -own[patch])[:count])
    attention = np.zeros((patches.rows[0], patches.columns[0]))
    region = np.zeros(attention.shape, dtype=bool)
    for pixel, patch in patch_of.items():
        attention[pixel] = (own[patch] - low) / (high - low)
        region[pixel] = patch in chosen
    return attention, region


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("name", PATCHES)
def test_map_and_region_are_those_of_the_patch_of_each_pixel(name: str, rule: RegionRule) -> None:
    patches, grid = PATCHES[name], PATCHES[name].grid()
    scores = np.random.default_rng(0).normal(size=(4, patches.rows[1], patches.columns[1]))
    values = torch.from_numpy(scores)
    attention = attention_map(values, grid)
    found = grid.on_image(attention).numpy(), grid.on_image(rule.regions(attention, grid, "signed", values)).numpy()
    for index, score in enumerate(scores):
        slow_map, slow_region = slow_map_and_region(score, patches, rule)
        np.testing.assert_allclose(found[0][index], slow_map, atol=1e-14)
        assert np.array_equal(found[1][index], slow_region)
    seen = np.zeros(grid.image_size, dtype=bool)
    for pixel in patches.of_pixels():
        seen[pixel] = True
    assert np.array_equal(grid.seen.numpy(), seen)
    assert np.prod(grid.size) == len(set(patches.of_pixels().values()))


@pytest.mark.parametrize("rule", RULES[:4], ids=repr)
@pytest.mark.parametrize("name", PATCHES)
def test_margins_are_negative_exactly_where_the_region_is_the_same(name: str, rule: RegionRule) -> None:
    patches, grid = PATCHES[name], PATCHES[name].grid()
    rng = np.random.default_rng(1)
    observed = rng.normal(size=(1, patches.rows[1], patches.columns[1]))
    steps = rng.choice([0.01, 0.1, 0.5], size=(40, 1, 1))
    scores = observed + steps * rng.normal(size=(40, *observed.shape[1:]))
    region = slow_map_and_region(observed[0], patches, rule)[1]
    same = [bool((slow_map_and_region(score, patches, rule)[1] == region).all()) for score in scores]
    assert 0 < sum(same) < 40
    first = torch.from_numpy(observed)
    margins = rule.margins(rule.regions(attention_map(first, grid), grid, "signed", first), grid, first, "signed")
    which, values = torch.zeros(40, dtype=torch.int64), torch.from_numpy(scores)
    assert (margins(which, values) < 0).all(dim=1).tolist() == same
    assert margins.inside(which, values).tolist() == same
    assert margins(which, values).shape[1] == np.prod(grid.size)
    extremes, _ = margins.extremes(which, margins.pixels(which, values))
    assert (extremes @ margins.weights.T < 0).all(dim=1).tolist() == same


@pytest.mark.parametrize("connectivity", [1, 2])
@pytest.mark.parametrize("name", PATCHES)
def test_components_of_pixels_are_components_of_patches(name: str, connectivity: int) -> None:
    """Patches without pixels are no gaps: their neighbours touch in the image."""
    grid = PATCHES[name].grid()
    for seed in range(10):
        units = np.random.default_rng(seed).random(grid.size) < 0.4
        labels, count = labelled_components(units, connectivity)
        of_pixels, of_image = labelled_components(grid.on_image(torch.from_numpy(units)).numpy(), connectivity)
        assert count == of_image
        assert np.array_equal(grid.on_image(torch.from_numpy(labels)).numpy(), of_pixels)


PROCESSOR = Preprocessing(resize=10, crop=(8, 8), rescale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25))


def bright_patches(images: Tensor) -> Tensor:
    """Scores of 3 x 2 patches over 9 x 7 pixels: smooth functions of the weighted pixels around each."""
    rows, columns = (
        torch.exp(-((torch.arange(pixels, dtype=torch.float64)[:, None] - torch.tensor(centres)) ** 2) / 4)
        for pixels, centres in ((9, [1.0, 4.0, 7.0]), (7, [1.25, 4.75]))
    )
    local = rows.T @ (images[:, 0] / 5) @ columns
    return torch.tanh(local) + 0.1 * local


def bright_patches_numpy(images: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(bright_patches(torch.from_numpy(images)).numpy())


@dataclass(frozen=True)
class Case:
    """A test of whole patches, and what a slow computation of its region needs."""

    rule: RegionRule
    patches: Patches
    image: NDArray[Any]
    noise: Any
    model: Any
    options: dict[str, Any]
    connectivity: int | None = None

    def test(self) -> AttentionTest:
        rule = {"threshold": self.rule.tau} if isinstance(self.rule, Threshold) else {"top_fraction": self.rule.q}
        return AttentionTest(
            self.model,
            noise=self.noise,
            region_unit="patches",
            confidence_level=None,
            **rule,
            **self.options,
        )

    def scores(self, pixels: NDArray[np.float64]) -> NDArray[np.float64]:
        """The scores of images (m, C, H, W)."""
        if not isinstance(self.model, torch.nn.Module):
            return bright_patches_numpy(pixels)
        scores = ViTScores(self.model, image_size=self.options.get("image_size"))
        preprocessing = self.options.get("preprocessing")
        inputs: Callable[[Tensor], Tensor] = (
            (lambda x: x) if preprocessing is None else preprocessing.plan(pixels.shape[1:], 3, (0.0, 255.0))
        )
        return np.asarray(scores(inputs(torch.from_numpy(pixels))).numpy())


def picture(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


EIGHT = Patches(plain(8, 4), plain(8, 4))
NINE_BY_ELEVEN = Patches(plain(9, 4, 8), plain(11, 5, 10))
# Resized to 10 x 13, then 8 x 8 from the centre, so that the first row of the crop is 1 and the first column 2.
CROPPED = Patches(placed(20, 4, 8, "1/2", "-1"), placed(27, 4, 8, "13/27", "-2"))
FUNCTION = Patches(plain(9, 3), plain(7, 2))

CASES = {
    "paper's": Case(Threshold(0.6), EIGHT, picture(8, 8), Isotropic(1.0), tiny_vit(), {}),
    "crop, colour, ring, top": Case(
        TopFraction(0.2),
        CROPPED,
        np.random.default_rng(3).integers(0, 256, (20, 27, 3)).astype(np.uint8),
        PerChannel([40.0, 50.0, 60.0]),
        tiny_vit(channels=3),
        {"preprocessing": PROCESSOR, "contrast": Neighbourhood(2.0)},
    ),
    "border, components, channels, fixed": Case(
        Threshold(0.4),
        NINE_BY_ELEVEN,
        picture(9, 11, 3),
        AR1(0.5),
        tiny_vit(channels=3),
        {"image_size": (9, 11), "channels": (0.3, 0.5, 0.2), "search": GridSearch(step=Fixed(step=0.1), extent=4.0)},
        connectivity=1,
    ),
    "filter, diagonal components, mixed precision, top": Case(
        TopFraction(0.3),
        EIGHT,
        picture(8, 8, seed=3),
        Isotropic(1.0),
        tiny_vit(),
        {
            "contrast": Filtered("laplacian", of=RegionMean()),
            "alternative": "greater",
            "search": SpectralSearch(precision="mixed"),
        },
        connectivity=2,
    ),
    "torch function, reference, adaptive": Case(
        Threshold(0.4),
        FUNCTION,
        picture(9, 7, seed=1),
        AR1(0.3),
        TorchScores(bright_patches, (1, 9, 7)),
        {"contrast": Reference(picture(9, 7, seed=2)), "search": GridSearch(step=Adaptive(), extent=3.0)},
    ),
    "function, contrast function, combination, top": Case(
        TopFraction(0.5),
        FUNCTION,
        picture(9, 7, seed=5),
        Isotropic(1.0),
        NumpyScores(bright_patches_numpy, (1, 9, 7)),
        {"contrast": lambda region: region - 0.3, "search": COARSE},
    ),
}


def inside(z: NDArray[np.float64], intervals: Intervals, margin: float) -> NDArray[np.bool_]:
    """Which points lie in intervals, made wider by a margin."""
    return ((z[:, None] > intervals[:, 0] - margin) & (z[:, None] < intervals[:, 1] + margin)).any(axis=1)


def parts(case: Case) -> Iterator[AttentionTestResult]:
    if case.connectivity is None:
        yield case.test()(case.image)
    else:
        yield from case.test().components(case.image, connectivity=case.connectivity)


@pytest.mark.parametrize("name", CASES)
def test_the_truncation_set_is_that_of_a_grid(name: str) -> None:
    """Along the line of each tested part, the slow region is the observed one exactly where the search says so."""
    case = CASES[name]
    pixels = np.moveaxis(np.atleast_3d(case.image).astype(np.float64), -1, 0)
    tested = list(parts(case))
    assert len(tested) > (case.connectivity is not None)
    for result in tested:
        slow_map, region = slow_map_and_region(case.scores(pixels[None])[0], case.patches, case.rule)
        assert np.array_equal(result.region, region)
        np.testing.assert_allclose(result.attention, slow_map, atol=1e-12)
        weights = case.test().contrast.weights(result.part, result.region, result.seen)
        channels = np.asarray(case.options.get("channels", np.full(len(pixels), 1 / len(pixels))))
        eta = (channels[:, None, None] * weights).ravel()
        direction = case.noise.apply(eta[None])[0].reshape(pixels.shape) / result.standard_error
        z = result.statistic + np.linspace(-4, 4, 161) * 0.97
        line = pixels + direction * (z - result.statistic)[:, None, None, None]
        same = [
            bool((slow_map_and_region(scores, case.patches, case.rule)[1] == region).all())
            for scores in case.scores(line)
        ]
        certain, impossible = (
            inside(z, result.truncation_set.certain, -1e-6),
            ~inside(z, result.truncation_set.possible, 1e-6),
        )
        assert all(same[i] for i in np.flatnonzero(certain))
        assert not any(same[i] for i in np.flatnonzero(impossible))
        assert (certain | impossible).mean() > 0.7
        assert certain.any()


def test_every_pixel_of_a_patch_is_shown_with_the_score_of_its_patch() -> None:
    test = CASES["paper's"].test()
    image = picture(8, 8)
    blocks = test(image).attention.reshape(4, 2, 4, 2)
    assert np.ptp(blocks, axis=(1, 3)).max() == 0
    assert (blocks.min(), blocks.max()) == (0, 1)
    assert np.array_equal(test.attention_maps([image])[0], blocks.reshape(8, 8))


def test_bonferroni_counts_regions_of_patches() -> None:
    case = CASES["crop, colour, ring, top"]
    result = case.test()(case.image)
    assert result.selectable == result.to_dict()["selectable"] == 16 < result.seen.sum()
    for one in (result, result.with_alternative("greater")):
        assert one.bonferroni_log_pvalue == pytest.approx(min(0.0, 16 * np.log(2) + one.naive_log_pvalue))
    bright = np.where(result.region[..., None], 250, np.full(3, 5)).astype(np.uint8)
    part = case.test().components(bright)[0]
    assert part.bonferroni_log_pvalue < 0
    assert part.bonferroni_log_pvalue == pytest.approx(16 * np.log(3) + part.naive_log_pvalue)


def test_it_is_recorded() -> None:
    test = CASES["paper's"].test()
    result = test(picture(8, 8))
    assert test.settings["region_unit"] == result.to_dict()["settings"]["region_unit"] == "patches"
    assert "region_unit='patches'" in repr(test.replace(search="fixed"))
    assert AttentionTest(tiny_vit(), noise=1.0).settings["region_unit"] == "pixels"


@pytest.mark.parametrize("rule", [{"threshold": 0.6}, {"top_fraction": 0.5}])
@pytest.mark.parametrize("region", ["pixels", "patches"])
def test_one_unit_alone_is_no_region(region: str, rule: dict[str, float]) -> None:
    preprocessing = Preprocessing(resize=(80, 80), crop=(8, 8))
    test = AttentionTest(tiny_vit(), noise=1.0, preprocessing=preprocessing, region_unit=region, **rule)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"constant on the 1 x 1 {region} of the image that the model sees"):
        test(picture(9, 9))


def two_equal(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores of four patches, the last two of which are always equal."""
    means = images.mean(axis=(1, 2, 3))
    return np.stack([means + 3, means + 2, np.tanh(means), np.tanh(means)], axis=1).reshape(-1, 2, 2)


def test_bad_input_ends_in_one_sentence_about_patches() -> None:
    for wrong in ("patch", None, 3):
        with pytest.raises(InputError, match=f"region_unit must be pixels or patches, got {wrong!r}"):
            AttentionTest(tiny_vit(), noise=1.0, region_unit=wrong)  # type: ignore[arg-type]
    tied = AttentionTest(two_equal, noise=1.0, top_fraction=0.75, region_unit="patches", image_shape=(1, 6, 6))
    with pytest.raises(InputError, match=r"^patches of equal attention lie on both sides of the cut"):
        tied(picture(6, 6))
