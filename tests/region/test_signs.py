"""Regions of maps with two signs, and conditions joined to them, against their definitions written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from attentest.errors import InputError
from attentest.region.attention_map import JointMargins, attention_map
from attentest.region.patch_grid import PatchGrid
from attentest.region.rule import TIE, RegionRule, Threshold, TopFraction

GRIDS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "signal of pixels": ((24,), (6,), "pixels"),
    "signal of patches": ((24,), (8,), "patches"),
    "image of pixels": ((8, 12), (4, 3), "pixels"),
    "image of many pixels, of which few can be extreme": ((32, 32), (3, 3), "pixels"),
    "image of patches": ((12, 9), (4, 3), "patches"),
    "a pixel each": ((4, 4), (4, 4), "pixels"),
    "volume of pixels": ((4, 6, 4), (2, 3, 2), "pixels"),
    "volume of patches": ((4, 6, 4), (2, 3, 2), "patches"),
}
IMAGES, MOVED = 10, 50


def grid_of(name: str) -> PatchGrid:
    size, grid, units = GRIDS[name]
    return PatchGrid(size, grid, units=units)


def selected(values: NDArray[np.float64], sign: str, tau: float) -> Any:
    """What is selected of one map (*units), as something that two maps can be compared by; None if there is no region.

    Of positive maps, the region and whether a pixel is negative; of absolute ones, the region, the signs within it and
    that of the greatest pixel.
    """
    values = values.ravel()
    if sign == "positive":
        clipped = np.where(values > 0, values, 0.0)
        span = clipped.max() - clipped.min()
        if span == 0:
            return None
        region = (clipped - clipped.min()) / span > tau + TIE
        return region.tobytes(), bool((values < 0).any())
    if sign == "absolute":
        region = abs(values) / abs(values).max() > tau + TIE
        if region.all():
            return None
        return region.tobytes(), np.sign(values[region]).tobytes(), np.sign(values[np.argmax(abs(values))])
    region = (values - values.min()) / (values.max() - values.min()) > tau + TIE
    return region.tobytes()


def observed_and_moved(
    patch_grid: PatchGrid, sign: str, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Scores (k, *grid) of observed images, and images (m,) with scores (m, *grid) near theirs, some far away."""
    scores = rng.normal(size=(IMAGES, *patch_grid.grid))
    scores[IMAGES // 2 :] += 2.5 if sign == "positive" else 0.0  # of some no pixel is negative
    image = np.repeat(np.arange(IMAGES), MOVED)
    distance = 10.0 ** rng.uniform(-3, 0.5, size=len(image)).reshape(-1, *[1] * len(patch_grid.grid))
    moved = scores[image] + distance * rng.normal(size=(len(image), *patch_grid.grid))
    moved[rng.random(len(image)) < 0.1] *= -1
    return scores, image, moved


def test_maps_of_two_signs_are_those_of_the_definition() -> None:
    patch_grid = PatchGrid((4, 4), (4, 4))
    scores = np.random.default_rng(0).normal(size=(5, 4, 4))
    for row in range(5):
        positive = attention_map(torch.from_numpy(scores), patch_grid, "positive")[row].numpy()
        np.testing.assert_allclose(positive, np.maximum(scores[row], 0) / scores[row].max(), atol=1e-15)
        absolute = attention_map(torch.from_numpy(scores), patch_grid, "absolute")[row].numpy()
        np.testing.assert_allclose(absolute, abs(scores[row]) / abs(scores[row]).max(), atol=1e-15)
    above = attention_map(torch.from_numpy(scores + 9), patch_grid, "positive")
    np.testing.assert_allclose(above, attention_map(torch.from_numpy(scores + 9), patch_grid), atol=1e-15)


@pytest.mark.parametrize("tau", [0.3, 0.6, 0.85])
@pytest.mark.parametrize("sign", ["signed", "positive", "absolute"])
@pytest.mark.parametrize("name", GRIDS)
def test_margins_are_negative_exactly_where_the_same_is_selected(name: str, sign: Any, tau: float) -> None:
    patch_grid, rule = grid_of(name), Threshold(tau)
    scores, image, moved = observed_and_moved(patch_grid, sign, np.random.default_rng(len(name) + int(100 * tau)))
    units = patch_grid.unit_scores(torch.from_numpy(scores)).numpy()
    usable = [row for row in range(IMAGES) if selected(units[row], sign, tau) is not None]
    image, moved = image[np.isin(image, usable)], moved[np.isin(image, usable)]
    image = np.searchsorted(usable, image)
    scores, units = scores[usable], units[usable]
    regions = rule.regions(
        attention_map(torch.from_numpy(scores), patch_grid, sign), patch_grid, sign, torch.from_numpy(scores)
    )
    for row, values in enumerate(units):
        told: Any = selected(values, sign, tau)
        assert regions[row].numpy().tobytes() == (told if sign == "signed" else told[0])
    margins = rule.margins(regions, patch_grid, torch.from_numpy(scores), sign)
    at = patch_grid.unit_scores(torch.from_numpy(moved)).numpy()
    observed = [selected(values, sign, tau) for values in units]
    expected = [selected(values, sign, tau) == observed[row] for row, values in zip(image, at, strict=True)]
    check(margins, image, moved, expected)
    assert 0.02 < np.mean(expected) < 0.9
    assert (margins._sparse is not None) == ("of which few can be extreme" in name)  # type: ignore[attr-defined]
    # The observed scores themselves.
    check(margins, np.arange(len(scores)), scores, [True] * len(scores))


def check(margins: Any, image: NDArray[np.int64], scores: NDArray[np.float64], expected: list[bool]) -> None:
    """Check that all of what margins say of scores (m, *grid) of images (m,) is what is expected."""
    rows, values = torch.from_numpy(image), torch.from_numpy(scores)
    assert (margins(rows, values) < 0).all(dim=1).tolist() == expected
    assert margins.inside(rows, values).tolist() == expected
    pixels = margins.pixels(rows, values)
    extremes, attained = margins.extremes(rows, pixels)
    assert (extremes @ margins.weights.T < 0).all(dim=1).tolist() == expected
    assert torch.equal(pixels.gather(1, attained) * margins.signs, extremes)


@pytest.mark.parametrize("name", GRIDS)
def test_a_part_of_the_rows_at_a_time_gives_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from attentest.region import attention_map as module

    patch_grid, rule = grid_of(name), Threshold()
    for sign in ("positive", "absolute"):
        scores, image, moved = map(torch.from_numpy, observed_and_moved(patch_grid, sign, np.random.default_rng(1)))
        regions = rule.regions(attention_map(scores, patch_grid, sign), patch_grid, sign, scores)  # type: ignore[arg-type]
        margins = rule.margins(regions, patch_grid, scores, sign)  # type: ignore[arg-type]
        together = margins.inside(image, moved)
        monkeypatch.setattr(module, "PIXELS_TOGETHER", 1)
        assert torch.equal(margins.inside(image, moved), together)
        monkeypatch.undo()


def test_each_selection_is_a_class_of_an_equivalence() -> None:
    """A p is valid if the condition of every point of a set is that same set, whichever of them was observed."""
    patch_grid, rule, rng = grid_of("image of pixels"), Threshold(), np.random.default_rng(5)
    for sign in ("positive", "absolute"):
        base, way = rng.normal(size=(2, 1, 4, 3))
        scores = torch.from_numpy(base + np.linspace(-1, 1, 150).reshape(-1, 1, 1) * way)
        regions = rule.regions(attention_map(scores, patch_grid, sign), patch_grid, sign, scores)  # type: ignore[arg-type]
        margins = rule.margins(regions, patch_grid, scores, sign)  # type: ignore[arg-type]
        rows = torch.arange(150)
        same = torch.stack([margins.inside(rows, point.expand(150, -1, -1)) for point in scores])
        assert torch.equal(same, same.T)
        assert torch.equal(same, (same.double() @ same.double()) > 0)
        assert 1 < len(torch.unique(same, dim=0)) < 150


@pytest.mark.parametrize("rule", [Threshold(), Threshold(0.3), TopFraction(0.2)])
@pytest.mark.parametrize("conditions", [0, 1, 3])
def test_joint_margins_are_negative_where_all_are(rule: RegionRule, conditions: int) -> None:
    rng = np.random.default_rng(conditions)
    signs: list[Any] = ["positive", "signed"] if isinstance(rule, TopFraction) else ["positive", "absolute"]
    maps, parts = [], []
    expected, usable = np.ones(IMAGES * MOVED, dtype=np.bool_), np.ones(IMAGES, dtype=np.bool_)
    image = np.repeat(np.arange(IMAGES), MOVED)
    for name, sign in zip(("image of pixels", "signal of patches"), signs, strict=True):
        patch_grid = grid_of(name)
        scores, _, moved = observed_and_moved(patch_grid, "positive", rng)
        regions = rule.regions(
            attention_map(torch.from_numpy(scores), patch_grid, sign), patch_grid, sign, torch.from_numpy(scores)
        )
        usable &= (regions.flatten(1).any(dim=1) & ~regions.flatten(1).all(dim=1)).numpy()
        margins = rule.margins(regions, patch_grid, torch.from_numpy(scores), sign)
        expected &= margins.inside(torch.from_numpy(image), torch.from_numpy(moved)).numpy()
        maps.append((margins, patch_grid.grid))
        parts.append(moved.reshape(len(moved), -1))
    values = rng.normal(size=(len(image), conditions)) - 1
    expected &= (values < 0).all(axis=1)
    joined, rows = np.concatenate([*parts, values], axis=1), usable[image]
    check(JointMargins(maps, conditions), image[rows], joined[rows], expected[rows].tolist())
    assert 0.02 < expected[rows].mean() < 0.9


@pytest.mark.parametrize("q", [0.1, 0.4, 0.8])
@pytest.mark.parametrize("name", GRIDS)
def test_the_top_fraction_of_a_positive_map_is_where_it_is_positive(name: str, q: float) -> None:
    """A pixel at zero ties with all that are negative, so that there is no region."""
    patch_grid, rule = grid_of(name), TopFraction(q)
    scores, image, moved = observed_and_moved(patch_grid, "positive", np.random.default_rng(3))

    def regions_of(values: NDArray[np.float64]) -> Tensor:
        scores = torch.from_numpy(values)
        regions = rule.regions(attention_map(scores, patch_grid, "positive"), patch_grid, "positive", scores).flatten(1)
        signed = rule.regions(attention_map(scores, patch_grid), patch_grid, "signed", scores).flatten(1)
        lowest = patch_grid.unit_scores(scores).flatten(1).masked_fill(~signed, torch.inf).amin(dim=1)
        assert torch.equal(regions, signed & (lowest > 0)[:, None])
        return regions

    observed = regions_of(scores)
    usable = observed.any(dim=1).numpy()
    rows = usable[image]
    margins = rule.margins(
        observed[usable].unflatten(1, patch_grid.size), patch_grid, torch.from_numpy(scores[usable]), "positive"
    )
    expected = (regions_of(moved) == observed[image]).all(dim=1).numpy()[rows]
    check(margins, (np.cumsum(usable) - 1)[image[rows]], moved[rows], expected.tolist())
    assert 0.02 < expected.mean() < 0.9


def test_a_fraction_of_absolute_values_is_refused() -> None:
    patch_grid = grid_of("image of pixels")
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 4, 3)))
    regions = TopFraction(0.2).regions(attention_map(scores, patch_grid, "absolute"), patch_grid, "absolute", scores)
    with pytest.raises(InputError, match="top_fraction does not go with a map of absolute values: use a threshold, or"):
        TopFraction(0.2).margins(regions, patch_grid, scores, "absolute")
